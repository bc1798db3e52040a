"""Table 3: what a deadline, a timeout, a listener and the other ways to call add to a success."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from bench.compare import ratios
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
from bench.peers import PEERS, Colour, Function, Plan, mainstay_policy
from bench.sync_happy import bare, decorated
from bench.table import Row, Table, at_most

ORDER = 3

PLAIN = Plan()
DEADLINE = Plan(deadline=30.0)
TIMEOUT = Plan(attempt_timeout=5.0)


def run(effort: Effort) -> Table:
    """Features that first-attempt success pays for, each alone; none of the limits is reached."""
    # req: NFR-041-02
    half = effort.scaled(0.8)
    rows = _sync_rows(half) + _async_rows(half)
    method = f"× a bare call, or a bare await inside one asyncio loop. {METHOD}"
    return Table("deadline", "First-attempt success with a deadline or timeout", method, rows)


def _sync_rows(effort: Effort) -> list[Row]:
    contenders = [
        Contender("bare call", bare, calls),
        Contender("mainstay, deadline", partial(decorated, "mainstay", DEADLINE), calls),
        Contender("mainstay, no feature", partial(decorated, "mainstay", PLAIN), calls),
        Contender("mainstay, attempt_timeout", partial(decorated, "mainstay", TIMEOUT), calls),
        Contender("mainstay, listener", partial(_listened, "sync"), calls),
        Contender("mainstay, policy.call(f)", partial(_policy, "sync"), policy_calls),
        Contender('mainstay, engine.call("op", f)', _engine, engine_calls),
    ]
    contenders += [
        Contender(f"{name}, deadline", partial(decorated, name, DEADLINE), calls) for name in PEERS
    ]
    goals = {"mainstay, deadline": at_most(8)}
    return ratios(race(contenders, effort, goals), "bare call", goals, named="sync: {}")


def _async_rows(effort: Effort) -> list[Row]:
    mainstay = partial(decorated, "mainstay", colour="async")
    contenders = [
        Contender("bare await", partial(bare, "async"), awaits),
        Contender(
            "mainstay, attempt_timeout", partial(decorated, "mainstay", TIMEOUT, "async"), awaits
        ),
        Contender("mainstay, no feature", partial(mainstay, PLAIN), awaits),
        Contender("mainstay, deadline", partial(mainstay, DEADLINE), awaits),
        Contender("mainstay, listener", partial(_listened, "async"), awaits),
        Contender("mainstay, policy.acall(f)", partial(_policy, "async"), policy_acalls),
        Contender("asyncio.timeout", _asyncio_timeout, awaits),
        Contender("asyncio.wait_for", _asyncio_wait_for, awaits),
    ]
    contenders += [
        Contender(f"{name}, attempt timeout", partial(decorated, name, TIMEOUT, "async"), awaits)
        for name in PEERS
    ]
    goals = {"mainstay, attempt_timeout": at_most(15)}
    return ratios(race_async(contenders, effort, goals), "bare await", goals, named="async: {}")


def _listened(colour: Colour) -> tuple[Function]:
    import mainstay

    (function,) = bare(colour)
    decorate: Any = mainstay.retry(policy=mainstay_policy(PLAIN), listener=lambda event: None)
    return (decorate(function),)


def _policy(colour: Colour) -> tuple[Any, Function]:
    return (mainstay_policy(PLAIN), *bare(colour))


def _engine() -> tuple[Any, str, Function]:
    import mainstay

    engine = mainstay.Engine(policies=[mainstay_policy(PLAIN)])
    return (engine, "bench", *bare())


def _asyncio_timeout() -> tuple[Function]:
    (function,) = bare("async")

    async def timed(a: object, b: object) -> object:
        async with asyncio.timeout(5.0):
            return await function(a, b)

    return (timed,)


def _asyncio_wait_for() -> tuple[Function]:
    (function,) = bare("async")

    async def timed(a: object, b: object) -> object:
        return await asyncio.wait_for(function(a, b), 5.0)

    return (timed,)
