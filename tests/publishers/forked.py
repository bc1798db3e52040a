"""A program that publishes in a parent and in forked children, by turns, through one publisher."""

import os

import pytest

from tests.crash.forks import lines, run

PROGRAM = """
import asyncio
from mainstay.publishers import Message, open_publisher
publisher = open_publisher(sys.argv[2])

def message(name):
    return Message(id=name, topic=sys.argv[3], payload=b"{}")

def work(number):
    async def publish():
        await publisher.publish(message(f"child-{number}"))
        await publisher.close()
    asyncio.run(publish())

def idle():
    asyncio.run(publisher.close())

async def main():  # a child ends at once: to unwind the loop would end its epoll for the parent too
    for number in range(3):
        await publisher.publish(message(f"parent-{number}"))
        assert reap(in_child(lambda: work(number))) == 0
        assert reap(in_child(idle)) == 0
    await publisher.publish(message("parent-3"))
    await publisher.close()

asyncio.run(main())
"""
IDS = {f"parent-{number}" for number in range(4)} | {f"child-{number}" for number in range(3)}


def publish_in_children(folder, url, topic):
    """Runs it; the ids that a consumer must find are `IDS`, each once."""
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork here")
    run(PROGRAM, folder, url, topic, timeout=60.0)
    assert lines(folder, "errors") == []
