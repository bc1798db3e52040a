"""Spill folders and files that another user has planted are not read, renamed or delivered."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from mainstay.core.events.codec import encode
from mainstay.events import CallSucceeded
from mainstay.runtime.private_files import NotPrivateError, state_folder
from mainstay.sinks.delivery import spill as module
from mainstay.sinks.delivery.adopt import adopt, spill_files_in
from mainstay.sinks.delivery.buffer import Buffer
from mainstay.sinks.delivery.seal import NotSealedError, Seal
from mainstay.sinks.delivery.spill import Spill, spilled

STRANGER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
FORGED = encode(CallSucceeded(operation="forged")) + b"\n"


@pytest.fixture(autouse=True)
def places(monkeypatch, tmp_path):
    """A user's state, and a temporary folder that everybody can write."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path / "state" / "mainstay", tmp_path / "tmp" / f"mainstay-{os.geteuid()}"


def event(name="mine"):
    return CallSucceeded(operation=name)


def left_behind(*events, folder=None, name="audit"):
    """The file of a process that is gone."""
    spill = Spill(name, folder)
    path, _ = spill.write(events or [event()], 1)
    spill.forget()
    return path


def delivered(folder=None, name="audit"):
    """The operations that the next process delivers."""
    kept = []
    buffer = Buffer(kept.extend, name=name, spill=folder)
    buffer.put(event("new"))
    assert buffer.flush(60)
    buffer.end()
    return [each.operation for each in kept]


# --- folders -------------------------------------------------------------------------------------


def test_what_a_dead_process_of_this_user_left_is_delivered(places):
    """From the state folder, and from the temporary one if there was no other."""
    left_behind()
    assert delivered() == ["mine", "new"]


