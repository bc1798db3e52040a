"""What is known of an exception without being told: status, errno, winerror, type."""

import asyncio
import errno
import http.client
import importlib.util
import socket
import ssl
import sys
import urllib.error
from types import SimpleNamespace

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from mainstay import errors
from mainstay.core.known.http import status_of
from mainstay.core.known.kind import RETRIED_KINDS, Kind, qualified_name
from mainstay.core.retry import kinds
from mainstay.core.retry.kinds import ERRNOS, is_decided_by_errno, kind_of


def kind(exception):
    return kind_of(exception).kind.value


def with_attributes(error, **attributes):
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def test_the_eight_kinds():
    """A kind is a text, equal to its value and found by it: records hold the values."""
    names = "transient throttled timeout permanent auth ambiguous overload unknown".split()
    assert [member.value for member in Kind] == names
    assert all(Kind(name) == name and str(Kind(name)) == name for name in names)
    assert f"{Kind.AUTH}" == "auth"


@pytest.mark.req("FR-041-23", "FR-041-24")
def test_the_kinds_that_are_retried_by_default():
    """A policy without retry_on retries transient, throttled, timeout and overload."""
    assert {k.value for k in RETRIED_KINDS} == {"transient", "throttled", "timeout", "overload"}


# --- HTTP -----------------------------------------------------------------------------------------

STATUSES = {
    401: "auth", 403: "auth", 407: "auth", 408: "timeout", 425: "transient", 429: "throttled",
    500: "transient", 502: "transient", 503: "overload", 504: "timeout",
}  # fmt: skip


def test_every_status():
    """Those of the table have their kind, other errors are final, what is no error unknown."""
    for status in range(100, 600):
        known = kind_of(with_attributes(RuntimeError(), status_code=status))
        other = "permanent" if status >= 400 else "unknown"
        assert known.kind.value == STATUSES.get(status, other)
        assert known.reason == f"status {status}"
        assert not known.by_type


@pytest.mark.req("FR-041-07", "FR-041-23")
def test_the_statuses_retried_by_default():
    """The engine's own set is that of decision 12."""
    retried = {
        status
        for status in range(100, 600)
        if kind_of(with_attributes(RuntimeError(), status=status)).kind in RETRIED_KINDS
    }
    assert retried == {408, 425, 429, 500, 502, 503, 504}


def test_a_status_is_found_where_libraries_put_it():
    """httpx and requests have response.status_code, aiohttp .status, urllib .status as well."""  # noqa: D403
    for error in (
        with_attributes(RuntimeError(), status_code=503),
        with_attributes(RuntimeError(), status=503),
        with_attributes(RuntimeError(), response=SimpleNamespace(status_code=503)),
        with_attributes(RuntimeError(), response=SimpleNamespace(status=503)),
        with_attributes(RuntimeError(), response=SimpleNamespace(status=503), status_code=None),
        with_attributes(RuntimeError(), status_code="x", status=503),
    ):
        assert status_of(error) == 503
    own_first = with_attributes(
        RuntimeError(), status=404, response=SimpleNamespace(status_code=503)
    )
    assert status_of(own_first) == 404


@pytest.mark.parametrize("value", [99, 600, 0, -1, True, "503", 503.0, None, [503]])
def test_what_is_no_status_is_not_taken_for_one(value):
    """Only whole numbers from 100 to 599 are a status."""
    assert status_of(with_attributes(RuntimeError(), status_code=value)) is None
    assert kind(with_attributes(RuntimeError(), status_code=value)) == "unknown"


def test_the_ends_of_the_range_are_statuses():
    """100 and 599 are."""
    assert status_of(with_attributes(RuntimeError(), status_code=100)) == 100
    assert status_of(with_attributes(RuntimeError(), status_code=599)) == 599


def test_a_status_speaks_louder_than_the_type():
    """A ConnectionError that carries a 401 is an authentication failure."""
    assert kind(with_attributes(ConnectionError(), status=401)) == "auth"
    assert kind(with_attributes(ValueError(), status=429)) == "throttled"


# --- the operating system -------------------------------------------------------------------------

