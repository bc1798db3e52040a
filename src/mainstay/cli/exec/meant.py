"""Which mapped operation a command may be, if its own name is mapped to no policy.

`sh ./charge.sh`, `env A=1 ./charge.sh`, a link to it and a slip in `--operation` would leave a
command that must run once to the default policy, and its retries.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_BETWEEN = re.compile(r"[\s;&|()<>'\"`$={}]+")
"""What stands between the words of a text that a shell runs."""
_MOST = 4096
"""Characters of a word that are looked through: it may be a program of its own."""
_MOST_LINKS = 40
"""Links that lead to each other; Linux follows no more."""


class Meant(NamedTuple):
    """What is mapped, and a name of an operation that it is mapped for."""

    mapped: str
    operation: str


def meant_by(operation: str, command: Iterable[str], mapped: Collection[str]) -> Meant | None:
    """The mapped operation, or the pattern of operations, that was probably meant.

    >>> meant_by("sh", ["sh", "./charge-1.sh"], ["charge*"])
    Meant(mapped='charge*', operation='charge-1.sh')
    >>> meant_by("charge.hs", ["./bill"], ["charge.sh"]).mapped
    'charge.sh'
    >>> meant_by("ls", ["ls", "-l"], ["charge.sh"])
    """
    if not mapped:
        return None
    parts = [part for word in command for part in _parts_of(word)]
    linked = (name for part in parts for name in _behind(part))
    names = {_plain(name): None for name in (operation, *parts, *linked)}
    for each in mapped:
        for name in names:
            if fnmatchcase(name, each):
                return Meant(each, name)
            if name == _plain(each) or fnmatchcase(name, each.lower()):
                return Meant(each, each)
    slips = (each for each in mapped if _is_slip(_plain(operation), _plain(each)))
    return next((Meant(each, each) for each in slips), None)


def _parts_of(word: str) -> list[str]:
    """The words of a word: one may be a text for a shell."""
    return [part for part in _BETWEEN.split(word[:_MOST]) if part and not part.startswith("-")]


def _behind(part: str) -> Iterator[str]:
    """The files that a link leads to, one after the other.

    A word without a folder may be a file here, or a program that is looked up.
    """
    import shutil  # which loads every compression

    program = None if os.sep in part else shutil.which(part)
    for path in (part, program or ""):
        for _ in range(_MOST_LINKS):
            try:
                target = os.readlink(path)  # noqa: PTH115  a word may be no path at all
            except (OSError, ValueError):
                break
            path = os.path.join(os.path.dirname(path), target)  # noqa: PTH118, PTH120, PLW2901
            yield path


def _plain(name: str) -> str:
    """A name without its folder, in small letters."""
    return name.replace("\\", "/").rpartition("/")[2].lower()


def _is_slip(typed: str, name: str) -> bool:
    """Whether two letters changed places, or one is missing or too many; never a digit.

    Another letter is no slip: names differ by one on purpose, as those of regions do.
    """
    if len(typed) == len(name):
        pairs = [(one, other) for one, other in zip(typed, name, strict=True) if one != other]
        return len(pairs) == 2 and pairs[0] == pairs[1][::-1]
    short, long = sorted((typed, name), key=len)
    return len(long) - len(short) == 1 and any(
        short == long[:at] + long[at + 1 :] and not long[at].isdigit() for at in range(len(long))
    )
