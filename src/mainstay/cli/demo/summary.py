"""What is shown at the end: what failed, what was retried, what it saved, what it cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING

from mainstay import __version__
from mainstay.cli.demo import epilogue
from mainstay.cli.demo.traffic import OPERATIONS
from mainstay.core.retry.effects import NOT_RETRYABLE, OUT_OF_TIME

if TYPE_CHECKING:
    from rich.table import Table

    from mainstay.cli.demo.tally import Failure
    from mainstay.cli.demo.traffic import Traffic
    from mainstay.cli.screen.console import Screen


def document(traffic: Traffic) -> dict[str, object]:
    """The summary for programs."""
    total = traffic.tally.total
    return {
        "mainstay": __version__,
        "seed": traffic.seed,
        "calls": total.ended,
        "succeeded_at_first_attempt": total.first,
        "saved_by_retries": total.saved,
        "failed": total.failed,
        "retries": total.retries,
        "added_load_percent": round(percent(total.retries, total.ended), 1),
        "waited_seconds": round(total.waited, 3),
        "elapsed_seconds": round(traffic.elapsed, 3),
        "service_requests": traffic.requests,
        "deadline_held": sum(n for f, n in traffic.tally.failures.items() if is_held(f)),
        "failed_attempts": _troubles(traffic),
        "failures": _failures(traffic),
        "operations": _operations(traffic),
        **epilogue.document(traffic),
    }


def _troubles(traffic: Traffic) -> list[dict[str, object]]:
    found = traffic.tally.errors.most_common()
    return [{"kind": kind, "reason": reason, "count": n} for (kind, reason), n in found]


def _failures(traffic: Traffic) -> list[dict[str, object]]:
    found = sorted(traffic.tally.failures.items())
    return [
        {**asdict(f), "deliberate": is_deliberate(f), "deadline_held": is_held(f), "count": n}
        for f, n in found
    ]


def _operations(traffic: Traffic) -> dict[str, object]:
    counts = traffic.tally.counts
    return {
        name: {"policy": OPERATIONS[name], "calls": counts[name].ended, **asdict(counts[name])}
        for name in OPERATIONS
    }


def is_held(failure: Failure) -> bool:
    """Whether the deadline ended it: another attempt, or the wait for it, would have passed it."""
    return failure.stop == OUT_OF_TIME.text


def is_deliberate(failure: Failure) -> bool:
    """Whether it was not retried because a retry could not help."""
    return failure.stop == NOT_RETRYABLE.text


def percent(part: int, whole: int) -> float:
    """A share, of nothing too."""
    return 100.0 * part / whole if whole else 0.0


def show(traffic: Traffic, screen: Screen) -> None:
    """The summary for people."""
    from rich.text import Text

    from mainstay.cli.demo.display import operations

    screen.show(Text(_headline(traffic), style="bold"), _outcome(traffic))
    for title, body in (
        ("By operation", operations(traffic)),
        ("What went wrong, attempt by attempt", _wrong(traffic)),
        ("Calls that failed in the end, and why no more was tried", _lost(traffic)),
        ("What it cost", _cost(traffic)),
        *epilogue.sections(traffic),
        ("Try next", _next(traffic)),
    ):
        screen.show("", Text(title, style="bold"), body)


def _headline(traffic: Traffic) -> str:
    total = traffic.tally.total
    down = sum(map(traffic.script.is_outage, range(traffic.calls)))
    return (
        f"{total.ended} calls in {traffic.elapsed:.1f} s; the service failed"
        f" {total.failed_attempts} times and was down for {down} calls"
    )


def _outcome(traffic: Traffic) -> Table:
    total = traffic.tally.total
    of, with_retries = total.ended, percent(total.succeeded, total.ended)
    return _lines(
        (total.first, f"succeeded at first attempt: {percent(total.first, of):.1f} %"),
        (total.saved, f"would have failed without retries: with them {with_retries:.1f} %"),
        (total.failed, "failed"),
    )


def _wrong(traffic: Traffic) -> Table:
    found = traffic.tally.errors.most_common()
    return _lines(*((n, f"{kind}: {reason}") for (kind, reason), n in found))


def _lost(traffic: Traffic) -> Table:
    """Grouped by what a person would say of them; the most frequent first."""
    found: Counter[str] = Counter()
    for failure, number in traffic.tally.failures.items():
        found[_because(traffic, failure)] += number
    return _lines(*((number, text) for text, number in found.most_common()))


def _because(traffic: Traffic, failure: Failure) -> str:
    name, policy = failure.operation, traffic.engine.policies.of(failure.operation)
    if is_deliberate(failure):
        return f"{failure.cause} ({failure.kind}): not retried, {_IN_VAIN[failure.kind]}"
    if is_held(failure):
        return f"{name}: another attempt would have passed the deadline of {policy.deadline:g} s"
    if policy.max_attempts == 1:
        return f"{name}: policy {policy.name} allows no retry"
    return f"{name}: {failure.stop} of the {policy.max_attempts} of policy {policy.name}"


_IN_VAIN = defaultdict(
    lambda: "the policy does not name it",
    permanent="the answer would be the same",
    auth="the credentials would be the same",
)


def _cost(traffic: Traffic) -> Table:
    total = traffic.tally.total
    each = total.waited / total.saved if total.saved else 0.0
    load = percent(total.retries, total.ended)
    return _lines(
        (total.retries, f"retries: {load:.1f} % more requests for the service"),
        (f"{total.waited:.1f} s", f"of waiting between attempts: {each:.2f} s per call saved"),
    )


def _next(traffic: Traffic) -> Table:
    from mainstay.cli.screen.console import fields

    return fields(
        [
            (
                f"mainstay demo --seed {traffic.seed + 1}",
                f"other faults than those of seed {traffic.seed}",
            ),
            ("mainstay policies show standard --seed 7", "the exact delays of a policy"),
            ("mainstay demo --keep FOLDER", "the same, with its store and audit log to look at"),
            ("mainstay doctor", "what is installed here"),
        ]
    )


def _lines(*rows: tuple[int | str, str]) -> Table:
    """Numbers, and what they are."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(justify="right", min_width=6)
    made.add_column(overflow="fold")
    for number, text in rows:
        made.add_row(str(number), text)
    return made
