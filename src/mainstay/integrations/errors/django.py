"""Django's database layer: what the driver raised decides, which Django keeps as the cause.

The rest of Django is not judged: its errors are answers to a request, or mistakes in a program.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Inner, Row, Same, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.known.table import Entry

_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_DRIVER = Row(Kind.UNKNOWN, "nothing is known of what the driver raised")
_MIGRATION = Row(Kind.PERMANENT, "the migrations do not fit together, or not the database")
_UTILS: dict[str, Entry] = {
    "Error": Inner("__cause__", otherwise=_DRIVER),
    "InterfaceError": Same("django.db.utils.Error"),
    "DatabaseError": Same("django.db.utils.Error"),
    "OperationalError": Same("django.db.utils.Error"),
    "InternalError": Same("django.db.utils.Error"),
    "DataError": Inner(
        "__cause__", otherwise=Row(Kind.PERMANENT, "the data cannot be taken as they are")
    ),
    "IntegrityError": Inner(
        "__cause__", otherwise=Row(Kind.PERMANENT, "a constraint refuses the data")
    ),
    "ProgrammingError": Inner(
        "__cause__",
        otherwise=Row(
            Kind.PERMANENT, "the connection was closed in a transaction, or a statement is wrong"
        ),
    ),
    "NotSupportedError": Inner(
        "__cause__",
        otherwise=Row(Kind.PERMANENT, "the driver or the database does not have this feature"),
    ),
}


def _handled(error: BaseException) -> BaseException | None:
    """The error of the database in whose place it was raised: Django does not name it the cause."""
    return error.__cause__ or error.__context__


_MIGRATIONS = """
    AmbiguityError BadMigrationError CircularDependencyError InconsistentMigrationHistory
    InvalidBasesError InvalidMigrationPlan IrreversibleError NodeNotFoundError
""".split()
_REFERRED = Row(Kind.PERMANENT, "other rows refer to the row")
OTHER_VERSIONS = (
    "django.db.models.query_utils.InvalidQuery",
    "django.db.utils.ConnectionDoesNotExist",
)

TABLE = Table(
    "django",
    {
        **{f"django.db.utils.{name}": entry for name, entry in _UTILS.items()},
        "django.db.transaction.TransactionManagementError": Row(
            Kind.PERMANENT, "an earlier statement failed; the transaction must be rolled back"
        ),
        "django.db.models.deletion.ProtectedError": _REFERRED,
        "django.db.models.deletion.RestrictedError": _REFERRED,
        "django.db.models.expressions.OutputFieldIsNoneError": _WRONG,
        **dict.fromkeys(OTHER_VERSIONS, _WRONG),
        "django.db.models.sql.datastructures.MultiJoin": Row(
            Kind.UNKNOWN, "used inside Django, which does not let it out"
        ),
        **{f"django.db.migrations.exceptions.{name}": _MIGRATION for name in _MIGRATIONS},
        "django.db.migrations.exceptions.MigrationSchemaMissing": Inner(
            _handled, otherwise=_MIGRATION
        ),
    },
    packages=("django.db",),
    retries="none; a connection that failed is replaced when the next request begins",
)
