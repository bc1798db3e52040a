"""What classification looked at in one failure: enough to classify it again without it.

Names of classes, numbers and answers only; no text of the exception's own is here, so nothing here
can hold a secret but what a service calls its error codes, which are redacted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.attributes import carries
from mainstay.core.base.proof import Evidence, KnownThen
from mainstay.core.known.codes import codes_of
from mainstay.core.known.http import status_of
from mainstay.core.known.registry import REGISTRY
from mainstay.core.retry.effects import Returned
from mainstay.core.retry.kinds import kind_of, number_of, spelled, wrapped
from mainstay.errors import AttemptTimeout

if TYPE_CHECKING:
    from typing import TypeAlias

    from mainstay.core.known.kind import Known
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.classify import Classification
    from mainstay.core.retry.effects import Outcome

    _Key: TypeAlias = "type | tuple[type, int | None]"

MOST_MEMBERS = 64
"""Members of a group that are kept; a greater group is not replayed."""


def evidence_of(
    outcome: Outcome, verdict: Classification | None = None, redact: Redactor | None = None
) -> Evidence:
    """What a classification has to go by; of a result that was not accepted, only its hint.

    >>> error = RuntimeError()
    >>> error.status_code = 503
    >>> evidence_of(error).status
    503
    """
    if isinstance(outcome, Returned):
        hint = None if verdict is None else verdict.hint
        return _NOTHING if hint is None else Evidence(retry_after=hint.seconds, retry_at=hint.at)
    carried = outcome.__dict__
    if (carried and (len(carried) > 1 or "__notes__" not in carried)) or (
        verdict and verdict.asked
    ):
        return _gathered(outcome, verdict, redact)
    cls = type(outcome)
    key: _Key = cls
    if isinstance(outcome, OSError):
        try:
            number = outcome.errno
        except Exception:  # a property of the class's own
            number = None
        if number is not None:
            is_plain = type(number) is int and -_MOST_NUMBER < number < _MOST_NUMBER
            key = (cls, number if is_plain else _whole(outcome, "errno"))
    plain = _plain.get(key)
    if plain is None:
        plain = _gathered(outcome, verdict, redact)
        if _is_known_by_type(outcome):
            if len(_plain) >= _MOST_PLAIN:
                _plain.clear()
            _plain[key] = plain
    return plain


def _gathered(
    failure: BaseException, verdict: Classification | None, redact: Redactor | None
) -> Evidence:
    hint = None if verdict is None else verdict.hint
    members = failure.exceptions if isinstance(failure, BaseExceptionGroup) else ()
    inner = wrapped(failure)
    status = status_of(failure)
    return Evidence(
        classes=tuple(map(spelled, type(failure).__mro__[:-1])),
        status=status,
        codes=tuple(_shown(code, redact) for code in codes_of(failure) if code != str(status)),
        errno=_whole(failure, "errno"),
        winerror=_whole(failure, "winerror"),
        retry_after=None if hint is None else hint.seconds,
        retry_at=None if hint is None else hint.at,
        timeout=failure.timeout if isinstance(failure, AttemptTimeout) else None,
        asked=() if verdict is None else verdict.asked,
        wrapped=None if inner is None else evidence_of(inner, None, redact),
        members=tuple(evidence_of(each, None, redact) for each in members[:MOST_MEMBERS]),
        cut=len(members) > MOST_MEMBERS,
        known=_known_then(kind_of(failure) if verdict is None else verdict.known, redact),
    )


def _known_then(known: Known | None, redact: Redactor | None) -> KnownThen | None:
    """What the table of its library had for it; a policy's own `classify` decides above it."""
    if known is None or not (known.table or known.once):
        return None
    return KnownThen(
        known.kind.value,
        _shown(known.reason, redact),
        known.table,
        known.by_code,
        known.is_ambiguous,
        known.unsafe,
        known.once,
    )


def _shown(code: str, redact: Redactor | None) -> str:
    """What a service calls its error; one that holds a secret is none that a rule would name."""
    from mainstay.core.redact.redactor import REDACTOR

    return (redact or REDACTOR).text(code.encode("utf-8", "backslashreplace").decode())


def _whole(failure: BaseException, name: str) -> int | None:
    """A number of the operating system's that fits; only an OSError's means anything."""
    number = number_of(failure, name) if isinstance(failure, OSError) else None
    return number if number is None or abs(number) < _MOST_NUMBER else None


_NOTHING = Evidence()


class _Plain(dict["_Key", Evidence]):
    """Forgotten if a table is registered: it may know one of the classes."""

    def forget(self) -> None:
        self.clear()


_plain = _Plain()
REGISTRY.depend(_plain)
"""Of exceptions that carry nothing; an OSError's number, if it has one, is all there is to it."""
_MOST_PLAIN = 1000
_MOST_NUMBER = 1 << 63
"""No system has such a number, and none has a written form."""
_INSPECTED = (
    "status", "status_code", "response", "headers", "retry_after", "code", "error_code",
    "sqlstate", "pgcode", "reason",
)  # fmt: skip


def _is_known_by_type(failure: BaseException) -> bool:
    """Whether all exceptions of its type without attributes have the same evidence."""
    if isinstance(failure, BaseExceptionGroup | AttemptTimeout) or carries(failure, "winerror"):
        return False
    if REGISTRY.entry_of(type(failure)) is not None:  # a table may look at anything
        return False
    return not any(carries(failure, name) for name in _INSPECTED)
