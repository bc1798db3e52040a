"""Why a library cannot raise a row: the reasons of unprovoked.txt, held against the libraries.

A reason that no test can look into is listed here, so that a new one of that sort is a decision.
"""

import _ssl
import ast
import asyncio
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import re
import socket
import sqlite3
import ssl
import struct
import sys
import threading
import warnings
from pathlib import Path

import pytest

from mainstay.integrations.errors import table
from tests.integrations.errors.raw_server import scripted
from tests.integrations.errors.walk import REAL_NAMES
from tests.servers import http_faults
from tools import provoked

NOT_MADE = (
    "the library defines it and raises it nowhere",
    "a base class; the library raises",
    "the caller raises it",
    "a handler of the caller raises it",
    "a listener of the caller raises it",
    "the handler of a service raises it",
    "nothing is mapped to it",
)
CAUGHT = (
    "used inside the library",
    "nats-py catches it",
    "the driver raises one of its public errors",
    "the pool passes over it",
    "the pool raises it before a checkout",
    "urllib3 raises ProtocolError, which has it inside",
)
UNSEEN = {
    "of C, whose sources are not installed": (
        "librdkafka uses it inside", "confluent-kafka calls on_assign", "confluent-kafka raises",
        "SQLite prepares the statement", "a defect of SQLite", "the module has no function",
        "Python raises MemoryError", "glibc gives it", "libmongocrypt raises it",
        "OpenSSL 3 gives UNEXPECTED_MESSAGE", "asyncio makes a reset of it",
    ),
    "of how a library is written": (
        "the dialects have classes of their own", "the driver makes WriteServiceUnavailable",
        "the client raises classes of elasticsearch", "the text of NoValidConnectionsError",
        "its subclasses alone are raised", "the base of its timeouts", "urllib3 raises SSLError",
        "aiohttp raises ClientConnectorCertificateError",
        "google-auth raises it nowhere", "Django raises it only while", "users raise it in",
        "a check for those who work on the driver", "the base of the errors of JetStream",
    ),
    "of the machine or the caller": ("the machine itself", "the caller makes it"),
}  # fmt: skip


def rows(*beginnings):
    """The rows whose reason begins so: library, name of the row, reason."""
    return [
        (library, name, reason)
        for library, given in provoked.reasons().items()
        for name, reason in given.items()
        if reason.startswith(beginnings)
    ]


def class_of(row):
    return row.split()[0]


def by_library(found):
    """The classes of rows, by library."""
    classes = {}
    for library, name, *_ in found:
        classes.setdefault(library, set()).add(class_of(name))
    return classes


def sources(packages):
    """The files of packages."""
    for name in packages:
        spec = importlib.util.find_spec(REAL_NAMES.get(name, name))
        for folder in spec.submodule_search_locations or [spec.origin]:
            path = Path(folder)
            yield from path.rglob("*.py") if path.is_dir() else [path] * (path.suffix == ".py")


@functools.cache
def texts(library):
    """The sources of a library."""
    files = sources(table(library).packages)
    return [path.read_text(encoding="utf-8", errors="ignore") for path in files]


def nodes(library, names):
    """What is in those of its sources that have one of these names."""
    any_of = re.compile(rf"\b({'|'.join(names)})\b")
    for text in texts(library):
        if any_of.search(text):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of escapes in their strings
                yield from ast.walk(ast.parse(text))


def name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)


def made_in(library, names):
    """Which of these classes the sources of a library call or raise."""
    found = set()
    for node in nodes(library, names) if names else ():
        what = node.func if isinstance(node, ast.Call) else getattr(node, "exc", None)
        found.add(name_of(what))
    return found & names


def caught_in(library, names):
    """Which of these classes a library catches, or asks an exception for."""
    found = set()
    for node in nodes(library, names):
        asked = None
        if isinstance(node, ast.ExceptHandler):
            asked = node.type
        elif isinstance(node, ast.Call) and name_of(node.func) in ASKS:
            asked = node.args[-1]
        each = asked.elts if isinstance(asked, ast.Tuple) else [asked]
        found |= {name_of(one) for one in each}
    return found & names


ASKS = ("isinstance", "issubclass")


def last(name):
    return name.rpartition(".")[2]


