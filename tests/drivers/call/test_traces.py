"""One script on three drivers: every decision, delay and event is the same."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainstay import Backoff, Engine, Jitter, KindRule, RetryPolicy
from mainstay.testing import Trace, takes, virtual_time

WAYS = ("protect", "call", "result", "block")


class SlowDown(Exception):
    """A throttle that says how long to wait."""

    def __init__(self, seconds):
        super().__init__(f"slow down for {seconds:g} s")
        self.retry_after = seconds


def play(driver, way, policy, steps, seed=7, *, listens=True):
    """The outcome and the events of one script on one driver, by one way of calling."""
    trace = Trace()
    engine = Engine(policies=[policy], seed=seed, sinks=[trace] if listens else [])
    operation = engine.operation(policy.name)
    function = driver.scripted(*(make() if callable(make) else make for make in steps))
    try:
        if way == "protect":
            outcome = driver.run(engine.protect(policy.name)(function))
        elif way == "block":
            outcome = driver.block(operation, function)
        else:
            outcome = getattr(driver, way)(operation, function)
        if way == "result":
            error = outcome.last_exception
            outcome = outcome.value if error is None else shown(error)
    except Exception as error:
        outcome = shown(error)
    return outcome, len(function.script.calls), [plain(event) for event in trace.events]


def shown(error):
    return type(error).__name__, str(error), getattr(error, "__notes__", [])


def plain(event):
    fields = event.to_dict()
    del fields["timestamp"]
    if "total_seconds" in fields:
        fields["total_seconds"] = round(fields["total_seconds"], 6)
    return fields


def policy(**fields):
    given = {"name": "op", "retry_on": (OSError, SlowDown), "max_attempts": 4, **fields}
    return RetryPolicy(**given)


def raising(info):
    raise LookupError("a hook that raises")


SCRIPTS = {
    "first": (policy(), ["ok"]),
    "third": (policy(), [ConnectionError, ConnectionError, "ok"]),
    "exhausted": (policy(), [ConnectionError] * 4),
    "permanent": (policy(), [ConnectionError, lambda: ValueError("no")]),
    "none": (policy(), [ConnectionError, None]),
    "unretried": (policy(max_attempts=1), [ConnectionError]),
    "result": (policy(retry_if_result=lambda value: value == "bad"), ["bad", OSError, "good"]),
    "bad results": (policy(retry_if_result=lambda value: value == "bad"), ["bad"] * 4),
    "raised results": (
        policy(retry_if_result=lambda value: value == "bad", on_exhausted="raise"),
        ["bad"] * 4,
    ),
    "computed waits": (
        policy(
            wait_from=lambda end: 0.7 if end == "bad" else None,
            retry_if_result=lambda value: value == "bad",
        ),
        ["bad", OSError, "good"],
    ),
    "a chain": (policy(backoff=Backoff.chain(0.1, 3, Backoff.linear(1))), [OSError] * 4),
    "a throttle": (policy(), [lambda: SlowDown(3.0), "ok"]),
    "a throttle that is ignored": (
        policy(respect_retry_after=False, max_retry_after=2.0),
        [lambda: SlowDown(3.0), "ok"],
    ),
    "too long a throttle": (policy(max_retry_after=2.0), [lambda: SlowDown(3.0), "ok"]),
    "out of time": (policy(deadline=2.5, backoff=Backoff.constant(1.0)), [ConnectionError] * 4),
    "slow": (policy(), [takes(2.0, OSError), takes(3.0, OSError), takes(1.0, "ok")]),
    "hooks": (policy(before_retry=raising, after_retry=raising), [OSError, OSError, "ok"]),
    "by kind": (
        policy(per_kind={"transient": KindRule(max_attempts=2)}),
        [ConnectionError, TimeoutError, ConnectionError, "ok"],
    ),
    "decorrelated": (policy(jitter=Jitter.decorrelated(), max_attempts=6), [ConnectionError] * 6),
    "full": (policy(jitter=Jitter.full(), max_attempts=6), [ConnectionError] * 6),
}


@pytest.mark.req("IT-041-01", "FR-041-21", "FR-041-31", "FR-041-32", "FR-041-33", "FR-041-50")
@pytest.mark.parametrize("script", SCRIPTS)
def test_one_script_gives_the_same_trace_on_every_driver_and_by_every_way(script, drivers):
    """Sync, asyncio and trio, decorated, called, run or as a block: outcome and events agree."""
    chosen, steps = SCRIPTS[script]
    traces = {}
    for way in WAYS:
        for name in ("sync", "asyncio", "trio"):
            with virtual_time() as time:
                driver = next(each for each in drivers(time) if each.name == name)
                traces[way, name] = play(driver, way, chosen, steps)
    expected = traces["protect", "sync"]
    assert expected[2], "a script without events proves nothing"
    assert {key: trace for key, trace in traces.items() if trace != expected} == {}


backoffs = st.one_of(
    st.just(Backoff.constant(0)),
    st.builds(Backoff.constant, st.floats(0.0, 9.0)),
    st.builds(Backoff.linear, st.floats(0.01, 5.0)),
    st.builds(Backoff.exponential, st.floats(0.01, 5.0), factor=st.floats(1.0, 4.0)),
    st.just(Backoff.custom(lambda n: n / 7)),
)
jitters = st.sampled_from(
    [
        Jitter.none(),
        Jitter.percent(0.2),
        Jitter.additive(1.0),
        Jitter.full(),
        Jitter.equal(),
        Jitter.decorrelated(),
    ]
)
policies = st.builds(
    policy,
    max_attempts=st.integers(1, 6),
    backoff=backoffs,
    jitter=jitters,
    deadline=st.none() | st.floats(0.5, 20.0),
    retry_if_result=st.sampled_from([None, lambda value: value == "bad", lambda value: 1 / value]),
    on_exhausted=st.sampled_from(["return", "raise"]),
    wait_from=st.sampled_from([None, lambda end: None, lambda end: 0.3, raising]),
    before_retry=st.sampled_from([None, lambda info: None, raising]),
    after_retry=st.sampled_from([None, lambda info: None, raising]),
    never_retry_on=st.sampled_from([(), (BrokenPipeError,)]),
    per_kind=st.sampled_from([None, {"throttled": KindRule(max_attempts=3)}]),
)
steps = st.sampled_from(
    [
        ConnectionError,
        BrokenPipeError,
        TimeoutError,
        ValueError,
        PermissionError,
        lambda: SlowDown(2.0),
        lambda: SlowDown(99.0),
        "ok",
        "bad",
        None,
        0,
    ]
)


@pytest.mark.req("IT-041-01", "NFR-041-11", "NFR-041-19", "FR-041-50", "AC-024")
@pytest.mark.filterwarnings("ignore::mainstay.MainstayWarning")
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    chosen=policies,
    script=st.lists(steps, min_size=6, max_size=6),
    way=st.sampled_from(WAYS),
    seed=st.integers(0, 2**63),
)
def test_any_script_under_any_policy_gives_the_same_trace(chosen, script, way, seed, drivers):
    """Whatever fails under whatever policy: three drivers, one trace, delays equal to the bit."""
    found = []
    for name in ("sync", "asyncio", "trio"):
        with virtual_time() as time:
            driver = next(each for each in drivers(time) if each.name == name)
            found.append(play(driver, way, chosen, script, seed))
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.req("NFR-041-11", "FR-041-26", "AC-014")
@pytest.mark.filterwarnings("ignore::mainstay.MainstayWarning")
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    chosen=policies,
    script=st.lists(steps, min_size=6, max_size=6),
    way=st.sampled_from(WAYS),
    seed=st.integers(0, 2**63),
)
def test_a_call_that_nobody_listens_to_goes_the_same_way(chosen, script, way, seed, drivers):
    """The short way of the drivers ends as the long one: outcome, calls, and time that passed."""
    for name in ("sync", "asyncio", "trio"):
        found = []
        for listens in (True, False):
            with virtual_time() as time:
                driver = next(each for each in drivers(time) if each.name == name)
                outcome, calls, _ = play(driver, way, chosen, script, seed, listens=listens)
                found.append((outcome, calls, round(time.elapsed, 6)))
        assert found[1] == found[0]


@pytest.mark.req("FR-041-27", "AC-021")
@pytest.mark.parametrize("way", WAYS)
def test_without_a_seed_no_two_calls_wait_alike(driver, way):
    """Jitter spreads: fifty failing calls of one policy wait fifty different times."""
    chosen = policy(jitter=Jitter.full(), max_attempts=2, backoff=Backoff.constant(1.0))
    waited = []
    for _ in range(50):
        before = driver.time.elapsed
        play(driver, way, chosen, [ConnectionError, "ok"], None, listens=False)
        waited.append(round(driver.time.elapsed - before, 6))
    assert len(set(waited)) > 45
    assert all(0.0 <= each <= 1.0 for each in waited)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_workers_do_not_wait_alike():
    """A server's workers are copies of one process, and must not retry in step."""
    from mainstay.drivers.call.site import SYSTEM_ENTROPY

    drawn = []
    for _ in range(3):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.write(writer, str(SYSTEM_ENTROPY.draw()).encode())
            os._exit(0)
        os.waitpid(child, 0)
        drawn.append(os.read(reader, 100))
        os.close(reader)
        os.close(writer)
    assert len(set(drawn)) == 3


