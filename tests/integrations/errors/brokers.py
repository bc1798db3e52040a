"""What the tests of caches and brokers share: what is known of a failure, dead ports, recipes."""

import ast
import asyncio
import inspect
import socketserver
import threading
from contextlib import contextmanager
from pathlib import Path

from mainstay import Backoff, RetryPolicy
from mainstay.core.known.kind import transient
from mainstay.core.retry.kinds import kind_of
from tests.servers import ports
from tools.pages import read_blocks

ROOT = Path(__file__).parents[3]
AT_ONCE = RetryPolicy(max_attempts=3, retry_on=transient, backoff=Backoff.constant(0))
"""Three attempts for what is known to be transient, and no waiting between them."""
BY_DEFAULT = RetryPolicy(max_attempts=3, backoff=Backoff.constant(0))
"""The same without a rule of its own."""


def seen(call, *arguments):
    """The failure of a call, sync or async."""
    try:
        _run(call, arguments)
    except Exception as error:
        return error
    raise AssertionError("the call did not fail")


def _run(call, arguments):
    if inspect.iscoroutinefunction(call):
        return asyncio.run(asyncio.wait_for(call(*arguments), 120.0))
    return call(*arguments)


def judged(error):
    """Kind, with `ambiguous` if it is, and the library whose table decided."""
    known = kind_of(error)
    words = f"{known.kind.value} ambiguous" if known.is_ambiguous else known.kind.value
    return words, known.table


def tried(call, *arguments, policy=AT_ONCE):
    """The failure of a call under a policy, and how often the function ran."""
    count = 0

    def counted():
        nonlocal count
        count += 1
        return call(*arguments)

    async def acounted():
        nonlocal count
        count += 1
        return await call(*arguments)

    is_async = inspect.iscoroutinefunction(call)
    error = seen(policy(acounted if is_async else counted))
    return error, count


SHORT = 0.2
"""Seconds for an answer that will not come."""


def hurry(one):
    """Makes a client of Redis that is connected wait for a moment only."""
    one.connection_pool.connection_kwargs["socket_timeout"] = SHORT
    for connection in one.connection_pool._available_connections:
        connection.socket_timeout = SHORT
        if hasattr(connection, "_sock"):
            connection._sock.settimeout(SHORT)
            buffer = getattr(connection._parser, "_buffer", None)
            if hasattr(buffer, "socket_timeout"):
                buffer.socket_timeout = SHORT
            else:  # of hiredis
                connection._parser._socket_timeout = SHORT


def dead_port():
    """A port on which nobody listens."""
    return ports.dead_port()


@contextmanager
def stub(handle):
    """A TCP server that calls `handle(socket)` in a thread for each connection; gives its port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            try:
                handle(self.request)
            except OSError:
                return  # the client has gone

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def recipe(page, **replaced):
    """Runs the Python blocks of a page of the cookbook as one module, with a server's address.

    `replaced` are names that the page assigns: the value here is used in place of the page's.
    """
    text = (ROOT / "docs" / "cookbook" / page).read_text(encoding="utf-8")
    blocks = [each.text for each in read_blocks(text) if each.language == "python"]
    program = "".join(blocks)
    for name, value in replaced.items():
        lines = program.splitlines()
        (at,) = [at for at, line in enumerate(lines) if line.startswith(f"{name} = ")]
        lines[at] = f"{name} = {value!r}"
        program = "\n".join(lines) + "\n"
    module = {"__name__": "recipe"}
    code = compile(program, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, module)  # a page of our own
    if inspect.isawaitable(result):
        asyncio.run(_finished(result))
    return module


async def _finished(result):
    await asyncio.wait_for(result, 120.0)
