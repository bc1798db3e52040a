"""What a key of `mainstay exec` stands for, which older records it finds, and what is stored."""

import os

import pytest

from mainstay import Engine
from mainstay.cli.errors import CommandError
from mainstay.cli.exec.key_record import address, has_relative_path
from mainstay.cli.exec.run import _Run
from mainstay.core.base.change import Change
from mainstay.drivers.idempotency.keyed_call import SPACE
from mainstay.drivers.process.command import output_of
from mainstay.errors import StoredValueError

pytestmark = pytest.mark.skipif(os.name == "nt", reason="commands of a POSIX shell")


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    """A state folder, and a working directory without a configuration."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    monkeypatch.chdir(tmp_path / "one")


@pytest.fixture
def runs(monkeypatch):
    """The commands that were run, by a process that is not started."""
    made = []

    def attempt(run, command, _options):
        made.append([os.fsdecode(word) for word in command])
        run.history.append("exit 0")
        return output_of(None)

    monkeypatch.setattr(_Run, "_attempt", attempt)
    return made


@pytest.fixture
def execute(invoke):
    """Runs `mainstay exec`; its exit code."""
    return lambda *arguments: invoke(*arguments).return_value


def refused(execute, *arguments):
    """Whether it is refused as another command line of the key."""
    with pytest.raises(CommandError, match="was used for another command line") as caught:
        execute(*arguments)
    return caught.value.exit_with == 2 and "use a new key" in caught.value.hint


def test_another_command_under_the_same_key_is_refused(execute, runs):
    """Another program too, not only other arguments; nothing is run."""
    assert execute("--key", "k", "--", "/bin/charge", "7") == 0
    assert refused(execute, "--key", "k", "--", "/bin/charge", "8")
    assert refused(execute, "--key", "k", "--", "/bin/refund", "7")
    assert execute("--key", "k", "--", "/bin/charge", "7") == 0
    assert runs == [["/bin/charge", "7"]]


def test_a_named_operation_has_keys_of_its_own(execute, runs):
    """Two names are two sets of keys."""
    for name in ("a", "b", "a"):
        assert execute("--key", "k", "--operation", name, "--", f"/bin/{name}") == 0
    assert runs == [["/bin/a"], ["/bin/b"]]


@pytest.mark.parametrize(
    "words", [("./deploy.sh",), ("sh", "deploy.sh"), ("tool", "--file=deploy.sh"), ("ls", "..")]
)
def test_a_relative_path_is_another_command_in_another_folder(
    execute, runs, tmp_path, monkeypatch, words
):
    """The same words name another file there."""
    for folder in ("one", "two"):
        (tmp_path / folder / "deploy.sh").touch()
    assert execute("--key", "k", "--", *words) == 0
    assert execute("--key", "k", "--", *words) == 0
    monkeypatch.chdir(tmp_path / "two")
    assert refused(execute, "--key", "k", "--", *words)
    assert len(runs) == 1


def test_without_a_relative_path_the_folder_does_not_count(execute, runs, tmp_path, monkeypatch):
    """The command is the same everywhere."""
    assert execute("--key", "k", "--", "/bin/echo", "https://example.org/x", "/etc/hosts") == 0
    monkeypatch.chdir(tmp_path / "two")
    assert execute("--key", "k", "--", "/bin/echo", "https://example.org/x", "/etc/hosts") == 0
    assert len(runs) == 1


@pytest.mark.parametrize("is_there", [False, True])
def test_a_file_that_the_command_makes_or_removes_changes_no_key(execute, runs, tmp_path, is_there):
    """An argument may be a file after the run only, or before it only."""
    file = tmp_path / "one" / "out"
    (file.touch if is_there else file.exists)()
    assert execute("--key", "k", "--", "/bin/toggle", "out") == 0
    (file.unlink if is_there else file.touch)()
    assert execute("--key", "k", "--", "/bin/toggle", "out") == 0
    assert len(runs) == 1


def older(tmp_path, operation, *words, **options):
    """A record as versions before this kept it: by the command's name, without a folder."""
    (tmp_path / "state" / "mainstay").mkdir(parents=True, exist_ok=True)
    with Engine(f"sqlite:///{tmp_path}/state/mainstay/mainstay.db", sinks=[]) as engine:

        def attempt(command):
            assert command
            return output_of(None)

        chosen = engine.operation(operation, key="k", idempotency="idempotent", **options)
        chosen.call(attempt, tuple(map(os.fsencode, words)))


