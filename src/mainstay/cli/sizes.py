"""Sizes as people write them: `512K`, `8M`, `1G`."""

from __future__ import annotations

from typing import Any

import click

_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


class Size(click.ParamType):
    """A number of bytes, with or without K, M or G.

    >>> Size().convert("8M", None, None)
    8388608
    """

    name = "size"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The bytes."""
        if isinstance(value, int):
            return value
        text = str(value).strip().upper().removesuffix("B").removesuffix("I")
        digits = text.rstrip("KMG")
        if not digits.isdecimal() or text[len(digits) :] not in _UNITS:
            self.fail(f"{value!r} is no size; write it as 512K, 8M or 1G", param, ctx)
        return int(digits) * _UNITS[text[len(digits) :]]
