"""pymongo and neo4j: rows of their tables that the other tests do not come to.

The stubs speak MongoDB's wire protocol and Bolt; they name their sources.
"""

import contextlib
import gc
import itertools
import warnings

import bson
import gridfs
import neo4j
import neo4j.exceptions
import pymongo
import pymongo.errors
import pytest

from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.integrations.errors import table
from tests.integrations.errors.bolt_stub import (
    PULL,
    RECORD,
    RESET,
    ROUTE,
    RUN,
    SUCCESS,
    BoltStub,
    packed,
)
from tests.integrations.errors.raw_server import RawServer
from tests.integrations.errors.rows import comes_to, raised_by, row_of
from tests.integrations.errors.service_stub import dead_port
from tests.servers.certificate import make_certificate, server_side
from tests.servers.mongo import ANOTHER, MongoStub

ONCE = {"retryReads": False, "retryWrites": False}


@pytest.fixture(scope="module")
def mongo():
    with pytest.MonkeyPatch.context() as patch, MongoStub() as stub:
        patch.setattr("pymongo.common.MIN_HEARTBEAT_INTERVAL", 0.01)
        yield stub
    with warnings.catch_warnings():  # a monitor that is closed while it connects leaves its socket
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def database(mongo):
    with pymongo.MongoClient(mongo.uri, **ONCE) as client:
        yield client.db


CONCERNS = table("pymongo").entries["pymongo.errors.WriteConcernError"].rows


@pytest.mark.parametrize("code", CONCERNS)
def test_a_write_that_was_not_replicated_as_asked(mongo, database, code):
    """The document of the answer has the code in `writeConcernError`."""
    concern = {"code": code, "errmsg": "as documented"}
    mongo.answer("insert", {"ok": 1.0, "n": 1, "writeConcernError": concern})
    error = raised_by(lambda: database.things.insert_one({"n": 1}))
    name, line = row_of(error)
    expected = str(code) if code != 50 else "pymongo.errors.WTimeoutError"
    assert (name.rpartition(" ")[2], mongo.seen["insert"]) == (expected, 1)
    assert line.row.ambiguous


def gridfs_file(database):
    """A file whose chunks are not there."""
    return gridfs.GridFS(database).get(7).read()


def corrupt_file(mongo, database):
    document = {"_id": 7, "length": 5, "chunkSize": 255, "filename": "f"}
    first = {"ok": 1.0, "cursor": {"id": 0, "ns": "db.fs.files", "firstBatch": [document]}}
    nothing = {"ok": 1.0, "cursor": {"id": 0, "ns": "db.fs.chunks", "firstBatch": []}}
    mongo.answer("find", first, nothing)
    gridfs_file(database)


def existing_collection(mongo, database):
    listed = {"id": 0, "ns": "db.$cmd.listCollections", "firstBatch": [{"name": "things"}]}
    mongo.answer("listCollections", {"ok": 1.0, "cursor": listed})
    database.create_collection("things")


def existing_file(mongo, database):
    duplicate = {"index": 0, "code": 11000, "errmsg": "E11000 duplicate key"}
    refused = {"ok": 1.0, "n": 0, "writeErrors": [duplicate]}
    nothing = {"ok": 1.0, "cursor": {"id": 0, "ns": "db.fs.files", "firstBatch": []}}
    mongo.answer("find", nothing)
    mongo.answer("listIndexes", {**nothing, "ok": 1.0})
    mongo.answer("insert", {"ok": 1.0, "n": 1}, refused)
    gridfs.GridFS(database).put(b"x", _id=7)


def no_primary(mongo, database):
    """An old server has no code for it."""
    mongo.answer("find", {"ok": 0.0, "errmsg": "not master and slaveOk=false"})
    database.things.find_one()


def several_failures(mongo, database):
    """Two writes of one request, for reasons of their own."""
    failures = [
        {"ok": 0.0, "idx": index, "code": code, "errmsg": "as documented", "n": 0}
        for index, code in enumerate([11000, 112])
    ]
    counts = dict.fromkeys(["nInserted", "nMatched", "nModified", "nUpserted", "nDeleted"], 0)
    cursor = {"id": 0, "ns": "admin.$cmd.bulkWrite", "firstBatch": failures}
    mongo.answer("bulkWrite", {"ok": 1.0, "cursor": cursor, "nErrors": 2, **counts})
    models = [pymongo.InsertOne({"n": n}, namespace="db.things") for n in range(2)]
    database.client.bulk_write(models, ordered=False)


