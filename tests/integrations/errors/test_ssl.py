"""ssl: real handshakes with local servers that cannot be trusted, do not speak TLS, or end."""

import socket
import ssl
import struct
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import mainstay
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.testing import virtual_time


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """A certificate of 127.0.0.1, signed by itself, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now, address = datetime.now(UTC), x509.IPAddress(ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    encoding = serialization.Encoding.PEM
    path.write_bytes(made.public_bytes(encoding) + key.private_bytes(encoding, *form))
    return path


@pytest.fixture
def serve():
    """Starts a server that does the same with each connection, and counts them."""
    listeners = []

    def start(handle):
        listener = socket.create_server(("127.0.0.1", 0))
        seen = []

        def accept():
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                seen.append(peer)
                peer.settimeout(60)
                try:
                    with closing(peer):
                        handle(peer)
                except OSError:  # the client has given up
                    continue

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        listeners.append((listener, accepting))
        return listener.getsockname()[1], seen

    yield start
    for listener, accepting in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
        listener.close()


def call(port, context):
    """Asks over TLS and reads the answer, with up to three attempts."""

    @mainstay.retry(on=mainstay.transient, attempts=3)
    def ask():
        with (
            socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
            context.wrap_socket(
                plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False
            ) as channel,
        ):
            channel.sendall(b"ask\n")
            channel.recv(100)

    with virtual_time():
        ask()


def wrapped(pem, **changes):
    """A context of the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    for name, value in changes.items():
        setattr(context, name, value)
    return context


def shake(context, peer):
    """A handshake that fails; the client reads why, and is not reset."""
    channel = context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
    with pytest.raises(ssl.SSLError):
        channel.do_handshake()
    with socket.socket(fileno=channel.detach()) as plain:
        plain.settimeout(60)
        while plain.recv(1000):
            pass


def trusting(pem):
    """A context of a client that trusts the certificate."""
    return ssl.create_default_context(cafile=pem)


def expect(caught, seen, kind, requests, *, ambiguous=False):
    """What is known, and how many connections the server saw."""
    known = kind_of(caught.value)
    assert (known.kind, known.is_ambiguous, known.table) == (kind, ambiguous, "ssl"), caught.value
    assert len(seen) == requests


def test_a_certificate_that_is_not_trusted_is_final(serve, pem):
    """It is the same the next time."""
    port, seen = serve(lambda peer: shake(wrapped(pem), peer))
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        call(port, ssl.create_default_context())
    expect(caught, seen, Kind.PERMANENT, 1)


def test_a_server_that_does_not_speak_tls_is_final(serve):
    """A plain-text greeting where a handshake was expected."""

    def greet(peer):
        peer.sendall(b"220 mail ready, and plain text as long as a record has to be\r\n")
        peer.recv(1000)

    port, seen = serve(greet)
    with pytest.raises(ssl.SSLError) as caught:
        call(port, ssl.create_default_context())
    expect(caught, seen, Kind.PERMANENT, 1)


def test_a_server_that_ends_in_the_handshake_is_tried_again(serve):
    """A balancer that has no backend for now does so."""
    port, seen = serve(lambda peer: peer.recv(65_536))
    with pytest.raises((ssl.SSLEOFError, ConnectionResetError)) as caught:
        call(port, ssl.create_default_context())
    expect(caught, seen, Kind.TRANSIENT, 3, ambiguous=True)


def test_a_reset_in_the_handshake_is_known_by_its_errno(serve):
    """The error of the socket comes through; no table is needed."""

    def reset(peer):
        peer.recv(10)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    port, seen = serve(reset)
    with pytest.raises(ConnectionResetError) as caught:
        call(port, ssl.create_default_context())
    assert kind_of(caught.value).kind is Kind.TRANSIENT
    assert len(seen) == 3


def test_a_connection_that_ends_without_a_goodbye_is_ambiguous(serve, pem):
    """The request was read; what became of it is not known."""

    def cut(peer):
        channel = wrapped(pem).wrap_socket(peer, server_side=True)
        channel.recv(100)
        socket.socket(fileno=channel.detach()).close()

    port, seen = serve(cut)
    with pytest.raises(ssl.SSLEOFError) as caught:
        call(port, trusting(pem))
    expect(caught, seen, Kind.TRANSIENT, 3, ambiguous=True)


def test_no_version_in_common_is_final(serve, pem):
    """The server has TLS 1.3 alone, the client ends at 1.2."""

    def offer(peer):
        shake(wrapped(pem, minimum_version=ssl.TLSVersion.TLSv1_3), peer)

    port, seen = serve(offer)
    old = trusting(pem)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError) as caught:
        call(port, old)
    expect(caught, seen, Kind.PERMANENT, 1)


