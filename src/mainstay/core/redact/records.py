"""Secrets whose name is a value itself: `{"Name": "DB_PASSWORD", "Value": "…"}`, in either order.

Also attributes of a tag, keyword arguments, entries of YAML, `loc` and `input` of validation
errors, the rows of a table under the name of a column, and XML, HTML and multipart forms.
"""

from __future__ import annotations

import re
from itertools import pairwise

from mainstay.core.redact.names import squashed, words_of
from mainstay.core.redact.plain import (
    is_plain,
    is_prose,
    is_random,
    is_reference,
    is_secret_value,
)
from mainstay.core.redact.values import Value, all_words, value_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.redact.names import SecretNames

    Span = tuple[int, int]

_FIELD = re.compile(
    r"""(?<![\w$])(?:[A-Za-z@#][\w.:]{0,60}?)?(?<![a-z](?=[a-z]))
    (?:(?P<name>(?i:name|key|k|field|id|loc|type|setting|param|parameter|property|variable|attribute|header|path|pointer
      |label|column|env|attr|question|title|caption|prompt|output)s?|(?<=["'])n)
      |(?P<value>(?i:value|val|v|content|contents|default|answer|input|input_value|given|rejectedvalue|secretstring
      |received|actual|data|new|old|current|previous|before|after|(?P<loose>text|string|response)
      )s?|(?<=["'])(?:from|to|was|now)
      |(?:from|to)(?=:[ ])))
    (?![\w-])\\*+["'`]?(?:\s{0,20}+(?:=>|[:=])\s{0,40}+
      |(?<=arameter)[ ](?=["'`]?[A-Za-z]\w{2,60}["'`]?,[ ]value)
      |(?<=variable)[ ](?=")|(?<=parameter)[ ](?=")|(?<=output)[ ](?="\w{1,60}"[ ]\{)
      |(?:(?<=[Ff]ield)|(?<=roperty)|(?<=ttribute)|(?<=olumn)|(?<=etting)|(?<=[Kk]ey))[ ]
       (?=["'`][\w.]{1,60}+["'`])
      |(?<=--name)[ ]|(?<=--value)[ ]|(?<=--key)[ ]
      |(?<=\[Key),[ ]|(?<=\[Name),[ ]|(?<=\[Value),[ ])""",  # what .NET prints of a pair
    re.VERBOSE,
)
_BOUNDARY = re.compile(r"[{}<>]|\)[ ]?,\s{0,9}(?:\w{0,40}\(|[{(])|\n\s{0,40}-\s|\n\n")
_BLOCK = re.compile(r"\"[ ]\{[^{}<>]*+\Z")
"""What opens behind the name of a block: `variable "token" {`."""
_BRACKET = re.compile(r"[{}]")
_CLOSED = re.compile(r"\{[^{}]*+\}")
_NEXT_ERROR = re.compile(r"\}\s{0,40}\]|\}\s{0,40},\s{0,40}\{|\n\n")
"""What ends an error whose field is an object of its own: `{"source": {"pointer": "…"}, …}`."""
_LAST = re.compile(r"[\w$./:-]{1,100}(?=[\"'\\`\])},\s]{0,12}\Z)")
_PHRASE = re.compile(r"[A-Za-z][\w-]{1,20}+(?:[ ][\w-]{1,20}+){1,2}")
_NEAR = 400
_SECRET_PATH = re.compile(r"[/:]")


