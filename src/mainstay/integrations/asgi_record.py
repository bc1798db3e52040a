"""One request's hold on its record, and its response, recorded before the last of it goes out.

A claim takes steps of the store for its request: it begins, renews its lease, and settles or
releases. The response decides which of the two, by the table at the top of asgi.py. A response that
is too large for the store is settled without its body. If the store is unavailable for the last
step, the response goes out and the step is taken later.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

import mainstay.runtime.clock as clock
from mainstay.core.base.spaces import Space
from mainstay.core.codec.outcome import Succeeded, decode_outcome, encode_outcome
from mainstay.core.idempotency.record import (
    Lost,
    Mismatch,
    RecordState,
    Release,
    Renew,
    Replay,
    Run,
    Settle,
    glimpse,
    reduce,
)
from mainstay.core.inbox.items import damaged_item
from mainstay.core.redact.redactor import REDACTOR
from mainstay.errors import StoredValueError, StoreUnavailable, ValueTooLarge
from mainstay.integrations.asgi_identity import earlier_fingerprint
from mainstay.integrations.asgi_messages import Problem, declared_length, lasting, leads_on
from mainstay.runtime.reports.logs import logger

if TYPE_CHECKING:
    from typing import Any, Protocol

    from mainstay.core.idempotency.call import Keyed
    from mainstay.core.idempotency.record import Begin, Command
    from mainstay.core.inbox.items import Item
    from mainstay.integrations.asgi_messages import Message, Send
    from mainstay.integrations.asgi_quota import Quota
    from mainstay.ports import Store
    from mainstay.runtime.store_clock import StoreClock

    class Records(Protocol):
        """What counts hits and conflicts, and knows the store's clock."""

        clock: StoreClock

        def report(self, site: Any, call: Keyed, what: str) -> None: ...

    class Inbox(Protocol):
        """Where items for an operator go."""

        async def aput(self, item: Item) -> Item: ...
        async def aput_damage(self, error: StoredValueError, item: Item) -> None: ...

    class Engine(Protocol):
        """What the middleware needs of an engine."""

        @property
        def store(self) -> Store: ...
        @property
        def records(self) -> Records: ...
        @property
        def inbox(self) -> Inbox: ...


_log = logger()

SPACE = Space.RECORDS.value
"""Where an engine keeps idempotency records; ours lie among them, under our operation."""

