"""The steps of a NATS store, each as one operation in the loop of its thread.

A write names the revision it was decided on. If the connection is lost, a read is repeated; a write
is not, because it may have been carried out.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import msgspec

from mainstay.core.base.change import KEEP
from mainstay.errors import ValueTooLarge
from mainstay.runtime.nats.connection import LostError, status, steady
from mainstay.stores.nats.thread import Operation, measure
from mainstay.stores.nats.url import decoded
from mainstay.stores.nats.wire import (
    EXPECTED,
    EXPIRES,
    HEADERS,
    NO_CONSUMER,
    NO_MESSAGE,
    NO_STREAM,
    SET_BACK,
    WRONG_SEQUENCE,
    Envelope,
    Found,
    NoResponderError,
    answer_of,
    envelopes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.msg import Msg

    from mainstay.core.base.change import Change, Decide
    from mainstay.ports import Step
    from mainstay.runtime.nats.connection import NatsConnection
    from mainstay.stores.nats.thread import NatsThread
    from mainstay.stores.nats.url import NatsUrl
    from mainstay.stores.nats.wire import Answer


class NatsStep(Operation):
    """One operation in the loop, made of requests to the server."""

    def __init__(self, thread: NatsThread, what: str, seconds: float) -> None:
        super().__init__(thread.address, what, seconds)
        self.thread = thread

    # --- the steps of a store --------------------------------------------------------------------

    async def transact(self, space: str, key: str, decide: Decide[Any]) -> Any:
        """Reads, decides and writes, until it wins the race; callers of this process queue."""
        subject = self.address.subject(space, key)
        self.doing = "waiting for other steps of this process"
        async with self.thread.locks.setdefault(subject, asyncio.Lock()), self.thread.room:
            while True:
                found, read = await self._get(subject), steady()
                now = await self.now()
                try:
                    change, reply = decide(found.value, now)
                    if change is not KEEP and self._is_doubtful(found, now, read):
                        change, reply = decide(found.value, await self.now(read))
                except BaseException as error:
                    return Raised(error)
                if change is KEEP or (change.value is None and found.record is None):
                    return reply
                if await self._put(subject, key, found.revision, change):
                    return reply
                self.lost_races += 1
                pause = random.uniform(0, min(0.001 * self.lost_races, 0.01))  # noqa: S311 -- to spread
                await asyncio.sleep(pause)

    async def transact_many(self, steps: Sequence[Step]) -> list[Any]:
        """All at once, as far as there is room; an error is the answer of its step alone."""
        asked = (self.transact(*step) for step in steps)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return [answer.error if isinstance(answer, Raised) else answer for answer in answers]

    async def read(self, space: str, key: str) -> tuple[bytes | None, float]:
        async with self.thread.room:
            found = await self._get(self.address.subject(space, key))
            return found.value, await self.now()

    async def scan(self, space: str, after: str, limit: int) -> list[tuple[str, bytes]]:
        """Lists the names, sorts them by key, and reads as many as it takes."""
        names = await self._names(self.address.subjects_of(space))
        keys = {name: decoded(name.rpartition(".")[2]) for name in names}
        hashed = [name for name, key in keys.items() if key is None]
        for name, found in zip(hashed, await self._get_all(hashed), strict=True):
            keys[name] = found.key if found else None
        left = sorted((key, name) for name, key in keys.items() if key is not None and key > after)
        page: list[tuple[str, bytes]] = []
        while left and len(page) < limit:
            wanted = limit - len(page)
            records = await self._get_all([name for _, name in left[:wanted]])
            page += [(found.key, found.value) for found in records if found is not None]
            left = left[wanted:]
        return page

    async def purge(self, limit: int, cursor: int) -> tuple[int, int]:
        """Sweeps the bucket from where the last one stopped; how many went, and up to where."""
        dropped, until = 0, self.began + self.address.timeout / 2
        for start in dict.fromkeys((cursor, 1)):
            sweep = _Sweep(self, start)
            await sweep.begin()
            while sweep.left and dropped < limit and steady() < until:
                dropped += await sweep.go_on(limit - dropped)
            await sweep.end()
            if sweep.left:
                return dropped, sweep.position
        return dropped, 1

    async def describe(self) -> dict[str, Any]:
        connection = await self.thread.connection(self)
        started = steady()
        answer = await self.api("STREAM.INFO")
        latency = steady() - started
        version = connection.client.connected_server_version
        return {
            "store": "nats",
            "url": self.address.shown,
            "version": f"{version.major}.{version.minor}.{version.patch}",
            "bucket": self.address.bucket,
            "replicas": answer.config.get("num_replicas", 1),
            "max_payload": connection.client.max_payload,
            "max_value": connection.client.max_payload - HEADERS,
            "clock_uncertainty_ms": round(self.thread.clock.uncertainty() * 1000, 3),
            "latency_ms": round(latency * 1000, 3),
        }

    # --- what they are made of -------------------------------------------------------------------

    async def now(self, since: float = 0.0) -> float:
        """The server's time; measured since a moment of the steady clock, if that is given."""
        clock = self.thread.clock
        while clock.is_stale(since):
            async with self.thread.measuring:
                if clock.is_stale(since):
                    await self._measured(await self.thread.connection(self))
        return clock.now()

    def _is_doubtful(self, found: Found, now: float, read: float) -> bool:
        """Whether a change of a record may rest on the time of before the clock was set back.

        Another process may have measured the new time and written the record by it: by the old time
        its lease would be over. So a record that seems not to be written just now is changed only
        by a time that was asked for after it was read.
        """
        is_recent = found.record is None or abs(now - found.written) <= SET_BACK
        return not is_recent and self.thread.clock.is_stale(read)

    async def _measured(self, connection: NatsConnection[NatsUrl]) -> None:
        self.doing = "reading the server's clock"
        try:
            await measure(connection, self.thread.clock)
        except LostError:
            self.error = "the connection was lost"
        except NoResponderError as error:
            self.thread.drop(connection)
            raise self.failed(str(error)) from None

    async def _get(self, subject: str) -> Found:
        """The last message of a record; a mark that it was dropped has a revision."""
        asked = msgspec.json.encode({"last_by_subj": subject})
        answer = await self.api("STREAM.MSG.GET", asked, missing=NO_MESSAGE)
        if answer.message is None:
            return Found()
        value = answer.message.value()
        if value is None:
            return Found(answer.message.seq)
        written = answer.message.time.timestamp()
        try:
            return Found(answer.message.seq, envelopes.decode(value), written)
        except msgspec.MsgspecError:
            raise self.failed(f"what is kept as {subject} is no record of mainstay's") from None

    async def _get_all(self, subjects: list[str]) -> list[Envelope | None]:
        found: list[Envelope | None] = []
        for start in range(0, len(subjects), 64):
            some = await asyncio.gather(*map(self._get, subjects[start : start + 64]))
            found += [each.record for each in some]
        return found

    async def _names(self, pattern: str) -> list[str]:
        """All names of a pattern."""
        names: list[str] = []
        while True:
            asked = msgspec.json.encode({"subjects_filter": pattern, "offset": len(names)})
            answer = await self.api("STREAM.INFO", asked)
            names += answer.state.subjects or ()
            if not answer.state.subjects or len(names) >= answer.total:
                return names

    async def _put(self, subject: str, key: str, revision: int, change: Change) -> bool:
        """Writes or drops a record if its revision is still that one; whether it was."""
        if change.value is None:
            return bool(await self.drop(subject, revision))
        headers = {EXPECTED: str(revision)}
        if change.expires is not None:
            headers[EXPIRES] = repr(float(change.expires))
        payload = msgspec.msgpack.encode(Envelope(key, change.value))
        return bool(await self._write(subject, payload, headers))

    async def drop(self, subject: str, revision: int) -> int:
        """Marks a record of that revision as dropped; the mark's revision, or 0."""
        return await self._write(subject, b"", {EXPECTED: str(revision), "KV-Operation": "DEL"})

    async def _write(self, subject: str, payload: bytes, headers: dict[str, str]) -> int:
        """The new revision; 0 if it lost the race."""
        connection = await self.thread.connection(self)
        self._check_size(connection, payload, headers)
        self.doing = "writing, so it may have been written or not"
        try:
            reply = await connection.ask(subject, payload, headers)
        except LostError:
            reason = "the connection was lost while writing, so it may have been written or not"
            raise self.failed(reason) from None
        answer = self._checked(connection, reply, WRONG_SEQUENCE)
        return 0 if answer.error is not None else answer.seq

    def _check_size(
        self, connection: NatsConnection[NatsUrl], payload: bytes, headers: dict[str, str]
    ) -> None:
        size = len(payload) + 12 + sum(len(name) + len(text) + 4 for name, text in headers.items())
        if size > connection.client.max_payload:
            hint = "keep something smaller, or raise max_payload in the server's configuration"
            limit = connection.client.max_payload
            raise ValueTooLarge(self.address.shown, size, limit, hint=hint)

    async def api(
        self, call: str, payload: bytes = b"", missing: int = 0, name: str = ""
    ) -> Answer:
        """An answer of JetStream's API; repeated if the connection was lost."""
        while True:
            connection = await self.thread.connection(self)
            self.doing = f"asking for {call}"
            try:
                reply = await connection.ask(f"$JS.API.{call}.{self.address.stream}{name}", payload)
            except LostError:
                continue
            return self._checked(connection, reply, (missing,))

    def _checked(
        self, connection: NatsConnection[NatsUrl], reply: Msg, allowed: tuple[int, ...] = ()
    ) -> Answer:
        """The answer of the server; raises if it is an error that is not allowed."""
        try:
            answer = answer_of(reply)
        except NoResponderError as error:
            self.thread.drop(connection)  # the next one checks whether the bucket exists
            raise self.failed(str(error)) from None
        if answer.error is None or answer.error.err_code in allowed:
            return answer
        if answer.error.err_code == NO_STREAM:
            self.thread.drop(connection)
        raise self.failed(f"JetStream answered: {answer.error.description}")


