"""The errors of the front doors that the doors raise themselves: those of an open circuit."""

import asyncio

import pytest

from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.profiles import clients, effects


class Client(effects.MixinAsyncCircuitBreaker):
    """A client whose circuit opens at the first failure."""

    def __init__(self):
        self._init_circuit_breaker(threshold=1, service_name="orders-db")


def of_effects():
    client = Client()
    asyncio.run(client._record_circuit_failure("query"))
    asyncio.run(client._check_circuit_breaker("query"))


def of_clients():
    config = clients.CircuitBreakerConfiguration(failure_threshold=1)
    breaker = clients.CircuitBreaker("s3.get", config)
    breaker.record_failure()
    breaker.call(len, "abc")


@pytest.mark.parametrize(
    ("refused", "name"),
    [(of_effects, "InfraCircuitOpenError"), (of_clients, "CircuitOpenException")],
)
def test_an_open_circuit_is_an_overload(refused, name):
    """Whichever door raises it."""
    with pytest.raises(clients.CircuitOpenException) as caught:
        refused()
    known = kind_of(caught.value)
    assert type(caught.value).__name__ == name
    assert (known.kind, known.table) == (Kind.OVERLOAD, "mainstay.profiles")
