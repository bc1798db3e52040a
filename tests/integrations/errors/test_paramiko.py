"""paramiko: a real client against real servers: paramiko's own, and some that are none of SSH."""

import socket
import struct
import threading
from collections import Counter
from contextlib import suppress

import pytest

import mainstay
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.testing import virtual_time
from tests.integrations.errors.model_server import free_port
from tests.integrations.errors.recipe import run_recipe
from tests.processes import wait_until

paramiko = pytest.importorskip("paramiko")

KEY = paramiko.ECDSAKey.generate()
OTHER_KEY = paramiko.ECDSAKey.generate()


class Server:
    """`port`, and what it does with a connection: `handle`, until it is given another."""

    def __init__(self):
        self.seen = Counter()
        self.handle = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def begin(self, handle):
        """Forgets what came, and treats connections so from now on."""
        self.seen, self.handle = Counter(), handle

    def close(self):
        """Stops, with the thread: one that waits for a closed socket may meet its successor."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()

    def _accept(self):
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.seen["connections"] += 1
            threading.Thread(target=self._run, args=(peer,), daemon=True).start()

    def _run(self, peer):
        with suppress(OSError, EOFError, paramiko.SSHException):
            self.handle(peer)


class Rules(paramiko.ServerInterface):
    """A server that lets in those who know the password, and refuses channels with a code."""

    def __init__(self, server, refusal=0, methods="password", at_login=None):
        self.server = server
        self.refusal = refusal
        self.methods = methods
        self.at_login = at_login

    def get_allowed_auths(self, username):
        return self.methods

    def check_auth_password(self, username, password):
        self.server.seen["logins"] += 1
        if self.at_login is not None:
            self.at_login()
        return paramiko.AUTH_SUCCESSFUL if password == "right" else paramiko.AUTH_FAILED

    def check_channel_request(self, kind, chanid):
        self.server.seen["channels"] += 1
        return self.refusal

    def check_channel_exec_request(self, channel, command):
        self.server.seen["commands"] += 1
        if command == b"uptime":
            channel.send(b"up")
            channel.send_exit_status(0)
            channel.shutdown_write()
        return command != b"refused"


@pytest.fixture(scope="module")
def server():
    """One for the module."""
    server = Server()
    yield server
    server.close()


def speaks(server, **rules):
    """Handles connections as an SSH server."""

    def handle(peer):
        transport = paramiko.Transport(peer)
        transport.add_server_key(KEY)
        transport.start_server(server=Rules(server, **rules))
        channels = []  # one that nobody holds is closed
        while transport.is_active():
            channels.append(transport.accept(60))

    return handle


def connected(port, **options):
    """A client that trusts the key of the server."""
    client = paramiko.SSHClient()
    known = options.pop("key", KEY)
    if known is not None:
        client.get_host_keys().add(f"[127.0.0.1]:{port}", known.get_name(), known)
    usual = {"password": "right", "allow_agent": False, "look_for_keys": False}
    usual |= {"timeout": 60, "banner_timeout": 60, "auth_timeout": 60, "channel_timeout": 60}
    try:
        client.connect("127.0.0.1", port, "me", **(usual | options))
    except BaseException:
        client.close()
        raise
    return client


def attempt(work, error):
    """The failure of three attempts, and how many were made."""
    tries = []

    @mainstay.retry(on=mainstay.transient, attempts=3)
    def call():
        tries.append(1)
        work()

    with virtual_time(), pytest.raises(error) as caught:
        call()
    known = kind_of(caught.value)
    return caught.value, known, len(tries)


def say(text):
    """Handles a connection of a client that wants SSH and gets some text."""

    def handle(peer):
        with peer:
            peer.sendall(text)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(1000):
                pass

    return handle


def reset(peer):
    """Ends a connection as a crash does, after the greeting of the client."""
    peer.recv(1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def hold(peer):
    """Keeps a connection and answers nothing."""
    with peer:
        while peer.recv(1000):
            pass


BROKEN = [
    # what the server does, options, class, kind, connections
    (say(b""), {}, "SSHException", Kind.TRANSIENT, 3),
    (reset, {}, "SSHException", Kind.TRANSIENT, 3),
    (hold, {"banner_timeout": 0.1}, "SSHException", Kind.TRANSIENT, 3),
    (say(b"220 mail ready\r\n"), {}, "SSHException", Kind.TRANSIENT, 3),
    (say(b"no SSH\r\n" * 200), {}, "SSHException", Kind.PERMANENT, 1),
    (say(b"SSH-2.0\r\n"), {}, "SSHException", Kind.PERMANENT, 1),
    (say(b"SSH-1.5-old\r\n"), {}, "IncompatiblePeer", Kind.PERMANENT, 1),
]


@pytest.mark.parametrize(("handle", "options", "name", "kind", "connections"), BROKEN)
def test_a_server_that_does_not_greet_is_tried_again(
    server, handle, options, name, kind, connections
):
    """Busy servers close new connections; a greeting of another protocol is final."""
    server.begin(handle)
    error, known, _ = attempt(
        lambda: connected(server.port, **options), getattr(paramiko.ssh_exception, name)
    )
    assert (known.kind, known.is_ambiguous, known.table) == (kind, False, "paramiko"), error
    wait_until(lambda: server.seen["connections"] == connections, "the connections")


def test_a_dead_port_is_tried_again():
    """What was tried is inside the error."""
    port = free_port()
    error, known, tries = attempt(
        lambda: connected(port), paramiko.ssh_exception.NoValidConnectionsError
    )
    assert (known.kind, known.is_ambiguous, tries) == (Kind.TRANSIENT, False, 3), error


def test_a_wrong_password_is_tried_once(server):
    """Two more would bring the account closer to being locked."""
    server.begin(speaks(server))
    _, known, _ = attempt(
        lambda: connected(server.port, password="wrong"), paramiko.AuthenticationException
    )
    assert known.kind is Kind.AUTH
    assert server.seen["logins"] == 1


def test_a_login_that_the_server_does_not_offer_is_final(server):
    """It takes keys alone."""
    server.begin(speaks(server, methods="publickey"))
    _, known, tries = attempt(
        lambda: connected(server.port, password="wrong"), paramiko.BadAuthenticationType
    )
    assert (known.kind, tries) == (Kind.AUTH, 1)


def test_no_way_to_log_in_is_final(server):
    """Neither a password nor a key."""
    server.begin(speaks(server))
    _, known, tries = attempt(lambda: connected(server.port, password=None), paramiko.SSHException)
    assert (known.kind, tries) == (Kind.AUTH, 1)


def test_a_connection_that_ends_in_the_login_is_no_wrong_password(server):
    """The class is that of a wrong password; only the text tells."""

    def handle(peer):
        speaks(server, at_login=lambda: peer.shutdown(socket.SHUT_RDWR))(peer)

    server.begin(handle)
    error, known, _ = attempt(lambda: connected(server.port), paramiko.AuthenticationException)
    assert (known.kind, known.is_ambiguous) == (Kind.TRANSIENT, False), error
    assert server.seen["logins"] == 3


def test_a_login_that_takes_too_long_is_a_timeout(server):
    """The class is that of a wrong password here, too."""
    gate = threading.Event()
    server.begin(speaks(server, at_login=lambda: gate.wait(60)))
    try:
        error, known, _ = attempt(
            lambda: connected(server.port, auth_timeout=1.5), paramiko.AuthenticationException
        )
    finally:
        gate.set()
    assert (known.kind, known.is_ambiguous) == (Kind.TIMEOUT, False), error
    wait_until(lambda: server.seen["logins"] == 3, "the logins")


@pytest.mark.parametrize(
    ("key", "name"), [(None, "SSHException"), (OTHER_KEY, "BadHostKeyException")]
)
def test_another_server_than_the_expected_is_final(server, key, name):
    """A key that is not known, and one that has changed."""
    server.begin(speaks(server))
    _, known, tries = attempt(
        lambda: connected(server.port, key=key), getattr(paramiko.ssh_exception, name)
    )
    assert (known.kind, tries) == (Kind.PERMANENT, 1)
    assert server.seen["logins"] == 0


def test_no_algorithm_in_common_is_final(server):
    """Both sides keep their own."""

    def handle(peer):
        transport = paramiko.Transport(peer)
        transport.get_security_options().kex = ("diffie-hellman-group14-sha256",)
        transport.add_server_key(KEY)
        transport.start_server(server=Rules(server))

    server.begin(handle)
    without = {"kex": ["diffie-hellman-group14-sha256"]}
    _, known, tries = attempt(
        lambda: connected(server.port, disabled_algorithms=without),
        paramiko.ssh_exception.IncompatiblePeer,
    )
    assert (known.kind, tries) == (Kind.PERMANENT, 1)


@pytest.mark.parametrize(
    ("code", "kind", "channels"),
    [(1, Kind.AUTH, 1), (2, Kind.TRANSIENT, 3), (3, Kind.PERMANENT, 1), (4, Kind.OVERLOAD, 3),
     (9, Kind.UNKNOWN, 1)],
)  # fmt: skip
def test_a_channel_that_is_refused_is_judged_by_its_code(server, code, kind, channels):
    """RFC 4254, section 5.1."""
    server.begin(speaks(server, refusal=code))
    client = connected(server.port)
    try:
        _, known, _ = attempt(lambda: client.exec_command("uptime"), paramiko.ChannelException)
    finally:
        client.close()
    assert known.kind is kind
    assert server.seen["channels"] == channels


def test_a_session_that_has_ended_is_ambiguous(server):
    """A command before it may have been run."""
    server.begin(speaks(server))
    client = connected(server.port)
    client.get_transport().close()
    _, known, tries = attempt(lambda: client.get_transport().open_session(), paramiko.SSHException)
    assert (known.kind, known.is_ambiguous, tries) == (Kind.TRANSIENT, True, 3)


def test_what_the_server_or_the_configuration_does_not_permit_is_final(server):
    """A port that is not forwarded, and a line that cannot be read."""
    server.begin(speaks(server))
    client = connected(server.port)
    try:
        transport = client.get_transport()
        _, known, tries = attempt(
            lambda: transport.request_port_forward("127.0.0.1", 0), paramiko.SSHException
        )
    finally:
        client.close()
    assert (known.kind, tries) == (Kind.AUTH, 1)
    with pytest.raises(paramiko.ConfigParseError) as caught:
        paramiko.SSHConfig.from_text('Host "unclosed').lookup("x")
    assert kind_of(caught.value).kind is Kind.PERMANENT


def test_a_command_without_an_answer_is_a_timeout(server):
    """Paramiko raises a TimeoutError of Python's then."""
    server.begin(speaks(server))

    def run():
        output = client.exec_command("hang", timeout=0.5)[1]
        output.read()

    client = connected(server.port)
    try:
        _, known, _ = attempt(run, TimeoutError)
    finally:
        client.close()
    assert known.kind is Kind.TIMEOUT
    assert server.seen["commands"] == 3