_CLAIMS = 3
"""How often a key is claimed, if each answer comes after the lease of the claim."""
_LONGEST_WAIT = 1.0
"""Seconds between two looks at the time while a lease is kept."""
_PATIENCE = (0.1, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds between the tries of a step that the store did not take."""


# --- the record -----------------------------------------------------------------------------------


class _Site:
    """Requests have no site: their hits and conflicts are counted, and emit no events."""

    listeners = ()


class Claim:
    """One request's hold on its record."""

    __slots__ = (
        "_engine", "_identity", "_is_counted", "_quota", "_sent", "address", "call", "epoch",
    )  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        call: Keyed,
        address: str,
        identity: list[Any],
        quota: Quota | None = None,
    ) -> None:
        self._engine = engine
        self._quota = quota
        self.call = call
        self.address = address
        self._identity = identity
        self._is_counted = False
        self._sent = 0.0
        """When the present claim was sent, or later: its lease is certain for its length from then
        on."""
        self.epoch = 0

    async def begin(self, begin: Begin) -> Any:
        """The record's answer; a claim that was answered after its lease is made again.

        Another request may have taken over by then. If the store is never in time, it counts as
        unavailable, and the claim is released.
        """
        for _ in range(_CLAIMS):
            self._sent = clock.steady()
            seen = await self._seen(begin)
            if not isinstance(seen, Run) or clock.steady() - self._sent < self.call.lease:
                return seen
        await self.finish(Release(self.call.owner, self.epoch))
        reason = f"each of {_CLAIMS} claims took longer than the lease of {self.call.lease:g} s"
        raise StoreUnavailable(self._engine.store.url, "write", reason)

    async def _seen(self, begin: Begin) -> Any:
        """The record's answer; a request that has ended is seen by a plain reading."""
        value, now = await self._engine.store.aread(SPACE, self.address)
        seen = None if value is None else glimpse(value, self.call.fingerprint, now)
        if seen is None:
            seen = await self._begun(begin)
        if isinstance(seen, Run):
            self.epoch = seen.epoch
            await self._count_key(seen)
        elif isinstance(seen, Replay):
            self.count("hit")
        return seen

    async def _begun(self, begin: Begin) -> Any:
        """The answer of a step; a record of an earlier version is compared as that did it."""
        try:
            seen = await self.step(begin)
            if isinstance(seen, Mismatch):
                earlier = earlier_fingerprint(self._identity)
                if seen.recorded == earlier:
                    seen = await self.step(replace(begin, fingerprint=earlier))
        except StoredValueError:  # nothing has begun: the record cannot be read
            raise
        except BaseException:  # cut off, or the reply was lost: it may have begun
            is_optimistic = not getattr(self._engine.store, "locks", True)
            self.later(Release(self.call.owner, fence=is_optimistic))
            raise
        return seen

    async def _count_key(self, seen: Run) -> None:
        """Counts a key that is new, once it is this request's; if it is one too many, lets it go.

        Of several requests with one key, only the one that runs is counted.
        """
        if self._quota is None or self._is_counted or seen.attempts > 1:
            return  # one that was cut off has been counted
        release = Release(self.call.owner, self.epoch)
        try:
            await self._quota.take(self._engine.store)
            self._is_counted = True
        except Problem:
            await self.finish(release)
            raise
        except BaseException as error:
            self.later(release)
            if isinstance(error, StoredValueError):
                await self._engine.inbox.aput_damage(error, self._quota.damaged(self.call))
            raise

    async def report_damage(self, error: StoredValueError) -> None:
        """Puts an item into the inbox, if the record is damaged."""
        item = damaged_item(self.call.operation, self.call.key, self.address)
        await self._engine.inbox.aput_damage(error, item)

    async def step(self, command: Command) -> Any:
        """One step of the store."""
        look = self._engine.records.clock.look
        return await self._engine.store.atransact(
            SPACE, self.address, lambda value, now: reduce(value, command, now, look(now))
        )

    async def keep_alive(self) -> None:
        """Renews the lease at every third of it, until it is lost or this is cancelled.

        A third counts from when the request was sent, since the store's lease began before its
        answer; and a sleep of the loop stands still while the machine sleeps.
        """
        renew = Renew(self.call.owner, self.epoch, self.call.lease)
        third = self.call.lease / 3.0
        while True:
            left = self._sent + third - clock.steady()
            if left > 0.0:
                await asyncio.sleep(min(left, _LONGEST_WAIT))
                continue
            self._sent = clock.steady()
            with suppress(Exception):  # the store is unavailable: it is tried again after a third
                if isinstance(await self.step(renew), Lost):
                    return

    async def finish(self, command: Settle | Release) -> None:
        """Takes the last step; if the store is unavailable, it is taken later."""
        try:
            answer, command = await self._ended(command)
        except StoreUnavailable as error:
            reason = REDACTOR.text(str(error))
            _log.warning("an idempotency record is written later: %s", reason)
            self.later(command)
            return
        if isinstance(command, Settle):
            self._count_settled(answer, command)

    async def _ended(self, command: Settle | Release) -> tuple[Any, Settle | Release]:
        """The last step; without the body if the store does not take the response."""
        try:
            answer = await self.step(command)
            is_released = isinstance(command, Release) and not isinstance(answer, Lost)
            if self._quota is not None and is_released:  # if lost, another request has the key
                await self._quota.give_back(self._engine.store)
            return answer, command
        except ValueTooLarge as error:
            if not isinstance(command, Settle):
                raise
            reason = REDACTOR.text(str(error))
            _log.warning("a response is not kept under its idempotency key: %s", reason)
            command = without_body(command)
            return await self.step(command), command

    def later(self, command: Settle | Release) -> None:
        """Takes a step beside the request, as often as it takes; its lease ends it otherwise."""
        task = asyncio.create_task(self._insist(command))
        _LATE.add(task)
        task.add_done_callback(_LATE.discard)

    async def _insist(self, command: Settle | Release) -> None:
        for pause in _PATIENCE:
            try:
                answer, command = await self._ended(command)
            except StoreUnavailable:
                await asyncio.sleep(pause)
                continue
            if isinstance(command, Settle):
                self._count_settled(answer, command)
            return

    def _count_settled(self, answer: Any, command: Settle) -> None:
        if not isinstance(answer, Lost):
            self.count("record" if has_body(command) else "not_kept")
            return
        self.count("lost")
        key = REDACTOR.text(self.call.key)
        _log.warning("the lease of key %r was lost: its response was sent, and not recorded", key)

    def count(self, what: str) -> None:
        """Counts it among the engine's records."""
        self._engine.records.report(_Site, self.call, what)


