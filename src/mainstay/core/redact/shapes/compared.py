"""Texts that code compares with something of a secret name, or sets it to.

`"…" == password`, `"…".equals(password)`, `strcmp("…", password)`, `password.equals("…")`;
`setattr(user, "password", "…")`, `page.fill("#password", "…")`, `change_password("ann", "…")`.
"""

from __future__ import annotations

import re

from mainstay.core.redact.names import ENDINGS, squashed
from mainstay.core.redact.plain import is_plain, is_prose, is_random

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.redact.names import SecretNames

    Span = tuple[int, int]

_NAME = (
    r"(?P<name>[$@*&!]{0,2}[A-Za-z_][\w$.]{1,80}(?:->\w{1,60})?(?:\[[\"'][\w.-]{1,60}+[\"']\])?)"
)
_TEXT = r"(?P<q>[\"'`])(?P<secret>[^\"'`\r\n]{4,100}+)(?P=q)"
_BEFORE = re.compile(
    rf"""{_TEXT}(?:[ ]?(?:[!=]={{1,2}}|=|<>)[ ]?
      |[ ](?:eq|ne|is|-c?eq|-c?ne|(?P<in>(?:not[ ])?in))[ ]
      |\.(?i:equals\w{{0,10}}|eql\?|compareto\w{{0,10}}|contentequals|localecompare)\([ ]?)
    {_NAME}(?:\(\))?+(?![\w("'\[]|[ ]?[:,][ ]?["'])
    |(?P<move>\bMOVE)[ ](?P<p>["'])(?P<moved>[^"'\r\n]{{4,100}}+)(?P=p)[ ]TO[ ]
     (?P<field>[\w-]{{2,60}}+)""",
    re.VERBOSE,
)
_ARGUMENT = re.compile(
    rf"""\b(?i:strn?(?:case)?cmp|\w{{0,20}}_?equals?|compare\w{{0,12}}|check_?pw\w{{0,4}}|equalfold
      |timingsafeequal|verify\w{{0,12}})\([ ]?[bru]?{_TEXT},[ ]?{_NAME}(?![\w("'\[])""",
    re.VERBOSE,
)
_BEHIND = re.compile(
    rf"""(?<![\w.]){_NAME}(?:\)|\(\))?
    (?:\.(?i:equals\w{{0,10}}|eql\?|compareto\w{{0,10}}|contentequals|localecompare|isequalto|tobe
        |toequal)\([ ]?|\.should[ ](?:==|eq)[ (]|[ ](?:not[ ])?in[ ][(\[{{][ ]?
      |"?[ ]in[ ](?=["'][^"'\r\n]{{4,60}}["']\)))
    [bru]?{_TEXT}""",
    re.VERBOSE,
)
_SETTER = re.compile(
    r"""(?:\b(?:__)?(?i:set(?:_?attr(?:ibute)?|_?item|_?env|_?property|_?option|_?value|_?header
        |_?key|_?field|default|_?parameter|_?secret|_?config|_?cookie|string)?(?:__)?|hset|hmset|put
        |fill(?:_?in)?|type|send_?keys|enter_?text|add_?with_?value|\w{0,4}sql\w{0,6}parameter
        |update_?(?:attribute|column|field)|define|assign|store|write|insert|replace|upsert))
    \([ ]?(?P<first>(?:[^()"'\r\n,]{1,60}|["'][^"'\r\n]{0,60}["']),[ ]?)?
    [bru]?["'](?P<prefix>[#@.]|[\w.:\[\]=#-]{1,40}[:=])?
    (?P<name>[A-Za-z_][\w$.-]{1,80}+)\]?["'],[ ]?
    [bru]?(?P<q>["'`])(?P<secret>[^"'`\r\n]{1,200}+)(?P=q)""",
    re.VERBOSE,
)
_CHANGER = re.compile(
    r"""(?i)\b(?:set|change|update|reset|with|add|create)_?\w{0,20}?(?P<name>passw(?:or)?d|passphrase
      |pwd|secret|apikey)s?
    \((?:[^()"'\r\n]{0,60}["'][^"'\r\n]{0,100}["'],[ ]?|[^()"'\r\n]{1,60},[ ]?){1,3}
    (?:\w{1,20}[ ]?=[ ]?)?(?P<q>["'`])(?P<secret>[^"'`\r\n]{1,200}+)(?P=q)[ ]?\)""",
    re.VERBOSE,
)
_QUOTED_ENTRY = re.compile(  # of MONITOR of Redis: "HSET" "user:1" "password" "…"
    r"(?<=\"[ ])\"(?:[\w.:-]{0,60}:)?(?P<name>[A-Za-z][\w.-]{1,60})\"[ ]"
    r"(?=\"(?P<secret>(?:[^\"\\\r\n]|\\.){1,400}+)\")"
)
_PAIRS = re.compile(  # ("name", "token"), ("value", "…")
    r"[(\[][\"'](?i:name|key)[\"'],[ ]?[\"'](?P<name>[\w.-]{1,60})[\"'][)\]],[ ]?"
    r"[(\[][\"'](?i:value|val)[\"'],[ ]?(?P<q>[\"'])(?P<secret>[^\"'\r\n]{1,400}+)(?P=q)"
)
_LOOSE = ("token", "cookie", "credential", "credentials", "authorization", "session")
"""Names of what a program reads, so that a word beside them may be any."""
_IDENTIFIER = re.compile(r"[A-Za-z_-]+")


