"""A connection to a Redis server for one step, kept from script to script.

redis-py's client takes a connection for each command, gives it back, and parses the answer: for a
script, whose answer needs no parsing, that is three times the work of sending it. So scripts are
sent on the connection itself. Every other command goes to the client; and so does a script whose
connection turns out to be dead, because the client reconnects.

A step that waits keeps no connection: the step it waits for may need this one.
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
"""The arguments a pool needs to give a connection: none since redis-py 5.3."""


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

    def pipeline(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """The server's answers to many commands, sent together; an error is its answer."""
        if self._connection is None:
            self._connection = self._client.connection_pool.get_connection(*_TO_GET)
        try:
            return self._answers(commands)
        except theirs.ConnectionError:  # it was dead: another try connects again
            self._connection.disconnect()
            return self._answers(commands)

    def _answers(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        connection = self._connection
        answers: list[Any] = []
        try:
            connection.send_packed_command(connection.pack_commands(commands))
            for _ in commands:
                try:
                    answers.append(connection.read_response())
                except theirs.ReadOnlyError:
                    raise  # the server is a replica now: no other answer counts
                except theirs.ResponseError as error:
                    answers.append(error)
        except BaseException:  # answers are still to come, and would be taken for another's
            connection.disconnect()
            raise
        return answers

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
