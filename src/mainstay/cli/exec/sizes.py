"""Sizes as people write them: `512K`, `8M`, `1G`."""

from __future__ import annotations

import click

_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def size(text: str) -> int:
    """A number of bytes, with or without K, M or G.

    >>> size("8M")
    8388608
    """
    told = text.strip().upper().removesuffix("B").removesuffix("I")
    digits = told.rstrip("KMG")
    if not digits.isdecimal() or told[len(digits) :] not in _UNITS:
        raise click.BadParameter(f"{text!r} is no size; write it as 512K, 8M or 1G")
    return int(digits) * _UNITS[told[len(digits) :]]
