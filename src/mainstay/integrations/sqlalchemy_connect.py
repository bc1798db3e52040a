"""How an engine of SQLAlchemy connects to PostgreSQL within the time that is left, or not at all.

Not for users: `attach` and `run_transaction` of sqlalchemy.py use it. A connection is limited until
it can be used: name lookup, TLS and login, then what SQLAlchemy asks of a new one (types; the first
one of an engine also the version of the server), and the ping of `pool_pre_ping` later on. The wait
for a free connection of the pool is limited with every database.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

import sqlalchemy
from sqlalchemy import event

import mainstay.deadline as deadline
from mainstay.integrations.connection_deadline import LATE, connect_within
from mainstay.integrations.transactions import client_limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_SETTING_UP: ContextVar[ExitStack | None] = ContextVar("mainstay_setting_up", default=None)
"""What limits a connection that was made and cannot be used yet."""


def limit_connecting(engine: Any) -> None:
    """Limits the wait for the pool of an engine, and for new connections to PostgreSQL."""
    engine = getattr(engine, "sync_engine", engine)
    if not isinstance(engine, sqlalchemy.Engine):
        return
    _limit_pool(engine.pool)
    if engine.dialect.name != "postgresql":
        return
    dialect: Any = engine.dialect
    if not isinstance(dialect.connect, _Connect):
        dialect.connect = _Connect(dialect)
        dialect.do_ping = partial(_ping, dialect, dialect.do_ping)
        event.listen(engine, "connect", _is_set_up)  # after those that SQLAlchemy has for itself


def _limit_pool(pool: Any) -> None:
    """Has a pool wait for a free connection no longer than the time that is left.

    Its `pool_timeout` is one for all callers; its queue is asked for each of them.
    """
    queue = getattr(pool, "_pool", None)
    plain = getattr(queue, "get", None)
    if plain is not None and not isinstance(plain, _Get):
        queue.get = _Get(plain)  # type: ignore[union-attr]


class _Get:
    """Stands for the `get` of the queue of a pool."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain

    def __call__(self, block: bool = True, timeout: float | None = None) -> Any:
        left = deadline.remaining()
        if left is not None:
            timeout = max(0.0, left if timeout is None else min(left, timeout))
        return self._plain(block, timeout)


def bounded(dialect: Any, raw: Any, left: float) -> AbstractContextManager[None]:
    """Limits each wait of a driver's connection for an answer, if it is known how."""
    if dialect.driver == "asyncpg":
        return _terminated(raw, left)
    if dialect.driver == "psycopg2":
        import mainstay.integrations.psycopg2 as psycopg2

        return psycopg2.bounded(raw)
    if dialect.driver not in ("psycopg", "psycopg_async"):
        return nullcontext()
    import mainstay.integrations.psycopg as psycopg

    return psycopg.abounded(raw) if dialect.is_async else psycopg.bounded(raw)


@contextmanager
def _terminated(raw: Any, left: float) -> Iterator[None]:
    """Ends a connection of asyncpg when the time is up; cancelled, it would be closed in 2 s."""
    import asyncio

    timer = asyncio.get_running_loop().call_later(client_limit(left), raw.terminate)
    try:
        yield
    finally:
        timer.cancel()


def _ping(dialect: Any, plain: Any, connection: Any) -> Any:
    """What a pool asks of a connection that it has kept, if it has `pool_pre_ping`."""
    left = deadline.remaining()
    if left is None:
        return plain(connection)
    with bounded(dialect, dialect.get_driver_connection(connection), left):
        return plain(connection)


def _is_set_up(_connection: object, _record: object) -> None:
    limits = _SETTING_UP.get()
    if limits is not None:
        _SETTING_UP.set(None)
        limits.close()


class ConnectTimeout:
    """Sets a driver's timeout for connecting to the time that is left; to the engine's, if less.

    Before 2.1 SQLAlchemy has one dictionary of options for all connections: what the engine itself
    has in it is kept here, and put back.
    """

    __slots__ = ("__weakref__", "_own")

    def __init__(self) -> None:
        self._own: dict[str, Any] = {}

    def __call__(
        self, dialect: Any, _record: object, _args: object, options: dict[str, Any]
    ) -> None:
        option = _CONNECT_OPTIONS.get(dialect.driver) if dialect.name == "postgresql" else None
        if option is None:
            return
        own = self._own.setdefault(option, options.get(option))
        left = deadline.remaining()
        if left is not None:
            limit = left if option == "timeout" else max(2, ceil(left))
            options[option] = min(limit, type(limit)(own)) if own else limit
        elif own is None:
            options.pop(option, None)
        else:
            options[option] = own


_CONNECT_OPTIONS = {
    "asyncpg": "timeout",
    "psycopg": "connect_timeout",
    "psycopg2": "connect_timeout",
    "psycopg_async": "connect_timeout",
}


class _Connect:
    """Stands for the `connect` of a dialect; what other listeners have set is in the options.

    libpq looks a name up and has its `connect_timeout` in whole seconds, two at least. So it
    connects in a thread, which is left behind if it takes too long, and closes what comes late.
    """

    def __init__(self, dialect: Any) -> None:
        self._dialect = dialect
        self._connect = dialect.connect

    def __call__(self, *args: Any, **options: Any) -> Any:
        left = deadline.remaining()
        if left is None:
            return self._connect(*args, **options)
        made = self._made(left, args, options)
        limits = ExitStack()
        raw = self._dialect.get_driver_connection(made)
        limits.enter_context(bounded(self._dialect, raw, deadline.remaining() or 0.0))
        _SETTING_UP.set(limits)
        return made

    def _made(self, left: float, args: Any, options: dict[str, Any]) -> Any:
        if self._dialect.is_async:
            return self._connect(*args, **self._limited(options, left))
        connect = partial(self._connect, *args, **options)
        return connect_within(left, connect, self._late, lambda made: made.close())

    def _limited(self, options: dict[str, Any], left: float) -> dict[str, Any]:
        """The options, with a function that connects in time, if the driver takes one."""
        dbapi = self._dialect.loaded_dbapi
        if self._dialect.driver == "asyncpg":
            create = dbapi.asyncpg.connect
        elif self._dialect.driver in ("psycopg", "psycopg_async"):
            create = dbapi.psycopg.AsyncConnection.connect
        else:
            return options
        create = options.get("async_creator_fn", create)

        async def created(*args: Any, **rest: Any) -> Any:
            import asyncio

            try:
                return await asyncio.wait_for(create(*args, **rest), left)
            except TimeoutError as error:
                raise self._late() from error

        return {**options, "async_creator_fn": created}

    def _late(self) -> Exception:
        dbapi = self._dialect.loaded_dbapi
        if self._dialect.driver == "asyncpg":
            return TimeoutError(LATE)
        errors: Any = getattr(getattr(dbapi, "psycopg", dbapi), "errors", None)
        error: Exception = getattr(errors, "ConnectionTimeout", dbapi.OperationalError)(LATE)
        return error
