"""The tables by package: those that users register, and those that integrations/errors/ finds.

A class is looked up once: the first of its ancestors that has an entry decides. Nothing is looked
up for built-in classes.
"""

from __future__ import annotations

from weakref import ref

from mainstay.core.base.attributes import PerClass
from mainstay.core.known.kind import qualified_name
from mainstay.core.known.table import Same, Table, covers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Protocol, TypeAlias

    from mainstay.core.known.table import Entry

    Behind: TypeAlias = tuple[Table, BaseException, bool]
    """The table of the client; the exception whose traceback has its request; whether that was
    sent, in part or whole."""
    Found: TypeAlias = tuple[Table, str, Entry]

    class Dependent(Protocol):
        """Remembers what was decided by the tables."""

        def forget(self) -> None: ...


class _Found(PerClass["Found | None"]):
    """The entry of each class."""

    __slots__ = ()

    def __missing__(self, cls: type) -> Found | None:
        try:
            return super().__missing__(cls)
        except Exception:  # no file can be opened, or the program ends: the failure is not lost
            return None


class Registry:
    """Tables, and what was found for a class."""

    __slots__ = ("_dependent", "_own", "behind", "find", "found")

    def __init__(self) -> None:
        self.find: Callable[[str], Table | None] = _nothing
        """Finds the table of a package; integrations/errors/ sets it."""
        self.behind: Callable[[BaseException], Behind | None] = _nobody
        """Finds the client that an error of Python's own came through; integrations/errors/ sets
        it, too."""
        self._own: list[Table] = []
        self.found = _Found(self._look_up)
        """The same for all classes: failing calls read it without a call of a function."""
        self._dependent: list[ref[Dependent]] = []

    def depend(self, dependent: Dependent) -> None:
        """Calls its `forget` whenever a table is registered, until it is collected."""
        self._dependent = [each for each in self._dependent if each() not in (None, dependent)]
        self._dependent.append(ref(dependent))

    def register(self, table: Table) -> None:
        """Adds a table; the newest is asked first, and one of the same library is replaced."""
        others = [each for each in self._own if each.library != table.library]
        self._own = [table, *others]
        self.forget()

    def unregister(self, library: str) -> None:
        """Removes a table that was registered."""
        self._own = [each for each in self._own if each.library != library]
        self.forget()

    def is_own(self, library: str) -> bool:
        """Whether a user has registered a table of that library."""
        return any(each.library == library for each in self._own)

    def forget(self) -> None:
        """Forgets what was found."""
        self.found = _Found(self._look_up)  # what is looked up meanwhile goes into the old one
        for each in self._dependent:
            dependent = each()
            if dependent is not None:
                dependent.forget()

    def entry_of(self, cls: type[BaseException]) -> Found | None:
        """The table, the name of the class that has the entry, and the entry; None if unknown."""
        return self.found[cls]

    def _look_up(self, cls: type[BaseException]) -> Found | None:
        for base in cls.__mro__:
            if base.__module__ != "builtins":
                found = self.entry_named(qualified_name(base))
                if found is not None:
                    return found
        return None

    def entry_named(self, name: str) -> Found | None:
        """The table, the name and the entry of a class by its name, what is `Same` followed."""
        for table in self.tables(name):
            entry = table.entry(name)
            while isinstance(entry, Same):
                name = entry.ancestor
                entry = table.entry(name)
            if entry is not None:
                return table, name, entry
        return None

    def tables(self, name: str) -> Iterator[Table]:
        """The tables of the library that a class is from, in the order in which they are asked."""
        yield from [each for each in self._own if covers(each.packages, name)]
        found = self.find(name)
        if found is not None:
            yield found


def _nothing(_name: str) -> Table | None:
    return None


def _nobody(_exception: BaseException) -> Behind | None:
    return None


REGISTRY = Registry()
