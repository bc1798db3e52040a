"""The names of the classes that a pipeline must never retry, as records spell them."""

from __future__ import annotations

from mainstay import errors
from mainstay.core.pipeline.rules import FAIL_FAST_CLASSES

INTERRUPTIONS = frozenset({
    "CallCancelled", "Cancelled", "CancelledError", "GeneratorExit", "KeyboardInterrupt",
    "SystemExit",
})  # fmt: skip
"""What ends a call from outside; the run was left as it was, and no ledger has an entry of it."""


def is_forbidden(name: str) -> bool:
    """Whether a class, by its name with or without its module, is never retried.

    >>> is_forbidden("mainstay.errors.SchemaValidationError"), is_forbidden("TimeoutError")
    (True, False)
    """
    return name.rpartition(".")[2] in _NAMES


_NAMES = frozenset({
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.FailFastError)
} | {name.rpartition(".")[2] for name in FAIL_FAST_CLASSES})  # fmt: skip
"""Those of mainstay, and what libraries raise for data that does not match its schema."""
