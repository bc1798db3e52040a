"""SQLAlchemy: what the driver raised decides (`orig`); its own errors are mostly misuse.

Of a driver that has no table, SQLAlchemy itself knows whether the connection was lost
(`connection_invalidated`), and which class of the DB-API the error is of.
"""

from __future__ import annotations

from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, Row, Same, Table

_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_MAPPING = Row(Kind.PERMANENT, "a mistake in the tables or classes")
_BASE = Row(Kind.UNKNOWN, "a base class, which SQLAlchemy itself does not raise")
_INSIDE = Row(Kind.UNKNOWN, "used inside SQLAlchemy, which does not let it out")
_DRIVER = Row(Kind.UNKNOWN, "nothing is known of what the driver raised")
_CHECKOUT = Row(Kind.TRANSIENT, "a connection of the pool was dead; nothing was sent")
_ARGUMENT = "sqlalchemy.exc.ArgumentError"
_INVALID = "sqlalchemy.exc.InvalidRequestError"
_DBAPI = "sqlalchemy.exc.DBAPIError"


def _lost(exception: BaseException) -> tuple[str | None]:
    return ("disconnect" if attribute(exception, "connection_invalidated") else None,)


def _driver(otherwise: Row) -> Inner:
    """What the driver raised, or whether SQLAlchemy took it for a disconnect."""
    lost = Row(Kind.TRANSIENT, "the connection was lost during a statement", ambiguous=True)
    return Inner("orig", otherwise=Cases(_lost, {"disconnect": lost}, otherwise=otherwise))


