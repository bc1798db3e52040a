"""paramiko: rows of its table that the other tests do not come to.

A server of paramiko's own answers, or ends the connection where it is told to.
"""

import base64
import contextlib
import io
import socket
import threading

import paramiko
import paramiko.auth_strategy
import paramiko.ber
import paramiko.buffered_pipe
import paramiko.hostkeys
import paramiko.sftp
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed448

from tests.integrations.errors.rows import comes_to

KEY = paramiko.ECDSAKey.generate()
OTHER_KEY = paramiko.ECDSAKey.generate()
SSH = "paramiko.ssh_exception.SSHException text "


class Rules(paramiko.ServerInterface):
    """Lets everybody in; a channel is answered after `gate`."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()

    def get_allowed_auths(self, username):
        return "password"

    def check_auth_password(self, username, password):
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind, chanid):
        self.gate.wait(60)
        return paramiko.OPEN_SUCCEEDED

    def check_channel_subsystem_request(self, channel, name):
        channel.close()
        return True


@contextlib.contextmanager
def session(**options):
    """A client that is logged in, and the rules of the server at the other end."""
    ours, theirs = socket.socketpair()
    server, client = paramiko.Transport(theirs), paramiko.Transport(ours)
    server.add_server_key(KEY)
    rules = Rules()
    try:
        server.start_server(threading.Event(), rules)
        client.connect(username="u", password="p", **options)
        yield client, rules
    finally:
        rules.gate.set()
        for each in (client, server):
            each.close()
            each.join()
        ours.close()
        theirs.close()


def late_channel():
    with session() as (client, rules):
        rules.gate.clear()
        client.open_session(timeout=0.1)


def another_key():
    with session(hostkey=OTHER_KEY):
        pass


def no_session():
    ours, theirs = socket.socketpair()
    with theirs:
        transport = paramiko.Transport(ours)
        try:
            transport.auth_password("u", "p")
        finally:
            transport.close()
            ours.close()


class Named:
    """A socket in the place of a channel."""

    def __init__(self, wire):
        self.send, self.recv, self.close = wire.send, wire.recv, wire.close

    def get_name(self):
        return "wire"


@contextlib.contextmanager
def files(*answers):
    """A server of SFTP alone, without SSH below it; it gives its answers and ends."""

    def serve():
        with theirs, contextlib.suppress(OSError):
            for each in answers:
                size = int.from_bytes(theirs.recv(4), "big")
                request = theirs.recv(size)
                answer = each.replace(b"NUMBER", request[1:5])
                theirs.sendall(len(answer).to_bytes(4, "big") + answer)
            theirs.recv(4096)

    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield ours
    finally:
        ours.close()
        thread.join()


VERSION, DATA = b"\x02\x00\x00\x00\x03", b"\x67NUMBER\x00\x00\x00\x00"


def listed(*answers):
    with files(*answers) as wire:
        paramiko.SFTPClient(Named(wire)).listdir(".")


def sftp():
    with session() as (client, _rules):
        paramiko.SFTPClient.from_transport(client)


def failing_proxy():
    proxy = paramiko.ProxyCommand("false")
    try:
        proxy.process.wait(60)
        for _ in range(2):
            proxy.send(b"x" * 2**20)
    finally:
        proxy.process.stdout.close()
        proxy.process.stderr.close()
        with contextlib.suppress(OSError):
            proxy.process.stdin.close()


def canonical():
    text = "CanonicalizeHostname yes\nCanonicalDomains none.invalid\nCanonicalizeFallbackLocal no"
    with pytest.MonkeyPatch.context() as patch:

        def unknown(*_):
            raise socket.gaierror(socket.EAI_NONAME, "as asked")

        patch.setattr(socket, "gethostbyname", unknown)
        paramiko.SSHConfig.from_text(text).lookup("shop")


def strategy():
    class Nothing(paramiko.auth_strategy.AuthStrategy):
        def get_sources(self):
            return iter(())

    Nothing(None).authenticate(None)


def unknown_key(folder):
    made = ed448.Ed448PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "key").write_bytes(made)
    paramiko.PKey.from_path(folder / "key")


def cut_key():
    body = base64.b64encode(b"openssh-key-v1\0" + bytes(40)).decode()
    text = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n"
    paramiko.Ed25519Key.from_private_key(io.StringIO(text))


ROWS = {
    f"{SSH}Timeout opening channel.*": late_channel,
    f"{SSH}Bad host key from server*": another_key,
    f"{SSH}No existing session*": no_session,
    f"{SSH}Channel is not open*": lambda: paramiko.Channel(1).exec_command("x"),
    f"{SSH}Channel closed.*": sftp,
    f"{SSH}Invalid key*": cut_key,
    f"{SSH}EOF during negotiation*": listed,
    f"{SSH}Server connection dropped*": lambda: listed(VERSION),
    "paramiko.sftp.SFTPError": lambda: listed(VERSION, DATA),
    "paramiko.ssh_exception.ProxyCommandFailure": failing_proxy,
    "paramiko.ssh_exception.CouldNotCanonicalize": canonical,
    "paramiko.auth_strategy.AuthFailure": strategy,
    "paramiko.buffered_pipe.PipeTimeout": lambda: paramiko.buffered_pipe.BufferedPipe().read(
        1, 0.01
    ),
    "paramiko.ber.BERException": lambda: paramiko.ber.BER().encode(object()),
    "paramiko.hostkeys.InvalidHostKey": lambda: paramiko.hostkeys.HostKeyEntry.from_line(
        "shop ssh-rsa A"
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_rows(row):
    """What ends a session, and what paramiko finds by itself."""
    comes_to(row, ROWS[row])


def test_a_key_of_a_kind_that_paramiko_does_not_have(tmp_path):
    """It is read, and cannot be used."""
    comes_to("paramiko.pkey.UnknownKeyType", lambda: unknown_key(tmp_path))
