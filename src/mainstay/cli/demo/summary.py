"""What is shown: a live screen or lines meanwhile, and the summary as text and as JSON."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict
from math import inf
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mainstay import __version__
from mainstay.cli.demo.traffic import AUDIT, OPERATIONS, STORE
from mainstay.cli.screen.console import fields, table
from mainstay.cli.screen.output import write
from mainstay.core.retry.effects import NOT_RETRYABLE, OUT_OF_TIME
from mainstay.events import CallFailed, CallSucceeded, RetryAttempt, RetryExhausted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from rich.console import RenderableType

    from mainstay.cli.demo.tally import Failure
    from mainstay.cli.demo.traffic import Traffic
    from mainstay.cli.screen.console import Screen
    from mainstay.cli.screen.layout import Fields, Rows

_STYLES = {"open": "bold red", "half-open": "yellow"}
_FAILED = "failed after {0.total_seconds:.2f} s, {0.stop_reason}"
_EVENTS: dict[type, str] = {
    RetryAttempt: "attempt {0.attempt_number} failed, again in {0.delay_seconds:.2f} s"
    " ({0.kind}: {0.exception_message})",
    CallSucceeded: "saved by attempt {0.total_attempts} after {0.total_seconds:.2f} s",
    CallFailed: f"{_FAILED} ({{0.kind}}: {{0.final_exception_message}})",
    RetryExhausted: f"{_FAILED} ({{0.kind}}: {{0.final_exception_message}})",
}
_IN_VAIN = {
    "permanent": "the answer would be the same",
    "auth": "the credentials would be the same",
}


@contextmanager
def display_on(screen: Screen) -> Iterator[Callable[[Traffic], None]]:
    """The display that fits; it is gone when the calls are done."""
    if not screen.is_live:
        yield Lines()
        return
    with Live(console=screen, auto_refresh=False, transient=True) as live:
        yield lambda traffic: live.update(frame(traffic), refresh=True)


class Lines:
    """Progress for logs and pipes: a line each second, and one for each step of the acts."""

    def __init__(self) -> None:
        self._next = 1.0
        self._written = 0

    def __call__(self, traffic: Traffic) -> None:
        total, elapsed = traffic.tally.total, traffic.elapsed
        is_over = total.ended >= traffic.calls
        if elapsed >= self._next or (is_over and self._next < inf):
            self._next = inf if is_over else elapsed + 1.0
            write(
                f"{elapsed:5.1f} s  {total.ended} of {traffic.calls} calls:"
                f" {total.first} at first attempt, {total.saved} saved by retries,"
                f" {total.failed} failed; {total.retries} retries"
            )
        for line in traffic.tally.lines[self._written :]:
            write(f"         {line}")
            self._written += 1


def frame(traffic: Traffic) -> Group:
    """The whole display at one moment."""
    tally, in_flight = traffic.tally, len(traffic.wire.open)
    ended = tally.total.ended
    waiting = max(0, traffic.begun - ended - in_flight)
    grid = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=traffic.calls, completed=ended, width=30)
    grid.add_row(bar, f"{ended} of {traffic.calls} calls", f"{traffic.elapsed:.1f} s")
    line = Text(f"{in_flight} attempts in flight, {waiting} calls waiting for their next")
    if traffic.is_outage:
        line.append("   the service is down", style="bold red")
    recent = tuple(tally.recent)
    last = [f"{event.operation}: {_EVENTS[type(event)].format(event)}" for event in recent]
    shown = [Text(t, "dim", no_wrap=True, overflow="ellipsis") for t in tally.lines[-8:] or last]
    return Group(grid, line, "", _operations(traffic), "", Text("last events", "bold"), *shown)


def _operations(traffic: Traffic) -> Rows:
    columns = ("operation", "policy", "circuit", "first", "saved", "failed", "retries", "wait")
    rows = []
    for name, count in traffic.tally.counts.items():
        state = traffic.tally.states[name][-1]
        circuit, saved = Text(state, _STYLES.get(state, "")), Text(str(count.saved), "green")
        failed = Text(str(count.failed), "red" if count.failed else "")
        figures = (str(count.first), saved, failed, str(count.retries), f"{count.waited:.1f} s")
        rows.append((name, OPERATIONS[name], circuit, *figures))
    return table(columns, rows, left=3)


def document(traffic: Traffic) -> dict[str, Any]:
    """The summary for programs."""
    tally, total, states = traffic.tally, traffic.tally.total, traffic.tally.states
    failures = [
        {
            **failure._asdict(),
            "deliberate": failure.stop == NOT_RETRYABLE.text,
            "deadline_held": failure.stop == OUT_OF_TIME.text,
            "count": number,
        }
        for failure, number in sorted(tally.failures.items())
    ]
    circuits = {
        "opened": sum(path.count("open") for path in states.values()),
        "recovered": sum("open" in path and path[-1] == "closed" for path in states.values()),
        "operations": {n: {"states": states[n], "refused": tally.refused[n]} for n in states},
    }
    requests = traffic.service.requests.items()
    return {
        "mainstay": __version__,
        "seed": traffic.seed,
        "calls": total.ended,
        "succeeded_at_first_attempt": total.first,
        "saved_by_retries": total.saved,
        "failed": total.failed,
        "retries": total.retries,
        "added_load_percent": round(_percent(total.retries, total.ended), 1),
        "waited_seconds": round(total.waited, 3),
        "elapsed_seconds": round(traffic.elapsed, 3),
        "service_requests": sum(n for call, n in requests if call < traffic.calls),
        "deadline_held": sum(each["count"] for each in failures if each["deadline_held"]),
        "failed_attempts": [
            {"kind": kind, "reason": reason, "count": n}
            for (kind, reason), n in tally.errors.most_common()
        ],
        "failures": failures,
        "operations": {
            name: {"policy": OPERATIONS[name], "calls": count.ended, **asdict(count)}
            for name, count in tally.counts.items()
        },
        "circuits": circuits,
        **traffic.acts,
    }


def show(traffic: Traffic, screen: Screen, keep: str | None) -> None:
    """The summary for people."""
    total, down = traffic.tally.total, map(traffic.script.is_outage, range(traffic.calls))
    headline = (
        f"{total.ended} calls in {traffic.elapsed:.1f} s; the service failed"
        f" {total.failed_attempts} times and was down for {sum(down)} calls"
    )
    with_retries = _percent(total.first + total.saved, total.ended)
    outcome = _figures(
        (total.first, f"succeeded at first attempt: {_percent(total.first, total.ended):.1f} %"),
        (total.saved, f"would have failed without retries: with them {with_retries:.1f} %"),
        (total.failed, "failed"),
    )
    screen.show(Text(headline, "bold"), outcome)
    for title, body in _sections(traffic, keep):
        screen.show("", Text(title, "bold"), body)


def _sections(traffic: Traffic, keep: str | None) -> Iterator[tuple[str, RenderableType]]:
    tally, total, reasons = traffic.tally, traffic.tally.total, Counter[str]()
    for failure, number in tally.failures.items():
        reasons[_because(traffic, failure)] += number
    load, each = _percent(total.retries, total.ended), total.waited / max(1, total.saved)
    yield "By operation", _operations(traffic)
    errors = ((n, f"{kind}: {why}") for (kind, why), n in tally.errors.most_common())
    yield "Failed attempts", _figures(*errors)
    causes = ((number, text) for text, number in reasons.most_common())
    yield "Failed calls, and why there was no further attempt", _figures(*causes)
    yield (
        "What it cost",
        _figures(
            (total.retries, f"retries: {load:.1f} % more requests for the service"),
            (f"{total.waited:.1f} s", f"of waiting between attempts: {each:.2f} s per call saved"),
        ),
    )
    states = [(n, " → ".join(s), str(tally.refused[n])) for n, s in tally.states.items()]
    columns = ("operation", "circuit", "refused without a request")
    yield "An outage: circuits open and recover", table(columns, states, left=2)
    yield "One order, two calls with one key", fields(_rows(traffic.acts["charge"]))
    yield "One order that an operator decides about", fields(_rows(traffic.acts["inbox"]))
    yield "The audit log of all that", fields(_rows(traffic.acts["audit"]))
    yield "Try next", fields(_next(traffic, keep))


def _rows(act: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in act.items():
        shown = ", ".join(value) if isinstance(value, list) else str(value)
        yield name.replace("_", " "), {"True": "yes", "False": "no"}.get(shown, shown)


def _because(traffic: Traffic, failure: Failure) -> str:
    name, policy = failure.operation, traffic.engine.policies.of(failure.operation)
    if failure.stop == NOT_RETRYABLE.text:
        why = _IN_VAIN.get(failure.kind, "the policy does not name it")
        return f"{failure.cause} ({failure.kind}): not retried, {why}"
    if failure.stop == OUT_OF_TIME.text:
        return f"{name}: another attempt would have passed the deadline of {policy.deadline:g} s"
    if policy.max_attempts == 1:
        return f"{name}: policy {policy.name} allows no retry"
    return f"{name}: {failure.stop} of the {policy.max_attempts} of policy {policy.name}"


def _next(traffic: Traffic, keep: str | None) -> Iterator[tuple[str, str]]:
    yield f"mainstay demo --seed {traffic.seed + 1}", f"other faults than seed {traffic.seed}"
    yield "mainstay policies show standard --seed 7", "the exact delays of a policy"
    if keep is None:
        yield "mainstay demo --keep FOLDER", "the same; its store and audit log are kept"
        yield "mainstay doctor", "what is installed here"
        return
    log, store = traffic.folder / AUDIT, f"sqlite:///{traffic.folder.absolute() / STORE}"
    yield f"mainstay audit tail {log}", "what happened, record by record"
    yield f"mainstay audit stats {log}", "the same in figures"
    yield f"mainstay inbox --store {store}", f"the inbox; the files are kept in {keep}"


def _figures(*rows: tuple[int | str, str]) -> Fields:
    return fields((str(number).rjust(6), text) for number, text in rows)


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