@pytest.mark.parametrize(("library", "classes"), by_library(rows(*NOT_MADE)).items())
def test_a_class_that_is_raised_nowhere_is_made_nowhere(library, classes):
    """No source of the library has a call of it, or a `raise` of it, but those that derive."""
    assert made_in(library, {last(each) for each in classes}) == NAMESAKES.get(library, set())


NAMESAKES = {
    "httpx": {"ProtocolError"},  # of httpx, for a challenge; that of httpcore is a base
    "httpx2": {"ProtocolError"},
}
"""Other classes of the same name, which their libraries raise."""


MADE = {
    "azure": {"AzureError"},  # "Maximum retries exceeded.", after a loop that ends by raising
    "neo4j": {"GqlError"},  # the cause of another one
    "pymongo": {"PyMongoError"},  # why a server is unknown, in its description
}
"""Bases that a library makes and does not raise."""


@pytest.mark.parametrize("library", provoked.libraries())
def test_a_base_class_by_its_own_row_is_made_nowhere(library):
    """As above, for the rows whose text in the table is the reason."""
    written, given = provoked.summary()[library], provoked.reasons().get(library, {})
    never = {name for name, how in written.items() if how == "never" and name not in given}
    bases = {last(class_of(name)) for name in never} - {"*"}
    assert made_in(library, bases) == MADE.get(library, set())


COMPILED = {"_cygrpc", "cygrpc", "pgproto"}
PASSED = {
    "grpc._interceptor._FailureOutcome": "what a call gives that failed before it was sent",
    "aiohttp.web_protocol.*": "of the server",
    "socket._GiveupOnSendfile": "a module of Python's own, whose class is private",
}


@pytest.mark.parametrize(("library", "classes"), by_library(rows(*CAUGHT)).items())
def test_what_a_library_does_not_let_out_is_caught_in_it(library, classes):
    """By its name, or by that of a base that is the library's own or of http.client."""
    for each in classes - {*PASSED}:
        module, _, name = each.rpartition(".")
        if last(module) in COMPILED:
            continue
        cls = getattr(importlib.import_module(module), name)
        names = {base.__name__ for base in cls.__mro__} - {"Exception", "BaseException", "object"}
        assert caught_in(library, names), each


ALWAYS = re.compile(r".*always (one|something)$|.*always$")


def test_what_decides_always_was_seen_to_decide():
    """Another row of that class, or of one with the same cases, came from the real library.

    Rows that classes share are written under the first of them.
    """
    left = []
    for library, given in provoked.reasons().items():
        seen = {class_of(name) for name, how in provoked.hows_by_row(library) if how == "client"}
        left += [
            (library, name)
            for name, reason in given.items()
            if ALWAYS.match(reason) and class_of(name) not in seen
        ]
    assert left == [
        ("sqlalchemy", "sqlalchemy.exc.EmulatedDBAPIException otherwise"),
        ("sqlalchemy", "sqlalchemy.connectors.asyncio.AsyncAdapt_Error otherwise"),
    ], "none of their rows was provoked; nothing else may come here"


@pytest.mark.parametrize(
    ("library", "name"), [row[:2] for row in rows("the library has a class for this answer")]
)
def test_an_answer_that_has_a_class_of_its_own(library, name):
    """The parser of the client makes it of the answer."""
    parser = importlib.import_module(f"{library}._parsers")._RESP2Parser(1)
    plain = importlib.import_module(f"{library}.exceptions").ResponseError
    code = last(name.replace(" ", "."))
    detail = {"MOVED": "1 127.0.0.1:1", "ASK": "1 127.0.0.1:1"}.get(code, "text")
    assert type(parser.parse_error(f"{code} {detail}")) is not plain


