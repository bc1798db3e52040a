"""redis-py and valkey-py: rows of what the client finds out by itself.

A connection that is not usable, a cluster that changes under it, an answer of OCSP, databases of
which none is healthy, tokens that have expired.
"""

import contextlib
import importlib
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import redis
import redis.auth.token
import redis.auth.token_manager
import redis.cluster
import redis.commands.policies
import redis.event
import redis.multidb.client
import redis.multidb.config
import valkey
import valkey.asyncio.cluster
import valkey.cluster
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509 import ocsp

from tests.integrations.errors.resp_stub import RespStub, client, slots
from tests.integrations.errors.rows import comes_to, leaving_open
from tests.integrations.errors.service_stub import Answer, ServiceStub, dead_port
from tests.servers.certificate import make_certificate, server_side
from tests.servers.http_faults import HttpFaults

BOTH = {"redis": redis, "valkey": valkey}
CLUSTERS = {"redis": redis.RedisCluster, "valkey": valkey.ValkeyCluster}


@pytest.fixture
def stub():
    stub = RespStub()
    stub.slots = slots(stub.port, 16383)
    yield stub
    stub.close()


@pytest.fixture(params=BOTH)
def lib(request):
    return BOTH[request.param]


# --- connections ----------------------------------------------------------------------------------


def test_a_certificate_that_is_not_accepted(lib, tls_server):
    """The handshake ends before a command is sent."""
    with client(lib, tls_server.port, ssl=True) as one:
        comes_to(f"{lib.__name__}.exceptions.ConnectionError phase certificate", one.ping)


def test_a_connection_with_an_answer_to_no_question(lib, stub):
    """The client connects once more, and gives up."""
    stub.greeting = b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n"
    with client(lib, stub.port) as one:
        comes_to("ConnectionError phase stale", one.ping)


class Impatient:
    """The lock of a pool in a child: a thread that was not forked holds it."""

    def acquire(self, timeout):
        return False


def test_a_lock_that_a_fork_left_locked(lib, stub):
    """The client waits for some seconds in the child."""
    pool = lib.ConnectionPool(port=stub.port)
    pool._fork_lock, held = Impatient(), pool._fork_lock
    pool.pid = -1
    asked = [] if lib is redis else ["PING"]
    comes_to("ChildDeadlockedError", lambda: pool.get_connection(*asked))
    pool._fork_lock = held


def test_a_connection_that_ends_while_a_key_is_watched(lib, stub):
    """Nobody knows whether EXEC was read."""
    stub.answers[b"EXEC"] = None
    with client(lib, stub.port) as one, one.pipeline() as pipeline:
        pipeline.watch("n")
        pipeline.multi()
        pipeline.incr("n")
        comes_to("WatchError phase lost", pipeline.execute)


# --- certificates that OCSP is asked of -----------------------------------------------------------


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """A server of TLS whose certificate names a responder, and the responder."""
    with ServiceStub() as responder:
        access = x509.AuthorityInformationAccess(
            [
                x509.AccessDescription(way, x509.UniformResourceIdentifier(responder.url + path))
                for way, path in (
                    (x509.AuthorityInformationAccessOID.CA_ISSUERS, "/issuer"),
                    (x509.AuthorityInformationAccessOID.OCSP, "/ocsp/"),
                )
            ]
        )
        folder = make_certificate(tmp_path_factory.mktemp("ocsp"), access)
        with HttpFaults(tls=server_side(folder)) as server:
            yield SimpleNamespace(folder=folder, port=server.port, responder=responder)


def unauthorized(_certificate, _key):
    return ocsp.OCSPResponseBuilder.build_unsuccessful(ocsp.OCSPResponseStatus.UNAUTHORIZED)


def of_status(status):
    def made(certificate, key):
        now = datetime.now(UTC)
        is_revoked = status is ocsp.OCSPCertStatus.REVOKED
        builder = ocsp.OCSPResponseBuilder().add_response(
            certificate, certificate, hashes.SHA256(), status,
            now - timedelta(hours=1), now + timedelta(hours=1), now if is_revoked else None, None,
        )  # fmt: skip
        return builder.responder_id(ocsp.OCSPResponderEncoding.HASH, certificate).sign(
            key, hashes.SHA256()
        )

    return made


ANSWERED = {
    "AuthorizationError": unauthorized,
    "ConnectionError phase certificate": of_status(ocsp.OCSPCertStatus.REVOKED),
}


