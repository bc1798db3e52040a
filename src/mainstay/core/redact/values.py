"""Where a value begins and ends in the notation it is written in.

Quotes of every sort, escaped or doubled; a wrapper around them (`Some("…")`, `string(7) "…"`);
brackets; blocks of YAML; the line of a header with its folds; a bare word. Whether what stands
there can be a secret is decided elsewhere (plain.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mainstay.core.redact import MARK
from mainstay.core.redact.plain import is_random


class Value(NamedTuple):
    """Where a value stands, without its quotes."""

    start: int
    end: int
    is_quoted: bool = False


_WRAPPER = re.compile(
    r"""(?:(?:Some|Optional|Just|Ok|Right|[Ss]tring|str|bytes|bytearray|Box|Cow|Buffer|array
      |Secret\w{0,20}+(?:\.(?:of|from|new))?|Sensitive\w{0,20}+|Masked\w{0,20}+|Plain\w{0,20}+
      |new[ ]\w{1,30}+)
      \((?:[0-9]{1,9}+\)[ ]?|\s{0,40}+)
    | ![\w/!:.-]{1,40}+[ ]                 # a tag of YAML
    | &\w{1,40}+[ ]|/\*[^*\r\n]{0,80}+\*/[ ]?   # an anchor of YAML, a comment
    | [a-zA-Z]:[0-9]{1,9}+:                # PHP's serialize
    | (?:const[ ])?[A-Za-z&*][\w<>\[\]?|&*.]{0,30}+[ ]?=[ ]?   # a type, then the value
    | (?:\([\w.*=\[\]]{1,40}+\)[ ]?|0x[0-9a-fA-F]{1,16}+[ ]
      |[&*](?!'[a-z_]\w{0,20}+[ ,>])){1,3}+  # a cast, an address
    )(?=\\*+["'`])""",
    re.VERBOSE,
)
_OPENING = re.compile(
    r"(?:U&|[bBrRuUfFNE@$]{0,2}+)(?P<hashes>#{0,3})(?P<slashes>\\*+)(?P<quote>\"\"\"|'''|''(?=\w)|\"\"(?=\w)|[\"'`\u2018“«„\u300c\u300e])"
)
_CLOSING = {
    "\u300c": "\u300d",
    "\u300e": "\u300f",
    "\u2018": "\u2019",
    "“": "”",
    "«": "»",
    "„": "“",
}
_BRACKET = re.compile(r"[\[{]|\((?=[\"'])|\$\(")
_IN_BRACKETS = re.compile(
    r"(\()(?=[^()\r\n]{0,60}[0-9])([^\s()\"'`,=+*]{3,60}+(?:[ ][^\s()\"'`,=+*]{3,60}+){1,3}+)\)"
)
"""Words with digits, as one value."""
_NESTED = re.compile(
    r"""\"(?:[^\"\\]++|\\.)*+\"?|'(?:[^'\\]++|\\.)*+'?|[\[\]{}()]""", re.VERBOSE | re.DOTALL
)
_TAG = re.compile(r"!![a-z]{1,20}+[ ]")
_HEREDOC = re.compile(
    r"<<[-~]?[\"']?(?P<tag>[A-Za-z_]\w{0,30}+)[\"']?[ \t]{0,9}\r?\n"
    r"(?P<lines>(?:(?![ \t]*+(?P=tag)\b)[^\n]{0,2000}+\n?+){1,60}+)"
)
"""Lines up to a word, as shells, Ruby and Terraform have them."""
_DOLLAR = re.compile(r"(\$\w{0,20}\$)([^\r\n]{1,400}?)\1")
"""A text of PostgreSQL."""
_BLOCK = re.compile(r"[|>][+-]?+[ \t]*+\r?\n([ \t]++)([^\n]*+(?:\n\1[^\n]*+|\n(?=[ \t]*+\n))*+)")
"""A block of YAML: the lines that follow, as far as they are indented as the first."""
_DELIMITED = re.compile(
    r"(%[qQwW]|%(?=\([^)\r\n]{1,60}[ ])|qq?'?|~[sS])"
    r"(?:\(([^)\r\n]{1,400}+)\)|\[([^\]\r\n]{1,400}+)\]|\{([^}\r\n]{1,400}+)\}"
    r"|<([^>\r\n]{1,400}+)>|\|([^|\r\n]{1,400}+)\||!([^!\r\n]{1,400}+)!)"
)
"""A text of Ruby, Perl, Elixir or Oracle: `%q(two words)`, `qq{x}`, `q'[x]'`."""
_ANGLED = re.compile(
    r"(<)(?=[^<>\r\n]{0,60}[0-9])([^\s<>\"'`=/]{3,60}+(?:[ ][^\s<>\"'`=/]{3,60}+){1,3}+)>"
)
_RAW = re.compile(r"R\"(\w{0,16})\(([^\r\n]{1,400}?)\)\1\"")
"""A text of C++."""
_ENCLOSING = {
    "|": _BLOCK, ">": _BLOCK, "$": _DOLLAR, "(": _IN_BRACKETS,
    "%": _DELIMITED, "q": _DELIMITED, "~": _DELIMITED,
    "<": _ANGLED,
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
      | [^\s"'`,;&)\]}>\\|]++
      | \\\r?\n[ \t]*+
      | \\[ ](?=[^\s\\])                      # a space that a shell keeps
      | \\++ (?!["'`])
      | ["'`)\]}>|] (?![\s"'`,;&)\]}>|]|\Z)
      | & (?=&\S)
      | [,;] (?![\s"'`,;&)\]}>|]|\Z|[\w.\x20-]{1,60}+=)
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
_FIRST = re.compile(r"(?:[ \t]|export |set |- ){0,12}+")
_REST = re.compile(
    r"((?:[ ](?!(?:or|and|if|[+*/%-]) )[^\s=:,;\"'`#(){}\[\]<>|&]{1,40}+){1,4}+)[ \t]{0,8}$",
    re.MULTILINE,
)
"""Words behind a value, to the end of its line."""
_CHANGED = re.compile(r"[\"'`]?[ ]{0,4}[-=]>[ ]{0,4}")
_JOINED = re.compile(
    r"[\"'](?:\\'|\"'\"|'\"'|\s{0,20}+"
    r"(?:\+{1,2}+|\.\.?|&|<>|\|\|(?:[ ]?\w{1,10}+\([0-9]{1,3}\)[ ]?\|\|)?|\\\n)\s{0,20}+)"
    r"[bru]?(?=[\"'])"
    r"|\"(?:(?=')|[ \t]{1,4}[bru]?(?=\"))(?=[\"'][\w!#$%&*+@-][^\"'\r\n]{0,200}[\"'])"
    r"|'(?:(?=\")|[ \t]{1,4}[bru]?(?='))(?=[\"'][\w!#$%&*+@-][^\"'\r\n]{0,200}[\"'])"
)
"""Between the parts of a text that a shell or a language puts together."""
_ITEM = re.compile(r",[ ]?([^\s,:=\"'()\[\]{}]{3,100}+)(?![:=]|[ ]?[:=])")


def value_at(text: str, at: int, most: int | None = None) -> Value:
    """The value that begins here, as far as it is looked at.

    A caller that may find it to be no secret gives a bound, or the rest is read for each name.
    """
    last = len(text) if most is None else min(len(text), at + most)
    tag = _TAG.match(text, at) if text.startswith("!!", at) else None
    at = at if tag is None else tag.end()
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
    heredoc = _HEREDOC.match(text, at, last) if text.startswith("<<", at) else None
    if heredoc is not None:
        start, end = heredoc.span("lines")
        return Value(start, start + len(text[start:end].rstrip()), is_quoted=True)
    enclosing = _ENCLOSING.get(text[at : at + 1])
    enclosed = None if enclosing is None else enclosing.match(text, at, last)
    if enclosed is not None:
        return Value(*enclosed.span(enclosed.lastindex or 2), is_quoted=True)
    if _BRACKET.match(text, at) and not text.startswith(MARK, at):
        return Value(at, _balanced(text, at, last), is_quoted=True)
    found = _BARE.match(text, at, last)
    return Value(at, at if found is None else found.end())


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


_NEXT = re.compile(r"[ ]([^\s\"'`,;=:<>(){}\[\]]{5,60}+)(?=[ \t]{0,4}(?:\r?\n|\Z))")


def with_next_word(text: str, value: Value) -> Value:
    """The value with a second word, if that one ends the line and looks random too."""
    found = _NEXT.match(text, value.end) if text.startswith(" ", value.end) else None
    return (
        value if found is None or not is_random(found[1], 5) else Value(value.start, found.end(1))
    )


def more_values(text: str, value: Value, *, is_list: bool) -> list[Value]:
    """The values behind the first: what it was changed to, and the other items of a list."""
    found = [value]
    changed = _CHANGED.match(text, value.end) if value.is_quoted else None
    if changed is not None:
        found.append(value_at(text, changed.end()))
    while found[-1].is_quoted and (joined := _JOINED.match(text, found[-1].end)) is not None:
        found.append(value_at(text, joined.end()))
    while is_list and (item := _ITEM.match(text, found[-1].end)) is not None:
        found.append(Value(*item.span(1)))
    return found


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