def test_a_status_that_has_a_class_of_its_own():
    """google-api-core's own map decides."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # that it would like grpcio-status
        errors = importlib.import_module("google.api_core.exceptions")
    for _, name, _ in rows("google-api-core has a class for the status"):
        made = errors.from_http_status(int(name.rpartition(" ")[2]), "")
        assert type(made) is not errors.GoogleAPICallError, name


def test_codes_of_success_are_zero():
    """No failure has them."""
    kafka = importlib.import_module("confluent_kafka").KafkaError
    assert kafka.NO_ERROR == 0
    assert importlib.import_module("aiokafka.errors").NoError.errno == 0
    assert len(rows("the code of success")) == 2


def test_codes_that_librdkafka_keeps_are_its_own():
    """A broker sends none below zero."""
    kafka = importlib.import_module("confluent_kafka").KafkaError
    for _, name, _ in rows("librdkafka uses it inside", "librdkafka defines it"):
        assert getattr(kafka, name.rpartition(" ")[2]) < -100, name


def test_codes_that_come_with_a_state_that_decides():
    """Fatal, or a transaction to be aborted; an error that is retriable by its code."""
    kafka = importlib.import_module("confluent_kafka")
    entry = table("confluent_kafka").entries["cimpl.KafkaException"]
    found = rows("librdkafka raises it as fatal")
    for _, name, reason in found:
        code = getattr(kafka.KafkaError, last(name.replace(" ", ".")))
        states = {"fatal": {"fatal": True}, "abort": {"txn_requires_abort": True}}
        for state, flags in states.items():
            if state in reason:
                error = kafka.KafkaException(kafka.KafkaError(code, **flags))
                assert provoked.case_of(entry, error) == f"code {state}"
    assert len(found) == 3
    error = kafka.KafkaError(kafka.KafkaError._TRANSPORT, retriable=True)
    assert provoked.case_of(entry, kafka.KafkaException(error)) == "code _TRANSPORT"
    assert len(rows("the table has every code of this version")) == 1


def test_what_confluent_kafka_looks_at_before_librdkafka():
    """A consumer without a group, and an option of another type."""
    kafka = importlib.import_module("confluent_kafka")
    admin = importlib.import_module("confluent_kafka.admin")
    with pytest.raises(ValueError, match=re.escape("group.id must be set")):
        kafka.Consumer({"bootstrap.servers": "127.0.0.1:1"})
    made = admin.AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(TypeError):
        made.create_topics([admin.NewTopic("new", 1, 1)], request_timeout="soon")
    assert len(rows("confluent-kafka makes no", "confluent-kafka looks at")) == 2


def test_a_class_that_has_a_code_of_its_own():
    """The serializers raise that, with the code."""
    errors = importlib.import_module("confluent_kafka.error")
    for _, name, _ in rows("a class of its own has it: the serializers"):
        code = name.rpartition(" ")[2]
        cls = "".join(part.capitalize() for part in code.split("_")) + "Error"
        made = getattr(errors, cls)(ValueError())
        assert made.args[0].code() == getattr(errors.KafkaError, code), name


def test_names_that_this_openssl_does_not_give():
    """If it did, the row would have to be provoked."""
    if not hasattr(_ssl, "err_codes_to_names"):
        pytest.skip("this Python does not list OpenSSL's names: run it on 3.13 or older")
    names = {*_ssl.err_codes_to_names.values()}
    assert {"TLSV1_UNRECOGNIZED_NAME", "UNEXPECTED_MESSAGE"} <= names
    given = rows("the name of the reason in OpenSSL 3.2 and newer", "OpenSSL names it")
    assert len(given) >= 5
    for _, name, _ in given:
        if ssl.OPENSSL_VERSION_INFO < (3, 2):
            assert name.rpartition(" ")[2] not in names, name


def test_reasons_of_which_python_makes_a_class():
    """Those classes have rows of their own, which were provoked."""
    written = provoked.summary()["ssl"]
    assert len(rows("Python raises a class of its own for it")) == 2
    for name in ("ssl.SSLCertVerificationError", "ssl.SSLEOFError"):
        assert any(class_of(row) == name and how == "client" for row, how in written.items())


def test_what_fails_below_tls_is_an_error_of_the_system():
    """As it is without TLS; the class that Python has for the rest needs a number of its own."""

    def reset():
        wire, _ = listener.accept()
        wire.recv(1)
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.close()

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=reset)
        thread.start()
        place = listener.getsockname()
        with socket.create_connection(place) as wire, pytest.raises(ConnectionResetError):
            tls.wrap_socket(wire, server_hostname="localhost")
        thread.join()
    assert len(rows("Python raises an OSError")) == 1


def test_asyncpg_has_no_class_for_a_connection_that_takes_too_long():
    """Python's own TimeoutError, as for a statement."""
    asyncpg = importlib.import_module("asyncpg")
    with http_faults.full_port() as port, pytest.raises(TimeoutError):
        asyncio.run(asyncpg.connect(host="127.0.0.1", port=port, timeout=0.02))
    assert len(rows("asyncpg raises TimeoutError")) == 1


