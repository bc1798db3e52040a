"""All that looks for secrets in a text, and what becomes of what they find.

Most texts hold nothing that could begin a secret: one search finds that out. In the others each
finder yields places, in the text as it is and without its escapes; each place gets a mark.
"""

from __future__ import annotations

import re

from mainstay.core.redact import MARK, commands, patterns
from mainstay.core.redact.beside import beside_names
from mainstay.core.redact.commands import in_commands
from mainstay.core.redact.exact.marks import marked
from mainstay.core.redact.fields import named_values
from mainstay.core.redact.issuers import DIGITS, LONG, cards, issued
from mainstay.core.redact.names import STEMS, OneOf, SecretNames
from mainstay.core.redact.patterns import shaped
from mainstay.core.redact.plain import is_random
from mainstay.core.redact.prose import around_words, in_sentences
from mainstay.core.redact.records import (
    in_columns,
    in_elements,
    in_grids,
    in_manifests,
    in_maps,
    in_multipart,
    in_results,
    in_sections,
    in_siblings,
    in_tables,
    listed,
)
from mainstay.core.redact.shapes.calls import PAIR, in_calls
from mainstay.core.redact.shapes.compared import in_comparisons, in_setters
from mainstay.core.redact.shapes.signs import in_expansions
from mainstay.core.redact.shapes.validation import (
    before_path,
    in_validation,
    rejected,
    rejected_behind,
)
from mainstay.core.redact.sql import (
    in_drivers,
    in_duplicates,
    in_failing_rows,
    in_parameters,
    in_rows,
    in_sql,
)
from mainstay.core.redact.views import views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Span = tuple[int, int]
    Finder = Callable[[str, SecretNames], Iterator[Span]]


class Finders:
    """Finds what has a secret name and, if the built-in rules count, what looks like a secret.

    >>> finders = Finders(SecretNames())
    >>> finders.hide("GET https://ann:hunter2@example.org/?token=x9 failed")
    'GET https://ann:[redacted]@example.org/?token=[redacted] failed'
    """

    __slots__ = ("_builtin", "_names", "_own")

    def __init__(self, names: SecretNames, *, builtin: bool = True) -> None:
        self._names = names
        self._builtin = builtin
        own = [stem for stem in names.stems if not builtin or stem not in STEMS]
        self._own = OneOf(own) if own else None

    def hide(self, text: str) -> str:
        """The text with a mark in the place of each secret."""
        spans = self._spans(text)
        return marked(text, [*spans, *_repeated(text, spans)]) if spans else text

    def values(self, text: str) -> list[str]:
        """What is secret in a text.

        >>> Finders(SecretNames()).values("redis://:hunter2@db")
        ['hunter2']
        """
        return [text[start:end] for start, end in self._spans(text)]

    def _spans(self, text: str) -> list[Span]:
        spans: list[Span] = []
        lowered = text.lower()
        is_own = self._own is not None and self._own.is_in(lowered)
        if is_own or (self._builtin and _ANY.is_in(lowered)):
            for view in views(text):
                spans += [
                    (view.origin(start), view.origin(end)) for start, end in self._found(view.text)
                ]
        elif self._builtin:
            if LONG.search(text) or DIGITS.search(text):
                spans += (*issued(text), *cards(text))
            if PAIR.search(text):
                spans += in_calls(text)
        return spans

    def _found(self, text: str) -> Iterator[Span]:
        lowered = _lowered(text)
        mentions = self._names.mentions(text, lowered)
        if mentions:
            yield from named_values(text, self._names, mentions)
            for signs, finder in _NAMED:
                for sign in signs:
                    if sign in lowered:
                        yield from finder(text, self._names)
                        break
            if self._builtin:
                yield from in_sentences(text, lowered, mentions)
                yield from around_words(text, lowered)
                yield from beside_names(text, self._names, mentions)
        if self._builtin:
            yield from in_sql(text, lowered, self._names)
            if "failing row" in lowered or "duplicate entry" in lowered:
                yield from in_failing_rows(text)
            if _CALLS.is_in(lowered) or PAIR.search(text):
                yield from in_calls(text)
            yield from shaped(text, lowered)
            if _COMMANDS.is_in(lowered):
                yield from in_commands(text, self._names)
            yield from issued(text)
            yield from cards(text)


