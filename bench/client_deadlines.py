"""Table 23: by how much transactions, commands, records and calls of gRPC pass their deadline.

PostgreSQL is behind a proxy that swallows everything once the transaction has begun: its own
statement_timeout cannot be heard then, and the client has to give up. The same is done to a Valkey
server; or the answer comes a few bytes a second. The server of gRPC accepts a call and never
answers, or slowly, or its name is looked up at a server of names that never answers. The broker of
Kafka accepts connections and never answers.
"""

from __future__ import annotations

import asyncio
import socket
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
        for clients, opened in _SERVERS:
            try:
                server = servers.enter_context(opened())
            except Exception as error:
                why = reason(error)
                late.rows += [Row(name, None, GOAL, "ms", note=why) for name in clients]
            else:
                calls |= {name: partial(_measured, name, server, rounds) for name in clients}
        late.measure(calls, _LIBRARIES)
        rows = late.finish()
    method = (
        f"A deadline of {DEADLINE:g} s. The 99th percentile of the time past it, of {rounds} calls;"
        f" {AT_ONCE} clients at once, each in a process of its own with a proxy of its own. Beside"
        " them another waits for as long, which shows what the machine adds."
    )
    return Table("client_deadlines", "Deadlines of databases, Redis, gRPC and Kafka", method, rows)


_LIBRARIES = (
    "asyncpg",
    "confluent_kafka",
    "grpc",
    "psycopg",
    "psycopg2",
    "redis.asyncio",
    "sqlalchemy.ext.asyncio",
)


def _measured(name: str, server: str, rounds: int) -> list[float]:
    unaided = (_CALLS | _RECORDS).get(name)
    if unaided is not None:
        return unaided(server, rounds)
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


def _slow(proxy: FaultProxy) -> None:
    proxy.slow(20.0)


Fault = Callable[[FaultProxy], None]
_LONG = "SELECT repeat('x', 1000)"


def _psycopg(fault: Fault, proxy: FaultProxy, url: str, rounds: int) -> list[float]:
    import psycopg

    from mainstay.integrations.psycopg import run_transaction

    late = _Late()

    def work(connection: Any) -> None:
        connection.execute("SELECT 1")
        fault(proxy)
        connection.execute(_LONG)

    for _ in range(rounds):
        connection = psycopg.connect(url)
        with late.call():
            run_transaction(connection, work, policy=_policy())
        proxy.heal()
        connection.close()
    return late.times


def _psycopg_async(fault: Fault, proxy: FaultProxy, url: str, rounds: int) -> list[float]:
    import psycopg

    from mainstay.integrations.psycopg import arun_transaction

    late = _Late()

    async def work(connection: Any) -> None:
        await connection.execute("SELECT 1")
        fault(proxy)
        await connection.execute(_LONG)

    async def main() -> list[float]:
        for _ in range(rounds):
            connection = await psycopg.AsyncConnection.connect(url)
            with late.call():
                await arun_transaction(connection, work, policy=_policy())
            proxy.heal()
            await connection.close()
        return late.times

    return asyncio.run(main())