BY_ERRNO = {
    "transient": (
        "EAGAIN EWOULDBLOCK EBUSY ETXTBSY EINTR EDEADLK ENOLCK EALREADY EINPROGRESS ECONNABORTED"
        " ECONNREFUSED ECONNRESET EHOSTDOWN EHOSTUNREACH ENETDOWN ENETRESET ENETUNREACH ENOTCONN"
        " EPIPE ESHUTDOWN ESTALE"
    ),
    "overload": "EMFILE ENFILE ENOBUFS ENOMEM",
    "auth": "EACCES EPERM",
    "permanent": (
        "EBADF EEXIST EFBIG EINVAL EISDIR ELOOP ENAMETOOLONG ENODEV ENOENT ENOEXEC ENOSPC ENOSYS"
        " ENOTDIR ENOTEMPTY EROFS EXDEV"
    ),
    "timeout": "ETIMEDOUT",
}
NAMES = [(name, wanted) for wanted, names in BY_ERRNO.items() for name in names.split()]


@pytest.mark.req("AG-09.errno", "NFR-041-18", "IT-041-13")
@pytest.mark.parametrize(("name", "wanted"), [row for row in NAMES if hasattr(errno, row[0])])
def test_an_errno_of_this_system_is_known(name, wanted):
    """Busy, locked, reset and full are told from wrong and forbidden, by number."""
    number = getattr(errno, name)
    assert kind(OSError(number, "simulated")) == wanted
    assert kind(with_attributes(OSError(), errno=number)) == wanted


def kinds_on(**numbers):
    """The module as another system would load it: with that system's errno numbers."""
    codes = {number: name for name, number in numbers.items()}
    there = SimpleNamespace(**numbers, errorcode=codes)
    spec = importlib.util.spec_from_file_location("kinds_elsewhere", kinds.__file__)
    module = importlib.util.module_from_spec(spec)
    here = sys.modules["errno"]
    sys.modules["errno"] = there
    try:
        spec.loader.exec_module(module)
    finally:
        sys.modules["errno"] = here
    return module


MACOS = {
    "EPERM": 1, "ENOENT": 2, "EINTR": 4, "EDEADLK": 11, "ENOMEM": 12, "EACCES": 13, "EBUSY": 16,
    "EMFILE": 24, "ETXTBSY": 26, "ENOSPC": 28, "EPIPE": 32, "EAGAIN": 35, "ENETDOWN": 50,
    "ECONNRESET": 54, "ENOBUFS": 55, "ETIMEDOUT": 60, "ECONNREFUSED": 61, "EHOSTDOWN": 64,
    "ESTALE": 70, "ENOLCK": 77,
}  # fmt: skip
WINDOWS = {
    "EPERM": 1, "ENOENT": 2, "EINTR": 4, "EAGAIN": 11, "ENOMEM": 12, "EACCES": 13, "EBUSY": 16,
    "EMFILE": 24, "ENOSPC": 28, "EPIPE": 32, "EDEADLK": 36, "ENOLCK": 39, "EWOULDBLOCK": 10035,
    "ENETDOWN": 10050, "ECONNRESET": 10054, "ENOBUFS": 10055, "ETIMEDOUT": 10060,
    "ECONNREFUSED": 10061, "EHOSTUNREACH": 10065,
}  # fmt: skip


@pytest.mark.req("AG-09.errno", "NFR-041-18", "IT-041-13")
@pytest.mark.parametrize("system", [MACOS, WINDOWS], ids=["macos", "windows"])
def test_the_errnos_of_another_system_are_known_there(system):
    """The table goes by name: numbers differ between systems, and some names are missing."""
    elsewhere = kinds_on(**system)
    wanted = dict(NAMES)
    for name, number in system.items():
        known = elsewhere.kind_of(with_attributes(OSError(), errno=number))
        assert known.kind.value == wanted[name], name
        assert known.reason == f"errno {name}"
    missing = 424242
    assert elsewhere.kind_of(with_attributes(OSError(), errno=missing)).kind.value == "unknown"


@pytest.mark.req("AG-09.winerror")
@pytest.mark.parametrize(
    ("winerror", "wanted"),
    [
        (5, "auth"),
        (32, "transient"),
        (33, "transient"),
        (64, "transient"),
        (121, "timeout"),
        (170, "transient"),
        (2, "auth"),  # no entry: the errno decides
    ],
)
def test_a_winerror_is_known_and_looked_at_first(winerror, wanted):
    """Windows calls a sharing violation EACCES; it is a busy file all the same."""
    error = with_attributes(PermissionError(errno.EACCES, "simulated"), winerror=winerror)
    known = kind_of(error)
    assert known.kind.value == wanted
    assert known.reason == ("errno EACCES" if winerror == 2 else f"winerror {winerror}")
    assert not known.by_type