def answer_to_another(mongo, database):
    mongo.answer("find", ANOTHER)
    database.things.find_one()


def closed_pool(mongo, _database):
    """A thread has taken the server, and another one closes the pool."""
    with pymongo.MongoClient(mongo.uri, **ONCE) as client:
        assert client.address == ("127.0.0.1", mongo.port)
        (found,) = client._topology._servers.values()
        found.pool.close()
        client.db.things.find_one()


MONGO = {
    "gridfs.errors.FileExists": existing_file,
    "pymongo.errors.NotPrimaryError otherwise": no_primary,
    "pymongo.errors.ClientBulkWriteException otherwise": several_failures,
    "pymongo.errors.ProtocolError": answer_to_another,
    "pymongo.pool_shared._PoolClosedError": closed_pool,
    "gridfs.errors.CorruptGridFile": corrupt_file,
    "pymongo.errors.CollectionInvalid": existing_collection,
    "pymongo.errors.ConfigurationError": lambda *_: pymongo.MongoClient("h", nothing=1),
    "bson.errors.InvalidStringData": lambda *_: bson.encode({"a": bson.regex.Regex(b"\xff")}),
}


@pytest.mark.parametrize("row", MONGO)
def test_mongo(mongo, database, row):
    """What a server answers, and what pymongo finds by itself."""
    comes_to(row, lambda: MONGO[row](mongo, database))
    mongo.answers.clear()


def test_a_certificate_that_mongo_changes(tmp_path_factory):
    """The monitor has found the server; the next connection shows a certificate of a stranger."""
    known, strange = (make_certificate(tmp_path_factory.mktemp(name)) for name in "ab")
    contexts = itertools.chain([server_side(known)], itertools.repeat(server_side(strange)))
    with MongoStub(contexts) as stub:
        uri = f"mongodb://127.0.0.1:{stub.port}/?directConnection=true&serverMonitoringMode=poll"
        ca = str(known / "cert.pem")
        with pymongo.MongoClient(uri, tls=True, tlsCAFile=ca, **ONCE) as client:
            comes_to(
                "pymongo.errors.ConnectionFailure label certificate", client.db.things.find_one
            )


# --- Neo4j ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bolt():
    with BoltStub() as stub:
        yield stub


@pytest.fixture(scope="module")
def driver(bolt):
    with neo4j.GraphDatabase.driver(bolt.url, auth=("neo4j", "secret")) as made:
        yield made


CODES = table("neo4j").entries["neo4j.exceptions.Neo4jError"].rows


@pytest.mark.parametrize("code", CODES)
def test_codes_of_neo4j(bolt, driver, code):
    """The driver makes one of its classes of each."""
    sent = code.replace("*", "Schema.Unknown" if code.count(".") == 1 else "Unknown")
    bolt.answers({RUN: sent})
    with driver.session() as session:
        error = raised_by(lambda: session.run("CREATE ()").consume())
    name, line = row_of(error)
    assert name.startswith("neo4j.exceptions."), error
    assert line.row is not None


def consumed(session):
    result = session.run("RETURN 1")
    result.consume()
    result.fetch(1)


def closed(session):
    transaction = session.begin_transaction()
    transaction.close()
    transaction.run("RETURN 1")


def failed(bolt):
    def run(session):
        bolt.answers({RUN: "Neo.ClientError.Statement.SyntaxError"})
        with session.begin_transaction() as transaction:
            first = None
            try:
                first = transaction.run("x")
                first.consume()
            except neo4j.exceptions.ClientError:
                pass
            transaction.run("RETURN 1")

    return run


NEO4J = {
    "neo4j.exceptions.ResultConsumedError": consumed,
    "neo4j.exceptions.TransactionError": closed,
    "neo4j.exceptions.ResultNotSingleError": lambda session: session.run("RETURN 1").single(
        strict=True
    ),
}


@pytest.mark.parametrize("row", NEO4J)
def test_results_and_transactions_of_neo4j(bolt, driver, row):
    """The stub answers every message with success."""
    bolt.answers({})
    with driver.session() as session:
        comes_to(row, lambda: NEO4J[row](session))


def test_a_transaction_that_has_failed(bolt, driver):
    """The driver refuses what comes after it."""
    with driver.session() as session:
        comes_to("neo4j.exceptions.TransactionError", lambda: failed(bolt)(session))


def closed_session(driver):
    session = driver.session()
    session.close()
    session.run("RETURN 1")


def closed_driver(_driver):
    made = neo4j.GraphDatabase.driver("bolt://127.0.0.1:1")
    made.close()
    made.session()


