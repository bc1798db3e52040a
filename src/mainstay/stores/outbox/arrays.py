"""Arrays of PostgreSQL as text, which a statement casts: `%(ids)s::text[]`.

psycopg dumps a list element by element in Python. A batch of outcomes has ten arrays of a hundred
elements, and that was half of the client's work of writing it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def texts(values: Sequence[str]) -> str:
    r"""An array of texts.

    >>> print(texts(["a", 'b"', "c\\d", "", "NULL"]), texts([]))
    {"a","b\"","c\\d","","NULL"} {}
    """
    if not values:
        return "{}"
    joined = '","'.join(values)
    if "\\" in joined or joined.count('"') != 2 * (len(values) - 1):
        joined = '","'.join([each.replace("\\", r"\\").replace('"', r"\"") for each in values])
    return f'{{"{joined}"}}'


def optional_texts(values: Sequence[str | None]) -> str:
    """The same, with NULL for None.

    >>> optional_texts([None, "a"])
    '{NULL,"a"}'
    """
    return f"{{{','.join(['NULL' if each is None else texts([each])[1:-1] for each in values])}}}"


def numbers(values: Sequence[float | None]) -> str:
    """An array of integers, floats or truth values, with NULL for None.

    >>> numbers([1, 0.1, None, True])
    '{1,0.1,NULL,True}'
    """
    return f"{{{','.join(['NULL' if each is None else str(each) for each in values])}}}"
