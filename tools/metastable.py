"""A metastable overload: a service that stays down after what took it down is over.

    python tools/metastable.py            print what happened
    python tools/metastable.py --write    draw docs/images/metastable.svg

A server works off its requests one after the other, and does not notice when a client has given
up: abandoned work still costs. For some seconds it is slow. Retries then keep it busy with requests
that no client waits for any more, and it stays collapsed, unless clients retry less. Real clients,
real retries, virtual time.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mainstay import Backoff, CircuitBreaker, Engine, RetryBudget, RetryPolicy, Window
from mainstay.testing import virtual_time

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "images" / "metastable.svg"

CAPACITY = 50.0
"""Requests a second that the server can work off."""
LOAD = 35.0
"""Calls a second that users make: 70 % of it."""
SLOW = (20.0, 30.0)
"""From when to when the server is slow, in seconds."""
SLOWNESS = 5.0
END = 90.0
PATIENCE = 0.5
"""Seconds a client waits for one attempt."""


@dataclass
class Server:
    """Works off one request after the other, also those that no client waits for."""

    began: float
    busy_until: float = 0.0
    requests: list[float] = field(default_factory=list)

    async def answer(self) -> None:
        now = asyncio.get_running_loop().time() - self.began
        self.requests.append(now)
        is_slow = SLOW[0] <= now < SLOW[1]
        work = (SLOWNESS if is_slow else 1.0) / CAPACITY
        self.busy_until = max(now, self.busy_until) + work
        await asyncio.sleep(self.busy_until - now)


@dataclass
class Outcome:
    """What a run came to: when calls succeeded, failed, and requests reached the server."""

    succeeded: list[float] = field(default_factory=list)
    failed: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)

    def goodput(self, start: float, end: float) -> float:
        """The share of the calls made in a time that succeeded."""
        good = sum(start <= at < end for at in self.succeeded)
        bad = sum(start <= at < end for at in self.failed)
        return good / max(1, good + bad)

    def load(self, start: float, end: float) -> float:
        """Requests a second, as a share of the capacity."""
        return sum(start <= at < end for at in self.requests) / (end - start) / CAPACITY


def play(*, protected: bool) -> Outcome:
    """One run, with retries alone or with a budget and a breaker."""
    with virtual_time(start=0.0):
        return asyncio.run(_play(protected))


async def _play(protected: bool) -> Outcome:
    loop, outcome = asyncio.get_running_loop(), Outcome()
    server = Server(loop.time())
    policy = RetryPolicy(
        name="search", max_attempts=3, attempt_timeout=PATIENCE, backoff=Backoff.exponential(0.1)
    )
    guards: dict[str, Any] = {
        "budget": RetryBudget(ratio=0.1, floor=5),
        "breakers": [
            CircuitBreaker(
                "search", window=Window.seconds(5.0), recovery_timeout=2.0, ramp=5.0, seed=1
            )
        ],
    }
    engine = Engine(policies=[policy], seed=1, sinks=[], **(guards if protected else {}))
    search = engine.protect("search")(server.answer)

    async def call() -> None:
        at = loop.time() - server.began
        try:
            await search()
        except Exception:
            outcome.failed.append(at)
        else:
            outcome.succeeded.append(at)

    calls = []
    for _ in range(int(LOAD * END)):
        calls.append(asyncio.create_task(call()))
        await asyncio.sleep(1.0 / LOAD)
    await asyncio.gather(*calls)
    outcome.requests = server.requests
    return outcome


# --- the picture ----------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, TOP = 720, 330, 50, 40
STEP = 2.0
_SVG = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    ' font-family="sans-serif" font-size="13">'
)
COLOURS = {"retries alone": "#c0392b", "with budget and breaker": "#1f6feb"}


def render(outcomes: dict[str, Outcome]) -> str:
    """The share of successful calls over time, as SVG."""
    lines = [
        _SVG,
        "<title>Calls that succeed, over time, before, during and after an overload</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _trigger(),
        *_axes(),
        *(_curve(name, outcome, n) for n, (name, outcome) in enumerate(outcomes.items())),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _x(seconds: float) -> float:
    return round(LEFT + (WIDTH - LEFT - 20) * seconds / END, 1)


def _y(share: float) -> float:
    return round(TOP + (HEIGHT - TOP - 50) * (1.0 - share), 1)


def _trigger() -> str:
    left, right = _x(SLOW[0]), _x(SLOW[1])
    return (
        f'<rect x="{left}" y="{TOP}" width="{round(right - left, 1)}" height="{_y(0) - TOP}"'
        f' fill="#f4e2c4"/><text x="{left + 4}" y="{TOP + 18}">server slow</text>'
    )


def _axes() -> list[str]:
    bottom = _y(0.0)
    lines = [f'<text x="{LEFT}" y="22">calls that succeed</text>']
    for share in (0.0, 0.5, 1.0):
        y = _y(share)
        lines.append(f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - 20}" y2="{y}" stroke="#d0d7de"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{share:.0%}</text>')
    for second in range(0, int(END) + 1, 15):
        place = f'x="{_x(second)}" y="{bottom + 20}" text-anchor="middle"'
        lines.append(f"<text {place}>{second} s</text>")
    return lines


def _curve(name: str, outcome: Outcome, number: int) -> str:
    starts = [n * STEP for n in range(int(END / STEP))]
    points = [f"{_x(s + STEP / 2)},{_y(outcome.goodput(s, s + STEP))}" for s in starts]
    colour = COLOURS[name]
    x = LEFT + 250 + 180 * number
    return (
        f'<polyline fill="none" stroke="{colour}" stroke-width="2.5" points="{" ".join(points)}"/>'
        f'<text x="{x}" y="22" fill="{colour}">{name}</text>'
    )


def outcomes() -> dict[str, Outcome]:
    """Both runs, by what they are called in the picture."""
    return {name: play(protected=n == 1) for n, name in enumerate(COLOURS)}


def main(arguments: list[str]) -> int:
    """Print the figures, or draw the picture."""
    parser = argparse.ArgumentParser(description="a metastable overload")
    parser.add_argument("--write", action="store_true", help="draw docs/images/metastable.svg")
    write = parser.parse_args(arguments).write
    found = outcomes()
    for name, outcome in found.items():
        for label, span in (("before", (0, 20)), ("during", (20, 30)), ("at the end", (70, 90))):
            good, load = outcome.goodput(*span), outcome.load(*span)
            print(f"{name}, {label}: {good:.0%} succeed, load {load:.0%} of the capacity")
    if write:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(render(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