def test_no_cipher_in_common_is_final(serve, pem):
    """The server refuses with an alert."""

    def offer(peer):
        context = wrapped(pem, maximum_version=ssl.TLSVersion.TLSv1_2)
        context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
        shake(context, peer)

    port, seen = serve(offer)
    other = trusting(pem)
    other.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with pytest.raises(ssl.SSLError) as caught:
        call(port, other)
    expect(caught, seen, Kind.PERMANENT, 1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_without_a_certificate_is_not_let_in(serve, pem, version):
    """In TLS 1.3 the refusal comes with the answer, after the handshake."""

    def demand(peer):
        context = wrapped(pem, verify_mode=ssl.CERT_REQUIRED, maximum_version=version)
        context.load_verify_locations(pem)
        shake(context, peer)

    port, seen = serve(demand)
    with pytest.raises(ssl.SSLError) as caught:
        call(port, trusting(pem))
    kind = Kind.AUTH if version == ssl.TLSVersion.TLSv1_3 else Kind.PERMANENT
    expect(caught, seen, kind, 1)


def test_a_certificate_that_the_server_does_not_know_is_refused(serve, pem):
    """The alert names the authority."""

    def demand(peer):
        shake(wrapped(pem, verify_mode=ssl.CERT_REQUIRED), peer)

    port, seen = serve(demand)
    own = trusting(pem)
    own.load_cert_chain(pem)
    with pytest.raises(ssl.SSLError) as caught:
        call(port, own)
    expect(caught, seen, Kind.AUTH, 1)


ALERTS = [
    # number, kind, ambiguous
    (20, Kind.TRANSIENT, True),  # bad_record_mac
    (42, Kind.AUTH, False),  # bad_certificate
    (43, Kind.AUTH, False),  # unsupported_certificate
    (44, Kind.AUTH, False),  # certificate_revoked
    (45, Kind.AUTH, False),  # certificate_expired
    (46, Kind.AUTH, False),  # certificate_unknown
    (48, Kind.AUTH, False),  # unknown_ca
    (49, Kind.AUTH, False),  # access_denied
    (40, Kind.PERMANENT, False),  # handshake_failure
    (70, Kind.PERMANENT, False),  # protocol_version
    (71, Kind.PERMANENT, False),  # insufficient_security
    (80, Kind.TRANSIENT, True),  # internal_error
    (112, Kind.PERMANENT, False),  # unrecognized_name
    (116, Kind.AUTH, False),  # certificate_required
    (120, Kind.PERMANENT, False),  # no_application_protocol
    (110, Kind.UNKNOWN, False),  # unsupported_extension
]


@pytest.mark.parametrize(("number", "kind", "ambiguous"), ALERTS)
def test_an_alert_is_judged_by_its_name(serve, number, kind, ambiguous):
    """A server answers the first message with a fatal alert (RFC 8446, section 6)."""

    def alert(peer):
        peer.recv(1000)
        peer.sendall(bytes((21, 3, 3, 0, 2, 2, number)))

    port, seen = serve(alert)
    with pytest.raises(ssl.SSLError) as caught:
        call(port, ssl.create_default_context())
    expect(caught, seen, kind, 3 if kind is Kind.TRANSIENT else 1, ambiguous=ambiguous)


def test_a_failure_of_the_record_layer_is_ambiguous():
    """OpenSSL 3.2 and newer give it for a damaged record, and some for a peer without TLS."""
    error = ssl.SSLError(1, "[SSL: RECORD_LAYER_FAILURE] record layer failure (_ssl.c:2768)")
    error.reason = "RECORD_LAYER_FAILURE"
    known = kind_of(error)
    assert (known.kind, known.is_ambiguous, known.table) == (Kind.TRANSIENT, True, "ssl")


def test_a_damaged_record_is_ambiguous(serve, pem):
    """Bytes that are no record of this connection, after the request was read."""

    def damage(peer):
        channel = wrapped(pem).wrap_socket(peer, server_side=True)
        channel.recv(100)
        with socket.socket(fileno=channel.detach()) as plain:
            plain.sendall(bytes((23, 3, 3, 0, 40)) + bytes(40))
            plain.recv(100)

    port, seen = serve(damage)
    with pytest.raises(ssl.SSLError) as caught:
        call(port, trusting(pem))
    expect(caught, seen, Kind.TRANSIENT, 3, ambiguous=True)


def test_a_socket_that_does_not_block_has_to_be_waited_for(serve):
    """As a BlockingIOError: nothing has failed."""
    port, _ = serve(lambda peer: (peer.recv(5000), peer.recv(1)))
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.setblocking(False)
        context = ssl.create_default_context()
        channel = context.wrap_socket(plain, server_hostname="x", do_handshake_on_connect=False)
        with channel, pytest.raises(ssl.SSLWantReadError) as caught:
            channel.do_handshake()
    assert kind_of(caught.value).kind is Kind.TRANSIENT


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ssl.SSLZeroReturnError(6, "closed"), Kind.TRANSIENT),
        (ssl.SSLSyscallError(5, "below"), Kind.TRANSIENT),
        (ssl.SSLWantWriteError(3, "full"), Kind.TRANSIENT),
        (ssl.SSLError(13, "a number of its own"), Kind.UNKNOWN),
    ],
)
def test_what_no_server_here_brings_about_is_known_as_well(error, kind):
    """Raised here: Python answers a clean end with no bytes unless told otherwise."""
    assert kind_of(error).kind is kind
