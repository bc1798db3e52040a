"""What is known of libraries' exceptions: a table per library, loaded when it is needed.

Rules of the room: no table imports its library; one file is one library (or a few that share their
errors), and its `TABLE` judges every exception class of it.
"""

from __future__ import annotations

from mainstay.core.known.registry import REGISTRY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.known.table import Table

FILES = {
    "httpcore": "httpx",
    "httpx": "httpx",
}
"""The file of each package; `a.b` if only that part of a namespace is judged."""


def find(name: str) -> Table | None:
    """The table for a class by its qualified name; None if there is none.

    >>> find("httpx.ReadTimeout").library
    'httpx'
    """
    first, _, rest = name.partition(".")
    file = FILES.get(first) or FILES.get(f"{first}.{rest.partition('.')[0]}")
    return None if file is None else table(file)


def table(file: str) -> Table:
    """The table of a file; loaded once.

    >>> table("httpx").packages
    ('httpx', 'httpcore')
    """
    from importlib import import_module

    found: Table = import_module(f"mainstay.integrations.errors.{file}").TABLE
    return found


REGISTRY.find = find
