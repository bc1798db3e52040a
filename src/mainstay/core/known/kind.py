"""The kinds of failure, and what is known of one exception."""

from __future__ import annotations

from enum import Enum


class Kind(str, Enum):  # noqa: UP042 -- hash and repr stay those of an enum
    """What sort of failure it was; retries, breakers, budgets and people all decide by it.

    >>> Kind("throttled") is Kind.THROTTLED
    True
    """

    TRANSIENT = "transient"
    THROTTLED = "throttled"
    TIMEOUT = "timeout"
    PERMANENT = "permanent"
    AUTH = "auth"
    AMBIGUOUS = "ambiguous"
    OVERLOAD = "overload"
    UNKNOWN = "unknown"

    __str__ = str.__str__


RETRIED_KINDS = frozenset({Kind.TRANSIENT, Kind.THROTTLED, Kind.TIMEOUT, Kind.OVERLOAD})
"""What a policy without `retry_on` retries."""


class Transient(tuple[Kind, ...]):
    """The rule for what is worth repeating, whichever library raised it: `mainstay.transient`.

    Whatever is known to be transient, throttled, overloaded or timed out, and nothing else.

    >>> import mainstay
    >>> policy = mainstay.RetryPolicy(retry_on=mainstay.transient)
    >>> policy.classification(ConnectionRefusedError()).retryable
    True
    >>> policy.classification(KeyError("id")).retryable
    False
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "mainstay.transient"


transient = Transient(kind for kind in Kind if kind in RETRIED_KINDS)
NOTHING_KNOWN = "nothing is known of it"


class Known:
    """What is known of one exception."""

    __slots__ = (
        "by_code", "by_status", "by_type", "codes", "is_ambiguous", "is_shared", "kind", "once",
        "reason", "table", "unsafe",
    )  # fmt: skip

    def __init__(
        self,
        kind: Kind,
        reason: str,
        by_type: bool = False,
        *,
        by_code: bool = False,
        is_ambiguous: bool = False,
        unsafe: str = "",
        once: str = "",
        table: str = "",
    ) -> None:
        self.by_status = False
        """Whether an HTTP status decided, and no other code."""
        self.codes: tuple[str, ...] = ()
        """All that the table has read of the exception, statuses aside, if that decided."""
        self.is_shared = False
        """Whether this very object is the answer for all exceptions that are alike."""
        self.kind = kind
        self.reason = reason
        self.by_type = by_type
        """Whether every instance of its type is alike."""
        self.by_code = by_code
        """Whether a status or an error code decided; a rule that names the class does not name
        that."""
        self.is_ambiguous = is_ambiguous or kind is Kind.AMBIGUOUS
        """Whether the request may have been carried out."""
        self.unsafe = unsafe
        """The request, if it is ambiguous and must not be repeated as it is: "POST without ..."."""
        self.once = once
        """The request, if it cannot be sent again whatever the failure: "PUT whose body ..."."""
        self.table = table
        """The library whose table decided; empty if none did."""

    def copied(self) -> Known:
        """Another one with the same content, for one exception alone."""
        return Known(
            self.kind, self.reason, self.by_type, by_code=self.by_code,
            is_ambiguous=self.is_ambiguous, unsafe=self.unsafe, once=self.once, table=self.table,
        )  # fmt: skip


def shared(known: Known) -> Known:
    """The same, as the answer for all exceptions that are alike; nobody changes it."""
    known.is_shared = True
    return known


def qualified_name(cls: type) -> str:
    """`module.QualName`, as rules and records spell a class.

    >>> qualified_name(ConnectionError)
    'builtins.ConnectionError'
    """
    return f"{cls.__module__}.{cls.__qualname__}"
