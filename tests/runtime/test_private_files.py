"""The one check of what another user could have put at a name that can be computed."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mainstay.runtime import private_files
from mainstay.runtime.private_files import (
    NotPrivateError,
    check_private,
    create_anew,
    is_private_group,
    make_private,
    open_beside,
    open_private,
    private_folders,
    read_private,
    state_folder,
    why_not_mine,
)

STRANGER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def give_away(path: Path) -> Path:
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    return path


def opened(path: Path, flags: int = os.O_RDONLY, **options) -> bytes:
    file = open_private(path, flags, **options)
    try:
        assert not os.get_inheritable(file)
        return os.read(file, 100)
    finally:
        os.close(file)


# --- where things are ----------------------------------------------------------------------------


def test_a_relative_state_home_does_not_count(monkeypatch, tmp_path):
    """A relative XDG_STATE_HOME would put the state wherever a program is started."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    assert state_folder() == tmp_path / ".local" / "state" / "mainstay"


def test_without_a_home_the_temporary_folder_is_what_is_left(monkeypatch):
    """A process without a home has one folder to try, which is named after the user."""

    def no_home():
        raise RuntimeError

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert [each.name for each in private_folders()] == [f"mainstay-{os.geteuid()}"]


TEMPORARY = """
import sys
from mainstay.runtime.private_files import private_folders
*_, found = private_folders()
was_loaded = "tempfile" in sys.modules
import tempfile
assert str(found.parent) == tempfile.gettempdir(), (found, tempfile.gettempdir())
print(was_loaded)
"""


@pytest.mark.parametrize(
    ("variables", "is_loaded"),
    [
        ({}, False),
        ({"TMPDIR": "{}"}, False),
        ({"TEMP": "{}"}, False),
        ({"TMPDIR": "{}/none"}, True),
        ({"TMPDIR": "{}/none", "TMP": "{}"}, True),
        ({"TMPDIR": ""}, False),
    ],
)
def test_the_temporary_folder_is_that_of_tempfile(tmp_path, variables, is_loaded):
    """It is found without loading it, unless the place is an unusual one."""
    env = {n: value for n, value in os.environ.items() if n not in ("TMPDIR", "TEMP", "TMP")}
    env |= {name: value.format(tmp_path) for name, value in variables.items()}
    done = subprocess.run(
        [sys.executable, "-c", TEMPORARY], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{is_loaded}\n"


def test_a_system_without_a_temporary_folder_has_a_name_for_one(monkeypatch):
    """As in a read-only container; whoever needs a file then has the error of the disk."""

    def nowhere():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    *_, temporary = private_folders()
    assert temporary.is_absolute()
    assert temporary.name == f"mainstay-{os.geteuid()}"


# --- folders -------------------------------------------------------------------------------------


def test_folders_are_created_for_this_user_alone(tmp_path):
    """Whatever the umask is, no level that is created can be read or written by others."""
    before = os.umask(0)
    try:
        make_private(tmp_path / "home" / "state" / "mainstay" / "spill", 2)
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.rglob("*")}
    assert modes == {0o700}


def test_a_folder_of_ours_that_others_can_read_is_closed(tmp_path):
    """Nobody else could write to it, so what is in it is ours; a reader changes nothing."""
    folder = tmp_path / "mainstay"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    check_private(folder, 1)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    make_private(folder, 1)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("check", [make_private, check_private])
@pytest.mark.parametrize("level", [0, 1])
def test_a_folder_that_others_can_write_is_refused(tmp_path, check, level):
    """What lies in it may be another user's: it is not closed and then trusted."""
    folder = tmp_path / "mainstay" / "spill"
    make_private(folder, 2)
    wide = [folder, folder.parent][level]
    wide.chmod(0o777)
    with pytest.raises(NotPrivateError, match=rf"{wide} can be written .*0777.*chmod 700"):
        check(folder, 2)


