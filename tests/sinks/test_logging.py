"""Events as log records: the levels of the design, the fields on the record."""

from __future__ import annotations

import copy
import io
import json
import logging
import logging.config
import pickle

import pytest
import structlog

from mainstay import Backoff, BreakerSettings, Engine, Jitter, Redactor, RetryPolicy, events
from mainstay.sinks.logging import JsonFormatter, LoggingSink, level_of
from mainstay.testing import scripted, virtual_time

POLICY = RetryPolicy(name="api", backoff=Backoff.constant(1.0), jitter=Jitter.none())


@pytest.fixture
def heard(caplog):
    """An engine that logs as it does by default, and what was logged, as (level, event)."""
    caplog.set_level(logging.DEBUG, "mainstay")

    def run(function, policy=POLICY):
        caplog.clear()
        with virtual_time():
            Engine(policies=[policy]).run("api", function)
        return [(r.levelname, r.mainstay["event_type"]) for r in caplog.records]

    return run


@pytest.mark.req("FR-041-31", "FR-041-32", "FR-041-47", "NFR-041-21", "NFR-041-22", "IT-041-14")
@pytest.mark.req("AC-022", "UVS-1")
def test_a_recovered_call_is_logged_step_by_step(heard, caplog):
    """Each attempt DEBUG, the scheduled retry WARNING with its delay, the success INFO."""
    assert heard(scripted(ConnectionError("down"), "up")) == [
        ("DEBUG", "attempt_failed"),
        ("WARNING", "retry_attempt"),
        ("INFO", "call_succeeded"),
    ]
    said = [record.getMessage() for record in caplog.records]
    assert said[1] == ("api: attempt 1 of 3 failed with ConnectionError: down; next in 1.000 s")
    assert said[2] == "api: succeeded on attempt 2 after 1.000 s"
    assert caplog.records[1].mainstay["delay_seconds"] == 1.0


@pytest.mark.req("FR-041-33", "NFR-041-22", "UVS-2")
def test_an_exhausted_call_is_logged_as_an_error(heard, caplog):
    """All attempts, then the end at ERROR, saying how many, how long and what."""
    levels = heard(scripted(*[ConnectionError("down")] * 3))
    assert levels[-1] == ("ERROR", "retry_exhausted")
    assert [name for _, name in levels].count("attempt_failed") == 3
    assert caplog.records[-1].getMessage() == (
        "api: gave up after 3 attempts in 2.000 s (no attempt left; a ConnectionError):"
        " ConnectionError: down"
    )


@pytest.mark.req("UVS-3")
def test_a_final_failure_is_logged_with_its_category(heard, caplog):
    """Access denied: one attempt, no delay, and the log says it was an authentication matter."""
    assert heard(scripted(PermissionError("denied"))) == [
        ("DEBUG", "attempt_failed"),
        ("ERROR", "call_failed"),
    ]
    assert caplog.records[-1].mainstay["kind"] == "auth"
    assert "not retryable" in caplog.records[-1].getMessage()


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            events.PlanDeclared(plan="3f2a", fields={"name": "standard", "max_attempts": 3}),
            "by the policy 'standard' from here on: 3 attempts at most (plan 3f2a)",
        ),
        (
            events.CallsCounted(operation="api", calls=1200),
            "api: 1,200 calls succeeded at once",
        ),
        (
            events.Idempotency(operation="api", idempotency_key="o-7", action="hit"),
            "api: answered from the record of the key 'o-7'",
        ),
        (
            events.Idempotency(operation="api", idempotency_key="o-7", action="record"),
            "api: its outcome is kept under the key 'o-7'",
        ),
        (
            events.CircuitOrdered(operation="pay", order="reset", operator="ann", why="back"),
            "pay: ann ordered the circuit to reset: back",
        ),
    ],
)
def test_what_happens_beside_a_call_is_said_in_words(event, said):
    """As `mainstay audit tail` shows it."""
    assert event.sentence() == said


@pytest.mark.req("AG-02.breaker")
def test_security_events_have_a_logger_of_their_own(caplog):
    """Circuits, orders, operators and decisions: where they go can be said apart; else as all."""
    caplog.set_level(logging.INFO, "mainstay")
    settings = BreakerSettings(failure_threshold=1)
    with Engine(policies=[POLICY.replace(max_attempts=1)], breaker=settings) as engine:
        engine.run("api", scripted(ConnectionError("down")))
        engine.operators.add("ann", secret="correct horse")
    names = {record.mainstay["event_type"]: record.name for record in caplog.records}
    assert names["circuit_state_changed"] == names["operator_added"] == "mainstay.security"
    assert names["retry_exhausted"] == "mainstay"
    security = {name for name, cls in events.CATALOGUE.items() if cls.is_security}
    assert security == {
        "circuit_ordered",
        "circuit_state_changed",
        "governance_escalated",
        "inbox_closed",
        "inbox_decided",
        "operator_added",
        "operator_changed",
        "operator_refused",
        "outbox_discarded",
        "outbox_purged",
        "outbox_replayed",
    }


