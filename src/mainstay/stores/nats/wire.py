"""The messages to and from a NATS server: the time, answers, records, a bucket's configuration.

The clock is the server's: it is measured against this machine's steady clock (`Clock`), on every
connection and every second. The wall clock of this machine is never looked at. These are
values only: steps.py and thread.py send and receive them.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from mainstay.runtime.nats.connection import status, steady

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from mainstay.stores.nats.url import NatsUrl

_MEASURE_EVERY = 1.0
"""Seconds after which the server's clock is measured again: it may be set, and until then this
process goes by the time of before."""
SET_BACK = 0.5
"""Seconds by which the server's clock goes back only if it was set."""
_DRIFT = 200e-6
"""How far two clocks may drift apart, per second; twice what a bad quartz does."""

# --- the clock ------------------------------------------------------------------------------------


class Clock:
    """The server's clock as seen from here: an offset to the steady clock, and how sure it is.

    Read in the store's own thread only. Two measurements may differ a little: it stands still then,
    and never goes back, unless the server's own clock was set back.
    """

    def __init__(self, floor: float = 0.0) -> None:
        self._floor = floor
        self._offset = 0.0
        self._half = 0.0
        self._measured: float | None = None
        self._asked = 0.0

    def unmeasured(self) -> Clock:
        """One that has measured nothing, and still does not go back."""
        return Clock(self._floor)

    def is_stale(self, since: float = 0.0) -> bool:
        """Whether it has to be measured before it is read: asked for `since`, if that is given."""
        if self._measured is None or self._asked < since:
            return True
        return steady() - self._measured > _MEASURE_EVERY

    def learn(self, sent: float, received: float, moment: float) -> None:
        """Takes a reading of the server's clock, made between `sent` and `received`.

        A slow answer that agrees with what is known is less precise than that, and is left out.
        """
        self._asked = sent
        half, offset = (received - sent) / 2, moment - (sent + received) / 2
        if self._measured is not None:
            known = self._half + _DRIFT * (received - self._measured)
            if half > known and abs(offset - self._offset) <= half + known:
                half, offset = known, self._offset
        self._offset, self._half, self._measured = offset, half, received

    def now(self) -> float:
        """Seconds since the epoch; until the first measurement the last time that was given."""
        if self._measured is None:
            return self._floor
        now = steady() + self._offset
        if now > self._floor or self._floor - now > SET_BACK:
            self._floor = now
        return self._floor

    def uncertainty(self) -> float:
        """Half the round trip of the reading it goes by."""
        return self._half


# --- answers of the server ------------------------------------------------------------------------


class _Error(Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Stored(Struct):
    seq: int
    time: datetime
    data: bytes = b""
    hdrs: bytes = b""

    def value(self) -> bytes | None:
        """What was written; None for the mark that a record was dropped."""
        is_mark = b"KV-Operation:" in self.hdrs or b"Nats-Marker-Reason:" in self.hdrs
        return None if is_mark else self.data


class _State(Struct, frozen=True):
    messages: int = 0
    subjects: dict[str, int] | None = None


class Answer(Struct):
    """An answer of JetStream, of whatever kind; each has some of these."""

    error: _Error | None = None
    message: _Stored | None = None
    seq: int = 0
    config: dict[str, Any] = {}
    state: _State = _State()
    ts: datetime | None = None
    total: int = 0
    name: str = ""
    num_pending: int = 0


class Found(NamedTuple):
    """The last message of a record: its revision, the record, and when the server wrote it."""

    revision: int = 0
    record: Envelope | None = None
    written: float = 0.0

    @property
    def value(self) -> bytes | None:
        """The value; None if there is no record."""
        return None if self.record is None else self.record.value


class Envelope(Struct, array_like=True):
    """A record as it is written: its key, because a name may be a hash of it, and its value."""

    key: str
    value: bytes


_answers = msgspec.json.Decoder(Answer)
envelopes = msgspec.msgpack.Decoder(Envelope)
HEADERS = 256
"""Bytes of a message besides the key and value of a record, at most: headers and lengths."""
EXPIRES = "Mainstay-Expires"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
NO_STREAM, NO_MESSAGE, NAME_IN_USE, NO_CONSUMER = 10059, 10037, 10058, 10014
WRONG_SEQUENCE = (10071, 10164)
"""The codes of "wrong last sequence": another writer won the race."""


def answer_of(reply: Msg) -> Answer:
    """The answer of JetStream; raises NoResponderError if there is none."""
    if status(reply) == "503":
        raise NoResponderError
    return _answers.decode(reply.data)


class NoResponderError(Exception):
    """The server has no responder for the request."""

    def __str__(self) -> str:
        return "nothing answers for its bucket: JetStream is off there, or the bucket is gone"


# --- the configuration of a bucket ----------------------------------------------------------------

_SHAPE = {
    "storage": "file",
    "retention": "limits",
    "max_msgs_per_subject": 1,
    "max_msgs": -1,
    "max_age": 0,
    "discard": "new",
    "deny_purge": False,
}
"""What a bucket must be like: nothing in it may vanish by itself, and one value a key is kept."""


def differences(config: dict[str, Any], address: NatsUrl) -> list[str]:
    """What a bucket is like that it must not be."""
    wanted: dict[str, Any] = {**_SHAPE, "subjects": [address.subjects + ">"]}
    found = [
        f"{name} is {config.get(name)!r} and must be {value!r}"
        for name, value in wanted.items()
        if config.get(name, value) != value
    ]
    if config.get("num_replicas", 1) < address.replicas:
        found.append(
            f"num_replicas is {config.get('num_replicas')}, and {address.replicas} are asked"
        )
    return found + [
        f"{name} is {config[name]!r} and must not be set"
        for name in ("mirror", "sources", "sealed", "persist_mode")
        if config.get(name) not in (None, False, [], "default")
    ]


def configuration(address: NatsUrl) -> bytes:
    """What the server is asked for where there is no bucket yet."""
    more = {
        "name": address.stream,
        "subjects": [address.subjects + ">"],
        "description": "records of mainstay",
        "num_replicas": address.replicas,
        "deny_delete": True,
        "allow_rollup_hdrs": True,
    }
    return msgspec.json.encode({**_SHAPE, **more})
