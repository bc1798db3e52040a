"""aio-pika with aiormq and pamqp, whose errors it raises: by class, or by AMQP's reply code.

aiormq derives its errors from the built-in ConnectionError, and raises one class for a connection
that was not made and for one that was lost; its text has the phase.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Row, Table
from mainstay.integrations.errors import pika
from mainstay.integrations.errors.pika import (
    CLOSED,
    LOST,
    NACKED,
    NOT_SENT,
    PROTOCOL,
    REFUSED,
    REPLIES,
    UNROUTABLE,
    WRONG,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.core.known.table import Entry


def _reply(error: Any) -> list[str | int | None]:
    """The code, if the broker gave one that aiormq has no class for."""
    code = error.args[0] if len(error.args) == 2 else None
    return [code if isinstance(code, int) else None]


def _limit(error: BaseException) -> list[str]:
    return ["530 limit"] if "limit" in str(error) else ["530"]


def _phase(error: BaseException) -> list[str]:
    text = str(error)
    return ["connecting"] if "Connect call failed" in text or "resolution" in text else []


def _returned(error: BaseException) -> list[str]:
    return ["returned"] if error.args[0] == "Message has been returned" else []


def _frame(error: Any) -> list[str | int | None]:
    """What came back: a refusal, or the message with a reply code."""
    frame = error.frame
    return [getattr(frame, "reply_code", None), getattr(frame, "name", None)]


_BASE = Row(Kind.UNKNOWN, "a base class, which aio-pika itself does not raise")
_OWN = Row(Kind.UNKNOWN, "raised by a handler, to answer a message")
_BY_REPLY = Cases(_reply, REPLIES, otherwise=LOST, of="reply code")
_NOT_ALLOWED = Cases(_limit, REPLIES, otherwise=REPLIES[530], of="reply code")
_REMOTE = Row(Kind.UNKNOWN, "the function at the other side failed", ambiguous=True)

_AIORMQ: dict[str, Entry] = {
    "AMQPError": _BASE,
    "AMQPConnectionError": Cases(_phase, {"connecting": NOT_SENT}, otherwise=LOST, of="phase"),
    "IncompatibleProtocolError": PROTOCOL,
    "AuthenticationError": REFUSED,
    "ProbableAuthenticationError": REFUSED,
    "ConnectionClosed": _BY_REPLY,
    "ConnectionSyntaxError": REPLIES[502],
    "ConnectionFrameError": REPLIES[501],
    "ConnectionCommandInvalid": REPLIES[503],
    "ConnectionChannelError": REPLIES[504],
    "ConnectionUnexpectedFrame": REPLIES[505],
    "ConnectionResourceError": REPLIES[506],
    "ConnectionNotAllowed": _NOT_ALLOWED,
    "ConnectionNotImplemented": REPLIES[540],
    "ConnectionInternalError": REPLIES[541],
    "AMQPChannelError": _BASE,
    "ChannelClosed": _BY_REPLY,
    "ChannelAccessRefused": REPLIES[403],
    "ChannelNotFoundEntity": REPLIES[404],
    "ChannelLockedResource": REPLIES[405],
    "ChannelPreconditionFailed": REPLIES[406],
    "ChannelInvalidStateError": CLOSED,
    "DuplicateConsumerTag": WRONG,
    "ProtocolSyntaxError": PROTOCOL,
    "InvalidFrameError": PROTOCOL,
    "MethodNotImplemented": PROTOCOL,
    "DeliveryError": Cases(_frame, REPLIES, otherwise=NACKED, of="reply code"),
    "PublishError": UNROUTABLE,
}
_PAMQP: dict[str, Entry] = {
    "PAMQPException": _BASE,
    "UnmarshalingException": PROTOCOL,
    "AMQPError": _BASE,
    "AMQPSoftError": _BASE,
    "AMQPHardError": _BASE,
    "AMQPContentTooLarge": REPLIES[311],
    "AMQPNoRoute": REPLIES[312],
    "AMQPNoConsumers": REPLIES[313],
    "AMQPConnectionForced": REPLIES[320],
    "AMQPInvalidPath": REPLIES[402],
    "AMQPAccessRefused": REPLIES[403],
    "AMQPNotFound": REPLIES[404],
    "AMQPResourceLocked": REPLIES[405],
    "AMQPPreconditionFailed": REPLIES[406],
    "AMQPFrameError": REPLIES[501],
    "AMQPSyntaxError": REPLIES[502],
    "AMQPCommandInvalid": REPLIES[503],
    "AMQPChannelError": REPLIES[504],
    "AMQPUnexpectedFrame": REPLIES[505],
    "AMQPResourceError": REPLIES[506],
    "AMQPNotAllowed": REPLIES[530],
    "AMQPNotImplemented": REPLIES[540],
    "AMQPInternalError": REPLIES[541],
}
_COPIED = """
    AMQPChannelError AMQPConnectionError AMQPError AuthenticationError BodyTooLongError
    ChannelClosed ChannelError ConnectionClosed ConsumerCancelled DuplicateConsumerTag
    IncompatibleProtocolError InvalidChannelNumber InvalidFieldTypeException InvalidFrameError
    InvalidMaximumFrameSize InvalidMinimumFrameSize MethodNotImplemented NackError NoFreeChannels
    ProbableAccessDeniedError ProbableAuthenticationError ProtocolSyntaxError
    ProtocolVersionMismatch RecursionError ShortStringTooLong UnexpectedFrameError UnroutableError
    UnspportedAMQPFieldException UnsupportedAMQPFieldException
""".split()
"""Up to version 4 aio-pika had a pika of its own, whose classes mean what pika's do."""
_BEFORE: dict[str, Entry] = {
    **{
        f"aio_pika.{name}": pika.TABLE.entries[name]
        for name in map("pika.exceptions.{}".format, _COPIED)
    },
    "aio_pika.exceptions.AMQPException": _BASE,
    "aio_pika.exceptions.TransactionClosed": WRONG,
}
OTHER_VERSIONS = tuple(_BEFORE)

TABLE = Table(
    "aio_pika",
    {
        **_BEFORE,
        **{f"aiormq.exceptions.{name}": entry for name, entry in _AIORMQ.items()},
        **{f"pamqp.exceptions.{name}": entry for name, entry in _PAMQP.items()},
        "aio_pika.exceptions.MessageProcessError": Cases(
            _returned, {"returned": UNROUTABLE}, otherwise=WRONG, of="phase"
        ),
        "aio_pika.exceptions.QueueEmpty": Row(Kind.PERMANENT, "the queue is empty at present"),
        "aio_pika.patterns.master.MessageProcessingError": _OWN,
        "aio_pika.patterns.master.NackMessage": _OWN,
        "aio_pika.patterns.master.RejectMessage": _OWN,
        "aio_pika.patterns.rpc.RPCException": _REMOTE,
        "aio_pika.patterns.rpc.JsonRPCError": _REMOTE,
        "aio_pika.pool.PoolInvalidStateError": CLOSED,
    },
    packages=("aio_pika", "aiormq", "pamqp"),
    retries=(
        "connect_robust connects again for ever, every 5 s, and declares its queues again; the"
        " first connection is not repeated, and nothing is published again"
    ),
)
