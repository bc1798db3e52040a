"""pymongo against a stub that answers with the error documents that MongoDB documents.

The stub is tests/servers/mongo.py, which names the sources. Raised by pymongo without a server:
configuration, names, documents and ids that are wrong. Raised by the test itself: what encryption
wraps, which needs libmongocrypt, and a message that is compressed wrongly.
"""

import gc
import warnings

import bson
import gridfs
import pymongo
import pymongo.errors
import pytest

from mainstay.core.known.resolve import hint_by_table
from mainstay.testing import FaultProxy
from tests.integrations.errors.brokers import BY_DEFAULT, dead_port, judged, seen, tried
from tests.processes import wait_until
from tests.servers.mongo import CLOSE, SILENCE, MongoStub

SOON = dict.fromkeys(["serverSelectionTimeoutMS", "socketTimeoutMS", "connectTimeoutMS"], 60_000)
ONCE = {**SOON, "retryReads": False, "retryWrites": False}
LOST, SLOW = "transient ambiguous", "timeout ambiguous"


@pytest.fixture(scope="module")
def server():
    """One stub for all; pymongo looks at it again after 10 ms and not after half a second."""
    with pytest.MonkeyPatch.context() as patch, MongoStub() as stub:
        patch.setattr("pymongo.common.MIN_HEARTBEAT_INTERVAL", 0.01)
        yield stub
    with warnings.catch_warnings():  # a monitor that is closed while it connects leaves its socket
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def things(server):
    """A collection, through a client that repeats nothing by itself."""
    with pymongo.MongoClient(server.uri, **ONCE) as client:
        yield client.db.things


def failure(code, *labels, **more):
    """The document of a command that failed."""
    return {"ok": 0.0, "code": code, "errmsg": "as documented", "errorLabels": [*labels], **more}


def insert(things):
    return things.insert_one({"n": 1})


# --- the network ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("server")
def test_a_dead_port_is_a_timeout_and_nothing_was_sent():
    """The client looks for a server until its own time is over."""
    uri = f"mongodb://127.0.0.1:{dead_port()}"
    with pymongo.MongoClient(uri, serverSelectionTimeoutMS=10) as client:
        error, count = tried(insert, client.db.things)
    assert judged(error) == ("timeout", "pymongo")
    assert count == 3


def test_a_reset_after_sending_is_ambiguous(server, things):
    """The server has had the insert, three times."""
    server.answer("insert", CLOSE)
    error, count = tried(insert, things)
    assert judged(error) == (LOST, "pymongo")
    assert (count, server.seen["insert"]) == (3, 3)


def test_no_answer_is_a_timeout_after_sending(server):
    """The connection stays open, and nothing comes."""
    server.answer("insert", SILENCE)
    with pymongo.MongoClient(server.uri, **{**ONCE, "socketTimeoutMS": 100}) as client:
        error, count = tried(insert, client.db.things, policy=BY_DEFAULT)
    assert judged(error) == (SLOW, "pymongo")
    assert count == 3
    wait_until(lambda: server.seen["insert"] == 3, "the inserts")


def test_a_black_hole_is_not_found(server):
    """It accepts and does not even greet: no server is found."""
    with FaultProxy("127.0.0.1", server.port) as proxy:
        proxy.black_hole()
        uri = f"mongodb://127.0.0.1:{proxy.port}"
        soon = {"serverSelectionTimeoutMS": 50, "connectTimeoutMS": 50}
        with pymongo.MongoClient(uri, **soon) as client:
            assert judged(seen(insert, client.db.things)) == ("timeout", "pymongo")


def test_the_retries_of_pymongo_multiply_with_those_of_a_policy(server):
    """Three attempts of ours are six inserts, and up to nine if the server is overloaded."""
    with pymongo.MongoClient(server.uri, **SOON) as client:
        server.answer("insert", CLOSE)
        _, count = tried(insert, client.db.things)
        assert (count, server.seen["insert"]) == (3, 6)
        overloaded = failure(462, "SystemOverloadedError", "RetryableError", baseBackoffMS=1)
        server.answer("insert", overloaded)
        error, count = tried(insert, client.db.things)
        assert judged(error) == ("throttled", "pymongo")
        assert (count, server.seen["insert"]) == (3, 9)


# --- what the server answers ----------------------------------------------------------------------

