"""Every exception class of every library that has a table is judged in it."""

import ast
import importlib.util
import inspect
import os
import subprocess
import sys

import pytest

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Row, Same
from mainstay.core.retry.kinds import kind_of
from mainstay.errors import UsageError
from mainstay.integrations.errors import FILES, find, register, table
from tests.integrations.errors.walk import REAL_NAMES, ancestors_of, unjudged

LIBRARIES = sorted(set(FILES.values()))


@pytest.fixture(scope="session")
def walked(tmp_path_factory):
    """The exception classes of a library, with their ancestors; walked once for all workers."""
    folder = tmp_path_factory.getbasetemp()
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    shared = (folder.parent if is_worker else folder) / "walked"
    shared.mkdir(exist_ok=True)
    return lambda library: ancestors_of(shared, library)


def rows(entry):
    """Every row that an entry can come to."""
    while not isinstance(entry, Row | Same):
        if isinstance(entry, Cases):
            yield from entry.rows.values()
        entry = entry.otherwise
    if isinstance(entry, Row):
        yield entry


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_class_of_the_library_is_judged(library, walked):
    """A class that nobody has looked at is found when the library adds it."""
    known = table(library)
    real = [REAL_NAMES.get(name, name) for name in known.packages]
    missing = [name for name in real if importlib.util.find_spec(name) is None]
    assert not missing, f"not installed: {missing}; the dev group of pyproject.toml has them"
    classes = walked(library)
    assert classes, "the library has exceptions"
    assert unjudged(known, classes) == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_entry_is_of_a_class_that_the_library_does_not_have(library, walked):
    """A misspelt name would never be looked up; one of another version names that version."""
    known = table(library)
    classes = walked(library)
    other = getattr(
        importlib.import_module(f"mainstay.integrations.errors.{library}"), "OTHER_VERSIONS", ()
    )
    named = {name for name in known.entries if not name.endswith(".*")}
    assert sorted(named - set(classes) - set(other)) == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_ancestor_is_one_and_unknown_has_a_reason(library, walked):
    """`Same` names a class that the class derives from, and `unknown` is never left bare."""
    known = table(library)
    classes = walked(library)
    for name, entry in known.entries.items():
        if isinstance(entry, Same) and name in classes:
            assert entry.ancestor in classes[name], name
        for row in rows(entry):
            assert len(row.why) > 5, (name, row)
            assert isinstance(row.kind, Kind), (name, row)
            assert row.kind is not Kind.AMBIGUOUS, "a kind, and ambiguous beside it"


OF_PYTHON = {"socket", "ssl", "sqlite3", "smtplib", "subprocess", "mainstay.profiles"}
"""What msgspec and the registry may have imported before."""


def test_no_table_imports_its_library():
    """Each is known by the names of its classes: all tables load where no library is imported."""
    program = f"""
import sys
from mainstay.integrations.errors import FILES, table
for file in set(FILES.values()):
    table(file)
print(sorted((set(FILES) - {OF_PYTHON!r}) & set(sys.modules)))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_a_table_that_says_where_its_requests_are_names_every_place():
    """If its functions look into a module that it does not name, a POST would be repeated."""
    file = importlib.import_module("mainstay.integrations.errors.requests")
    source = inspect.getsource(file)
    calls = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call)]
    looks = [each.args[1].value for each in calls if ast.unparse(each.func) == "shared.frames"]
    assert set(looks) == file.TABLE.senders
    assert "__traceback__" not in source


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_so_do_the_two_that_share_their_functions(library):
    """They look into the modules of which they have the names, and these exist."""
    file = importlib.import_module(f"mainstay.integrations.errors.{library}")
    named = {each for each in vars(file.FINDER).values() if isinstance(each, str)}
    assert named == file.TABLE.senders
    for module in named:
        importlib.import_module(module)


def test_every_other_table_is_asked_about_each_failure():
    """A new one that says where its requests are belongs into the tests above."""
    files = {table(file) for file in FILES.values()}
    assert {each.library for each in files if each.senders} == {"httpx", "httpx2", "requests"}


def test_each_package_finds_its_own_table():
    """The index and the tables agree."""
    for package, file in FILES.items():
        assert package in table(file).packages
        assert find(f"{package}.Anything") is table(file)
    assert find("collections.Counter") is None


def test_what_is_no_table_is_not_registered():
    """With an example of one."""
    with pytest.raises(UsageError, match="'acme' is no Table"):
        register("acme")


def of_version(name, **attributes):
    """An error of a version that is not installed here: by its name and what it carries."""
    module, _, own = name.rpartition(".")
    error = type(own, (Exception,), {"__module__": module})()
    vars(error).update(attributes)
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (of_version("openai.error.APIError", http_status=502, json_body=None), Kind.TRANSIENT),
        (
            of_version(
                "openai.error.RateLimitError",
                http_status=429,
                json_body={"error": {"code": None, "type": "insufficient_quota"}},
            ),
            Kind.PERMANENT,
        ),
        (
            of_version("openai.error.RateLimitError", http_status=429, json_body=None),
            Kind.THROTTLED,
        ),
        (of_version("openai.error.ServiceUnavailableError"), Kind.OVERLOAD),
        (of_version("httpx.exceptions.HTTPError", response=None), Kind.UNKNOWN),
        (of_version("httpx._exceptions.HTTPError", status_code=503), Kind.OVERLOAD),
        (of_version("elasticsearch.exceptions.TransportError", status_code=429), Kind.THROTTLED),
        (of_version("elasticsearch.exceptions.TransportError", status_code="N/A"), Kind.UNKNOWN),
        (of_version("elasticsearch.exceptions.RequestError", status_code=400), Kind.PERMANENT),
        (
            of_version("elasticsearch.exceptions.SSLError", info=ConnectionResetError()),
            Kind.TRANSIENT,
        ),
        (of_version("aio_pika.pika.exceptions.ConnectionClosed"), Kind.TRANSIENT),
        (of_version("pymongo.errors.NotMasterError"), Kind.TRANSIENT),
    ],
    ids=lambda value: f"{type(value).__module__}.{type(value).__name__}",
)
def test_what_older_versions_raise_is_judged_by_what_it_carries(error, kind):
    """The attributes are those of openai 0.28, httpx 0.13 and elasticsearch 7."""
    assert kind_of(error).kind is kind
