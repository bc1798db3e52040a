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

from tests.integrations.errors.rows import comes_to, leaving_open

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
        if kind == "x-leave":
            self.server._send_message(farewell())
        self.gate.wait(60)
        return paramiko.OPEN_SUCCEEDED

    def check_channel_subsystem_request(self, channel, name):
        channel.close()
        return True


@contextlib.contextmanager
def session(key=KEY, made=paramiko.Transport, between=None, **options):
    """A client that is logged in, and the rules of the server at the other end."""
    ours, theirs = between or socket.socketpair()
    server, client = made(theirs), paramiko.Transport(ours)
    server.add_server_key(key)
    rules = Rules()
    rules.server = server
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


def farewell():
    """The message by which a server ends a session."""
    message = paramiko.Message()
    message.add_byte(bytes([paramiko.common.MSG_DISCONNECT]))
    message.add_int(11)  # by application
    for text in "bye", "":
        message.add_string(text)
    return message


def no_channel():
    with session() as (client, _rules):
        client.open_channel("x-leave")


def no_negotiation():
    """A server that greets and takes its leave; the message is padded to a multiple of eight."""
    ours, theirs = socket.socketpair()
    body = farewell().asbytes()
    padding = bytes(8 - (len(body) + 5) % 8 + 8)
    packet = bytes([len(padding)]) + body + padding
    theirs.sendall(b"SSH-2.0-stub\r\n" + len(packet).to_bytes(4, "big") + packet)
    transport = paramiko.Transport(ours)
    try:
        transport.start_client(timeout=60)
    finally:
        transport.close()
        ours.close()
        theirs.close()


def no_new_keys():
    """The server is busy with a channel when the client asks for new keys."""
    with session() as (client, rules):
        rules.gate.clear()
        with contextlib.suppress(paramiko.SSHException):
            client.open_session(timeout=0.01)
        client.clear_to_send_timeout = 0.01
        client._send_kex_init()
        client.open_session()


class Changed:
    """A socket whose next bytes are not what was sent, once `is_on`."""

    is_on = False

    def __init__(self, wire):
        self.send, self.settimeout, self.close = wire.send, wire.settimeout, wire.close
        self.wire = wire

    def recv(self, size):
        data = self.wire.recv(size)
        return data[:-1] + bytes([data[-1] ^ 1]) if data and self.is_on else data


def changed_packets():
    ours, theirs = socket.socketpair()
    ours = Changed(ours)
    with session(between=(ours, theirs)) as (client, _rules):
        ours.is_on = True
        client.open_session()


class Liar(paramiko.ECDSAKey):
    """Signs what it was not asked to."""

    def sign_ssh_data(self, data, algorithm=None):
        return super().sign_ssh_data(b"other")


def false_signature():
    with session(key=Liar(vals=(KEY.signing_key, KEY.verifying_key))):
        pass


class Disorderly(paramiko.Transport):
    """A server that sends a message which may not come before there are keys."""

    def _send_kex_init(self):
        super()._send_kex_init()
        message = paramiko.Message()
        message.add_byte(bytes([paramiko.common.MSG_IGNORE]))
        message.add_string(b"")
        self._send_message(message)


def disorder():
    with session(made=Disorderly):
        pass


def refusing_agent(folder):
    """It has no keys to show."""

    def serve():
        wire, _ = listener.accept()
        with wire:
            wire.recv(4096)
            wire.sendall(b"\0\0\0\1\x05")
            wire.recv(1)

    with socket.socket(socket.AF_UNIX) as listener, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # the path of a socket has a limit
        listener.bind("agent")
        listener.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        patch.setenv("SSH_AUTH_SOCK", "agent")
        paramiko.Agent()


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
    f"{SSH}Negotiation failed.*": no_negotiation,
    f"{SSH}Key-exchange timed out*": no_new_keys,
    f"{SSH}Unable to open channel.*": no_channel,
    f"{SSH}Mismatched MAC*": changed_packets,
    f"{SSH}Signature verification*": false_signature,
    "paramiko.ssh_exception.MessageOrderError": disorder,
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


def test_an_agent_that_refuses(tmp_path):
    """Nothing is known of it but the text; paramiko leaves its socket open."""
    row = "paramiko.ssh_exception.SSHException otherwise"
    with leaving_open():
        comes_to(row, lambda: refusing_agent(tmp_path))


def test_a_key_of_a_kind_that_paramiko_does_not_have(tmp_path):
    """It is read, and cannot be used."""
    comes_to("paramiko.pkey.UnknownKeyType", lambda: unknown_key(tmp_path))
