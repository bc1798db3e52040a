"""What was spilled has the seal of this user's key, or it is not delivered."""

from __future__ import annotations

import os
import signal
import stat
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainstay.runtime.private_files import NotPrivateError, state_folder
from mainstay.sinks.delivery import seal as module
from mainstay.sinks.delivery.seal import KEY, NotSealedError, Seal, known_keys, own_key

LINES = [b'{"a":1}', b'{"b":2}']


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path):
    """A user's state and temporary folder of their own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "state" / "mainstay"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spill" / "nats-1234" / "17-abc" / "000000000001.jsonl"


def test_sealed_lines_are_read_again_by_another_process(path):
    """The key is the user's, not the process's."""
    data = Seal().seal(path, LINES)
    assert Seal().lines(path, data) == LINES


def test_a_torn_last_line_is_passed_over(path):
    """It is what a killed process leaves, and no forgery."""
    data = Seal().seal(path, LINES)
    assert Seal().lines(path, data[:-3]) == LINES[:1]
    assert Seal().lines(path, b"") == []


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_one_changed_byte_never_makes_another_line(path, data):
    """Whatever byte is changed, inserted or cut: what is read is a beginning of what was sealed."""
    sealed = bytearray(Seal().seal(path, LINES))
    at = data.draw(st.integers(0, len(sealed) - 1))
    size = data.draw(st.integers(0, 1))
    sealed[at : at + size] = data.draw(st.binary(max_size=2))
    try:
        read = Seal().lines(path, bytes(sealed))
    except NotSealedError:
        return
    assert read == LINES[: len(read)]


def test_a_line_without_a_seal_is_refused(path):
    """Whoever can write a file cannot write a line of it."""
    data = Seal().seal(path, LINES)
    with pytest.raises(NotSealedError, match="line 3 has no seal") as caught:
        Seal().lines(path, data + b'{"c":3}\n')
    assert caught.value.is_old


@pytest.mark.parametrize("changed", [b'{"a":2}', b'{"a":1} '])
def test_a_changed_line_is_refused(path, changed):
    """The seal is that of the line."""
    data = Seal().seal(path, LINES).replace(LINES[0], changed)
    with pytest.raises(NotSealedError, match="line 1 is not sealed with this user's key"):
        Seal().lines(path, data)


def test_lines_that_change_places_are_refused(path):
    """The seal is that of the line's number, so none is repeated or left out in the middle."""
    first, second = Seal().seal(path, LINES).splitlines(keepends=True)
    for data in (second + first, first + first, second):
        with pytest.raises(NotSealedError):
            Seal().lines(path, data)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_file_of_another_place_is_refused(path, level):
    """A sealed file that is copied to another name, process or destination is not delivered."""
    data = Seal().seal(path, LINES)
    parts = list(path.parts)
    parts[-1 - level] = "other"
    with pytest.raises(NotSealedError):
        Seal().lines(path.__class__(*parts), data)


def test_a_folder_that_was_moved_as_a_whole_is_read(path, tmp_path):
    """Where a volume is mounted does not count."""
    data = Seal().seal(path, LINES)
    assert Seal().lines(tmp_path / "elsewhere" / path.relative_to(tmp_path), data) == LINES


def test_the_key_of_another_user_seals_nothing(path, state):
    """A line that was sealed with another key is refused."""
    data = Seal().seal(path, LINES)
    (state / KEY).unlink()
    own_key()
    with pytest.raises(NotSealedError, match="not sealed with this user's key"):
        Seal().lines(path, data)


def test_a_process_goes_on_with_the_key_it_has(path, state):
    """A key that cannot be read for a while costs the process nothing that it sealed itself."""
    seal = Seal()
    data = seal.seal(path, LINES)
    (state / KEY).unlink()
    assert seal.lines(path, data) == LINES


# --- the key -------------------------------------------------------------------------------------


