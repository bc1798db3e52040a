"""Where a value begins and ends in the notation it is written in.

Quotes of every sort, escaped or doubled; a wrapper around them (`Some("…")`, `string(7) "…"`);
brackets; blocks of YAML; the line of a header with its folds; a bare word. Whether what stands
there can be a secret is decided elsewhere (plain.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mainstay.core.redact import MARK
from mainstay.core.redact.plain import is_dense, is_random


class Value(NamedTuple):
    """Where a value stands, without its quotes."""

    start: int
    end: int
    is_quoted: bool = False


_WRAPPER = re.compile(
    r"""(?:(?:[A-Za-z_]\w{0,30}+(?:\.|::|->)){0,3}+
      (?:Some|Value(?:::String)?|Option|Optional|Maybe|Just|Ok|Right|[Ss]tring|str|bytes|bytearray|Box|Cow|Buffer|array
      |from|of|Ptr|List|Seq|Set|listOf|setOf
      |fromString|strdup|_?T|_|TEXT|L|secret|(?:un)?b64(?:en|de)code|unhexlify|sha[0-9]{1,3}+
      |(?:[lr]_?)?(?:[Tt]rim|[Ss]trip)\w{0,10}+|(?:[Tt]o_?)?(?:[Ll]ower|[Uu]pper)(?:[Cc]ase)?
      |(?:\w{0,12}_)?(?:(?:Query|Path|un|Un)?[Ee]scape|(?:en|de)code(?:URI\w{0,9}+)?)|valueOf|atob|btoa
      |md5|(?:un)?quote(?:_plus)?|normalize|c_str|Literal|hashpw|NewSecret|toSecret|Secur\w{0,20}+|StringBuilder|to_?[Bb]ytes
      |(?:unsafe|from)?[Pp]lain[Tt]ext|(?:non)?sensitive
      |(?:Secret|Sensitive|Masked|Plain|Secure|CString|Zeroizing)\w{0,20}+(?:(?:\.|::)(?:of|from|new))?
      |(?:static|const|reinterpret)_cast<[^<>()]{1,30}+>|new[ ]\w{1,30}+)
      !?\((?:[0-9]{1,9}+\)[ ]?|\s{0,40}+)
    | (?:[a-z]\w{0,20}+::){0,2}+[A-Z]\w{0,30}+(?:\.|::)new\(
    | [A-Za-z_][\w.]{0,40}+\((?:default|value|initial)[ ]?=[ ]?   # Field(default="x")
    | Field\(|(?i:binary[ ]|any[ ]?\([ ]?(?:array\[)?)   # the last ones of SQL
    | \[\](?:string|byte)[({]               # of Go
    | (?i:some|just|ok|right|present)[ ]\(?  # of Haskell, OCaml and F#
    | <<(?=\"[^\"\r\n]{0,400}+\">>)        # of Erlang
    | !(?:<[^<>\s]{1,80}+>|[\w/!:.-]{0,40}+)[ ]                 # a tag of YAML
    | &\w{1,40}+[ ]|/\*[^*\r\n]{0,80}+\*/[ ]?   # an anchor of YAML, a comment
    | [a-zA-Z]:[0-9]{1,9}+:                # PHP's serialize
    | (?:const[ ]|&'\w{1,20}+[ ])?+[A-Za-z&*][\w<>\[\]?|&*.]{0,30}+
      (?:[ ]\|[ ][\w<>\[\].]{1,30}+){0,3}+!?[ ]?=[ ]?   # a type, then the value
    | [A-Z][\w.]{0,30}+[\[<][^"'`\r\n;{}]{1,80}?[\]>][?!]?[ ]?=[ ]?   # one with others in it
    | (?:\([\w.*=\[\]]{1,40}+\)[ ]?|0x[0-9a-fA-F]{1,16}+[ ]
      |[&*](?!'[a-z_]\w{0,20}+[ ,>])){1,3}+  # a cast, an address
    ){1,4}(?=[bBrRuUNL@$]{0,2}+\\*+["'`])""",
    re.VERBOSE,
)
_OPENING = re.compile(
    r"(?:U&|u8R?|LR?|raw|~[sS]|[bBrRuUfFNEcs@$]{0,2}+)(?P<hashes>#{0,3})(?P<slashes>\\*+)"
    r"(?P<quote>\"\"\"|'''|''(?=\w)|\"\"(?=\w)|``(?=\w[^`'\r\n]{0,200}+'')|[\"'`“«»„”"
    r"\u2018\u2019\u201a\u2039\u203a\u300a\u300c\u300e\u3010\u00b4\uff02\uff07])"
)
_CLOSING = {
    "\u300c": "\u300d",
    "\u300e": "\u300f",
    "\u300a": "\u300b",
    "\u3010": "\u3011",
    "\u2018": "\u2019",
    "\u201a": "\u2018",
    "\u2039": "\u203a",
    "\u203a": "\u2039",
    "“": "”",
    "«": "»",
    "»": "«",
    "„": "“",
    "``": "''",
}
_BRACKET = re.compile(r"[\[{]|\((?=[\"'])|\$\(")
_IN_BRACKETS = re.compile(
    r"(\()(?=[^()\r\n]{0,60}[0-9])([^\s()\"'`,=+*]{3,60}+(?:[ ][^\s()\"'`,=+*]{3,60}+){1,3}+)\)"
)
"""Words with digits, as one value."""
_EMPHASIS = re.compile(
    r"(\*{1,2}+|__)(?=[^*_\r\n]{1,60}[ ])([^\s*_][^*_\r\n]{1,100}+)\1(?=[\s.,;]|\Z)"
)
"""Words that Markdown shows in bold type."""
_SLASHED = re.compile(
    r"(/)([^\s/][^/\r\n]{0,100}?[ ][^/\r\n]{1,100}?)/(?=[ ]{0,4}(?:[;,)]|$))", re.MULTILINE
)
"""A text of Groovy: `/two words/`."""
_NESTED = re.compile(
    r"""\"(?:[^\"\\]++|\\.)*+\"?|'(?:[^'\\]++|\\.)*+'?|[\[\]{}()]""", re.VERBOSE | re.DOTALL
)
_TAG = re.compile(
    r"(?:!![a-z]{1,20}+|&[A-Za-z]\w{0,40}+)[ ](?=[^\s\"'`=])|![A-Za-z][\w/:.-]{0,40}+[ ](?=[|>])"
    r"|![A-Za-z][\w/:.-]{0,40}+[ ](?P<tagged>[^\s\"'`|>$={\[]{8,200}+)"
    r"|\{(?i:noop|plain|clear|cleartext|text|crypt|none)\}(?=[^\s,;])"
)
_HEREDOC = re.compile(
    r"<<<?[-~]?[\"']?(?P<tag>[A-Za-z_]\w{0,30}+)[\"']?[ \t]{0,9}\r?\n"
    r"(?P<lines>(?:(?![ \t]*+(?P=tag)\b)[^\n]{0,2000}+\n?+){1,60}+)"
)
"""Lines up to a word, as shells, Ruby and Terraform have them."""
_DOLLAR = re.compile(r"(\$\w{0,20}\$)([^\r\n]{1,400}?)\1|\$/([^\r\n]{1,400}?)/\$")
"""A text of PostgreSQL, or of Groovy."""
_BLOCK = re.compile(
    r"[|>][0-9]?+[+-]?+[0-9]?+[ \t]*+\r?\n([ \t]++)([^\n]*+(?:\n\1[^\n]*+|\n(?=[ \t]*+\n))*+)"
)
"""A block of YAML: the lines that follow, as far as they are indented as the first."""
_DELIMITED = re.compile(
    r"(%[qQwWiI]|%(?=[(\[{<][^)\]}>\r\n]{1,60}[ ])|q[qw]?'?|~[sSwW])"
    r"(?:\(((?:[^()\r\n]|\([^()\r\n]{0,100}+\)){1,400}+)\)"
    r"|\[((?:[^\[\]\r\n]|\[[^\[\]\r\n]{0,100}+\]){1,400}+)\]"
    r"|\{((?:[^{}\r\n]|\{[^{}\r\n]{0,100}+\}){1,400}+)\}"
    r"|<((?:[^<>\r\n]|<[^<>\r\n]{0,100}+>){1,400}+)>"
    r"|(?P<sign>[|!/~#^+,;:@*-])((?:(?!(?P=sign))[^\r\n]){1,400}+)(?P=sign)"
    r"(?=[\s;,)\]}']|\.[a-z]|\Z))"
)
"""A text of Ruby, Perl, Elixir or Oracle: `%q(two words)`, `qq{x}`, `q'[x]'`."""
_ANGLED = re.compile(
    r"(<)(?=[^<>\r\n]{0,60}[0-9])([^\s<>\"'`=/]{3,60}+(?:[ ][^\s<>\"'`=/]{3,60}+){1,3}+)>"
    r"|<(?:code|b|i|em|strong|span|tt|kbd|pre|samp)(?:[ ][^<>\r\n]{0,100}+)?>([^<>\r\n]{1,200}+)</"
)
_RAW = re.compile(r"R\"(\w{0,16})\(([^\r\n]{1,400}?)\)\1\"")
"""A text of C++."""
_ENCLOSING = {
    "|": _BLOCK, ">": _BLOCK, "$": _DOLLAR, "(": _IN_BRACKETS,
    "%": _DELIMITED, "q": _DELIMITED, "~": _DELIMITED,
    "<": _ANGLED, "*": _EMPHASIS, "_": _EMPHASIS, "/": _SLASHED,
}  # fmt: skip
_LINE = re.compile(
    r"""(?:[^\r\n\"'`\\]++|(?<==)\"[^\"\r\n]*+\"|\\++(?![rn\"'`])
    |\r?\n[ \t]++(?![\w-]{1,60}+:[ \t\r\n]))*+""",
    re.VERBOSE,
)
"""The value of a header: to the end of the line, with its folds, or of the string it stands in."""
_BARE = re.compile(
    r"""(?:(?i:bearer|basic|digest|token|apikey)[ \t]{1,8}+(?=\S))?+
    (?: \[redacted\]
      | [^\s"'`,;&)\]}<>\\|]++|<(?!/[A-Za-z])
      | \\\r?\n[ \t]*+
      | \\[ ](?=[^\s\\])                      # a space that a shell keeps
      | \\++ (?!["'`])
      | ["'`)\]}>|] (?![\s"'`,;&)\]}>|]|\Z)
      | & (?=&\S)
      | [,;] (?![\s"'`,;&)\]}>|]|\Z|[\w.\x20-]{1,60}+=|[A-Z]\w{1,40}+:)
      | & (?![\s"'`,;&)\]}>|]|\Z|(?:amp;)?[\w.%\[\]-]{1,60}+=)
    )*+""",
    re.VERBOSE,
)
"""A value without quotes: what would close something ends it only if nothing follows."""
_SPACED = {
    quote: re.compile(rf"(?:[^{quote}\r\n\s]++|[ \t](?![\w.-]{{1,40}}+=))*+(?={quote})")
    for quote in "\"'"
}
"""The rest of a word of a shell: `"PASSWORD=two words"`."""
_LEAD = 24
_FIRST = re.compile(
    r"(?:[ \t:$+;#/|>\[*]|export |set |SET |setx |- |[0-9]{1,2}[.)] |let |local |my |var |ENV |ARG "
    r"|(?i:access|admin|account|api|app|auth|bearer|client|database|db|ftp|id|ldap|login|mail|master"
    r"|private|proxy|refresh|root|secret|service|session|shared|smtp|ssh|the|user|vpn|wi-?fi|your"
    r"|bad|current|incorrect|invalid|new|old|unknown|wrong) "
    r"){0,12}+"
)
"""What may stand before a name in a line that has nothing but it and its value."""
_REST = re.compile(
    r"((?:[ ](?!(?:or|and|if|[+*/%-]) )[^\s=:,;\"'`#(){}\[\]<>|&]{1,40}+){1,4}+)[ \t]{0,8}$",
    re.MULTILINE,
)
"""Words behind a value, to the end of its line."""
_NO_PART = (
    r"(?!(?:or|and|if|is|was|has|had|are|were|be|for|from|in|on|at|to|of|by|as|with|via|not|no|does"
    r"|did|do|got|but|because|after|before|failed|fails|rejected|invalid|expired|revoked|used|user"
    r"|host|sent|set|must|should|could|cannot|can|will|may|error|ok|status|already|too|accepted"
    r"|denied|refused|does|doesn't|isn't|wasn't|does|[+*/%|&-]|-{1,2}\w{1,30}|\#\S{0,40}"
    r"|//\S{0,40})(?:[ .,!?)\]}]|$))"
)
"""A word that goes on with a sentence, a command or a comment, and not with a value."""
_MORE = rf"((?:[ ]{_NO_PART}[^\s=:,;\"'`#(){{}}\[\]<>|&]{{1,40}}+(?![=:])){{1,4}}+)"
_OTHER_WORDS = re.compile(rf"{_MORE}(?=[ \t]{{0,8}}(?:$|[ ][#;][ ]))", re.MULTILINE)
_IN_RECORD = re.compile(
    rf"{_MORE}(?=[ ]?(?:[,;&|][ ]?(?:\w{{1,40}}+[ ]?[=:]|\Z)|[)\]}}>]|</)"
    r"|[ ][A-Za-z]\w{0,40}+[:=][^\s=])"
)
"""Words behind a value, to the next field of a record or to its end."""
_WHOLE_RECORD = re.compile(r"((?:[ ][^\s=:,;\"'`#(){}\[\]<>|&]{1,40}+){1,6}+)(?=,[ ]\w{1,40}+=|\})")
_IN_STRING = re.compile(r"=[^;=\r\n]{0,40};[ ]?\Z")
_TO_SEMICOLON = re.compile(
    rf"((?:[ ]{{1,4}}[^\s;=\"'`(){{}}\[\]<>]{{1,40}}+){{1,6}})[ ]?(?=;)"
    rf"|{_MORE}(?=[ \t]{{0,4}}(?:$|[\"'<]))",
    re.MULTILINE,
)
"""Words behind a value of a connection string."""
_OPENS = re.compile(r"(?:[{(\[,;&|<>][ ]?|[\[{]\w{1,40}+:\S{1,60}+[ ])\Z")
_AFTER_FIELD = re.compile(r"\w[\"']?[ ]?[:=][ ]?[^\s,;&]{1,40}[,;&][ ]?\Z")
_FOLLOWS = re.compile(r"\w=\S{1,60}[ ]\Z")
_CHANGED = re.compile(r"[\"'`]?[ ]{0,4}[-=]>[ ]{0,4}")
_JOINED = re.compile(
    r"[\"'](?:\\'|\"'\"|'\"'|\s{0,20}+"
    r"(?:\+{1,2}+|\.\.?|[&~^]|//|<>|\|\|(?:[ ]?\w{1,10}+\([0-9]{1,3}\)[ ]?\|\|)?|\\\n)\s{0,20}+"
    r"|\)?\.(?:append|concat|plus|add|push|write)\([ ]?|[ \t]{0,4}\r?\n[ \t]{1,40}+"
    r"(?=[bru]?[\"'][^\"'\r\n]{1,200}+[\"'](?![ ]?[:=,\]])))"
    r"[bru]?(?=[\"'])"
    r"|\"(?:(?=')|[ \t]{1,4}[bru]?(?=\"))(?=[\"'][\w!#$%&*+@-][^\"'\r\n]{0,200}[\"'])"
    r"|'(?:(?=\")|[ \t]{1,4}[bru]?(?='))(?=[\"'][\w!#$%&*+@-][^\"'\r\n]{0,200}[\"'])"
)
"""Between the parts of a text that a shell or a language puts together."""
_GLUED = re.compile(r"(?<![\"'])[\"']([A-Za-z0-9!#$%*+@_-]{3,200}+)(?=[\s;,)]|\Z)")
"""What a shell puts behind a text in quotes: `'two 'words`."""
_SPREAD = re.compile(r"[\"'](?:\.join\([ ]?[\[(]|[ ]?%[ ]?\(|\.format\()")
"""Behind a text that the texts in brackets are put into."""
_PUT_TOGETHER = re.compile(
    r"(?i)(?:[a-z_]\w{0,20}+\.)?(?:concat\w{0,5}|paste0?|str_?c(?:at)?|join|cat|s?printf|format)"
    r"\([ ]?[\[(]?"
)
_PART = re.compile(r"[^\"'()\[\]\r\n]{0,40}+(?:\"([^\"\r\n]{0,200}+)\"|'([^'\r\n]{0,200}+)')")
_ITEM = re.compile(r",[ ]?([^\s,:=\"'()\[\]{}]{3,100}+)(?![:=]|[ ]?[:=])")


def value_at(text: str, at: int, most: int | None = None) -> Value:
    """The value that begins here, as far as it is looked at.

    A caller that may find it to be no secret gives a bound, or the rest is read for each name.
    """
    last = len(text) if most is None else min(len(text), at + most)
    tag = _TAG.match(text, at) if text.startswith(("!", "&", "{"), at) else None
    if tag is not None and tag["tagged"] is not None and is_dense(tag["tagged"]):
        return Value(*tag.span("tagged"))
    at = at if tag is None or tag["tagged"] is not None else tag.end()
    raw = _RAW.match(text, at, last) if text.startswith('R"', at) else None
    if raw is not None:
        return Value(*raw.span(2), is_quoted=True)
    wrapped = _WRAPPER.match(text, at)
    opened = _OPENING.match(text, at if wrapped is None else wrapped.end())
    if opened is not None:
        start = opened.end()
        quote = opened["quote"] + opened["hashes"]
        end = closing(text, start, quote, len(opened["slashes"]), last)
        return Value(start, end, is_quoted=True)
    enclosed = _enclosed(text, at, last)
    if enclosed is not None:
        return enclosed
    if _BRACKET.match(text, at) and not text.startswith(MARK, at):
        return Value(at, _balanced(text, at, last), is_quoted=True)
    found = _BARE.match(text, at, last)
    return Value(at, at if found is None else found.end())


def _enclosed(text: str, at: int, last: int) -> Value | None:
    """The value between other signs than quotes, or in lines of its own."""
    heredoc = _HEREDOC.match(text, at, last) if text.startswith("<<", at) else None
    if heredoc is not None:
        start, end = heredoc.span("lines")
        return Value(start, start + len(text[start:end].rstrip()), is_quoted=True)
    enclosing = _ENCLOSING.get(text[at : at + 1])
    found = None if enclosing is None else enclosing.match(text, at, last)
    return None if found is None else Value(*found.span(found.lastindex or 2), is_quoted=True)


_BOX = re.compile(
    r"(?:Optional|Some|Just|Ok|Right|Success|Present|Value|Box|Cow|Lazy|Known|Loaded|Defined"
    r"|(?:Secret|Sensitive|Masked|Protected|Password|Passwd|Token|Credential|ApiKey|Plain)\w{0,20}+)"
    r"(?:\[|\(|[ ]?\{[ ]?)(?P<label>(?:value|inner|val|raw|secret|data|text)[ ]?[=:][ ]?)?+"
    r"(?P<value>[^()\[\]{}\"'`\r\n]{1,200}+)[)\]}]"
)
_VARIABLE = re.compile(
    r"[*&]{0,2}[A-Za-z_][A-Za-z_.:?]{0,60}|[A-Za-z]\w{0,30}|[\w.,*&\x20]{0,80},[\w.,*&\x20]{0,80}"
    r"|.{0,80}[|].{0,80}"
)


def boxed(text: str, at: int, *, is_tight: bool) -> Value | None:
    """What stands in the brackets of a wrapper without quotes: `Some(x)`, `Optional[x y]`.

    A variable or a type stands there in code; in data no space is before the wrapper.
    """
    found = _BOX.match(text, at)
    if found is None:
        return None
    written = found["value"].strip()
    if "=" in written:
        return None
    is_code = _VARIABLE.fullmatch(written) is not None and not is_random(written, is_named=True)
    is_type = written[:1].isupper() and written.isalnum()
    if is_code and (is_type or not (is_tight or found["label"])):
        return None
    return Value(*found.span("value"), is_quoted=True)


def line_at(text: str, at: int) -> Value:
    """The rest of a header: its line, and the lines that are folded into it."""
    found = _LINE.match(text, at)
    end = at if found is None else found.end()
    return Value(at, at + len(text[at:end].rstrip()))


def word_of_shell(text: str, name: int, value: Value) -> Value:
    """The value with its spaces, if a quote opens before the name: `-e "PASSWORD=two words"`."""
    quote = text[name - 1 : name]
    if value.is_quoted or quote not in _SPACED:
        return value
    found = _SPACED[quote].match(text, value.start)
    return value if found is None else Value(value.start, max(value.end, found.end()), True)


def rest_of_line(text: str, name: int, value: Value) -> Value:
    """The value with its spaces, if the line has nothing but a name and its value."""
    line = max(text.rfind("\n", max(0, name - _LEAD), name) + 1, name - _LEAD)
    if (
        value.is_quoted
        or value.start == value.end
        or not _FIRST.fullmatch(text, max(0, line), name)
    ):
        return value
    found = _REST.match(text, value.end)
    return value if found is None else Value(value.start, found.end(1))


def all_words(text: str, name: int, value: Value) -> Value:
    """The value with the words behind it, if it reads like one, and a line or a record ends there.

    `password=two words` is a whole line, `{user=ann, password=two words}` a record.
    """
    if value.is_quoted or not text.startswith(" ", value.end) or value.start == value.end:
        return value
    written = text[value.start : value.end]
    if MARK in written or "\\ " in written:  # a shell keeps a space that has a backslash
        return value
    if written.startswith("("):
        end = text.find(")", value.end, value.end + _LONGEST)
        return value if end < 0 or "\n" in text[value.end : end] else Value(value.start, end)
    before = text[max(0, name - _LEAD * 2) : name]
    if _BATCH.search(before) is not None and text[value.start - 1] == "=":
        found = _REST_OF_BATCH.match(text, value.end)
        return value if found is None else Value(value.start, found.end(1))
    if _IN_STRING.search(before) is not None:
        found = _TO_SEMICOLON.match(text, value.end)
        return value if found is None else Value(value.start, found.end(found.lastindex or 0))
    is_first = name <= _LEAD * 2 or "\n" in before
    is_line = is_first and _FIRST.fullmatch(before.rpartition("\n")[2]) is not None
    is_opened = _OPENS.search(before) is not None
    found = _WHOLE_RECORD.match(text, value.end) if is_opened else None
    if found is None and is_opened:
        found = _IN_RECORD.match(text, value.end)
    if found is None and not is_random(written, is_named=True):
        is_field = is_line or _FOLLOWS.search(before) is not None
        found = _IN_RECORD.match(text, value.end) if is_field else None
    if found is None and (_AFTER_FIELD.search(before) or _FOLLOWS.search(before)):
        found = None if is_random(written, is_named=True) else _OTHER_WORDS.match(text, value.end)
    if found is None and is_line:
        found = _OTHER_WORDS.match(text, value.end)
        if found is not None and is_random(written, is_named=True):
            found = found if _is_setting(text, name, found.end()) else None
    return value if found is None or is_dense(written) else Value(value.start, found.end(1))


_BATCH = re.compile(r"(?:\A|[\r\n>])[ \t@]{0,8}set[ ]\Z", re.IGNORECASE)
_REST_OF_BATCH = re.compile(
    r"(?i)((?:[ ](?!where\b|returning\b)[^\s&|<>\"'=;]{1,60}+){1,8}+)[ \t]{0,8}(?=[\r\n&|]|\Z)"
)
"""A variable of a batch file takes the rest of its line; SQL has SET too."""


def _is_setting(text: str, name: int, end: int) -> bool:
    """Whether a line before or behind this one is a setting too, as in a file."""
    if _SETTING.match(text, end) is not None:
        return True
    start = text.rfind("\n", max(0, name - _LEAD), name)
    line = text.rfind("\n", max(0, start - _LONGEST * 2), max(0, start))
    return start > 0 and _SETTING.match(text, max(0, line)) is not None


_SETTING = re.compile(r"[ \t]{0,8}\r?\n?[ \t:-]{0,8}[A-Za-z][\w.-]{0,60}+[ ]?[=:](?![=:/])")


_NEXT = re.compile(r"[ ]([^\s\"'`,;=:<>(){}\[\]]{5,60}+)(?=[ \t]{0,4}(?:\r?\n|\Z))")


def with_next_word(text: str, value: Value) -> Value:
    """The value with a second word, if that one ends the line and looks random too."""
    found = _NEXT.match(text, value.end) if text.startswith(" ", value.end) else None
    return (
        value if found is None or not is_random(found[1], 5) else Value(value.start, found.end(1))
    )


def more_values(text: str, value: Value, *, is_list: bool) -> list[Value]:
    """The values behind the first: what it was changed to, and the other items of a list."""
    together = _PUT_TOGETHER.match(text, value.start, value.start + _LONGEST)
    if together is not None and not value.is_quoted:
        return [value, *_parts(text, together.end())]
    found = [value]
    spread = _SPREAD.match(text, value.end) if value.is_quoted else None
    if spread is not None:
        return [value, *_parts(text, spread.end())]
    changed = _CHANGED.match(text, value.end) if value.is_quoted else None
    if changed is not None:
        found.append(value_at(text, changed.end()))
    while found[-1].is_quoted and (joined := _JOINED.match(text, found[-1].end)) is not None:
        found.append(value_at(text, joined.end()))
    if found[-1].is_quoted and (word := _GLUED.match(text, found[-1].end)) is not None:
        found.append(Value(*word.span(1)))
    while is_list and (item := _ITEM.match(text, found[-1].end)) is not None:
        found.append(Value(*item.span(1)))
    return found


def _parts(text: str, at: int) -> list[Value]:
    """The texts in quotes that a call puts together."""
    found: list[Value] = []
    while len(found) < _MOST and (part := _PART.match(text, at)) is not None:
        at = part.end()
        found.append(Value(*part.span(part.lastindex or 0), is_quoted=True))
    return found


_LONGEST = 60
_MOST = 20


def closing(text: str, start: int, quote: str, escapes: int, last: int) -> int:
    """Where a quoted value ends: at a quote neither doubled nor escaped more than the first."""
    quote = _CLOSING.get(quote, quote)
    at = text.find(quote, start, last)
    while at >= 0:
        before = at
        while before > start and text[before - 1] == "\\":
            before -= 1
        slashes = at - before
        if _is_escaped_by_tick(text, at, last):
            at = text.find(quote, at + 1, last)
            continue
        if slashes <= escapes if escapes else slashes % 2 == 0:
            following = _following(text, at, quote, last)
            if following > 0:
                at = following
                continue
            behind = text[at + 1 : at + 3]
            if (
                len(quote) > 1
                or escapes
                or behind[:1] != quote
                or not (behind[1:].isalnum() or behind[1:] == " ")
            ):
                return before if escapes else at
            at += 1  # doubled, as in SQL
        at = text.find(quote, at + 1, last)
    return last


def _following(text: str, at: int, quote: str, last: int) -> int:
    """Where quotes that are doubled as a whole come next, if a letter is right behind these."""
    if quote not in ("''", '""') or not text[at + 2 : at + 3].isalnum():
        return -1
    found = text.find(quote, at + 2, last)
    return -1 if "\n" in text[at : max(at, found)] else found


def _is_escaped_by_tick(text: str, at: int, last: int) -> bool:
    """Whether PowerShell reads the quote as a part of the text: another one closes the line."""
    if text[at - 1] != "`" or text[at] != '"':
        return False
    end = text.find("\n", at, last)
    return text.find('"', at + 1, last if end < 0 else end) > 0


def _balanced(text: str, at: int, last: int) -> int:
    """The end of what the bracket here opens; the end of the text, if nothing closes it."""
    depth = 0
    for part in _NESTED.finditer(text, at, last):
        depth += {"[": 1, "{": 1, "(": 1, "]": -1, "}": -1, ")": -1}.get(part[0], 0)
        if depth == 0:
            return part.end()
    return last
