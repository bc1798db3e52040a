"""Queues to which other threads append while they are looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections import deque

T = TypeVar("T")


def content_of(queue: deque[T]) -> list[T]:
    """What is in a queue at one moment.

    Without the interpreter's lock an append of another thread ends a look at all of it, which is
    then taken again.

    >>> from collections import deque
    >>> content_of(deque([1, 2]))
    [1, 2]
    """
    while True:
        try:
            return list(queue)
        except RuntimeError:  # "deque mutated during iteration"
            continue
