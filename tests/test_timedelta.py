"""Wherever seconds go, a timedelta goes: the same value comes of both."""

import ast
import asyncio
import inspect
import re
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest

import mainstay
from mainstay import (
    AdaptiveThrottle,
    Backoff,
    BreakerSettings,
    Bulkhead,
    CircuitBreaker,
    Engine,
    Hedge,
    KindRule,
    RateLimit,
    RetryBudget,
    RetryPolicy,
    Window,
    carrying,
    deadline,
    retry,
)
from mainstay.audit import AuditLog
from mainstay.drivers.effects.logs import log_retry_attempt, log_retry_exhausted
from mainstay.drivers.idempotency.keys import KeyOptions
from mainstay.profiles import clients, control_plane, effects
from mainstay.profiles.agents import run_tool
from mainstay.sinks.alerts import AlertRule
from mainstay.testing import FaultProxy, scripted, takes, virtual_time
from tools import api

MAKERS = {
    "policy": lambda s: RetryPolicy(attempt_timeout=s, deadline=s),
    "backoff": lambda s: Backoff.exponential(s, max_delay=s),
    "kind": lambda s: KindRule(backoff=Backoff.chain(s, s)),
    "breaker": lambda s: CircuitBreaker("pay", recovery_timeout=s).settings,
    "settings": lambda s: BreakerSettings(probe_timeout=s, ramp=s, stable_after=s),
    "slow": lambda s: BreakerSettings(window=Window.seconds(s), slow_after=s, slow_rate=0.5),
    "budget": lambda s: RetryBudget(window=s).rule,
    "rate": lambda s: RateLimit(max_wait=s).rule,
    "throttle": lambda s: AdaptiveThrottle(window=s).rule,
    "bulkhead": lambda s: Bulkhead("db", 3, queue=9, max_wait=s).max_wait,
    "hedge": lambda s: Hedge(s).delay,
    "key": lambda s: KeyOptions(key=None, lease=s, ttl=s, wait=s, store_wait=s),
    "alert": lambda s: AlertRule("slow", "failure_rate", above=0.5, window=s, for_seconds=s),
    "client": lambda s: clients.RetryConfiguration(base_delay=s, max_delay=s, jitter=s),
    "circuit": lambda s: clients.CircuitBreakerConfiguration(recovery_timeout_seconds=s),
    "effect": lambda s: effects.EffectRetryConfig(initial_delay_seconds=s, max_delay_seconds=s),
    "contract": lambda s: effects.OrchestratorContract(
        initial_backoff_seconds=s, max_backoff_seconds=s
    ),
    "step": lambda s: takes(s, "ok").seconds,
    "plane": lambda s: control_plane.RetryPolicy(base_delay=s, max_delay=s),
    "manager": lambda s: control_plane.RetryManager(attempt_timeout=s, ttl=s).attempt_timeout,
    "keys": lambda s: control_plane.IdempotencyManager(ttl=s).ttl,
    "nats": lambda s: control_plane.NatsClient(timeout=s).timeout,
    "s3": lambda s: clients.with_s3_retry(base_delay=s, max_delay=s, jitter=s)(len).mainstay.policy,
    "api": lambda s: clients.with_api_retry(base_delay=s, max_delay=s)(len).mainstay.policy,
    "formula": lambda s: effects.calculate_backoff_delay(1, s, s, u=0.5),
}
MODELS = ("Database", "Kafka", "Http", "Vault", "Consul")


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_timedelta_is_as_good_as_seconds(make):
    """What is made of 30 seconds and of half a minute is equal."""
    assert make(timedelta(minutes=0.5)) == make(30.0)


@pytest.mark.parametrize("make", [make for name, make in MAKERS.items() if name != "step"])
def test_a_negative_timedelta_is_refused(make):
    """With the same error as negative seconds."""
    with pytest.raises(ValueError, match="must be"):
        make(timedelta(seconds=-1))