def _psycopg2(fault: Fault, proxy: FaultProxy, url: str, rounds: int) -> list[float]:
    import psycopg2

    from mainstay.integrations.psycopg2 import run_transaction

    late = _Late()

    def work(connection: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            fault(proxy)
            cursor.execute(_LONG)

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


def _opened_async(proxy: FaultProxy, url: str, rounds: int) -> list[float]:
    import psycopg

    from mainstay.integrations.psycopg import arun_transaction

    late = _Late()

    async def work(connection: Any) -> None:
        await connection.execute("SELECT 1")

    async def main() -> list[float]:
        for _ in range(rounds):
            proxy.black_hole()
            with late.call():
                await arun_transaction(
                    lambda: psycopg.AsyncConnection.connect(url), work, policy=_policy()
                )
            proxy.heal()
        return late.times

    return asyncio.run(main())


def _sqlalchemy(driver: str, fault: Fault, proxy: FaultProxy, url: str, rounds: int) -> list[float]:
    import sqlalchemy

    from mainstay.integrations.sqlalchemy import run_transaction

    engine = sqlalchemy.create_engine(url.replace("postgresql://", f"postgresql+{driver}://"))
    late = _Late()

    def work(connection: Any) -> None:
        connection.execute(sqlalchemy.text("SELECT 1"))
        fault(proxy)
        connection.execute(sqlalchemy.text(_LONG))

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


def _sqlalchemy_async(
    driver: str, fault: Fault, proxy: FaultProxy, url: str, rounds: int
) -> list[float]:
    import sqlalchemy

    from mainstay.integrations.sqlalchemy import arun_transaction

    late = _Late()

    async def work(connection: Any) -> None:
        await connection.execute(sqlalchemy.text("SELECT 1"))
        fault(proxy)
        await connection.execute(sqlalchemy.text(_LONG))

    async def main() -> list[float]:
        engine = _async_engine(driver, url)
        for _ in range(rounds):
            async with engine.connect() as connection:
                await connection.execute(sqlalchemy.text("SELECT 1"))
            with late.call():
                await arun_transaction(engine, work, policy=_policy())
            proxy.heal()
        await engine.dispose()
        return late.times

    return asyncio.run(main())


def _connecting_async(driver: str, proxy: FaultProxy, url: str, rounds: int) -> list[float]:
    import sqlalchemy
    from sqlalchemy.pool import NullPool

    from mainstay.integrations.sqlalchemy import arun_transaction

    late = _Late()

    async def work(connection: Any) -> None:
        await connection.execute(sqlalchemy.text("SELECT 1"))

    async def main() -> list[float]:
        engine = _async_engine(driver, url, poolclass=NullPool)
        for _ in range(rounds):
            proxy.black_hole()
            with late.call():
                await arun_transaction(engine, work, policy=_policy())
            proxy.heal()
        await engine.dispose()
        return late.times

    return asyncio.run(main())


def _async_engine(driver: str, url: str, **options: Any) -> Any:
    from sqlalchemy.ext.asyncio import create_async_engine

    return create_async_engine(url.replace("postgresql://", f"postgresql+{driver}://"), **options)


_HOLE = FaultProxy.black_hole
_DATABASES = {
    "psycopg, run_transaction": partial(_psycopg, _HOLE),
    "psycopg, arun_transaction": partial(_psycopg_async, _HOLE),
    "psycopg2, run_transaction": partial(_psycopg2, _HOLE),
    "psycopg, slow answer": partial(_psycopg, _slow),
    "psycopg, async, slow answer": partial(_psycopg_async, _slow),
    "psycopg2, slow answer": partial(_psycopg2, _slow),
    "psycopg, connecting": partial(_opened, "psycopg"),
    "psycopg, async, connecting": _opened_async,
    "psycopg2, connecting": partial(_opened, "psycopg2"),
    "SQLAlchemy with psycopg, run_transaction": partial(_sqlalchemy, "psycopg", _HOLE),
    "SQLAlchemy with psycopg2, run_transaction": partial(_sqlalchemy, "psycopg2", _HOLE),
    "SQLAlchemy with psycopg, arun_transaction": partial(_sqlalchemy_async, "psycopg", _HOLE),
    "SQLAlchemy with asyncpg, arun_transaction": partial(_sqlalchemy_async, "asyncpg", _HOLE),
    "SQLAlchemy with psycopg, slow answer": partial(_sqlalchemy, "psycopg", _slow),
    "SQLAlchemy with psycopg2, slow answer": partial(_sqlalchemy, "psycopg2", _slow),
    "SQLAlchemy with asyncpg, slow answer": partial(_sqlalchemy_async, "asyncpg", _slow),
    "SQLAlchemy with psycopg, connecting": partial(_connecting, "psycopg"),
    "SQLAlchemy with psycopg2, connecting": partial(_connecting, "psycopg2"),
    "SQLAlchemy with psycopg, async, connecting": partial(_connecting_async, "psycopg"),
    "SQLAlchemy with asyncpg, connecting": partial(_connecting_async, "asyncpg"),
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


def _redis(fault: Fault, proxy: FaultProxy, url: str, rounds: int) -> list[float]:
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


def _redis_async(fault: Fault, proxy: FaultProxy, url: str, rounds: int) -> list[float]:
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
    "redis-py, Retry: never answers": partial(_redis, _HOLE),
    "redis-py, Retry: slow answer": partial(_redis, _slow),
    "redis-py, AsyncRetry: never answers": partial(_redis_async, _HOLE),
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


def _grpc_slow(target: str, rounds: int) -> list[float]:
    import grpc

    from mainstay.integrations.grpc import ClientInterceptor

    late = _Late()
    with FaultProxy("127.0.0.1", int(target.rpartition(":")[2])) as proxy:
        for _ in range(rounds):
            with grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as plain:
                channel = grpc.intercept_channel(plain, ClientInterceptor(_policy()))
                echo = channel.unary_unary("/t.T/echo")
                echo(b"")
                _slow(proxy)
                with late.call():
                    echo(b"x" * 1000)
                proxy.heal()
    return late.times


def _grpc_slow_async(target: str, rounds: int) -> list[float]:
    import grpc

    from mainstay.integrations.grpc import aio_interceptors

    late = _Late()

    async def main() -> list[float]:
        with FaultProxy("127.0.0.1", int(target.rpartition(":")[2])) as proxy:
            for _ in range(rounds):
                async with grpc.aio.insecure_channel(
                    f"127.0.0.1:{proxy.port}", interceptors=aio_interceptors(_policy())
                ) as channel:
                    echo = channel.unary_unary("/t.T/echo")
                    await echo(b"")
                    _slow(proxy)
                    with late.call():
                        await echo(b"x" * 1000)
                    proxy.heal()
        return late.times

    return asyncio.run(main())


@contextmanager
def _unknown() -> Iterator[str]:
    """A name that grpc looks up at a server of names which never answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        yield f"dns://127.0.0.1:{deaf.getsockname()[1]}/slow.example:50051"


def _grpc_lookup(_target: str, rounds: int) -> list[float]:
    with _unknown() as target:
        return _grpc_sync(target, rounds)


def _grpc_lookup_async(_target: str, rounds: int) -> list[float]:
    with _unknown() as target:
        return _grpc_async(target, rounds)


_CALLS = {
    "gRPC, interceptor": _grpc_sync,
    "gRPC, aio interceptors": _grpc_async,
    "gRPC, interceptor: slow answer": _grpc_slow,
    "gRPC, aio interceptors: slow answer": _grpc_slow_async,
    "gRPC, interceptor: slow lookup": _grpc_lookup,
    "gRPC, aio interceptors: slow lookup": _grpc_lookup_async,
}


# --- Kafka ----------------------------------------------------------------------------------------


@contextmanager
def _deaf() -> Iterator[str]:
    """A broker that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def _kafka(server: str, rounds: int) -> list[float]:
    from confluent_kafka import Producer

    from mainstay.integrations.confluent_kafka import deliver

    late = _Late()
    producer = Producer({"bootstrap.servers": server, "log_level": 0})
    for _ in range(rounds):
        with late.call():
            deliver(producer, "news", b"{}", timeout=30.0)
        producer.purge()
        producer.poll(0)
    return late.times


_RECORDS = {"confluent-kafka, deliver": _kafka}
_SERVERS: tuple[tuple[dict[str, Any], Callable[[], Any]], ...] = (
    (_DATABASES, _postgres),
    (_COMMANDS, _valkey),
    (_CALLS, _grpc),
    (_RECORDS, _deaf),
)