CODES = [
    (10107, "transient", "NotWritablePrimary"),
    (13435, "transient", "NotPrimaryNoSecondaryOk"),
    (13436, "transient", "NotPrimaryOrSecondary"),
    (10058, "transient", "LegacyNotPrimary"),
    (189, LOST, "PrimarySteppedDown"),
    (91, LOST, "ShutdownInProgress"),
    (11600, LOST, "InterruptedAtShutdown"),
    (11602, LOST, "InterruptedDueToReplStateChange"),
    (6, LOST, "HostUnreachable"),
    (7, LOST, "HostNotFound"),
    (89, LOST, "NetworkTimeout"),
    (9001, LOST, "SocketException"),
    (112, "transient", "WriteConflict"),
    (24, "transient", "LockTimeout"),
    (46, "transient", "LockBusy"),
    (107, "transient", "LockFailed"),
    (63, "transient", "StaleShardVersion"),
    (150, "transient", "StaleEpoch"),
    (13388, "transient", "StaleConfig"),
    (134, "transient", "ReadConcernMajorityNotAvailableYet"),
    (43, "transient", "CursorNotFound"),
    (136, "transient", "CappedPositionLost"),
    (175, "transient", "QueryPlanKilled"),
    (237, "transient", "CursorKilled"),
    (251, "transient", "NoSuchTransaction"),
    (317, "transient", "ConnectionPoolExpired"),
    (50, SLOW, "MaxTimeMSExpired"),
    (202, SLOW, "NetworkInterfaceExceededTimeLimit"),
    (262, SLOW, "ExceededTimeLimit"),
    (64, SLOW, "WriteConcernTimeout"),
    (133, "overload", "FailedToSatisfyReadPreference"),
    (14031, "overload", "OutOfDiskSpace"),
    (462, "throttled", "IngressRequestRateLimitExceeded"),
    (13, "auth", "Unauthorized"),
    (18, "auth", "AuthenticationFailed"),
    (391, "auth", "ReauthenticationRequired"),
    (8000, "auth", "AtlasError"),
    (11000, "permanent", "DuplicateKey"),
    (11001, "permanent", "DuplicateKey"),
    (12582, "permanent", "DuplicateKey"),
    (11601, "permanent ambiguous", "Interrupted"),
    (2, "permanent", "BadValue"),
    (26, "permanent", "NamespaceNotFound"),
    (59, "permanent", "CommandNotFound"),
    (121, "permanent", "DocumentValidationFailure"),
]


@pytest.mark.parametrize(("code", "kind", "name"), CODES, ids=[each[2] for each in CODES])
def test_the_code_of_an_error_document_decides(code, kind, name, server, things):
    """What is worth repeating reaches the server three times, the rest once."""
    server.answer("find", failure(code, codeName=name))
    error, count = tried(things.find_one)
    assert judged(error) == (kind, "pymongo")
    retried = not kind.startswith(("auth", "permanent"))
    once = 2 if code == 391 else 1  # pymongo authenticates again, and repeats it
    assert (count, server.seen["find"]) == ((3, 3) if retried else (1, once))


def test_the_labels_of_an_error_document_decide_where_its_code_does_not(server, things):
    """A label is what newer servers send with codes that no table has."""
    for labels, kind in [
        (["RetryableWriteError"], LOST),
        (["SystemOverloadedError"], "overload ambiguous"),
        (["SystemOverloadedError", "RetryableError"], "overload"),
        (["TransientTransactionError"], "transient"),
        (["UnknownTransactionCommitResult"], LOST),
        ([], "permanent"),
    ]:
        server.answer("insert", failure(99_999, *labels))
        assert judged(seen(insert, things)) == (kind, "pymongo"), labels


def test_a_server_that_asks_for_patience(server, things):
    """How long is in the error document, in milliseconds."""
    server.answer("find", failure(462, "SystemOverloadedError", baseBackoffMS=250))
    assert hint_by_table(seen(things.find_one)) == 0.25
    server.answer("find", failure(13))
    assert hint_by_table(seen(things.find_one)) is None


def test_a_transaction_is_repeated_whole_and_its_commit_is_ambiguous(server, things):
    """A lost connection has one label inside a transaction, and another at its end."""
    client = things.database.client
    with client.start_session() as session:
        server.answer("insert", CLOSE)
        server.answer("abortTransaction", {"ok": 1.0})
        session.start_transaction()
        error = seen(lambda: things.insert_one({"n": 1}, session=session))
        assert judged(error) == ("transient", "pymongo")
        session.abort_transaction()
        server.answer("insert", {"ok": 1.0, "n": 1})
        server.answer("commitTransaction", CLOSE)
        session.start_transaction()
        things.insert_one({"n": 1}, session=session)
        assert judged(seen(session.commit_transaction)) == (LOST, "pymongo")


