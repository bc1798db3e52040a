"""Lengths of time as people write them: `500ms`, `30s`, `2m`, `1h30m`; for files and options.

Python code has numbers of seconds and timedeltas; texts are for where no type is at hand. A number
without a unit is not read here: what it counts is the field's own.
"""

from __future__ import annotations

import re

EXAMPLES = "500ms, 30s or 1h30m"
_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_UNITS = (("d", 86_400.0), ("h", 3600.0), ("m(?:in)?(?!s)", 60.0), ("s", 1.0), ("ms", 0.001))
PATTERN = "(?=[0-9.])" + "".join(f"(?:({_NUMBER}) ?{unit} ?)?" for unit, _ in _UNITS)
"""Each unit at most once, the longest first; also what editors check by."""
_LONGEST = 100
"""Characters; nobody writes more."""


def seconds_in(text: str) -> float | None:
    """The seconds of a length of time; None if it is none.

    >>> seconds_in("500ms"), seconds_in("1h30m"), seconds_in("2 min"), seconds_in("soon")
    (0.5, 5400.0, 120.0, None)
    """
    found = re.fullmatch(PATTERN, text) if len(text) <= _LONGEST else None
    if found is None or not any(found.groups()):
        return None
    given = zip(found.groups(), _UNITS, strict=True)
    parts = [_of(number, unit) for number, (_, unit) in given if number is not None]
    return sum(parts)


def _of(number: str, unit: float) -> float:
    return float(number) / 1000 if unit == 0.001 else float(number) * unit


def bounds(low: float, high: float, *, above: bool = False) -> str:
    """The limits of a number, in words."""
    return f"above {low:g} and up to {high:.12g}" if above else f"from {low:g} to {high:.12g}"


def expected(unit: str, limits: str) -> str:
    """What is allowed where a length of time is, in words that follow "must be"."""
    return f"a number{unit} {limits}, or a duration such as {EXAMPLES}"
