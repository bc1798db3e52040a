"""`mainstay explain-error`: what is known of an exception class, and why."""

import errno
import json

import botocore.exceptions
import httpx2
import openai
import pytest
from click.testing import CliRunner

from mainstay import Kind, RetryPolicy
from mainstay.cli.app import app
from mainstay.cli.explain_error import _found
from mainstay.core.known.kind import qualified_name
from mainstay.core.known.listing import reads_status
from mainstay.integrations.errors import FILES, Cases, Row, Table, register, table, unregister


def explained(*arguments, code=0):
    done = CliRunner().invoke(app, ["explain-error", *arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["httpx.PoolTimeout"], ("timeout", True, False, "")),
        (["httpx.ReadTimeout"], ("timeout", True, True, "")),
        (["httpx.NetworkError"], ("transient", True, True, "httpx.TransportError")),
        (["httpx.HTTPStatusError", "--status", "404"], ("permanent", False, False, "")),
        (["httpx.HTTPStatusError", "--status", "429"], ("throttled", True, False, "")),
        (["ConnectionError"], ("transient", True, False, "")),
        (["json.JSONDecodeError"], ("permanent", False, False, "")),
        (["urllib.error.HTTPError", "--status", "503"], ("overload", True, False, "")),
    ],
)
def test_one_answer_for_a_class_and_what_it_carries(arguments, expected):
    """Kind, retried, ambiguous, and the ancestor whose entry it is."""
    (row,) = json.loads(explained(*arguments, "--json"))["rows"]
    assert (row["kind"], row["retried"], row["ambiguous"], row["ancestor"]) == expected
    assert row["why"]
    assert row["kind"] in explained(*arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("botocore.exceptions.ClientError --code ThrottlingException --status 400", "throttled"),
        ("botocore.exceptions.ClientError --code Nonsense --status 400", "permanent"),
        ("openai.RateLimitError --status 429 --code insufficient_quota", "permanent"),
        ("openai.RateLimitError --status 429", "throttled"),
        ("httpx.HTTPStatusError --code 404", "permanent"),
        ("httpx.ReadTimeout --status 404", "permanent"),
        ("httpx.ReadTimeout --code 404", "timeout"),
        ("httpx.HTTPStatusError --status 200", "unknown"),
        ("redis.exceptions.ResponseError --code NONSENSE", "permanent"),
        ("OSError --code EHOSTUNREACH", "transient"),
        ("OSError --code 104", "transient"),
        ("OSError --code ENOENT", "permanent"),
        ("OSError --code 99999", "unknown"),
        ("FileNotFoundError", "permanent"),
        ("KeyboardInterrupt", "permanent"),
        ("builtins.ExceptionGroup", "of what it wraps"),
    ],
)
def test_a_code_and_a_status_decide_as_they_do_in_a_call(arguments, expected):
    """A code before a status; an errno is no status, and what no row has is not left out."""
    (row,) = json.loads(explained(*arguments.split(), "--json"))["rows"]
    assert row["kind"] == expected
    assert expected in explained(*arguments.split())


def test_an_oserror_is_decided_by_its_errno():
    """Each is listed; one that this system does not have is refused."""
    rows = json.loads(explained("OSError", "--json"))["rows"]
    kinds = {row["case"]: row["kind"] for row in rows}
    assert (kinds["errno EPIPE"], kinds["errno EMFILE"]) == ("transient", "overload")
    assert (kinds["otherwise"], len(rows) > 30) == ("unknown", True)
    assert "has no errno of that name" in explained("OSError", "--code", "ENONSENSE", code=1)
    assert "status" not in explained("OSError", "--code", "104")


def entries():
    """Every entry of every table with cases, and what they may read: a status, or a code."""
    for file in sorted(set(FILES.values())):
        for name, entry in table(file).entries.items():
            each = entry
            while isinstance(each, Cases):
                for case in each.rows:
                    number = {"4*": "418", "5*": "599"} if reads_status(each) else {}
                    shown = number.get(case, str(case).replace("*", "x"))
                    yield name.replace("*", "Any"), shown, each
                each = each.otherwise


def read(cases, error):
    """What cases read of an error that carries a status and a code, and nothing else."""
    found = () if cases.of == "status" or error.code is None else (error.code,)
    is_read = reads_status(cases) and error.status_code is not None
    return (*found, str(error.status_code)) if is_read else found


