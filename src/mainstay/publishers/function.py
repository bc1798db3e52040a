"""Publishes by calling a function of the program: for brokers that have no publisher here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mainstay.core.base.functions import is_async, is_awaitable
from mainstay.core.base.validate import Checker
from mainstay.deadline import remaining
from mainstay.publishers.threads import WorkerThreads
from mainstay.runtime.context import current_bound

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstay.core.outbox.message import Message


class FunctionPublisher:
    """Calls a function with each message; that it returns is the acknowledgement.

    An async function runs in the event loop, a plain one in a worker thread, so that it never
    blocks the loop. A thread cannot be stopped: if the deadline of the call passes, a plain
    function goes on by itself, and the message may be published again meanwhile.

    Args:
        function: takes a Message.
        threads: plain functions that run at once.

    Attributes:
        url: `python:` and the name of the function.

    Example:
        >>> import asyncio
        >>> from mainstay.core.outbox.message import Message
        >>> topics = []
        >>> def publish(message): topics.append(message.topic)
        >>> asyncio.run(FunctionPublisher(publish).publish(Message(id="1", topic="a", payload=b"")))
        >>> topics
        ['a']
    """

    def __init__(self, function: Callable[[Message], object], *, threads: int = 16) -> None:
        check = Checker("FunctionPublisher")
        if not callable(function):
            check.note("function", function, "a function of one message")
        self._workers = WorkerThreads(check.count("threads", threads, 1000))
        check.close()
        self.function = function
        module = getattr(function, "__module__", None) or type(function).__module__
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        self.url = f"python:{module}:{name}"
        self._is_async = is_async(function)

    def __repr__(self) -> str:
        return f"FunctionPublisher({self.url!r})"

    async def publish(self, message: Message) -> None:
        """Calls the function, and waits for it; no longer than the deadline of the caller."""
        result: Any
        if self._is_async and current_bound().cuts_here():  # a timeout here would be the second one
            result = self.function(message)
            if is_awaitable(result):
                await result
            return
        left = remaining()
        if left is not None and left <= 0.0:
            raise TimeoutError(f"no time is left for {message.id}; {self.url} was not called")
        async with asyncio.timeout(left):
            if self._is_async:
                result = self.function(message)
            else:
                result = await self._workers.run(self.function, message)
            if is_awaitable(result):
                await result

    async def close(self) -> None:
        """Ends the threads that are idle; `publish` starts others."""
        self._workers.close()
