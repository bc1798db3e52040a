"""Modules that are gone, as far as pickles name them: each answers with where its classes are now.

A pickle names a class by its module, and is read for as long as its owner keeps it. The names of
version 1 stand in `core/codec/stored_names.py`. The door asks here for a module of ours that
nothing else has found; a package that took the name of a module asks for what it does not have
itself.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

from mainstay.core.codec.stored_names import HOMES

if TYPE_CHECKING:
    from types import ModuleType

_MODULES = frozenset(f"mainstay.{old}" for old, _ in HOMES)


def spec_of(name: str) -> ModuleSpec | None:
    """How a module of version 1 is made that is gone; None for any other.

    >>> spec_of("mainstay.core.nonsense") is None
    True
    """
    return ModuleSpec(name, _Maker()) if name in _MODULES else None


class _Maker(Loader):
    """Makes a module that has nothing, and finds what it is asked for."""

    def create_module(self, _spec: ModuleSpec) -> None:
        """A plain one will do."""

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = "A module of version 1, for what is pickled by its name."
        module.__getattr__ = partial(found, module.__name__)  # type: ignore[method-assign]


def found(module: str, name: str) -> Any:
    """What version 1 had in a module under that name.

    >>> found("mainstay.core.retry.kinds", "NoSuchName")
    Traceback (most recent call last):
    AttributeError: module 'mainstay.core.retry.kinds' has no attribute 'NoSuchName'
    """
    home = HOMES.get((module.removeprefix("mainstay."), name))
    if home is None or home == module:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
