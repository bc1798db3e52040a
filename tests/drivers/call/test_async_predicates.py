"""Predicates that return something to await: awaited in async calls, refused in sync ones."""

import asyncio
import functools

import pytest

import mainstay
from mainstay import (
    Backoff,
    BreakerSettings,
    CircuitBreaker,
    Engine,
    Fallback,
    Jitter,
    MainstayWarning,
    PolicyError,
    RetryPolicy,
    WrapError,
)
from mainstay.audit import AuditLog, read_log
from mainstay.testing import assert_replays

STEADY = {"max_attempts": 4, "backoff": Backoff.constant(1.0), "jitter": Jitter.none()}
AWAITED = ("decorated", "call", "result")
FIELDS = ("retry_on", "never_retry_on", "retry_if_result", "classify")


def play(driver, way, policy, function):
    """One call by one of the ways there are; what it raises is returned."""
    try:
        if way == "decorated":
            return driver.run(policy(function))
        outcome = getattr(driver, way)(policy, function)
    except Exception as error:
        return error
    if way != "result":
        return outcome
    return outcome.value if outcome.success else outcome.last_exception


async def declared(value):
    """Is `value` a result or an error that names trouble?"""
    await asyncio.sleep(0) if _in_asyncio() else None
    return "busy" in str(value)


def _in_asyncio():
    return asyncio._get_running_loop() is not None


class Asks:
    """An object whose call is async."""

    async def __call__(self, value):
        return await declared(value)

    async def method(self, value):
        return await declared(value)


async def with_word(word, value):
    """For a partial object."""
    return word in str(value)


class Later:
    """An awaitable that is no coroutine."""

    def __init__(self, answer):
        self.answer = answer

    def __await__(self):
        return self.answer
        yield


FORMS = {
    "a coroutine function": declared,
    "an object with an async __call__": Asks(),
    "a bound method": Asks().method,
    "a partial of a coroutine function": functools.partial(with_word, "busy"),
    "a lambda that returns a coroutine": lambda value: declared(value),  # noqa: PLW0108 -- hides it
    "a function that returns another awaitable": lambda value: Later("busy" in str(value)),
}
DECLARED = [name for name in FORMS if "returns" not in name]
HIDDEN = [name for name in FORMS if "returns" in name]


def policy_with(field, predicate):
    """A policy in which a predicate decides."""
    if field == "classify":
        return RetryPolicy(
            **STEADY, retry_on=mainstay.Kind.THROTTLED, classify={predicate: "throttled"}
        )
    if field == "never_retry_on":
        return RetryPolicy(**STEADY, retry_on=OSError, never_retry_on=predicate)
    return RetryPolicy(**STEADY, **{field: predicate})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", AWAITED)
def test_a_payment_that_an_async_predicate_accepts_is_made_once(async_driver, way, form):
    """The result is judged by what the predicate came to; a coroutine object counts as nothing."""
    made = []

    async def pay():
        made.append(1)
        return "receipt"

    assert play(async_driver, way, policy_with("retry_if_result", FORMS[form]), pay) == "receipt"
    assert len(made) == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", AWAITED)
def test_a_result_that_an_async_predicate_rejects_is_asked_for_again(async_driver, way, form):
    """Until it is accepted."""
    policy = policy_with("retry_if_result", FORMS[form])
    assert play(async_driver, way, policy, async_driver.scripted("busy", "busy", "ok")) == "ok"
    assert async_driver.time.elapsed == 2.0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", AWAITED)
@pytest.mark.parametrize("field", ["retry_on", "classify"])
def test_a_failure_is_retried_if_an_async_predicate_matches_it(async_driver, way, field, form):
    """And is final if the predicate comes to False."""
    policy = policy_with(field, FORMS[form])
    assert play(async_driver, way, policy, async_driver.scripted(ValueError("busy"), "ok")) == "ok"
    final = ValueError("declined")
    assert play(async_driver, way, policy, async_driver.scripted(final, "never")) is final


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", AWAITED)
def test_a_failure_is_final_if_an_async_never_retry_on_matches_it(async_driver, way, form):
    """And is retried if it comes to False."""
    policy = policy_with("never_retry_on", FORMS[form])
    final = OSError("busy")
    assert play(async_driver, way, policy, async_driver.scripted(final, "never")) is final
    assert play(async_driver, way, policy, async_driver.scripted(OSError("lost"), "ok")) == "ok"


def test_each_predicate_is_asked_once_for_a_failure(async_driver):
    """Those before one that is awaited are not asked again when it has answered."""
    asked = []

    def plain(error):
        asked.append("plain")
        return False

    async def first(error):
        asked.append("first")
        return False

    async def second(error):
        asked.append("second")
        return True

    policy = RetryPolicy(**STEADY, retry_on=(plain, first, second))
    assert async_driver.call(policy, async_driver.scripted(ValueError, "ok")) == "ok"
    assert asked == ["plain", "first", "second"]