def test_a_decorator_and_a_deadline_take_timedeltas():
    """The call ends when the time is up."""
    with virtual_time() as time:

        @retry(on=OSError, attempts=9, deadline=timedelta(seconds=3), timeout=timedelta(seconds=2),
               backoff=Backoff.constant(timedelta(seconds=1)))  # fmt: skip
        def fetch():
            assert deadline.remaining() <= 2.0
            raise OSError("down")

        with pytest.raises(OSError, match="down"), deadline.within(timedelta(minutes=5)):
            fetch()
        assert time.elapsed <= 3.0


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_of_the_effects_takes_timedeltas(kind):
    """When it is made, when a field is assigned and out of JSON; the field is a float."""
    cls = getattr(effects, f"{kind}RetryConfig")
    names = [name for name in cls.model_fields if name.endswith("_seconds")]
    assert len(names) >= 2
    made = cls(**dict.fromkeys(names, timedelta(seconds=5)))
    assert made == cls(**dict.fromkeys(names, 5.0))
    for name in names:
        setattr(made, name, timedelta(seconds=4))
        assert type(getattr(made, name)) is float
        with pytest.raises(ValueError, match="greater than or equal"):
            cls(**{name: timedelta(seconds=-1)})
    assert cls.model_validate_json(made.model_dump_json()) == made
    assert made.policy().max_attempts >= 3


def test_what_waits_takes_timedeltas(tmp_path, caplog):
    """A flush, a tool, a pool, and the log records of the effects."""
    second, at_id = timedelta(seconds=5), effects.ModelEventEnvelope(payload=None).envelope_id
    log = AuditLog(tmp_path / "audit.jsonl")
    assert log.flush(second)
    log.close()
    assert run_tool(["true"], timeout=second).attempts == 1
    with ThreadPoolExecutor(1) as pool:
        assert list(carrying(pool).map(abs, [-1], timeout=second)) == [1]
    log_retry_attempt("http", 0, 3, second, OSError(), at_id)
    log_retry_exhausted("http", 3, second, OSError(), at_id)
    assert [getattr(each, "delay_seconds", 5.0) for each in caplog.records] == [5.0, 5.0]
    assert "after 5.00s delay" in caplog.text


def test_a_result_is_kept_for_a_timedelta():
    """By the manager of the control plane, as for seconds."""

    async def kept_after(seconds):
        with virtual_time() as time:
            manager = control_plane.IdempotencyManager(ttl=timedelta(minutes=1), sinks=[])
            await manager.record_result("key", 7)
            time.advance(seconds)
            return await manager.check_idempotency("key")

    assert asyncio.run(kept_after(59.0)) is not None
    assert asyncio.run(kept_after(61.0)) is None


def test_an_engine_takes_timedeltas():
    """Its store, its purging and its shared circuits go by seconds."""
    second = timedelta(seconds=2)
    with Engine(share=second, store_wait=second, purge=second) as engine:
        assert engine.call("op", int, "7") == 7


def test_the_tools_for_tests_take_timedeltas():
    """Virtual time, the steps of a script, and the latency of a proxy."""
    with virtual_time() as time:
        time.advance(timedelta(minutes=1))
        assert scripted(takes(timedelta(seconds=2), "ok"))() == "ok"
        assert time.elapsed == 62.0
    with FaultProxy("127.0.0.1", 9) as proxy:
        proxy.latency(timedelta(milliseconds=1), jitter=timedelta(0))


# --- that none is missing -------------------------------------------------------------------------

NO_SECONDS = {
    "amount", "backoff_multiplier", "bytes_per_second", "capacity", "cost", "expected",
    "exponential_base", "factor", "failure_cost", "failure_rate", "grid_g_per_kwh",
    "jitter_factor", "k", "max_tokens", "per_second", "probability", "pue", "quantile", "ratio",
    "refund", "reserve", "share", "size", "slow_rate", "success_refund", "threshold",
    "timeout_cost", "token_ratio", "tolerance", "u", "value", "waiting_share", "watts",
    "energy_wh", "co2_g",
}  # fmt: skip
"""Shares, factors, counts and other measures."""
MOMENTS = {"at", "began", "by", "created", "ended", "moment", "now", "seen", "start"}
"""On a clock: a moment is no length of time."""
OF_A_CALL = {"attach", "confirm", "consider", "enter", "left", "vote_open", "withdrawn"}
"""Methods of guards that a driver calls at each attempt, with what its clock has."""
READ_ONLY = "mainstay.events."
"""Events are made by the library, and read by users."""
OURS = {
    "mainstay.CircuitSnapshot": "a reading",
    "mainstay.Item": "a reading",
    "mainstay.RetryInfo": "made for hooks",
    "mainstay.SagaView": "a reading",
    "mainstay.Jitter.on_top": "called at each attempt",
    "mainstay.Jitter.ramp": "called at each attempt",
    "mainstay.Jitter.spread": "called at each attempt",
    "mainstay.RetryPolicy.delay": "takes what it has returned",
    "mainstay.profiles.agents.RetryPolicy.delay": "takes what it has returned",
    "mainstay.testing.VirtualTime.sleep": "stands in for time.sleep",
    "mainstay.profiles.effects.EffectResult": "a reading",
    "mainstay.profiles.effects.ModelBackendResult": "a reading",
    "mainstay.profiles.pipelines.ComplianceRecord": "a record",
    "mainstay.profiles.pipelines.EnergyModel.energy_wh": "takes what was measured",
    "mainstay.profiles.pipelines.RunView": "a reading",
    "mainstay.profiles.pipelines.StageView": "a reading",
    "mainstay.profiles.pipelines.TelemetryRecord": "a record",
}