def in_comparisons(text: str, names: SecretNames) -> Iterator[Span]:
    """The texts that something of a secret name is compared with."""
    for found in _BEFORE.finditer(text):
        place, name = ("moved", "field") if found["move"] else ("secret", "name")
        is_set = found["in"] is None or "pass" in found[name].lower()
        if is_set and _is_secret(found[name], found[place], names):
            yield found.span(place)
    for pattern in (_ARGUMENT, _BEHIND):
        for found in pattern.finditer(text):
            if _is_secret(found["name"], found["secret"], names):
                yield found.span("secret")


def in_setters(text: str, names: SecretNames) -> Iterator[Span]:
    """The texts that something of a secret name is set to by a call."""
    for pattern in (_SETTER, _QUOTED_ENTRY, _PAIRS):
        for found in pattern.finditer(text):
            if names.is_secret(found["name"]) and _is_value(found["name"], found["secret"]):
                yield found.span("secret")
    for found in _CHANGER.finditer(text):
        if _is_value(found["name"], found["secret"]):
            yield found.span("secret")
            yield from _replaced(text, found)


def _replaced(text: str, found: re.Match[str]) -> Iterator[Span]:
    """The old one of a change: between the user and the new one."""
    texts = list(_ARGUMENTS.finditer(text, found.start(), found.end()))
    for old in texts[1:-1]:
        if _is_value(found["name"], old[2]):
            yield old.span(2)


_ARGUMENTS = re.compile(r"([\"'`])([^\"'`\r\n]{1,200}+)\1")


def _is_secret(name: str, written: str, names: SecretNames) -> bool:
    """Whether what a name is compared with is a secret."""
    last = _last(name)
    if not names.is_secret(last) or not _is_value(last, written):
        return False
    return is_random(written) or not squashed(last).endswith(_LOOSE)


_ITEM = re.compile(r"[\"']([\w.-]{1,60})[\"']\]\Z")


def _last(name: str) -> str:
    """The name itself, of an attribute, an item or a variable."""
    item = _ITEM.search(name)
    last = name if item is None else item[1]
    last = re.split(r"->|\.", last)[-1].lstrip("$@*&!")
    return last.removeprefix("get")


def _is_value(name: str, written: str) -> bool:
    """Whether it can be a value: neither a placeholder nor the name of one, nor a message."""
    if is_plain(written, name, is_quoted=True) or is_prose(written):
        return False
    return not (_IDENTIFIER.fullmatch(written) and squashed(written).endswith(ENDINGS))
