"""Table 21: classifying what a known library raises, beside what nobody knows."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.compare import ratios
from bench.measure import METHOD, Contender, Effort, calls, race
from bench.table import Table, at_most

ORDER = 21
UNKNOWN = "a class that nobody knows, decided anew"


def run(effort: Effort) -> Table:
    """A policy without `on` classifies each error again and again."""
    import httpx

    request = httpx.Request("GET", "http://127.0.0.1/")
    errors: dict[str, Exception] = {
        UNKNOWN: _Unknown("x"),
        "httpx.ConnectError": httpx.ConnectError("x", request=request),
        "httpx.ReadTimeout": httpx.ReadTimeout("x", request=request),
        "httpx.HTTPStatusError 503": httpx.HTTPStatusError(
            "x", request=request, response=httpx.Response(503, request=request)
        ),
    }
    contenders = [
        Contender(name, partial(_classify, e, forgets=name == UNKNOWN), calls)
        for name, e in errors.items()
    ]
    goals = {name: at_most(1) for name in errors if name != UNKNOWN}
    rows = ratios(race(contenders, effort, goals), UNKNOWN, goals)
    return Table("known errors", "Classifying a known error", f"× an unknown one. {METHOD}", rows)


class _Unknown(Exception):
    """Carries an attribute, as errors of libraries do."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.request = None


def _classify(error: Exception, *, forgets: bool) -> tuple[Any, ...]:
    from mainstay import RetryPolicy

    policy = RetryPolicy()
    rules = policy._rules

    def anew(_a: object, _b: object) -> object:
        rules.forget()
        return policy.classification(error)

    def f(_a: object, _b: object) -> object:
        return policy.classification(error)

    return (anew if forgets else f,)