def test_the_members_of_a_group_are_judged_by_an_async_predicate(async_driver):
    """Each of them, in order; one that does not match makes the group final."""
    policy = RetryPolicy(**STEADY, retry_on=declared)
    busy = ExceptionGroup("all", [ValueError("busy"), KeyError("busy")])
    assert async_driver.call(policy, async_driver.scripted(busy, "ok")) == "ok"
    mixed = ExceptionGroup("one", [ValueError("busy"), KeyError("declined")])
    assert play(async_driver, "call", policy, async_driver.scripted(mixed, "never")) is mixed


@pytest.mark.parametrize("field", ["retry_on", "retry_if_result"])
def test_an_async_predicate_that_raises_has_not_matched(async_driver, field):
    """It is reported like a plain one that raises, and the call goes on without its answer."""

    async def broken(value):
        raise LookupError("in the predicate")

    policy = policy_with(field, broken).replace(name=f"broken {field} {async_driver}")
    steps = ["kept"] if field == "retry_if_result" else [ValueError("x"), "never"]
    with pytest.warns(MainstayWarning, match="LookupError"):
        outcome = play(async_driver, "call", policy, async_driver.scripted(*steps))
    assert outcome == "kept" if field == "retry_if_result" else isinstance(outcome, ValueError)


def test_a_cancellation_while_a_predicate_is_awaited_ends_the_call():
    """The predicate is a part of the call: who cancels it cancels both."""

    async def waits(error):
        await asyncio.sleep(60)

    async def main():
        call = asyncio.create_task(RetryPolicy(retry_on=waits).acall(fails))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    async def fails():
        raise ValueError

    asyncio.run(main())


# --- sync calls -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", DECLARED)
@pytest.mark.parametrize("field", FIELDS)
def test_a_sync_function_is_not_decorated_with_an_async_predicate(field, form):
    """The error names the field; nothing has been called yet."""
    with pytest.raises(WrapError, match=field):
        policy_with(field, FORMS[form])(lambda: "receipt")


@pytest.mark.parametrize("way", ["call", "run", "block", "async block", "keyed", "operation"])
@pytest.mark.parametrize("field", FIELDS)
def test_a_sync_call_with_an_async_predicate_is_refused_before_it_is_made(field, way):
    """By every way there is; also a block in async code, which cannot await where it ends."""
    made = []
    policy = policy_with(field, declared)
    with pytest.raises(WrapError, match=field):
        _make_sync(way, policy, lambda: made.append(1))
    assert made == []


def _make_sync(way, policy, function):
    if way in ("call", "run"):
        getattr(policy, way)(function)
    elif way == "block":
        for attempt in policy.attempts():
            with attempt:
                function()
    elif way == "async block":
        asyncio.run(_in_a_block(policy, function))
    else:
        with Engine(policies=[policy.replace(name="standard")]) as engine:
            if way == "keyed":
                engine.idempotent(key=lambda: "k")(function)()
            else:
                engine.operation("pay", key="k").call(function)


async def _in_a_block(policy, function):
    async for attempt in policy.attempts():
        with attempt:
            function()


@pytest.mark.parametrize("form", HIDDEN)
def test_a_result_of_a_sync_call_is_kept_if_its_predicate_cannot_be_awaited(form):
    """What was done is not done again on no answer; a warning names the policy."""
    made = []
    policy = policy_with("retry_if_result", FORMS[form]).replace(name=f"hidden result {form}")
    with pytest.warns(MainstayWarning, match="nothing awaits it"):
        assert policy.call(lambda: made.append(1) or "receipt") == "receipt"
    assert len(made) == 1


@pytest.mark.parametrize("form", HIDDEN)
@pytest.mark.parametrize("field", ["retry_on", "never_retry_on", "classify"])
def test_a_failure_of_a_sync_call_is_final_if_its_predicate_cannot_be_awaited(field, form):
    """The rule that was to decide has not: neither retried nor masked."""
    made = []

    def pay():
        made.append(1)
        raise OSError("busy")

    policy = policy_with(field, FORMS[form]).replace(name=f"hidden {field} {form}")
    with (
        pytest.warns(MainstayWarning, match="nothing awaits it"),
        pytest.raises(OSError, match="busy"),
    ):
        policy.call(pay)
    assert len(made) == 1


