"""tools/provoked.py: which rows were provoked through a library, and which by a test itself."""

import json
import socket

import pytest

from mainstay.integrations.errors import table
from tools import provoked


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


def test_what_is_missing_is_what_was_not_seen():
    """Rows that several classes share are counted once."""
    rows, left = provoked.missing("socket", [])
    assert rows == len(left) > 10
    seen = [("socket", "socket.gaierror", "code EAI_AGAIN")]
    assert provoked.missing("socket", seen) == (rows, [each for each in left if each != left[0]])