def test_codes_that_have_a_class_in_pymongo():
    """Its own functions make it of an answer."""
    pymongo = importlib.import_module("pymongo.helpers_shared")
    errors = importlib.import_module("pymongo.errors")
    with pytest.raises(errors.CursorNotFound):
        pymongo._check_command_response({"ok": 0, "code": 43, "errmsg": ""}, None)
    with pytest.raises(errors.WTimeoutError):
        pymongo._raise_write_concern_error({"code": 50})
    given = rows("pymongo raises")
    assert {name.rpartition(" ")[2] for _, name, _ in given} == {"43", "50"}


def test_aiormq_has_one_class_for_a_connection_that_ends():
    """It would raise another for an EOFError, which its reader lets out no more."""
    aiormq = importlib.import_module("aiormq")
    with scripted(b"") as port, pytest.raises(ConnectionError) as caught:
        asyncio.run(aiormq.connect(f"amqp://127.0.0.1:{port}/"))
    assert type(caught.value) is aiormq.exceptions.AMQPConnectionError
    assert len(rows("aiormq raises AMQPConnectionError")) == 1


def test_states_that_are_no_errors():
    """00 is success; a driver has no class for it."""
    psycopg = importlib.import_module("psycopg.errors")
    with pytest.raises(KeyError):
        psycopg.lookup("00000")
    assert {name.rpartition(" ")[2] for _, name, _ in rows("a class of SQLSTATEs")} == {"00*"}


def test_versions_that_are_past():
    """The versions that are installed are newer."""
    past = (
        "of versions before 3.10",
        "of redis-py 5 and",
        "of Python 3.10 and",
        "for an SQLite before",
    )
    assert len(rows(*past)) == 6
    assert sqlite3.sqlite_version_info >= (3, 25), "what sqlite3 would raise is for an older one"
    assert version("aiohttp") >= (3, 10)
    assert version("redis") >= (6,)
    assert sys.version_info >= (3, 11)


def version(package):
    return tuple(int(part) for part in importlib.metadata.version(package).split(".")[:2])


def test_this_python_has_md5():
    """What botocore would raise is for one without it."""
    assert hashlib.md5(b"", usedforsecurity=False).hexdigest()
    assert len(rows("this Python has MD5")) == 1


def test_py_consul_has_classes_for_two_statuses():
    """Its callback raises them."""
    exceptions = importlib.import_module("consul.exceptions")
    check = importlib.import_module("consul.callback").CB._status
    response = importlib.import_module("consul.base").Response
    for code, cls in (401, exceptions.ACLDisabled), (403, exceptions.ACLPermissionDenied):
        with pytest.raises(cls):
            check(response(code, {}, ""), False)
    assert len(rows("py-consul has classes for 401 and 403")) == 2


def test_the_beta_interfaces_of_grpc_are_imported_by_none_of_it():
    """But by each other."""
    assert len(rows("of the beta interfaces")) == 4
    for path in sources(["grpc"]):
        if {"beta", "framework"}.isdisjoint(path.parts):
            assert "grpc.framework" not in path.read_text(encoding="utf-8"), path


CHECKED = (
    *NOT_MADE, *CAUGHT, "the library has a class for this answer", "google-api-core has a class",
    "the code of success", "librdkafka uses it inside", "a class of its own has it",
    "the name of the reason in OpenSSL", "OpenSSL names it", "Python raises a class of its own",
    "a class of SQLSTATEs", "of versions before", "of redis-py 5", "of Python 3.10",
    "for an SQLite before", "this Python has MD5", "py-consul has classes",
    "of the beta interfaces", "asyncpg raises TimeoutError", "pymongo raises",
    "Python raises an OSError", "aiormq raises AMQPConnectionError", "librdkafka defines it",
    "librdkafka raises it as fatal", "confluent-kafka makes no consumer",
    "confluent-kafka looks at the types", "the table has every code of this version",
)  # fmt: skip


def test_every_reason_is_looked_into_or_listed():
    """A new sort of reason has a test here, or a place in the list of those that have none."""
    unseen = tuple(text for texts in UNSEEN.values() for text in texts)
    every = [
        (name, reason)
        for given in provoked.reasons().values()
        for name, reason in given.items()
        if not reason.startswith(CHECKED) and not ALWAYS.match(reason)
    ]
    assert [each for each in every if not each[1].startswith(unseen)] == []
    assert len(every) <= 48, "of 360; each of them is a sentence that nobody can check"
