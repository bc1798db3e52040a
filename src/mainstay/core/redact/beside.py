"""A net below the other finders: what looks random beside a secret name, in any notation.

The other finders know notations. This one knows none: it looks at what stands a short way behind
a secret name, and hides it if no word, identifier, number or hash is written so (`is_dense`). In
between, anything may stand that does not name something else: signs, types, brackets, a line break.
So a notation that nobody thought of loses only secrets that read like words.
"""

from __future__ import annotations

import re

from mainstay.core.redact.fields import is_in_arn
from mainstay.core.redact.names import SECRET, SURE, without_method, words_of
from mainstay.core.redact.plain import is_dense, is_plain, is_random, without_stop
from mainstay.core.redact.shapes.signs import joined, looked_up, owned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.redact.names import SecretNames

    Span = tuple[int, int]

_REACH = 120
_LEAD = 24
_OTHER_ENDS = frozenset(
    """
    id ids name names type types count counts length size url uri path file dir folder at ttl
    expiry expires endpoint policy index number age time date version store manager provider
    service hasher hashers encoder validator helper error exception bucket request response
    method mode status state field column table user users host label prefix suffix ref
    """.split()
)
"""Words at the end of a name of something that is no secret itself."""
_TOKEN = re.compile(
    r"(?<![\w/.@#~-])[^\s\"'`,;:=()<>\[\]{}|\\&\x00-\x1f\x7f-\U0010ffff]{8,}+={0,2}",
    re.ASCII,
)
_WHOLE = re.compile(r"[^\s\"'`,;:=()<>\[\]{}|\\&\x00-\x1f\x7f-\U0010ffff]{8,400}+", re.ASCII)
_LABEL = re.compile(
    r"(?<![\w.@-])([\w-]{1,40})[\"'`\]]{0,2}[ ]{0,3}(?:=>|[:=])[ ]{0,3}[\"'`(\[{<&*@]{0,4}\Z"
)
_VALUES = frozenset(
    """
    value val values v default data text string str input got given received actual supplied
    provided content contents is was answer inner raw plain plaintext decoded parameters args argv
    rows new old s b proceed generated entered used tried debug info output result
    """.split()
)
_VALUE_WORDS = (["value"], ["val"], ["input"], ["text"])
_WORD_BEFORE = re.compile(r"(?:\A|[^\w.])([\w-]{1,40})[\"'`]?[ ][\"'`(\[{<]{0,2}\Z")
_LINKS = frozenset(
    """
    is was got with using to value key given provided supplied received entered and or be parse
    are equals expected ist lautet est es as convert string varchar text char reg_sz str
    """.split()
)
_OTHERS = frozenset(
    """
    user users username host hostname file path column field table database role realm account
    server client id uid request trace job order build commit profile release module service app
    pod volume image node device type mode algorithm kind version name header method status line
    """.split()
)
"""Words for what a message quotes besides secrets."""
_SIGN = re.compile(r"[\"'`“(\[{<:=>~|\u2013\u2014\u2192\u21d2\x00-\x1f]\s{0,3}\Z")
_TIGHT = re.compile(
    r"""[\"'`\])}>]{0,3}(?:\s|,|[\x00-\x1f]|\\+(?:x[01][0-9a-f]|0|n|r|t)|[:=~|<>\u2192\u21d2&*@\"'`(\[{]
    |\([\w.*=\x20]{1,40}\)|0x[0-9a-f]{1,16}\b|[0-9]{1,3}\)|\$[0-9]{1,4}\b|\b(?:string|str|text|varchar|reg_\w{2,9}
    |char|default|value|inner|[psvx][0-9]{0,3})\b){1,40}""",
    re.VERBOSE | re.IGNORECASE,
)
_OPERATOR = re.compile(r"[:=~|\u2192\u21d2\x00-\x1f]|<[<-]|\\|reg_|[(\[{<][\"'`]?\Z", re.IGNORECASE)
_GETTER = re.compile(r"(?i)\A(?:get|find|load|read|fetch|lookup|delete|is|has|list|on|no|need)")
_HERE = re.compile(r"[ ]?[;/][ ]?|[ ]?[\u306f\u662f\u4e3a\u70ba]?[\"'`\u300c]?")
_METHOD = re.compile(r"\.(?:[eE]quals|contentEquals|compareTo|should|eql|matches)\Z")
"""What compares a value."""
_FILLER = re.compile(
    r"""(?:\([^()\r\n]{0,40}+\)|\[[^\[\]\r\n]{0,40}+\]|\{[^{}\r\n]{0,40}+\}|<[^<>\r\n]{0,40}+>|[^\w\s]|\s|_
    |\b(?:n?varchar2?|n?char|text|string|str|[su]?bytes?|binary|blob|clob|utf-?8|ascii|u?int(?:8|16|32|64)?
      |octet[ ]string|nsstring|(?:\w{1,20}+\.){1,4}+string|std::string|utf8string|reg_\w{2,9}
      |not[ ]null|null
      |max|const|len(?:gth)?|chars?|characters|val|value|contains|reads|becomes|new|old|current|previous|default
      |plain|plaintext|cleartext|decoded|raw|header|param|attr|arg|field|now|db|dw|dc\.b|equ|s)\b
    |0x[0-9a-f]{1,16}+\b|\b[0-9]{1,4}\b){0,80}+""",
    re.VERBOSE | re.IGNORECASE,
)
"""Signs, brackets, types, numbers: what stands between a name and its value in some notation."""
_GLUED = re.compile(r"(?:[^\w\s\"'`]{0,8}[@#~-]|\.{2,12}|/{2,4})(?=[A-Za-z0-9])")
"""Signs that stand inside of words too, right behind a name: `Password#x`."""
_IN_PATH = re.compile(r"/([\w~=-]{8,200}+)(?=[/?#\s\"'`,;:)&.]|\Z)")
_JOINED = re.compile(r"([\w$.-]{0,100}[A-Za-z])[_$-]{1,20}([A-Za-z0-9]{8,64})")
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_DIGIT = re.compile(r"[0-9]")
_LETTER = re.compile(r"[A-Za-z]")
_AFTER = re.compile(r"\n[ \t]*\n|\n(?![-=~_*+|\x20]{3,80}+\r?\n)[^\n]{4,}+\n")


