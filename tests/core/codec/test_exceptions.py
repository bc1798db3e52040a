"""Recorded exceptions: each comes back as itself, or is stood for; no code of its class runs."""

import asyncio
import copy
import json
import pathlib
import pickle
import sqlite3
import sys
from enum import Enum
from typing import NamedTuple

import pytest

from mainstay.core.codec.outcome import Failed, decode_outcome, encode_outcome
from mainstay.errors import StoredFailure, UsageError

HERE = __name__
RAN = []
"""What code of a class was run by reading; nothing, unless a test says so."""


@pytest.fixture(autouse=True)
def ran():
    RAN.clear()
    return RAN


class Colour(Enum):
    RED = 1


class Point(NamedTuple):
    x: object
    y: object = 0


class Declined(Exception):
    """The usual mistake: the arguments do not make the exception again."""

    def __init__(self, message, code=500):
        RAN.append("Declined")
        super().__init__(f"declined: {message}")
        self.code = code


class Demanding(Exception):
    def __init__(self, *, order, reason):
        super().__init__()
        self.order = order
        self.reason = reason

    def __str__(self):
        return f"{self.order}: {self.reason}"


class DiskFull(OSError):
    def __init__(self, path):
        super().__init__(28, "disk full", path)
        self.path = path


class Both(ValueError, OSError):
    pass


class Slotted(Exception):
    __slots__ = ("code",)


class Moody(Exception):
    def __str__(self):
        return f"mood {len(RAN)}"


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no comment")

    __repr__ = __str__


class Meta(type):
    def __call__(cls, *args):
        RAN.append("Meta")
        return super().__call__(*args)


class Trap(Exception, metaclass=Meta):
    def __new__(cls, *args):
        RAN.append("Trap.__new__")
        return super().__new__(cls, *args)

    def __init__(self, *args):
        RAN.append("Trap.__init__")

    def __reduce__(self):
        RAN.append("Trap.__reduce__")
        return ValueError, ()

    def __setstate__(self, state):
        RAN.append("Trap.__setstate__")


class StrictError(ValueError):
    code = "E1"


def raised(exception):
    read = decode_outcome(encode_outcome(Failed(exception)))
    assert type(read) is Failed
    return read.exception


def look(exception):
    return {
        "type": type(exception),
        "text": str(exception),
        "args": exception.args,
        "vars": vars(exception),
        "held": [getattr(exception, n, None) for n in "errno strerror filename filename2".split()],
        "names": [getattr(exception, n, None) for n in "name path value".split()],
    }


def unicode_error():
    try:
        b"\xff".decode()
    except UnicodeDecodeError as error:
        return error


def missing_file():
    try:
        pathlib.Path("/no/such/file").read_text(encoding="utf-8")
    except OSError as error:
        return error


def json_error():
    try:
        json.loads("{")
    except ValueError as error:
        return error


def attribute_error():
    try:
        None.nothing  # noqa: B018
    except AttributeError as error:
        return error


REBUILT = [
    ValueError(), ValueError("x", 1, (2,), None), KeyError("x"), IndexError(0),
    ArithmeticError(-0.0), StrictError("x"), FileNotFoundError(2, "gone", "a"),
    OSError(5, "io", b"a", None, "b"), OSError("text"), OSError(),
    ConnectionResetError(104, "reset"), TimeoutError("late"),
    PermissionError(13, "no", pathlib.Path("a")), unicode_error(), missing_file(), json_error(),
    attribute_error(), ImportError("no", name="n", path="p"), NameError("x", name="x"),
    StopIteration(5), AssertionError(), NotImplementedError("x"), RecursionError("x"),
    SyntaxError("bad", ("f", 1, 2, "text")), sqlite3.OperationalError("x"),
    Declined("x", code=402), Demanding(order=7, reason="x"), DiskFull("/tmp"), Both("x"), Trap(1),
    StoredFailure("shop.X", "x"), UsageError("x", hint="y"), ValueError("\ud800"),
    ValueError(Colour.RED, Point(1)), StopAsyncIteration(1), Warning("w"),
]  # fmt: skip


@pytest.mark.parametrize(
    "exception", REBUILT, ids=lambda e: f"{type(e).__name__}-{ascii(e.args)[:20]}"
)
def test_an_exception_comes_back_as_itself(exception):
    """Its type, text, arguments and attributes, without a traceback of its own."""
    read = raised(exception)
    assert look(read) == look(exception)
    assert read.__traceback__ is None


def test_no_code_of_an_exception_class_runs(ran):
    """Neither constructor nor metaclass nor what pickle would call."""
    data = encode_outcome(Failed(Trap("x")))
    other = encode_outcome(Failed(Declined("x")))
    ran.clear()
    read = decode_outcome(data).exception
    assert (type(read), read.args) == (Trap, ("x",))
    assert type(decode_outcome(other).exception) is Declined
    assert ran == []


def test_notes_come_back_in_order():
    """Notes of the user's own and of ours; what is not text is told as text."""
    error = ValueError("x")
    error.add_note("first")
    error.add_note("second \ud800")
    error.__notes__.append(3)
    assert raised(error).__notes__ == ["first", "second \ud800", "3"]
    assert not hasattr(raised(ValueError("x")), "__notes__")


def test_notes_that_are_no_list_are_left_out():
    """`__notes__` can be set to anything."""
    error = ValueError("x")
    error.__notes__ = 5
    assert raised(error).args == ("x",)
    assert not hasattr(raised(error), "__notes__")


