"""The number of the attempt that is under way, read off the stack."""

import asyncio

import pytest

import mainstay
from mainstay import Backoff, RetryPolicy
from mainstay.runtime.enclosing import attempt_around

PLAIN = RetryPolicy(attempts=3, backoff=Backoff.constant(0))
BOUNDED = RetryPolicy(attempts=3, backoff=Backoff.constant(0), deadline=60.0)


def failing(seen):
    seen.append(attempt_around())
    raise ConnectionError


async def afailing(seen):
    await asyncio.sleep(0)
    seen.append(attempt_around())
    raise ConnectionError


def test_without_a_retry_it_is_the_first():
    """Nothing is repeated."""
    assert attempt_around() == 1


@pytest.mark.parametrize("policy", [PLAIN, BOUNDED], ids=["plain", "bounded"])
def test_each_attempt_has_its_number(policy):
    """On every way in which attempts are made."""
    seen = []
    with pytest.raises(ConnectionError):
        policy.call(failing, seen)
    assert policy.run(failing, seen).attempts == 3
    with pytest.raises(ConnectionError):
        policy(failing)(seen)
    with pytest.raises(ConnectionError):
        asyncio.run(policy.acall(afailing, seen))
    asyncio.run(policy.arun(afailing, seen))
    with pytest.raises(ConnectionError):
        for attempt in policy.attempts():
            with attempt:
                failing(seen)
    assert seen == [1, 2, 3] * 6


def test_an_inner_retry_counts_for_itself():
    """The nearest one is meant."""
    seen = []

    def twice():
        seen.append(attempt_around())
        RetryPolicy(attempts=2, backoff=Backoff.constant(0)).run(failing, seen)
        raise ConnectionError

    PLAIN.run(twice)
    assert seen == [1, 1, 2, 2, 1, 2, 3, 1, 2]


def test_a_task_of_its_own_is_not_an_attempt():
    """What is started in an attempt, and not awaited there, is not repeated with it."""
    seen = []

    async def count():
        seen.append(attempt_around())

    async def start():
        await asyncio.create_task(count())
        raise ConnectionError

    asyncio.run(PLAIN.arun(start))
    assert seen == [1, 1, 1]


def test_a_transport_without_a_policy_sends_the_number_of_the_retry_around():
    """The retry may be around the client."""
    import httpx

    from mainstay.integrations.httpx import Transport

    seen = []

    def answer(request):
        seen.append(request.headers["mainstay-attempt"])
        return httpx.Response(503)

    transport = Transport(transport=httpx.MockTransport(answer), trust=["orders"])
    with httpx.Client(transport=transport) as client, pytest.raises(httpx.HTTPStatusError):
        mainstay.retry(on=mainstay.transient, attempts=3, backoff=Backoff.constant(0))(
            lambda: client.get("http://orders/").raise_for_status()
        )()
    assert seen == ["1", "2", "3"]
