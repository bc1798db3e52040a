"""The name of a process, by which others on its machine find out that it has ended."""

import subprocess
import sys

from mainstay.runtime import identity
from mainstay.runtime.identity import has_ended, process_name
from tests.processes import needs_proc

PRINT = "from mainstay.runtime.identity import process_name; print(process_name(), flush=True)"


@needs_proc
def test_a_process_that_runs_has_not_ended_and_one_that_ran_has():
    """A zombie has ended too: it does nothing more."""
    program = [sys.executable, "-c", f"{PRINT}; input()"]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        name = other.stdout.readline().strip()
        assert name != process_name()
        assert not has_ended(name)
        other.stdin.close()
        other.stdout.read()
        other.wait(60)
    assert has_ended(name)
    assert not has_ended(process_name())


@needs_proc
def test_a_number_that_was_given_again_is_another_process():
    """By when it started."""
    assert has_ended(process_name() + "0")


@needs_proc
def test_a_process_elsewhere_may_run():
    """Of another boot, another machine or another container nothing is known."""
    boot, rest = process_name().split(" ", 1)
    assert not has_ended(f"other-{boot} {rest}")
    for name in ("", "7", "a b"):
        assert not has_ended(name)


@needs_proc
def test_a_process_that_proc_does_not_show_may_run(monkeypatch, tmp_path):
    """As with `hidepid`, or ProtectProc of systemd, if it belongs to another user."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        name = identity._name_of(other.pid)
        for shown in ("sys/kernel/random/boot_id", "self/ns/pid"):
            (tmp_path / shown).parent.mkdir(parents=True)
        boot = identity._PROC / "sys/kernel/random/boot_id"
        (tmp_path / "sys/kernel/random/boot_id").write_text(boot.read_text())
        (tmp_path / "self/ns/pid").symlink_to((identity._PROC / "self/ns/pid").readlink())
        monkeypatch.setattr(identity, "_PROC", tmp_path)
        assert not has_ended(name)
        other.communicate(b"\n", timeout=60)
    assert has_ended(name)
    identity._name_of.cache_clear()


def test_without_proc_there_is_no_name(monkeypatch, tmp_path):
    """Such a process is gone when it has been silent for long enough."""
    monkeypatch.setattr(identity, "_PROC", tmp_path)
    identity._name_of.cache_clear()
    assert process_name() == ""
    assert not has_ended("boot ns 1 2")
    identity._name_of.cache_clear()
