"""Secrets in statements and messages of databases: `IDENTIFIED BY x`, `Key (token)=(x)`."""

from __future__ import annotations

import re

from mainstay.core.redact.names import IN_QUERY, SURE, words_of
from mainstay.core.redact.plain import is_plain, is_random
from mainstay.core.redact.values import value_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.redact.names import SecretNames

    Span = tuple[int, int]

_CLAUSE = re.compile(
    r"""(?i)(?:\bIDENTIFIED\s{1,9}+(?:WITH\s{1,9}+\S{1,60}+\s{1,9}+)?(?:BY|AS|USING)\s{1,9}+(?:RANDOM\s|PASSWORD\s{1,9}+|VALUES\s{1,9}+)?
      |\bATTACH\s[^\r\n;]{1,200}?\sKEY\s{1,9}+(?=')
      |\bPRAGMA\s{1,9}+(?:re)?key\s{0,9}+=\s{0,9}+(?=["'])
      |\bSET\s{1,9}+PASSWORD\s{1,9}+(?:FOR\s{1,9}+\S{1,100}+\s{1,9}+)?=\s{0,9}+(?=["'])
      |\b(?:PASSWORD|OLD_PASSWORD|ENCRYPT|crypt|hashbytes|decryptbypassphrase|encryptbypassphrase|pgp_sym_encrypt|pgp_sym_decrypt|aes_encrypt)\((?=['"]))""",
    re.VERBOSE,
)
_KEYED = re.compile(  # what encrypts its first argument with the second one
    r"""(?i)\b(?:pgp_sym_\w{2,12}|aes_(?:en|de)crypt|(?:en|de)cryptbypassphrase)
    \((?:'[^'\r\n]{0,200}+'|[^()'",\r\n]{1,80}+),[ ]?(?=['"]|\$\w{0,20}\$)""",
    re.VERBOSE,
)
_CLAUSES = (
    "identified",
    "attach ",
    "pragma",
    "set password",
    "password(",
    "crypt(",
    "phrase(",
    "hashbytes(",
)
_NAMED = re.compile(
    r"(?i)(?<![\w'`$-])(?:(?<!\")|(?=\w{3,60}+[ ]))(?<!unexpected )([A-Za-z_]\w{2,60}+)"
    r"(?:[\"`\])]{1,2}(?:::\w{1,20}+)?+[ ]{0,4}+=[ ]{0,4}+|[\"`\]]?[ ]{1,4}+)"
    r"(?:(?:(?:NOT[ ])?(?:I?LIKE|IN|REGEXP)|<>|!=)[ ]{0,4}+\(?)?+"
    r"(?=[NEq]?'{1,2}[^'\s]|\$\w{0,20}\$)"
)
_QUALIFIED = re.compile(
    r"(?i)(?<!\w)(\w{3,60}+)[\"`\]]?\.[\"`\[]?(?:key|value|val|hash|digest|code|data|body|content)"
    r"[\"`\]]?[ ]?=[ ]?(?=N?E?'[^'\s])"
)
"""A column that is secret by its table: `"authtoken_token"."key" = '…'`."""
_NEXT_ITEM = re.compile(r"'[ ]?,[ ]?N?'([^'\r\n]{1,400}+)'")
_PROCEDURE = re.compile(
    r"(?i)\b(sp_password|sp_addlogin|sp_addlinkedsrvlogin|sp_addapprole|xp_cmdshell_proxy)\b[ ]"
)
_ARGUMENT = re.compile(r"N?'((?:[^']|'')*+)'")
_KEY = re.compile(
    r"\(((?:[^()]|\([^()]{0,100}+\)){1,400}+)\)=\(((?:[^()]|\([^()]{0,60}+\)){1,4000}+)\)"
)
_INSERT = re.compile(
    r"(?i)\b(?:INTO|REPLACE)\s{1,9}+[^\s(]{1,200}+\s{0,9}+\(([^()]{1,2000}+)\)\s{0,20}+"
    r"(?:OUTPUT\s\S{1,80}\s{1,9}+|OVERRIDING\s\w{1,9}\sVALUE\s{1,9}+)?"
    r"(?:VALUES?\s{0,20}+|(?P<select>\(?SELECT\s{1,20}+(?:DISTINCT\s|ALL\s)?))"
)
_TUPLE = re.compile(  # WITH x (name, password) AS (VALUES …; (name, password) = (…)
    r"(?i)\(([\w\s,.\"`\[\]]{3,400}+)\)\s{0,9}+"
    r"(?:AS\s{1,9}+(?:(?:NOT\s)?MATERIALIZED\s)?\(\s{0,9}+VALUES|(?:=|<>|!=|(?:NOT\s)?IN\s{0,9}+\()"
    r"(?=\s{0,9}+(?:ROW\s{0,4}+)?\()|FROM\sSTDIN(?P<copy>)[^\r\n]{0,100}\r?\n)"
)
_DERIVED = re.compile(  # (VALUES (…)) AS x (name, password)
    r"(?i)\(\s{0,9}+VALUES(?=((?:[^()]|\([^()]{0,1000}+\)){1,1000}+)\)\s{0,9}+(?:AS\s{1,9}+)?[\w\"]{1,60}+"
    r"\s{0,9}+\(([^()]{1,400}+)\))"
)
_ROW = re.compile(r"\s{0,20}+,?\s{0,20}+(?i:ROW\s{0,4}+)?\(")
_SELECTED = re.compile(
    r"\s{0,20}+(?:N?E?'(?P<text>(?:[^'\\]|''|\\.)*+)'|[^,;'()]{1,100}+(?:\([^()]{0,200}+\))?)"
    r"[^,;'()]{0,60}+(?P<more>,)?"
)
_CELL = re.compile(
    r"\s{0,20}+((?:N?E?'(?:[^'\\]|''|\\.)*+'|\"[^\"]*+\"|\([^()]{0,200}+\)|[^,()'\"])*+)([,)])"
)
_PARAMETERS = re.compile(
    r"(?i)\[SQL:(?P<sql>(?:(?!\[parameters:)[\s\S]){1,4000}+)\[parameters:[ ](?P<secret>[(\[]"
    r"(?:[^\]]|\](?!\Z|\s|\]))*+)"
)
_WORD = re.compile(r"[A-Za-z_][\w$]{1,60}+")
_FAILING = re.compile(
    r"(?i)(?:Failing row contains|Duplicate entry) ?[('](?P<row>(?:(?!\)\.)[^\r\n]){1,2000}+)"
)
_ITEM = re.compile(r"[^\s,()']{12,}+")


