"""The store on a Redis or Valkey server.

A step is optimistic: one script reads the record and the server's clock, the decision is made here,
and a second script writes if the record is still the one that was read. If it is not, its answer is
the present record, so that the next try costs one round trip and not two. A record is a token, new
with every write, followed by the value: equal tokens are equal records, and none comes back.

What the server is sent is a generator, written once; two drivers, sync and asyncio, run it. Keys,
scripts and messages are in keys.py, how a flow is run in protocol.py, and the connections in
connection.py and clients.py.
"""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING

from mainstay.core.base.change import KEEP
from mainstay.errors import MainstayWarning, MissingExtraError, StoreUnavailable, ValueTooLarge
from mainstay.runtime.clock import SYSTEM
from mainstay.runtime.fork import PROCESS, leave_to_parent, reset_in_child
from mainstay.runtime.store_clock import StoreClock
from mainstay.stores.options import options_of

try:
    from redis import exceptions as theirs
except ImportError:  # pragma: no cover -- the extra is there in tests
    raise MissingExtraError("redis", "redis") from None
from mainstay.stores.redis.batch import many
from mainstay.stores.redis.clients import (
    DEADLINE,
    LoopClients,
    async_client,
    blocking_client,
    drop_idle,
    in_thread,
    in_trio,
)
from mainstay.stores.redis.connection import AsyncScriptConnection, ScriptConnection
from mainstay.stores.redis.keys import (
    DROP,
    READ,
    RELEASE,
    SMALLER,
    TOKEN,
    WRITE,
    RecordKeys,
    decoded,
    encoded,
    explained,
    milliseconds,
    run_script,
    split_url,
    sweep,
    without_secrets,
)
from mainstay.stores.redis.protocol import Contention, Exchange, WriteLocks, aperform, perform
from mainstay.stores.time_left import time_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from mainstay.core.base.change import Change, Decide, Reply
    from mainstay.ports import Step
    from mainstay.stores.redis.keys import Flow

_OPTIONS = {"timeout": 5.0, "pool": 10, "prefix": "mainstay:"}
_LARGEST = 512 * 1024 * 1024
"""What a server takes in one piece by default (proto-max-bulk-len)."""
_OLDEST = 7
"""The first version whose scripts declare that they write, so that a replica refuses them."""


