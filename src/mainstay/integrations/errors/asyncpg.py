"""asyncpg: its classes carry the SQLSTATE, also those of a connection that was refused.

A port that refuses and a timeout of `command_timeout` are Python's own OSError and TimeoutError.
"""

from __future__ import annotations

from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, Row, Same, Table
from mainstay.integrations.errors.sqlstate import ROWS, by_sqlstate

_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_INSIDE = Row(Kind.UNKNOWN, "used inside asyncpg, which does not let it out")
_POSTGRES = "asyncpg.exceptions._base.PostgresError"
_INTERFACE = "asyncpg.exceptions._base.InterfaceError"


def _sqlstate(exception: BaseException) -> tuple[str | None]:
    return (attribute(exception, "sqlstate"),)


def _closed(exception: BaseException) -> tuple[str | None]:
    """Of a connection that was lost or closed before; asyncpg has no class for it."""
    return ("08003" if "connection is closed" in str(exception) else None,)


def _last_words(exception: BaseException) -> BaseException | None:
    """What the server sent before it ended the connection."""
    cause = exception.__cause__
    return cause if attribute(cause, "sqlstate") else None


TABLE = Table(
    "asyncpg",
    {
        "asyncpg.exceptions.*": by_sqlstate(_sqlstate),
        _POSTGRES: by_sqlstate(_sqlstate),
        "asyncpg.exceptions._base.FatalPostgresError": Same(_POSTGRES),
        "asyncpg.exceptions._base.UnknownPostgresError": Same(_POSTGRES),
        "asyncpg.exceptions.ConnectionDoesNotExistError": Inner(
            _last_words,
            otherwise=Row(
                Kind.TRANSIENT, "the connection was lost during a statement", ambiguous=True
            ),
        ),
        "asyncpg.exceptions.InvalidCachedStatementError": Row(
            Kind.TRANSIENT, "the schema has changed; asyncpg prepares the statement anew"
        ),
        _INTERFACE: Cases(_closed, {"08003": ROWS["08003"]}, otherwise=_WRONG),
        "asyncpg.exceptions._base.ClientConfigurationError": _WRONG,
        "asyncpg.exceptions._base.DataError": Row(Kind.PERMANENT, "an argument of another type"),
        "asyncpg.exceptions._base.UnsupportedClientFeatureError": _WRONG,
        "asyncpg.exceptions._base.UnsupportedServerFeatureError": _WRONG,
        "asyncpg.exceptions._base.InternalClientError": Row(
            Kind.UNKNOWN, "asyncpg is in a state that it does not expect"
        ),
        "asyncpg.exceptions._base.OutdatedSchemaCacheError": Row(
            Kind.TRANSIENT, "the schema has changed after the statement ran", ambiguous=True
        ),
        "asyncpg.exceptions._base.ProtocolError": Row(
            Kind.UNKNOWN, "the answer cannot be read, as of a server that is no PostgreSQL"
        ),
        "asyncpg.exceptions._base.TargetServerAttributeNotMatched": Row(
            Kind.TRANSIENT, "no server has the role asked for, as until a failover ends"
        ),
        "asyncpg.cluster.ClusterError": Row(Kind.UNKNOWN, "of a server that asyncpg's tests start"),
        "asyncpg.connect_utils._NextHostSignal": _INSIDE,
        "asyncpg.connect_utils._RetryConnectSignal": _INSIDE,
        "asyncpg.pgproto.pgproto.BufferError": _INSIDE,
        "asyncpg._testbase.fuzzer.StopServer": Row(Kind.UNKNOWN, "of asyncpg's own tests"),
    },
    retries="none; a statement whose plan is out of date is prepared anew outside a transaction",
)
