"""run_transaction of psycopg, psycopg2 and SQLAlchemy behind one interface.

A transaction is a generator: it yields statements and is sent their rows, so that the same one runs
sync and async.
"""

import asyncio
import sysconfig
from urllib.parse import urlsplit


def drive(transaction, execute):
    """Runs a transaction with a function that executes."""
    statements = transaction()
    try:
        statement = next(statements)
        while True:
            statement = statements.send(execute(statement))
    except StopIteration as end:
        return end.value


async def adrive(transaction, execute):
    statements = transaction()
    try:
        statement = next(statements)
        while True:
            statement = statements.send(await execute(statement))
    except StopIteration as end:
        return end.value


def scheme(url, dialect):
    return urlsplit(url)._replace(scheme=f"postgresql+{dialect}").geturl()


class Psycopg:
    """From a pool of psycopg_pool."""

    def __init__(self, url):
        from psycopg_pool import ConnectionPool

        self.source = ConnectionPool(url, min_size=1, max_size=3, open=True)

    def run(self, transaction, **options):
        from mainstay.integrations.psycopg import run_transaction

        def whole(connection):
            return drive(transaction, lambda sql: _rows(connection.execute(sql)))

        return run_transaction(self.source, whole, **options)

    def close(self):
        self.source.close()


class PsycopgOpener(Psycopg):
    """From a function that opens a connection."""

    def __init__(self, url):
        import psycopg

        self.source = lambda: psycopg.connect(url)

    def close(self):
        """Each connection was closed after its attempt."""


class PsycopgAsync:
    def __init__(self, url):
        self.url = url

    def run(self, transaction, **options):
        return asyncio.run(self.arun(transaction, options))

    async def arun(self, transaction, options):
        from psycopg_pool import AsyncConnectionPool

        from mainstay.integrations.psycopg import arun_transaction

        async def whole(connection):
            return await adrive(transaction, lambda sql: _arows(connection, sql))

        pool = AsyncConnectionPool(self.url, min_size=1, max_size=3, open=False)
        await pool.open()
        try:
            return await arun_transaction(pool, whole, **options)
        finally:
            await pool.close(timeout=0.1)  # it may be connecting to a server that never answers

    def close(self):
        """The pool was closed with its event loop."""


class PsycopgAsyncOpener(PsycopgAsync):
    async def arun(self, transaction, options):
        import psycopg

        from mainstay.integrations.psycopg import arun_transaction

        async def whole(connection):
            return await adrive(transaction, lambda sql: _arows(connection, sql))

        async def connect():
            return await psycopg.AsyncConnection.connect(self.url)

        return await arun_transaction(connect, whole, **options)


class Psycopg2:
    """From a function that opens a connection."""

    def __init__(self, url):
        import psycopg2

        self.source = lambda: psycopg2.connect(url)

    def run(self, transaction, **options):
        from mainstay.integrations.psycopg2 import run_transaction

        def whole(connection):
            with connection.cursor() as cursor:
                return drive(transaction, lambda sql: cursor.execute(sql) or _rows(cursor))

        return run_transaction(self.source, whole, **options)

    def close(self):
        """Each connection was closed after its attempt."""


class Psycopg2Pool(Psycopg2):
    """From a pool of psycopg2.pool."""

    def __init__(self, url):
        from psycopg2.pool import ThreadedConnectionPool

        self.source = ThreadedConnectionPool(1, 3, url)

    def close(self):
        self.source.closeall()


class AlchemyEngine:
    dialect = "psycopg"

    def __init__(self, url):
        import sqlalchemy

        self.engine = sqlalchemy.create_engine(scheme(url, self.dialect))
        self.source = self.engine

    def run(self, transaction, **options):
        from mainstay.integrations.sqlalchemy import run_transaction

        def whole(used):
            return drive(transaction, lambda sql: self.rows(used, sql))

        return run_transaction(self.source, whole, **options)

    def rows(self, used, sql):
        return _rows(used.exec_driver_sql(sql))

    def close(self):
        self.engine.dispose()


class AlchemySession(AlchemyEngine):
    dialect = "psycopg2"

    def __init__(self, url):
        from sqlalchemy.orm import sessionmaker

        super().__init__(url)
        self.source = sessionmaker(self.engine)

    def rows(self, used, sql):
        return _rows(used.connection().exec_driver_sql(sql))


class AlchemyAsync:
    dialect = "asyncpg"

    def __init__(self, url):
        self.url = scheme(url, self.dialect)

    def run(self, transaction, **options):
        return asyncio.run(self.arun(transaction, options))

    async def arun(self, transaction, options):
        from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

        from mainstay.integrations.sqlalchemy import arun_transaction

        engine = create_async_engine(self.url)

        async def whole(session):
            connection = await session.connection()

            async def execute(sql):
                return _rows(await connection.exec_driver_sql(sql))

            return await adrive(transaction, execute)

        try:
            return await arun_transaction(async_sessionmaker(engine), whole, **options)
        finally:
            await engine.dispose()

    def close(self):
        """The engine was disposed of with its event loop."""


class AlchemyPsycopgAsync(AlchemyAsync):
    dialect = "psycopg_async"


def _rows(result):
    returns = getattr(result, "returns_rows", None)
    has_rows = result.description if returns is None else returns
    return [tuple(row) for row in result.fetchall()] if has_rows else []


async def _arows(connection, sql):
    cursor = await connection.execute(sql)
    return await cursor.fetchall() if cursor.description else []


HANDS = {
    "psycopg": Psycopg,
    "psycopg-opener": PsycopgOpener,
    "psycopg-async": PsycopgAsync,
    "psycopg-async-opener": PsycopgAsyncOpener,
    "psycopg2": Psycopg2,
    "psycopg2-pool": Psycopg2Pool,
    "sqlalchemy-engine": AlchemyEngine,
    "sqlalchemy-session": AlchemySession,
    "sqlalchemy-async": AlchemyAsync,
    "sqlalchemy-psycopg-async": AlchemyPsycopgAsync,
}
if sysconfig.get_config_var("Py_GIL_DISABLED"):  # no greenlet there (conftest), and no psycopg2
    HANDS = {name: hand for name, hand in HANDS.items()
             if "psycopg2" not in (name.partition("-")[0], getattr(hand, "dialect", ""))
             and not ("sqlalchemy" in name and "async" in name)}  # fmt: skip
