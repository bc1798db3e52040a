"""Secrets that have a name: `password=…`, `"apiKey": "…"`, `?token=…`, `Cookie: …` in a text.

The text is walked from name to name, so that a value is seen whole, with its quotes and escapes,
however it is written: JSON, a query, a connection string, a Python dictionary, a command line, what
other languages print of their records.
"""

from __future__ import annotations

import re

from mainstay.core.redact.names import (
    ENDINGS,
    IN_QUERY,
    KEY,
    SECRET,
    WORDS,
    SecretNames,
    squashed,
)
from mainstay.core.redact.plain import is_dense, is_key, is_plain, is_random, is_secret_value
from mainstay.core.redact.shapes.expressions import below, fallbacks
from mainstay.core.redact.values import (
    Value,
    all_words,
    boxed,
    line_at,
    more_values,
    rest_of_line,
    value_at,
    with_next_word,
    word_of_shell,
)

__all__ = ["ENDINGS", "WORDS", "SecretNames", "named_values", "squashed"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Span = tuple[int, int]

_NAME = re.compile(
    r"""(?<![\w$.-])(?:
      (?P<option>--?[A-Za-z][\w-]*+)(?:["']?+,?[ \t]++|["'],(?=["']))(?![-=:|])   # --token x
    | (?:(?<=[(\[{]["'`])|(?<=[(\[{][ b]["'])|(?<=\{<<"))
      (?P<pair>[\w$.-]++)["'](?:>>)?+,[ \t]{0,60}+  # ("token", "x")
    | (?:(?<=[\[{(])|(?<=[\[{(]:))
      (?P<item>[A-Za-z][\w$.-]*+),[ \t]?(?=\S)  # {password,"x"}, [Secret, x]
    | (?<=\()(?P<list>[A-Za-z][\w$.-]*+)[ ](?=[^\s()]{6,200}+\))    # (password hunter2)
    | (?P<dotted>[\w$-]{1,60}+)[ ]?\.{4}\.*+[ ]?                            # password....hunter2
    | (?P<quoted>[\w$.-]++)\\*+["'`](?:>>|\)?+\]?+)(?::(?:protected|private)\])?+  # "password": "x"
      \s{0,60}+(?:=>|:=|\|\|=|\?\?=|==?|:(?!:)|\uff1a|;(?=s:[0-9]))\s{0,200}+
    | (?P<boxed>[\w$]++)(?:[ ]?\{[ ]?|\()(?:value|inner|val|raw|data)[ ]?[:=][ ]?(?=["'])
    | (?:(?<=set[ ])|(?<=\\)|(?<=\{))(?P<braced>[\w$.-]++)[ ]?(?=\{[^{}\r\n]{3,100}+\})
    | (?P<filled>[\w$]++)(?=\{["'][^"'\r\n]{1,200}+["']\})
    | (?:(?<=ENV[ ])|(?<=ARG[ ])|(?<=set[Ee]nv[ ])|(?<=SetEnv[ ])|(?<=_param[ ])|(?<=_header[ ])
       |(?<=eader[ ]set[ ])|(?<=[ ]-gx[ ])|(?<=[ ]-Ux[ ])|(?<=^set[ ]-x[ ])
       |(?<=^set[ ]\$))(?P<env>[\w-]++)[ ](?=[^\s=])   # of Docker, of nginx
    | (?P<setter>[\w$.:]++)\((?=["'][^"'\r\n]{1,200}+["']\))          # setPassword("x")
    | (?P<name>[\w$.-]++)(?:\[(?:[0-9]{2,4})?\]|\]|\)(?=[ ]=[ ]["'])|[!?](?=:[ ]))?+
      (?:\*\*)?+
      (?:[ ]\([^()\r\n]{1,24}+\)(?=[ ]?[:=][ ]{0,4}
        (?:["'][^"'\r\n]{1,200}+["']|\S{1,200}+)[ \t]{0,8}$))?+[ \t]{0,60}+
      (?:=>\s{0,200}+|->[ ]{1,4}+|(?:<<?-|<<<|[~\u2192\u21d2])[ ]{1,4}+
      |\.[ ](?=["'])|(?:!==?|===|\|\|=?|\?\?=?|eq(?=[ ]))[ ]{0,4}+(?=["'])
      |(?:[:?+.|]?==?|::(?=[ ])|:(?!:)|\uff1a)(?:\*\*|__)?+[ \t]{0,60}+)   # password = hunter2
    | (?P<registry>[\w$]++)[ \t]{1,60}+REG_(?:EXPAND_|MULTI_)?SZ[ \t]{1,60}+(?=\S)
    | (?P<declared>[\w$]++)[ ](?i:equ|db|dc\.b)[ ](?=["'])|(?<=\.equ[ ])(?P<equ>\w++),[ ](?=["'])
    | (?<=\*)(?P<global>[\w-]++)\*[ ](?=["'])                     # of Lisp
    | (?P<typed>[\w$]++)[ ](?:As[ ])?(?i:string|str|text|\[\]byte|bytes|n?varchar2?|n?char)
      (?:\([0-9A-Za-z]{1,6}\))?[ ]?:?=[ ]?(?=N?["'`])             # a string = "x"
    | (?P<setting>[\w$]++(?:-[\w$]++)++|(?i:authorization))[ ](?:[a-z]{1,12}-[a-z]{1,12}[ ])?
      (?=["'])                                                     # pre-shared-key "x"
    | (?P<directive>(?=[\w$.-]{0,60}(?:_|[a-z][A-Z])|requirepass|masterauth|bindpw|rootpw)[\w$.-]++)
      [ ](?:--[\w-]{1,20}+[ ]){0,2}+(?=[^\s=:|-])                # requirepass hunter2
    | (?P<column>[\w$.-]++)`?+(?:[ \t]{0,60}+\|[ ]{1,60}+           # password | hunter2
      |(?:\t|[ \t]{2})[ \t]{0,60}+(?=[^\s|=:]{6,200}+[ \t]{0,60}+$))
    )""",
    re.VERBOSE | re.MULTILINE,
)
_SETS = re.compile(
    r"(?i)(?:\b|[._:])(?:set|with|change|update|assign|use)_?[a-z_]{0,20}\Z|\bSec(?:ret|ure)(?:Str|String|Bytes)\Z"
)
_DIRECTIVES = ("requirepass", "masterauth", "bindpw", "rootpw")
_HEADERS = ("authorization", "cookie")
_MORE = re.compile(r"(?:[\w'-]{1,20}+[ ]){1,2}(?:\w{1,3}')?\Z")
_FOLLOWING = re.compile(r"[ ]([\w-]{1,20}+)(?:[ ]([\w-]{1,20}+))?+")
_LEAD = 42
_WEAK_LENGTH = 200
_FORM = re.compile(r"[^\s&\"'<>;,]{1,200}+&\w{1,40}+=")
_FORM_OPTION = re.compile(r"(?:-d|-F|--data(?:-[a-z]{1,10})?|--form(?:-string)?)[ =]?[\"']?\Z")
_GRANT = re.compile(r"grant_type|authorization_code|code_verifier")
_REDIRECT = re.compile(
    r"""(?i)redirect_uri|oauth|openid|oidc|invalid_grant
    |\bstate[\"']{0,2}[ ]?(?:=>|[:=])[ ]?[\"']?[\w%.~-]{12,}""",
    re.VERBOSE,
)
_GRANTED = 300
_TOKEN = re.compile(r"[\"']?([\w~%+=-]{12,200}+)")
_NEXT = re.compile(r"[ ]([^\s,;:=\"'()<>]{6,100}+)(?=\s|[,;]|\Z)")
_UNIT = re.compile(r"[ ](?:bytes|characters|chars|days|hours|items|attempts)\b")
_PREFERENCES = re.compile(
    r"""(?i)(?:(?:(?:theme|lang|language|locale|tz|timezone|currency|consent|cookie[_-]?consent|country
      |region|dark[_-]?mode|color[_-]?scheme|colou?r[_-]?mode|i18n\w{0,12}|sidebar|layout|font[_-]?size
      |view|accept[_-]?cookies|gdpr|units?)=[a-z0-9_/.+-]{0,24}+|path=[\w/.-]{0,60}+|max-age=-?[0-9]{1,12}+
      |expires=[\w,:\x20-]{1,40}+|domain=[\w.-]{1,100}+|secure|httponly|partitioned|samesite=\w{3,6}+)
    (?:;[ ]?(?=\S)|[;\s]{0,2}\Z))++""",
    re.VERBOSE,
)
"""A cookie that holds what a person prefers, and nothing else."""
_IDENTIFIER = re.compile(r"[A-Za-z_-]+")
_FIELD_OF_GO = re.compile(r"[A-Z]\w{0,60}+:")
_QUOTES = frozenset("'\"")
_ASSIGNED = ("name", "quoted", "typed")
_ODBC = re.compile(r"\{((?=[^\r\n]{0,200}?\}\})(?:[^{}\r\n]|\}\}){1,200}+)\}(?=;|\Z)")
"""A value of ODBC that has a brace in it, which is doubled."""
_USER = re.compile(
    r"(?i)\b(?:user(?:name)?|usr|login|uid|account)[\"']?[ ]?[:=][ ]?\S{1,30}[ ,;/|]{1,3}\Z"
)
_PAIRS = ("credentials", "credential", "creds", "zugangsdaten")
_WORDS = re.compile(r"[a-z]{3,8}(?:[ ,]{1,2}[a-z]{3,8}){11,23}(?![\w,])")
"""The words of a wallet, at least twelve."""


def named_values(text: str, names: SecretNames, mentions: list[Span]) -> Iterator[Span]:
    """Where the values of secret names stand: each is mentioned, or follows a word of it."""
    at = 0
    for start in _starts(text, mentions):
        found = None if start < at else _NAME.match(text, start)
        if found is None:
            continue
        at = found.end()
        kind = found.lastgroup or ""
        name = found[kind]
        if kind == "setter" and _SETS.search(name) is None:
            continue
        what = names.kind(name)
        is_variable = what == "pass" and found[0].endswith("=")  # make test PASS=1
        first = found.start()
        if what != SECRET and kind == "name" and not is_variable:
            name, what, first = _with_words_before(text, found, name, names)
        if what == "pass" and _USER.search(text, max(0, found.start() - _LEAD), found.start()):
            what = SECRET
        if not what and names.is_key(name):
            what = KEY
        if not what or (what in IN_QUERY and not _is_in_form(text, found)):
            continue
        if found[0].endswith(": ") and _is_file(text, found, name):
            continue
        if is_in_arn(text, found.start()):
            continue
        if text[max(0, found.start() - 11) : found.start()].lower() == "unexpected ":
            continue  # what a parser found
        for secret in _secrets(text, found, name, what, first):
            yield secret
            at = max(at, secret[1])


def _is_file(text: str, found: re.Match[str], name: str) -> bool:
    """Whether it is the name of a file that a message is about: `/run/secrets/token: not found`."""
    if not (text[max(0, found.start() - 1) : found.start()] == "/" or name.endswith(".key")):
        return False
    line = text.find("\n", found.end(), found.end() + _WEAK_LENGTH)
    rest = text[found.end() : found.end() + _WEAK_LENGTH if line < 0 else line]
    return _MESSAGE.fullmatch(rest) is not None


_MESSAGE = re.compile(r"[A-Z]?[a-z]{1,20}+(?:[ ][a-z]{1,20}+){1,8}+[.]?")


def _starts(text: str, mentions: list[Span]) -> Iterator[int]:
    """Where a name may begin: at a mentioned word, and at the two behind it (`card number: …`)."""
    for number, (start, end) in enumerate(mentions):
        yield start
        following = mentions[number + 1][0] if number + 1 < len(mentions) else len(text)
        words = _FOLLOWING.match(text, end)
        for place in () if words is None else (words.start(1), words.start(2)):
            if 0 <= place < following:
                yield place


def _with_words_before(
    text: str, found: re.Match[str], name: str, names: SecretNames
) -> tuple[str, str, int]:
    """A name of two or three words, as people write them, and where it begins: `API Key: …`."""
    start = found.start()
    more = _MORE.search(text[max(0, start - _LEAD) : start])
    words = [] if more is None else more[0].split()
    for count in range(1, len(words) + 1):
        longer = "".join((*words[-count:], name))
        if name.isdigit() and words[-1].lower() == "token":
            return longer, "session", start  # of a parser
        if names.kind(longer) == SECRET:
            return longer, SECRET, start - sum(map(len, words[-count:])) - count
    if words and names.is_key(f"{words[-1]} {name}"):
        return name, KEY, start
    return name, names.kind(name), start


def _is_in_form(text: str, found: re.Match[str]) -> bool:
    """Whether the name is a parameter of a URL or a field of a form, or of OAuth."""
    first, last = max(0, found.start() - _GRANTED), found.end() + _GRANTED
    if _GRANT.search(text, first, last) is not None:
        return True
    token = _TOKEN.match(text, found.end()) if found[0][:4].lower() == "code" else None
    if token is not None and _REDIRECT.search(text, first, last):
        return is_dense(token[1]) or is_key(token[1]) or _is_parameter(text, found)
    return _is_parameter(text, found)


def _is_parameter(text: str, found: re.Match[str]) -> bool:
    """Whether the name is a parameter of a URL or a field of a form."""
    if not found[0].endswith("="):
        return False
    if text[max(0, found.start() - 1) : found.start()] in tuple("?&#"):
        return True
    before = text[max(0, found.start() - _LEAD) : found.start()]
    return _FORM_OPTION.search(before) is not None or _FORM.match(text, found.end()) is not None


def is_in_arn(text: str, at: int) -> bool:
    """Whether the name is part of the name of a resource: `arn:aws:secretsmanager:…:secret:db`."""
    return (
        text[at - 1 : at] == ":" and "arn:" in text[max(0, at - _LEAD * 2) : at].rpartition(" ")[2]
    )


def _secrets(text: str, found: re.Match[str], name: str, what: str, first: int) -> list[Span]:
    """The values of one name that begins at `first`, if they can be secrets."""
    at, kind = found.end(), found.lastgroup
    if kind == "name" and _is_header(text, at, found[0], name):
        value = line_at(text, at)
        written = text[value.start : value.end]
        is_none = is_plain(written, name, is_quoted=False) or _PREFERENCES.fullmatch(written)
        return [] if is_none else [value[:2]]
    if text[at : at + 1] in _QUOTES and _is_closed(text, found):
        return []
    box = _boxed(text, found, name) if what == SECRET else None
    if box is not None:
        return [box]
    value = value_at(text, at, None if what == SECRET else _WEAK_LENGTH)
    if value.end >= at + _WEAK_LENGTH and is_random(text[value.start : value.end]):
        value = value_at(text, at)
    if kind == "name" and found[0].endswith("="):
        value = word_of_shell(text, found.start(), value)
    words = None if value.is_quoted or value.end - at > 8 else _WORDS.match(text, at)
    if words is not None:
        return [words.span()]
    if kind == "pair" and not value.is_quoted:
        value = _argument(text, value)
    is_below = value.start == value.end or text.startswith("# ", at)
    if is_below and what == SECRET and kind in ("name", "quoted"):
        value = below(text, found.start(), at) or value
    values = more_values(text, value, is_list=name.endswith("s") and not name.endswith("ss"))
    if kind == "name" and not value.is_quoted and name.lower().endswith(_PAIRS):
        values += _paired(text, value)
    hidden = [each for each in values if _is_hidden(text, each, found, name, what)]
    if hidden and what == SECRET and (found[0].endswith(" = ") or ("_" in name and kind == "name")):
        hidden[-1] = rest_of_line(text, first, hidden[-1])
    if hidden and what == SECRET and kind in ("name", "env", "registry"):
        hidden[-1] = with_next_word(text, all_words(text, first, hidden[-1]))
    if not hidden and what == SECRET and kind in _ASSIGNED:
        return list(fallbacks(text, at, name))
    return [each[:2] for each in hidden]


def _boxed(text: str, found: re.Match[str], name: str) -> Span | None:
    """What stands in brackets as a value: `Some(x)`, `;PWD={x}}y}`."""
    at = found.end()
    braced = _ODBC.match(text, at) if text.startswith("{", at) else None
    if braced is not None and text[max(0, found.start() - 1) : found.start()] == ";":
        return braced.span(1)
    box = boxed(text, at, is_tight=found[0].endswith("="))
    if box is None or is_plain(text[box.start : box.end], name, is_quoted=False):
        return None
    return box[:2]


def _argument(text: str, value: Value) -> Value:
    """An argument without what follows the call: `('password', 255)->nullable()`."""
    end = text.find(")", value.start, value.end)
    is_inner = end < 0 or text.find("(", value.start, end) >= 0
    return value if is_inner else Value(value.start, end)


def _is_closed(text: str, found: re.Match[str]) -> bool:
    """Whether the quote that opens before a name closes right behind its sign: `grep 'token='`."""
    at, quote = found.end(), text[max(0, found.start() - 1) : found.start()]
    if quote != text[at]:
        return False
    behind = text[at + 1 : at + 2]
    is_asked = ":" in found[0] and behind in (")", ",", ";")  # input("Password: ")
    return is_asked or (found[0].endswith("=") and behind in ("", " ", "\n"))


def _paired(text: str, user: Value) -> list[Value]:
    """The password behind a user: `credentials: ann hunter2`."""
    word = _NEXT.match(text, user.end)
    is_secret = word is not None and is_random(word[1], is_named=True)
    return [Value(*word.span(1))] if word is not None and is_secret else []


def _is_header(text: str, at: int, written: str, name: str) -> bool:
    """Whether the value is the rest of a line, with its folds."""
    is_signature = "-" in name and name.lower().endswith("signature")
    if ":" not in written or not (is_signature or squashed(name).endswith(_HEADERS)):
        return False
    return not text.startswith(("[", '"', "'"), at) or text.startswith("[redacted]", at)


def _is_hidden(text: str, value: Value, found: re.Match[str], name: str, what: str) -> bool:
    """Whether the value can be a secret in this notation."""
    written = text[value.start : value.end]
    is_label = not value.is_quoted and written.endswith(":") and found[0].rstrip().endswith(":")
    if is_label or (found.lastgroup == "name" and _is_empty_field(text, found, written)):
        return False  # the name of what follows
    if what == "pass" and _TESTED.match(text, value.end):
        return False  # --- PASS: TestX (0.03s)
    if found.lastgroup == "name" and _is_phrase(found, name, written):
        return True
    if value.start >= value.end or not is_secret_value(
        what, name, written, is_quoted=value.is_quoted, is_assigned=_is_assigned(found)
    ):
        return False
    is_number = (written.isdigit() and len(written) < 8) or _ADDRESS.fullmatch(written) is not None
    is_count = is_number and _is_counted(text, found.start(), value)
    return not is_count and _is_written(text, value, found, name)


def _is_phrase(found: re.Match[str], name: str, written: str) -> bool:
    """Whether words with dots are the value of a variable of the environment, and no code."""
    is_variable = name.isupper() and found[0].endswith((": ", "=")) and " =" not in found[0]
    return is_variable and _DOTTED.fullmatch(written) is not None


_DOTTED = re.compile(
    r"(?!(?:var|locals?|data|module|self|this|env|process|secrets|config|settings|cfg|opts|options"
    r"|args|os|app|django|com|org|net|io)\.)[a-z]{2,20}(?:\.[a-z]{2,20}){2,5}"
)
_TESTED = re.compile(r"[ ]\([0-9.]{1,9}m?s\)")


def _is_assigned(found: re.Match[str]) -> bool:
    """Whether the sign before the value is one of assignment: `pass: ok` is a sentence."""
    return found[0].endswith("=") or found.lastgroup == "option"


def _is_written(text: str, value: Value, found: re.Match[str], name: str) -> bool:
    """Whether the notation is one of values; if it is one of prose too, the value must look so."""
    written = text[value.start : value.end]
    if found.lastgroup == "option" and _MYSQL.search(
        text, max(0, found.start() - _GRANTED), found.end()
    ):
        return is_random(written, is_named=True)  # it takes a value behind `=` only
    if _COMPARES.search(found[0]) and squashed(name).endswith("token"):
        return is_random(written, is_named=True)  # of a parser: token == "else"
    is_cookie = squashed(name).endswith("cookie") and _PREFERENCES.fullmatch(written) is not None
    is_bare = found.lastgroup == "quoted" and not value.is_quoted
    is_keyword = found.lastgroup == "item" and _KEYWORD.match(text, value.start) is not None
    if is_cookie or is_keyword or (is_bare and _NO_FILE.match(text, value.start) is not None):
        return False
    if found.lastgroup == "pair" and value.is_quoted:
        is_name = _IDENTIFIER.fullmatch(written) is not None and (
            squashed(written).endswith(ENDINGS) or _NAMES.match(text, value.end) is not None
        )
        return not is_name and not written.startswith("-")
    if found.lastgroup == "directive" and name.lower() in _DIRECTIVES:
        return True
    last = written.strip(" ()").rpartition(" " if found.lastgroup == "setting" else "\0")[2]
    return not _is_loose(found.lastgroup, value) or is_random(last, is_named=True)


_ADDRESS = re.compile(r"0x[0-9a-f]{6,16}")
"""Where an object is in memory."""
_KEYWORD = re.compile(r"[A-Za-z_]\w{0,60}+(?:[ ]?=(?!=)|:[ ])")
"""Another argument, which has a name of its own: `hash_password(password, rounds=12)`."""
_COMPARES = re.compile(r"[!=]=")
_NO_FILE = re.compile(r"[a-z ]{1,30}(?:not found|no such file|permission denied)\b")
"""What is wrong with a program or a file of that name."""
_NAMES = re.compile(r"[\"'],[ ]?[bru]?[\"'][A-Za-z_-]{1,40}[\"']")
"""A third item behind two: a list of names is no pair."""
_MYSQL = re.compile(r"\b(?:mysql|mariadb)[\w-]{0,12} [^\r\n;|&]{0,160}--password[ ]\Z")


def _is_empty_field(text: str, found: re.Match[str], written: str) -> bool:
    """Whether Go prints nothing for the field, and the next one follows: `{Password: User:ann}`."""
    if not found[0].endswith(": ") or _FIELD_OF_GO.match(written) is None:
        return False
    before = text[max(0, found.start() - _LEAD) : found.start()]
    return (
        before.endswith("{")
        or _FIELD_OF_GO.match(before.rpartition(" ")[0].split(" ")[-1].lstrip("&{")) is not None
    )


def _is_counted(text: str, name: int, value: Value) -> bool:
    """Whether the number is how many there are, or the id of an object: `<Token: 42>`."""
    is_object = text[name - 1 : name] == "<" and text[value.end : value.end + 1] == ">"
    return is_object or _UNIT.match(text, value.end) is not None


def _is_loose(kind: str | None, value: Value) -> bool:
    """Whether the notation is one of prose and code too, so that the value has to look random."""
    is_item = kind == "item" and not value.is_quoted
    return is_item or kind in ("column", "list", "directive", "pair", "setting")
