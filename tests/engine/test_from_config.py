"""Engine.from_config: an engine as a configuration says."""

import json
import logging
import sys
import threading
import types
import warnings

import pytest

from mainstay import (
    CircuitOpenError,
    ConfigError,
    ConfigWarning,
    Engine,
    PolicyNotFoundWarning,
    UsageError,
    testing,
)
from mainstay.engine.from_config import read, settings_from
from mainstay.engine.parts import HOMES
from mainstay.engine.registry import STANDARD
from tests.config.trusting import trusted

SHOP = """\
retry:
  defaultPolicy: careful
  policies:
    careful: {maxAttempts: 2, jitter: none}
    eager: {maxAttempts: 5, initialDelay: 0, jitter: none}
    never: {maxAttempts: 1}
  operationPolicies:
    db.write: never
    db.*: eager
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Writes mainstay.yml into an empty working directory, and trusts it."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="mainstay.yml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return trusted(tmp_path / name)

    return write


def attempts(engine, operation):
    """How often a function that always fails is called."""
    called = []

    def fail():
        called.append(1)
        raise ConnectionError("down")

    with testing.virtual_time():
        engine.run(operation, fail)
    return len(called)


@pytest.mark.req("IT-041-04", "FR-041-09", "FR-041-10", "FR-041-11")
def test_each_operation_runs_under_its_policy(file):
    """The exact name, then the pattern, then the default: seen by how often it is called."""
    file(SHOP)
    with Engine.from_config(env={}) as engine:
        assert attempts(engine, "db.write") == 1
        assert attempts(engine, "db.read") == 5
        with pytest.warns(PolicyNotFoundWarning, match="'mail' is mapped to no policy"):
            assert attempts(engine, "mail") == 2


@pytest.mark.req("AG-01.not-found")
def test_a_policy_that_is_not_found_is_the_default_with_a_warning(file):
    """An operation that nobody mapped runs under the default policy, and says so once."""
    file(SHOP)
    with Engine.from_config(env={}) as engine:
        with pytest.warns(PolicyNotFoundWarning, match="runs under 'careful'"):
            assert engine.operation("mail").policy.name == "careful"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert engine.operation("mail").policy.name == "careful"


@pytest.mark.req("FR-041-09")
def test_without_a_file_there_is_the_built_in_policy(file):
    with Engine.from_config(env={}) as engine:
        assert list(engine.policies) == [STANDARD]
        assert engine.settings.file is None


@pytest.mark.req("FR-041-72", "FR-041-13")
def test_editing_the_file_changes_nothing(file):
    """A configuration is read once: there is no hot reload, and its values are frozen."""
    path = file(SHOP)
    with Engine.from_config(env={}) as engine:
        path.write_text(SHOP.replace("maxAttempts: 5", "maxAttempts: 9"), encoding="utf-8")
        assert attempts(engine, "db.read") == 5
        path.unlink()
        assert attempts(engine, "db.other") == 5
        with pytest.raises(AttributeError):
            engine.policies["eager"].max_attempts = 9
        with pytest.raises(AttributeError):
            engine.settings.default = "eager"
        with pytest.raises(TypeError):
            engine.settings.operations["db.*"] = "never"


@pytest.mark.req("FR-041-19", "FR-041-20")
def test_the_registry_can_be_asked(file):
    file(SHOP)
    with Engine.from_config(env={}) as engine:
        assert engine.policies.names == ("standard", "careful", "eager", "never")
        assert engine.policies.operations == {"db.write": "never", "db.*": "eager"}
        assert engine.policies.of("db.read").max_attempts == 5


BROKEN = "retry:\n  policies:\n    a: {maxAttempts: 0}\n    b: {deadline: -1}\n"


@pytest.mark.req("FR-041-15", "FR-041-70", "FR-041-71", "AG-01.invalid")
def test_a_broken_file_is_an_error_with_every_problem(file):
    file(BROKEN)
    with pytest.raises(ConfigError) as caught:
        Engine.from_config(env={})
    assert [problem.where for problem in caught.value.problems] == [
        "mainstay.yml:3",
        "mainstay.yml:4",
    ]
    assert caught.value.code == "MS107"
    assert str(caught.value).startswith(
        "the configuration has 2 problems:\n  - mainstay.yml:3: retry"
    )


@pytest.mark.req("NFR-041-20", "AG-01.invalid")
def test_a_broken_file_can_be_left_aside(file, caplog):
    """The same list as a warning and in the log; the built-in policy, and no circuit of it."""
    file(BROKEN + "circuitBreaker: true\n")
    with pytest.warns(ConfigWarning) as told:
        engine = Engine.from_config(env={}, on_error="default")
    with engine:
        assert engine.policies.default == STANDARD
        assert not engine.circuits.is_used
        assert attempts(engine, "anything") == 3
    (warning,) = told
    assert warning.filename == __file__
    assert "mainstay.yml:4: retry.policies.b.deadline = -1" in str(warning.message)
    (record,) = [r for r in caplog.records if r.name == "mainstay.config"]
    assert record.levelname == "ERROR"
    assert "mainstay.yml:3: retry.policies.a.maxAttempts = 0" in record.message


def test_a_file_without_problems_warns_of_nothing(file):
    file(SHOP)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Engine.from_config(env={}, on_error="default") as engine:
            assert engine.policies.default.name == "careful"


def test_on_error_is_one_of_two():
    with pytest.raises(UsageError, match="on_error"):
        Engine.from_config(on_error="ignore")


def test_overrides_are_the_last_word(file):
    file(SHOP)
    env = {"MAINSTAY_RETRY__POLICIES__EAGER__MAX_ATTEMPTS": "4"}
    with Engine.from_config(env=env) as engine:
        assert engine.policies["eager"].max_attempts == 4
    with Engine.from_config(env=env, overrides=["retry.policies.eager.maxAttempts=3"]) as engine:
        assert engine.policies["eager"].max_attempts == 3


def test_the_process_environment_is_read(file, monkeypatch):
    file(SHOP)
    monkeypatch.setenv("MAINSTAY_RETRY__DEFAULT", "eager")
    with Engine.from_config() as engine:
        assert engine.policies.default.name == "eager"


@pytest.mark.req("NFR-041-24")
def test_the_configuration_is_logged_without_its_secrets(file, caplog):
    """At DEBUG, as it holds: with overrides, without what nobody may read."""
    file(
        "store: sqlite:///${NAME}.db\n"
        "sinks: {logging: {logger: shop}, audit: {where: a.jsonl, apiToken: hunter2}}\n"
        "inbox: {notify: {webhook: {url: 'https://u:hunter2@h/?token=hunter2', secret: hunter2}}}\n"
    )
    with caplog.at_level(logging.DEBUG, "mainstay.config"):
        read(env={"NAME": "hunter2", "MAINSTAY_RETRY__NESTED": "warn"})
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.DEBUG, "mainstay.config")
    assert "hunter2" not in record.message
    shown = json.loads(record.message.partition(": ")[2])
    assert shown["store"] == "sqlite:///${NAME}.db"
    assert shown["retry"] == {"nested": "warn"}
    assert shown["sinks"]["audit"] == {"where": "a.jsonl", "apiToken": "[redacted]"}
    assert shown["inbox"]["notify"]["webhook"] == {
        "url": "https://u:[redacted]@h/?token=[redacted]",
        "secret": "[redacted]",
    }


# --- everything else ------------------------------------------------------------------------------

WHOLE = """\
retry: {policies: {standard: {maxAttempts: 1}}}
circuitBreaker: {failureThreshold: 2, openDurationMs: 60000}
breakers:
  global: {failureThreshold: 100}
  named:
    payments: {operations: [pay, "payments.*"], failureThreshold: 1}
