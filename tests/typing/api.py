"""Read by mypy and pyright, never run: what users' type checkers must see.

Each assert_type is a promise: signatures survive decoration, results keep their types.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import assert_type

import mainstay
from mainstay import (
    Backoff,
    BreakerSettings,
    CircuitBreaker,
    CircuitOpenError,
    Engine,
    Jitter,
    KindRule,
    RateLimit,
    RateLimited,
    ResultRejected,
    RetryPolicy,
    RetryResult,
)
from mainstay.profiles import clients, control_plane, effects
from mainstay.profiles.agents import run_tool

policy = RetryPolicy(
    name="api",
    max_attempts=4,
    backoff=Backoff.exponential(0.1, factor=2.0, max_delay=5.0),
    jitter=Jitter.percent(0.1),
    retry_on=(ConnectionError, "SlowDown", lambda error: bool(error.args)),
    never_retry_on=PermissionError,
    classify={"SlowDown": "throttled"},
    per_kind={"throttled": KindRule(max_attempts=8)},
    deadline=30.0,
)


@mainstay.retry(on=(ConnectionError, TimeoutError), attempts=4, timeout=5.0, deadline=30.0)
def fetch(url: str, *, limit: int = 1) -> bytes:
    return url.encode() * limit


short = RetryPolicy(
    attempts=4, on=OSError, timeout=2.0, per_kind={"throttled": KindRule(attempts=8)}
)


@mainstay.retry(
    retry_on=(ConnectionError, TimeoutError),
    max_attempts=4,
    attempt_timeout=5.0,
    never_retry_on=PermissionError,
    log_level="INFO",
)
def fetch_again(url: str) -> bytes:
    return url.encode()


def mistakes() -> None:
    """What is refused when it runs is an error of a type checker before."""
    mainstay.retry(fetch)  # type: ignore[arg-type]
    mainstay.retry(ConnectionError)  # type: ignore[arg-type]
    mainstay.retry(on=OSError, attempt=3)  # type: ignore[call-arg]
    mainstay.retry(on=OSError, max_attempts="3")  # type: ignore[arg-type]
    RetryPolicy(ConnectionError)  # type: ignore[arg-type]
    RetryPolicy(atempts=3)  # type: ignore[arg-type]
    RetryPolicy(attempts="3")  # type: ignore[arg-type]
    KindRule(tries=3)  # type: ignore[arg-type]
    Engine().idempotent(fetch)  # type: ignore[arg-type]


@policy
async def afetch(url: str, *, limit: int = 1) -> bytes:
    return url.encode() * limit


class Client:
    """Methods of every sort keep their types."""

    @mainstay.retry(on=OSError)
    def get(self, path: str) -> int:
        return len(path)

    @classmethod
    @mainstay.retry(on=OSError)
    def make(cls, name: str) -> Client:
        return cls()

    @staticmethod
    @mainstay.retry(on=OSError)
    def parse(text: str) -> float:
        return float(text)


breaker = CircuitBreaker("pay", failure_threshold=3, count="all")
typo = CircuitBreaker("pay", count="every")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
assert_type(BreakerSettings(count="dependency").counts(ValueError()), bool)


def sync_results() -> None:
    assert_type(fetch("/", limit=2), bytes)
    assert_type(Client().get("/"), int)
    assert_type(Client.make("a"), Client)
    assert_type(Client.parse("1"), float)
    assert_type(policy.call(fetch, "/", limit=2), bytes)
    assert_type(policy.run(fetch, "/"), RetryResult[bytes])
    assert_type(policy.run(fetch, "/").value, bytes | None)
    assert_type(policy.replace(max_attempts=2), RetryPolicy)
    assert_type(fetch_again("/"), bytes)
    assert_type(policy | RetryPolicy(deadline=1.0), RetryPolicy)
    assert_type(RetryPolicy.from_dict(policy.to_dict()), RetryPolicy)
    assert_type(policy.delays(seed=7), list[float])
    assert_type(mainstay.carry(fetch)("/"), bytes)
    for attempt in policy.attempts():
        with attempt:
            assert_type(attempt.number, int)


async def async_results() -> None:
    assert_type(await afetch("/"), bytes)
    assert_type(await policy.acall(afetch, "/", limit=2), bytes)
    assert_type(await policy.arun(afetch, "/"), RetryResult[bytes])
    async for attempt in policy.attempts():
        with attempt:
            assert_type(attempt.is_last, bool)


async def engine_results(engine: Engine) -> None:
    assert_type(engine.call("network", fetch, "/"), bytes)
    assert_type(await engine.acall("network", afetch, "/"), bytes)
    assert_type(engine.run("network", fetch, "/"), RetryResult[bytes])
    assert_type(await engine.arun("network", afetch, "/"), RetryResult[bytes])
    assert_type(engine.operation("network", idempotency="keyed").call(fetch, "/"), bytes)
    assert_type(Engine.from_config("mainstay.yml", overrides=["store=memory://"]), Engine)


@Engine().protect("send")
def send(message: str) -> bool:
    return bool(message)


def protected() -> None:
    assert_type(send("a"), bool)
    assert_type(send.mainstay.policy.max_attempts, int)
    assert_type(send.mainstay.with_policy(attempts=1)("a"), bool)


def wrong_arguments() -> None:
    fetch(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    policy.call(fetch, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    policy.call(fetch, nonsense=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    RetryPolicy(max_attempts="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


plain: Callable[[str], int] = mainstay.retry(on=OSError)(len)
coroutine: Callable[[str], Awaitable[bytes]] = policy(afetch)


def decorations() -> None:
    assert_type(fetch.mainstay.policy.max_attempts, int)
    assert_type(fetch.mainstay.statistics.retries, int)
    once = fetch.mainstay.with_policy(max_attempts=1, deadline=timedelta(seconds=5))
    assert_type(once("/", limit=2), bytes)
    assert_type(fetch.mainstay.with_policy(policy)("/"), bytes)
    fetch.mainstay.with_policy(max_attempts="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fetch.mainstay.with_policy(nonsense=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(Client.get(Client(), "/"), int)
    assert_type(Client.get.mainstay.policy.name, str)
    assert_type(Client().get.mainstay.policy.name, str)
    assert_type(Client().get.mainstay.with_policy(attempts=1)(Client(), "/"), int)
    Client().get.mainstay.with_policy(attempts=1)("/")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
    short_names = fetch.mainstay.with_policy(attempts=1, on=OSError, timeout=timedelta(seconds=5))
    assert_type(short_names("/"), bytes)
    fetch.mainstay.with_policy(attempts="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    bound: Callable[[str], int] = Client().get
    assert_type(bound("/"), int)


async def async_decorations() -> None:
    assert_type(await afetch.mainstay.with_policy(max_attempts=1)("/"), bytes)


new_fields = RetryPolicy(
    backoff=Backoff.chain(0.1, timedelta(seconds=1), Backoff.linear(2.0)),
    wait_from=lambda outcome: None,
    on_exhausted="raise",
    deadline=timedelta(minutes=1),
)
half = timedelta(seconds=0.5)
planes = control_plane.RetryPolicy(base_delay=half, max_delay=timedelta(minutes=1))
http = effects.HttpRetryConfig(initial_delay_seconds=half, read_timeout_seconds=half)
table = effects.EffectRetryConfig(initial_delay_seconds=half)
of_client = clients.RetryConfiguration(base_delay=half, jitter=half)
of_circuit = clients.CircuitBreakerConfiguration(recovery_timeout_seconds=half)
manager = control_plane.RetryManager(ttl=half, attempt_timeout=half)


def lengths_of_time(log: mainstay.AuditLog) -> None:
    assert_type(planes.base_delay, float)
    assert_type(http.read_timeout_seconds, float)
    assert_type(table.initial_delay_seconds, float)
    assert_type(of_client.jitter, float)
    assert_type(of_circuit.recovery_timeout_seconds, float)
    assert_type(manager.attempt_timeout, float | None)
    assert_type(control_plane.IdempotencyManager(ttl=half).ttl, float)
    control_plane.NatsClient(timeout=half)
    clients.with_s3_retry(base_delay=half)
    clients.with_api_retry(max_delay=half)
    clients.with_api_retry(log_level="INFO", engine=mainstay.Engine(), operation="orders.read")
    run_tool(["true"], timeout=half)
    log.flush(half)
    effects.HttpRetryConfig(nonsense=half)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


breaker = CircuitBreaker("pay", failure_if_result=bool, recovery_timeout=timedelta(seconds=5))
limit = RateLimit("search", per_second=2.0, first_calls=True, max_wait=timedelta(seconds=1))


def circuits(listener: Callable[[object], None]) -> None:
    breaker.listen(listener, calls=True)
    breaker.unlisten(listener)
    try:
        breaker.call(fetch, "/")
    except CircuitOpenError as error:
        assert_type(error.opened_by, str | None)
    except ResultRejected as error:
        assert_type(error.attempts, int)
    except RateLimited as error:
        assert_type(error.retry_after, float)