def test_a_record_of_an_older_version_is_replayed(execute, runs, tmp_path):
    """It knows neither the folder nor the new place, and stands for its words."""
    older(tmp_path, "deploy.sh", "./deploy.sh", "7")
    assert execute("--key", "k", "--", "./deploy.sh", "7") == 0
    assert refused(execute, "--key", "k", "--", "./deploy.sh", "8")
    assert runs == []


def test_an_older_record_that_has_expired_is_none(execute, runs, tmp_path):
    """The command runs, and its record is in the new place."""
    older(tmp_path, "deploy.sh", "./deploy.sh", ttl=0.001)
    assert execute("--key", "k", "--", "./deploy.sh") == 0
    assert len(runs) == 1
    assert refused(execute, "--key", "k", "--", "./other.sh")


def test_a_damaged_record_is_left_to_the_call(execute, runs, tmp_path):
    """It is reported as any damaged record is, and nothing is run."""
    assert execute("--key", "k", "--", "/bin/a") == 0
    store = f"sqlite:///{tmp_path}/state/mainstay/mainstay.db"
    with Engine(store, sinks=[]) as engine:
        engine.store.transact(SPACE, address("exec", "k"), lambda *_: (Change(b"{"), None))
    with pytest.raises(StoredValueError):
        execute("--key", "k", "--", "/bin/a")
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("words", "is_relative"),
    [
        (("./x",), True),
        (("bin/x",), True),
        (("x",), False),
        (("/x", "here"), True),
        (("/x", "here/there"), True),
        (("/x", "../y"), True),
        (("/x", "@here"), True),
        (("/x", "--file=here"), True),
        (("/x", "library/nginx"), False),
        (("/x", "-v", "", "https://here/x", "/here", "a\0b"), False),
    ],
)
def test_a_relative_path_is_one_that_is_there_or_begins_with_a_dot(tmp_path, words, is_relative):
    """A word with a slash may be something else: an image, a branch."""
    (tmp_path / "one" / "here").touch()
    assert has_relative_path(words) == is_relative


# --- secrets --------------------------------------------------------------------------------------


SECRET = "S3cr3t-Xy"


def test_no_secret_of_a_command_line_is_printed_or_stored(invoke, tmp_path):
    """Neither in lines, items, records and circuits, nor in the audit log."""
    command = ["/no/such/mysql", f"-p{SECRET}", "sh", "-c", f"redis-cli -a {SECRET}"]
    options = ["--key", "k", "--escalate", "--operation", "job", "--json"]
    done = invoke(*options, "--", *command)
    assert done.return_value == 76
    named = invoke("--", f"DB_PASSWORD={SECRET}")
    assert named.return_value == 127
    assert SECRET not in done.output + named.output
    folder = tmp_path / "state" / "mainstay"
    with Engine(f"sqlite:///{folder}/mainstay.db", sinks=[]) as engine:
        (item,) = engine.inbox
    assert "-p[redacted]" in item.text
    for file in folder.iterdir():
        assert SECRET.encode() not in file.read_bytes(), file


def test_the_secret_of_an_operator_does_not_reach_the_command(invoke, monkeypatch, tmp_path):
    """It is for mainstay alone; every other variable is passed on."""
    monkeypatch.setenv("MAINSTAY_OPERATOR_SECRET", SECRET)
    monkeypatch.setenv("MAINSTAY_NEW_SECRET", SECRET)
    monkeypatch.setenv("SHOP", "open")
    script = f"env > {tmp_path}/seen"
    done = invoke("--", "sh", "-c", script)
    assert done.return_value == 0
    seen = (tmp_path / "seen").read_text()
    assert "SHOP=open" in seen
    assert SECRET not in seen
    assert os.environ["MAINSTAY_OPERATOR_SECRET"] == SECRET