def test_every_parameter_of_seconds_takes_a_timedelta_by_its_type():
    """In the whole public API: one that is typed float would refuse a timedelta under mypy."""
    known = {f"{door}.{name}": each for door, name, each in _exports()}
    found = []
    for line in api.FILE.read_text(encoding="utf-8").splitlines():
        name, _, about = line.partition(": ")
        is_error = isinstance(known.get(name), type) and issubclass(known[name], BaseException)
        is_result = name.endswith("RetryResult")
        if name.startswith(READ_ONLY) or is_error or is_result or name in OURS:
            continue
        for parameter in _floats(about):
            is_other = parameter in NO_SECONDS | MOMENTS or parameter.startswith("_")
            is_of_a_call = name.rpartition(".")[2] in OF_A_CALL
            if not (is_other or is_of_a_call or _is_typed_apart(known.get(name), parameter)):
                found.append(f"{name}({parameter})")
    assert found == []


def test_the_exceptions_are_there():
    """A list of names that no longer exist would hide what is added under one of them."""
    text = api.FILE.read_text(encoding="utf-8")
    assert [name for name in OURS if f"\n{name}: " not in f"\n{text}"] == []
    assert [name for name in sorted(NO_SECONDS) if not re.search(rf"\b{name}: ", text)] == []


def _exports():
    for module in api.reachable(api.DOORS):
        for name, value in api.exports(module):
            yield module.__name__, name, value


def _floats(about):
    """The parameters in a line of api.txt that are typed float."""
    kind, _, signature = about.partition("(")
    if "attribute" in kind or "property" in kind:
        return []
    return re.findall(r"\b(\w+): (?:Annotated\[)?float\b(?! \| timedelta)", signature)


def _is_typed_apart(owner, parameter):
    """Whether a class whose fields are floats has a signature of its own for type checkers."""
    if not isinstance(owner, type):
        return False
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            arguments = [*node.args.args, *node.args.kwonlyargs]
            typed = {each.arg: ast.unparse(each.annotation) for each in arguments[1:]}
            return typed.get(parameter) == "Seconds"
    return False


def stated_for_types():
    """Every class whose arguments are stated once more for type checkers: its stub, and itself."""
    for path in sorted(Path(mainstay.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "if TYPE_CHECKING:  #" not in text:
            continue
        for made in (each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ClassDef)):
            for block in (each for each in made.body if isinstance(each, ast.If)):
                name = ".".join(path.relative_to(mainstay.__path__[0]).with_suffix("").parts)
                module = import_module(f"mainstay.{name.removesuffix('.__init__')}")
                yield pytest.param(block.body[0], getattr(module, made.name), id=made.name)


@pytest.mark.parametrize(("stub", "made"), list(stated_for_types()))
def test_defaults_that_are_stated_for_type_checkers_are_those_of_the_class(stub, made):
    """A field that is a float takes a timedelta: the class has the fields, the stub the types."""
    assert stub.name == "__init__"
    positional = stub.args.args[1:]
    values = [*zip(positional, stub.args.defaults, strict=True)]
    values += zip(stub.args.kwonlyargs, stub.args.kw_defaults, strict=True)
    names = vars(sys.modules[made.__module__])
    stated = {argument.arg: eval(ast.unparse(value), names) for argument, value in values}
    real = {each.name: each.default for each in inspect.signature(made).parameters.values()}
    assert list(stated) == list(real)
    for name, value in stated.items():
        made_anew = value is ... and repr(real[name]) == "<factory>"
        assert made_anew or value == real[name], name
