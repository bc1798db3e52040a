"""A value that signs or an owner join to a secret name, whatever the signs are.

`"Password" -> "…"`, `password ⟵ '…'`, `password: <string> "…"` have no list of operators in common,
only a text in quotes and nothing that names something else in between. `password for ann = …`,
`senha do banco = …` and `token (prod): "…"` name the owner of the secret before its sign. The
notations of shells that read a variable are here too: `${DB_PASSWORD-…}`, `printf -v DB_PASS '%s'
'…'`.
"""

from __future__ import annotations

import re

from mainstay.core.redact.names import ENDINGS, SECRET, squashed
from mainstay.core.redact.plain import is_dense, is_plain, is_prose, is_random
from mainstay.core.redact.shapes.expressions import FALLBACK
from mainstay.core.redact.values import value_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.redact.names import SecretNames

    Span = tuple[int, int]

_NEAR = 400
_TYPE = r"(?:[ ]?(?:<\w{1,20}>|\[(?!redacted\])\w{1,20}\]|\(\w{1,20}\)))"
_JOINED = re.compile(
    rf"""\\{{0,4}}["'`]?[)\]}}>]{{0,2}}
    (?:{_TYPE}?[ \t]{{0,4}}(?!<<<?[-~]?["'])
       (?:[-=<>~|:]{{2,4}}|(?:[:=]|(?=[^\x00-\x7f]))[ ]?[-=>~\u00b7-\u2bff]{{1,4}})
      |{_TYPE}[ ]?[:=]|[ ]?[:=]{_TYPE}
      |[ ]by[ ]lazy[ ]\{{|[ ](?P<q>["'])%s(?P=q))
    [ \t]{{0,4}}(?=[bru@]?\\{{0,4}}["'`\u201c\u00ab])""",
    re.VERBOSE,
)
"""Signs between a name and a text in quotes."""
_NO_SIGN = re.compile(r"[<>]=|[!=]==?\Z|\|\|\Z|\?")
_OWNED = re.compile(
    r"""(?i)(?P<owner>
      [ ](?:for|of|do|da|dos|de|del|della|di|du|des|f[üu]e?r|von|vom|der|pour|van|voor
        |f[öo]r|till|para|dla|для)
      (?:[ ](?:the|la|le|les|el|den|dem|der|die|das|il|user|client|account|service|role|database
        |key|file|host|machine|server|store))?+
      [ ](?P<q>["'`]?)(?:[\w.@-]{1,40}+|[\w.@/:~\\-]{1,120}+(?=["'`])
        |[~/][\w.@/~-]{1,120}+)(?P=q)(?:[ ](?!is\b|was\b)[\w.-]{1,20}+){0,2}
      |[ ]?\[[\w.@-]{1,40}+\]|[ ]?\([\w.@-]{1,40}+\))?
    (?P<verb>[ ](?:is|was|are|will[ ]be|(?:is[ ]|was[ ]|has[ ]been[ ])?set[ ]to|is[ ]now|reads
      |equals|ist|lautet|war|est|es|é|è|är|er|jest))?
    [ ]{0,2}(?P<sign>=>?|:)(?![=:])[ ]{0,4}(?=\S)""",
    re.VERBOSE,
)
"""Whose the secret is, the verb if it is announced in a sentence, and the sign of its value."""
_LAST = re.compile(r"[.!]?[ \t]{0,8}(?:\r?\n|\Z)")
_STATE = re.compile(
    r"(?i).*(?:ed|ing|ung|ty|en|[ai]ble|[ae]nt|al|ect|[ao]ry|ous|ive|ure|ful|less|text)\Z|.{0,3}"
)
"""A word for what has become of the secret: `password for ann: unchanged`."""
_LONG = 8
"""Characters of a word that a sentence announces; most adjectives have fewer."""
_LOOSE = ("token", "tokens", "cookie", "credential", "credentials", "authorization", "key", "keys")
"""Names of what a program reads, so that a word beside them may be any."""
_FIRM = re.compile(
    r"(?:.*(?:api|auth|access|refresh|bearer|personal|csrf|xsrf|jwt|oauth|deploy|bot|hook|service))"
    r"(?:token|key)s?|.*(?:secret|private|master|encryption|signing|account)keys?"
)
"""Names of those that no program reads as a part of another."""
_IDENTIFIER = re.compile(r"[A-Za-z_-]+")
_EXPANDED = re.compile(
    r"\$\{(?P<name>[A-Za-z_]\w{1,60}+)-(?P<secret>[^{}$\"'`\r\n][^{}\"'`\r\n]{0,199}+)\}"
)