def test_an_errno_says_its_name():
    """The reason in a record is a word that people can look up."""
    assert kind_of(OSError(errno.EBUSY, "")).reason == "errno EBUSY"


def test_connection_errors_and_timeouts_need_no_errno():
    """Their type says it, whatever number they carry."""
    for error, wanted in [
        (ConnectionResetError(), "transient"),
        (BrokenPipeError(errno.EPIPE, ""), "transient"),
        (with_attributes(ConnectionError(), errno=errno.EACCES), "transient"),
        (TimeoutError(), "timeout"),
        (with_attributes(TimeoutError(), errno=errno.EACCES), "timeout"),
    ]:
        assert kind(error) == wanted
        assert kind_of(error).by_type


def test_an_oserror_without_a_number_goes_by_its_type_but_its_instances_differ():
    """PermissionError() is auth, OSError() unknown; the next instance may carry a number."""
    for error, wanted in [
        (PermissionError(), "auth"),
        (FileNotFoundError(), "permanent"),
        (BlockingIOError(), "transient"),
        (OSError(), "unknown"),
        (OSError(99999, "?"), "unknown"),
        (OSError("text"), "unknown"),
    ]:
        assert kind(error) == wanted
        assert not kind_of(error).by_type


# --- types ----------------------------------------------------------------------------------------


class Own(Exception):
    pass


class OwnValue(ValueError):
    pass


TYPES = [
    (errors.CallCancelled("f", 1), "permanent"),
    (errors.AttemptTimeout(1.0), "timeout"),
    (errors.DeadlineExceeded(1.0), "timeout"),
    (errors.Refused("no"), "overload"),
    (errors.CommandFailed("rsync", 23), "transient"),
    (errors.CommandKilled("rsync", 9), "unknown"),
    (errors.CommandNotRun("rsync", 127), "unknown"),
    (errors.OutcomeUnknown("f"), "permanent"),
    (errors.MainstayError("no"), "permanent"),
    (errors.PolicyError("p", []), "permanent"),
    (errors.WrapError("no"), "permanent"),
    (TimeoutError(), "timeout"),
    (BlockingIOError(), "transient"),
    (InterruptedError(), "transient"),
    (FileExistsError(), "permanent"),
    (FileNotFoundError(), "permanent"),
    (IsADirectoryError(), "permanent"),
    (NotADirectoryError(), "permanent"),
    (ZeroDivisionError(), "permanent"),
    (AssertionError(), "permanent"),
    (AttributeError(), "permanent"),
    (ModuleNotFoundError(), "permanent"),
    (KeyError(), "permanent"),
    (IndexError(), "permanent"),
    (MemoryError(), "permanent"),
    (UnboundLocalError(), "permanent"),
    (NotImplementedError(), "permanent"),
    (RecursionError(), "permanent"),
    (IndentationError(), "permanent"),
    (TypeError(), "permanent"),
    (ValueError(), "permanent"),
    (UnicodeDecodeError("utf-8", b"", 0, 0, ""), "permanent"),
    (OwnValue(), "permanent"),
    (RuntimeError(), "unknown"),
    (Exception(), "unknown"),
    (EOFError(), "unknown"),
    (Own(), "unknown"),
]


@pytest.mark.req("FR-041-08", "FR-041-23", "UT-041-08")
@pytest.mark.parametrize(("error", "wanted"), TYPES, ids=lambda v: type(v).__name__)
def test_a_type_is_known(error, wanted):
    """Mistakes of the caller are permanent, waits are timeouts, the rest is unknown."""
    assert kind(error) == wanted


def test_the_reason_names_the_base_that_told():
    """A subclass is explained by what is known of it."""
    assert kind_of(OwnValue()).reason == "a ValueError"
    assert kind_of(Own()).reason == "nothing is known of it"
    assert kind_of(PermissionError()).reason == "a PermissionError"
    assert kind_of(OSError(99999, "?")).reason == "nothing is known of it"
    assert kind_of(http.client.BadStatusLine("")).reason == "a BadStatusLine"
    assert kind_of(urllib.error.URLError(TimeoutError())).reason == "a TimeoutError"
    assert kind_of(urllib.error.URLError("text")).reason == "nothing is known of it"
    again = with_attributes(socket.gaierror(-3, "for now"), ms_known=None)
    assert kind_of(again).reason == "a name that cannot be resolved for now"


