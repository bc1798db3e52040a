"""Table 23: the ways people call: through an engine, a policy, with listeners and with a log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench.compare import ratios
from bench.failure import scripted
from bench.handwritten import handwritten
from bench.measure import (
    METHOD,
    Contender,
    Effort,
    awaits,
    calls,
    engine_calls,
    policy_acalls,
    policy_calls,
    race,
    race_async,
)
from bench.peers import Function, Plan, mainstay_policy, no_sleep
from bench.sync_happy import bare
from bench.table import Goal, Row, Table, at_most

ORDER = 23
HAND = "hand-written loop"
FAILS = Plan(failures=2)
BARE, BARE_AWAIT = "bare call", "bare await"


def run(effort: Effort) -> Table:
    """First-attempt successes by each way, then calls that fail twice, with and without a log."""
    part = effort.scaled(0.5)
    rows = [*_happy(part), *_async_happy(part), *_failing(part), *_listening(part)]
    rows += [*_silent_log(part), *_dropping_log(part)]
    method = (
        "Succeeds: at the first attempt, × a bare call or await. Fails: twice, then succeeds, × a "
        "hand-written loop that does the same; time.sleep is stubbed. Nobody listens unless the "
        f"row says so. {METHOD}"
    )
    return Table("ways", "The ways of calling", method, rows)


def _happy(effort: Effort) -> list[Row]:
    contenders = [
        Contender(BARE, bare, calls),
        Contender("the decorated function", _decorated, calls),
        Contender("policy.call", _of_policy, policy_calls),
        Contender("engine.call", _of_engine, engine_calls),
        Contender("policy.run", _of_policy, policy_runs),
        Contender("engine.run", _of_engine, engine_runs),
    ]
    goals = {
        "policy.call": None, "engine.call": at_most(10), "policy.run": at_most(40),
        "engine.run": at_most(40),
    }  # fmt: skip
    return _compared(contenders, effort, _asked(goals), named="succeeds: {}")


def _async_happy(effort: Effort) -> list[Row]:
    contenders = [
        Contender(BARE_AWAIT, partial(bare, "async"), awaits),
        Contender("policy.acall", partial(_of_policy, "async"), policy_acalls),
        Contender("engine.acall", partial(_of_engine, "async"), engine_acalls),
        Contender("policy.arun", partial(_of_policy, "async"), policy_aruns),
    ]
    goals = {"policy.acall": at_most(4), "engine.acall": at_most(4), "policy.arun": None}
    asked = _asked(goals)
    return ratios(race_async(contenders, effort, asked), BARE_AWAIT, asked, named="succeeds: {}")


def _failing(effort: Effort) -> list[Row]:
    contenders = [
        Contender(HAND, _by_hand, calls),
        Contender("the decorated function", partial(_decorated, FAILS), calls),
        Contender("policy.call", partial(_of_policy, plan=FAILS), policy_calls),
        Contender("engine.call", partial(_of_engine, plan=FAILS), engine_calls),
        Contender("policy.run", partial(_of_policy, plan=FAILS), policy_runs),
    ]
    goals = {"policy.call": at_most(3), "engine.call": at_most(3)}
    with no_sleep():
        return _compared(contenders, effort, goals)


def _listening(effort: Effort) -> list[Row]:
    name = "a listener that does nothing"
    contenders = [Contender(HAND, _by_hand, calls), Contender(name, _listened, calls)]
    with no_sleep():
        return _compared(contenders, effort, {name: at_most(6)})[1:]


def _silent_log(effort: Effort) -> list[Row]:
    """An engine as it is made by default, in a program that wants none of its records."""
    nobody, name = "an engine without sinks", "an engine whose log is off"
    contenders = [
        Contender(nobody, partial(protected, sinks=[]), calls),
        Contender(name, partial(protected, sinks=None), calls),
    ]
    with no_sleep(), log_at(logging.CRITICAL + 1):
        return _compared(contenders, effort, {name: at_most(2)})


def _dropping_log(effort: Effort) -> list[Row]:
    """The same with a handler that takes every record and drops it."""
    hand, name = "hand-written loop that logs", "an engine whose handler drops"
    peer = "hand-written loop with stamina's log line"
    contenders = [
        Contender(hand, logging_loop, calls),
        Contender(peer, stamina_loop, calls),
        Contender(name, partial(protected, sinks=None), calls),
    ]
    with no_sleep(), log_at(logging.WARNING, Dropping()):
        results = race(contenders, effort, {name})
    beside = f"fails: {{}}, × a {peer}"
    rows = ratios(results, hand, {name: at_most(2)}, named="fails: {}")
    return [*rows, *ratios(results, peer, {name: at_most(1.5)}, named=beside)[1:2]]


def _compared(
    contenders: list[Contender], effort: Effort, goals: dict[str, Goal], named: str = "fails: {}"
) -> list[Row]:
    """Each contender beside the first."""
    return ratios(race(contenders, effort, goals), contenders[0].name, goals, named=named)


def _asked(goals: dict[str, Any]) -> dict[str, Any]:
    return {name: goal for name, goal in goals.items() if goal is not None}


class Dropping(logging.Handler):
    """Takes every record and drops it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Nothing."""


@contextlib.contextmanager
def log_at(level: int, handler: logging.Handler | None = None) -> Iterator[None]:
    """The level of the logger `mainstay`, and a handler of it."""
    logger = logging.getLogger("mainstay")
    before, logger.propagate = logger.level, False
    logger.setLevel(level)
    if handler is not None:
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.propagate = True
        if handler is not None:
            logger.removeHandler(handler)


# What is prepared: a new function and a new caller for each part of a run.


def _function(plan: Plan | None, colour: str = "sync") -> Function:
    return bare(colour)[0] if plan is None else scripted(plan, colour)  # type: ignore[arg-type]


def _by_hand() -> tuple[Function]:
    return (handwritten(FAILS, "sync")(scripted(FAILS, "sync")),)


def _decorated(plan: Plan | None = None) -> tuple[Function]:
    return (mainstay_policy(plan or Plan())(_function(plan)),)


def _of_policy(colour: str = "sync", plan: Plan | None = None) -> tuple[Any, Function]:
    return mainstay_policy(plan or Plan()), _function(plan, colour)


def _of_engine(colour: str = "sync", plan: Plan | None = None) -> tuple[Any, str, Function]:
    from mainstay import Engine

    engine = Engine(policies=[mainstay_policy(plan or Plan())], sinks=[] if plan else None)
    return engine, "bench", _function(plan, colour)


def _listened() -> tuple[Function]:
    from mainstay import retry

    return (retry(policy=mainstay_policy(FAILS), listener=_nothing)(scripted(FAILS, "sync")),)


def _nothing(event: object) -> None:
    """A listener."""


def protected(sinks: list[Any] | None) -> tuple[Function]:
    from mainstay import Engine

    engine = Engine(policies=[mainstay_policy(FAILS)], sinks=sinks)
    return (engine.protect("bench")(scripted(FAILS, "sync")),)


def logging_loop() -> tuple[Function]:
    import random
    import time

    function, logger = scripted(FAILS, "sync"), logging.getLogger("bench.by_hand")
    logger.propagate, logger.handlers = False, [Dropping()]

    def call(a: Any, b: Any) -> Any:
        for attempt in range(1, FAILS.attempts + 1):
            try:
                return function(a, b)
            except ConnectionError as error:
                if attempt == FAILS.attempts:
                    raise
                delay = min(FAILS.initial * FAILS.factor ** (attempt - 1), FAILS.max_delay)
                delay *= 1 + FAILS.jitter * (2 * random.random() - 1)
                logger.warning("attempt %d failed: %r; next in %.3f s", attempt, error, delay)
                time.sleep(delay)
        raise AssertionError("the loop returns or raises")

    return (call,)


def stamina_loop() -> tuple[Function]:
    """The same loop with the hook by which stamina logs a retry."""
    import random
    import time

    from stamina.instrumentation import LoggingOnRetryHook, RetryDetails

    hook, function = LoggingOnRetryHook.hook_factory(), scripted(FAILS, "sync")
    logger = logging.getLogger("stamina")
    logger.propagate, logger.handlers = False, [Dropping()]

    def call(a: Any, b: Any) -> Any:
        waited = 0.0
        for attempt in range(1, FAILS.attempts + 1):
            try:
                return function(a, b)
            except ConnectionError as error:
                if attempt == FAILS.attempts:
                    raise
                delay = min(FAILS.initial * FAILS.factor ** (attempt - 1), FAILS.max_delay)
                delay *= 1 + FAILS.jitter * (2 * random.random() - 1)
                hook(RetryDetails("f", (a, b), {}, attempt, delay, waited, error))
                waited += delay
                time.sleep(delay)
        raise AssertionError("the loop returns or raises")

    return (call,)


# The timing loops: ten calls a turn.


def _loop(head: str, parameters: str, call: str) -> Callable[..., Any]:
    made: dict[str, Function] = {}
    body = f"        {call}\n" * 10
    exec(f"{head} loop(n, {parameters}):\n    for _ in range(n):\n{body}", made)
    return made["loop"]


policy_runs = _loop("def", "policy, f", "policy.run(f, 1, 2)")
policy_aruns = _loop("async def", "policy, f", "await policy.arun(f, 1, 2)")
engine_runs = _loop("def", "engine, name, f", "engine.run(name, f, 1, 2)")
engine_acalls = _loop("async def", "engine, name, f", "await engine.acall(name, f, 1, 2)")
