"""The folder of the command line's own store is this user's, or it is not used."""

from __future__ import annotations

import os

import pytest

from mainstay.engine.user_store import default_store


@pytest.fixture
def state(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "mainstay"


def test_the_state_folder_is_created_for_this_user_alone(state):
    """Nobody else can look into it."""
    assert default_store().startswith(f"sqlite:///{state}/mainstay.db")
    assert state.stat().st_mode & 0o077 == 0


def test_a_state_folder_that_others_can_write_is_refused(state):
    """What it holds may be somebody else's."""
    state.mkdir()
    state.chmod(0o777)
    with pytest.raises(PermissionError, match="can be written by every user"):
        default_store()


def test_a_state_folder_behind_a_link_is_refused(state, tmp_path):
    """A link would make the store where somebody else wants it."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    state.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="is a link"):
        default_store()
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_state_folder_of_another_user_is_refused(state):
    """Their records are not ours."""
    state.mkdir(mode=0o700)
    os.chown(state, 54321, 54321)
    with pytest.raises(PermissionError, match="belongs to user 54321"):
        default_store()


def _linked(path, elsewhere):
    elsewhere.write_bytes(b"")
    path.symlink_to(elsewhere)


def _piped(path, _elsewhere):
    os.mkfifo(path)


def _wide(path, _elsewhere):
    path.write_bytes(b"")
    path.chmod(0o666)


def _twice(path, elsewhere):
    elsewhere.write_bytes(b"")
    path.hardlink_to(elsewhere)


@pytest.mark.parametrize("name", ["mainstay.db", "mainstay.db-wal", "mainstay.db-journal"])
@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        (_linked, "is a link"),
        (_piped, "is no regular file"),
        (_wide, "can be written by every user"),
        (_twice, "has a second name"),
    ],
)
def test_a_file_of_the_store_that_may_be_anothers_is_refused(state, tmp_path, name, plant, reason):
    """The folder may have been open before its mode was corrected."""
    state.mkdir(mode=0o700)
    plant(state / name, tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match=reason) as refused:
        default_store()
    assert str(state / name) in str(refused.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_the_store_of_another_user_is_refused(state):
    """Their records are not ours, whatever the folder is now."""
    state.mkdir(mode=0o700)
    (state / "mainstay.db").write_bytes(b"")
    os.chown(state / "mainstay.db", 54321, 54321)
    with pytest.raises(PermissionError, match="belongs to user 54321"):
        default_store()
