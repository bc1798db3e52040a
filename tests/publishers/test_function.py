"""FunctionPublisher: the contract of publishers, and threads."""

import asyncio
import threading
import uuid

import pytest

from mainstay import AttemptTimeout, MainstayError, RetryPolicy, deadline
from mainstay.core.outbox.message import Message
from mainstay.publishers.function import FunctionPublisher
from mainstay.testing import PublisherContract, Received


def message(**fields):
    return Message(**{"id": "m-1", "topic": "t", "payload": b"{}", **fields})


class Kept(PublisherContract):
    """A publisher that keeps messages in a list."""

    @pytest.fixture(autouse=True)
    def _list(self):
        self.sent = []

    def topic(self):
        return f"topic-{uuid.uuid4()}"

    def received(self, topic):
        sent = [each for each in self.sent if each.topic == topic]
        return [Received(each.id, each.payload, each.attributes) for each in sent]


class TestPlain(Kept):
    def open(self):
        return FunctionPublisher(self.sent.append)


class TestAsync(Kept):
    def open(self):
        return FunctionPublisher(self.keep)

    async def keep(self, message):
        await asyncio.sleep(0)
        self.sent.append(message)


class TestReturningAnAwaitable(Kept):
    def open(self):
        return FunctionPublisher(lambda each: asyncio.sleep(0, self.sent.append(each)))


def test_a_plain_function_does_not_block_the_loop():
    """Two that wait for each other both run, while the loop goes on."""
    both = threading.Barrier(3, timeout=30)
    publisher = FunctionPublisher(lambda _: both.wait())

    async def run():
        tasks = [asyncio.create_task(publisher.publish(message())) for _ in range(2)]
        await asyncio.to_thread(both.wait)
        await asyncio.gather(*tasks)
        await publisher.close()

    asyncio.run(run())
    assert not both.broken
    assert both.n_waiting == 0


def test_as_many_plain_functions_run_at_once_as_threads_are_given():
    """The others wait for their turn."""
    lock, most, now = threading.Lock(), [0], [0]

    def publish(_message):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        with lock:
            now[0] -= 1

    publisher = FunctionPublisher(publish, threads=2)

    async def run():
        await asyncio.gather(*(publisher.publish(message()) for _ in range(50)))
        await publisher.close()

    asyncio.run(run())
    assert 1 <= most[0] <= 2


@pytest.mark.parametrize("is_async", [False, True])
def test_the_exception_of_the_function_is_raised_as_it_is(is_async):
    """The relay decides by it."""
    error = ConnectionResetError("gone")

    async def later(_message):
        raise error

    def now(_message):
        raise error

    with pytest.raises(ConnectionResetError) as caught:
        asyncio.run(FunctionPublisher(later if is_async else now).publish(message()))
    assert caught.value is error


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_sees_the_deadline_of_its_caller(is_async):
    """Its client can take it for its own timeout."""
    seen = []

    async def later(_message):
        seen.append(deadline.remaining())

    publisher = FunctionPublisher(
        later if is_async else lambda _: seen.append(deadline.remaining())
    )

    async def run():
        with deadline.within(500.0):
            await publisher.publish(message())
        await publisher.close()

    asyncio.run(run())
    assert 0.0 < seen[0] <= 500.0


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_task_that_an_attempt_starts_has_a_timeout_of_its_own(is_inside):
    """The attempt cuts its own task alone: a function in another one would never end."""
    policy = RetryPolicy(max_attempts=1, attempt_timeout=0.05)

    async def publish(_message):
        await asyncio.Event().wait()

    publisher = FunctionPublisher(publish)

    async def attempt():
        if not is_inside:
            return await publisher.publish(message())
        started = asyncio.create_task(publisher.publish(message()))
        await asyncio.sleep(0)
        return started

    async def run():
        with pytest.raises(TimeoutError) as caught:
            started = await policy.acall(attempt)
            await started
        return type(caught.value)

    assert asyncio.run(run()) is (TimeoutError if is_inside else AttemptTimeout)


def test_an_attempt_whose_time_is_cut_by_a_nearer_deadline():
    """The nearer one counts, wherever it was set."""
    policy = RetryPolicy(max_attempts=1, attempt_timeout=500.0)

    async def publish(_message):
        await asyncio.Event().wait()

    publisher = FunctionPublisher(publish)

    async def attempt():
        with deadline.within(0.05):
            await publisher.publish(message())

    async def run():
        with pytest.raises(TimeoutError):
            await policy.acall(attempt)
        with deadline.within(0.05), pytest.raises(TimeoutError):
            await policy.acall(publisher.publish, message())

    asyncio.run(run())


def test_a_plain_function_that_outlasts_the_deadline_is_not_waited_for():
    """It goes on in its thread; the caller has its timeout."""
    go_on, ended = threading.Event(), threading.Event()

    def publish(_message):
        go_on.wait(60)
        ended.set()

    publisher = FunctionPublisher(publish)

    async def run():
        with deadline.within(0.05), pytest.raises(TimeoutError):
            await publisher.publish(message())
        go_on.set()
        await publisher.close()

    asyncio.run(run())
    assert ended.wait(60)


def test_what_a_plain_function_returns_too_late_is_not_left_unawaited():
    """Python would warn of a coroutine that was never awaited, and a warning is an error here."""
    go_on, ended = threading.Event(), threading.Event()

    class Later:
        def __await__(self):
            yield

        def close(self):
            ended.set()

    publisher = FunctionPublisher(lambda _: go_on.wait(60) and Later())

    async def run():
        with deadline.within(0.05), pytest.raises(TimeoutError):
            await publisher.publish(message())
        go_on.set()
        await publisher.close()

    asyncio.run(run())
    assert ended.wait(60)


def test_its_url_is_the_name_of_the_function():
    """Of a method, of a lambda and of an object that can be called as well."""

    class Client:
        def __call__(self, message): ...

        def send(self, message): ...

    def publish(message): ...

    assert FunctionPublisher(publish).url.startswith(f"python:{__name__}:test_its_url_is_the_name")
    assert FunctionPublisher(publish).url.endswith(".publish")
    assert FunctionPublisher(Client().send).url.endswith("Client.send")
    assert FunctionPublisher(Client()).url.endswith("Client")
    assert "publish" in repr(FunctionPublisher(publish))


@pytest.mark.parametrize(
    ("arguments", "words"), [((3,), "function"), ((print,), "threads")], ids=["function", "threads"]
)
def test_a_mistake_is_an_error_when_it_is_made(arguments, words):
    with pytest.raises(MainstayError, match=words):
        FunctionPublisher(*arguments, **({} if arguments == (3,) else {"threads": 0}))