_REPLACED = re.compile(r"(?i)\bIDENTIFIED\s{1,9}+BY\s{1,9}+\S{1,100}+\s{1,9}+REPLACE\s{1,9}+")


def in_sql(text: str, lowered: str, names: SecretNames) -> Iterator[Span]:
    """Where the secrets of statements stand."""
    for sign in _CLAUSES:
        if sign in lowered:
            yield from _in_clauses(text)
            break
    if "sp_" in lowered:
        for call in _PROCEDURE.finditer(text):
            for argument in _ARGUMENT.finditer(text, call.end(), call.end() + 400):
                if len(argument[1]) > 4:
                    yield argument.span(1)
    if _has_text(text):
        yield from _compared(text, names)


def _compared(text: str, names: SecretNames) -> Iterator[Span]:
    """What a secret column is compared with, or set to."""
    for named in _NAMED.finditer(text):
        if names.is_secret(named[1]):
            value = value_at(text, named.end(), _NEAR)
            written = text[value.start : value.end]
            is_password = "pass" in named[1].lower() or "SECRET" in named[1] or is_random(written)
            if is_password and not is_plain(written, named[1], is_quoted=True):
                yield value[:2]
                yield from _others(text, value.end) if named[0].endswith("(") else ()
    for column in _QUALIFIED.finditer(text):
        value = value_at(text, column.end(), _NEAR)
        is_named = names.is_secret(column[1]) or not SURE.isdisjoint(words_of(column[1]))
        if is_named and is_random(text[value.start : value.end]):
            yield value[:2]


def _others(text: str, at: int) -> Iterator[Span]:
    """The other items of a list: `token IN ('x', 'y')`."""
    while (item := _NEXT_ITEM.match(text, at)) is not None:
        at = item.end() - 1
        yield item.span(1)


def _has_text(text: str) -> bool:
    """Whether a text of SQL may stand in it."""
    return (
        " '" in text
        or "$$" in text
        or " $" in text
        or " q'" in text
        or "='" in text
        or "('" in text
        or " E'" in text
        or " N'" in text
    )


def _in_clauses(text: str) -> Iterator[Span]:
    for clause in (*_CLAUSE.finditer(text), *_KEYED.finditer(text), *_REPLACED.finditer(text)):
        value = value_at(text, clause.end(), _NEAR)
        if not is_plain(text[value.start : value.end], "", is_quoted=value.is_quoted):
            yield value[:2]


