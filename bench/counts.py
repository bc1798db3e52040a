"""Table 31: what things cost in Python frames, C functions and statements: counted, not timed.

A count is the same on every machine and under every load, so `make check` runs this table, with
those of memory (`python -m bench --counted`). The specification bounds some of these in
milliseconds; a goal here is so low that no machine comes near them, and it shows a change that
a clock would not. Goals leave some room: the tests hold the paths of a call exactly.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.configuration import FIELDS
from bench.failure import scripted
from bench.log_write import recorded
from bench.measure import Effort, reason
from bench.peers import Plan, mainstay_policy, no_sleep
from bench.table import Row, Table, at_most
from bench.ways import FAILS, Dropping, log_at, protected
from tests.costs import acosts, costs

ORDER = 31
POLICIES = 100
REAL = {
    "OSError without errno": 46,
    "an own class": 28,
    "requests.ConnectionError": 77,
    "httpx.ConnectError from OSError": 75,
    "HTTPStatusError 503": 87,
}
"""Errors of the table real_errors, and what a call may enter with them."""
ENTERED = "entered"
"""Frames and C functions that are entered."""


def run(effort: Effort) -> Table:
    """What each thing costs, once it is warm."""
    return counted()


def counted() -> Table:
    """The same: nothing here is timed."""
    # req: NFR-041-01, NFR-041-02, NFR-041-03, NFR-041-04, NFR-041-05, NFR-041-06
    rows = [
        _row("a decorated call that succeeds, beyond the function", _call, 1),
        _row("a call that is retried twice, waits not made", _retried, 60),
        _row("the same of an engine, logged to a handler that drops", _logged, 149),
        _row("the same on SQLite with audit", _recorded, 166),
        *(
            _row(f"an async call that fails twice: {name}", partial(_real, name), goal)
            for name, goal in REAL.items()
        ),
        _row(f"policies.of(operation) among {POLICIES}", _lookup, 6),
        _row("one delay computed", _delay, 8),
        _row("a circuit asked for leave", _circuit, 30),
        _row("a log record as JSON to a file", _log, 150),
        _row("a policy of a configuration read, checked and made", _configuration, 400),
        _row("statements of a keyed call on SQLite", _keyed, 2, "statements"),
        _row("a saga of three steps on SQLite", lambda: len(_saga()), 315),
        _row(
            "statements of a saga of three steps on SQLite",
            lambda: _saga().count("Connection.execute"),
            4,
            "statements",
        ),
    ]
    method = f"Frames and C functions {ENTERED}, by sys.setprofile; the second time."
    return Table("counts", "Costs that are counted", method, rows)


def _row(what: str, count: Callable[[], float], goal: float, unit: str = ENTERED) -> Row:
    try:
        return Row(what, count(), at_most(goal), unit)
    except Exception as error:
        return Row(what, None, at_most(goal), unit, note=reason(error))


def _warm(function: Callable[..., Any], *args: Any) -> int:
    """What a call enters that is not the first, besides the function itself.

    The least of three: one may wake a thread that has gone to rest, or draw new ids.
    """
    function(*args)
    return min(len(costs(function, *args)) for _ in range(3)) - 1


def _nothing(a: int) -> int:
    return a


def _call() -> int:
    return _warm(mainstay_policy(Plan())(_nothing), 1)


def _retried() -> int:
    from mainstay.testing import virtual_time

    left = [0]

    def fails_twice() -> None:
        left[0] = (left[0] + 1) % 3
        if left[0]:
            raise ConnectionError

    with virtual_time():
        return _warm(mainstay_policy(Plan())(fails_twice))


def _logged() -> int:
    with no_sleep(), log_at(logging.WARNING, Dropping()):
        (function,) = protected(sinks=None)
        return _warm(function, 1, 2)


def _recorded() -> int:
    from mainstay import Engine

    with _folder() as folder, no_sleep(), log_at(logging.WARNING, Dropping()):
        url, policies = f"sqlite:///{folder}/kept.db", [mainstay_policy(FAILS)]
        with Engine(url, policies=policies) as engine:
            function = engine.protect("bench")(scripted(FAILS, "sync"))
            function(1, 2)
            return _warm(function, 1, 2)


def _real(name: str) -> int:
    """With the function, what makes its errors, and the sleep that is stubbed."""
    from bench.real_errors import failing, failures

    make, on = failures()[name]
    (function,) = failing("mainstay", Plan(failures=2, on=on), make, "async")
    with no_sleep():
        acosts(function, 1, 2)
        return len(acosts(function, 1, 2))


def _lookup() -> int:
    from mainstay import Engine, RetryPolicy

    policies = [RetryPolicy(name=f"policy-{number}") for number in range(POLICIES)]
    with Engine(policies=policies, sinks=[]) as engine:
        return _warm(engine.policies.of, "policy-50")


def _delay() -> int:
    return _warm(mainstay_policy(Plan()).delay, 1, 0.5)


def _circuit() -> int:
    from mainstay import CircuitBreaker

    return _warm(CircuitBreaker("payments").allow_request)


def _log() -> int:
    from mainstay.sinks.logging import JsonFormatter, LoggingSink

    with _folder() as folder:
        handler = logging.FileHandler(folder / "log.jsonl")
        handler.setFormatter(JsonFormatter())
        log = logging.Logger("bench")  # noqa: LOG001 - one of its own, that nobody else hears
        log.addHandler(handler)
        try:
            return _warm(LoggingSink(log), recorded())
        finally:
            handler.close()


def _configuration() -> float:
    from mainstay.config.load import load

    text = "".join(f"    policy-{number}:\n{FIELDS}" for number in range(POLICIES))
    with _folder() as folder:
        path = folder / "mainstay.yml"
        path.write_text(f"retry:\n  policies:\n{text}", encoding="utf-8")
        return _warm(load, path) / POLICIES


def _keyed() -> int:
    """The fewest: a step that is late by 10 ms, as on a busy machine, is made again in full."""
    from mainstay import Engine
    from mainstay.drivers.idempotency.keys import ENOUGH

    with _folder() as folder, Engine(f"sqlite:///{folder}/kept.db", audit=False) as engine:
        charge = engine.idempotent(key=lambda order: order)(_nothing)
        for number in range(ENOUGH):
            charge(number)
        entered = [costs(charge, ENOUGH + more) for more in range(5)]
        return min(each.count("Connection.execute") for each in entered)


def _saga() -> list[str]:
    """What one enters with steps that return at once; the fewest, as a machine may stand still."""
    from bench.sagas import saga
    from mainstay import Engine

    mine, url = saga(), "sqlite:///{}/kept.db?synchronous=NORMAL"
    with _folder() as folder, Engine(url.format(folder), sinks=[], audit=False) as engine:
        engine.sagas.run(mine, {"amount": 500})
        return min((costs(engine.sagas.run, mine, {"amount": 500}) for _ in range(5)), key=len)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
