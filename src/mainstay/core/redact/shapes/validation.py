"""Values that validators and parsers repeat, with the name or the path of their field.

`value "…" at path "password"`, `field 'password': rejected value […]`, pydantic's `input_value=`,
what jsonschema and Jackson quote before a path.
"""

from __future__ import annotations

import re

from mainstay.core.redact.names import SECRET
from mainstay.core.redact.plain import is_plain, is_prose, is_random
from mainstay.core.redact.values import value_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.redact.names import SecretNames

    Span = tuple[int, int]

_REJECTED = re.compile(  # value "x" at path "password"; 'x' (field password)
    r"""(?i)(?:\b(?:values?|argument|input|choice)[ :=]{1,2}
      ["'`\[(](?P<value>[^"'`\]\r\n]{3,200}+)["'`\])]
      [^"'`\r\n]{0,40}?\b(?:(?:for|of|in|at)[ ](?:the[ ])?)?+
      (?:path|field|key|parameter|param|column|property|attribute|argument|option|variable
        |(?<=for[ ]))[ :=]{0,2}
     |["'`](?P<other>[^"'`\r\n]{3,200}+)["'`][^()\r\n]{0,60}+(?<=[ ])\(
      (?:(?:path|field|key|parameter|param|column|property|attribute|argument|for|env|variable|setting
        |option|flag)[ :=]{1,2})?+
      (?=[\w"'`.-]{1,100}+\)|[^)]{0,10}:)
     |\bvalue[ ](?P<bare>[^\s"'`]{6,200}+)[ ](?:for|of)[ ](?:[a-z]{1,20}+[ ]){0,2})
    ["'`]?-{0,2}(?P<name>[\w.-]{3,100}+)""",
    re.VERBOSE,
)
_BEFORE_PATH = (
    re.compile(  # jsonschema
        r"""["'](?P<secret>[^"'\r\n]{3,200}+)["'][ ](?:is|does|should|was)[ ]
        [^\r\n]{0,200}?\s{1,4}(?:Failed[ ]validating[ ][^\r\n]{0,60}?[ ]schema|in[ ]schema
          |On[ ]instance)(?P<path>(?:\[[^\[\]\r\n]{1,100}+\]){1,12}+)""",
        re.VERBOSE,
    ),
    re.compile(  # Jackson
        r"""["'](?P<secret>[^"'\r\n]{3,200}+)["'][^"\r\n(]{0,80}+\(through[ ]reference[ ]chain:
        (?P<path>[^\r\n)]{1,300}+)""",
        re.VERBOSE,
    ),
)
_REJECTED_BEHIND = re.compile(  # field 'password': rejected value [x]
    r"""(?i)(?<![\w.])(?P<name>[\w.]{3,100}+)["'`\]]{0,2}+
    [^\r\n"'`\[\]=(){},]{0,60}?\b(?:values?|(?<=:[ ])got)[ :=]{1,2}
    (?:\[(?P<value>[^\[\]\r\n]{1,200}+)\]|<(?P<tag>[^<>\r\n]{1,200}+)>|["'`](?P<quoted>[^"'`\r\n]{1,200}+)["'`])""",
    re.VERBOSE,
)
_NAME = re.compile(r"[\w.]{3,100}+")
_FIELD = re.compile(
    r"(?m)^(?P<path>[\w.\[\]-]{1,200}+)\r?\n[ \t]{1,20}+[^\r\n]{0,600}?(?:input_value=|given="
    r"|input=)"
)
_END = re.compile(r", input_type=|;[ ]permitted=|\)?\Z", re.MULTILINE)


def in_validation(text: str, names: SecretNames) -> Iterator[Span]:
    """The input that a validation error repeats, below the name of its field."""
    for found in _FIELD.finditer(text):
        if any(names.kind(part) == SECRET for part in re.split(r"[.\[\]]", found["path"])):
            if "=missing," in found[0]:
                continue  # what is missing is not in the input
            value = value_at(text, found.end(), 2000)
            end = _END.search(text, found.end())
            yield value.start, value.end if value.is_quoted or end is None else end.start()


def rejected(text: str, names: SecretNames) -> Iterator[Span]:
    """A value that a message quotes before the name of its field."""
    for found in _REJECTED.finditer(text):
        place = next(name for name in ("value", "other", "bare") if found[name])
        if place != "bare" or is_random(found[place], is_named=True):
            yield from _if_named(found, place, names)


def before_path(text: str, names: SecretNames) -> Iterator[Span]:
    """A value that a message quotes before the path of its field."""
    for pattern in _BEFORE_PATH:
        for found in pattern.finditer(text):
            last = re.findall(r"\w+", found["path"])[-1:]
            if last and names.kind(last[0]) == SECRET:
                yield found.span("secret")


def rejected_behind(text: str, names: SecretNames) -> Iterator[Span]:
    """A value that a message quotes behind the name of its field."""
    for found in _REJECTED_BEHIND.finditer(text):
        place = found.lastgroup or ""
        words = _NAME.findall(text, found.start(), found.start(place))
        is_named = any(names.kind(word.rpartition(".")[2]) == SECRET for word in words)
        if is_named and not is_plain(found[place], words[0], is_quoted=True):
            yield found.span(place)


def _if_named(found: re.Match[str], place: str, names: SecretNames) -> Iterator[Span]:
    is_named = names.kind(found["name"].rstrip(".").rpartition(".")[2]) == SECRET
    is_value = place != "other" or not is_prose(found[place])
    if is_named and is_value and not is_plain(found[place], found["name"], is_quoted=True):
        yield found.span(place)
