"""Exit codes as people write them: `1,3-5`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 255


class ExitCodes(click.ParamType):
    """A list of exit codes and ranges of them, from 1 to 255.

    >>> ExitCodes().convert("1,3-5", None, None)
    (1, 3, 4, 5)
    """

    name = "codes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The codes, each once, in order."""
        if isinstance(value, tuple):
            return value
        codes: set[int] = set()
        for part in str(value).split(","):
            first, _, last = part.strip().partition("-")
            if not first.isdecimal() or not (last or first).isdecimal():
                self.fail(f"{part.strip()!r} is no exit code; write them as 1,3-5", param, ctx)
            low, high = int(first), int(last or first)
            if not 1 <= low <= high <= MOST:
                self.fail(f"{part.strip()!r}: exit codes are from 1 to {MOST}", param, ctx)
            codes |= set(range(low, high + 1))
        return tuple(sorted(codes))


def rules_of(codes: Iterable[int]) -> tuple[str, ...]:
    """The codes as a policy's rules name them.

    >>> rules_of([1, 75])
    ('exit:1', 'exit:75')
    """
    return tuple(f"exit:{code}" for code in codes)