budgets:
  retries: {ratio: 0.5, floor: 3}
  tokens: grpc
  rate: 5
  throttle: {k: 3}
  memory: {limit: 1TB}
store: {url: "sqlite:///shop.db", share: null, needs: [durable]}
audit: {where: audit.jsonl, every: 10}
"""


def test_an_engine_has_what_its_configuration_says(file, tmp_path):
    """Circuits, budgets, store and audit log are all there, and do their work."""
    file(WHOLE)
    with Engine.from_config(env={}) as engine:
        assert [circuit.name for circuit in engine.circuits.of("payments.charge")] == [
            "payments.charge", "payments", "global",
        ]  # fmt: skip
        assert engine.breaker("pay").settings.recovery_timeout.initial == 60.0
        assert sorted(type(guard).__name__ for guard in engine._guards) == [
            "AdaptiveThrottle", "MemoryGuard", "RateLimit", "RetryBudget", "TokenBudget",
        ]  # fmt: skip
        assert engine.store.url.startswith("sqlite:///")
        assert engine._sharing is None
        assert attempts(engine, "payments.charge") == 1
        with pytest.raises(CircuitOpenError):
            engine.call("payments.refund", print)
    assert (tmp_path / "shop.db").exists()
    assert (tmp_path / "audit.jsonl").read_text()


@pytest.mark.parametrize(
    ("text", "has_log"),
    [("", True), ("audit: true", True), ("audit: false", False), ("audit: {every: 7}", True)],
)
def test_the_audit_log_of_the_store(file, text, has_log):
    """Said or not, it is in the engine's own store, unless it is switched off."""
    file(f"store: sqlite:///shop.db\n{text}")
    with Engine.from_config(env={}) as engine:
        assert (engine.audit is not None) == has_log