def in_rows(text: str, names: SecretNames) -> Iterator[Span]:
    """Where the values of secret columns stand, by their place."""
    for key in _KEY.finditer(text):
        if any(names.kind(word[0]) for word in _WORD.finditer(key[1])):
            yield key.span(2)
    for insert in _INSERT.finditer(text):
        columns = _kinds(insert[1], names)
        if any(columns):
            found = _inserted if insert["select"] is None else _selected
            yield from found(text, insert.end(), columns)
    done = 0
    for row in _TUPLE.finditer(text):
        columns = _kinds(row[1], names)
        if any(columns) and row.start() >= done:
            found = _inserted if row["copy"] is None else _copied
            for span in found(text, row.end(), columns):
                yield span
                done = span[1]
    for row in _DERIVED.finditer(text):
        columns = _kinds(row[2], names)
        if any(columns):
            yield from _inserted(text, row.end(), columns)


def _kinds(columns: str, names: SecretNames) -> list[str]:
    """What sort of secret each column is, or none."""
    kinds = [names.kind(column.strip(' "`[]\r\n')) for column in columns.split(",")]
    return ["" if kind in IN_QUERY else kind for kind in kinds]


def _selected(text: str, at: int, columns: list[str]) -> Iterator[Span]:
    """The secret texts that a SELECT gives to an INSERT."""
    for column in columns:
        cell = _SELECTED.match(text, at)
        if cell is None:
            return
        at = cell.end()
        if column and cell["text"] and not is_plain(cell["text"], "", is_quoted=True):
            yield cell.span("text")
        if cell["more"] is None:
            return


def _copied(text: str, at: int, columns: list[str]) -> Iterator[Span]:
    """The secret cells of lines that a COPY reads."""
    while at < len(text) and not text.startswith("\\.", at):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        cells = text[at:end].split("\t")
        if len(cells) != len(columns):
            return
        for column, cell in zip(columns, cells, strict=True):
            if column and cell.strip() not in ("", "\\N"):
                yield at, at + len(cell.rstrip("\r"))
            at += len(cell) + 1


def _inserted(text: str, at: int, columns: list[str]) -> Iterator[Span]:
    """The secret cells of the rows of an INSERT."""
    while (row := _ROW.match(text, at)) is not None:
        at = row.end()
        for column in columns:
            cell = _CELL.match(text, at)
            if cell is None:
                return
            at = cell.end()
            if column and not is_plain(cell[1].strip("'\" "), "", is_quoted=False):
                start, end = cell.span(1)
                is_quoted = cell[1][:1] in "'\""
                yield (start + is_quoted, end - is_quoted)
            if cell[2] == ")":
                break


_BOUND = re.compile(
    r"(?i)(?:(?<!\[)|(?=parameters=\[))\b(?:parameters?|params|bind(?:s|ings?)?"
    r"|args)\b(?:[ ]?[(\[][0-9]{1,3}[)\]][ ]as[ ]\[[A-Z_]{2,20}\])?+"
    r"[^\r\n:=({\[$]{0,30}+[\"']?[ ]?[:=-]{0,2}[ ]?[\"']?"
    r"(?P<secret>[(\[](?!\d{1,3}[\])])[^\r\n]{1,2000}+|\$1 = [^\r\n]{1,2000}+"
    r"|[^\r\n]{1,400}?\(String\)[^\r\n]{0,400}+)"
)
_STATEMENT = re.compile(r"(?i)\b(?:select|insert|update|delete|merge|statement)\b")
_AROUND = 1000


def _is_statement(text: str, names: SecretNames) -> bool:
    """Whether it is a statement with a secret column."""
    return _STATEMENT.search(text) is not None and any(
        names.is_secret(word[0]) for word in _WORD.finditer(text)
    )


_SELECT = re.compile(r"(?i)\bselect\b")
_WHERE = re.compile(r"(?i)\bwhere\b")
_DOTTED = re.compile(r"[A-Za-z_][\w$.]{1,60}+")


def _columns(sql: str) -> list[str]:
    """The columns of a statement that have parameters: those that are only selected have none."""
    is_query = _SELECT.match(sql.lstrip()) is not None and len(_SELECT.findall(sql)) == 1
    if not is_query:
        return [word[0] for word in _WORD.finditer(sql)]
    where = _WHERE.search(sql)
    start = len(sql) if where is None else where.end()
    return [word[0].rpartition(".")[2] for word in _DOTTED.finditer(sql, start)]


def in_parameters(text: str, names: SecretNames) -> Iterator[Span]:
    """The parameters of a statement with a secret column."""
    for found in _PARAMETERS.finditer(text):
        if any(map(names.is_secret, _columns(found["sql"]))):
            yield found.span("secret")
    for found in _BOUND.finditer(text):
        start, end = found.span("secret")
        value = value_at(text, start, end - start)
        end = value.end if value.is_quoted else end
        behind = start if text.startswith("$1", start) else end  # a statement may be in the line
        around = text[max(0, start - _AROUND) : start] + text[behind : end + _AROUND]
        if _is_statement(around, names):
            yield start, end