def test_without_a_state_folder_the_private_temporary_one_is_used(places, monkeypatch):
    """It is created for this user alone, with a key of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/none")
    path = left_behind()
    assert path.is_relative_to(places[1])
    assert stat.S_IMODE(places[1].stat().st_mode) == 0o700
    assert delivered() == ["mine", "new"]


@as_root
def test_a_temporary_folder_of_another_user_is_not_looked_into(places, caplog):
    """Its name can be computed, so another user can have created it, with records in it."""
    path = left_behind()
    shutil.copytree(places[0], places[1])
    planted = places[1] / path.relative_to(places[0])
    planted.write_bytes(FORGED)
    path.unlink()
    for each in (places[1], *places[1].rglob("*")):
        os.chown(each, STRANGER, STRANGER)
    assert delivered() == ["new"]
    assert planted.exists()
    said = [record.getMessage() for record in caplog.records]
    assert sum(f"{places[1]} belongs to user {STRANGER}" in text for text in said) == 1
    assert spilled() == []


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("how", ["wide", "link"])
def test_a_folder_that_another_user_could_write_is_not_looked_into(
    places, tmp_path, level, how, caplog
):
    """At no level: the state folder, the spill folder, the destination's, the process's."""
    path = left_behind()
    at = path.parents[level]
    if how == "wide":
        at.chmod(0o777)
    else:
        at.rename(tmp_path / "moved")
        at.symlink_to(tmp_path / "moved")
    assert delivered() == ["new"]
    assert path.exists()
    reason = "can be written by every user" if how == "wide" else "is a link"
    assert any(f"{at} {reason}" in record.getMessage() for record in caplog.records)


def test_nothing_is_spilled_into_folders_of_others(places):
    """If both places are refused, the reason is that of the first."""
    for folder in places:
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    with pytest.raises(NotPrivateError, match="can be written by every user"):
        Spill("audit").write([event()], 1)


def test_a_folder_that_is_replaced_while_it_is_used_is_not_written_to(places, tmp_path):
    """A process looks at its folder before each file; a new one is created."""
    spill = Spill("audit", tmp_path / "named")
    path, _ = spill.write([event()], 1)
    (tmp_path / "target").mkdir()
    shutil.move(path.parent, tmp_path / "moved")
    path.parent.symlink_to(tmp_path / "target")
    again, _ = spill.write([event()], 2)
    assert again.parent != path.parent
    assert list((tmp_path / "target").iterdir()) == []


# --- files ---------------------------------------------------------------------------------------


def test_a_record_that_was_not_sealed_is_set_aside(places, caplog):
    """A forged line in a folder of ours is not delivered, and is reported once."""
    path = left_behind()
    path.write_bytes(FORGED)
    assert delivered() == ["new"]
    assert path.with_suffix(".bad").read_bytes() == FORGED
    told = [each.getMessage() for each in caplog.records if "set aside" in each.getMessage()]
    assert len(told) == 1
    assert "line 1 has no seal; `mainstay spill list` shows it" in told[0]
    [found] = spilled()
    assert (found.files, found.aside) == (0, 1)


@pytest.mark.parametrize("what", ["000000000001.jsonl", "spill.key"])
@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), MemoryError()])
def test_what_cannot_be_read_for_want_of_means_waits(places, monkeypatch, what, error):
    """A process with no descriptor left has found no forgery: the file is read later."""
    path = left_behind()
    opened, refusals = os.open, [error]

    def short(file, *rest, **options):
        if os.fspath(file).endswith(what) and refusals:
            raise refusals.pop()
        return opened(file, *rest, **options)

    monkeypatch.setattr("os.open", short)
    assert delivered() == ["mine", "new"]
    assert refusals == []
    assert not path.with_suffix(".bad").exists()


def test_many_files_that_are_set_aside_are_reported_in_one_line(places, caplog):
    """An upgrade does not fill the log."""
    path = left_behind()
    for number in range(1, 5):
        path.with_name(f"{number:012d}.jsonl").write_bytes(FORGED)
    assert delivered() == ["new"]
    told = [each.getMessage() for each in caplog.records if "set aside" in each.getMessage()]
    assert len(told) == 1
    assert told[0].endswith("and 3 more files")


def plant_link(path, mine):
    path.symlink_to(mine)


def plant_hard_link(path, mine):
    os.link(mine, path)


def plant_zero(path, mine):
    path.symlink_to("/dev/zero")


def plant_pipe(path, mine):
    os.mkfifo(path)


def plant_wide(path, mine):
    path.write_bytes(mine.read_bytes())
    path.chmod(0o666)


@pytest.mark.parametrize("plant", [plant_link, plant_hard_link, plant_zero, plant_pipe, plant_wide])
def test_a_planted_file_stops_nothing_and_touches_nothing(places, tmp_path, plant):
    """A link is not followed, a pipe not waited for, a device not read."""
    path = left_behind()
    mine = tmp_path / "mine.jsonl"
    shutil.copy(path, mine)
    path.unlink()
    plant(path, mine)
    before = mine.read_bytes()
    assert delivered() == ["new"]
    assert mine.read_bytes() == before
    assert os.path.lexists(path.with_suffix(".bad"))


@as_root
def test_a_file_of_another_user_is_not_delivered(places):
    """Not even a sealed one."""
    path = left_behind()
    os.chown(path, STRANGER, STRANGER)
    assert delivered() == ["new"]


def test_a_huge_file_is_set_aside_unread(places, monkeypatch):
    """The size is looked at before anything is read; none of that size is written either."""
    path = left_behind()
    size = path.stat().st_size
    monkeypatch.setattr(module, "LARGEST", size - 1)
    with pytest.raises(NotPrivateError, match="more than"):
        Spill("audit").read(path)
    with pytest.raises(OSError, match="too large"):
        Spill("audit").write([event()], 1)
    assert delivered() == ["new"]
    assert path.with_suffix(".bad").stat().st_size == size


@pytest.mark.parametrize("plant", [plant_link, plant_pipe])
def test_a_planted_lock_is_not_opened(places, tmp_path, plant):
    """Its folder is passed over."""
    path = left_behind()
    mine = tmp_path / "mine"
    mine.touch()
    (path.parent / "lock").unlink()
    plant(path.parent / "lock", mine)
    assert delivered() == ["new"]
    assert path.exists()


def test_a_file_of_another_destination_is_refused(places):
    """What was meant for one place goes to no other, sealed or not."""
    path, other = left_behind(), left_behind(name="webhook")
    shutil.copy(path, other)
    with pytest.raises(NotSealedError):
        Spill("webhook").read(other)


# --- adopting ------------------------------------------------------------------------------------


def test_what_an_earlier_version_spilled_is_adopted_and_delivered(places):
    """A person has looked at it; a torn last line stays out, as ever."""
    path = left_behind()
    path.write_bytes(FORGED + FORGED[:20])
    [found] = spill_files_in()
    assert (found.state, found.records, found.operations) == ("not sealed", 1, ["forged"])
    assert found.can_be_adopted
    assert delivered() == ["new"]
    [found] = spill_files_in()
    assert found.is_aside
    assert adopt(path.with_suffix(".bad"))
    [found] = spill_files_in()
    assert (found.state, found.is_ready) == ("sealed", True)
    assert delivered() == ["forged", "new"]


def test_files_whose_key_is_lost_are_adopted(places):
    """As after a container was replaced: sealed anew, not twice."""
    path = left_behind()
    (state_folder() / "spill.key").unlink()
    [found] = spill_files_in()
    assert found.state == "sealed with another key"
    assert adopt(path)
    assert delivered() == ["mine", "new"]


def replaced(monkeypatch, tmp_path, number):
    """The next container: a state and a temporary folder that are new, and the same volume."""
    (tmp_path / f"tmp-{number}").mkdir(mode=0o1777)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / f"state-{number}"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / f"tmp-{number}"))


def volume(tmp_path):
    """A volume of a pod whose processes are not root: a group of several users can write to it."""
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(0o2777)
    return folder


def test_what_waits_on_a_volume_is_delivered_by_the_next_container(tmp_path, monkeypatch):
    """The key lies beside what it seals, in the destination's own folder."""
    folder = volume(tmp_path)
    path = left_behind(folder=folder)
    replaced(monkeypatch, tmp_path, 2)
    assert [each.state for each in spill_files_in(folder)] == ["sealed"]
    assert delivered(folder) == ["mine", "new"]
    key = path.parent.parent / "spill.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) & 0o777 == 0o700


