"""What the tests of the drivers share: one script on three drivers, and nothing left behind."""

import asyncio
import threading

import pytest
import trio

from mainstay.drivers.call import call as answers
from mainstay.drivers.call.threads import abandoned_threads
from mainstay.drivers.idempotency.lease_renewal import LEASE_RENEWAL, Lease
from mainstay.runtime import enclosing as frames
from mainstay.runtime.overrides import PROCESS_OVERRIDES
from mainstay.testing import scripted, scripted_async, virtual_time
from tests.costs import set_apart

COLOURS = ("sync", "asyncio", "trio")


@pytest.fixture
def alone():
    """What other tests have left under way is not counted."""
    with set_apart():
        yield


class Driver:
    """One of the three drivers under virtual time; the same script runs on each."""

    def __init__(self, name, time):
        self.name = name
        self.time = time
        self.is_async = name != "sync"

    def __repr__(self):
        return self.name

    def run(self, function, *args):
        """Calls a function of this driver's colour, in an event loop where it needs one."""
        if self.name == "sync":
            return function(*args)
        if self.name == "asyncio":
            return asyncio.run(function(*args))
        return trio.run(function, *args, clock=self.time.trio_clock())

    def colour(self, function):
        """A plain function in this driver's colour."""
        if not self.is_async:
            return function

        async def coloured(*args, **kwargs):
            return function(*args, **kwargs)

        return coloured

    def scripted(self, *steps):
        """A function of this colour that plays a script."""
        return (scripted_async if self.is_async else scripted)(*steps)

    def call(self, verbs, function, *args):
        """`call` or `acall` of a policy or operation."""
        return self.run(verbs.acall if self.is_async else verbs.call, function, *args)

    def result(self, verbs, function, *args):
        """`run` or `arun` of a policy or operation."""
        return self.run(verbs.arun if self.is_async else verbs.run, function, *args)

    def block(self, verbs, function, *args):
        """The function as the block of `attempts()`."""

        def plain():
            value = None
            for attempt in verbs.attempts():
                with attempt:
                    value = function(*args)
                    attempt.set_result(value)
            return value

        async def coloured():
            value = None
            async for attempt in verbs.attempts():
                with attempt:
                    value = await function(*args)
                    attempt.set_result(value)
            return value

        return self.run(coloured if self.is_async else plain)


@pytest.fixture(params=COLOURS)
def driver(request):
    """Each of the three drivers in turn, in virtual time."""
    with virtual_time() as time:
        yield Driver(request.param, time)


@pytest.fixture(params=COLOURS[1:])
def async_driver(request):
    """Each of the two async drivers in turn, in virtual time."""
    with virtual_time() as time:
        yield Driver(request.param, time)


@pytest.fixture
def drivers():
    """Makes all three drivers of one virtual clock."""
    return lambda time: [Driver(name, time) for name in COLOURS]


@pytest.fixture(scope="session", autouse=True)
def _leases_are_renewed():
    """The thread of renewals stays: it is there before any test looks for what was left behind."""
    lease = Lease(None, 60.0, 0.0)
    LEASE_RENEWAL.start(lease)
    LEASE_RENEWAL.forget(lease)


ENDING = ("mainstay-release", "mainstay-renewer", "mainstay-lease-report", "mainstay-publish")
"""Threads that end by themselves, once a step is taken for a call that has ended, or a publisher
is closed; what their names begin with."""


def _await_end(thread):
    """Also of one that is listed and just being started, which cannot be joined yet."""
    assert thread._started.wait(30.0)
    thread.join(30.0)


@pytest.fixture(autouse=True)
def _nothing_is_left_behind():
    """After every test: no open attempt, no switch, no thread."""
    answers._warned.clear()
    before = set(threading.enumerate())
    yield
    assert not frames.OPEN
    assert not PROCESS_OVERRIDES.is_active
    assert abandoned_threads() == 0
    for each in threading.enumerate():
        if each.name.startswith(ENDING):
            _await_end(each)
    left = {each for each in threading.enumerate() if each.name.startswith("mainstay")} - before
    assert not left