def listed(text: str, names: SecretNames) -> Iterator[Span]:
    """Where the values of records stand whose name is a secret one."""
    known = label = ""
    waiting: tuple[re.Match[str], Value] | None = None
    around: list[str] = []  # names of the records that this one is a part of
    at = 0
    end = 0
    while (found := _FIELD.search(text, at)) is not None:
        value = value_at(text, found.end(), _NEAR)
        if _BOUNDARY.search(text, end, found.start()) is not None and not (
            known and _goes_on(text, end, found.start(), label)
        ):
            known, waiting = _known_behind(text, end, found.start(), known, around), None
        if found["name"]:
            written = text[found.start() : found.end("name")]
            named = text[value.start : value.end]
            secret = _secret_name(named.rstrip(": ") if value.is_quoted else named, names)
            if found["name"].lower() == "type" and secret.lower() != "password":
                secret = ""  # the sort of a token is none
            if secret or written == label:  # `id` beside `name` changes nothing
                known, label = secret, written
            if known and waiting is not None:
                yield from _hidden(text, *waiting, known, names)
                waiting = None
        elif known:
            yield from _hidden(text, found, value, known, names)
        else:
            waiting = found, value
        end = value.end
        at = (
            found.end() if text.startswith(("[", "{"), found.end()) else max(value.end, found.end())
        )


def _goes_on(text: str, start: int, end: int, label: str) -> bool:
    """Whether a record goes on behind a bracket: in a block, or in the error around a pointer."""
    if _BLOCK.match(text, start, end) is not None:
        return True
    is_pointer = label.endswith("pointer") and end - start < _NEAR
    return is_pointer and _NEXT_ERROR.search(text, start, end) is None


def _known_behind(text: str, start: int, end: int, known: str, around: list[str]) -> str:
    """The secret name of the record that goes on behind some brackets; `around` follows them."""
    between = text[start:end] if end - start < _NEAR else "<"
    while (flat := _CLOSED.sub("", between)) != between:
        between = flat
    for bracket in _BRACKET.findall(between):
        if bracket == "{":
            around.append(known)
            known = ""
        else:
            known = around.pop() if around else ""
    if _BOUNDARY.search(_BRACKET.sub("", between)) is not None:
        around.clear()
        return ""
    return known


def _secret_name(written: str, names: SecretNames) -> str:
    """The last name in what is written, if it is a secret one, or all of it: `API Key`."""
    if _PHRASE.fullmatch(written) and names.is_secret(written):
        return squashed(written)
    last = _LAST.search(written[-120:])
    name = "" if last is None else _SECRET_PATH.split(last[0])[-1]
    return name if names.kind(name) else ""


def _hidden(
    text: str, found: re.Match[str], value: Value, name: str, names: SecretNames
) -> Iterator[Span]:
    written = text[value.start : value.end]
    if found["loose"] and (is_prose(written) or is_plain(written, name, is_quoted=False)):
        return
    if found["loose"] and names.kind(written.rpartition(" ")[2]):
        return  # what a form shows: `{"label": "Password", "text": "Your password"}`
    if value.start < value.end and is_secret_value(
        names.kind(name), name, written, is_quoted=value.is_quoted
    ):
        yield all_words(text, found.start(), value)[:2]


# --- manifests ------------------------------------------------------------------------------------

_KIND = re.compile(r"(?<![\w-])kind[\"']?\s{0,9}:\s{0,9}[\"']?Secret\b(?![\w.-])")
_DATA = re.compile(r"(?<![\w-])(?:data|stringData)[\"']?\s{0,9}:[ ]{0,9}(?=\{|\r?\n[ \t])")
_ENTRY = re.compile(r"[{,\s][\"']?[\w.-]{1,100}+[\"']?:[ ]{0,9}(?=[^\s{])")
_OUTER = re.compile(r"\n(?![ \t\r\n])|\}")


def in_manifests(text: str, names: SecretNames) -> Iterator[Span]:  # noqa: ARG001  a finder's
    """All entries of a Kubernetes Secret, whatever their names are."""
    if _KIND.search(text) is None:
        return
    at = 0
    while (data := _DATA.search(text, at)) is not None:
        at = data.end()
        while (entry := _ENTRY.search(text, at, at + _NEAR)) is not None:
            if _OUTER.search(text, at, entry.end()) is not None:
                break
            value = value_at(text, entry.end())
            if is_secret_value("secret", "", text[value.start : value.end], is_quoted=True):
                yield value[:2]
            at = max(value.end, entry.end())


