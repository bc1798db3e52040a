"""Sizes as people write them: `512K`, `8M`, `1G`."""

from __future__ import annotations

import click

_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def size(text: str) -> int:
    """A number of bytes, with or without K, M or G.

    >>> size("8M")
    8388608
    """
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    digits = number.rstrip("KMG")
    if not digits.isdecimal() or number[len(digits) :] not in _UNITS:
        raise click.BadParameter(f"{text!r} is no size; write it as 512K, 8M or 1G")
    return int(digits) * _UNITS[number[len(digits) :]]
