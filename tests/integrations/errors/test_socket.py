"""socket: what the resolver of this system raises is known by the name of its number."""

import socket
import sys

import pytest

import mainstay
from mainstay.core.known.codes import codes_of
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.testing import virtual_time
from tests.servers.ports import dead_port

NUMERIC = socket.AI_NUMERICHOST  # nothing is looked up, so that no packet leaves


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse with other numbers")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("no-such-name", None, 0, 0, 0, NUMERIC), "EAI_NONAME"),
        (("127.0.0.1", "no-such-service"), "EAI_SERVICE"),
        (("127.0.0.1", None, 255), "EAI_FAMILY"),
        (("127.0.0.1", None, 0, 99), "EAI_SOCKTYPE"),
        (("127.0.0.1", None, 0, 0, 0, 1 << 20), "EAI_BADFLAGS"),
        (("127.0.0.1", None, socket.AF_INET6, 0, 0, NUMERIC), "EAI_ADDRFAMILY"),
    ],
)
def test_what_the_resolver_refuses_is_permanent(arguments, code):
    """The same question has the same answer; it is asked once."""
    tries = []

    @mainstay.retry(on=mainstay.transient, attempts=3)
    def look_up():
        tries.append(1)
        socket.getaddrinfo(*arguments)

    with virtual_time(), pytest.raises(socket.gaierror) as caught:
        look_up()
    known = kind_of(caught.value)
    assert (known.kind, known.table) == (Kind.PERMANENT, "socket")
    assert code in codes_of(caught.value)
    assert len(tries) == 1


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (socket.EAI_AGAIN, Kind.TRANSIENT),
        (-3, Kind.TRANSIENT),
        (2, Kind.TRANSIENT),
        (11002, Kind.TRANSIENT),
        (socket.EAI_NONAME, Kind.PERMANENT),
        (socket.EAI_FAIL, Kind.PERMANENT),
        (socket.EAI_MEMORY, Kind.OVERLOAD),
        (socket.EAI_NODATA, Kind.PERMANENT),
        (13, Kind.UNKNOWN),
        (None, Kind.UNKNOWN),
    ],
)
def test_a_number_of_the_resolver_is_no_errno(number, kind):
    """Raised here: no packet may leave, so no name server can be asked; also those of others."""
    assert kind_of(socket.gaierror(number, "no")).kind is kind


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (1, Kind.PERMANENT),
        (2, Kind.TRANSIENT),
        (3, Kind.PERMANENT),
        (4, Kind.PERMANENT),
        (13, Kind.UNKNOWN),
    ],
)
def test_the_older_functions_have_numbers_of_their_own(number, kind):
    """Raised here, as above."""
    assert kind_of(socket.herror(number, "no")).kind is kind


def test_a_name_that_cannot_be_resolved_for_now_is_asked_for_again():
    """A resolver that comes back is no failure of the program."""
    tries = []

    @mainstay.retry(on=mainstay.transient, attempts=3)
    def look_up():
        tries.append(1)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    with virtual_time(), pytest.raises(socket.gaierror):
        look_up()
    assert len(tries) == 3


def test_other_errors_of_sockets_are_known_by_their_errno():
    """The table is for the resolver alone."""
    port = dead_port()
    with pytest.raises(ConnectionRefusedError) as caught:
        socket.create_connection(("127.0.0.1", port), timeout=60)
    known = kind_of(caught.value)
    assert (known.kind, known.table) == (Kind.TRANSIENT, "")