def settled(call: Keyed, epoch: int, response: dict[str, Any]) -> Settle:
    """The last step of a request that was carried out."""
    outcome = encode_outcome(Succeeded(response))
    return Settle(call.owner, epoch, RecordState.SUCCEEDED, outcome, call.ttl)


def has_body(command: Settle) -> bool:
    """Whether a response is recorded with its body."""
    return not command.outcome.endswith(_BODILESS)


def without_body(command: Settle) -> Settle:
    """The same response without its body, and with the headers that a repeat is answered with."""
    outcome: Any = decode_outcome(command.outcome)
    headers = [each for each in outcome.value["headers"] if leads_on(*each)]
    response = {"status": outcome.value["status"], "headers": headers, "body": None}
    return replace(command, outcome=encode_outcome(Succeeded(response)))


_BODILESS = b'"body":null}}'
"""How the outcome ends of a response without its body."""
_LATE: set[asyncio.Task[None]] = set()
"""Steps under way beside their requests; an event loop holds its tasks weakly."""


# --- the response ---------------------------------------------------------------------------------

_PASSING = frozenset({401, 403, 407, 408, 409, 425, 429})
"""What another attempt may well change: credentials, permissions, timing, load."""


class Response:
    """Lets a response through, keeps a copy, and records it before the last of it goes out.

    One that declares a length within what is kept is held back until it is whole. Any other is a
    stream and goes on as it comes.
    """

    __slots__ = (
        "_chunks",
        "_claim",
        "_dropped",
        "_headers",
        "_held",
        "_holds",
        "_is_recorded",
        "_is_whole",
        "_room",
        "_send",
        "_status",
    )

    def __init__(self, claim: Claim, send: Send, room: int, dropped: frozenset[bytes]) -> None:
        self._claim = claim
        self._send = send
        self._room = room
        self._dropped = dropped
        self._status: int | None = None
        self._headers: list[list[str]] = []
        self._chunks: list[bytes] = []
        self._held: list[Message] = []
        self._holds = False
        self._is_whole = False
        self._is_recorded = False

    async def send(self, message: Message) -> None:
        """What the application sends."""
        if message["type"] == "http.response.start":
            self._start(message)
        elif message["type"] != "http.response.body" or self._is_whole:
            await self._send(message)
        else:
            await self._go_on(message)

    def _start(self, message: Message) -> None:
        """Held until the first of the body is there: most responses are whole then."""
        headers = list(message.get("headers", ()))
        length = declared_length(headers)
        self._status = message["status"]
        self._headers = list(lasting(headers, self._dropped))
        self._holds = length is not None and length <= self._room
        self._held.append({**message, "headers": headers})  # they may be an iterator, used up here

    async def _go_on(self, message: Message) -> None:
        chunk = bytes(message.get("body", b""))
        self._room -= len(chunk)
        if self._room >= 0:
            self._chunks.append(chunk)
        else:
            self._chunks, self._holds = [], False
        self._held.append(message)
        self._is_whole = not message.get("more_body", False)
        if self._is_whole:
            await self._record()
        if self._is_whole or not self._holds:
            await self._flush()

    async def _flush(self) -> None:
        held, self._held = self._held, []
        for message in held:
            await self._send(message)

    async def _record(self) -> None:
        await self._claim.finish(self._verdict())
        self._is_recorded = True

    def _verdict(self) -> Settle | Release:
        """The last step of the record."""
        call, epoch = self._claim.call, self._claim.epoch
        if self._status is None or self._status >= 500 or self._status in _PASSING:
            return Release(call.owner, epoch)
        is_kept = self._is_whole and self._room >= 0
        response = {
            "status": self._status,
            "headers": self._headers,
            "body": b"".join(self._chunks) if is_kept else None,
        }
        return settled(call, epoch, response)

    async def broke(self) -> None:
        """The application raised: as if nothing had begun, unless it had begun to answer."""
        if not self._is_recorded:
            await self._record()

    def cut(self) -> None:
        """The application was cancelled. Where it had not begun to answer, its lease runs out."""
        if self._status is not None and not self._is_recorded:
            self._claim.later(self._verdict())

    async def ended(self, *, has_disconnected: bool) -> None:
        """The application returned; one that stopped because the client went is like a crash."""
        if self._is_recorded or (self._status is None and has_disconnected):
            return
        await self._record()
        await self._flush()