@contextlib.contextmanager
def verifying(lib, certified):
    """A client that asks the responder; it leaves the socket open that it does not trust."""
    settings = {"host": "127.0.0.1", "ssl_ca_certs": str(certified.folder / "cert.pem")}
    settings |= {"ssl": True, "ssl_validate_ocsp": True}
    with leaving_open(), client(lib, certified.port, **settings) as one:
        yield one


@pytest.mark.parametrize("row", ANSWERED)
def test_what_ocsp_says_of_a_certificate(lib, certified, row):
    """The responder refuses, or the certificate was revoked; no command was sent."""
    issued = x509.load_pem_x509_certificate((certified.folder / "cert.pem").read_bytes())
    key = serialization.load_pem_private_key((certified.folder / "key.pem").read_bytes(), None)
    encoding = serialization.Encoding.DER
    answer = ANSWERED[row](issued, key).public_bytes(encoding)
    issuer = Answer(body=issued.public_bytes(encoding))
    certified.responder.answers(issuer, Answer(body=answer), issuer, Answer(body=answer))
    with verifying(lib, certified) as one:
        comes_to(f"{lib.__name__}.exceptions.{row}", one.ping)


def test_a_responder_of_ocsp_that_fails_for_now(lib, certified):
    """No command was sent: it is not ambiguous."""
    certified.responder.answers(Answer(503))
    with verifying(lib, certified) as one:
        comes_to(f"{lib.__name__}.exceptions.ConnectionError phase responder", one.ping)


# --- clusters -------------------------------------------------------------------------------------


def cluster(lib, stub, **settings):
    kind = CLUSTERS[lib.__name__]
    return contextlib.closing(kind(host="127.0.0.1", port=stub.port, protocol=2, **settings))


def test_a_server_that_is_no_node_of_a_cluster(lib, stub):
    """INFO says so; redis-py 8 does not ask."""
    stub.answers[b"CLUSTER"] = b"-ERR This instance has cluster support disabled\r\n"
    stub.answers[b"INFO"] = b"$17\r\ncluster_enabled:0\r\n"
    comes_to("ClusterException phase settings".replace("C", f"{PREFIXES[lib.__name__]}C", 1),
             lambda: cluster(lib, stub))  # fmt: skip


PREFIXES = {"redis": "Redis", "valkey": "Valkey"}


def test_a_cluster_that_nobody_reaches(lib):
    """No node answers."""
    none = SimpleNamespace(port=dead_port())
    row = f"{PREFIXES[lib.__name__]}ClusterException phase connecting"
    comes_to(row, lambda: cluster(lib, none))


MOVING = {
    "MasterDownError": b"-MASTERDOWN Link with MASTER is down\r\n",
    "ClusterDownError": b"-CLUSTERDOWN Hash slot not served\r\n",
    "TryAgainError": b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    "AskError": b"-ASK 1 127.0.0.1:1\r\n",
}


@pytest.mark.parametrize("row", MOVING)
def test_what_a_node_answers(stub, row):
    """valkey-py's client for clusters alone has classes for it."""
    stub.answer = MOVING[row]
    with cluster(valkey, stub, cluster_error_retry_attempts=0) as one:
        pipeline = one.pipeline()
        pipeline.incr("n")
        sent = pipeline.command_stack
        comes_to(
            f"valkey.exceptions.{row}",
            lambda: pipeline.send_cluster_commands(sent, allow_redirections=False),
        )


async def more_connections_than_it_may():
    node = valkey.asyncio.cluster.ClusterNode("127.0.0.1", 1, max_connections=1)
    node.acquire_connection()
    node.acquire_connection()


def test_connections_of_a_node():
    """A node of valkey-py's asyncio has no pool that waits."""
    comes_to("valkey.exceptions.MaxConnectionsError", more_connections_than_it_may)


def test_answers_to_more_commands_than_were_sent(stub):
    """EXEC has one answer for each command."""
    stub.answers |= {b"EXEC": b"*2\r\n:1\r\n:2\r\n", b"INCRBY": b"+QUEUED\r\n"}
    with cluster(redis, stub) as one:
        pipeline = one.pipeline(transaction=True)
        pipeline.incr("n")
        comes_to("redis.exceptions.InvalidPipelineStack", pipeline.execute)


