"""How far a long reading has come, on stderr, for a person who waits; a pipe sees none of it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")

PATIENCE = 1.0
"""Seconds before anything is shown."""
_EVERY = 2048
"""Items between two looks at the clock."""


def watched(items: Iterable[T], word: str, total: int | None = None) -> Iterator[T]:
    """The same items; if they take longer than a second, a line shows the progress."""
    if not _is_watched():
        yield from items
        return
    started = shown = time.monotonic()
    done = 0
    try:
        for item in items:
            yield item
            done += 1
            if done % _EVERY == 0 and (now := time.monotonic()) - max(shown, started + 0.8) > 0.2:
                shown = now
                _show(line(done, word, now - started, total))
    finally:
        if shown != started:
            _show("")


class Watch:
    """The same for work that counts its progress: call it with a count, and `close()` it."""

    def __init__(self, word: str, total: int) -> None:
        self._word = word
        self.total = total
        self._started = self._shown = time.monotonic()
        self._is_watched = _is_watched()

    def __call__(self, done: int) -> None:
        """Shows the count, now and then."""
        now = time.monotonic()
        if self._is_watched and now - max(self._shown, self._started + 0.8) > 0.2:
            self._shown = now
            _show(line(done, self._word, now - self._started, self.total))

    def close(self) -> None:
        """Clears the line."""
        if self._shown != self._started:
            _show("")


def line(done: int, word: str, seconds: float, total: int | None = None) -> str:
    """How far it is, and how long it may still take.

    >>> line(500_000, "events", 2.0)
    '500,000 events, 250,000 a second'
    >>> line(500_000, "events", 2.0, 2_000_000)
    '━━━━━───────────────  25 % of 2,000,000 events, 6 s to go'
    """
    speed = done / max(seconds, 1e-9)
    if not total:
        return f"{done:,} {word}, {speed:,.0f} a second"
    share = min(1.0, done / total)
    full = int(20 * share)
    bar = "━" * full + "─" * (20 - full)
    left = max(0, total - done) / speed
    return f"{bar}  {share:.0%} of {total:,} {word}, {left:.0f} s to go".replace("%", " %")


def _is_watched() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _show(text: str) -> None:
    """Writes over the line that is there."""
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()