_HEADING = re.compile(r"[*#:=]{0,4}[ \t]{0,4}\r?\n[ \t]*\n")
"""A name that is a line of its own, with an empty line below it."""


def beside_names(text: str, names: SecretNames, mentions: list[Span]) -> Iterator[Span]:
    """Where something random stands beside a secret name."""
    anchors = list(_anchors(text, names, mentions))
    yield from _joined(text, names, mentions)
    for number, (start, end, is_sure) in enumerate(anchors):
        if is_in_arn(text, start):
            continue
        following = anchors[number + 1][0] if number + 1 < len(anchors) else len(text)
        last = min(end + _REACH, following)
        heading = _HEADING.match(text, end, last)
        lines = _AFTER.search(text, end if heading is None else heading.end(), last)
        yield from _behind(text, end, last if lines is None else lines.end(), is_sure=is_sure)
        if is_sure:
            yield from _phrases(text, end, last)
            yield from joined(text, (start, end))
            yield from owned(text, (start, end))
            yield from looked_up(text, (start, end))
        yield from _quoted_before(text, start, anchors[number - 1][1] if number else 0)


def _anchors(
    text: str, names: SecretNames, mentions: list[Span]
) -> Iterator[tuple[int, int, bool]]:
    """Secret names: where they begin and end, and whether the whole name is a secret one."""
    for start, end in mentions:
        name = text[start:end]
        if "." in name:
            is_call = text.startswith("(", end)
            name = without_method(name) if is_call else _METHOD.sub("", name)
        before = text[max(0, start - _LEAD) : start].split(" ")
        if names.kind(name) == SECRET or not name.isascii():
            yield start, end, not _GETTER.match(name)
        elif len(before) > 1 and names.kind(f"{before[-2]}{before[-1]}{name}".lower()) == SECRET:
            yield start, end, True
        else:
            words = words_of(name)
            if not SURE.isdisjoint(words) and words[-1] not in _OTHER_ENDS:
                yield start, end, False


def _joined(text: str, names: SecretNames, mentions: list[Span]) -> Iterator[Span]:
    """What looks random at the end of a word that begins with a secret name: `password_x`."""
    for start, end in mentions:
        found = _JOINED.fullmatch(text, start, end) if end - start > 11 else None
        if found is None or found[2].islower() or found[2].isupper() or not is_dense(found[2]):
            continue
        if _DIGIT.search(found[2]) and names.kind(found[1]) == SECRET:
            yield found.span(2)