def test_sinks_are_made_by_their_names(file):
    file("sinks: {logging: {logger: shop.retries}, audit: {where: second.jsonl}}")
    with Engine.from_config(env={}) as engine:
        log, second = engine._sinks
        assert log.logger.name == "shop.retries"
        assert type(second).__name__ == "AuditLog"


@pytest.mark.parametrize("text", ["sinks: {logging: false}", "sinks: {logging: {enabled: false}}"])
def test_the_log_can_be_switched_off(file, text):
    file(text)
    with Engine.from_config(env={}) as engine:
        assert engine._sinks == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sinks: {logging: {loger: a}}", "sinks.logging.loger: unknown option; did you mean"),
        ("sinks: {logging: {zzz: a}}", "sinks.logging.zzz: unknown option; there are logger"),
        ("sinks: {audit: }", "sinks.audit: where is missing"),
        ("sinks: {audit: {where: a.jsonl, keep: 0}}", "sinks.audit.keep = 0: must be more than 0"),
        ("sinks: {audit: {where: a.db, rotate: 5}}", "sinks.audit: "),
        ("sinks: {audit: {where: a.jsonl}}\naudit: b.jsonl", "sinks.audit: means the same"),
        ("store: {url: 'memory://', needs: durable}", "store: memory:// cannot do what is needed"),
        ("store: 'sqlite:///a.db?timeout=x'", "store: "),
    ],
)  # fmt: skip
def test_what_a_part_refuses_is_told_at_its_place(file, text, message, tmp_path):
    """The problem has the file and the line, as any other."""
    file(text)
    before = set(threading.enumerate())
    with pytest.raises(ConfigError) as caught:
        Engine.from_config(env={})
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"mainstay.yml:1: {message}")
    assert set(threading.enumerate()) <= before


def stand_in(name, monkeypatch, made):
    """Puts a class of the name that a configuration looks for where it looks for it."""
    home, attribute = HOMES[name]
    module = types.ModuleType(home)
    setattr(module, attribute, made)
    monkeypatch.setitem(sys.modules, home, module)


class Sink:
    """Takes what it is given, and knows the engine it works for."""

    def __init__(self, subject, *, max_names=5):
        self.given = (subject, max_names)
        self.engine = None

    def __call__(self, event):
        pass

    def watch(self, engine):
        self.engine = engine


def test_a_sink_gets_its_options_and_its_engine(file, monkeypatch):
    """Options in either spelling; a sink that reads an engine is told which."""
    stand_in("nats", monkeypatch, Sink)
    file("sinks: {logging: false, nats: {subject: retries, maxNames: 9}}")
    with Engine.from_config(env={}) as engine:
        (sink,) = engine._sinks
        assert sink.given == ("retries", 9)
        assert sink.engine is engine


