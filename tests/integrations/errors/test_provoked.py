"""tools/provoked.py: which rows were provoked through a library, and which by a test itself."""

import json
import socket

import pytest

from mainstay.integrations.errors import table
from tools import provoked

LIBRARIES = provoked.libraries()


def test_a_call_provokes_and_a_test_does_not():
    """The traceback of an exception of C ends at the call; that of `raise` at the statement."""
    with pytest.raises(socket.gaierror) as caught:
        socket.getaddrinfo("127.0.0.1", "no-such-service")
    assert provoked.is_provoked(caught.value)
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    assert provoked.is_provoked(caught.value)
    with pytest.raises(ValueError, match="ours") as caught:
        raise ValueError("ours")
    assert not provoked.is_provoked(caught.value)
    assert not provoked.is_provoked(ValueError())


def test_the_line_of_a_table_that_decides():
    """As the documentation names it."""
    entry = table("socket").entries["socket.gaierror"]
    assert provoked.case_of(entry, socket.gaierror(socket.EAI_AGAIN, "")) == "code EAI_AGAIN"
    assert provoked.case_of(entry, socket.gaierror(13, "")) == "otherwise"


def test_what_is_open_is_what_was_not_seen():
    """Rows that several classes share are counted once; a parser counts less than a client."""
    first = next(iter(provoked.provoked("socket", [])))
    row = "socket", "socket.gaierror", "code EAI_AGAIN"
    assert first == "socket.gaierror code EAI_AGAIN"
    for how in (provoked.CLIENT, provoked.PARSER):
        assert provoked.provoked("socket", [(*row, how)])[first] == how
    both = [(*row, provoked.PARSER), (*row, provoked.CLIENT)]
    assert provoked.provoked("socket", both)[first] == provoked.CLIENT


HOW = """run .venv/bin/python -m pytest -p tools.provoked tests/integrations/errors
and then .venv/bin/python tools/provoked.py --write"""


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_row_has_been_looked_at(library):
    """The summary is of the tables as they are: each of their rows, and no other."""
    written = provoked.summary()[library]
    assert [*written] == [*provoked.provoked(library, [])], HOW
    assert set(written.values()) <= {"client", "parser", "never", "open"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_at_most_a_fifth_of_what_a_library_can_raise_is_not_provoked(library):
    """By the library's own parser, or by nothing; the rest is raised by the real client."""
    assert provoked.share(provoked.summary()[library].values()) <= 0.2


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_a_library_never_raises_has_a_reason(library):
    """Beside the row, or in the file of reasons, which has no others."""
    written = provoked.summary()[library]
    given = provoked.reasons().get(library, {})
    assert {name: written.get(name) for name in given} == dict.fromkeys(given, provoked.NEVER)
    assert all(len(reason) > 10 for reason in given.values())
