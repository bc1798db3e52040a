"""What is known of libraries' exceptions: a table per library, loaded when it is needed.

Rules of the room: no table imports its library; one file is one library (or a few that share their
errors), and its `TABLE` judges every exception class of it; `shared` has what several have in
common.
"""

from __future__ import annotations

from mainstay.core.known.registry import REGISTRY
from mainstay.core.known.table import Cases, Inner, OwnRetries, Row, Same, Table, by_status
from mainstay.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.known.registry import Behind

__all__ = [
    "Cases",
    "Inner",
    "OwnRetries",
    "Row",
    "Same",
    "Table",
    "by_status",
    "register",
    "unregister",
]

FILES = {
    "aio_pika": "aio_pika",
    "aiohttp": "aiohttp",
    "aiokafka": "aiokafka",
    "aiormq": "aio_pika",
    "anthropic": "anthropic",
    "asyncpg": "asyncpg",
    "azure.core": "azure",
    "boto3": "botocore",
    "botocore": "botocore",
    "bson": "pymongo",
    "cimpl": "confluent_kafka",
    "confluent_kafka": "confluent_kafka",
    "consul": "consul",
    "django.db": "django",
    "elastic_transport": "elasticsearch",
    "elasticsearch": "elasticsearch",
    "google.api_core": "google",
    "google.auth": "google",
    "gridfs": "pymongo",
    "grpc": "grpc",
    "httpcore": "httpx",
    "httpcore2": "httpx2",
    "httpx": "httpx",
    "httpx2": "httpx2",
    "hvac": "hvac",
    "mainstay.profiles": "profiles",
    "nats": "nats",
    "neo4j": "neo4j",
    "openai": "openai",
    "pamqp": "aio_pika",
    "paramiko": "paramiko",
    "pika": "pika",
    "psycopg": "psycopg",
    "psycopg2": "psycopg2",
    "psycopg_pool": "psycopg",
    "pymongo": "pymongo",
    "redis": "redis",
    "requests": "requests",
    "s3transfer": "botocore",
    "smtplib": "smtplib",
    "socket": "socket",
    "sqlalchemy": "sqlalchemy",
    "sqlite3": "sqlite3",
    "ssl": "ssl",
    "subprocess": "subprocess",
    "urllib3": "urllib3",
    "valkey": "valkey",
}
"""The file of each package; `a.b` if only that part of a namespace is judged."""


SENDERS = frozenset(
    {
        "aiohttp.client",
        "aiohttp.client_reqrep",
        "http.client",
        "httpx._client",
        "httpx2._client",
        "urllib.request",
    }
)
"""The modules of clients whose functions have the request of an error of Python's own."""


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


def register(table: Table) -> None:
    """Makes the errors of a library, or of one's own, known to every policy.

    It is asked before the tables of mainstay; one of the same library is replaced.

    >>> import mainstay
    >>> class Busy(Exception):
    ...     pass
    >>> busy = Row(mainstay.Kind.OVERLOAD, "the queue is full")
    >>> register(Table("shop", {f"{Busy.__module__}.Busy": busy}, packages=(Busy.__module__,)))
    >>> mainstay.RetryPolicy().classification(Busy())
    Classification(overload, retryable, 'the queue is full')
    >>> unregister("shop")
    """
    if not isinstance(table, Table):
        raise UsageError(
            f"{table!r} is no Table",
            hint='such as Table("acme", {"acme.Busy": Row(Kind.OVERLOAD, "the queue is full")})',
        )
    REGISTRY.register(table)


def unregister(library: str) -> None:
    """Removes a table that was registered; those of mainstay stay.

    >>> unregister("shop")
    """
    REGISTRY.unregister(library)


def behind(exception: BaseException) -> Behind | None:
    """The client of HTTP that an error of Python's own came through; None if there is none.

    >>> behind(TimeoutError())
    """
    for holder in (exception, exception.__cause__):
        trace = None if holder is None else holder.__traceback__
        while trace is not None:
            if trace.tb_frame.f_globals.get("__name__") in SENDERS:
                from mainstay.integrations.errors.behind import client_of

                return client_of(exception)
            trace = trace.tb_next
    return None


REGISTRY.find = find
REGISTRY.behind = behind
