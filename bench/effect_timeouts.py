"""Table 24: how exactly an effect's stalled call ends at its setting, for each of the five kinds.

The server is behind a proxy that accepts connections and swallows everything. Off by one part is
what is allowed: 5 % of the setting, or 100 ms if that is more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from bench.measure import Effort, reason
from bench.table import Row, Table, at_most
from mainstay.integrations.psycopg import limited
from mainstay.profiles.effects import (
    ConsulRetryConfig,
    DatabaseRetryConfig,
    HttpRetryConfig,
    KafkaRetryConfig,
    VaultRetryConfig,
    effect,
)
from mainstay.testing import FaultProxy

ORDER = 24
IS_LONG = True
GOAL = at_most(1.0)
AT_ONCE = 10
DATABASE = DatabaseRetryConfig(connection_timeout_seconds=1.5, query_timeout_seconds=2.0)
KAFKA = KafkaRetryConfig(delivery_timeout_ms=10_000)
HTTP = HttpRetryConfig(read_timeout_seconds=1.0)
VAULT = VaultRetryConfig(attempt_timeout_seconds=0.5)
CONSUL = ConsulRetryConfig(attempt_timeout_seconds=0.5)


def run(effort: Effort) -> Table:
    """Every kind, ten stalled calls at once."""
    rounds = 1 if effort.is_quick else 4
    rows: list[Row] = []
    for name, (setting, opened) in KINDS.items():
        what = f"{name}, {setting:g} s"
        if effort.is_quick and setting > 5.0:
            rows.append(Row(what, None, GOAL, "of the allowed", note="too long for --quick"))
            continue
        try:
            with opened() as (prepare, call):
                call(prepare()[0])  # what a client loads at its first call
                times = [t for _ in range(rounds) for t in _stalled(prepare, call)]
        except Exception as error:
            rows.append(Row(what, None, GOAL, "of the allowed", note=reason(error)))
            continue
        allowed = max(0.05 * setting, 0.1)
        off = sorted(abs(each - setting) / allowed for each in times)
        p99 = off[int(0.99 * (len(off) - 1))]
        spread = (max(times) - min(times)) / setting
        rows.append(Row(what, p99, GOAL, "of the allowed", spread))
    method = (
        f"The 99th percentile of {rounds * AT_ONCE} calls, {AT_ONCE} at once, of how far the time"
        " to failure is from the setting; the spread is that of the times."
    )
    return Table("effect_timeouts", "Timeouts of effects", method, rows)


def _stalled(prepare: Callable[[], list[Any]], call: Callable[..., Any]) -> list[float]:
    """The times of calls that must fail, all at once."""
    times: list[float] = []

    def timed(given: Any) -> None:
        began = time.perf_counter()
        result = call(given)
        times.append(time.perf_counter() - began)
        assert result.error_type == "InfraTimeoutError", result

    threads = [threading.Thread(target=timed, args=[each]) for each in prepare()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(times) < AT_ONCE:
        raise AssertionError("a call did not fail as a timeout")
    return times


# --- the five kinds -------------------------------------------------------------------------------


@contextmanager
def _postgres() -> Iterator[tuple[FaultProxy, str]]:
    from tests.servers.postgres import start_postgres

    server = start_postgres()
    try:
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        with FaultProxy("127.0.0.1", port) as proxy:
            yield proxy, proxy.url(server.url)
    finally:
        server.kill()


def _limited() -> Any:
    import psycopg

    return limited(
        psycopg.Connection,
        connect=DATABASE.connection_timeout_seconds,
        query=DATABASE.query_timeout_seconds,
    )


@contextmanager
def _connecting() -> Iterator[tuple[Any, Any]]:
    options = DATABASE.client_options("psycopg")
    with _postgres() as (proxy, url):
        proxy.black_hole()
        connection = _limited()
        call = effect(kind="database")(lambda _: connection.connect(url, **options))
        yield (lambda: [None] * AT_ONCE), call


@contextmanager
def _querying() -> Iterator[tuple[Any, Any]]:
    options = DATABASE.client_options("psycopg")
    with _postgres() as (proxy, url):

        def prepare() -> list[Any]:
            proxy.heal()
            opened = [_limited().connect(url, **options) for _ in range(AT_ONCE)]
            proxy.black_hole()
            return opened

        yield prepare, effect(kind="database")(lambda connection: connection.execute("SELECT 1"))


@contextmanager
def _publishing() -> Iterator[tuple[Any, Any]]:
    from confluent_kafka import Producer

    from mainstay.integrations.confluent_kafka import deliver
    from tests.servers.kafka import MockCluster

    with MockCluster() as cluster, FaultProxy("127.0.0.1", cluster.port) as proxy:
        proxy.black_hole()
        servers = f"{proxy.host}:{proxy.port}"
        options = {"bootstrap.servers": servers, **KAFKA.client_options("confluent_kafka")}

        def prepare() -> list[Any]:
            return [Producer({**options, "log_level": 0}) for _ in range(AT_ONCE)]

        def publish(producer: Any) -> None:
            deliver(producer, "users", b"{}", timeout=KAFKA.delivery_timeout_ms / 1000.0)

        yield prepare, effect(kind="kafka")(publish)


@contextmanager
def _silent() -> Iterator[FaultProxy]:
    from tests.integrations.errors.service_stub import ServiceStub

    with ExitStack() as stack:
        service = stack.enter_context(ServiceStub())
        proxy = stack.enter_context(FaultProxy("127.0.0.1", service.port))
        proxy.black_hole()
        yield proxy


@contextmanager
def _getting() -> Iterator[tuple[Any, Any]]:
    import httpx

    with _silent() as proxy, httpx.Client(**HTTP.client_options("httpx")) as client:
        url = f"http://{proxy.host}:{proxy.port}/"
        yield (lambda: [None] * AT_ONCE), effect(kind="http")(lambda _: client.get(url))


@contextmanager
def _reading_secrets() -> Iterator[tuple[Any, Any]]:
    import hvac

    with _silent() as proxy:
        url = f"http://{proxy.host}:{proxy.port}"

        def prepare() -> list[Any]:
            options = VAULT.client_options("hvac")
            return [hvac.Client(url=url, token="t", **options) for _ in range(AT_ONCE)]

        yield prepare, effect(kind="vault")(lambda client: client.read("secret/shop"))


@contextmanager
def _reading_keys() -> Iterator[tuple[Any, Any]]:
    import consul

    with _silent() as proxy:

        def prepare() -> list[Any]:
            options = CONSUL.client_options("consul")
            return [consul.Consul(proxy.host, proxy.port, **options) for _ in range(AT_ONCE)]

        yield prepare, effect(kind="consul")(lambda client: client.kv.get("shop"))


KINDS: dict[str, tuple[float, Callable[[], Any]]] = {
    "database, connecting": (DATABASE.connection_timeout_seconds, _connecting),
    "database, a query": (DATABASE.query_timeout_seconds, _querying),
    "Kafka, a delivery": (KAFKA.delivery_timeout_ms / 1000.0, _publishing),
    "HTTP, an answer": (HTTP.read_timeout_seconds, _getting),
    "Vault, an attempt": (VAULT.attempt_timeout_seconds, _reading_secrets),
    "Consul, an attempt": (CONSUL.attempt_timeout_seconds, _reading_keys),
}
