"""paramiko: the class decides, and the text where one class stands for many failures.

SSHException has no code. Its texts have been the same for many versions; one that is not known is
not repeated.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, Row, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_LOST = Row(Kind.TRANSIENT, "the connection ended; a command may have been run", ambiguous=True)
_NOT_BEGUN = Row(Kind.TRANSIENT, "the connection ended before a session began")
_LATE = Row(Kind.TIMEOUT, "the server did not answer in time before a session began")
_LOGIN = Row(Kind.AUTH, "the server does not accept the login")
_HOST_KEY = Row(Kind.PERMANENT, "the server is not the one that was expected")
_NO_COMMON = Row(Kind.PERMANENT, "both sides have no algorithm or version in common")
_BROKEN_KEY = Row(Kind.PERMANENT, "a key, a file or a message cannot be read")
_MISUSE = Row(Kind.PERMANENT, "a mistake in the call")


def _text(exception: Any) -> Iterable[str]:
    return (str(exception.args[0]),)


def _channel(exception: Any) -> Iterable[int]:
    return (exception.code,)


def _first(exception: Any) -> BaseException:
    """Of the addresses that were tried; they are of one host, and fail alike."""
    first: BaseException = next(iter(exception.errors.values()))
    return first


_SSH: dict[str | int, Row] = {
    "Error reading SSH protocol banner*": Row(
        Kind.TRANSIENT, "no greeting: the server is busy, or is no SSH server"
    ),
    "Negotiation failed.*": _NOT_BEGUN,
    "EOF during negotiation*": _NOT_BEGUN,
    "No existing session*": _NOT_BEGUN,
    "Key-exchange timed out*": Row(
        Kind.TIMEOUT, "no new keys in time; a command may have been run before", ambiguous=True
    ),
    "Timeout opening channel.*": _LATE,
    "Unable to connect to *": _NOT_BEGUN,
    "Unable to open channel.*": _NOT_BEGUN,
    "SSH session not active*": _LOST,
    "Server connection dropped*": _LOST,
    "Mismatched MAC*": _LOST,
    "Channel is not open*": _LOST,
    "Channel closed.*": _LOST,
    "Indecipherable protocol version*": Row(Kind.PERMANENT, "the server is no SSH server"),
    "Invalid SSH banner*": Row(Kind.PERMANENT, "the server is no SSH server"),
    "Server '*": _HOST_KEY,
    "Bad host key from server*": _HOST_KEY,
    "Signature verification*": _HOST_KEY,
    "No authentication methods available*": _LOGIN,
    "TCP forwarding request denied*": Row(Kind.AUTH, "the server does not permit it"),
    "not a valid *": _BROKEN_KEY,
    "Invalid key*": _BROKEN_KEY,
}

TABLE = Table(
    "paramiko",
    {
        "paramiko.ssh_exception.SSHException": Cases(
            _text,
            _SSH,
            otherwise=Row(Kind.UNKNOWN, "a failure that only its text names, and one not known"),
            of="text",
        ),
        "paramiko.ssh_exception.AuthenticationException": Cases(
            _text,
            {
                "Authentication timeout.*": _LATE,
                "Authentication failed: transport*": _NOT_BEGUN,
            },
            otherwise=_LOGIN,
            of="text",
        ),
        "paramiko.ssh_exception.PasswordRequiredException": Row(
            Kind.AUTH, "the private key is locked, and no password was given"
        ),
        "paramiko.ssh_exception.BadAuthenticationType": _LOGIN,
        "paramiko.ssh_exception.PartialAuthentication": _LOGIN,
        "paramiko.ssh_exception.UnableToAuthenticate": _LOGIN,
        "paramiko.auth_strategy.AuthFailure": _LOGIN,
        "paramiko.ssh_exception.ChannelException": Cases(
            _channel,
            {
                1: Row(Kind.AUTH, "the server does not permit such a channel"),
                2: Row(Kind.TRANSIENT, "the server could not connect further"),
                3: Row(Kind.PERMANENT, "the server has no such channel"),
                4: Row(Kind.OVERLOAD, "the server has no resources for a channel"),
            },
            otherwise=Row(Kind.UNKNOWN, "a code of channels that is not known"),
        ),
        "paramiko.ssh_exception.NoValidConnectionsError": Inner(
            _first, otherwise=Row(Kind.TRANSIENT, "no connection was made, so nothing was sent")
        ),
        "paramiko.ssh_exception.BadHostKeyException": _HOST_KEY,
        "paramiko.ssh_exception.IncompatiblePeer": _NO_COMMON,
        "paramiko.ssh_exception.MessageOrderError": Row(
            Kind.PERMANENT, "messages came in an order that an attack would have"
        ),
        "paramiko.ssh_exception.ProxyCommandFailure": _LOST,
        "paramiko.ssh_exception.ConfigParseError": _MISUSE,
        "paramiko.ssh_exception.CouldNotCanonicalize": Row(
            Kind.PERMANENT, "the name is in none of the domains of the configuration"
        ),
        "paramiko.buffered_pipe.PipeTimeout": Row(
            Kind.TIMEOUT, "nothing was read in time; a command may have been run", ambiguous=True
        ),
        "paramiko.sftp.SFTPError": Row(
            Kind.PERMANENT, "the server answered with something that SFTP does not have"
        ),
        "paramiko.ber.BERException": _BROKEN_KEY,
        "paramiko.hostkeys.InvalidHostKey": _BROKEN_KEY,
        "paramiko.pkey.UnknownKeyType": _BROKEN_KEY,
        "paramiko.packet.NeedRekeyException": Row(
            Kind.UNKNOWN, "of paramiko's own use: it begins new keys then"
        ),
    },
    retries="none",
)
