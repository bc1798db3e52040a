"""Sorts of values. A shape states what is allowed; check.py, schema.py and the reference use it.

A Section is a mapping with known keys, each of which may be written in camelCase or snake_case, and
some in several forms: seconds as `deadline`, milliseconds as `deadlineMs`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mainstay.config.durations import bounds, expected
from mainstay.core.base.validate import MAX_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECONDS, MILLISECONDS = " of seconds", " of milliseconds"


def camel(name: str) -> str:
    """The name in camelCase.

    >>> camel("max_retry_after_ms")
    'maxRetryAfterMs'
    """
    first, *others = name.split("_")
    return first + "".join(other.title() for other in others)


def snake(name: str) -> str:
    """The name in snake_case.

    >>> snake("maxRetryAfterMs"), snake("max_attempts")
    ('max_retry_after_ms', 'max_attempts')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class Shape:
    """What is allowed in a place."""

    expected = ""
    """What is allowed, in words that follow "must be"."""


class Text(Shape):
    """A text: one of some, or of a pattern, or any that is not empty."""

    def __init__(
        self,
        *,
        choices: Sequence[str] = (),
        pattern: str = "",
        expected: str = "",
        is_secret: bool = False,
        meant: Mapping[str, str] | None = None,
        is_rule: bool = False,
    ) -> None:
        self.meant = dict(meant or {})
        """What some wrong texts most likely mean."""
        self.is_rule = is_rule
        """Whether it names an exception, a code or a kind."""
        self.choices = tuple(choices)
        self.pattern = pattern or r"\S(?:[\s\S]*\S)?"
        self.is_secret = is_secret
        usual = "a text that is not empty and has no spaces around it"
        self.expected = expected or ("one of " + ", ".join(choices) if choices else usual)


class Number(Shape):
    """A number from `low` to `high`; divided by `per` to be in the unit that is meant.

    If it `is_time`, a text with a unit of its own is taken too: `500ms`, `30s`, `1h30m`.
    """

    def __init__(
        self,
        low: float,
        high: float,
        *,
        unit: str = "",
        above: bool = False,
        optional: bool = False,
        per: int = 1,
        is_time: bool = False,
    ) -> None:
        self.low, self.high, self.above = low, high, above
        self.optional, self.per = optional, per
        self.is_time = is_time or unit in (SECONDS, MILLISECONDS)
        limits, null = bounds(low, high, above=above), ", or null" if optional else ""
        self.in_short = f"a number{unit} {limits}{null}"
        """The same without the other way to write a time."""
        self.expected = expected(unit, limits) + null if self.is_time else self.in_short


class Whole(Shape):
    """An integer from `least` to `most`."""

    def __init__(self, least: int, most: int, *, optional: bool = False) -> None:
        self.least, self.most, self.optional = least, most, optional
        self.expected = f"an integer from {least} to {most}" + (", or null" if optional else "")


class Flag(Shape):
    """True or false."""

    expected = "true or false"


class Anything(Shape):
    """Any plain data; other code checks it."""

    expected = "anything"


class Either(Shape):
    """A scalar of one sort or another."""

    def __init__(self, *shapes: Shape) -> None:
        self.shapes = shapes
        self.expected = ", or ".join(shape.expected for shape in shapes)


class Listing(Shape):
    """A list of values; if `or_one`, a value alone will do."""

    def __init__(self, shape: Shape, *, or_one: bool = False) -> None:
        self.shape, self.or_one = shape, or_one
        one = f"{shape.expected}, or a list of such" if or_one else ""
        self.expected = one or "a list"


class NameMap(Shape):
    """A mapping from names to values of one shape."""

    expected = "a mapping"

    def __init__(self, shape: Shape, *, key: Text | None = None, what: str = "name") -> None:
        self.shape, self.what = shape, what
        self.key = key or Text()


class Field:
    """A key of a section: its name in snake_case, what it takes, and what it means.

    Args:
        name: what the value is called when it has been checked.
        shape: what is allowed.
        means: what it is for.
        default: what holds without it, in words.
        also: other names, with the shape that is allowed there.
    """

    def __init__(
        self,
        name: str,
        shape: Shape,
        means: str,
        default: str = "",
        also: Sequence[tuple[str, Shape]] = (),
    ) -> None:
        self.name, self.shape, self.means, self.default = name, shape, means, default
        self.forms = ((name, shape), *also)

    @property
    def spellings(self) -> list[str]:
        """Every key that means this field; the usual ones first."""
        usual = [camel(name) for name, _ in self.forms]
        return list(dict.fromkeys([*usual, *(name for name, _ in self.forms)]))


class Section(Shape):
    """A mapping with known keys.

    `text`, `flag` and `number` name the field that a text, true or false, or a number alone stands
    for. An open section takes other keys as well, as anything. `refused` gives the reason why some
    keys are not known, `meant` the fields that the words of other libraries most likely mean.
    """

    def __init__(
        self,
        *fields: Field,
        text: str = "",
        flag: str = "",
        number: str = "",
        needs: Sequence[str] = (),
        is_open: bool = False,
        has_extras: bool = False,
        refused: Mapping[str, str] | None = None,
        meant: Mapping[str, str] | None = None,
    ) -> None:
        self.fields = fields
        self.text, self.flag, self.number = text, flag, number
        self.needs = tuple(needs)
        self.is_open, self.has_extras = is_open, has_extras
        self.refused = dict(refused or {})
        self.meant = {word: camel(name) for word, name in (meant or {}).items()}
        self.keys: dict[str, tuple[Field, Shape]] = {}
        for field in fields:
            for name, shape in field.forms:
                for key in (camel(name), name):
                    self.keys[key] = (field, shape)
        is_length = bool(number) and is_time(self.keys[number][1])
        number_is = "a number or a duration such as 30s" if is_length else "a number"
        others = (("a text", text), (number_is, number), ("true or false", flag))
        self.expected = ", or ".join(["a mapping", *(sort for sort, field in others if field)])

    @property
    def names(self) -> list[str]:
        """The keys as they are usually written."""
        return [camel(name) for field in self.fields for name, _ in field.forms]


def is_time(shape: Shape) -> bool:
    """Whether a shape is a length of time."""
    return isinstance(shape, Number) and shape.is_time


def duration(
    name: str,
    means: str,
    default: str = "",
    *,
    low: float = 0.0,
    high: float = MAX_SECONDS,
    above: bool = False,
    optional: bool = False,
    also: Sequence[str] = (),
) -> Field:
    """A field of seconds, which may be given in milliseconds under a name that ends in `Ms`."""
    seconds = Number(low, high, unit=SECONDS, above=above, optional=optional)
    thousandths = Number(
        low * 1000,
        high * 1000,
        unit=MILLISECONDS,
        above=above,
        optional=optional,
        per=1000,
    )
    others = [(f"{name}_ms", thousandths)]
    for other in also:
        others += [(other, seconds), (f"{other}_ms", thousandths)]
    return Field(name, seconds, means, default, others)
