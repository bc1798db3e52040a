"""The classes of headers that know a name in any case: those of the installed libraries do."""

import http.client
import importlib

import pytest

from mainstay.core.known.kind import qualified_name
from mainstay.core.retry.retry_after import FOLDING, hint_of

CLASSES = {
    "botocore": "botocore.awsrequest:HeadersDict",
    "httpx": "httpx:Headers",
    "multidict": "multidict:CIMultiDict",
    "requests": "requests.structures:CaseInsensitiveDict",
    "urllib3": "urllib3:HTTPHeaderDict",
}


class Refused(Exception):
    def __init__(self, headers):
        super().__init__()
        self.headers = headers


@pytest.mark.parametrize("place", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("name", ["Retry-After", "retry-after", "RETRY-AFTER"])
def test_a_name_is_known_in_any_case(place, name):
    module, _, called = place.partition(":")
    cls = getattr(importlib.import_module(module), called)
    assert qualified_name(cls) in FOLDING
    assert hint_of(Refused(cls({name: "7"}))).seconds == 7.0
    assert hint_of(Refused(cls({"Server": "x"}))) is None


def test_headers_of_an_answer_cannot_be_changed_and_know_a_name_too():
    multidict = importlib.import_module("multidict")
    headers = multidict.CIMultiDictProxy(multidict.CIMultiDict({"retry-after": "7"}))
    assert qualified_name(type(headers)) in FOLDING
    assert hint_of(Refused(headers)).seconds == 7.0


def test_each_class_that_is_listed_is_one_of_these():
    """A name that is misspelt would only make it slow, and nobody would see it."""
    loaded = [place.split(":") for place in CLASSES.values()]
    known = {qualified_name(getattr(importlib.import_module(m), name)) for m, name in loaded}
    known |= {qualified_name(http.client.HTTPMessage), "multidict._multidict.CIMultiDictProxy"}
    assert known == FOLDING
