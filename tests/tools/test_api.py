"""The text of the public API, on a package made for the test."""

import sys

import pytest

from tools import api

SOURCE = """
from __future__ import annotations
import enum

__all__ = ["Colour", "Gone", "LIMIT", "Plain", "Thing", "make"]
LIMIT = 3

class Colour(enum.Enum):
    RED = "red"

class _Hidden:
    __slots__ = ("size",)
    size: int
    def __init__(self, size: int = 3) -> None: ...
    def grow(self, by: float, *, fast: bool = False) -> Thing: ...
    def _inner(self): ...

class Plain(_Hidden): ...

class Gone(Exception):
    code = "MS1"

class Thing(Plain):
    @property
    def area(self) -> float: ...
    @classmethod
    def of(cls, text: str) -> Thing: ...
    @staticmethod
    def zero() -> int: ...
    def __call__(self, fn): ...
    def __eq__(self, other): ...

def make(on: type | None = None, /, *a: int, key=object()) -> Thing: ...
"""

EXPECTED = """\
package_of_api.Colour: class[Enum]
package_of_api.Colour.RED: member = 'red'
package_of_api.Gone: class[Exception]
package_of_api.Gone.code: attribute = 'MS1'
package_of_api.LIMIT: int = 3
package_of_api.Plain: class[_Hidden](size: int = 3) -> None
package_of_api.Plain.grow: method(by: float, *, fast: bool = False) -> Thing
package_of_api.Plain.size: attribute: int
package_of_api.Thing: class[Plain](size: int = 3) -> None
package_of_api.Thing.__call__: method(fn)
package_of_api.Thing.area: property: float
package_of_api.Thing.of: classmethod(text: str) -> Thing
package_of_api.Thing.zero: staticmethod() -> int
package_of_api.make: function(on: type | None = None, /, *a: int, key=<object object>) -> Thing
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A module with every kind of public name; returns its path."""
    path = tmp_path / "package_of_api.py"
    path.write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield path
    sys.modules.pop("package_of_api", None)


def test_every_kind_of_name_has_its_line(package):
    """A class shows what it defines and what a private base gives it, once."""
    assert api.render(("package_of_api",)) == EXPECTED