# --- sections -------------------------------------------------------------------------------------

_SECTION = re.compile(r"(?m)^[ \t]{0,8}\[([\w.: \"-]{1,80}+)\][ \t]{0,8}\r?\n")
_SETTING = re.compile(
    r"[ \t]{0,8}(?P<key>[\w.:/@*-]{1,100}?)[ \t]{0,8}[=:][ \t]{0,8}(?P<quote>[\"'])?+"
    r"(?P<user>[\w.@-]{1,60}+:)?+(?P<value>(?(quote)[^\"'\r\n]{1,400}+"
    r"|[^\s\"']{1,400}+(?:[ ][^\s\"'#;=:,]{2,40}+){0,3}+))[^\n]*+\n?+"
)
_ORDINARY = frozenset(
    """
    user username login email mail name type kind provider helper path file host hostname url uri
    server port enabled disabled ttl id store region output realm domain backend format method mode
    scope expires expiry timeout version driver engine role account profile source debug level
    rotation rotate
    """.split()
)
"""Settings of such a section that are no secrets."""


def in_sections(text: str, names: SecretNames) -> Iterator[Span]:
    """What stands in a section of a file with a secret name: `[credentials]`."""
    for section in _SECTION.finditer(text):
        at = section.end()
        is_list = squashed(section[1]).endswith(_LISTS)
        while names.is_secret(section[1]) and (setting := _SETTING.match(text, at)) is not None:
            at = setting.end()
            if _is_entry(setting, is_list=is_list):
                yield setting.span("value")


_LISTS = ("credential", "credentials", "creds", "passwords", "passwd", "password", "secrets")
"""Sections in which every entry is a secret, but for ordinary settings."""


def _is_entry(setting: re.Match[str], *, is_list: bool) -> bool:
    """Whether a setting of a secret section is a secret."""
    written = setting["value"]
    if is_reference(written) or is_prose(written):
        return False
    if is_random(written, is_named=True):
        return True
    is_ordinary = words_of(setting["key"])[-1:] and words_of(setting["key"])[-1] in _ORDINARY
    return is_list and not is_ordinary and _is_word(written)


def _is_word(written: str) -> bool:
    """Whether a word can be a password: no number, no word that is a setting, no path."""
    is_path = "://" in written or written.startswith(("/", "./", "~"))
    is_word = len(written) > 3 and not written.replace(".", "").isdigit() and not is_path
    is_code = is_plain(written, "", is_quoted=False) and "." not in written
    return is_word and not is_code and not is_plain(written, "", is_quoted=True)


_MAP = re.compile(
    r"(?m)^(?P<indent>[ \t]{0,40}+)(?:-[ ])?[\"']?(?P<name>[\w.-]{3,60}+)[\"']?:[ \t]{0,8}\r?\n"
)
_ENTRY_OF_MAP = re.compile(
    r"(?P<indent>[ \t]{1,60}+)(?:-[ ]{1,4}|[\"']?(?P<key>[\w.@/-]{1,60}+)[\"']?:[ ]{1,8}(?=\S))"
    r"(?P<quote>[\"'])?+(?P<value>(?(quote)[^\"'\r\n]{1,200}+"
    r"|[^\s\"'\[{&*!|>#:][^\s\"'#:]{0,200}+(?:[ ][^\s\"'#=:,]{2,40}+){0,3}+))[\"']?"
    r"[ \t]{0,8}(?:\#[^\r\n]{0,100}+)?(?:\r?\n|\Z)"
)
_VALUES = ("value", "default", "plain", "plaintext", "text", "data", "current", "new")
_MAPS = ("passwords", "credentials", "creds", "passwds", "pwds")