TABLE = Table(
    "sqlalchemy",
    {
        "sqlalchemy.exc.SQLAlchemyError": _BASE,
        # --- what a driver raised
        "sqlalchemy.exc.StatementError": Inner("orig", otherwise=_WRONG),
        _DBAPI: _driver(_DRIVER),
        "sqlalchemy.exc.InterfaceError": Same(_DBAPI),
        "sqlalchemy.exc.DatabaseError": Same(_DBAPI),
        "sqlalchemy.exc.OperationalError": Same(_DBAPI),
        "sqlalchemy.exc.InternalError": Same(_DBAPI),
        "sqlalchemy.exc.DataError": _driver(
            Row(Kind.PERMANENT, "the data cannot be taken as they are")
        ),
        "sqlalchemy.exc.IntegrityError": _driver(
            Row(Kind.PERMANENT, "a constraint refuses the data")
        ),
        "sqlalchemy.exc.ProgrammingError": _driver(
            Row(Kind.PERMANENT, "a statement that is wrong, or names what is not there")
        ),
        "sqlalchemy.exc.NotSupportedError": _driver(
            Row(Kind.PERMANENT, "the driver or the database does not have this feature")
        ),
        "sqlalchemy.exc.EmulatedDBAPIException": Inner("driver_exception", otherwise=_DRIVER),
        "sqlalchemy.connectors.asyncio.AsyncAdapt_Error": Inner(
            "driver_exception", otherwise=_DRIVER
        ),
        # in 2.0 the classes of an async driver had no common base
        "sqlalchemy.dialects.postgresql.asyncpg.AsyncAdapt_asyncpg_dbapi.*": Inner(
            "__cause__", otherwise=_DRIVER
        ),
        # --- the pool
        "sqlalchemy.exc.TimeoutError": Row(
            Kind.TIMEOUT, "no connection of the pool was free in time, so nothing was sent"
        ),
        "sqlalchemy.exc.DisconnectionError": _CHECKOUT,
        "sqlalchemy.exc.InvalidatePoolError": _CHECKOUT,
        "sqlalchemy.util.queue.Empty": _INSIDE,
        "sqlalchemy.util.queue.Full": _INSIDE,
        # --- the session
        "sqlalchemy.orm.exc.StaleDataError": Row(
            Kind.TRANSIENT, "another transaction has changed the row since it was read"
        ),
        "sqlalchemy.orm.exc.FlushError": _WRONG,
        "sqlalchemy.orm.exc.DetachedInstanceError": _WRONG,
        "sqlalchemy.orm.exc.ObjectDereferencedError": _WRONG,
        "sqlalchemy.orm.exc.ObjectDeletedError": Row(
            Kind.PERMANENT, "the row is there no more, or is not visible"
        ),
        "sqlalchemy.orm.mapper._OptGetColumnsNotAvailable": _INSIDE,
        "sqlalchemy.orm.util._CleanupError": _INSIDE,
        # --- misuse
        _ARGUMENT: _WRONG,
        "sqlalchemy.exc.AmbiguousForeignKeysError": Same(_ARGUMENT),
        "sqlalchemy.exc.ConstraintColumnNotFoundError": Same(_ARGUMENT),
        "sqlalchemy.exc.DuplicateColumnError": Same(_ARGUMENT),
        "sqlalchemy.exc.NoForeignKeysError": Same(_ARGUMENT),
        "sqlalchemy.exc.NoSuchModuleError": Same(_ARGUMENT),
        "sqlalchemy.exc.ObjectNotExecutableError": Same(_ARGUMENT),
        "sqlalchemy.orm.exc.MappedAnnotationError": Same(_ARGUMENT),
        "sqlalchemy.exc.CircularDependencyError": _MAPPING,
        "sqlalchemy.exc.CompileError": _WRONG,
        "sqlalchemy.exc.UnsupportedCompilationError": Same("sqlalchemy.exc.CompileError"),
        "sqlalchemy.exc.IdentifierError": _MAPPING,
        _INVALID: _WRONG,
        "sqlalchemy.exc.AmbiguousColumnError": Same(_INVALID),
        "sqlalchemy.exc.AwaitRequired": Same(_INVALID),
        "sqlalchemy.exc.IllegalStateChangeError": Same(_INVALID),
        "sqlalchemy.exc.MissingGreenlet": Same(_INVALID),
        "sqlalchemy.exc.MultipleResultsFound": Row(
            Kind.PERMANENT, "more rows than the one that was asked for"
        ),
        "sqlalchemy.exc.NoDBAPILoaded": Same(_INVALID),
        "sqlalchemy.exc.NoInspectionAvailable": Same(_INVALID),
        "sqlalchemy.exc.NoReferenceError": Same(_INVALID),
        "sqlalchemy.exc.NoReferencedColumnError": Same(_INVALID),
        "sqlalchemy.exc.NoReferencedTableError": Same(_INVALID),
        "sqlalchemy.exc.NoResultFound": Row(Kind.PERMANENT, "there is no such row"),
        "sqlalchemy.exc.NoSuchColumnError": Same(_INVALID),
        "sqlalchemy.exc.NoSuchTableError": Same(_INVALID),
        "sqlalchemy.exc.PendingRollbackError": Row(
            Kind.PERMANENT, "an earlier statement failed; the transaction must be rolled back"
        ),
        "sqlalchemy.exc.ResourceClosedError": Same(_INVALID),
        "sqlalchemy.exc.UnboundExecutionError": Same(_INVALID),
        "sqlalchemy.exc.UnreflectableTableError": Same(_INVALID),
        "sqlalchemy.ext.asyncio.exc.AsyncBindNotFound": Same(_INVALID),
        "sqlalchemy.ext.asyncio.exc.AsyncContextAlreadyStarted": Same(_INVALID),
        "sqlalchemy.ext.asyncio.exc.AsyncContextNotStarted": Same(_INVALID),
        "sqlalchemy.ext.asyncio.exc.AsyncMethodRequired": Same(_INVALID),
        "sqlalchemy.orm.evaluator.UnevaluatableError": Same(_INVALID),
        "sqlalchemy.orm.exc.LoaderStrategyException": Same(_INVALID),
        "sqlalchemy.orm.exc.UnmappedClassError": Same(_INVALID),
        "sqlalchemy.orm.exc.UnmappedColumnError": Same(_INVALID),
        "sqlalchemy.orm.exc.UnmappedError": Same(_INVALID),
        "sqlalchemy.orm.exc.UnmappedInstanceError": Same(_INVALID),
    },
    retries="none; with `pool_pre_ping` a dead connection is replaced before it is used",
)
