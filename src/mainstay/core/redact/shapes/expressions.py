"""Values that are no single text: what an expression falls back to, what stands in the next line.

`password = ENV["X"] || "…"`, `getenv("X", "…")`, `<%= x || "…" %>`, `{{ x | default("…") }}`; a
value of YAML below its name.
"""

from __future__ import annotations

import re

from mainstay.core.redact.names import ENDINGS, squashed
from mainstay.core.redact.plain import is_plain, is_prose, is_random
from mainstay.core.redact.values import Value, value_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Span = tuple[int, int]

_REACH = 240
_END = re.compile(r"[\r\n]|%>|\}\}")
FALLBACK = re.compile(
    r"""(?:(?P<or>(?:(?:\|\||\?\?|\?:)[ ]{0,4}|(?<=[ )\]])(?:or|else)[ ]{1,4})
       |[ ]\?[ ](?:[^\r\n:]{1,80}[ ]:[ ])?)
      |\|[ ]?default[ ](?=["'])
      |\b(?:default|d|fallback|orelse|or_else|unwrap_or|getorelse|getordefault|ifempty|if_empty)
       \([ ]?
      |\b(?:get|getenv|env|fetch|environ|lookup|getproperty|getordefault|get_or_default|coalesce|try
        |pop|dig|nvl|ifnull|isnull|getstring|config|setting|option|variable)
       \((?:[\w.$\[\]'"-]{1,80}+,[ ]?){1,4}(?:default[ ]?=[ ]?)?
      |\bunwrap_or_else\(\|_?\|[ ]?|\)[ ]?(?:\{[ ]?|do[ ]))
    (?=[bru]?["'])""",
    re.VERBOSE | re.IGNORECASE,
)
_LEAST = 4
_NAME = re.compile(r"[A-Za-z_.-]+")
_NONE = ("default", "unknown", "missing", "none")


def fallbacks(text: str, at: int, name: str) -> Iterator[Span]:
    """What the expression that begins here gives if it finds nothing better."""
    start = at
    opened = 2 if text.startswith(("<%", "{{"), at) else 0
    end = _END.search(text, at + opened, at + _REACH)
    last = min(len(text), at + _REACH) if end is None else end.start()
    while (found := FALLBACK.search(text, at, last)) is not None:
        value = value_at(text, found.end(), _REACH)
        before = text[start : found.start()]
        is_inner = found["or"] is not None and before.count("(") > before.count(")")
        if not is_inner and _is_value(text[value.start : value.end], name):
            yield value[:2]
        at = max(value.end, found.end())


def _is_value(written: str, name: str) -> bool:
    """Whether it is neither a placeholder nor the name of something else."""
    is_name = _NAME.fullmatch(written) is not None and squashed(written).endswith(ENDINGS)
    if is_name or len(written) < _LEAST or written.lower() in _NONE:
        return False
    return not is_plain(written, name, is_quoted=True)


_NAMED = re.compile(r"(?:[-*+>][ ]{1,4})*+[\"']?\Z")
_BELOW = re.compile(
    r"(?:[ \t]{0,8}\#[^\r\n]{0,100}+)?[ \t]{0,8}\r?\n(?P<indent>[ \t]{1,60}+)"
    r"(?:(?P<quoted>(?=[\"']))|(?P<bare>[^\s\"'\[{&*!|>%@`:#,-][^\r\n:]{2,200}+)(?=\r?\n|\Z))"
)
_NO_VALUE = re.compile(r"[.,(;]\Z|[^=]=[^=]")
_LONGEST = 80


def below(text: str, name: int, at: int) -> Value | None:
    """What stands in the next line, deeper than the name, as YAML has it."""
    found = _BELOW.match(text, at)
    line = text.rfind("\n", max(0, name - _LONGEST), name) + 1
    if found is None or (line == 0 and name > _LONGEST):
        return None
    before = text[line:name]
    indent = len(before) - len(before.lstrip(" \t"))
    if len(found["indent"]) <= indent:
        return None
    is_field = text[name:at].rstrip().endswith(":")
    is_line = is_field and _NAMED.fullmatch(before.strip(" \t")) is not None
    if found["bare"] is None:  # behind a colon, Python has a docstring
        return value_at(text, found.end(), _REACH) if is_line or not is_field else None
    written = found["bare"].rstrip()
    is_value = is_line and not is_prose(written)
    if _NO_VALUE.search(written) or not (is_value or is_random(written, is_named=True)):
        return None
    return Value(found.start("bare"), found.start("bare") + len(written))
