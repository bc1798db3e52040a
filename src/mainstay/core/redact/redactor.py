"""Takes secrets out of what a person or a log may read, before it is written anywhere.

Three rules: values that are known to be secret (exact/), values of fields with a secret name
(fields.py), and what looks like a secret by itself (patterns.py). What is found becomes
`[redacted]`; the rest stays. If a rule could err, it hides too much rather than too little.

Redacting what was redacted changes nothing, so texts may pass here more than once on their way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mainstay.core.base.validate import Checker
from mainstay.core.base.value import Value
from mainstay.core.redact import MARK
from mainstay.core.redact.exact.known import Known
from mainstay.core.redact.exact.process import PROCESS
from mainstay.core.redact.exact.rarity import DIFFERENT, LEAST, is_declarable, is_rare
from mainstay.core.redact.finders import Finders
from mainstay.core.redact.names import IN_QUERY, SECRET, SecretNames, squashed
from mainstay.core.redact.plain import is_secret_value
from mainstay.core.redact.views import views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.core.base.types import UserValue

LONGEST = 100_000
"""Characters of a text; a longer one is cut, since nothing passes unseen."""

_ROOM = 1000
"""By how much less is left of a longer text: marks are longer than some secrets."""
_LOOKED_AT = 2 * LONGEST
"""Characters that known values are looked for in: what is cut off behind them needs no look."""
_EDGE = 8000
_CUT = " [cut]"
_ROUNDS = 5
_REMEMBERED = 256
_SHORT = 4000


class Redactor(Value):
    """Takes secrets out of texts and data: credentials, tokens, keys, card numbers, your own.

    Args:
        patterns: regular expressions of one's own, as texts or compiled; what they match is
            replaced.
        fields: names of one's own whose values are secret, in any spelling: "patient id" is also
            `patientId` and `X-PATIENT-ID`.
        builtin: False to look for nothing but one's own.
        secrets: values of one's own that are secret, of at least 8 characters each; they are
            hidden wherever they stand, also percent-encoded, escaped or in base64, and shown
            neither by the redactor nor in a pickle.

    >>> Redactor().text("POST https://ann:hunter2@example.org/pay?api_key=k-1 failed")
    'POST https://ann:[redacted]@example.org/pay?api_key=[redacted] failed'
    >>> own = Redactor(patterns=[r"EMP-[0-9]+"], fields=["patient id"])
    >>> own.data({"patientId": 7, "by": "EMP-9"})
    {'patientId': '[redacted]', 'by': '[redacted]'}
    >>> Redactor(secrets=["otter-garden"]).text("no route to otter%2Dgarden")
    'no route to [redacted]'
    """

    __slots__ = (
        "_finders",
        "_names",
        "_own",
        "_seen",
        "_shared",
        "_version",
        "builtin",
        "fields",
        "patterns",
    )
    patterns: tuple[re.Pattern[str], ...]
    fields: tuple[str, ...]
    builtin: bool
    _finders: Finders
    _names: SecretNames
    _own: Known | None
    _shared: Known | None
    _version: int
    _seen: dict[str, str]

    def __init__(
        self,
        patterns: Iterable[str | re.Pattern[str]] = (),
        fields: Iterable[str] = (),
        builtin: bool = True,
        secrets: Iterable[str] = (),
    ) -> None:
        check = Checker("Redactor")
        found = _checked_patterns(check, patterns)
        names = _checked_fields(check, fields)
        if type(builtin) is not bool:
            check.note("builtin", builtin, "True or False")
        known = _checked_secrets(check, secrets)
        check.close()
        secret = SecretNames(names, builtin=builtin)
        self._fill(
            patterns=found,
            fields=names,
            builtin=builtin,
            _finders=Finders(secret, builtin=builtin),
            _names=secret,
            _own=Known(known) if known else None,
            _shared=None,
            _version=0,
            _seen={},
        )

    def __eq__(self, other: object) -> bool:
        is_same = super().__eq__(other)
        if is_same is not True or not isinstance(other, Redactor):
            return is_same
        return self._own == other._own

    def __hash__(self) -> int:
        return hash((super().__hash__(), self._own))

    def __repr__(self) -> str:
        shown = super().__repr__()
        return shown if self._own is None else f"{shown[:-1]}, secrets={self._own!r})"

    def __reduce__(self) -> Any:
        return super().__reduce__() if self._own is None else self._own.__reduce__()

    def text(self, text: str) -> str:
        """The text without its secrets; a very long one is cut.

        >>> Redactor().text("login failed: password=hunter2, try again")
        'login failed: password=[redacted], try again'
        """
        if self._version != PROCESS.version:
            self._learn()
        seen = self._seen  # of the secrets that were known when it was made
        shown = seen.get(text)
        if shown is None:
            shown = self._settled(text)
            if len(text) <= _SHORT:
                if len(seen) >= _REMEMBERED:
                    seen.clear()
                seen[text] = shown
        return shown

    def data(self, value: Any) -> Any:
        """Plain data without its secrets: dictionaries, lists, tuples, sets, texts and bytes.

        What else there is comes back as it is: make plain data of it first.

        >>> Redactor().data({"user": "ann", "auth": [{"Api-Key": "k-1"}], "to": "redis://:pw@db"})
        {'user': 'ann', 'auth': [{'Api-Key': '[redacted]'}], 'to': 'redis://:[redacted]@db'}
        """
        return self._copied(value, {})

    # --- texts ------------------------------------------------------------------------------------

    def _settled(self, text: str) -> str:
        """The text after as many rounds as find something."""
        for _ in range(_ROUNDS):
            before, text = text, self._once(_cut(self._without_known(_cut(text, _LOOKED_AT))))
            if text == before:
                break
        return text

    def _without_known(self, text: str) -> str:
        """The text without the values that are known: first, or a rule may take a part of one."""
        for known in (self._own, self._shared):
            if known is not None:
                text = known.hide(text)
        return text

    def _learn(self) -> None:
        """Hides what the process has come to know, too."""
        version = PROCESS.version
        shared = PROCESS.known() if self.builtin else None
        self._fill(_shared=shared)
        self._fill(_seen={})
        self._fill(_version=version)

    def _once(self, text: str) -> str:
        for pattern in self.patterns:  # first: they may match what surrounds a secret
            text = _replaced(pattern, text)
        return self._finders.hide(text)

    # --- data -------------------------------------------------------------------------------------

    def _copied(self, value: UserValue, seen: dict[int, UserValue]) -> UserValue:
        """The value without secrets; one that holds itself is not followed for ever."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes | bytearray):
            return self._bytes(value)
        if not isinstance(value, Mapping | list | tuple | set | frozenset):
            return value
        key = id(value)
        if key not in seen:
            seen[key] = MARK
            seen[key] = self._contents(value, seen)
        return seen[key]

    def _contents(self, value: UserValue, seen: dict[int, UserValue]) -> UserValue:
        if isinstance(value, Mapping):
            copied = {
                self._copied(name, seen): self._field(name, each, seen)
                for name, each in value.items()
            }
            for name in (value.get("name"), value.get("key")):
                if "value" in value and self._is_secret(name, value["value"]):
                    copied["value"] = _hidden(value["value"])
            return copied
        names = getattr(value, "_fields", None)
        if isinstance(value, tuple) and names is not None:  # a named tuple
            return type(value)(*map(self._field, names, value, [seen] * len(value)))
        if isinstance(value, list | tuple) and len(value) == 2:  # a header, a field of a form
            pair = self._copied(value[0], seen), self._field(value[0], value[1], seen)
            return list(pair) if isinstance(value, list) else pair
        each = (self._copied(each, seen) for each in value)
        return next(kind for kind in _KINDS if isinstance(value, kind))(each)

    def _field(self, name: UserValue, value: UserValue, seen: dict[int, UserValue]) -> UserValue:
        """The value of a field."""
        if isinstance(name, bytes):
            name = name.decode("latin-1")
        if self._is_secret(name, value):
            return _hidden(value)
        if isinstance(value, list | tuple) and len(value) == 2 and _is_login(name):
            pair = [self._copied(value[0], seen), MARK]
            return pair if isinstance(value, list) else tuple(pair)
        return self._copied(value, seen)

    def _is_secret(self, name: UserValue, value: UserValue) -> bool:
        """Whether the name is a secret one, and the value can be a secret if that decides."""
        kind = self._names.kind(name) if isinstance(name, str) else ""
        if kind in ("", SECRET) or kind in IN_QUERY:
            return kind == SECRET
        return isinstance(value, str | int | bytes) and is_secret_value(
            kind, name, str(value), is_quoted=True
        )

    def _bytes(self, value: bytes | bytearray) -> bytes | bytearray:
        text = value.decode("utf-8", "surrogateescape")
        redacted = self.text(text)
        return value if redacted == text else redacted.encode("utf-8", "surrogateescape")


