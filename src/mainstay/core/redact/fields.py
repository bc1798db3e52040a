"""Secrets that have a name: `password=…`, `"apiKey": "…"`, `?token=…`, `Cookie: …` in a text.

A name is secret in any spelling (`api_key`, `apiKey`, `X-API-KEY`) and with anything before it
(`db_password`, `PGPASSWORD`). The text is walked from name to name, so that a value is seen whole,
with its quotes and escapes, however it is written: JSON, JSON in a string of JSON, a query, a
connection string, a Python dictionary, a command line.
"""

from __future__ import annotations

import re

from mainstay.core.redact.patterns import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ENDINGS = tuple(
    """
    password passwd passphrase passcode passwordhash secret token bearer apikey accesskey
    accesskeyid secretkey privatekey accountkey masterkey encryptionkey signingkey authkey sshkey
    subscriptionkey functionskey authorization cookie credential credentials connectionstring
    cardnumber securitycode sessionid sessionkey sessid xamzsignature xgoogsignature
    passwords passphrases secrets apikeys accesskeys secretkeys privatekeys cookies
    """.split()
)
"""Names that are secret also as the end of a longer one, without case and separators."""

WORDS = frozenset("pwd pass pw psw pin cvv cvc otp sig jwt".split())
"""Short names, secret as a whole word at the end of a name: `db_pass` is, `bypass` is not."""

_STEMS = (
    "passw", "passphrase", "passcode", "pwd", "pass", "pw", "psw", "pin", "cvv", "cvc", "otp",
    "sig", "jwt", "secret", "token", "bearer", "key", "authorization", "cookie", "credential",
    "string", "card", "securit", "sess", "signature",
)  # fmt: skip
"""One of these is in every text with such a name."""

_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\W\d_A-Za-z]+")
_SEPARATORS = re.compile(r"[\W_]+")
_HEADERS = ("authorization", "cookie")
_MOST_NAMES = 2000