def in_failing_rows(text: str) -> Iterator[Span]:
    """The secrets of a row that a database refuses, whatever its columns are."""
    for found in _FAILING.finditer(text):
        start = found.start("row")
        for item in _ITEM.finditer(text, start, found.end("row")):
            if is_random(item[0], 16) and not _UUID.fullmatch(item[0]):
                yield item.span()


_DUPLICATES = (
    re.compile(
        r"(?i)Duplicate entry '(?P<secret>[^'\r\n]{1,400}+)' for key '(?P<name>[\w.]{1,100}+)'"
    ),
    re.compile(
        r"(?i)\bcolumns? \((?P<name>[\w, ]{1,200}+)\) values? \('?(?P<secret>[^'()\r\n]{1,400}+)"
    ),
    re.compile(
        r"(?i)unique (?:index|constraint|key) '(?P<name>\w{1,100}+)'[^\r\n]{0,100}?"
        r"duplicate key value is \((?P<secret>[^()\r\n]{1,400}+)\)"
    ),
    re.compile(
        r"(?i)index: (?:[\w.]{1,100}\$)?(?P<name>\w{1,100}+) dup key: \{ :? ?"
        r"\\?\"(?P<secret>[^\"\\\r\n]{1,400}+)"
    ),
)
"""What a unique column has already: MySQL, Oracle, SQL Server, MongoDB."""


def in_duplicates(text: str, names: SecretNames) -> Iterator[Span]:
    """The value of a secret column that is there twice."""
    for pattern in _DUPLICATES:
        for found in pattern.finditer(text):
            words = words_of(found["name"])
            if not SURE.isdisjoint(words) or names.is_secret(found["name"]):
                yield found.span("secret")


# --- statements in the logs of drivers ------------------------------------------------------------

_WRITTEN = re.compile(
    r"(?i)\b(?:insert\s{1,9}(?:\w{1,9}\s)?into|update\s\S{1,100}\sset|select\s|delete\sfrom"
    r"|merge\sinto|replace\sinto|exec\ssp_executesql)"
)
_PLACE = re.compile(
    r"(?<![\w\"'])\?(?!\w)|%s|%\(\w{1,40}\)s|\$[0-9]{1,3}\b|(?<=[\s(=,]):[a-z_]\w{0,40}"
    r"|@p?[0-9]{1,3}\b(?![ ]?=)"
)
_FAR = 3000
_LITERAL = r"(?:[NbE]?[\"']|-?[0-9]|None\b|null\b|true\b|false\b|True\b|False\b|NULL\b|datetime)"
_ARGUMENTS = re.compile(
    rf"""(?:[^\[({{\r\n]{{0,200}}?(?:\r?\n[^\[({{\r\n]{{0,200}}?)?
      (?:[\[(][a-zA-Z][^\[\](){{}}\r\n]{{0,60}}[\])][ ])?)??
    (?:(?<!\w)(?P<list>[\[({{])[ ]?(?![0-9]{{1,3}}[\])])(?={_LITERAL})
     (?=[^\r\n]{{0,600}}[\"'])
      |[\"'][ ]?,\s{{0,20}}(?P<words>(?={_LITERAL}))
      |;?[ ]?(?P<set>@\w{{1,20}}[ ]?=[ ]?N?'[^\r\n]{{1,600}}))""",
    re.VERBOSE,
)
_ARGUMENT_TEXT = re.compile(r"\"([^\"\r\n]{1,400}+)\"|'((?:[^'\r\n]|''){1,400}+)'|[()\r\n]")


def in_drivers(text: str, names: SecretNames) -> Iterator[Span]:
    """The values behind a statement that has places for them, and a secret column."""
    statements = [*_WRITTEN.finditer(text)]
    for number, statement in enumerate(statements):
        last = statement.start() + _FAR
        if number + 1 < len(statements):
            last = min(last, statements[number + 1].start())
        place = None
        for place in _PLACE.finditer(text, statement.end(), last):  # noqa: B007  the last one
            pass
        if place is None:
            continue
        sql = text[statement.start() : place.end()]
        found = _ARGUMENTS.match(text, place.end())
        if found is not None and any(map(names.is_secret, _columns(sql))):
            yield from _given(text, found)


def _given(text: str, found: re.Match[str]) -> Iterator[Span]:
    """The values themselves: in brackets, as further arguments, or with names of their places."""
    if found["list"] is not None:
        value = value_at(text, found.start("list"), _FAR)
        yield value[:2]
        return
    start, end = found.span("set") if found["set"] else (found.end(), found.end() + _FAR)
    for argument in _ARGUMENT_TEXT.finditer(text, start, end):
        if argument.lastindex is None:
            return
        yield argument.span(argument.lastindex)


_NEAR = 400
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