def test_the_key_is_this_users_alone(state):
    """32 random bytes in a file that nobody else can read."""
    key = own_key()
    assert len(key) == 32
    assert stat.S_IMODE((state / KEY).stat().st_mode) == 0o600
    assert own_key() == key
    assert known_keys() == [key]


def test_to_look_for_a_key_creates_none(state):
    """A reader leaves no trace."""
    assert known_keys() == []
    assert not state.exists()


def test_threads_that_create_the_key_at_once_get_the_same(state):
    """As two processes do: each opens the lock for itself."""
    keys, begin = [], threading.Barrier(8)

    def create():
        begin.wait()
        keys.append(own_key())

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 8
    assert len(set(keys)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_processes_that_create_the_key_at_once_get_the_same(state):
    """Each waits for the same byte; whoever is second takes the first one's."""
    begin, go = os.pipe()
    result, answer = os.pipe()
    children = []
    for _ in range(4):
        child = os.fork()
        if not child:
            os.close(go)
            os.read(begin, 1)
            os.write(answer, own_key())
            os._exit(0)
        children.append(child)
    os.close(go)
    os.close(answer)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    keys = os.read(result, 1000)
    assert keys == own_key() * 4
    os.close(begin)
    os.close(result)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("where", ["draft.replace", "os.fsync"])
def test_a_process_that_is_killed_while_it_creates_the_key_leaves_none(state, monkeypatch, where):
    """Half a key is never read; the next process creates a whole one."""
    child = os.fork()
    if not child:
        target = "pathlib.Path.replace" if where == "draft.replace" else "os.fsync"
        monkeypatch.setattr(target, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        own_key()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert (state / f"{KEY}.new").exists()
    assert not (state / KEY).exists()
    key = own_key()
    assert (len(key), own_key()) == (32, key)
    assert not (state / f"{KEY}.new").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_was_forked_while_the_key_was_created_holds_no_lock(state, monkeypatch):
    """The child has the lock file open, too: the lock is let go, not only closed."""
    made = module._created
    children = []

    def forked(folder):
        child = os.fork()
        if not child:
            signal.pause()
        children.append(child)
        return made(folder)

    monkeypatch.setattr(module, "_created", forked)
    monkeypatch.setattr(module, "_PATIENCE", 0.01)
    try:
        own_key()
        (state / KEY).unlink()
        monkeypatch.setattr(module, "_created", made)
        assert own_key() == (state / KEY).read_bytes()
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_file_that_is_no_key_is_not_used(state, content, tmp_path):
    """Neither an empty one, which anybody could know; the temporary folder is what is left."""
    state.mkdir(parents=True, mode=0o700)
    (state / KEY).write_bytes(content)
    assert len(own_key()) == 32
    assert (tmp_path / f"mainstay-{os.geteuid()}" / KEY).exists()
    assert known_keys() == [own_key()]


@pytest.mark.parametrize("plant", ["link", "pipe", "second name", "wide"])
def test_a_planted_key_is_not_used(state, tmp_path, plant):
    """A key that somebody else could know or change is none."""
    state.mkdir(parents=True, mode=0o700)
    (tmp_path / "known").write_bytes(b"k" * 32)
    if plant == "link":
        (state / KEY).symlink_to(tmp_path / "known")
    elif plant == "pipe":
        os.mkfifo(state / KEY)
    elif plant == "second name":
        os.link(tmp_path / "known", state / KEY)
    else:
        (state / KEY).write_bytes(b"k" * 32)
        (state / KEY).chmod(0o666)
    assert own_key() != b"k" * 32
    assert b"k" * 32 not in known_keys()


def test_without_a_private_folder_there_is_no_key(state, tmp_path):
    """Nothing is sealed with a key that others can read or replace."""
    for folder in (state, tmp_path / f"mainstay-{os.geteuid()}"):
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    with pytest.raises(NotPrivateError, match=str(state_folder())):
        own_key()
    assert known_keys() == []
