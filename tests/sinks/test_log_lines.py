"""What is logged is one line: no exception or operation writes a second one."""

from __future__ import annotations

import io
import json
import logging
import warnings

import pytest

from mainstay import Backoff, Engine, Jitter, MainstayWarning, RetryPolicy, events
from mainstay.cli.exec.report import Reporter
from mainstay.core.retry.give_up import GaveUp
from mainstay.runtime.reports.logs import logger
from mainstay.runtime.reports.report_failure import report
from mainstay.sinks.logging import JsonFormatter, LoggingSink
from mainstay.testing import scripted, virtual_time

EVIL = "down\r\n2026-01-01 INFO all is well\x1b[2J\x9b1m\u202e\u2028\u2066\u200f\u061c\x00\x85"
POLICY = RetryPolicy(name="api", backoff=Backoff.constant(1.0), jitter=Jitter.none())


@pytest.fixture
def lines():
    """What a handler of the logger `mainstay` writes, with a format of one line."""
    out, ours = io.StringIO(newline=""), logger()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    level = ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.DEBUG)
    yield out.getvalue
    ours.removeHandler(handler)
    ours.setLevel(level)


def is_one_line_each(text, count):
    assert text.endswith("\n")
    assert len(text.splitlines()) == count
    assert text.replace("\n", "").isprintable()


def test_the_text_of_an_exception_writes_no_line_of_its_own(lines):
    """Line breaks, escape sequences, C1 controls, separators and marks of direction are shown."""
    with virtual_time(), Engine(policies=[POLICY]) as engine:
        engine.run("api", scripted(ConnectionError(EVIL), "up"))
    is_one_line_each(lines(), 3)
    assert r"down\r\n2026-01-01 INFO all is well\x1b[2J\x9b1m\u202e\u2028\u2066" in lines()


def test_the_name_of_an_operation_writes_no_line_of_its_own(lines):
    """Nor does that of a circuit, in the logger for security."""
    sink = LoggingSink()
    sink(events.CallFailed(operation=f"fetch{EVIL}"))
    sink(events.CircuitStateChanged(operation=f"db{EVIL}", to_state="open"))
    is_one_line_each(lines(), 2)


def test_a_logger_of_ones_own_gets_one_line_too():
    """Escaped before it is logged: a filter of ours is only on our own loggers."""
    own, out = logging.getLogger("own.log.lines"), io.StringIO(newline="")
    handler = logging.StreamHandler(out)
    own.addHandler(handler)
    LoggingSink(own)(events.CallFailed(operation=EVIL))
    own.removeHandler(handler)
    is_one_line_each(out.getvalue(), 1)


def test_what_mainstay_reports_of_itself_is_one_line_before_its_traceback(lines):
    """The message is escaped; a traceback has its own lines, as in all logs."""
    report(None, "%s: does not answer", EVIL)
    logger("mainstay").warning("cannot be read: %s", EVIL)
    is_one_line_each(lines(), 2)
    report(OSError(EVIL), "a sink failed")
    assert r"ERROR a sink failed: OSError: down\r\n" in lines()


def test_a_traceback_holds_nothing_that_a_terminal_obeys(lines):
    """It has its own lines; what else is in the text of the exception is shown."""
    report(OSError(EVIL), "a sink failed")
    _, _, traceback = lines().partition("\n")
    assert r"all is well\x1b[2J\x9b1m\u202e\u2028" in traceback
    assert traceback.replace("\n", "").isprintable()


def test_a_message_whose_arguments_do_not_fit_is_left_to_the_handler(lines, monkeypatch):
    """As logging does with every record."""
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logger().warning("%s and %s", "one")
    assert lines() == ""


def test_a_line_of_json_stays_json():
    """Bidirectional marks and separators are escapes in it, and half a surrogate is none."""
    fields = {"name": "app", "levelname": "INFO", "msg": EVIL + "\ud800", "more": "\u202e\udfff"}
    line = JsonFormatter().format(logging.makeLogRecord(fields))
    assert line.isprintable()
    assert json.loads(line)["more"] == "\u202e\udfff"
    assert json.loads(line)["message"].startswith("down\r\n2026")


@pytest.mark.parametrize("level", ["note", "warn"])
def test_lines_of_exec_are_one_line_each(capsys, level):
    """What a command or a file is called does not write on the terminal."""
    getattr(Reporter(quiet=False, as_json=False), level)(f"{EVIL}: exit 1")
    is_one_line_each(capsys.readouterr().err, 1)
    getattr(Reporter(quiet=False, as_json=True), level)(EVIL, reason=EVIL)
    assert json.loads(capsys.readouterr().err)["reason"] == EVIL


def test_a_note_and_a_warning_are_one_line():
    """The operation that was given up on, and what a call warns of."""
    assert GaveUp(f"fetch{EVIL}", "no attempt left", 1, 3).isprintable()

    @RetryPolicy(name=f"outer{EVIL}.", max_attempts=2, nested="warn")
    def outer():
        inner()

    @RetryPolicy(name=f"inner{EVIL}.", max_attempts=2)
    def inner():
        raise ConnectionError("down")

    with virtual_time(), warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", MainstayWarning)
        with pytest.raises(ConnectionError):
            outer()
    texts = [str(each.message) for each in found if issubclass(each.category, MainstayWarning)]
    assert texts
    assert all(text.isprintable() for text in texts)
