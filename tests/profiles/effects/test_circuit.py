"""The document's mixin: five members, on one breaker."""

import asyncio

import pytest

from mainstay import CircuitOpenError, UsageError
from mainstay.profiles import effects
from mainstay.testing import virtual_time


class Client(effects.MixinAsyncCircuitBreaker):
    """A client with a loop of its own, in the order of the document."""

    def __init__(self, attempts=3, **options):
        self.settings = effects.DatabaseRetryConfig(max_attempts=attempts)
        self._init_circuit_breaker(service_name="orders-db", transport_type="database", **options)
        self.outcomes, self.queries = [], 0

    async def check(self):
        async with self._circuit_breaker_lock:
            await self._check_circuit_breaker("query", "c-1")

    async def query(self):
        await self.check()
        for attempt in range(self.settings.max_attempts):
            self.queries += 1
            error = self.outcomes.pop(0) if self.outcomes else None
            if error is None:
                async with self._circuit_breaker_lock:
                    await self._reset_circuit_breaker()
                return "row"
            async with self._circuit_breaker_lock:
                await self._record_circuit_failure("query", "c-1")
            if not effects.is_retryable(error) or attempt == self.settings.max_attempts - 1:
                raise error
            await asyncio.sleep(effects.calculate_backoff_delay(attempt))
            await self.check()
        return None


def run(scenario):
    with virtual_time():
        asyncio.run(scenario())


@pytest.mark.req("EF-11")
def test_it_opens_after_five_failures_and_lets_one_call_try_after_60_s():
    """The document's numbers are the defaults; every failure is recorded."""

    async def scenario():
        client = Client()
        client.outcomes = [ValueError("bug")] * 5
        for _ in range(5):
            with pytest.raises(ValueError, match="bug"):
                await client.query()
        with pytest.raises(effects.InfraUnavailableError) as refused:
            await client.query()
        assert client.queries == 5
        assert isinstance(refused.value, CircuitOpenError)
        assert refused.value.retry_after == pytest.approx(60.0)
        context = refused.value.context
        assert (context.transport_type.value, context.operation) == ("database", "query")
        assert (context.target_name, context.correlation_id) == ("orders-db", "c-1")
        await asyncio.sleep(60.0)
        await client.check()  # the one that may try
        with pytest.raises(effects.InfraUnavailableError):
            await client.check()
        await client._reset_circuit_breaker()
        assert await client.query() == "row"

    run(scenario)


@pytest.mark.req("EF-11")
def test_it_is_asked_again_before_each_retry():
    """The fifth failure opens it in the middle of a loop."""

    async def scenario():
        client = Client(attempts=10)
        client.outcomes = [effects.InfraTimeoutError("slow")] * 10
        with pytest.raises(effects.InfraCircuitOpenError):
            await client.query()
        assert client.queries == 5

    run(scenario)


@pytest.mark.req("EF-11")
def test_a_success_counts_from_zero_again():
    """Four failures, a success, four failures: closed."""

    async def scenario():
        client = Client()
        for _ in range(2):
            client.outcomes = [ValueError("bug")] * 4
            for _ in range(4):
                with pytest.raises(ValueError, match="bug"):
                    await client.query()
            assert await client.query() == "row"
        assert client._circuit_breaker.state.name == "CLOSED"

    run(scenario)


def test_wrong_numbers_and_a_missing_call_are_refused():
    """By their names."""
    with pytest.raises(ValueError, match="failure_threshold"):
        Client(threshold=0)
    with pytest.raises(ValueError, match="recovery_timeout"):
        Client(reset_timeout=-1.0)

    class Forgot(effects.MixinAsyncCircuitBreaker):
        """It has no circuit."""

    with pytest.raises(UsageError, match="_init_circuit_breaker"):
        asyncio.run(Forgot()._check_circuit_breaker("query"))