def test_two_spellings_of_an_option_are_a_problem(file, monkeypatch):
    stand_in("nats", monkeypatch, Sink)
    file("sinks: {nats: {subject: a, maxNames: 9, max_names: 8}}")
    (problem,) = read(env={}).report.problems
    assert "is given twice, in two spellings" in str(problem)


def test_a_sink_that_is_not_there_is_told(file, monkeypatch):
    """A part of another version, or a library that is not installed."""
    monkeypatch.setitem(HOMES, "nats", ("mainstay.sinks.no_such_thing", "Sink"))
    monkeypatch.setitem(HOMES, "otel", ("no_such_library", "Sink"))
    monkeypatch.setitem(HOMES, "jsonl", ("tests.config.needs_an_extra", "Sink"))
    module = types.ModuleType("tests.config.needs_an_extra")

    def missing(name):
        from mainstay.errors import MissingExtraError

        raise MissingExtraError("lines", "lines")

    module.__getattr__ = missing
    monkeypatch.setitem(sys.modules, "tests.config.needs_an_extra", module)
    file("sinks:\n  nats:\n  otel:\n  jsonl:\n")
    assert [str(problem) for problem in read(env={}).report.problems] == [
        "mainstay.yml:2: sinks.nats: is not part of this version of mainstay",
        "mainstay.yml:3: sinks.otel: otel needs no_such_library, which is not installed",
        "mainstay.yml:4: sinks.jsonl: lines is not installed. pip install 'mainstay[lines]'",
    ]


def test_settings_alone_start_nothing(file, tmp_path):
    """Commands that only look at policies open no store."""
    file(WHOLE)
    found = settings_from(env={})
    assert found.store["url"] == "sqlite:///shop.db"
    assert not (tmp_path / "shop.db").exists()
    file(BROKEN)
    with pytest.raises(ConfigError):
        settings_from(env={})


PARTS = """\
sinks:
  logging: false
  jsonl: {path: events.jsonl, successes: true}
  prometheus: {prefix: shop, maxNames: 5}
  otel:
redaction: {patterns: ["EMP-[0-9]+"], fields: [patient id]}
alerts:
  interval: 60
  rules:
    - {name: failing, metric: failure_rate, above: 0.5, per: operation}
"""


def test_the_parts_that_are_there_do_their_work(file, tmp_path):
    """Sinks hear the events, alerts look at them, and what is secret with you is in none."""
    pytest.importorskip("prometheus_client")
    pytest.importorskip("opentelemetry")
    file(PARTS)

    def fail():
        raise ValueError("EMP-4711 is unknown")

    with Engine.from_config(env={}) as engine:
        assert not engine.run("parse", fail).success
        names = [type(sink).__name__ for sink in engine._sinks]
        assert names == ["JsonlSink", "PrometheusSink", "OpenTelemetrySink", "Alerts"]
    written = (tmp_path / "events.jsonl").read_text()
    assert "[redacted] is unknown" in written
    assert "EMP-4711" not in written


def test_an_alert_rule_is_judged_at_its_line(file):
    file("alerts:\n  rules:\n    - {name: a, metric: failure_rate}\n    - {name: b, metric: x}\n")
    assert "alerts.rules[1].metric = 'x': must be one of" in str(read(env={}).report.problems[0])
    file("alerts:\n  rules:\n    - {name: a, metric: failure_rate}\n")
    (problem,) = read(env={}).report.problems
    assert str(problem).startswith("mainstay.yml:3: alerts.rules[0]: above and below must be one")


def test_the_database_of_the_outbox_is_configured(tmp_path):
    """It may be another one than that of the store."""
    file = tmp_path / "shop.yml"
    file.write_text(f"store: memory://\noutbox: {{url: 'sqlite:///{tmp_path}/app.db'}}\n", "utf-8")
    with Engine.from_config(file) as engine:
        assert engine.outbox.counts() == {}
    assert (tmp_path / "app.db").exists()
