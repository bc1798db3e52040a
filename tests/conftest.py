"""For all tests: what a program is started with, and the servers there are one of per worker."""

import contextlib
import gc
import importlib
import os
import signal
import sys
import sysconfig
import tempfile
import warnings

import pytest
from hypothesis import HealthCheck, settings

import mainstay.runtime.clock as clock
from mainstay.core.inbox.operators import Hash
from mainstay.drivers.inbox.authentication import Verifier
from mainstay.runtime.clock import SystemClock
from mainstay.runtime.reports.logs import Logs
from mainstay.testing import time as virtual
from mainstay.testing.proxy import proxy
from tests.plants import knowing_as_before
from tests.servers.nats import nats_url
from tests.servers.postgres import postgres_database, postgres_url
from tests.servers.temporal import temporal_address
from tests.servers.valkey import valkey_url
from tests.tools.ran import pytest_configure, pytest_itemcollected

__all__ = ["nats_url", "postgres_database", "postgres_url", "pytest_configure",
           "pytest_itemcollected", "temporal_address", "valkey_url"]  # fmt: skip

# What a test's engine could not deliver is not left in the home of whoever runs the tests.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="mainstay-tests-")

# How long an example took says more of who else uses the machine than of the code.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

# A shell's background job ignores Ctrl+C, and one of nohup a terminal that is closed; every program
# that a test starts would do so too.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# Hundreds of programs are started: what one has compiled, the next need not. And they buffer what
# they write, as they do for users; a command that is to be unlike the others is not forked.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("PYTHONUNBUFFERED", None)
sys.dont_write_bytecode = False


# A hash of a secret at its real cost takes a tenth of a second and 128 MiB, each time.
Verifier.cost = Hash(salt="", n=2**4)


# In virtual time a loop gives a server this many real seconds to answer before time jumps to the
# next timer, which may be a timeout: a busy machine needs more than the 0.02 of the library.
virtual._ANSWERS_WITHIN = 0.5

# The thread of a FaultProxy, likewise: a call whose function sets a fault fails otherwise.
proxy._OBEYS_WITHIN = 60.0


@pytest.fixture(autouse=True)
def known_secrets():
    """What a test's configuration or URL makes known to be secret is not hidden in the next one."""
    with knowing_as_before():
        yield


# A step of a store has 5 s if its URL names no timeout; a machine may stand still for as long.
for store in (
    "nats.url:_OPTIONS",
    "postgres.url:_OURS",
    "redis.store:_OPTIONS",
    "sqlite.store:_OPTIONS",
):
    with contextlib.suppress(ImportError):  # of an extra that is not installed
        module, _, name = store.partition(":")
        getattr(importlib.import_module(f"mainstay.stores.{module}"), name)["timeout"] = 30.0


# pytest has a handler at the root: with it every failing call without an engine would be logged,
# and none would take the fast path that a program without logging takes.
_TAKES = Logs.takes
Logs.takes = lambda *_: False


# Where Python has no interpreter's lock, greenlet ends the process at the first switch.
if sysconfig.get_config_var("Py_GIL_DISABLED"):

    async def _without_greenlets(*_args, **_options):
        pytest.skip(
            "SQLAlchemy's asyncio needs greenlet, which crashes on free-threaded Python:"
            " https://github.com/python-greenlet/greenlet/issues/515. Run with a default build"
        )

    with contextlib.suppress(ImportError):
        importlib.import_module("sqlalchemy.util.concurrency").greenlet_spawn = _without_greenlets


@pytest.fixture
def machine(monkeypatch):
    """This machine: `sleep(seconds)` moves the clock that goes on while a machine sleeps."""
    return Machine(monkeypatch)


class Machine:
    """A machine that sleeps for no time at all."""

    def __init__(self, monkeypatch):
        self.slept, real = 0.0, SystemClock.steady
        steady = staticmethod(lambda: real() + self.slept)
        monkeypatch.setattr(SystemClock, "steady", steady)
        monkeypatch.setattr(clock, "steady", clock.SYSTEM.steady)

    def sleep(self, seconds):
        self.slept += seconds


@pytest.fixture
def logged(monkeypatch):
    """Calls without an engine are logged, as in a program that has configured logging."""
    monkeypatch.setattr(Logs, "takes", _TAKES)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Three for each core: most of the time a test waits for a server, a program or a clock."""
    return 3 * (os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Ten thousand tests are no garbage: neither their collection nor a test need walk them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """What a test has left open is found at the end of its file, not by chance in another one."""
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            gc.collect()
            gc.freeze()  # what is left is no garbage: the next collection need not walk it


@pytest.fixture
def _collected():
    """An example need not close its database; from 3.13 on Python warns of that in a later test."""
    yield
    if sys.version_info >= (3, 13):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
