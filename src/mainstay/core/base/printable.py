r"""Text from elsewhere, fit for a terminal and for a line of a log: nothing in it is obeyed.

An exception, an operation or a file may hold what a terminal obeys (escape sequences, C1 controls),
what ends a line (line breaks, U+2028) or what turns the order of letters around (the marks of
bidirectional text, U+202A to U+202E, U+2066 to U+2069, U+200E, U+200F, U+061C). Each such character
is shown as `repr` would show it: `\x1b`, `\n`, `\u202e`; so is a surrogate without its other half,
which no UTF-8 has. None of them is printable in the sense of `str.isprintable`.
"""

from __future__ import annotations


def text_of(error: BaseException) -> str:
    """The text of an exception; one whose own `__str__` fails is named.

    >>> text_of(ValueError("closed"))
    'closed'
    """
    try:
        return str(error)
    except Exception:
        return f"a {type(error).__name__} that cannot be shown"


def printable(text: str) -> str:
    r"""The text on one line, as it is shown.

    >>> printable("a\x1b[2Jb\nc")
    'a\\x1b[2Jb\\nc'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def printable_lines(text: str) -> str:
    r"""The same for a text of several lines: its line breaks and tabs stay.

    >>> printable_lines("a\x1b[2J\nb")
    'a\\x1b[2J\nb'
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)


def printable_json(line: str) -> str:
    r"""JSON in which each such character is written as an escape: the same value, other text.

    >>> printable_json('{"a":"\u202e"}')
    '{"a":"\\u202e"}'
    """
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else _escaped_json(each) for each in line)


def _escaped(each: str) -> str:
    return each.encode("unicode_escape").decode()


def _escaped_json(each: str) -> str:
    data = each.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at]:02x}{data[at + 1]:02x}" for at in range(0, len(data), 2))
