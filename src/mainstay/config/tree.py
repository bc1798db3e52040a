"""Values with their lines.

A file becomes a tree of Nodes: a scalar, a list of Nodes, or a mapping of keys to Nodes. What is
written `${NAME}` stays a Template until it is checked, so that a value which was overridden
asks for nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mainstay.core.events.describe import usual_redactor
from mainstay.core.redact import MARK

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

REFERENCE = r"\$(\$\{|\{([A-Za-z_][A-Za-z0-9_]*)\})"
"""`${NAME}`; and `$${`, which is a plain `${`."""

SECRET = MARK
"""What is shown in place of one."""


class Template(str):
    """A text with `${NAME}` in it."""

    __slots__ = ()

    @property
    def names(self) -> list[str]:
        """The environment variables it asks for."""
        return [found[2] for found in re.finditer(REFERENCE, self) if found[2]]

    def filled(self, env: Any) -> str:
        """The text with their values."""
        return re.sub(REFERENCE, lambda found: env[found[2]] if found[2] else "${", self)


class Node:
    """A value, the line of its key (or its own in a list), and what it came from.

    `text` is set if the type of the value is not declared: it is the text as written. `shown`
    stands in for a value that must not be seen.
    """

    __slots__ = ("line", "shown", "source", "text", "value")

    def __init__(
        self,
        value: Any,
        line: int | None,
        source: str,
        text: str | None = None,
        shown: str | None = None,
    ) -> None:
        self.value = value
        self.line = line
        self.source = source
        self.text = text
        self.shown = shown

    @property
    def plain(self) -> Any:
        """The value without its lines."""
        if type(self.value) is dict:
            return {key: child.plain for key, child in self.value.items()}
        if type(self.value) is list:
            return [child.plain for child in self.value]
        return self.value

    @property
    def visible(self) -> Any:
        """A scalar as a message may show it."""
        if self.shown is not None:
            return self.shown
        return usual_redactor().text(self.value) if isinstance(self.value, str) else self.value


def scalar(text: str) -> Any:
    """What a plain word of YAML means: the core schema of YAML 1.2, with yes, no, on and off.

    >>> scalar("3"), scalar("1e3"), scalar("off"), scalar("~"), scalar("2024-01-01"), scalar("010")
    (3, 1000.0, False, None, '2024-01-01', '010')
    """
    if text[:1] in _BEGINS_A_NUMBER and text:
        if re.fullmatch(_WHOLE, text):
            return int(text) if len(text) < 300 else float(text)
        if re.fullmatch(_NUMBER, text):
            return float(text)
    return _WORDS.get(text, text)


def written(text: str) -> Any:
    """A scalar, or the Template it is."""
    return Template(text) if "${" in text else text


_BEGINS_A_NUMBER = "0123456789+-."
_WHOLE = r"[-+]?(?:0|[1-9][0-9]*)"
_NUMBER = r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"


def _spellings(words: Iterable[str], value: Any) -> dict[str, Any]:
    return {form: value for word in words for form in (word, word.title(), word.upper())}


_WORDS: dict[str, Any] = {
    **_spellings(("true", "yes", "on"), True),
    **_spellings(("false", "no", "off"), False),
    **_spellings(("null",), None),
    **_spellings((".inf", "+.inf"), float("inf")),
    **_spellings(("-.inf",), float("-inf")),
    **_spellings((".nan",), float("nan")),
    "": None,
    "~": None,
}

_PLAIN_KEY = r"[^\s.\"'=\[\]]+"


def joined(path: Iterable[object]) -> str:
    """The keys of a path as people write them.

    >>> joined(("retry", "operations", "db.*")), joined(("alerts", "rules", 0, "name"))
    ('retry.operations."db.*"', 'alerts.rules[0].name')
    """
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
            continue
        name = str(key)
        shown = name if re.fullmatch(_PLAIN_KEY, name) else '"' + name.replace('"', '\\"') + '"'
        text += f".{shown}" if text else shown
    return text
