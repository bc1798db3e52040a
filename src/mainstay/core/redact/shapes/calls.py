"""Secrets that are arguments of a call: of one that connects, logs in, signs or encrypts.

`jwt.sign(payload, "…")`, `connect("db", "app", "…")`. What stands in quotes counts if it looks
random. Of a call that nobody has listed, it counts behind a word in quotes, as a password stands
behind its user: `Dial("db", "app", "…")`; a call that looks something up takes ids there.
"""

from __future__ import annotations

import re

from mainstay.core.redact.plain import is_dense, is_plain, is_random

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Span = tuple[int, int]

_CALLEE = re.compile(
    r"""(?i)(?:(?P<crypt>crypt\w{0,20}|hmac\w{0,10}(?:(?:\.|::|->)\w{1,20})?|fernet|\baes\.\w{1,10}
       |passw(?:or)?d_?\w{0,12}|secret_?\w{0,8}|jw[ts]\.\w{1,10}|bcrypt\.\w{1,12}
       |argon2\.\w{1,12}|pbkdf2\w{0,8}|apikey|keyspec|cipher\w{0,5}|hashbytes|_pw_set|set_?pw
       |signer|serializer|scrypt)
      |connect\w{0,8}|connection2?|conn|getconnection|login|logon(?:user)?|log_in|sign_?in|dial\w{0,6}
      |authenticate|auth\w{0,8}|bind(?:_s)?|mysql\w{0,10}|postgres\w{0,4}|mysqli?|\bpg_\w{1,10}
      |mongo\w{0,8}|\bremote|\bs3|s?ftp\w{0,8}|smtp\w{0,4}|imap\w{0,6}|ldap\w{0,8}|dblink\w{0,8}
      |redis|credentials?|cred_?write|session(?:pool)?|_?pool|client(?:\.new)?|driver|wifi\.begin
      |ssh\.start|\w{3,4}::\w{3,4}\.(?:start|open)|\bbasic|unlock\w{0,10}|unseal|sign|signwith
      |verify|unsign|compare_digest|timingsafeequal|create_?(?:super)?user|add_?user|set_?token
      |with_?token|token|sequelize|minio(?:\.new)?|twilio\w{0,8}|github|gitlab|\w{0,10}bot|stripe\.new
      |oauth\w{0,12}|(?:get|load|set)_?\w{0,12}key\w{0,24}|extractall|(?:ks|key_?store|p12)\.load|sendline
      |communitydata|usmuserdata|kinit|mount)[!?]?\s?\Z""",
    re.VERBOSE,
)
_LOOKUP = re.compile(
    r"""(?i)(?:\b|_|\.|(?<=[a-z])(?=[A-Z]))(?:get\w{0,30}|find\w{0,30}|fetch\w{0,20}|h?m?set|put|add|append|push|insert\w{0,10}
      |update\w{0,10}|delete\w{0,10}|remove\w{0,10}|select\w{0,10}|query\w{0,10}|where|filter|print\w{0,3}
      |log\w{0,3}|debug|info|warn\w{0,3}|error\w{0,3}|fatal|format|sprintf|replace\w{0,8}|split|match|join
      |assert\w{0,20}|equals?|is_?equal|eq|expect|test|it|describe|param\w{0,12}|execute\w{0,6}|call|send|publish
      |emit|track|field|column|label|option|attr\w{0,10}|translate|t|_|url|path|open|redirect|route|render)
      \s?\Z""",
    re.VERBOSE,
)
"""Calls that take ids and texts."""
_TOKEN = re.compile(
    r"""[bruNEL@]?(?:\"((?:[^\"\\\r\n]|\\.){0,400}+)\"|'((?:[^'\\\r\n]|\\.|''){0,400}+)'|`([^`]{0,400}+)`)
    |(?P<bracket>[()])|[^\"'`()]""",
    re.VERBOSE,
)
_BARE = re.compile(  # without brackets: User.authenticate 'ann', 'x'
    r"(?i)(?:\b(?:connect|login|logon|authenticate|basic_auth|sign_in)"
    r"|\.encode \w{1,20},)[ ](?=[\"'])"
)
_LINE = 160
_LONGEST = 600
_NAME_LENGTH = 60
_MOST = 24
"""Texts and brackets of a call that are looked at."""
_DEEPEST = 3
PAIR = re.compile(r"[\"'],[ ]?[bruN]?[\"'](?=[^\"'\s]{0,60}[0-9])[^\"'\s]{8,64}[\"']")
"""A text, and one behind it that may be a password."""


def in_calls(text: str) -> Iterator[Span]:
    """Random arguments of functions that encrypt, sign, compare passwords, log in or connect."""
    opening = text.find("(")
    while opening >= 0:
        before = text[opening - 1 : opening]
        if before.isalnum() or before in ("_", " ", "!", "?"):
            yield from _in_call(text, opening)
        opening = text.find("(", opening + 1)
    for bare in _BARE.finditer(text):
        end = text.find("\n", bare.end(), bare.end() + _LINE)
        last = bare.end() + _LINE if end < 0 else end
        yield from (
            span for span in _arguments(text, bare.end(), last) if is_dense(text[slice(*span)])
        )


def _in_call(text: str, opening: int) -> Iterator[Span]:
    first = max(0, opening - _NAME_LENGTH)
    call = _CALLEE.search(text, first, opening)
    if call is None:
        yield from _behind_a_word(text, first, opening)
        return
    is_secret = is_dense if call["crypt"] is None else _is_random
    for start, end in _arguments(text, opening + 1, opening + _LONGEST):
        if is_secret(text[start:end]):
            yield start, end


def _behind_a_word(text: str, first: int, opening: int) -> Iterator[Span]:
    """What looks random behind a word in quotes, of a call that looks nothing up."""
    if PAIR.search(text, opening, opening + _LINE) is None or _LOOKUP.search(text, first, opening):
        return
    done = -1
    for start, end in _arguments(text, opening + 1, opening + _LINE):
        is_next = done >= 0 and _COMMA.fullmatch(text, done, start) is not None
        if is_next and is_dense(text[start:end]) and _is_of_three(text[start:end]):
            yield start, end
        done = end if _NAME.fullmatch(text, start, end) else -1


_COMMA = re.compile(r"[\"'`][ ]?,\s{0,20}[bruNEL@]?[\"'`]")
_NAME = re.compile(r"[A-Za-z][\w.@:/\\-]{0,60}")


def _is_of_three(value: str) -> bool:
    """Whether it has small letters, capital ones and digits."""
    return not value.islower() and not value.isupper() and any(map(str.isdigit, value))


def _arguments(text: str, at: int, last: int) -> Iterator[Span]:
    """What stands in quotes behind an opening bracket, also in calls inside the call."""
    depth = count = 0
    for token in _TOKEN.finditer(text, at, last):
        if "://" in token[0]:
            continue
        bracket = token["bracket"]
        if bracket is not None:
            depth += 1 if bracket == "(" else -1
        elif token.lastindex is not None:
            yield token.span(token.lastindex)
        else:
            continue
        count += 1
        if count > _MOST or not 0 <= depth <= _DEEPEST:
            return


def _is_random(value: str) -> bool:
    return is_random(value, 8) and not is_plain(value, "", is_quoted=True)
