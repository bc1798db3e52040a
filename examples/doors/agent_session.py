"""A session of a coding agent: twenty tool calls, in which something goes wrong now and then.

agent_session.py FOLDER [--killed-at N]

Some calls are flaky and succeed after retries. The search service is down: its circuit opens, and
a person is asked (`mainstay inbox`). With `--killed-at` the process is killed before that call;
started again, it goes on there, and a call that was carried out is not carried out again. Circuits,
keys and the inbox are in the store of `mainstay exec`.
"""

import argparse
import asyncio
import errno
import os
import signal
from pathlib import Path

from mainstay.profiles.agents import (
    NO_RETRY,
    CircuitOpenException,
    RetryExecutor,
    RetryOptions,
    run_tool,
)

CONFIG = Path(__file__).parent / "agent" / "config.yml"


class Session:
    """The calls of a session, each with its type; what each has really done is in the folder."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.steps = [
            ("fetch the issue", "network", self.flaky(0)),
            ("fetch the branch", "network", self.flaky(1)),
            ("ask the model", "network", self.flaky(2)),
            ("fetch the diff", "network", self.flaky(4)),
            ("write the plan", "file", self.write("plan.md", b"1. fix it\n")),
            ("read the plan", "file", self.read),
            ("write the patch", "file", self.busy(2)),
            ("run the formatter", "tool", self.tool),
            ("push to main", "permission", self.forbidden),
            ("ask for a review", "network", self.flaky(0)),
            ("fetch the review", "network", self.flaky(0)),
            ("ask the model again", "network", self.asynchronous),
            ("write the answer", "file", self.write("answer.md", b"done\n")),
            ("search for callers", "search", self.down),
            ("search for tests", "search", self.down),
            ("search for docs", "search", self.down),
            ("run the tests", "tool", self.tool),
            ("fetch the log", "network", self.flaky(3)),
            ("write the summary", "file", self.busy(1)),
            ("report the end", "network", self.flaky(0)),
        ]

    def count(self, token, number):
        """Counts a call in the folder, where a restart finds it; returns how many there were."""
        if token.is_set():
            raise InterruptedError("the session was cancelled")
        path = self.folder / f"calls-{number}"
        calls = len(path.read_bytes()) if path.exists() else 0
        path.write_bytes(b"." * (calls + 1))
        return calls + 1

    def flaky(self, failures, error=None):
        def call(token, number):
            if self.count(token, number) <= failures:
                raise error or ConnectionResetError("the peer has gone")
            return "ok"

        return call

    def busy(self, failures):
        return self.flaky(failures, OSError(errno.EBUSY, "the file is locked"))

    async def asynchronous(self, token, number):
        await asyncio.sleep(0)
        return self.flaky(1)(token, number)

    def write(self, name, data):
        def call(token, number):
            self.count(token, number)
            (self.folder / name).write_bytes(data)
            return f"{len(data)} bytes"

        return call

    def read(self, token, number):
        self.count(token, number)
        return (self.folder / "plan.md").read_text()

    def tool(self, token, number):
        status = 75 if self.count(token, number) == 1 else 0
        return run_tool(["sh", "-c", f"echo done; exit {status}"], policy=NO_RETRY).text

    def forbidden(self, token, number):
        self.count(token, number)
        raise PermissionError(errno.EACCES, "main is protected")

    def down(self, token, number):
        self.count(token, number)
        raise ConnectionRefusedError("the search service is down")


def numbered(call, number):
    """The call of a step, as a function of the token."""
    if not asyncio.iscoroutinefunction(call):
        return lambda token: call(token, number)

    async def awaited(token):
        return await call(token, number)

    return awaited


def outcome(executor, call, kind, key):
    try:
        made = executor.execute(call, kind, key=key)
        return asyncio.run(made) if asyncio.iscoroutine(made) else made
    except CircuitOpenException as error:
        return f"refused: {error}"
    except OSError as error:
        return f"failed: {error.args[-1]}"


def main():
    parser = argparse.ArgumentParser(description="a session of a coding agent")
    parser.add_argument("folder")
    parser.add_argument("--killed-at", type=int, default=0)
    given = parser.parse_args()
    session = Session(given.folder)
    with RetryExecutor(options=RetryOptions(config=CONFIG)) as executor:
        for number, (name, kind, call) in enumerate(session.steps, start=1):
            if number == given.killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            text = outcome(executor, numbered(call, number), kind, f"session-1:{number}")
            print(f"{number:2} {name}: {text.strip()}", flush=True)
        print("for a person:", *(item.operation for item in executor.engine.inbox))


main()