TIP = b"$22\r\nrequest_policy:nowhere\r\n"
COMMAND = b"*1\r\n*10\r\n$6\r\nincrby\r\n:3\r\n*1\r\n+write\r\n:1\r\n:1\r\n:1\r\n*0\r\n*1\r\n"
COMMAND += TIP + b"*0\r\n*0\r\n"


def test_a_policy_that_the_client_does_not_know(stub):
    """COMMAND has the policies of commands."""
    stub.answers[b"COMMAND"] = COMMAND
    with client(redis, stub.port) as one:
        parser = importlib.import_module("redis._parsers.commands").CommandsParser(one)
        comes_to(
            "redis.exceptions.IncorrectPolicyType",
            lambda: redis.commands.policies.DynamicPolicyResolver(parser),
        )


# --- several databases of redis-py ----------------------------------------------------------------


def kwargs(port):
    return {"port": port, "protocol": 2}


def several(*ports, policy="ONE_AVAILABLE", **settings):
    """A client of databases, whose health checks ask once."""
    module = redis.multidb.config
    none = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    made = module.MultiDbConfig(
        databases_config=[module.DatabaseConfig(client_kwargs=kwargs(port)) for port in ports],
        command_retry=none, health_check_probes=1, health_check_delay=0.001,
        initial_health_check_policy=module.InitialHealthCheck[policy], **settings,
    )  # fmt: skip
    return redis.multidb.client.MultiDBClient(made)


def unhealthy_later(stub, **settings):
    """A client whose one database was healthy when it began."""
    stub.answers[b"PING"] = b"+PONG\r\n"
    made = several(stub.port, **settings)
    made.ping()
    for database, _ in made.get_databases():
        database.circuit.state = importlib.import_module("redis.multidb.circuit").State.OPEN
    return made


def added(stub):
    module = redis.multidb.config
    with contextlib.closing(unhealthy_later(stub)) as made:
        other = module.DatabaseConfig(client_kwargs=kwargs(dead_port()))
        made.add_database(other, skip_initial_health_check=False)


def promoted(stub):
    with contextlib.closing(unhealthy_later(stub)) as made:
        stub.answers[b"PING"] = b"-ERR no\r\n"
        made.set_active_database(made.get_databases()[0][0])


def exhausted(stub):
    with contextlib.closing(unhealthy_later(stub, failover_attempts=0)) as made:
        made.ping()


def unavailable(stub):
    with contextlib.closing(unhealthy_later(stub)) as made:
        made.ping()


MULTIDB = {
    "InitialHealthCheckFailedError": lambda _: several(dead_port()).ping(),
    "NoValidDatabaseException": exhausted,
    "TemporaryUnavailableException": unavailable,
    "UnhealthyDatabaseException wraps": added,
}


@pytest.mark.filterwarnings("ignore:MultiDBClient is an experimental:UserWarning")
@pytest.mark.parametrize("row", MULTIDB)
def test_databases_of_which_none_is_healthy(stub, row):
    """Before a command is sent."""
    comes_to(f"redis.multidb.exception.{row}", lambda: MULTIDB[row](stub))


# --- tokens of redis-py ---------------------------------------------------------------------------


def renewed(expires_in, on_next):
    """What the manager of tokens hands over if it cannot renew one."""
    module = redis.auth.token_manager
    ends = (datetime.now(UTC).timestamp() + expires_in) * 1000
    token = redis.auth.token.SimpleToken("value", ends, 0, {})
    provider = SimpleNamespace(request_token=lambda _force: token)
    config = module.TokenManagerConfig(0.9, 0, 0, module.RetryPolicy(0, 0))
    manager = module.TokenManager(provider, config)
    manager._listener = module.CredentialsListener()
    manager._listener.on_next = on_next
    manager._renew_token()


def refused(_token):
    """What a connection does with a token: it is refused at the port."""
    client(redis, dead_port()).execute_command("AUTH", "token")


TOKENS = {
    "TokenRenewalErr otherwise": lambda: renewed(-60, refused),
    "TokenRenewalErr wraps": lambda: renewed(60, refused),
    "InvalidTokenSchemaErr": lambda: redis.auth.token.JWToken("e30.e30."),
}


@pytest.mark.parametrize("row", TOKENS)
def test_tokens_of_an_identity_provider(row):
    """One that has expired, one that the server refuses, one without a field."""
    comes_to(f"redis.auth.err.{row}", TOKENS[row])
