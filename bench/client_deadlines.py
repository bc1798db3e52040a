"""Table 23: by how much transactions, commands and calls of gRPC pass their deadline.

PostgreSQL is behind a proxy that swallows everything once the transaction has begun: its own
statement_timeout cannot be heard then, and the client has to give up. The same is done to a Valkey
server, or its answer comes a few bytes a second. The server of gRPC accepts a call and never
answers.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.lateness import AT_ONCE, GOAL, Began, beside_a_bare_wait
from bench.measure import Effort, reason
from bench.table import Row, Table
from mainstay import RetryPolicy, deadline
from mainstay.testing.proxy.proxy import FaultProxy

ORDER = 23
IS_LONG = True
DEADLINE = 0.3


def run(effort: Effort) -> Table:
    """Every client."""
    rounds = 10 if effort.is_quick else 100
    with ExitStack() as servers:
        late = servers.enter_context(beside_a_bare_wait(DEADLINE))
        calls: dict[str, Callable[[], list[float]]] = {}
        for clients, opened in (_DATABASES, _postgres), (_COMMANDS, _valkey), (_CALLS, _grpc):
            try:
                server = servers.enter_context(opened())
            except Exception as error:
                why = reason(error)
                late.rows += [Row(name, None, GOAL, "ms", note=why) for name in clients]
            else:
                calls |= {name: partial(_measured, name, server, rounds) for name in clients}
        late.measure(calls, ("grpc", "psycopg", "psycopg2", "redis.asyncio", "sqlalchemy"))
        rows = late.finish()
    method = (
        f"A deadline of {DEADLINE:g} s. The 99th percentile of the time past it, of {rounds} calls;"
        f" {AT_ONCE} clients at once, each in a process of its own with a proxy of its own. Beside"
        " them another waits for as long, which shows what the machine adds."
    )
    return Table("client_deadlines", "Deadlines of databases, Redis and gRPC", method, rows)


def _measured(name: str, server: str, rounds: int) -> list[float]:
    if name in _CALLS:
        return _CALLS[name](server, rounds)
    client = (_DATABASES | _COMMANDS)[name]
    with FaultProxy("127.0.0.1", urlsplit(server).port or 0) as proxy:
        return client(proxy, proxy.url(server), rounds)


def _policy() -> RetryPolicy:
    return RetryPolicy(max_attempts=3)


class _Late:
    """The times past the deadline of calls that must fail."""

    def __init__(self) -> None:
        self.times: list[float] = []

    @contextmanager
    def call(self) -> Iterator[None]:
        began = Began()
        try:
            with deadline.within(DEADLINE):
                yield
        except Exception:
            self.times.append(began.past(DEADLINE))
        else:
            raise AssertionError("an answer that cannot have come")


# --- PostgreSQL -----------------------------------------------------------------------------------


@contextmanager
def _postgres() -> Iterator[str]:
    from tests.servers.postgres import start_postgres

    server = start_postgres()
    try:
        yield server.url
    finally:
        server.kill()


def _psycopg(proxy: FaultProxy, url: str, rounds: int) -> list[float]:
    import psycopg

    from mainstay.integrations.psycopg import run_transaction

    late = _Late()

    def work(connection: Any) -> None:
        connection.execute("SELECT 1")
        proxy.black_hole()
        connection.execute("SELECT 1")

    for _ in range(rounds):
        connection = psycopg.connect(url)
        with late.call():
            run_transaction(connection, work, policy=_policy())
        proxy.heal()
        connection.close()
    return late.times


def _psycopg_async(proxy: FaultProxy, url: str, rounds: int) -> list[float]:
    import psycopg

    from mainstay.integrations.psycopg import arun_transaction

    late = _Late()

    async def work(connection: Any) -> None:
        await connection.execute("SELECT 1")
        proxy.black_hole()
        await connection.execute("SELECT 1")

    async def main() -> list[float]:
        for _ in range(rounds):
            connection = await psycopg.AsyncConnection.connect(url)
            with late.call():
                await arun_transaction(connection, work, policy=_policy())
            proxy.heal()
            await connection.close()
        return late.times

    return asyncio.run(main())


def _psycopg2(proxy: FaultProxy, url: str, rounds: int) -> list[float]:
    import psycopg2

    from mainstay.integrations.psycopg2 import run_transaction

    late = _Late()

    def work(connection: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            proxy.black_hole()
            cursor.execute("SELECT 1")

    for _ in range(rounds):
        connection = psycopg2.connect(url)
        with late.call():
            run_transaction(connection, work, policy=_policy())
        proxy.heal()
        connection.close()
    return late.times


def _opened(library: str, proxy: FaultProxy, url: str, rounds: int) -> list[float]:
    hands, driver = import_module(f"mainstay.integrations.{library}"), import_module(library)
    late = _Late()
    for _ in range(rounds):
        proxy.black_hole()
        with late.call():
            hands.run_transaction(lambda: driver.connect(url), print, policy=_policy())
        proxy.heal()
    return late.times


def _sqlalchemy(driver: str, proxy: FaultProxy, url: str, rounds: int) -> list[float]:
    import sqlalchemy

    from mainstay.integrations.sqlalchemy import run_transaction

    engine = sqlalchemy.create_engine(url.replace("postgresql://", f"postgresql+{driver}://"))
    late = _Late()

    def work(connection: Any) -> None:
        connection.execute(sqlalchemy.text("SELECT 1"))
        proxy.black_hole()
        connection.execute(sqlalchemy.text("SELECT 1"))

    for _ in range(rounds):
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text("SELECT 1"))
        with late.call():
            run_transaction(engine, work, policy=_policy())
        proxy.heal()
    engine.dispose()
    return late.times


def _connecting(driver: str, proxy: FaultProxy, url: str, rounds: int) -> list[float]:
    import sqlalchemy
    from sqlalchemy.pool import NullPool

    from mainstay.integrations.sqlalchemy import run_transaction

    made = url.replace("postgresql://", f"postgresql+{driver}://")
    engine = sqlalchemy.create_engine(made, poolclass=NullPool)
    late = _Late()

    def work(connection: Any) -> None:
        connection.execute(sqlalchemy.text("SELECT 1"))

    for _ in range(rounds):
        proxy.black_hole()
        with late.call():
            run_transaction(engine, work, policy=_policy())
        proxy.heal()
    engine.dispose()
    return late.times


_DATABASES = {
    "psycopg, run_transaction": _psycopg,
    "psycopg, arun_transaction": _psycopg_async,
    "psycopg2, run_transaction": _psycopg2,
    "psycopg, connecting": partial(_opened, "psycopg"),
    "psycopg2, connecting": partial(_opened, "psycopg2"),
    "SQLAlchemy with psycopg, run_transaction": partial(_sqlalchemy, "psycopg"),
    "SQLAlchemy with psycopg2, run_transaction": partial(_sqlalchemy, "psycopg2"),
    "SQLAlchemy with psycopg, connecting": partial(_connecting, "psycopg"),
    "SQLAlchemy with psycopg2, connecting": partial(_connecting, "psycopg2"),
}


# --- Redis ----------------------------------------------------------------------------------------


@contextmanager
def _valkey() -> Iterator[str]:
    from tests.servers.valkey import start_valkey

    with tempfile.TemporaryDirectory() as folder:
        server = start_valkey(Path(folder))
        try:
            yield server.url
        finally:
            server.kill()


def _slow(proxy: FaultProxy) -> None:
    proxy.slow(20.0)


def _redis(
    fault: Callable[[FaultProxy], None], proxy: FaultProxy, url: str, rounds: int
) -> list[float]:
    import redis

    from mainstay.integrations.redis import Retry

    late = _Late()
    options: dict[str, Any] = {"socket_timeout": 30.0, "retry": Retry(_policy())}
    for _ in range(rounds):
        with redis.Redis.from_url(url, **options) as client:
            client.set("k", "x" * 1000)
            fault(proxy)
            with late.call():
                client.get("k")
            proxy.heal()
    return late.times


def _redis_async(
    fault: Callable[[FaultProxy], None], proxy: FaultProxy, url: str, rounds: int
) -> list[float]:
    import redis.asyncio

    from mainstay.integrations.redis import AsyncRetry

    late = _Late()
    options: dict[str, Any] = {"socket_timeout": 30.0, "retry": AsyncRetry(_policy())}

    async def main() -> list[float]:
        for _ in range(rounds):
            async with redis.asyncio.Redis.from_url(url, **options) as client:
                await client.set("k", "x" * 1000)
                fault(proxy)
                with late.call():
                    await client.get("k")
                proxy.heal()
        return late.times

    return asyncio.run(main())


_COMMANDS = {
    "redis-py, Retry: never answers": partial(_redis, FaultProxy.black_hole),
    "redis-py, Retry: slow answer": partial(_redis, _slow),
    "redis-py, AsyncRetry: never answers": partial(_redis_async, FaultProxy.black_hole),
    "redis-py, AsyncRetry: slow answer": partial(_redis_async, _slow),
}


# --- gRPC -----------------------------------------------------------------------------------------


@contextmanager
def _grpc() -> Iterator[str]:
    from tests.integrations.errors.grpc_server import GrpcServer

    server = GrpcServer()
    try:
        yield server.target
    finally:
        server.stop()


def _grpc_sync(target: str, rounds: int) -> list[float]:
    import grpc

    from mainstay.integrations.grpc import ClientInterceptor

    late = _Late()
    with grpc.insecure_channel(target) as plain:
        hang = grpc.intercept_channel(plain, ClientInterceptor(_policy())).unary_unary("/t.T/hang")
        for _ in range(rounds):
            with late.call():
                hang(b"")
    return late.times


def _grpc_async(target: str, rounds: int) -> list[float]:
    import grpc

    from mainstay.integrations.grpc import aio_interceptors

    late = _Late()

    async def main() -> list[float]:
        async with grpc.aio.insecure_channel(
            target, interceptors=aio_interceptors(_policy())
        ) as channel:
            hang = channel.unary_unary("/t.T/hang")
            for _ in range(rounds):
                with late.call():
                    await hang(b"")
        return late.times

    return asyncio.run(main())


_CALLS = {"gRPC, interceptor": _grpc_sync, "gRPC, aio interceptors": _grpc_async}
