"""Records: what one says of itself where it cannot be read."""

import pytest

from mainstay.core.base.change import read_as
from mainstay.errors import StoredValueError


def test_a_record_is_read_as_what_it_should_be():
    assert read_as(dict[str, int], b'{"a": 1}', "thing") == {"a": 1}


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"a": "b"}', b"\xff", b"[" * 100_000])
def test_a_damaged_record_says_so(value):
    """By one error, whatever was done to it."""
    with pytest.raises(StoredValueError, match="the record of the thing is damaged"):
        read_as(dict[str, int], value, "thing")