def in_maps(text: str, names: SecretNames) -> Iterator[Span]:
    """The entries of YAML below the name of some secrets: `passwords:`."""
    for found in _MAP.finditer(text):
        is_list = squashed(found["name"]).endswith(_MAPS)
        if not is_list and not names.is_secret(found["name"]):
            continue
        at = found.end()
        while (entry := _ENTRY_OF_MAP.match(text, at)) is not None:
            if len(entry["indent"]) < len(found["indent"]):
                break
            at = entry.end()
            is_any = is_list or entry["key"] in _VALUES
            if _is_entry(entry, is_list=is_any) if entry["key"] else _is_word(entry["value"]):
                yield entry.span("value")


# --- tables ---------------------------------------------------------------------------------------

_LINES = re.compile(r"[^\r\n]{1,2000}+")
_RULE = re.compile(r"[-+=|:\s─┼│]+")
_CELL = re.compile(r"[\s\"'`]*([\w .#-]{1,40}?)[\s\"'`]*")
_MOST_ROWS = 100


def in_tables(text: str, names: SecretNames) -> Iterator[Span]:
    """Where cells stand under the name of a secret column."""
    columns: list[int] = []
    sign, width, rows = "", 0, 0
    for line in _LINES.finditer(text):
        if columns and rows < _MOST_ROWS and line[0].count(sign) == width:
            rows += 1
            yield from _cells(line, sign, columns)
        elif not _RULE.fullmatch(line[0]):
            columns, sign = _header(line[0], names)
            width, rows = line[0].count(sign) if sign else 0, 0


_TITLE = re.compile(r"[A-Za-z_][A-Za-z_ ]*+")
_SPACES = re.compile(r"[^\s|,;](?:[ ]?[^\s|,;]){0,200}+")


def in_columns(text: str, names: SecretNames) -> Iterator[Span]:
    """What looks random under the name of a secret column, if spaces are between the columns."""
    columns: list[int] = []
    header: list[str] = []
    is_head = False
    width = 0
    for line in _LINES.finditer(text):
        cells = list(_SPACES.finditer(line[0])) if "  " in line[0] else []
        if columns and len(cells) == width:
            for number in columns:
                if _is_cell(cells[number][0], header[number] if is_head else ""):
                    yield line.start() + cells[number].start(), line.start() + cells[number].end()
            continue
        width = len(cells) if len(cells) > 1 else -1
        header = [cell[0] for cell in cells]
        is_head = all(map(_TITLE.fullmatch, header))  # `db-password  Opaque  1` is none
        columns = [number for number, cell in enumerate(cells) if names.is_secret(cell[0])]


def _is_cell(written: str, name: str) -> bool:
    """Whether a cell is a secret; under the name of a password, a word is one too."""
    if is_random(written, is_named=True):
        return True
    is_password = squashed(name).endswith(("password", "passwd", "pwd", "passphrase", "passwort"))
    return is_password and " " not in written and _is_word(written)


_RECORD = re.compile(r"(?m)^[-*]\[ RECORD [0-9]{1,9} \][^\r\n]{0,200}\r?\n")
_RECORD_LINE = re.compile(r"([\w $.-]{1,60}?)[ ]{0,60}\|[ ]?([^\r\n]{0,2000}+)(?:\r?\n|\Z)")
_ONE_COLUMN = re.compile(
    r"(?m)^[ \t]{0,40}([\w.]{2,60}+)[ \t]{0,40}\r?\n[ \t]?[-=]{3,200}+[ \t]{0,8}\r?\n"
    r"((?:[ \t]{0,8}[^\s()\r\n]{1,200}+[ \t]{0,8}(?:\r?\n|\Z)){1,40}+)"
)