@pytest.mark.parametrize("check", [make_private, check_private])
@pytest.mark.parametrize("level", [0, 1])
def test_a_link_in_place_of_a_folder_of_ours_is_refused(tmp_path, check, level):
    """A link would have us write, rename and delete in another folder of this user."""
    folder = tmp_path / "mainstay" / "spill"
    target = tmp_path / "target"
    make_private(target / "spill", 2)
    at = [folder, folder.parent][level]
    at.parent.mkdir(mode=0o700, exist_ok=True)
    at.symlink_to(target)
    with pytest.raises(NotPrivateError, match=f"{at} is a link"):
        check(folder, 2)


@pytest.mark.parametrize("check", [make_private, check_private])
def test_a_file_in_place_of_a_folder_is_refused(tmp_path, check):
    """A folder is a folder."""
    (tmp_path / "mainstay").touch()
    with pytest.raises(NotPrivateError, match="is no folder"):
        check(tmp_path / "mainstay", 1)


@as_root
@pytest.mark.parametrize("check", [make_private, check_private])
@pytest.mark.parametrize("level", [0, 1])
def test_a_folder_of_another_user_is_refused(tmp_path, check, level):
    """Another user who was there first decides nothing."""
    folder = tmp_path / "mainstay" / "spill"
    make_private(folder, 2)
    give_away([folder, folder.parent][level])
    with pytest.raises(NotPrivateError, match=f"belongs to user {STRANGER}"):
        check(folder, 2)


@pytest.mark.parametrize("check", [make_private, check_private])
def test_a_level_above_that_others_can_write_is_refused(tmp_path, check):
    """Who can write to the folder above can put another folder in our folder's place."""
    above = tmp_path / "shared"
    make_private(above / "mainstay", 1)
    above.chmod(0o777)
    with pytest.raises(NotPrivateError, match=f"{above} can be written by every user"):
        check(above / "mainstay", 1)


@pytest.mark.parametrize("check", [make_private, check_private])
def test_a_sticky_level_above_is_accepted(tmp_path, check):
    """In a folder such as /tmp nobody can rename what belongs to others."""
    above = tmp_path / "tmp"
    make_private(above / "mainstay", 1)
    above.chmod(0o1777)
    check(above / "mainstay", 1)


@as_root
@pytest.mark.parametrize("check", [make_private, check_private])
def test_a_level_above_of_another_user_is_refused(tmp_path, check):
    """The owner of a folder can rename what is in it, whatever its mode is."""
    above = tmp_path / "theirs"
    make_private(above / "mainstay", 1)
    give_away(above)
    with pytest.raises(NotPrivateError, match=f"{above} belongs to user"):
        check(above / "mainstay", 1)


def test_a_level_above_may_be_a_link_whose_way_is_checked_too(tmp_path):
    """`/home` is a link on some systems; each folder that a link leads through is looked at."""
    real = tmp_path / "var" / "home"
    real.mkdir(parents=True, mode=0o700)
    (tmp_path / "home").symlink_to(Path("var") / "." / ".." / "var" / "home")
    make_private(tmp_path / "home" / "mainstay", 1)
    assert (real / "mainstay").is_dir()
    real.parent.chmod(0o777)
    with pytest.raises(NotPrivateError, match="can be written by every user"):
        make_private(tmp_path / "home" / "mainstay", 1)


@as_root
def test_a_link_of_another_user_above_is_refused(tmp_path):
    """In a sticky folder another user can put a link to a folder of ours."""
    (tmp_path / "real").mkdir(mode=0o700)
    give_away_link = tmp_path / "state"
    give_away_link.symlink_to(tmp_path / "real")
    give_away(give_away_link)
    with pytest.raises(NotPrivateError, match=f"{give_away_link} belongs to user"):
        make_private(give_away_link / "mainstay", 1)


