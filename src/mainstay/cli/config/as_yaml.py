"""The values of a configuration as YAML, for people."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from mainstay.config.tree import joined, scalar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

WIDTH = 48
"""The column from which the origin of a value is shown."""


def lines(
    values: dict[str, Any], origins: dict[str, str], path: tuple[str, ...] = ()
) -> Iterator[str]:
    """The values as YAML, each with its origin as a comment."""
    for key, value in values.items():
        where = (*path, key)
        head = "  " * len(path) + f"{_word(key)}:"
        if isinstance(value, dict) and value:
            yield head
            yield from lines(value, origins, where)
            continue
        line = f"{head} {_flow(value)}".rstrip()
        origin = origins.get(joined(where), "")
        yield f"{line.ljust(WIDTH)}  # {origin}" if origin else line


def _word(text: str) -> str:
    """A text as YAML takes it: plain if it cannot be anything else."""
    is_plain = re.fullmatch(r"[A-Za-z0-9_$/][A-Za-z0-9_./:@${}()+-]*", text)
    if is_plain and scalar(text) == text and not text.endswith(":"):
        return text
    return json.dumps(text, ensure_ascii=False)


def _item(value: Any) -> str:
    is_simple = isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_.]*", value)
    return _word(value) if is_simple else json.dumps(value, ensure_ascii=False)


def _flow(value: Any) -> str:
    if isinstance(value, str):
        return _word(value)
    if isinstance(value, list):
        return f"[{', '.join(_item(each) for each in value)}]"
    return json.dumps(value, ensure_ascii=False)
