"""docs/reference/errors.md has a section for every code, and for nothing else."""

import re
from pathlib import Path

from mainstay import errors

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
HEADING = re.compile(r"^## (MS\d{3}) (\w+)$", re.MULTILINE)


def coded():
    """Every error class with its code."""
    found = [c for c in vars(errors).values() if isinstance(c, type)]
    return {c.code: c.__name__ for c in found if issubclass(c, errors.MainstayError)}


def test_every_code_is_one_class():
    """A code in a log leads to one class."""
    classes = [c for c in vars(errors).values() if isinstance(c, type)]
    count = sum(issubclass(c, errors.MainstayError) for c in classes)
    assert len(coded()) == count


def test_every_code_has_its_section():
    """Whoever meets a code finds what to do; a code that is gone leaves no section."""
    sections = dict(HEADING.findall(PAGE.read_text(encoding="utf-8")))
    assert sections == coded(), "each `## MSnnn ClassName` of docs/reference/errors.md is a class"


def test_every_section_says_what_to_do():
    """No section is a heading only."""
    bodies = re.split(r"^## .*$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert all("**What to do.**" in body for body in bodies[: len(coded())])


def test_every_warning_is_on_the_page():
    """Warnings have no code, but are explained all the same."""
    page = PAGE.read_text(encoding="utf-8")
    classes = [c for c in vars(errors).values() if isinstance(c, type)]
    names = [c.__name__ for c in classes if issubclass(c, Warning)]
    assert [name for name in names if f"`{name}`" not in page] == []