DRIVER = {
    "neo4j.exceptions.DriverError": closed_driver,
    "neo4j.exceptions.SessionError": closed_session,
    "neo4j.exceptions.ConfigurationError": lambda _: neo4j.GraphDatabase.driver("ftp://x"),
    "neo4j.exceptions.ServiceUnavailable message Failed to DNS resolve*": lambda _: unresolved(),
}


def unresolved():
    import socket

    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "as asked")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", unknown)
        with neo4j.GraphDatabase.driver("bolt://shop.invalid") as made:
            made.verify_connectivity()


@pytest.mark.parametrize("row", DRIVER)
def test_settings_of_neo4j(driver, row):
    """Nothing is sent."""
    comes_to(row, lambda: DRIVER[row](driver))


def test_a_result_of_a_transaction_that_has_failed(bolt, driver):
    """An earlier result of it has nothing more."""
    row = "neo4j.exceptions.ResultFailedError"
    with driver.session() as session:
        bolt.answers({})
        transaction = session.begin_transaction()
        first = transaction.run("RETURN 1")
        bolt.answers({RUN: "Neo.ClientError.Statement.SyntaxError"})
        with contextlib.suppress(neo4j.exceptions.ClientError):
            transaction.run("x").consume()
        comes_to(row, lambda: first.fetch(1))


ZONE = b"\xb3\x66" + packed(0) + packed(0) + packed("Nowhere/None")
"""A time in a zone that nobody knows."""


def test_what_the_driver_cannot_read(bolt, driver):
    """A value that it has no type for, and an answer that the protocol does not have."""
    bolt.answers({
        RUN: [(SUCCESS, {"fields": ["x"]})], PULL: [(RECORD, [ZONE]), (SUCCESS, {"type": "r"})],
    })  # fmt: skip
    with driver.session() as session:
        comes_to(
            "neo4j.exceptions.BrokenRecordError", lambda: session.run("RETURN x").single().value()
        )
        bolt.answers({RUN: [(0x60, {})]})
        comes_to("neo4j._exceptions.BoltProtocolError", lambda: session.run("x").consume())


def routed(bolt, members, on, mode=neo4j.WRITE_ACCESS):
    """A statement to a cluster; the stub is the member that is asked who the others are."""
    servers = [
        {"addresses": [f"127.0.0.1:{port or bolt.port}"], "role": role} for role, port in members
    ]
    table = {"rt": {"ttl": 300, "db": "neo4j", "servers": servers}}
    bolt.answers({ROUTE: [(SUCCESS, table)], **on})
    url = f"neo4j://127.0.0.1:{bolt.port}"
    with (
        neo4j.GraphDatabase.driver(url, auth=("neo4j", "secret")) as made,
        made.session(database="neo4j", default_access_mode=mode) as session,
    ):
        session.run("CREATE ()").consume()


THE_STUB, NOBODY = None, dead_port()
ROUTED = ("ROUTE", THE_STUB)
READS, WRITES = ("READ", THE_STUB), ("WRITE", THE_STUB)
CLUSTER = {
    "SessionExpired cause WriteServiceUnavailable": ([ROUTED, READS], {}),
    "SessionExpired cause ReadServiceUnavailable": ([ROUTED, ("READ", NOBODY)], {}),
    "ServiceUnavailable message Unable to retrieve routing information*": ([READS], {}),
    "SessionExpired otherwise": ([ROUTED, READS, WRITES], {RUN: RESET}),
}


@pytest.mark.parametrize("row", CLUSTER)
def test_a_cluster_of_neo4j(bolt, row):
    """Nothing was sent if no member takes a statement; a connection that is lost is ambiguous."""
    is_lost = row.endswith("otherwise")
    mode = neo4j.READ_ACCESS if "Read" in row else neo4j.WRITE_ACCESS
    error = comes_to(f"neo4j.exceptions.{row}", lambda: routed(bolt, *CLUSTER[row], mode))
    known = kind_of(error)
    assert (known.kind, known.is_ambiguous) == (Kind.TRANSIENT, is_lost)
    assert bolt.count == is_lost


def test_a_server_of_another_version():
    """It accepts none of the versions that the driver offers."""
    server = RawServer()
    server.reply = bytes(4)
    try:
        with neo4j.GraphDatabase.driver(f"bolt://127.0.0.1:{server.port}") as made:
            comes_to("neo4j.exceptions.UnsupportedServerProduct", made.verify_connectivity)
    finally:
        server.close()