def test_a_plain_question_about_a_failure_gets_no_coroutine_for_an_answer():
    """`classification` cannot await: final, with the reason."""
    verdict = RetryPolicy(retry_on=declared).classification(ValueError("busy"))
    assert not verdict.retryable
    assert "nothing awaits it" in verdict.reason


# --- records --------------------------------------------------------------------------------------


def test_calls_that_async_predicates_decided_replay(tmp_path, async_driver):
    """The evidence of a failure has what they came to."""
    log = tmp_path / "audit.jsonl"
    policy = RetryPolicy(**STEADY, name="standard", retry_on=declared, retry_if_result=declared)
    with Engine(sinks=[AuditLog(log)], policies=[policy]) as engine:
        for steps in ([ValueError("busy"), "busy", "ok"], [ValueError("busy"), KeyError("x")]):
            play(async_driver, "call", engine.operation("pay"), async_driver.scripted(*steps))
    assert assert_replays(log).calls == 2


@pytest.mark.filterwarnings("ignore::mainstay.MainstayWarning")
def test_a_call_replays_whose_predicate_nothing_could_await(tmp_path):
    """That there was no answer is recorded, and decides again."""
    log = tmp_path / "audit.jsonl"
    policy = RetryPolicy(**STEADY, name="standard", retry_on=FORMS[HIDDEN[0]])
    with Engine(sinks=[AuditLog(log)], policies=[policy]) as engine:
        engine.run("pay", [].pop)
    assert assert_replays(log).calls == 1
    assert any("nothing awaits it" in str(event) for event in read_log(log))


def test_a_keyed_call_records_a_failure_that_an_async_predicate_made_final(async_driver):
    """The next call with the key gets that failure, and does not run."""
    made = []
    policy = RetryPolicy(**STEADY, name="standard", retry_on=OSError, never_retry_on=declared)
    with Engine(policies=[policy]) as engine:

        @engine.idempotent(key=lambda: "order-7")
        async def pay():
            made.append(1)
            raise ConnectionError("busy")

        for _ in range(2):
            with pytest.raises(ConnectionError, match="busy"):
                async_driver.run(pay)
    assert len(made) == 1


# --- other functions of the user's ----------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_an_async_predicate_of_a_fallback_is_awaited(async_driver, form):
    """It answers what matches, and lets the rest pass."""
    kept = Fallback(value="kept", on=FORMS[form])
    assert async_driver.run(kept(async_driver.scripted(ValueError("busy")))) == "kept"
    with pytest.raises(ValueError, match="declined"):
        async_driver.run(kept(async_driver.scripted(ValueError("declined"))))


@pytest.mark.parametrize("form", FORMS)
def test_a_sync_function_has_no_fallback_on_an_async_predicate(form, caplog):
    """Refused when it is decorated; if that cannot be seen then, the failure passes."""

    def fails():
        raise ValueError("busy")

    if form in DECLARED:
        with pytest.raises(WrapError, match="async"):
            Fallback(value="kept", on=FORMS[form])(fails)
        return
    with pytest.raises(ValueError, match="busy"):
        Fallback(value="kept", on=FORMS[form])(fails)()
    assert "nothing awaits it" in caplog.text


@pytest.mark.parametrize("form", DECLARED)
@pytest.mark.parametrize(
    "give",
    [
        lambda function: BreakerSettings(count_on=function),
        lambda function: BreakerSettings(ignore=[ValueError, function]),
        Backoff.custom,
        lambda function: CircuitBreaker("c", listener=function),
        lambda function: mainstay.retry(on=OSError, listener=function),
        lambda function: Engine().idempotent(key=function),
    ],
)
def test_a_function_that_nothing_would_await_is_refused_at_once(give, form):
    """An event would be lost, and a circuit would count every failure."""
    with pytest.raises(PolicyError, match="plain function"):
        give(FORMS[form])


@pytest.mark.parametrize("form", HIDDEN)
def test_a_circuit_counts_nothing_on_an_answer_that_it_cannot_await(form):
    """Neither for `count_on` nor for `ignore` is a coroutine a match."""
    assert not BreakerSettings(count_on=FORMS[form]).counts(ConnectionError("busy"))
    assert BreakerSettings(ignore=FORMS[form]).counts(ConnectionError("busy"))


@pytest.mark.parametrize("field", ["before_retry", "after_retry"])
def test_a_hook_of_an_async_block_that_returns_any_awaitable_is_awaited(async_driver, field):
    """Not only coroutines: what can be awaited is."""
    awaited = []

    class Noted:
        def __await__(self):
            awaited.append(field)
            return iter(())

    policy = RetryPolicy(**STEADY, retry_on=OSError, **{field: lambda info: Noted()})
    assert async_driver.block(policy, async_driver.scripted(OSError, "ok")) == "ok"
    assert awaited == [field]
