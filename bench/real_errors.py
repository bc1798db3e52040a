"""Table 22: failing calls with what real clients raise, beside a hand-written loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.compare import rank, ratios
from bench.handwritten import handwritten
from bench.measure import METHOD, Contender, Effort, awaits, calls, race, race_async
from bench.peers import EVERYONE, Adapter, Colour, Function, Plan, no_sleep, tenaz
from bench.table import Row, Table, at_most

ORDER = 22
HAND = "hand-written loop"
GOALS = {"mainstay": at_most(3)}
PEERS = ("tenaz", "pyresilience", "backoff", "tenacity", "stamina")
ADAPTERS: dict[str, Adapter] = {**EVERYONE, HAND: handwritten, "tenaz": tenaz}
COLOURS: tuple[Colour, ...] = ("sync", "async")


def run(effort: Effort) -> Table:
    """Each of ten failures twice, then success; the rule names the class that is raised."""
    rows: list[Row] = []
    for colour in COLOURS:
        for name, (make, on) in failures().items():
            rows += _rows(name, make, on, colour, effort.scaled(0.24))
    method = (
        "× a hand-written loop that does the same for that exception. Two failures, then success."
        " The rank is among the libraries, the fastest first."
        f" time.sleep and asyncio.sleep are stubbed. {METHOD}"
    )
    return Table("real_errors", "Failing calls with what clients raise", method, rows)


def _rows(
    name: str, make: Callable[[], Exception], on: type[Exception], colour: Colour, effort: Effort
) -> list[Row]:
    plan = Plan(failures=2, on=on)
    loop = calls if colour == "sync" else awaits
    contenders = [
        Contender(each, partial(failing, each, plan, make, colour), loop)
        for each in (HAND, "mainstay", *PEERS)
    ]
    with no_sleep():
        timed = race if colour == "sync" else race_async
        results = timed(contenders, effort, GOALS)
    notes = {"mainstay": rank(results, "mainstay", HAND)}
    return ratios(results, HAND, GOALS, named=f"{colour}, {name}: {{}}", notes=notes)[1:]


def failing(
    name: str, plan: Plan, make: Callable[[], Exception], colour: Colour
) -> tuple[Function]:
    adapter = ADAPTERS[name]
    count = 0

    def f(a: Any, b: Any) -> Any:
        nonlocal count
        count += 1
        if count % 3:
            raise make()
        return a

    async def af(a: Any, b: Any) -> Any:
        return f(a, b)

    return (adapter(plan, colour)(f if colour == "sync" else af),)


class _Own(Exception):
    """An exception of the application."""


class _OwnWithCode(Exception):
    """One that carries an attribute."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def failures() -> dict[str, tuple[Callable[[], Exception], type[Exception]]]:
    """How each is made, and the class that a rule names."""
    import httpx
    import requests
    from botocore.exceptions import ClientError

    request = httpx.Request("GET", "http://127.0.0.1/")
    answer = httpx.Response(503, request=request)
    slow = {"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}
    return {
        "ConnectionError": (lambda: ConnectionError("refused"), ConnectionError),
        "OSError with errno": (lambda: OSError(104, "reset"), OSError),
        "OSError without errno": (lambda: OSError("broken"), OSError),
        "an own class": (lambda: _Own("x"), _Own),
        "with an attribute": (lambda: _OwnWithCode("x", 5), _OwnWithCode),
        "raised from another": (lambda: _from(ConnectionError("x")), ConnectionError),
        "requests.ConnectionError": (
            lambda: requests.ConnectionError("x"),
            requests.ConnectionError,
        ),
        "httpx.ConnectError from OSError": (
            lambda: _from(httpx.ConnectError("x", request=request)),
            httpx.ConnectError,
        ),
        "HTTPStatusError 503": (
            lambda: httpx.HTTPStatusError("503", request=request, response=answer),
            httpx.HTTPStatusError,
        ),
        "botocore ClientError": (lambda: ClientError(slow, "PutObject"), ClientError),
    }


def _from(error: Exception) -> Exception:
    error.__cause__ = OSError(111, "refused")
    return error