def test_writes_that_fail_one_by_one_or_are_not_replicated(server, things):
    """A duplicate is final; what was applied, and is not replicated, is ambiguous."""
    duplicate = {"index": 0, "code": 11000, "errmsg": "E11000 duplicate key"}
    conflict = {"index": 1, "code": 112, "errmsg": "write conflict"}
    applied = {"ok": 1.0, "n": 1}
    slow = {"code": 64, "errmsg": "waiting for replication", "errInfo": {"wtimeout": True}}
    too_few = {"code": 100, "errmsg": "not enough data-bearing nodes"}
    ending = {"code": 91, "errmsg": "shutting down"}
    other = {"code": 79, "errmsg": "no write concern of that name"}
    one = [
        ({**applied, "n": 0, "writeErrors": [duplicate]}, "permanent"),
        ({**applied, "n": 0, "writeErrors": [{**conflict, "index": 0}]}, "transient"),
        ({**applied, "writeConcernError": slow}, SLOW),
        ({**applied, "writeConcernError": too_few}, "permanent ambiguous"),
        ({**applied, "writeConcernError": ending}, LOST),
        ({**applied, "writeConcernError": other}, LOST),
    ]
    for answer, kind in one:
        server.answer("insert", answer)
        assert judged(seen(insert, things)) == (kind, "pymongo"), answer
    many = [
        ({**applied, "writeErrors": [conflict]}, LOST),
        ({**applied, "writeErrors": [{**conflict, "index": 0}, duplicate]}, "permanent ambiguous"),
    ]
    for answer, kind in many:
        server.answer("insert", answer)
        error = seen(lambda: things.insert_many([{"n": 1}, {"n": 2}], ordered=False))
        assert judged(error) == (kind, "pymongo"), answer


def test_a_bulk_write_of_a_client_is_judged_by_what_stopped_it(server, things):
    """The error inside decides, and some writes may have been applied."""
    models = [pymongo.InsertOne({"n": 1}, namespace="db.things")]
    server.answer("bulkWrite", failure(10107))
    error = seen(things.database.client.bulk_write, models)
    assert isinstance(error, pymongo.errors.ClientBulkWriteException)
    assert judged(error) == (LOST, "pymongo")


def test_wrong_credentials(server):
    """The handshake fails with 18."""
    server.answer("saslStart", failure(18, codeName="AuthenticationFailed"))
    uri = server.uri.replace("://", "://me:wrong@")
    with pymongo.MongoClient(uri, **SOON, authMechanism="SCRAM-SHA-256") as client:
        error, count = tried(insert, client.db.things)
    assert (judged(error), count) == (("auth", "pymongo"), 1)
    assert server.seen["saslStart"] == 1


# --- what pymongo decides by itself ---------------------------------------------------------------


def test_a_pool_that_is_empty(server):
    """Nothing was sent: the one connection is in use."""
    with pymongo.MongoClient(server.uri, **ONCE, maxPoolSize=1, waitQueueTimeoutMS=10) as client:
        first = {"ok": 1.0, "cursor": {"id": 7, "ns": "db.things", "firstBatch": [{}]}}
        server.answer("find", first)
        assert client.address == ("127.0.0.1", server.port)  # it is found, and has a pool
        (found,) = client._topology._servers.values()
        with found.pool.checkout():
            assert judged(seen(client.db.things.find_one)) == ("timeout", "pymongo")


def test_a_cursor_that_the_server_has_forgotten(server, things):
    """The query can be started again."""
    first = {"ok": 1.0, "cursor": {"id": 7, "ns": "db.things", "firstBatch": [{"n": 1}]}}
    server.answer("find", first)
    server.answer("getMore", failure(43, codeName="CursorNotFound"))
    assert judged(seen(list, things.find())) == ("transient", "pymongo")


def test_mistakes_are_final(server, things):
    """Nothing is sent, or the answer would be the same."""
    client = pymongo.MongoClient(server.uri, **ONCE, connect=False)
    client.close()
    mistakes = [
        lambda: pymongo.MongoClient("no-uri://"),
        lambda: pymongo.MongoClient(server.uri, readPreference="nonsense"),
        lambda: things.database[""],
        lambda: things.insert_one({"n": object()}),
        lambda: things.insert_one({"n": "x" * 17_000_000}),
        lambda: things.bulk_write([]),
        client.db.things.find_one,
        lambda: bson.ObjectId("no id"),
        lambda: bson.decode(b"\5\0\0\0\1"),
        lambda: bson.encode({"n": bson.regex.Regex("\0")}),
    ]
    for mistake in mistakes:
        assert judged(seen(mistake))[0] == "permanent", seen(mistake)
    empty = {"ok": 1.0, "cursor": {"id": 0, "ns": "db.fs.files", "firstBatch": []}}
    server.answer("find", empty)
    files = gridfs.GridFS(things.database)
    assert judged(seen(files.get, 1)) == ("permanent", "pymongo")


def test_what_only_the_library_itself_can_raise():
    """Encryption is judged by what it wraps; a certificate by pymongo's text."""
    errors = pymongo.errors
    inside = errors.EncryptionError(errors.AutoReconnect("lost"))
    assert judged(inside)[0] == LOST
    assert judged(errors.EncryptionError(RuntimeError("key")))[0] == "permanent"
    text = "127.0.0.1:1: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"
    assert judged(errors.ServerSelectionTimeoutError(text))[0] == "permanent"
    assert judged(errors.AutoReconnect(text))[0] == "permanent"
    assert judged(errors.ProtocolError("flags"))[0] == "permanent ambiguous"