def test_a_key_that_cannot_be_read_is_final(tmp_path):
    """Locked, or no key at all."""
    KEY.write_private_key_file(str(tmp_path / "locked"), password="secret")
    with pytest.raises(paramiko.PasswordRequiredException) as caught:
        paramiko.ECDSAKey.from_private_key_file(str(tmp_path / "locked"))
    assert kind_of(caught.value).kind is Kind.AUTH
    (tmp_path / "none").write_text("no key\n")
    with pytest.raises(paramiko.SSHException) as caught:
        paramiko.ECDSAKey.from_private_key_file(str(tmp_path / "none"))
    assert kind_of(caught.value).kind is Kind.PERMANENT


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (paramiko.SSHException("Timeout opening channel."), Kind.TIMEOUT),
        (paramiko.SSHException("Server connection dropped: reset"), Kind.TRANSIENT),
        (paramiko.SSHException("a text of tomorrow"), Kind.UNKNOWN),
        (paramiko.SSHException(), Kind.UNKNOWN),
        (paramiko.ProxyCommandFailure("ssh", 255), Kind.TRANSIENT),
        (paramiko.buffered_pipe.PipeTimeout(), Kind.TIMEOUT),
        (paramiko.SFTPError("Garbage packet received"), Kind.PERMANENT),
    ],
)
def test_what_no_server_here_brings_about_is_known_as_well(error, kind):
    """Raised here, with the texts that paramiko writes."""
    assert kind_of(error).kind is kind


def test_the_recipe_runs(server, tmp_path, monkeypatch):
    """The code of the page runs a command on a server that is busy at first."""
    (tmp_path / ".ssh").mkdir()
    name = f"[127.0.0.1]:{server.port}"
    line = f"{name} {KEY.get_name()} {KEY.get_base64()}\n"
    (tmp_path / ".ssh" / "known_hosts").write_text(line)
    monkeypatch.setenv("HOME", str(tmp_path))
    turns = iter([say(b""), say(b""), speaks(server)])

    def handle(peer):
        next(turns)(peer)

    server.begin(handle)
    given = {
        "build.example.org": "127.0.0.1",
        "2222": server.port,
        "os.environ": "dict(PW='right')",
    }
    assert run_recipe("paramiko", **given)["output"] == b"up"
    assert server.seen["connections"] == 3
