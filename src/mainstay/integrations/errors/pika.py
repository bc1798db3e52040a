"""pika: a closed channel or connection is judged by AMQP's reply code."""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, Row, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WRONG = Row(Kind.PERMANENT, "a mistake in the call")
LOST = Row(
    Kind.TRANSIENT, "the connection was lost after the message was sent, maybe", ambiguous=True
)
NOT_SENT = Row(Kind.TRANSIENT, "no connection was made, so nothing was sent")
REFUSED = Row(Kind.AUTH, "the broker refuses the credentials, or the virtual host")
PROTOCOL = Row(Kind.PERMANENT, "client and broker do not speak the same protocol")
NACKED = Row(
    Kind.OVERLOAD, "the broker did not take the message: a queue is full, or failed", ambiguous=True
)
UNROUTABLE = Row(Kind.PERMANENT, "no queue takes a message of that routing key")
CLOSED = Row(Kind.PERMANENT, "the connection or channel is closed; a new one must be opened")

REPLIES: dict[str | int, Row] = {
    200: CLOSED,
    311: Row(Kind.PERMANENT, "more than the broker accepts in a message"),
    312: UNROUTABLE,
    313: Row(Kind.TRANSIENT, "no consumer is there at present"),
    320: Row(Kind.TRANSIENT, "the broker ends, or an operator closed it", ambiguous=True),
    402: Row(Kind.PERMANENT, "there is no such virtual host"),
    403: Row(Kind.AUTH, "the user may not do that"),
    404: Row(Kind.PERMANENT, "there is no such queue or exchange"),
    405: Row(Kind.TRANSIENT, "another connection has the queue for itself"),
    406: Row(Kind.PERMANENT, "the queue or exchange is declared otherwise, or a tag is unknown"),
    501: PROTOCOL,
    502: PROTOCOL,
    503: PROTOCOL,
    504: PROTOCOL,
    505: PROTOCOL,
    506: Row(Kind.OVERLOAD, "the broker lacks resources for it", ambiguous=True),
    "530 limit": Row(Kind.OVERLOAD, "the broker has as many connections as it accepts"),
    530: Row(Kind.AUTH, "the broker does not allow it: the virtual host, or what is done there"),
    540: Row(Kind.PERMANENT, "the broker does not have it"),
    541: Row(Kind.TRANSIENT, "the broker failed, maybe after it had stored it", ambiguous=True),
}
"""AMQP 0-9-1's reply codes, and how RabbitMQ uses them."""


def _reply(error: Any) -> list[str | int | None]:
    code, text = error.args[0], str(error.args[1])
    return ["530 limit" if code == 530 and "limit" in text else None, code]


def _first(error: Any) -> BaseException | None:
    found = error.args[0] if error.args else None
    return found if isinstance(found, BaseException) else None


def _last(error: Any) -> BaseException | None:
    found = error.exceptions[-1]
    return found if isinstance(found, BaseException) else None


def _handshake(error: Any) -> list[str]:
    """Whether the connection was lost: pika guesses a reason by the step that it was lost at."""
    return ["lost"] if "StreamLostError" in str(error) else []


def _guessed(row: Row) -> Cases:
    return Cases(_handshake, {"lost": NOT_SENT}, otherwise=row, of="phase")


_BY_REPLY = Cases(_reply, REPLIES, otherwise=LOST, of="reply code")
_WORKFLOW = "pika.adapters.utils.connection_workflow"
_STARTING = Row(Kind.TIMEOUT, "the broker did not answer while connecting; nothing was sent")
_BASE = Row(Kind.UNKNOWN, "a base class, which pika itself does not raise")
_OPENING = Inner("exception", otherwise=NOT_SENT)