_NAMED: tuple[tuple[tuple[str, ...], Finder], ...] = (
    (
        (
            *("val", "content", "input", "given", "secretstring", "received", "actual", "data"),
            *("v='", "default", "answer", "new", "old", "current", "previous", "before", "after"),
            *("text", "string", "response"),
            *('"to"', "'to'", " to:", '"v"', "'v'", '"was"', '"now"'),
        ),
        listed,
    ),
    (("\n",), in_tables),
    (("  ",), in_columns),
    (("input", "given="), in_validation),
    (("value", " (", "argument", "input", "choice"), rejected),
    (("failed validating", "in schema", "on instance", "reference chain"), before_path),
    (("value", ": got "), rejected_behind),
    (("kind",), in_manifests),
    (("]\n", "]\r\n"), in_sections),
    ((":\n", ":\r\n", ": \n"), in_maps),
    (("---", "===", "[ record"), in_results),
    (("form-data",), in_multipart),
    (("<",), in_elements),
    (("</",), in_siblings),
    (("<td",), in_grids),
    (("${",), in_expansions),
    ((")=(", ") = (", "value", "select", "from stdin"), in_rows),
    (("duplicate", " value ("), in_duplicates),
    (
        (
            "' =",
            '" =',
            "'=",
            '"=',
            "equal",
            "cmp(",
            "compar",
            "verif",
            "check",
            " in ",
            ".should",
            "move ",
        ),
        in_comparisons,
    ),
    (
        (
            "set",
            "put(",
            "fill",
            "type(",
            "key",
            "add",
            "param",
            "updat",
            "defin",
            "chang",
            "creat",
            "value",
            '" "',
        ),
        in_setters,
    ),
    (("insert", "update", "select", "delete", "merge", "replace"), in_drivers),
    (("param", "args", "bind"), in_parameters),
)
"""What looks for values by their names, and the signs of which a text must have one."""

_CALL_SIGNS = (
    *("connect(", "login(", "logon(", "signin(", "authenticate(", "auth(", "mysql", "postgresql("),
    *("mongodb(", "remote(", "s3(", "crypt", "hmac", "fernet(", "aes.new(", "passw", "secret"),
    *(
        "jwt.",
        "jws.",
        "bcrypt.",
        "argon2.",
        "pbkdf2",
        "apikey",
        "bind(",
        "bind_s(",
        "pg_",
        "ftp",
        "smtp",
    ),
    *("ldap", "dblink", "credential", "connection(", "connection2(", "dial(", "imap_open("),
    *("session(", "sessionpool(", "pool(", "client(", "client.new(", "driver(", "wifi.begin("),
    *("ssh.start(", "ssh.open(", ".start(", "basic(", "unlock", "unseal(", "sign(", "signwith("),
    *(
        "verify(",
        "unsign(",
        "timingsafeequal(",
        "dblink(",
        "sendline(",
        "certificates(",
        "unlock(",
        "unlockaccount(",
        "digest(",
        "create_user(",
        "superuser(",
        "adduser(",
    ),
    *(
        "sequelize(",
        "minio",
        "github(",
        "gitlab(",
        "bot(",
        "stripe.new(",
        "oauth",
        "key(",
    ),
    *("extractall(", "store.load(", "ks.load(", "signer(", "serializer(", "cipher", "conn("),
    *("redis(", "communitydata(", "usmuserdata(", "kinit(", "mount(", "logonuser(", "hashbytes("),
    *("connect '", 'connect "', "login '", 'login "', "authenticate '", 'authenticate "'),
    *("_auth '", '_auth "', ".encode "),
)
_SIGNS = (
    *patterns.SIGNS,
    *(sign for sign in _CALL_SIGNS if "(" in sign or "." in sign or " " in sign),
    *commands.SIGNS,
    *("failing row", "duplicate entry", "%40", "%3a", "\\u00", "\\x", "&#"),
    *(
        "%c3",
        "%d0",
        "%d1",
        "%e3",
        "%e5",
        "%eb",
        "\\u03",
        "\\u04",
        "\\u30",
        "\\u5",
        "\\ub",
        "ntilde",
    ),
)
"""What a text must hold that has a secret without a name, or escapes."""

_ANY = OneOf((*STEMS, *_SIGNS), is_brief=True)
_COMMANDS = OneOf(commands.SIGNS, is_brief=True)
_CALLS = OneOf(_CALL_SIGNS, is_brief=True)
_UPPER = re.compile(r"[A-Z]+")


def _lowered(text: str) -> str:
    """The text in lower case, with each character where it was."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return _UPPER.sub(lambda found: found[0].lower(), text)


_MOST = 20
_QUOTES = frozenset("\"'`")
_LONG_WORD = 10
"""Characters of a word that is nothing else too, as `postgres` is a user and a database."""


def _repeated(text: str, spans: list[Span]) -> Iterator[Span]:
    """Where a secret stands once more without its name: a message repeats what it rejects.

    One that reads like a short word counts only in quotes.
    """
    values = {text[start:end] for start, end in spans if 5 < end - start < 200}
    for value in sorted(values, key=len, reverse=True)[:_MOST]:
        is_any = is_random(value, is_named=True)
        is_word = len(value) >= _LONG_WORD and " " not in value
        at = text.find(value) if MARK not in value else -1
        while at >= 0:
            end = at + len(value)
            is_quoted = text[at - 1 : at] in _QUOTES and text[end : end + 1] == text[at - 1]
            if is_any or is_quoted or (is_word and _is_whole(text, at, end)):
                yield at, end
            at = text.find(value, end)


def _is_whole(text: str, start: int, end: int) -> bool:
    """Whether no other word begins or ends where a value does."""
    around = text[max(0, start - 1) : start], text[end : end + 1]
    return not any(sign.isalnum() or sign in ("_", "-") for sign in around)