@pytest.mark.req("FR-041-50", "NFR-041-19", "UT-041-06")
def test_the_delays_waited_are_those_the_policy_foretold(driver):
    """`policy.delays(seed)` gives the very floats that the first call under that seed waits."""
    chosen = policy(max_attempts=6, jitter=Jitter.full())
    _, calls, events = play(driver, "protect", chosen, [ConnectionError] * 6, seed=99)
    waited = [event["delay_seconds"] for event in events if event["event_type"] == "retry_attempt"]
    assert calls == 6
    assert waited == chosen.delays(seed=99)


@pytest.mark.req("FR-041-26", "IT-041-07", "AC-014")
def test_the_time_that_passes_is_the_sum_of_the_delays(driver):
    """Backoff is really waited, on each driver: the clock moves by the delays and no more."""
    chosen = policy(backoff=Backoff.exponential(1.0), jitter=Jitter.none())
    play(driver, "call", chosen, [ConnectionError] * 4)
    assert driver.time.elapsed == 1.0 + 2.0 + 4.0


@pytest.mark.req("FR-041-25", "AC-013", "CP-21", "UVS-3")
@pytest.mark.parametrize("way", WAYS)
def test_a_final_failure_is_not_delayed(driver, way):
    """What is not retryable is raised at once: one call, no wait; also on the fast path."""
    chosen = policy()
    for listens in (True, False, False):  # the first failure settles what its type comes to
        steps = [lambda: ValueError("no"), "ok"]
        _, calls, _ = play(driver, way, chosen, steps, listens=listens)
        assert calls == 1
    assert driver.time.elapsed == 0.0


@pytest.mark.req("FR-041-48", "FR-041-49", "AC-023")
@pytest.mark.parametrize("way", WAYS)
def test_zero_delay_retries_at_once(driver, way):
    """Backoff.constant(0) retries without any time passing."""
    chosen = policy(backoff=Backoff.constant(0))
    outcome, calls, _ = play(driver, way, chosen, [ConnectionError, ConnectionError, "ok"])
    assert (outcome, calls, driver.time.elapsed) == ("ok", 3, 0.0)