@as_root
def test_nothing_is_created_behind_a_link_of_another_user(tmp_path):
    """The levels that are there are looked at first."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "mine")
    give_away(tmp_path / "state")
    with pytest.raises(NotPrivateError, match="belongs to user"):
        make_private(tmp_path / "state" / "a" / "b" / "mainstay", 1)
    assert list((tmp_path / "mine").iterdir()) == []


def test_links_in_a_circle_end(tmp_path):
    """A path without an end is an error, not an endless loop."""
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for check in (make_private, check_private):
        with pytest.raises(OSError, match="a"):
            check(tmp_path / "a" / "mainstay", 1)


def test_a_folder_that_a_user_named_is_theirs_to_choose(tmp_path):
    """Above our levels a named path may be wide or a link; our own level may not."""
    (tmp_path / "wide").mkdir()
    (tmp_path / "wide").chmod(0o777)
    (tmp_path / "named").symlink_to(tmp_path / "wide")
    make_private(tmp_path / "named" / "ours", 1, is_named=True)
    (tmp_path / "wide" / "ours").chmod(0o777)
    for check in (make_private, check_private):
        with pytest.raises(NotPrivateError):
            check(tmp_path / "named" / "ours", 1, is_named=True)


# --- files ---------------------------------------------------------------------------------------


def test_a_file_is_created_for_this_user_alone(tmp_path):
    """0600 whatever the umask is, and no program that is started inherits it."""
    before = os.umask(0)
    try:
        opened(tmp_path / "key", os.O_RDWR | os.O_CREAT)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def plant_link(path: Path) -> None:
    (path.parent / "mine").write_text("mine")
    path.symlink_to(path.parent / "mine")


def plant_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def plant_dangling(path: Path) -> None:
    path.symlink_to(path.parent / "new")


def plant_pipe(path: Path) -> None:
    os.mkfifo(path)


def plant_folder(path: Path) -> None:
    path.mkdir()


PLANTED = [plant_link, plant_zero, plant_dangling, plant_pipe, plant_folder]
FLAGS = [os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC]


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("plant", PLANTED)
@pytest.mark.parametrize("opens", [open_private, open_beside])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path, opens, plant, flags):
    """A link is not followed, a pipe not waited for, a device not read; nothing is created."""
    path = tmp_path / "file"
    plant(path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(NotPrivateError, match=f"{path} is "):
        opens(path, flags)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("plant", PLANTED)
def test_a_name_that_changes_between_look_and_open_is_refused(tmp_path, monkeypatch, plant, flags):
    """What was opened counts: a link or pipe that comes after the first look is refused, too."""
    path = tmp_path / "file"
    plant(path)

    def nothing_there(self):
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "lstat", nothing_there)
    with pytest.raises((NotPrivateError, IsADirectoryError)):
        open_private(path, flags)
    assert not (tmp_path / "new").exists()


def test_a_hard_link_is_refused_and_not_truncated(tmp_path):
    """Truncating comes after the look: a file of ours under a second name keeps its content."""
    (tmp_path / "mine").write_text("mine")
    os.link(tmp_path / "mine", tmp_path / "file")
    with pytest.raises(NotPrivateError, match="second name"):
        open_private(tmp_path / "file", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    assert (tmp_path / "mine").read_text() == "mine"


def test_truncating_works_on_a_file_of_ours(tmp_path):
    """O_TRUNC is kept, after the look."""
    (tmp_path / "file").write_text("before")
    os.close(open_private(tmp_path / "file", os.O_WRONLY | os.O_TRUNC))
    assert (tmp_path / "file").read_text() == ""


@as_root
def test_a_file_of_another_user_is_refused(tmp_path):
    """Even root reads no foreign file as its own."""
    (tmp_path / "file").write_text("planted")
    give_away(tmp_path / "file")
    with pytest.raises(NotPrivateError, match=f"belongs to user {STRANGER}"):
        open_private(tmp_path / "file", os.O_RDONLY)


def test_a_file_that_others_can_write_is_refused(tmp_path):
    """Its content may be another user's."""
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o666)
    with pytest.raises(NotPrivateError, match=r"can be written by every user \(mode 0666\)"):
        open_private(tmp_path / "file", os.O_RDONLY)


def test_a_file_larger_than_its_limit_is_refused(tmp_path):
    """A huge file does not fill the memory, not even one that grows while it is read."""
    (tmp_path / "file").write_bytes(b"x" * 11)
    assert read_private(tmp_path / "file", 11) == b"x" * 11
    with pytest.raises(NotPrivateError, match="has 11 bytes, more than 10"):
        read_private(tmp_path / "file", 10)


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path, monkeypatch):
    """The size at the look is no promise."""
    (tmp_path / "file").write_bytes(b"x" * 11)
    monkeypatch.setattr(private_files, "_not_private", lambda *_: None)
    with pytest.raises(NotPrivateError, match="more than 10"):
        read_private(tmp_path / "file", 10)