TABLE = Table(
    "pika",
    {
        "pika.exceptions.AMQPError": _BASE,
        "pika.exceptions.AMQPConnectionError": Inner(_first, otherwise=NOT_SENT),
        "pika.exceptions.ConnectionOpenAborted": CLOSED,
        "pika.exceptions.StreamLostError": LOST,
        "pika.exceptions.IncompatibleProtocolError": _guessed(PROTOCOL),
        "pika.exceptions.AuthenticationError": REFUSED,
        "pika.exceptions.ProbableAuthenticationError": _guessed(REFUSED),
        "pika.exceptions.ProbableAccessDeniedError": _guessed(REFUSED),
        "pika.exceptions.NoFreeChannels": Row(
            Kind.OVERLOAD, "as many channels are open as the broker accepts; nothing was sent"
        ),
        "pika.exceptions.ConnectionWrongStateError": CLOSED,
        "pika.exceptions.ConnectionClosed": _BY_REPLY,
        "pika.exceptions.ConnectionClosedByBroker": _BY_REPLY,
        "pika.exceptions.ConnectionClosedByClient": CLOSED,
        "pika.exceptions.ConnectionBlockedTimeout": Row(
            Kind.OVERLOAD, "the broker's memory or disk is full, and it accepts nothing",
            ambiguous=True,
        ),
        "pika.exceptions.AMQPHeartbeatTimeout": LOST,
        "pika.exceptions.AMQPChannelError": _BASE,
        "pika.exceptions.ChannelWrongStateError": CLOSED,
        "pika.exceptions.ChannelClosed": _BY_REPLY,
        "pika.exceptions.ChannelClosedByBroker": _BY_REPLY,
        "pika.exceptions.ChannelClosedByClient": CLOSED,
        "pika.exceptions.DuplicateConsumerTag": WRONG,
        "pika.exceptions.ConsumerCancelled": Row(
            Kind.TRANSIENT, "the broker ended the consumer: the queue is gone, or has moved"
        ),
        "pika.exceptions.UnroutableError": UNROUTABLE,
        "pika.exceptions.NackError": NACKED,
        "pika.exceptions.InvalidChannelNumber": WRONG,
        "pika.exceptions.ProtocolSyntaxError": PROTOCOL,
        "pika.exceptions.UnexpectedFrameError": PROTOCOL,
        "pika.exceptions.ProtocolVersionMismatch": PROTOCOL,
        "pika.exceptions.BodyTooLongError": PROTOCOL,
        "pika.exceptions.InvalidFrameError": PROTOCOL,
        "pika.exceptions.InvalidFieldTypeException": PROTOCOL,
        "pika.exceptions.UnsupportedAMQPFieldException": WRONG,
        "pika.exceptions.MethodNotImplemented": PROTOCOL,
        "pika.exceptions.ChannelError": _BASE,
        "pika.exceptions.DuplicateGetOkCallback": WRONG,
        "pika.exceptions.ReentrancyError": WRONG,
        "pika.exceptions.ShortStringTooLong": WRONG,
        "pika.exceptions.ChannelAlreadyClosing": CLOSED,
        "pika.exceptions.InvalidMaximumFrameSize": PROTOCOL,
        "pika.exceptions.InvalidMinimumFrameSize": PROTOCOL,
        "pika.exceptions.RecursionError": WRONG,
        "pika.exceptions.UnspportedAMQPFieldException": WRONG,
        f"{_WORKFLOW}.AMQPConnectorException": _BASE,
        f"{_WORKFLOW}.AMQPConnectorStackTimeout": _STARTING,
        f"{_WORKFLOW}.AMQPConnectorAborted": CLOSED,
        f"{_WORKFLOW}.AMQPConnectorWrongState": WRONG,
        f"{_WORKFLOW}.AMQPConnectorPhaseErrorBase": _OPENING,
        f"{_WORKFLOW}.AMQPConnectorSocketConnectError": _OPENING,
        f"{_WORKFLOW}.AMQPConnectorTransportSetupError": _OPENING,
        f"{_WORKFLOW}.AMQPConnectorAMQPHandshakeError": _OPENING,
        f"{_WORKFLOW}.AMQPConnectionWorkflowAborted": CLOSED,
        f"{_WORKFLOW}.AMQPConnectionWorkflowWrongState": WRONG,
        f"{_WORKFLOW}.AMQPConnectionWorkflowFailed": Inner(_last, otherwise=NOT_SENT),
    },
    retries="none but connection_attempts, which is 1; nothing is published again",
)  # fmt: skip
OTHER_VERSIONS = (
    "pika.exceptions.ChannelAlreadyClosing",
    "pika.exceptions.InvalidMaximumFrameSize",
    "pika.exceptions.InvalidMinimumFrameSize",
    "pika.exceptions.RecursionError",
    "pika.exceptions.UnspportedAMQPFieldException",
)
"""Before version 1."""