class RedisStore:
    """Keeps records on a Redis or Valkey server, version 7 or later.

    Args:
        url: `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS, or `valkey://`,
            `valkeys://`; with `?timeout=5` seconds for a step, `&pool=10` connections for all
            threads together and for each event loop, and `&prefix=mainstay:` before every key.
            `ssl_…` and the other connection options of redis-py are passed on.

    >>> RedisStore("redis://:secret@localhost/0?timeout=2").url
    'redis://localhost/0'
    """

    abilities = frozenset({"records", "circuits", "budgets", "inbox", "durable"})
    locks = False

    def __init__(self, url: str) -> None:
        ours, self._address = split_url(url)
        self.url = without_secrets(url)
        found = options_of(ours, _OPTIONS)
        self.timeout: float = found["timeout"]
        self.pool: int = found["pool"]
        self.prefix: str = found["prefix"]
        self.is_closed = False
        self.max_value: int | None = None
        """The bytes of a value that the server takes, from the first step on."""
        self._facts: dict[str, Any] | None = None
        self._spaces: set[str] = set()
        self._clock = StoreClock(self.url)
        self._begin()
        reset_in_child(self, RedisStore._reset)

    # --- steps ------------------------------------------------------------------------------------

    def transact(self, space: str, key: str, decide: Decide[Reply]) -> Reply:
        """Reads, decides and writes as one step."""
        return self._run("write", self._step(space, key, decide))  # type: ignore[no-any-return]

    def transact_many(self, steps: Sequence[Step]) -> list[Any]:
        """Many steps, their commands in one pipeline; one that loses the race makes its own."""
        answers: list[Any] = [None] * len(steps)
        for number in self._run("write", self._many(steps, answers)):
            try:
                answers[number] = self.transact(*steps[number])
            except Exception as error:
                answers[number] = error
        return answers

    async def atransact(self, space: str, key: str, decide: Decide[Reply]) -> Reply:
        """The same, without blocking the event loop."""
        if in_trio():
            return await self._in_thread("write", self._step(space, key, decide))  # type: ignore[no-any-return]
        return await self._arun("write", self._step(space, key, decide))  # type: ignore[no-any-return]

    def read(self, space: str, key: str) -> tuple[bytes | None, float]:
        """The record and the server's clock."""
        return self._run("read", self._reading(space, key))  # type: ignore[no-any-return]

    async def aread(self, space: str, key: str) -> tuple[bytes | None, float]:
        """The same, without blocking the event loop."""
        if in_trio():
            return await self._in_thread("read", self._reading(space, key))  # type: ignore[no-any-return]
        return await self._arun("read", self._reading(space, key))  # type: ignore[no-any-return]

    def scan(self, space: str, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        """The records of a space in the order of their keys, page by page."""
        return self._run("scan", self._scanning(space, after, limit))  # type: ignore[no-any-return]

    def purge(self, limit: int = 1000) -> int:
        """Forgets the keys of records that have expired; how many."""
        return self._run("purge", self._purging(limit))  # type: ignore[no-any-return]

    def describe(self) -> dict[str, Any]:
        """What there is to know: the server, how it keeps what it has, how long it took."""
        return self._run("describe", self._describing())  # type: ignore[no-any-return]

    def close(self) -> None:
        """Closes every connection; those of other event loops too."""
        self.is_closed = True
        PROCESS.notice()
        self._client.connection_pool.disconnect()
        self._loops.close()

    # --- what the server is sent ------------------------------------------------------------------

    def _step(self, space: str, key: str, decide: Decide[Any]) -> Flow:
        if self._facts is None:
            yield from self._check_server()
        at, rounds = RecordKeys(self.prefix, space, key), Contention()
        seen = yield from run_script(READ, at.keys[:1])
        while True:
            raw, now = seen[2], int(seen[0]) + int(seen[1]) / 1e6
            change, reply = decide(None if raw is None else raw[TOKEN:], now)
            if change is KEEP or (change.value is None and raw is None):
                break
            if not rounds.lost:
                yield at.keys[0]
            token = b"" if raw is None else raw[:TOKEN]
            seen = yield from self._changing(at, change, (token, rounds.name, rounds.hold()))
            if not isinstance(seen, list):
                return reply
            seconds = rounds.pause(bool(seen[3]))
            if seen[2] is not None and seen[2][:TOKEN] == rounds.name:
                break  # it is written: the reply to that was lost
            yield seconds
        if rounds.is_holding:
            yield from run_script(RELEASE, at.keys[3:], rounds.name)
        return reply

    def _many(self, steps: Sequence[Step], answers: list[Any]) -> Flow:
        """Puts the answers into their places; the numbers of the steps that are left."""
        if self._facts is None:
            yield from self._check_server()
        left = yield from many(steps, self._step, answers)
        for number, answer in enumerate(answers):
            if isinstance(answer, theirs.RedisError):
                reason = without_secrets(explained(answer, self, self.timeout))
                answers[number] = StoreUnavailable(self.url, "write", reason)
        return left

    def _changing(self, at: RecordKeys, change: Change, claim: tuple[Any, ...]) -> Flow:
        """Writes or drops it; a list with the present record if it lost the race."""
        if change.value is None:
            return (yield from run_script(DROP, at.keys, *claim, at.name))
        if self.max_value is not None and len(change.value) > self.max_value:
            raise ValueTooLarge(self.url, len(change.value), self.max_value, hint=SMALLER)
        if at.space not in self._spaces:
            yield from self._registering(at.space)
        expires = milliseconds(change.expires)
        answer = yield from run_script(WRITE, at.keys, *claim, at.name, change.value, expires)
        if answer == 2:  # the space was empty: the server may have been flushed
            yield from self._registering(at.space)
        return answer

    def _registering(self, space: str) -> Flow:
        """Before the first record, so that purging finds the space whatever happens in between."""
        yield ("SADD", f"{self.prefix}spaces", encoded(space))
        self._spaces.add(space)

    def _reading(self, space: str, key: str) -> Flow:
        if self._facts is None:
            yield from self._check_server()
        seen = yield from run_script(READ, RecordKeys(self.prefix, space, key).keys[:1])
        value = None if seen[2] is None else seen[2][TOKEN:]
        return value, int(seen[0]) + int(seen[1]) / 1e6

    def _scanning(self, space: str, after: str, limit: int) -> Flow:
        if self._facts is None:
            yield from self._check_server()
        index = RecordKeys(self.prefix, space, "").keys[1]
        last, page = encoded(after), list[tuple[str, bytes]]()
        while len(page) < limit:
            wanted = limit - len(page)
            names = yield ("ZRANGEBYLEX", index, b"(" + last, "+", "LIMIT", 0, wanted)
            if not names:
                break
            records = [RecordKeys(self.prefix, space, decoded(name)) for name in names]
            raws = yield ("MGET", *(at.keys[0] for at in records))
            page += [(at.key, raw[TOKEN:]) for at, raw in zip(records, raws, strict=True) if raw]
            yield from sweep([at for at, raw in zip(records, raws, strict=True) if not raw])
            last = names[-1]
        return page

    def _purging(self, limit: int) -> Flow:
        if self._facts is None:
            yield from self._check_server()
        seconds, micros = yield ("TIME",)
        now = int(1000 * self._clock.before_jumps(int(seconds) + int(micros) / 1e6))
        count = 0
        for name in sorted((yield ("SMEMBERS", f"{self.prefix}spaces"))):
            space = decoded(name)
            expiring = RecordKeys(self.prefix, space, "").keys[2]
            while count < limit:
                most = min(limit - count, 500)  # a longer script would keep others waiting
                due = yield ("ZRANGEBYSCORE", expiring, "-inf", now, "LIMIT", 0, most)
                if not due:
                    break
                count += yield from sweep([RecordKeys(self.prefix, space, decoded(d)) for d in due])
        return count

    def _check_server(self) -> Flow:
        """Checks the server when it is first used, and warns of a setting that may lose records."""
        facts = yield from self._ask_optional("INFO")
        version = str(facts.get("redis_version", _OLDEST))
        if int(version.partition(".")[0]) < _OLDEST:
            reason = f"the server has version {version}, and {_OLDEST}.0 or later is needed"
            raise StoreUnavailable(self.url, "use it", reason)
        most = yield from self._ask_optional("CONFIG", "GET", "proto-max-bulk-len")
        self.max_value = int(_setting_of(most, str(_LARGEST))) - TOKEN
        is_first, self._facts = self._facts is None, facts
        policy = facts.get("maxmemory_policy", "noeviction")
        if is_first and policy != "noeviction":
            warnings.warn(
                f"{self.url} has maxmemory-policy {policy}: when its memory is full it drops"
                " records, and a call whose record is gone runs again. Set it to noeviction",
                MainstayWarning,
                stacklevel=2,
            )

    def _describing(self) -> Flow:
        if self._facts is None:
            yield from self._check_server()
        started = SYSTEM.monotonic()
        yield ("PING",)
        latency = SYSTEM.monotonic() - started
        facts = self._facts = yield from self._ask_optional("INFO")
        fsync = yield from self._ask_optional("CONFIG", "GET", "appendfsync")
        has_log = facts.get("aof_enabled")
        return {
            "store": "redis",
            "url": self.url,
            "server": facts.get("server_name", "redis"),
            "version": facts.get("valkey_version") or facts.get("redis_version", "unknown"),
            "role": facts.get("role", "unknown"),
            "maxmemory_policy": facts.get("maxmemory_policy", "unknown"),
            "appendonly": {1: "yes", 0: "no"}.get(has_log, "unknown"),
            "appendfsync": _setting_of(fsync, "unknown") if has_log else "none",
            "max_value": self.max_value,
            "latency_ms": round(latency * 1000, 3),
        }

    def _ask_optional(self, *command: str) -> Flow:
        """The answer to a command that a server may refuse; empty then."""
        try:
            return (yield command)
        except theirs.ResponseError:
            return {}

    # --- the two drivers --------------------------------------------------------------------------

    def _run(self, what: str, flow: Flow, seconds: float | None = None) -> Any:
        exchange = Exchange(self, what, flow, seconds)
        self._make_ready(what)
        client, write_locks = self._client, self._write_locks
        connection = ScriptConnection(client)
        DEADLINE.at, DEADLINE.most = exchange.until, self.timeout
        try:
            while exchange.asks():
                try:
                    perform(connection, write_locks, exchange)
                except Exception as error:
                    exchange.error = error
                    if isinstance(error, theirs.ReadOnlyError):  # of a primary that was replaced
                        connection.release()
                        drop_idle(client.connection_pool)
        finally:
            exchange.end()
            connection.release()
            if self.is_closed:  # meanwhile
                drop_idle(client.connection_pool)
        return exchange.result

    async def _in_thread(self, what: str, flow: Flow) -> Any:
        """Under trio; the time is read here, because what encloses a call is on this stack."""
        return await in_thread(self._run, what, flow, time_for(self.timeout))

    async def _arun(self, what: str, flow: Flow) -> Any:
        import asyncio

        exchange = Exchange(self, what, flow)
        self._make_ready(what)
        scope = asyncio.timeout(exchange.seconds)
        connection: AsyncScriptConnection | None = None
        try:
            async with scope:
                client, write_locks = await self._loops.client()
                connection = AsyncScriptConnection(client)
                while exchange.asks():
                    try:
                        await aperform(connection, write_locks, exchange)
                    except Exception as error:
                        exchange.error = error
                        if isinstance(error, theirs.ReadOnlyError):
                            await connection.release()
                            await client.connection_pool.disconnect(inuse_connections=False)
        except TimeoutError as error:
            if not scope.expired():
                raise  # the decision's own
            raise exchange.unavailable(theirs.TimeoutError("no answer")) from error
        finally:
            exchange.end()
            if connection is not None:
                await connection.release()
        return exchange.result

    # --- connections ------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Clients without a connection; they connect when they are used."""
        self._client: Any = blocking_client(self._address, self.pool, self.timeout)
        self._write_locks = WriteLocks(threading.Lock)
        self._loops = LoopClients(self._async_client)

    def _async_client(self) -> Any:
        return async_client(self._address, self.pool, self.timeout)

    def _make_ready(self, what: str) -> None:
        if self.is_closed:
            raise StoreUnavailable(self.url, what, "it was closed")
        PROCESS.notice()

    def _reset(self) -> None:
        """A forked child has connections of its own, and leaves its parent's alone."""
        leave_to_parent((self._client, self._loops))
        self._begin()


def _setting_of(answer: Any, otherwise: str) -> str:
    """The second of the two words CONFIG GET answers with, where it may be asked."""
    return answer[1].decode() if isinstance(answer, list) and len(answer) == 2 else otherwise
