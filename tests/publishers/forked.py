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
BY_C_CODE = """
import asyncio
from mainstay.errors import UsageError
from mainstay.publishers import Message, open_publisher
publisher, loop = open_publisher(sys.argv[2]), asyncio.new_event_loop()

def publish(name, loop):
    sent = publisher.publish(Message(id=name, topic=sys.argv[3], payload=b"{}"))
    loop.run_until_complete(asyncio.wait_for(sent, 20.0))

def work(number):
    if sys.argv[4] == "inherited":
        try:
            publish(f"inherited-{number}", loop)
        except UsageError as error:
            note("refused", error)
    own = asyncio.new_event_loop()
    publish(f"child-{number}", own)
    own.run_until_complete(publisher.close())

def idle():
    asyncio.new_event_loop().run_until_complete(publisher.close())

for number in range(3):
    publish(f"parent-{number}", loop)
    assert reap(in_child(lambda: work(number), fork=fork_in_c)) == 0
    assert reap(in_child(idle, fork=fork_in_c)) == 0
publish("parent-3", loop)
loop.run_until_complete(publisher.close())
"""
IDS = {f"parent-{number}" for number in range(4)} | {f"child-{number}" for number in range(3)}


def publish_in_children(folder, url, topic):
    """Runs it; the ids that a consumer must find are `IDS`, each once."""
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork here")
    run(PROGRAM, folder, url, topic, timeout=60.0)
    assert lines(folder, "errors") == []


def publish_in_children_of_c_code(folder, url, topic, *, has_links=True):
    """The same with forks that run no hook; a loop with connections of the parent is refused."""
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork here")
    run(BY_C_CODE, folder, url, topic, "inherited" if has_links else "own", timeout=60.0)
    assert lines(folder, "errors") == []
    refused = lines(folder, "refused")
    assert len(refused) == (3 if has_links else 0)
    assert all("the connections of the process that was forked here" in each for each in refused)
