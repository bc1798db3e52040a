"""Failures as events and logs name them: the class and the message, without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.attributes import PerClass
from mainstay.core.known.kind import qualified_name
from mainstay.core.retry.effects import Returned

if TYPE_CHECKING:
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.effects import Outcome


def describe(outcome: Outcome, redact: Redactor | None = None) -> tuple[str, str]:
    """The type and message of a failure, without secrets; a result not accepted has no message."""
    cls = type(outcome)
    if cls is Returned:
        return "", "the result was not accepted"
    try:
        text = str(outcome)
        if not text.isascii():
            text = _in_utf8(text)
        return NAMES[cls], (redact or (_usual[0] if _usual else usual_redactor())).text(text)
    except Exception:  # a broken __str__ must not cost the event
        return NAMES[cls], ""


def reason_of(outcome: Outcome, redact: Redactor | None = None) -> str:
    """The message of a failure, without secrets; the name of its type if it has none.

    >>> reason_of(MemoryError())
    'MemoryError'
    """
    name, text = describe(outcome, redact)
    return text if text.strip() else name


def name_of(cls: type) -> str:
    """A class as events name it."""
    return cls.__name__ if cls.__module__ == "builtins" else qualified_name(cls)


NAMES = PerClass(name_of)


def shown(text: str, redact: Redactor | None = None) -> str:
    """A text as events hold it, without secrets; stray bytes without a UTF-8 form are shown."""
    if not text.isascii():
        text = _in_utf8(text)
    return (redact or (_usual[0] if _usual else usual_redactor())).text(text)


def _in_utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


_usual: list[Redactor] = []


def usual_redactor() -> Redactor:
    """The redactor where none is given; its expressions take half of an engine's start.

    >>> usual_redactor().text("password=hunter2")
    'password=[redacted]'
    """
    if not _usual:
        from mainstay.core.redact.redactor import REDACTOR

        _usual.append(REDACTOR)
    return _usual[0]