class SecretNames:
    """Which names are secret: the usual ones, and some of one's own.

    >>> names = SecretNames(["patient id"])
    >>> [names.is_secret(name) for name in ("dbPassword", "PATIENT_ID", "password_length")]
    [True, True, False]
    """

    __slots__ = ("_endings", "_known", "_stems", "_words")

    def __init__(self, own: Iterable[str] = (), *, builtin: bool = True) -> None:
        own = tuple(own)
        self._endings = ENDINGS if builtin else ()
        self._words = frozenset(map(squashed, own)) | (WORDS if builtin else frozenset())
        longest = [max(_words_of(name), key=len) for name in own]
        self._stems = (*(_STEMS if builtin else ()), *longest)
        self._known: dict[str, bool] = {}

    def is_secret(self, name: str) -> bool:
        """Whether a field of that name holds a secret."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= _MOST_NAMES:
                self._known.clear()
            known = self._known[name] = self._judge(name)
        return known

    def _judge(self, name: str) -> bool:
        plain = squashed(name).rstrip("0123456789")
        if plain.endswith(self._endings) or squashed(name) in self._words:
            return True
        words = _words_of(name.rstrip("0123456789_"))
        return any("".join(words[-count:]) in self._words for count in range(1, len(words) + 1))

    def redact(self, text: str) -> str:
        """The text without the values of secret names."""
        lowered = text.lower()
        for stem in self._stems:
            if stem in lowered:
                return self._walk(text)
        return text

    def _walk(self, text: str) -> str:
        parts: list[str] = []
        done = at = 0
        while (found := _NAME.search(text, at)) is not None:
            at = found.end()
            name = found[found.lastgroup or 0]
            if not self.is_secret(name):
                continue
            start, end = _value_at(text, found, name)
            if start < end:
                parts += (text[done:start], MARK)
                done = at = end
        return "".join((*parts, text[done:])) if parts else text


def squashed(name: str) -> str:
    """A name without case and separators.

    >>> squashed("X-Api_Key")
    'xapikey'
    """
    return _SEPARATORS.sub("", name).lower()


def _words_of(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


# --- from a name to its value ---------------------------------------------------------------------

_NAME = re.compile(
    r"""(?<![\w$.-])(?:
      (?P<option>--[A-Za-z][\w-]*+)["']?+,?[ \t]++(?![-=:])         # --password hunter2
    | (?:(?<=\(["'])|(?<=\(b["']))(?P<pair>[\w$.-]++)["'],[ \t]{0,8}+  # ("password", "hunter2")
    | (?:name|key)(?:\\*+["'])[ \t]{0,60}+:\s{0,60}+\\*+["'](?P<listed>[\w$.-]++)\\*+["'],\s{0,60}+
      \\*+["']value\\*+["'][ \t]{0,60}+:\s{0,60}+                 # "name": "password", "value": …
    | (?<=<)(?P<tag>[\w$.-]++)>                                     # <password>hunter2</password>
    | (?P<name>[\w$.-]++)                                           # password = hunter2
      (?:\\*+["'`]|\]|%5[Dd])?+[ \t]{0,60}+(?:=>|:=|==?|:(?!:)|%3[Dd])[ \t]{0,60}+
    )""",
    re.VERBOSE,
)
_OPENING = re.compile(r"[bBrRuUfF]{0,2}+(\\*+)(\"\"\"|\'\'\'|[\"\'`])")
_NESTED = re.compile(
    r"""\"(?:[^\"\\]++|\\.)*+\"?|'(?:[^'\\]++|\\.)*+'?|[\[\]{}]""", re.VERBOSE | re.DOTALL
)
_BLOCK = re.compile(r"[|>][+-]?+[ \t]*+\r?\n([ \t]++)([^\n]*+(?:\n\1[^\n]*+|\n(?=[ \t]*+\n))*+)")
"""A block of YAML: the lines that follow, as far as they are indented as the first."""
_TAGGED = re.compile(r"[^<]++(?=</)")
_LINE = re.compile(r"(?:[^\r\n\"'`\\]++|(?<==)\"[^\"\r\n]*+\"|\\++(?![rn\"'`]))*+")
"""The value of a header: to the end of the line, or of the string it stands in."""
_BARE = re.compile(
    r"""(?:(?i:bearer|basic|digest|token|apikey)[ \t]{1,8}+(?=\S))?+
    (?: \[redacted\]
      | [^\s"'`,;&)\]}>\\]++
      | \\++ (?!["'`])
      | ["'`)\]}>] (?![\s"'`,;&)\]}>]|\Z)
      | [,;] (?![\s"'`,;&)\]}>]|\Z|[\w.\x20-]{1,60}+=)
      | & (?![\s"'`,;&)\]}>]|\Z|(?:amp;)?[\w.%\[\]-]{1,60}+=)
    )*+""",
    re.VERBOSE,
)
"""A value without quotes: what would close something ends it only if nothing follows."""


def _value_at(text: str, found: re.Match[str], name: str) -> tuple[int, int]:
    """Where the value of a name begins and ends; nowhere, if there is none to hide."""
    at, kind = found.end(), found.lastgroup
    opened = _OPENING.match(text, at)
    if opened is not None:
        start = opened.end()
        end = _closing(text, start, opened[2], len(opened[1]))
        is_list = kind == "pair" and squashed(text[start:end]) in ENDINGS
        return start, start if is_list or _is_sign(text[start:end]) else end
    block = _BLOCK.match(text, at)
    if block is not None:
        return block.span(2)
    if text.startswith(("[", "{"), at) and not text.startswith(MARK, at):
        return at, _balanced(text, at)
    is_header = kind == "name" and ":" in found[0] and squashed(name).endswith(_HEADERS)
    expression = _TAGGED if kind == "tag" else _LINE if is_header else _BARE
    value = expression.match(text, at)
    text = "" if value is None else value[0].rstrip()
    return at, at if _is_plain(text, name) else at + len(text)


def _closing(text: str, start: int, quote: str, escapes: int) -> int:
    """Where a quoted value ends: at a quote that is escaped no more than the opening one."""
    at = text.find(quote, start)
    while at >= 0:
        before = at
        while before > start and text[before - 1] == "\\":
            before -= 1
        slashes = at - before
        if slashes <= escapes if escapes else slashes % 2 == 0:
            return before if escapes else at
        at = text.find(quote, at + 1)
    return len(text)


def _balanced(text: str, at: int) -> int:
    """The end of what the bracket here opens; the end of the text, if nothing closes it."""
    depth = 0
    for part in _NESTED.finditer(text, at):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(part[0], 0)
        if depth == 0:
            return part.end()
    return len(text)


_PLAIN = frozenset(
    """
    none null nil true false undefined empty missing required expired invalid unknown unset wrong
    not is was are has have must may can cannot should could expected unexpected too the a an no
    yes and or for from in of on to with failed ok denied rejected accepted revoked set
    str string bytes int bool any optional text object varchar
    """.split()
)
"""Words that stand after a name in prose, in code and where there is no value."""
_SIGNAL = re.compile(r"SIG[A-Z]{2,6}[0-9+]{0,3}")
_HOLDER = re.compile(r"\?|\$[0-9]{1,3}|%s|\*+|\.{3}")
"""What stands for a value in SQL, and where one was hidden before."""


def _is_sign(value: str) -> bool:
    """Whether it is a single sign, as in "unexpected token: '}'": no secret."""
    return len(value) == 1 and not value.isalnum()


def _is_plain(value: str, name: str) -> bool:
    """Whether a value without quotes is none: a word of prose, a placeholder, the name itself."""
    word = value.strip(".,:;!?()").lower()
    if word in _PLAIN or not word or _HOLDER.fullmatch(value):
        return True
    if _SIGNAL.fullmatch(value):
        return True
    first = word.partition(" ")[0]
    if first in _PLAIN and "=" not in word and not any(char.isdigit() for char in word):
        return True
    last = value.removesuffix(")s").rpartition(".")[2]
    return squashed(last) == squashed(name)