def joined(text: str, name: Span) -> Iterator[Span]:
    """The text in quotes that signs join to the secret name that stands here."""
    start, end = name
    found = _JOINED.match(text, end)
    if found is None or _NO_SIGN.search(found[0].rstrip()) is not None:
        return
    value = value_at(text, found.end(), _NEAR)
    if value.is_quoted and _is_value(text[start:end], text[value.start : value.end]):
        yield value[:2]


def owned(text: str, name: Span) -> Iterator[Span]:
    """The value behind a secret name and the owner of it."""
    start, end = name
    found = _OWNED.match(text, end)
    if found is None or (found["owner"] is None and found["verb"] is None):
        return
    value = value_at(text, found.end(), _NEAR)
    written = text[value.start : value.end]
    named = text[start:end]
    if is_plain(written, named, is_quoted=value.is_quoted):
        return
    if value.is_quoted:
        is_secret = _is_value(named, written)
    else:
        is_last = _LAST.match(text, value.end) is not None
        is_word = (written.isalnum() and not _is_state(written)) or is_random(
            written, is_named=True
        )
        is_long = found["verb"] is None or len(written) >= _LONG
        is_sure = is_last and is_word and is_long and not _is_loose(named)
        is_secret = found["sign"] != ":" or is_dense(written) or is_sure
    if is_secret:
        yield value[:2]


def looked_up(text: str, name: Span) -> Iterator[Span]:
    """What is taken if a look-up of the name finds nothing: `ENV["DB_PASSWORD"] || "…"`."""
    start, end = name
    if _OPENING.search(text, max(0, start - 4), start) is None:
        return
    closing = _CLOSING.match(text, end)
    found = None if closing is None else FALLBACK.match(text, closing.end("space"))
    if found is None and closing is not None and closing["bracket"] == ")":
        found = FALLBACK.match(text, closing.start("bracket"))
    if found is None:
        return
    value = value_at(text, found.end(), _NEAR)
    is_compared = _COMPARED.match(text, value.end) is not None
    if not is_compared and _is_value(text[start:end], text[value.start : value.end]):
        yield value[:2]


_OPENING = re.compile(r"[(\[](?:[\"'`]|:)?\Z")
_CLOSING = re.compile(r"[\"'`]?(?P<bracket>[)\]])(?P<space>[ ]?\.?)")
_COMPARED = re.compile(r"[\"'`]?[ ]?(?:[!=]=|in[ ]|not[ ]in)")


def in_expansions(text: str, names: SecretNames) -> Iterator[Span]:
    """What a shell takes if a variable is not set: `${DB_PASSWORD-…}`."""
    for found in _EXPANDED.finditer(text):
        is_secret = names.kind(found["name"]) == SECRET
        if is_secret and not is_plain(found["secret"], found["name"], is_quoted=True):
            yield found.span("secret")


def _is_value(name: str, written: str) -> bool:
    """Whether a text in quotes can be the secret: no placeholder, message or other name."""
    if is_plain(written, name, is_quoted=True) or is_prose(written):
        return False
    if _IDENTIFIER.fullmatch(written) and squashed(written).endswith(ENDINGS):
        return False
    return is_random(written, is_named=True) or not _is_loose(name)


def _is_state(written: str) -> bool:
    return written.isalpha() and _STATE.fullmatch(written) is not None


def _is_loose(name: str) -> bool:
    plain = squashed(name)
    return plain.endswith(_LOOSE) and _FIRM.fullmatch(plain) is None
