"""`mainstay config trust`, and what other commands make of a file that is not trusted."""

import json
import os

import pytest

from mainstay.cli import guard

SHOP = "store: postgresql://app:${DB_PASSWORD}@db.example/shop\nretry: {default: standard}\n"


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A working directory with a configuration that needs trust."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DB_PASSWORD", "hunter2")
    monkeypatch.setenv("COLUMNS", "300")
    path = tmp_path / "mainstay.yml"
    path.write_text(SHOP, encoding="utf-8")
    return path


@pytest.fixture
def mainstay(capsys):
    """Runs `mainstay`: its exit code, and what it wrote."""

    def mainstay(*arguments):
        code = guard.run(list(arguments))
        out, err = capsys.readouterr()
        return code, out + err

    return mainstay


def test_a_file_is_trusted_once_and_until_it_changes(shop, mainstay):
    """What is trusted is shown, without secrets; a change needs it again."""
    code, out = mainstay("config", "check")
    assert (code, "mainstay config trust mainstay.yml" in out) == (1, True)
    code, out = mainstay("config", "trust")
    assert code == 0
    assert "postgresql://app:${DB_PASSWORD}@db.example/shop" in out
    assert "trusted until it changes; it names store, ${DB_PASSWORD}" in out
    assert mainstay("config", "check")[0] == 0
    shop.write_text(SHOP.replace("db.example", "evil.example"), encoding="utf-8")
    code, out = mainstay("policies")
    assert (code, "has changed since it was trusted" in out) == (2, True)
    code, out = mainstay("config", "trust", "mainstay.yml", "--json")
    found = json.loads(out)
    assert (code, found["trusted"], found["names"]) == (0, True, ["store", "${DB_PASSWORD}"])


def test_what_is_trusted_is_listed_and_can_be_revoked(shop, mainstay):
    """With the state of each file now."""
    assert mainstay("config", "trust", "--list") == (0, "no file is trusted\n")
    mainstay("config", "trust")
    code, out = mainstay("config", "trust", "--list")
    assert (code, str(shop) in out, "as trusted" in out) == (0, True, True)
    shop.write_text(SHOP + "inbox: {escalate: true}\n", encoding="utf-8")
    mainstay("config", "trust")
    (first, second) = json.loads(mainstay("config", "trust", "--list", "--json")[1])
    assert (first["file"], first["content"], second["content"]) == (
        str(shop),
        "other",
        "as trusted",
    )
    assert mainstay("config", "trust", "--revoke") == (0, f"{shop}: trusted no longer\n")
    code, out = mainstay("config", "trust", "--revoke", str(shop), "--json")
    assert (code, json.loads(out)["revoked"]) == (1, 0)
    assert mainstay("config", "check")[0] == 1
    shop.unlink()
    assert mainstay("config", "trust", "--list", "--json") == (0, "[]\n")


def test_a_file_with_policies_alone_needs_no_trust(shop, mainstay):
    shop.write_text("retry: {default: standard}\n", encoding="utf-8")
    assert "needs no trust" in mainstay("config", "trust")[1]
    assert json.loads(mainstay("config", "trust", "--json")[1])["is_needed"] is False


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_what_others_can_write_cannot_be_trusted(shop, mainstay):
    """By the time it is used it may be another file."""
    shop.chmod(0o666)
    code, out = mainstay("config", "trust")
    assert (code, "can be written by every user" in out, "--config" in out) == (2, True, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--list", "mainstay.yml"], "--list takes neither"),
        (["nowhere.yml"], "there is no such file"),
        (["--revoke", "--list"], "--list takes neither"),
    ],
)
def test_a_mistake_is_told(shop, mainstay, arguments, message):
    code, out = mainstay("config", "trust", *arguments)
    assert (code, message in out) == (2, True)


@pytest.mark.parametrize("arguments", [[], ["--list"], ["--revoke"]], ids=str)
def test_a_damaged_list_is_named_with_the_way_out(shop, mainstay, arguments):
    """As an earlier loss of power may have left it."""
    assert mainstay("config", "trust")[0] == 0
    kept = shop.parent / "state" / "mainstay" / "trusted-configurations.json"
    kept.write_bytes(b"")
    code, out = mainstay("config", "trust", *arguments)
    assert (code, f"{kept} is damaged" in out, "move it elsewhere" in out) == (2, True, True)


@pytest.mark.parametrize("arguments", [[], ["--list"], ["--revoke"]], ids=str)
def test_without_a_state_folder_nothing_can_be_trusted(shop, mainstay, monkeypatch, arguments):
    """A user without an account has no home; the file can be named."""

    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr("pathlib.Path.home", unknown)
    code, out = mainstay("config", "trust", *arguments)
    assert (code, "neither read nor kept" in out, "--config" in out) == (2, True, True)


def test_without_a_file_there_is_nothing_to_trust(shop, mainstay):
    shop.unlink()
    code, out = mainstay("config", "trust")
    assert (code, "no configuration was found" in out) == (2, True)


def test_exec_does_not_run_on_a_file_that_is_not_trusted(shop, mainstay):
    """The store it names might be anybody's."""
    code, out = mainstay("exec", "--", "sh", "-c", "echo ran > ran")
    assert (code, "mainstay config trust mainstay.yml" in out) == (2, True)
    assert not (shop.parent / "ran").exists()


def test_the_doctor_has_the_reason_and_the_way_out(shop, mainstay):
    """And the file, if all is well."""
    code, out = mainstay("doctor", "--json")
    (problem,) = json.loads(out)["problems"]
    assert (code, "mainstay config trust mainstay.yml" in problem) == (1, True)
    mainstay("config", "trust")
    code, out = mainstay("doctor", "--json")
    assert (code, json.loads(out)["configuration"]) == (0, "mainstay.yml")
    shop.write_text("a: 1\nb: 1\nc: 1\nd: 1\n", encoding="utf-8")
    code, out = mainstay("doctor")
    assert (code, "mainstay.yml: 4 problems: mainstay config check" in out) == (1, True)


def test_nothing_that_a_terminal_obeys_is_shown(shop, mainstay):
    """The file may come from anywhere: it is shown before it is trusted."""
    shop.write_text('sinks: {jsonl: {path: "a\\e[2Jb"}}\n', encoding="utf-8")
    code, out = mainstay("config", "trust")
    assert (code, "\x1b" in out) == (0, False)