@pytest.mark.req("FR-041-31")
def test_a_call_that_never_failed_is_logged_at_debug(heard):
    """So that it can be seen where everything is."""
    assert heard(lambda: 1) == [("DEBUG", "call_succeeded")]


def test_a_policy_chooses_the_level_of_its_retries(heard):
    """`log_level` is for the scheduled retry alone."""
    levels = dict(
        map(reversed, heard(scripted(OSError(11, ""), 1), POLICY.replace(log_level="INFO")))
    )
    assert levels["retry_attempt"] == "INFO"
    assert levels["attempt_failed"] == "DEBUG"


def test_nothing_is_made_for_a_level_that_is_off(caplog):
    """With DEBUG off, a first success makes no record and a retry only its own."""
    caplog.set_level(logging.WARNING, "mainstay")
    with virtual_time():
        engine = Engine(policies=[POLICY])
        engine.call("api", int, "1")
        engine.call("api", scripted(ConnectionError("down"), "up"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_logger_of_ones_own(caplog):
    """By name or as an object."""
    for logger in ("my.retries", logging.getLogger("my.retries")):
        caplog.clear()
        with virtual_time():
            engine = Engine(policies=[POLICY], sinks=[LoggingSink(logger)])
            engine.call("api", scripted(ConnectionError("down"), "up"))
        assert {record.name for record in caplog.records} == {"my.retries"}


@pytest.mark.parametrize("name", sorted(events.CATALOGUE))
def test_every_event_has_a_level_and_a_sentence(name):
    """A new event is not forgotten here: it says more than its name, or just that."""
    event = events.CATALOGUE[name](operation="api")
    assert level_of(event) in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
    assert event.sentence().startswith("api: ")


# --- JSON -----------------------------------------------------------------------------------------


@pytest.fixture
def configured():
    """Configures logging as an application does, and gives the lines that are then written."""
    stream = io.StringIO()
    log = logging.getLogger("mainstay")
    before = log.level, log.handlers[:], log.propagate

    def configure(formatter):
        handler = {"class": "logging.StreamHandler", "stream": stream, "formatter": "own"}
        own = {"handlers": ["own"], "level": "DEBUG", "propagate": False}
        logging.config.dictConfig(
            {
                "version": 1,
                "disable_existing_loggers": False,
                "formatters": {"own": formatter},
                "handlers": {"own": handler},
                "loggers": {"mainstay": own},
            }
        )
        return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]

    yield configure
    log.setLevel(before[0])  # it forgets which levels were on: to set the attribute does not
    log.handlers[:], log.propagate = before[1:]


JSON = {"()": "mainstay.sinks.logging.JsonFormatter"}


@pytest.mark.req("NFR-041-21", "NFR-041-22", "NFR-041-28", "IT-041-14", "FR-041-31", "FR-041-32")
def test_every_event_is_one_line_of_json_with_all_its_fields(configured):
    """By logging's own configuration; nothing of the event is left out."""
    lines, heard = configured(JSON), []
    with virtual_time():
        engine = Engine(policies=[POLICY], sinks=[LoggingSink(), heard.append])
        engine.run("api", scripted(ConnectionError("down\nand out"), "up"))
    told = [(line["level"], line["logger"], line["event_type"]) for line in lines()]
    assert told == [
        ("DEBUG", "mainstay", "attempt_failed"),
        ("WARNING", "mainstay", "retry_attempt"),
        ("INFO", "mainstay", "call_succeeded"),
    ]
    for line, event in zip(lines(), heard, strict=True):
        assert {**line, **event.to_dict()} == line
        assert line["message"] == event.sentence().replace("\n", r"\n")
        assert list(line)[:4] == ["level", "logger", "message", "timestamp"]


@pytest.mark.req("NFR-041-23", "FR-041-60")
def test_the_changes_of_a_circuit_are_lines_at_info(configured):
    """From state to state, with the reason."""
    lines = configured(JSON)
    with virtual_time():
        engine = Engine(policies=[POLICY], breaker=BreakerSettings(failure_threshold=1))
        engine.run("api", scripted(ConnectionError("down")))
    (line,) = [line for line in lines() if line["event_type"] == "circuit_state_changed"]
    assert (line["level"], line["from_state"], line["to_state"]) == ("INFO", "closed", "open")


@pytest.mark.req("NFR-041-29", "IT-041-08")
def test_lines_hold_no_secret_also_those_of_others(configured):
    """Messages and exceptions of any logger; patterns of one's own."""
    redact = Redactor(patterns=["EMP-[0-9]+"])
    lines = configured({"()": "mainstay.sinks.logging.JsonFormatter", "redact": redact})
    log = logging.getLogger("mainstay")
    log.info("EMP-12 with token=%s", "abc")
    try:
        raise ValueError("password=hunter2 \udcff")
    except ValueError:
        log.exception("it broke")
    Engine(sinks=[LoggingSink(), lambda event: 1 / 0]).run("api", scripted(OSError("pin=4821")))
    text = json.dumps(lines())
    assert [word for word in ("EMP-12", "abc", "hunter2", "pin=4821") if word in text] == []
    broke = next(line for line in lines() if line["message"] == "it broke")
    assert broke["exception"].endswith("ValueError: password=[redacted] \\udcff")
    assert any("ZeroDivisionError" in line.get("exception", "") for line in lines())


def test_fields_given_as_extra_are_written_without_their_secrets(configured):
    """After ours, and never in place of them."""
    lines = configured(JSON)
    extra = {"effect_type": "db", "api_key": "k-1", "level": 7, "to": ["redis://:pw@db", {1, 2}]}
    logging.getLogger("mainstay").info("done", extra=extra)
    (line,) = lines()
    assert (line["level"], line["effect_type"], line["api_key"]) == ("INFO", "db", "[redacted]")
    assert line["to"] == ["redis://:[redacted]@db", [1, 2]]
    assert list(line)[:4] == ["level", "logger", "message", "timestamp"]


def test_a_line_is_made_of_anything():
    """A record with odd values is written all the same, and always the same way."""
    odd = {"name": "a", "levelname": "INFO", "msg": "m", "created": 0.0}
    record = logging.makeLogRecord({**odd, "mainstay": {"x": object, "proof": 1}})
    line = (
        '{"level":"INFO","logger":"a","message":"m","timestamp":"1970-01-01T00:00:00Z",'
        '"x":"<class \'object\'>"}'
    )
    assert [JsonFormatter().format(record) for _ in range(2)] == [line, line]
    assert "exception" not in JsonFormatter().format(
        logging.makeLogRecord({**odd, "mainstay": 7, "exc_info": (None, None, None)})
    )


@pytest.mark.parametrize(
    "odd", ["\x00", "\n", "\x1b", "\x7f", "\x9b", "\u2028", "\u202e", "é", "\ud800"]
)
def test_a_line_of_json_is_shown_as_it_is(odd):
    """What a terminal obeys is an escape in it, and reads as what it was."""
    record = logging.makeLogRecord({"name": "a", "msg": "m", "mainstay": {"x": f"1{odd}2"}})
    line = JsonFormatter().format(record)
    assert line.isprintable()
    assert json.loads(line)["x"] == f"1{odd}2"


@pytest.mark.req("NFR-041-28", "IT-041-14")
def test_structlog_renders_the_records_with_their_fields(configured):
    """As structlog's documentation has it for records of the standard library."""
    chain = [structlog.stdlib.add_log_level, structlog.stdlib.ExtraAdder(["mainstay"])]
    formatter = {
        "()": structlog.stdlib.ProcessorFormatter,
        "processors": [
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(sort_keys=True),
        ],
        "foreign_pre_chain": chain,
    }
    lines = configured(formatter)
    with virtual_time():
        Engine(policies=[POLICY]).run("api", scripted(ConnectionError("token=abc"), "up"))
    told = [(line["level"], line["mainstay"]["event_type"]) for line in lines()]
    assert told == [
        ("debug", "attempt_failed"),
        ("warning", "retry_attempt"),
        ("info", "call_succeeded"),
    ]
    assert lines()[1]["mainstay"]["exception_message"] == "token=[redacted]"
    assert lines()[1]["event"].endswith("token=[redacted]; next in 1.000 s")


def logged(sink_type=LoggingSink, *, message="down"):
    """The records of a call that failed once, as a handler receives them."""
    records = []
    logger = logging.Logger("own", logging.WARNING)  # noqa: LOG001 -- of this test alone
    handler = logging.Handler()
    handler.emit = records.append
    logger.addHandler(handler)
    with virtual_time():
        engine = Engine(policies=[POLICY], sinks=[sink_type(logger)])
        engine.call("api", scripted(ConnectionError(message), "up"))
    return records


def test_a_message_that_no_handler_writes_is_not_made():
    """As logging itself does not format a record that is dropped."""
    made = []

    class Counting(LoggingSink):
        def text_of(self, event):
            made.append(event.event_type)
            return "own words\n"

    (record,) = logged(Counting)
    assert made == []
    assert record.getMessage() == "own words\\n"
    assert made == ["retry_attempt"]


def test_a_message_is_a_text_to_whom_it_matters():
    """A record that is copied, pickled or shown has the words of the event."""
    (record,) = logged()
    text = "api: attempt 1 of 3 failed with ConnectionError: down; next in 1.000 s"
    assert repr(record.args) == repr((text,))
    assert copy.deepcopy(record.args) == pickle.loads(pickle.dumps(record.args)) == (text,)
    assert json.loads(json.dumps(record.args, default=str)) == [text]