def _behind(text: str, start: int, end: int, *, is_sure: bool) -> Iterator[Span]:
    """What stands behind a name."""
    glued = _GLUED.match(text, start) if is_sure else None
    word = None if glued is None else _WHOLE.match(text, glued.end())
    if word is not None and is_dense(word[0]) and not is_plain(word[0], "", is_quoted=True):
        yield word.span()
    part = _IN_PATH.match(text, start)
    if part is not None and _is_mixed(part[1]) and is_dense(part[1]):
        yield part.span(1)
    for token in _TOKEN.finditer(text, start, end):
        whole = _TOKEN.match(text, token.start()) or token
        value = without_stop(whole[0])
        between = text[start : token.start()]
        is_mixed = _is_mixed(value) and _ENCODED.search(value) is None
        is_filled = is_sure and is_mixed and _is_filled(between)
        is_near = is_dense(value) and (is_filled or _is_linked(between))
        is_foreign = not text[start - 1].isascii() and _HERE.fullmatch(between) is not None
        is_tight = is_sure and _is_mixed(value) and (is_foreign or _is_tight(between))
        is_call = text.startswith("(", whole.end())  # Token(uuid4())
        is_secret = is_near or (is_tight and is_random(value, 8, is_named=True))
        if is_secret and not is_call and not is_plain(value, "", is_quoted=True):
            yield whole.start(), whole.start() + len(value)


_PHRASE = re.compile(r"([\"'`])([^\s\"'`]{3,60}+(?:[ ][^\s\"'`]{3,60}+){1,4}+)\1")


def _phrases(text: str, start: int, end: int) -> Iterator[Span]:
    """Some words in quotes behind a name, of which half look random."""
    for found in _PHRASE.finditer(text, start, end):
        words = found[2].split(" ")
        between = text[start : found.start()]
        is_other = _LABEL.search(between[-50:]) is not None and not _is_linked(between)
        if not is_other and 2 * sum(is_random(word, 5) for word in words) >= len(words):
            yield found.span(2)


def _is_filled(between: str) -> bool:
    """Whether nothing that names something else stands between a name and its value."""
    return len(between) < _LEAD * 4 and _FILLER.fullmatch(between) is not None


def _is_mixed(value: str) -> bool:
    """Whether it has digits and letters."""
    return _DIGIT.search(value) is not None and _LETTER.search(value) is not None


def _is_linked(between: str) -> bool:
    """Whether the value belongs to the name, and to nothing that is named in between."""
    tail = between[-50:]
    label = _LABEL.search(tail)
    is_value = label is not None and words_of(label[1])[-1:] in _VALUE_WORDS
    if label is not None and not between.lstrip("\"'`])} ").startswith((":", "=")):
        return is_value or label[1].lower() in _VALUES
    if label is not None and label.start() > 0:
        return is_value or label[1].lower() in _VALUES or label[1].isdigit()
    word = _WORD_BEFORE.search(tail)
    if word is not None:
        is_quoted = tail[-1:] in ("'", '"', "`")
        return word[1].lower() not in _OTHERS if is_quoted else word[1].lower() in _LINKS
    return _SIGN.search(tail) is not None or _HERE.fullmatch(between) is not None


def _is_tight(between: str) -> bool:
    """Whether nothing but signs and types stands between a name and its value."""
    if "::" in between or _TIGHT.fullmatch(between) is None:
        return False
    return _OPERATOR.search(between) is not None


_QUOTED = re.compile(
    r"(?:(?<![\w\"'`])[\"'`]([^\s\"'`]{8,200}+)[\"'`]"
    r"|\b(?:with|using|got|entered|tried|sent)[ ]([^\s\"'`]{8,200}+))"
    r"(?:[:,]?[ ][a-z ,:(\"'-]{0,60}|[ ]<-[ ][\w. ]{1,40}[\"'])\Z"
)
_COMPARED = re.compile(r"([\"'])([^\"'\r\n]{6,100}+)\1(?:\.\w{1,20}\(|[ ]?[!=]={1,2}[ ]?|,[ ])\Z")
_OPERANDS = ("(", "=", "= ", ", ")
_NO_LABEL = re.compile(r"[:=]\s?\Z|\b(?:user|host|id|key|file|trace|request|module)\s\Z")


def _quoted_before(text: str, start: int, first: int) -> Iterator[Span]:
    """What a message quotes before it names it: `cannot parse "x" as password`."""
    is_operand = text.endswith(_OPERANDS, max(0, start - 3), start)
    compared = _COMPARED.search(text, max(first, start - 160), start) if is_operand else None
    if compared is not None and _is_compared(compared):
        yield compared.span(2)
    first = max(first, start - 260)
    found = _QUOTED.search(text, first, start)
    place = 0 if found is None else found.lastindex or 0
    if found is not None and is_dense(found[place]):
        before = text[max(0, found.start() - 30) : found.start()]
        if _NO_LABEL.search(before) is None:
            yield found.span(place)


def _is_compared(found: re.Match[str]) -> bool:
    """Whether what a name is compared with is a secret; another argument is none by itself."""
    words = found[2].split(" ")
    is_phrase = len(words) > 1 and all(is_random(word, 5) for word in words)
    return is_phrase or is_dense(found[2])