class _Sweep:
    """A walk over the bucket in the order of writing, without the values."""

    def __init__(self, step: NatsStep, start: int) -> None:
        self.position = start
        self.left = 0
        self._step = step
        self._name = ""

    async def begin(self) -> None:
        address = self._step.address
        config = {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.position,
            "filter_subject": address.subjects + "*.*",
            "ack_policy": "none",
            "headers_only": True,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 10_000_000_000,
        }
        asked = msgspec.json.encode({"stream_name": address.stream, "config": config})
        answer = await self._step.api("CONSUMER.CREATE", asked)
        self.left, self._name = answer.num_pending, f".{answer.name}"

    async def go_on(self, limit: int) -> int:
        """Looks at some records, and drops those of them that have expired; how many."""
        messages = await self._next()
        now = self._step.thread.store_clock.before_jumps(await self._step.now(since=steady()))
        expired: list[tuple[str, int]] = []
        marks: list[tuple[str, int]] = []
        for message in messages:
            sequence = message.metadata.sequence.stream
            if len(expired) >= limit:
                break
            headers = message.headers or {}
            if "KV-Operation" in headers:
                marks.append((message.subject, sequence))
            elif float(headers.get(EXPIRES, "inf")) <= now:
                expired.append((message.subject, sequence))
            self.position, self.left = sequence + 1, message.metadata.num_pending
        counts = await asyncio.gather(*(self._drop(*at) for at in expired))
        await asyncio.gather(*(self._clear(*at) for at in marks))
        return sum(counts)

    async def _next(self) -> list[Msg]:
        step = self._step
        wanted = min(self.left, 256)
        connection = await step.thread.connection(step)
        step.doing = "looking for expired records"
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{step.address.stream}{self._name}"
        asked = msgspec.json.encode({"batch": wanted, "no_wait": True})
        try:
            messages = await connection.fetch(subject, asked, wanted)
        except LostError:
            raise step.failed("the connection was lost while looking for expired ones") from None
        self.left = 0  # unless the last message has another number
        return [message for message in messages if status(message) is None]

    async def _drop(self, subject: str, revision: int) -> int:
        mark = await self._step.drop(subject, revision)
        if mark:
            await self._clear(subject, mark)
        return 1 if mark else 0

    async def _clear(self, subject: str, mark: int) -> None:
        """Removes a mark; what was written after it stays, and absent is absent without it."""
        asked = msgspec.json.encode({"filter": subject, "seq": mark + 1})
        await self._step.api("STREAM.PURGE", asked)

    async def end(self) -> None:
        await self._step.api("CONSUMER.DELETE", name=self._name, missing=NO_CONSUMER)


class Raised:
    """What a decision raised, carried past the loop, which some exceptions would stop."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


def unwrapped(answer: Any) -> Any:
    """The answer of an operation; raises in the caller what the decision raised."""
    if isinstance(answer, Raised):
        raise answer.error
    return answer
