"""Exit codes as people write them: `1,3-5`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 255


def exit_codes(text: str) -> tuple[int, ...]:
    """The codes of a list of codes and ranges, each once, in order.

    >>> exit_codes("1,3-5")
    (1, 3, 4, 5)
    """
    codes: set[int] = set()
    for part in map(str.strip, text.split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise click.BadParameter(f"{part!r} is no exit code; write them as 1,3-5")
        low, high = int(first), int(last or first)
        if not 1 <= low <= high <= MOST:
            raise click.BadParameter(f"{part!r}: exit codes are from 1 to {MOST}")
        codes |= set(range(low, high + 1))
    return tuple(sorted(codes))


def rules_of(codes: Iterable[int]) -> tuple[str, ...]:
    """The codes as a policy's rules name them.

    >>> rules_of([1, 75])
    ('exit:1', 'exit:75')
    """
    return tuple(f"exit:{code}" for code in codes)