def _hidden(value: UserValue) -> UserValue:
    """What stands for the value of a secret field; nothing at all, and a yes or no, are none."""
    return value if value is None or isinstance(value, bool) or not value else MARK


def _is_login(name: UserValue) -> bool:
    """Whether a pair of that name is a user and a password, as HTTP clients take them."""
    return isinstance(name, str) and squashed(name).endswith("auth")


_KINDS: tuple[type, ...] = (list, tuple, set, frozenset)


def _cut(text: str, longest: int = LONGEST) -> str:
    """The text as far as it is looked at, without the word at the edge: half a key is one too."""
    if len(text) <= longest:
        return text
    kept = longest - _ROOM
    edge = max(text.rfind(char, kept - _EDGE, kept) for char in " \n\t\"'<>,;&(){}")
    return text[: max(edge, kept - _EDGE)] + _CUT


def _replaced(pattern: re.Pattern[str], text: str) -> str:
    r"""The text without what a pattern matches; it is blind to marks, or `\w+` would find each."""
    parts: list[str] = []
    done = at = 0
    while (found := pattern.search(text, at)) is not None:
        start, end = found.span()
        mark = text.rfind(MARK, max(0, start - len(MARK) + 1), start + len(MARK))
        if mark >= 0:
            at = mark + len(MARK)
        elif start == end:  # it looks around, and has matched nothing
            at = end + 1
        else:
            parts += (text[done:start], MARK)
            done = at = end
        if at > len(text):
            break
    return "".join((*parts, text[done:])) if parts else text