def in_results(text: str, names: SecretNames) -> Iterator[Span]:
    """The records that psql prints below each other, and tables of one column."""
    for record in _RECORD.finditer(text):
        at = record.end()
        while (line := _RECORD_LINE.match(text, at)) is not None:
            at = line.end()
            if names.is_secret(line[1]) and line[2].strip():
                yield line.span(2)
    for table in _ONE_COLUMN.finditer(text):
        for cell in _WORD.finditer(text, *table.span(2)) if names.is_secret(table[1]) else ():
            if _is_cell(cell[0], table[1]):
                yield cell.span()


_WORD = re.compile(r"\S+")


def _header(line: str, names: SecretNames) -> tuple[list[int], str]:
    """The numbers of secret columns, and what is between the columns."""
    for sign in "|\t;,":
        cells = line.split(sign) if sign in line else []
        found = [_CELL.fullmatch(cell) for cell in cells]
        secret = [
            number
            for number, cell in enumerate(found)
            if cell is not None and cell[1].strip() and names.kind(cell[1])
        ]
        if secret and _is_header(cells, found):
            return secret, sign
    return [], ""


def _is_header(cells: list[str], found: list[re.Match[str] | None]) -> bool:
    """Whether each cell is empty or a name."""
    if any(is_random(cell.strip()) for cell in cells):
        return False
    return all(
        cell is not None or not written.strip() for cell, written in zip(found, cells, strict=True)
    )


def _cells(line: re.Match[str], sign: str, columns: list[int]) -> Iterator[Span]:
    at = line.start()
    for number, cell in enumerate(line[0].split(sign)):
        if number in columns:
            start = at + len(cell) - len(cell.lstrip(" \t\"'`"))
            end = at + len(cell.rstrip(" \t\"'`"))
            if start < end and is_secret_value(
                "secret", "", cell.strip(" \t\"'`"), is_quoted=False
            ):
                yield start, end
        at += len(cell) + 1


# --- XML, HTML and forms --------------------------------------------------------------------------

_ELEMENT = re.compile(r"<([A-Za-z_][\w:.-]{0,100}+)((?:\s[^<>]{0,1000}+)?+)>")
_NAMING = re.compile(r"(?i)(?:name|key|k|id|property|field|label|param)=[\"']([^\"']{1,100})[\"']")
_TEXT = re.compile(
    r"(?:<!\[CDATA\[)?+((?:[^<\]]++|\](?!\]>))++)(?=</|\]\]>|\Z)|<!\[CDATA\[(.{1,2000}?)\]\]>",
    re.DOTALL,
)
_SIBLING = re.compile(
    r"<(?:[\w.-]{1,40}[:-])?(?:(?:key|name|id|field|parameter|t[dh]|dt|b|strong|label)(?:\s[^<>]{0,200}+)?+"
    r"|(?:span|div|p)\s(?=[^<>]{0,200}(?:label|name|key|term|title))[^<>]{0,200}+)>\s{0,40}+"
    r"(?:[\w$.-]{0,60}+/){0,8}+([\w$.-][\w$. -]{0,98}[\w$.-])\s{0,40}+:?\s{0,40}+"
    r"</[^<>]{1,100}+>\s{0,200}+(?:<[\w:.-]{1,100}+(?:\s[^<>]{0,400}+)?+>\s{0,40}+){0,3}+"
    r"([^<]{1,4000}+)",
    re.IGNORECASE,
)
_VALUE_BEFORE = re.compile(
    r"<value>([^<]{1,4000}+)</value>\s{0,200}+<(?:key|name)>\s{0,40}+"
    r"(?:[\w$.-]{0,60}+/){0,8}+([\w$.:-]{1,100}+)",
    re.IGNORECASE,
)
_PART = re.compile(
    r"form-data;[^\r\n]{0,100}?(?<![a-z])name=\\*+[\"']?([\w$.\[\]-]{1,100}+)[^\r\n]{0,400}+"
    r"(?:\r?\n[^\r\n]{1,400}+){0,8}+"
    r"\r?\n\r?\n((?:(?!\r?\n--).){1,16000}+)",
    re.DOTALL,
)
_INNER = re.compile(
    r"(?:\s{0,200}+<[A-Za-z][\w:.-]{0,60}+(?:\s[^<>]{0,400}+)?+(?<!/)>){1,3}+(?=[^<]*[^<\s])"
)
"""Elements in an element, before the first text."""
_INSIDE = 4000