def test_a_reason_is_looked_into_only_where_it_is_one():
    """Other exceptions may have a `reason` of their own; a URLError may have none."""
    assert kind(with_attributes(Own(), reason=ConnectionError())) == "unknown"
    bare = urllib.error.URLError("x")
    del bare.reason
    assert kind(bare) == "unknown"


STANDARD_LIBRARY = [
    (urllib.error.URLError(ConnectionRefusedError(errno.ECONNREFUSED, "no")), "transient"),
    (urllib.error.URLError(TimeoutError("slow")), "timeout"),
    (urllib.error.URLError(PermissionError(errno.EACCES, "no")), "auth"),
    (urllib.error.URLError("unknown url type"), "unknown"),
    (urllib.error.HTTPError("http://x", 503, "busy", {}, None), "overload"),
    (urllib.error.HTTPError("http://x", 404, "gone", {}, None), "permanent"),
    (http.client.IncompleteRead(b""), "transient"),
    (http.client.BadStatusLine(""), "transient"),
    (http.client.RemoteDisconnected(), "transient"),
    (asyncio.IncompleteReadError(b"", 5), "transient"),
    (trio.TooSlowError(), "timeout"),
]


@pytest.mark.req("FR-041-07", "FR-041-23", "AG-09.errno")
@pytest.mark.parametrize(
    ("error", "wanted"), STANDARD_LIBRARY, ids=lambda v: v if isinstance(v, str) else repr(v)
)
def test_failures_of_the_standard_library_are_known(error, wanted):
    """URLError by what is inside it, the others by their class."""
    assert kind(error) == wanted
    assert not kind_of(error).by_type


BEFORE_TABLES = [
    (socket.gaierror(socket.EAI_AGAIN, "for now"), "transient"),
    (socket.gaierror(-3, "for now, on Linux"), "transient"),
    (socket.gaierror(2, "for now, on macOS"), "transient"),
    (socket.gaierror(11002, "for now, on Windows"), "transient"),
    (socket.gaierror(socket.EAI_NONAME, "no such name"), "unknown"),
    (socket.herror(2, "another number of its own"), "unknown"),
    (socket.gaierror(errno.EACCES, "a number of its own"), "unknown"),
    (socket.herror(errno.EACCES, "a number of its own"), "unknown"),
    (ssl.SSLCertVerificationError(1, "expired"), "permanent"),
    (ssl.SSLEOFError(8, "cut"), "transient"),
    (ssl.SSLZeroReturnError(6, "closed"), "transient"),
    (ssl.SSLError(errno.EACCES, "a number of its own"), "unknown"),
]


@pytest.mark.req("AG-09.errno")
@pytest.mark.parametrize(
    ("error", "wanted"), BEFORE_TABLES, ids=lambda v: v if isinstance(v, str) else repr(v)
)
def test_what_was_recorded_before_there_were_tables_is_judged_as_it_was(error, wanted):
    """A replay decides by the numbers of resolvers and of TLS as the call did then."""
    error.ms_known = None
    assert kind(error) == wanted
    assert not kind_of(error).by_type


def test_only_built_in_types_are_settled_for_all_their_instances():
    """A class of the user's may carry a status one day and none the next."""
    assert kind_of(ValueError()).by_type
    assert kind_of(RuntimeError()).by_type
    assert not kind_of(OwnValue()).by_type
    assert not kind_of(Own()).by_type


@given(status=st.integers())
def test_no_status_raises(status):
    """Whatever number an exception carries, it has a kind."""
    assert isinstance(kind_of(with_attributes(Own(), status=status)).kind, Kind)


def test_a_qualified_name_is_module_and_name():
    """As rules and records spell a class, nested ones included."""

    class Inner(Exception):
        pass

    assert qualified_name(ValueError) == "builtins.ValueError"
    assert qualified_name(Inner).endswith("test_a_qualified_name_is_module_and_name.<locals>.Inner")
    assert qualified_name(Kind) == "mainstay.core.known.kind.Kind"


def test_an_errno_decides_if_the_class_leaves_it_to_that():
    """Those of the resolver and of OpenSSL are no errnos; some classes stand for one."""
    by_errno = (OSError, type("Disk", (OSError,), {}))
    by_class = (ValueError, ConnectionResetError, FileNotFoundError, socket.gaierror)
    assert [is_decided_by_errno(cls) for cls in by_errno] == [True, True]
    assert not any(is_decided_by_errno(cls) for cls in (*by_class, urllib.error.URLError))
    assert ERRNOS["ENOENT"] == errno.ENOENT
