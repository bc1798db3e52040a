"""The drivers of PostgreSQL behind one sync interface: a connection that is in a transaction.

Each takes the seconds that it may take to connect: a busy machine may take some to fork a backend.
"""

import asyncio
from urllib.parse import urlsplit

CONNECTS_WITHIN = 60
EXPIRES = 2
"""The least that the libpq waits, for a test of what a connection attempt that expires raises."""


class Psycopg:
    """psycopg, its sync half."""

    def __init__(self, url, within=CONNECTS_WITHIN):
        import psycopg

        self.connection = psycopg.connect(url, connect_timeout=within)

    def execute(self, sql):
        cursor = self.connection.execute(sql)
        return cursor.fetchall() if cursor.description else []

    def commit(self):
        self.connection.commit()

    def disconnect(self):
        self.connection.close()

    def close(self):
        self.connection.close()


class Psycopg2(Psycopg):
    def __init__(self, url, within=CONNECTS_WITHIN):
        import psycopg2

        self.connection = psycopg2.connect(url, connect_timeout=within)

    def execute(self, sql):
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall() if cursor.description else []


class _Async:
    """An event loop of its own; `close` ends it."""

    def __init__(self, url, within=CONNECTS_WITHIN):
        self.runner = asyncio.Runner()
        self.is_closed = False
        try:
            self.connection = self.runner.run(self.connect(url, within))
        except BaseException:
            self.runner.close()
            raise

    def execute(self, sql):
        return self.runner.run(self.aexecute(sql))

    def commit(self):
        self.runner.run(self.connection.commit())

    def disconnect(self):
        self.runner.run(self.connection.close())

    def close(self):
        if self.is_closed:
            return
        self.is_closed = True
        try:
            self.runner.run(self.end())
        finally:
            self.runner.close()

    async def end(self):
        await self.connection.close()


class PsycopgAsync(_Async):
    async def connect(self, url, within):
        import psycopg

        return await psycopg.AsyncConnection.connect(url, connect_timeout=within)

    async def aexecute(self, sql):
        cursor = await self.connection.execute(sql)
        return await cursor.fetchall() if cursor.description else []


class Asyncpg(_Async):
    async def connect(self, url, within):
        import asyncpg

        self.transaction = None
        return await asyncpg.connect(url, timeout=within)

    async def aexecute(self, sql):
        if self.transaction is None:
            self.transaction = self.connection.transaction()
            await self.transaction.start()
        return [tuple(row) for row in await self.connection.fetch(sql)]

    def commit(self):
        transaction, self.transaction = self.transaction, None
        self.runner.run(transaction.commit())

    async def end(self):
        if not self.connection.is_closed():
            await self.connection.close()


class _Alchemy(Psycopg):
    dialect = ""

    def __init__(self, url, within=CONNECTS_WITHIN):
        import sqlalchemy

        self.engine = sqlalchemy.create_engine(
            urlsplit(url)._replace(scheme=f"postgresql+{self.dialect}").geturl(),
            connect_args={"connect_timeout": within},
        )
        self.connection = self.engine.connect()

    def execute(self, sql):
        found = self.connection.exec_driver_sql(sql)
        return [tuple(row) for row in found] if found.returns_rows else []

    def close(self):
        self.connection.close()
        self.engine.dispose()


class AlchemyPsycopg(_Alchemy):
    dialect = "psycopg"


class AlchemyPsycopg2(_Alchemy):
    dialect = "psycopg2"


class AlchemyAsyncpg(_Async):
    async def connect(self, url, within):
        from sqlalchemy.ext.asyncio import create_async_engine

        self.engine = create_async_engine(
            urlsplit(url)._replace(scheme="postgresql+asyncpg").geturl(),
            connect_args={"timeout": within},
        )
        return await self.engine.connect()

    async def aexecute(self, sql):
        found = await self.connection.exec_driver_sql(sql)
        return [tuple(row) for row in found] if found.returns_rows else []

    async def end(self):
        await self.connection.close()
        await self.engine.dispose()


DRIVERS = {
    "psycopg": Psycopg,
    "psycopg-async": PsycopgAsync,
    "psycopg2": Psycopg2,
    "asyncpg": Asyncpg,
    "sqlalchemy-psycopg": AlchemyPsycopg,
    "sqlalchemy-psycopg2": AlchemyPsycopg2,
    "sqlalchemy-asyncpg": AlchemyAsyncpg,
}