def test_causes_come_back_as_notes():
    """The chain is told, not rebuilt."""
    error = Declined("x")
    error.__cause__ = OSError(5, "io")
    error.__cause__.__cause__ = StrictError("deep")
    read = raised(error)
    assert read.__cause__ is None
    assert read.__notes__ == [
        "caused by OSError: [Errno 5] io",
        f"caused by {HERE}.StrictError: deep",
    ]


def test_a_ring_of_causes_ends():
    """Python allows a cause of itself."""
    error = ValueError("x")
    error.__cause__ = error
    assert raised(error).__notes__ == ["caused by ValueError: x"] * 10


def local_error():
    class Local(Exception):
        pass

    return Local("x")


def with_slot():
    error = Slotted("x")
    error.code = 5
    return error


def with_response():
    error = ValueError("x")
    error.response = object()
    return error


STANDS_FOR = [
    (local_error(), f"{HERE}.local_error.<locals>.Local", "x"),
    (with_slot(), f"{HERE}.Slotted", "x"),
    (with_response(), "ValueError", "x"),
    (ExceptionGroup("many", [ValueError(1)]), "ExceptionGroup", "many (1 sub-exception)"),
    (Mute("x"), f"{HERE}.Mute", f"a {HERE}.Mute that cannot be shown"),
    (ValueError(Mute()), "ValueError", "a ValueError that cannot be shown"),
    (ValueError(len), "ValueError", "<built-in function len>"),
]


@pytest.mark.parametrize(
    ("exception", "type_name", "message"), STANDS_FOR, ids=[name for _, name, _ in STANDS_FOR]
)
def test_an_exception_that_cannot_come_back_is_stood_for(exception, type_name, message):
    """Its name, text and notes are kept; what it held and cannot be recorded is not made up."""
    exception.add_note("a note")
    read = raised(exception)
    assert type(read) is StoredFailure
    assert (read.type_name, read.message, read.__notes__) == (type_name, message, ["a note"])
    assert str(read) == f"{type_name}: {message}"


def test_an_argument_that_cannot_be_recorded_is_told_by_its_repr():
    """A person who reads the record sees what it was."""
    record = json.loads(encode_outcome(Failed(ValueError(1, len, Mute()))))["failed"]
    assert record["args"] == [1, "<built-in function len>", f"a {HERE}.Mute that cannot be shown"]
    assert record["whole"] is False


def test_an_exception_whose_text_would_be_another_is_stood_for(ran):
    """A text that depends on more than the exception holds cannot be repeated."""
    data = encode_outcome(Failed(Moody()))
    ran.append("something")
    read = decode_outcome(data).exception
    assert (type(read), read.message) == (StoredFailure, "mood 0")


def test_a_class_that_is_gone_leaves_its_name(monkeypatch):
    """A failure recorded by an older program is still a failure."""
    data = encode_outcome(Failed(Declined("x")))
    monkeypatch.delattr(sys.modules[HERE], "Declined")
    read = decode_outcome(data).exception
    assert str(read) == f"{HERE}.Declined: declined: x"


@pytest.mark.parametrize(
    "exception", [KeyboardInterrupt(), SystemExit(1), GeneratorExit(), asyncio.CancelledError()]
)
def test_what_ends_a_program_or_a_task_is_not_recorded(exception):
    """A replay must not interrupt anyone."""
    with pytest.raises(UsageError, match="cannot be recorded: it ends the program or the task"):
        encode_outcome(Failed(exception))


def test_a_stored_failure_can_be_copied_and_pickled():
    """It crosses processes as other exceptions do."""
    error = StoredFailure("shop.X", "x", ["note"])
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(twin), twin.type_name, twin.message) == ("shop.X: x", "shop.X", "x")
        assert twin.__notes__ == ["note"]


def test_a_forged_failure_sets_nothing_but_what_the_class_holds():
    """Names that no such exception has are passed over; the rest is data in `__dict__`."""
    record = {
        "type": ["builtins", "OSError"], "text": "x", "notes": [], "args": ["x"], "whole": True,
        "own": {"__class__": "Order", "with_traceback": 1},
        "held": {"__class__": 1, "__cause__": 2, "args": [3], "filename2": "f"},
    }  # fmt: skip
    read = decode_outcome(json.dumps({"v": 1, "failed": record}).encode()).exception
    assert type(read) is OSError
    assert (read.args, read.__cause__, read.filename2) == (("x",), None, "f")


def test_a_failure_that_is_not_whole_is_not_rebuilt_whatever_it_holds():
    """Only a record that says so is rebuilt."""
    record = json.loads(encode_outcome(Failed(ValueError("x"))))
    record["failed"]["whole"] = 1
    assert type(decode_outcome(json.dumps(record).encode()).exception) is StoredFailure


@pytest.mark.parametrize(
    "exception", [ValueError("x", 1), FileNotFoundError(2, "gone", "a")], ids=repr
)
def test_failures_look_as_they_always_did(exception):
    """A record of today is read for ever."""
    held = {"errno": 2, "strerror": "gone", "filename": "a"} if exception.args[0] == 2 else {}
    record = {
        "type": ["builtins", type(exception).__name__], "text": str(exception), "notes": [],
        "args": list(exception.args), "own": {}, "held": held, "whole": True,
    }  # fmt: skip
    assert json.loads(encode_outcome(Failed(exception))) == {"v": 1, "failed": record}
    assert look(decode_outcome(json.dumps({"v": 1, "failed": record}).encode()).exception) == look(
        exception
    )