def test_files_that_the_state_folder_sealed_before_are_delivered_from_a_volume(tmp_path):
    """As an earlier version left them: its key counts as long as it is there."""
    path = left_behind(folder=volume(tmp_path))
    data = Seal().seal(path, [encode(event("earlier"))])
    (path.parent.parent / "spill.key").unlink()
    path.write_bytes(data)
    assert delivered(tmp_path / "volume") == ["earlier", "new"]


def test_what_is_adopted_on_a_volume_is_sealed_for_the_next_container(tmp_path, monkeypatch):
    """With the key that lies there."""
    folder = volume(tmp_path)
    path = left_behind(folder=folder)
    path.write_bytes(FORGED)
    assert adopt(path)
    replaced(monkeypatch, tmp_path, 2)
    assert delivered(folder) == ["forged", "new"]


@as_root
@pytest.mark.parametrize("plant", ["folder", "key"])
def test_a_key_on_a_volume_that_is_not_this_users_seals_nothing(tmp_path, plant):
    """Another user of the volume has put it there, or the whole folder of the destination."""
    folder = volume(tmp_path)
    path = left_behind(folder=folder)
    os.chown(path.parent.parent / {"folder": "", "key": "spill.key"}[plant], STRANGER, STRANGER)
    assert delivered(folder) == ["new"]


def test_adopting_overwrites_no_other_file(places):
    """Two files of one number are both delivered."""
    path = left_behind()
    path.with_suffix(".bad").write_bytes(FORGED)
    assert adopt(path.with_suffix(".bad"))
    assert sorted(delivered()) == ["forged", "mine", "new"]


@pytest.mark.parametrize("step", range(1, 6))
def test_a_kill_while_a_file_is_adopted_loses_and_doubles_nothing(places, monkeypatch, step):
    """Between any two changes of names there is one file with the records."""
    path = left_behind().with_suffix(".bad")
    path.write_bytes(FORGED)
    path.with_suffix(".jsonl").unlink()
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        left = [step]
        for name in ("replace", "rename", "unlink"):
            patch.setattr(Path, name, killed_at(left, getattr(Path, name)))
        adopt(path)
    for file in spill_files_in():
        if file.can_be_adopted:
            assert adopt(Path(file.path))
    assert delivered() == ["forged", "new"]


def killed_at(left, change):
    """The change of a name, before which the process ends if it is the one."""

    def changed(*arguments):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return change(*arguments)

    return changed


def test_a_folder_that_is_left_at_this_moment_is_not_adopted_from(places, monkeypatch):
    """Its lock was removed: it keeps no other process out."""
    path = left_behind()

    def locked(file):
        (path.parent / "lock").unlink()
        return True

    monkeypatch.setattr("mainstay.sinks.delivery.adopt.try_lock", locked)
    assert not adopt(path)


def test_a_place_of_another_user_is_named_and_not_looked_into(places):
    """Neither by the list nor by the status, however many folders they have put there."""
    (places[1] / "spill" / "audit-1").mkdir(parents=True)
    places[1].chmod(0o777)
    [found] = spill_files_in()
    assert (found.path, found.state) == (str(places[1]), "refused")
    assert spilled() == []


def test_what_is_no_event_is_not_adopted(places):
    """Its state is shown, with the reason."""
    path = left_behind()
    path.write_bytes(json.dumps({"event_type": "no such"}).encode() + b"\n")
    [found] = spill_files_in()
    assert found.state == "unreadable"
    assert not found.can_be_adopted


def test_a_planted_link_is_shown_and_not_adopted(places, tmp_path):
    """What is refused is refused to whoever has looked at it, too."""
    path = left_behind()
    path.unlink()
    path.symlink_to("/dev/zero")
    [found] = spill_files_in()
    assert (found.state, found.can_be_adopted) == ("refused", False)
    assert "is a link" in found.reason
    with pytest.raises(NotPrivateError):
        adopt(path)


def test_files_of_a_living_process_are_not_adopted(places):
    """Its folder is locked."""
    spill = Spill("audit")
    path, _ = spill.write([event()], 1)
    assert not adopt(path)
    spill.forget()
    assert adopt(path)