@pytest.mark.parametrize("plant", [plant_link, plant_zero, plant_dangling, plant_pipe])
def test_a_draft_replaces_what_has_its_name(tmp_path, plant):
    """A link in place of a draft is removed; what it leads to is neither created nor changed."""
    plant(tmp_path / "file.new")
    others = {path: path.read_text() for path in tmp_path.iterdir() if path.name == "mine"}
    os.close(create_anew(tmp_path / "file.new"))
    found = (tmp_path / "file.new").lstat()
    assert stat.S_ISREG(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert {path: path.read_text() for path in others} == others
    assert not (tmp_path / "new").exists()


def test_a_draft_whose_name_is_always_taken_is_refused(tmp_path, monkeypatch):
    """Somebody who creates it again and again is named, and does not stop the process."""
    (tmp_path / "file.new").touch()
    monkeypatch.setattr(Path, "unlink", lambda self: None)
    with pytest.raises(NotPrivateError, match="comes back"):
        create_anew(tmp_path / "file.new")


# --- owner and mode ------------------------------------------------------------------------------


class Account:
    """The user and group databases of a machine with some users."""

    def __init__(self, monkeypatch, *, members=(), others=(), name="me"):
        me = pwd.struct_passwd(("me", "x", os.geteuid(), 700, "", "/", ""))
        rest = [pwd.struct_passwd(("you", "x", 4000, gid, "", "/", "")) for gid in others]
        group = grp.struct_group((name, "x", 700, list(members)))
        monkeypatch.setattr(pwd, "getpwuid", lambda uid: me)
        monkeypatch.setattr(pwd, "getpwall", lambda: [me, *rest])
        monkeypatch.setattr(grp, "getgrgid", lambda gid: group)


@pytest.mark.parametrize("members", [(), ("me",)])
def test_a_private_group_may_write(monkeypatch, tmp_path, members):
    """A umask of 002 with a group per user is the default of many systems."""
    Account(monkeypatch, members=members, others=[701])
    assert is_private_group(700)
    assert not is_private_group(701)


@pytest.mark.parametrize(
    "account", [{"members": ["me", "you"]}, {"others": [700]}, {"name": "users"}]
)
def test_a_group_with_others_in_it_is_not_private(monkeypatch, account):
    """Neither one with a second member, nor another user's primary group, nor a common one."""
    Account(monkeypatch, **account)
    assert not is_private_group(700)


def test_a_user_without_an_account_has_no_private_group(monkeypatch):
    """A container may run under a number that nobody has."""

    def unknown(uid):
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert not is_private_group(700)


def test_why_a_folder_that_a_group_can_write_is_not_mine(monkeypatch, tmp_path):
    """The words have the group and the mode; with a private group there is nothing to tell."""
    tmp_path.chmod(0o775)
    monkeypatch.setattr(private_files, "is_private_group", lambda gid: False)
    gid = tmp_path.stat().st_gid
    assert why_not_mine(tmp_path.lstat()) == f"can be written by group {gid} (mode 0775)"
    monkeypatch.setattr(private_files, "is_private_group", lambda gid: True)
    assert why_not_mine(tmp_path.lstat()) is None


def test_a_system_without_owners_refuses_links_all_the_same(monkeypatch, tmp_path):
    """As on Windows: no owner and no mode, but no link and no second name either."""
    monkeypatch.setattr(private_files, "_HAS_OWNERS", False)
    make_private(tmp_path / "mainstay", 1)
    (tmp_path / "mainstay").chmod(0o777)
    make_private(tmp_path / "mainstay", 1)
    (tmp_path / "link").symlink_to(tmp_path / "mainstay")
    with pytest.raises(NotPrivateError, match="is a link"):
        make_private(tmp_path / "link", 1)
    plant_link(tmp_path / "file")
    with pytest.raises(NotPrivateError, match="is a link"):
        open_private(tmp_path / "file", os.O_RDONLY)
