"""`mainstay config init`: a file to begin with."""

import json
import os
import re
import stat
import threading

import pytest
import yaml

from mainstay.cli import guard
from mainstay.cli.config.starter import STARTER
from mainstay.config.doubts import doubts_of
from mainstay.config.load import load


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_writes_a_file_that_check_accepts(folder, capsys):
    """And that is used at once, since it needs no trust."""
    assert guard.run(["config", "init"]) == 0
    assert guard.run(["config", "check"]) == 0
    assert "mainstay.yml: no problems; 3 policies, 2 operations" in capsys.readouterr().out
    assert guard.run(["config", "init", "other.yml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": "other.yml", "written": True}


def test_a_file_that_is_there_is_kept_unless_forced(folder, capsys):
    (folder / "mainstay.yml").write_text("retry: {}\n")
    assert guard.run(["config", "init"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert (folder / "mainstay.yml").read_text() == "retry: {}\n"
    assert guard.run(["config", "init", "--force"]) == 0
    assert (folder / "mainstay.yml").read_text() == STARTER


@pytest.mark.parametrize("plant", ["link", "dangling", "pipe", "folder"])
def test_only_a_regular_file_is_replaced(folder, capsys, plant):
    """With a link its target was overwritten; a pipe was waited for."""
    (folder / "mine").write_text("mine")
    path = folder / "mainstay.yml"
    match plant:
        case "link":
            path.symlink_to("mine")
        case "dangling":
            path.symlink_to("new")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
    before = path.lstat().st_ino
    watch = threading.Timer(5.0, lambda: os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK)))
    watch.start()
    assert guard.run(["config", "init", "--force"]) == 2
    assert watch.is_alive(), "waited for a reader of the pipe"
    watch.cancel()
    kind = "a link" if path.is_symlink() else "no regular file"
    err = capsys.readouterr().err
    assert f"mainstay.yml is {kind}" in err
    assert "next: " in err
    assert path.lstat().st_ino == before
    assert (folder / "mine").read_text() == "mine"
    assert not (folder / "new").exists()


def test_a_file_with_a_second_name_keeps_it_under_that(folder):
    """The new file is put in place of the name; it has the mode of the one before."""
    (folder / "mine").write_text("mine")
    (folder / "mine").chmod(0o600)
    os.link(folder / "mine", folder / "mainstay.yml")
    assert guard.run(["config", "init", "--force"]) == 0
    assert (folder / "mine").read_text() == "mine"
    assert (folder / "mainstay.yml").read_text() == STARTER
    assert stat.S_IMODE((folder / "mainstay.yml").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["mainstay.toml", "no/such/folder/mainstay.yml"])
def test_what_cannot_be_written_is_a_mistake(name):
    assert guard.run(["config", "init", name]) == 2


def test_every_line_is_explained():
    """A comment stands above each key, or above a key before it in the same group."""
    lines = STARTER.splitlines()
    for number, line in enumerate(lines):
        key = re.match(r"\s*(\w+|\"[^\"]+\"|[\w.]+):", line)
        if key and not line.lstrip().startswith("#") and key[1] not in ("retry", "policies"):
            block = lines[:number]
            while block and block[-1].strip() and not block[-1].lstrip().startswith("#"):
                block.pop()
            assert block, line
            assert block[-1].lstrip().startswith("#"), line


def test_what_is_commented_out_is_valid_too(folder):
    """Whoever removes the signs has a valid file."""
    whole = re.sub(r"(?m)^( *)# ( *[a-z]\w*:(?: \S.*)?)$", r"\1\2", STARTER)
    found = yaml.safe_load(whole)
    assert {"retry", "circuitBreaker", "budgets", "store", "sinks"} <= set(found)
    assert "attemptTimeout" in found["retry"]["policies"]["standard"]
    (folder / "all.yml").write_text(whole)
    loaded = load("all.yml", env={})
    assert loaded.report.problems == []
    assert doubts_of(loaded).warnings == []
