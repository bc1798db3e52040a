"""Which event loop runs, wherever trio is loaded."""

import asyncio
import sys
from types import SimpleNamespace

import pytest
import trio

from mainstay.runtime.loops import is_trio


async def _asked():
    return is_trio()


def test_a_task_of_asyncio_is_none_of_trio():
    """It is loaded here, as it is in a process that uses httpx."""
    assert asyncio.run(_asked()) is False


def test_a_task_of_trio_is_one():
    assert trio.run(_asked) is True


def test_trio_as_a_guest_of_asyncio_is_trio():
    """Its tasks run while the loop of asyncio does."""

    async def host():
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        outcomes = []

        def ended(outcome):
            outcomes.append(outcome)
            done.set()

        trio.lowlevel.start_guest_run(
            _asked, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=ended
        )
        await done.wait()
        return outcomes[0].unwrap(), is_trio()

    assert asyncio.run(host()) == (True, False)


def test_trio_inside_a_task_of_asyncio_is_trio():
    """A plain function that an async one calls may run a loop of its own."""

    async def outer():
        return trio.run(_asked)

    assert asyncio.run(outer()) is True


@pytest.mark.parametrize("answer", [True, False])
def test_a_trio_that_keeps_no_name_is_asked(monkeypatch, answer):
    """Of another version than those that name the running library for sniffio."""
    lowlevel = SimpleNamespace(in_trio_task=lambda: answer)
    other = type(sys)("trio")
    other.run, other.lowlevel = print, lowlevel
    monkeypatch.setitem(sys.modules, "trio", other)
    assert is_trio() is answer