def _checked_patterns(check: Checker, patterns: UserValue) -> tuple[re.Pattern[str], ...]:
    if isinstance(patterns, str | bytes | Mapping) or not isinstance(patterns, Iterable):
        check.note("patterns", patterns, "a list of regular expressions")
        return ()
    found = []
    for number, each in enumerate(patterns):
        field = f"patterns[{number}]"
        try:
            pattern = re.compile(each) if isinstance(each, str) else each
        except re.error as error:
            check.note(field, each, f"a regular expression: {error}")
            continue
        if not isinstance(pattern, re.Pattern) or not isinstance(pattern.pattern, str):
            check.note(field, each, "a regular expression, as a text or compiled from one")
        elif pattern.search("") is not None:
            check.note(field, pattern.pattern, "one that does not match an empty text")
        else:
            found.append(pattern)
    return tuple(found)


def _checked_fields(check: Checker, fields: UserValue) -> tuple[str, ...]:
    if isinstance(fields, str | bytes | Mapping) or not isinstance(fields, Iterable):
        check.note("fields", fields, "a list of names")
        return ()
    names = tuple(fields)
    for number, name in enumerate(names):
        if not isinstance(name, str) or not squashed(name):
            check.note(f"fields[{number}]", name, "a name with a letter or a digit")
    return tuple(name for name in names if isinstance(name, str) and squashed(name))


def _checked_secrets(check: Checker, secrets: UserValue) -> list[str]:
    if isinstance(secrets, str | bytes | Mapping) or not isinstance(secrets, Iterable):
        check.note("secrets", MARK, "a list of texts, each of them a secret")
        return []
    found = []
    for number, value in enumerate(secrets):
        if isinstance(value, str) and is_declarable(value):
            found.append(value)
            continue
        allowed = (
            f"a text of at least {LEAST} characters, of which {DIFFERENT} differ: it is hidden"
            " wherever it stands, and a shorter one stands in other words too"
        )
        check.note(f"secrets[{number}]", MARK, allowed if isinstance(value, str) else "a text")
    return found


REDACTOR = Redactor()
"""The redactor that is used if no other is given."""


def secrets_in(text: str) -> list[str]:
    """What the built-in rules hide of a text, if it is secret wherever else it stands.

    >>> secrets_in("redis://ann:x9Qz%2D1aP@db"), secrets_in("redis://ann:postgres@db")
    (['x9Qz%2D1aP', 'x9Qz-1aP'], [])
    """
    values = REDACTOR._finders.values(text)  # noqa: SLF001  its own
    found = (view.text for value in values for view in views(value))
    return list(dict.fromkeys(filter(is_rare, found)))


def is_secret_name(name: str) -> bool:
    """Whether a field or variable of that name holds a secret, whatever its value looks like.

    >>> is_secret_name("DB_PASSWORD"), is_secret_name("PASSWORD_LENGTH")
    (True, False)
    """
    return REDACTOR._names.is_secret(name)  # noqa: SLF001  its own