def test_what_it_prints_is_what_happens_in_a_call(monkeypatch):
    """Of each row of each table: of a code alone, of a status, and of both."""
    for cls in {type(cases) for *_, cases in entries()} | {Cases}:
        monkeypatch.setattr(cls, "cases", read)
    policy, count = RetryPolicy(), 0
    for name, case, cases in entries():
        is_status = reads_status(cases) and case.isdecimal()
        of_status = [(int(case), None), (int(case), "nothing known")] if is_status else []
        of_code = [] if is_status else [(None, case), (400, case), (503, case), (200, case)]
        for status, code in of_status + of_code:
            _, (line, *others) = _found(name, status, code)
            module, _, short = name.rpartition(".")
            error = type(short, (Exception,), {"__module__": module, "__qualname__": short})()
            error.status_code, error.code = status, code
            happens = policy.classification(error)
            if not others:  # no other exception inside that decides
                expected = happens.kind.value, happens.reason, happens.is_ambiguous
                assert (line.kind, line.why, line.is_ambiguous) == expected, (name, status, code)
                assert line.is_retried is happens.retryable
                count += 1
    assert count > 3000


def of_real_libraries():
    """Errors as the libraries make them, and what asks for them."""
    for name, status in (("ThrottlingException", 400), ("NoSuchKey", 404), ("Odd", 503)):
        answer = {"Error": {"Code": name}, "ResponseMetadata": {"HTTPStatusCode": status}}
        yield botocore.exceptions.ClientError(answer, "Put"), (status, name)
    asked = httpx2.Request("GET", "http://localhost")
    for code in ("insufficient_quota", "rate_limit_exceeded"):
        answer, body = httpx2.Response(429, request=asked), {"code": code, "message": "no"}
        yield openai.RateLimitError("no", response=answer, body=body), (429, code)
    for status in (200, 302, 404, 418, 429, 503, 599):
        answer = httpx2.Response(status, request=asked)
        yield httpx2.HTTPStatusError("no", request=asked, response=answer), (status, None)
    for number, name in errno.errorcode.items():
        yield OSError(number, "no"), (None, name)
        yield OSError(number, "no"), (None, str(number))


@pytest.mark.parametrize(("error", "asked"), list(of_real_libraries()))
def test_what_it_prints_is_what_happens_to_an_error_of_the_library(error, asked):
    """The status and the code are where the library has them."""
    name = "OSError" if isinstance(error, OSError) else qualified_name(type(error))
    _, (line,) = _found(name, *asked)
    happens = RetryPolicy().classification(error)
    expected = happens.kind.value, happens.reason, happens.retryable
    assert (line.kind, line.why, line.is_retried) == expected


def test_a_class_that_derives_from_a_known_one_has_its_answer():
    """Its library is imported for that, since only the class knows its ancestors."""
    (row,) = json.loads(explained("tests.cli.test_explain_error.Derived", "--json"))["rows"]
    assert (row["kind"], row["ancestor"]) == ("overload", "acme.Busy")
    assert "by its ancestor acme.Busy" in explained("tests.cli.test_explain_error.Derived")


def test_cases_are_a_table():
    """A class whose status decides shows all of them, JSON too."""
    shown = explained("httpx.HTTPStatusError")
    assert "status 429" in shown
    assert "otherwise" in shown
    assert len(json.loads(explained("httpx.HTTPStatusError", "--json"))["rows"]) == 13


def test_many_cases_are_cut_and_the_rest_is_named(monkeypatch):
    """A screen is not filled with codes."""
    monkeypatch.setattr("mainstay.cli.explain_error.MAX_SHOWN", 2)
    assert "11 more; --json has all" in explained("httpx.HTTPStatusError")


def test_a_name_that_is_no_class_is_refused():
    """Nothing is guessed."""
    for name in ("nope.Nothing", "json.dumps", "Nonsense"):
        assert f"no exception class is named '{name}'" in explained(name, code=1)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("httpx.ReadTimeou", "httpx.ReadTimeout"),
        ("httpx.readtimeout", "httpx.ReadTimeout"),
        ("acme.Bussy", "acme.Busy"),
        ("ConectionError", "ConnectionError"),
    ],
)
def test_a_misspelt_class_gets_the_nearest_one(name, meant):
    """Of the tables of its library, or of Python's own classes."""
    assert f"did you mean {meant}?" in explained(name, code=1)


class Busy(Exception):
    __module__, __qualname__ = "acme", "Busy"


class Derived(Busy):
    """Of the user's own."""


@pytest.fixture(autouse=True)
def _registered():
    """A library that does not exist."""
    register(Table("acme", {"acme.Busy": Row(Kind.OVERLOAD, "the queue is full")}))
    yield
    unregister("acme")
