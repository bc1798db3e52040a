"""A line to a Redis server for one step: it takes a connection, and keeps it from script to script.

redis-py's client takes a connection for each command, gives it back, and puts answers in form: for
a script, whose answer is as it should be, that is three times the work of saying it. So scripts are
said on the connection itself. Whatever else is asked goes to the client; and so does a script whose
connection turns out to be dead, because the client connects anew.

Nothing is kept while somebody waits: whoever it waits for may need this very connection.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import redis
from redis import exceptions as theirs

if TYPE_CHECKING:
    from typing import Any

_parameter = inspect.signature(redis.ConnectionPool.get_connection).parameters["command_name"]
_TO_GET = ("EVALSHA",) if _parameter.default is inspect.Parameter.empty else ()
"""What a pool wants to know before it gives a connection: since redis-py 5.3 nothing."""


class ScriptConnection:
    """For threads."""

    __slots__ = ("_client", "_connection")

    def __init__(self, client: Any) -> None:
        self._client = client
        self._connection: Any = None

    def execute(self, command: tuple[Any, ...]) -> Any:
        """The server's answer."""
        if command[0] != "EVALSHA":
            self.release()
            return self._client.execute_command(*command)
        if self._connection is None:
            self._connection = self._client.connection_pool.get_connection(*_TO_GET)
        try:
            self._connection.send_command(*command)
            return self._connection.read_response()
        except theirs.ConnectionError:
            self.release()
            return self._client.execute_command(*command)
        except theirs.ResponseError:
            raise  # which is an answer
        except BaseException:  # the answer is still to come, and would be taken for another's
            self._connection.disconnect()
            raise

    def release(self) -> None:
        """Gives the connection back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._client.connection_pool.release(connection)


class AsyncScriptConnection:
    """For the tasks of an event loop."""

    __slots__ = ("_client", "_connection")

    def __init__(self, client: Any) -> None:
        self._client = client
        self._connection: Any = None

    async def execute(self, command: tuple[Any, ...]) -> Any:
        """The server's answer."""
        if command[0] != "EVALSHA":
            await self.release()
            return await self._client.execute_command(*command)
        if self._connection is None:
            self._connection = await self._client.connection_pool.get_connection(*_TO_GET)
        try:
            await self._connection.send_command(*command)
            return await self._connection.read_response()
        except theirs.ConnectionError:
            await self.release()
            return await self._client.execute_command(*command)

    async def release(self) -> None:
        """Gives the connection back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._client.connection_pool.release(connection)