def in_elements(text: str, names: SecretNames) -> Iterator[Span]:
    """Where the contents of secret elements stand."""
    at = 0
    while (found := _ELEMENT.search(text, at)) is not None:
        at = found.end()
        name = _name_of(found, names)
        if not name or found[2].endswith("/"):
            continue
        span = _content(text, found)
        kind = names.kind(name)
        if span and span[1] == len(text) and not _is_content(text[slice(*span)]):
            continue  # `<password>` of a usage line, and no element
        if span and is_secret_value(kind, name, text[slice(*span)], is_quoted=True):
            yield span
            at = span[1]


def _is_content(written: str) -> bool:
    """Whether it can be the content of an element that nothing closes."""
    return is_random(written) and not written.startswith("@")


def _name_of(found: re.Match[str], names: SecretNames) -> str:
    """The secret name of an element: its tag, or its attribute `name`."""
    tag = found[1].rpartition(":")[2]
    if names.kind(tag):
        return tag
    naming = _NAMING.search(found[2])
    return naming[1] if naming is not None and names.kind(naming[1]) else ""


def _content(text: str, found: re.Match[str]) -> Span | None:
    """What stands in an element, without the space around it."""
    start = found.end()
    inner = _INNER.match(text, start)
    if inner is not None:
        start = inner.end()
    content = _TEXT.match(text, start)
    if content is not None and content[content.lastindex or 0].strip():
        start, end = content.span(content.lastindex or 0)
    else:
        end = text.find(f"</{found[1]}", start, start + _INSIDE)
    written = text[start:end] if end > 0 else ""
    start += len(written) - len(written.lstrip())
    return (start, start + len(written.strip())) if written.strip() else None


def in_siblings(text: str, names: SecretNames) -> Iterator[Span]:
    """Where the value stands beside an element with a secret name: `<key>password</key>`."""
    for pattern, name, value in ((_SIBLING, 1, 2), (_VALUE_BEFORE, 2, 1)):
        for found in pattern.finditer(text):
            is_head = "<th" in found[0][3:].lower() and found[0][:3].lower() == "<th"
            written = found[value].strip()
            if not names.kind(found[name]) or not written or is_head or is_prose(written):
                continue
            if not is_plain(written, found[name], is_quoted=False):
                yield found.span(value)


_ROW = re.compile(r"(?i)<tr\b[^<>]{0,200}+>")
_HEAD = re.compile(r"(?i)<t[dh]\b[^<>]{0,200}+>\s{0,40}+(?:<\w{1,10}+>\s{0,9}+)?+([^<>]{0,400}+)")
_MOST_CELLS = 60


def in_grids(text: str, names: SecretNames) -> Iterator[Span]:
    """Where cells stand under the name of a secret column, in a table of HTML."""
    columns: list[int] = []
    width = 0
    starts = [0, *(row.end() for row in _ROW.finditer(text)), len(text)]
    for start, end in pairwise(starts):
        cells = [cell.span(1) for cell in _HEAD.finditer(text, start, end)][:_MOST_CELLS]
        written = [text[slice(*cell)].strip() for cell in cells]
        if columns and len(cells) == width:
            for number in columns:
                if is_secret_value("secret", "", written[number], is_quoted=False):
                    yield cells[number]
        elif len(cells) > 1:
            width = len(cells)
            columns = [number for number, name in enumerate(written) if names.is_secret(name)]


def in_multipart(text: str, names: SecretNames) -> Iterator[Span]:
    """Where the secret fields of a multipart form stand."""
    for found in _PART.finditer(text):
        if names.kind(found[1]):
            yield found.span(2)
