"""What `mainstay exec` loads before a command that succeeds, and what stands in for the rest."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mainstay.cli import main
from mainstay.cli.exec.command import _PLAIN, _name_of
from mainstay.core.redact.command_line import redacted_words
from mainstay.core.redact.programs import NAMES

WORDS = st.sampled_from(
    [*sorted(NAMES), "token", "password", "secret", "key", "sk", "ghp", "glpat", "xoxb", "akia"]
)
PLAIN = st.from_regex(_PLAIN, fullmatch=True)
PAIRS = st.builds(
    lambda *parts: "".join(parts), WORDS, st.sampled_from("._+-="), st.text("abc123", min_size=6)
)


@given(
    st.one_of(PLAIN, PAIRS, WORDS),
    st.sampled_from(["", "/usr/bin/", "./", "/home/ann/.local/bin/"]),
)
@example("python3.11", "/usr/bin/")
@example("ghp_abcde", "")
def test_a_plain_name_needs_no_redaction(name, folder):
    """The name of a program that is taken as it is is the one that redaction leaves."""
    if _PLAIN.fullmatch(name):
        assert Path(redacted_words([folder + name])[0]).name == name
        assert _name_of(folder + name) == name


def test_a_secret_in_the_name_is_removed():
    """A word that is no plain name is redacted as before."""
    assert "hunter2" not in _name_of("https://ann:hunter2@example.org")


def test_a_command_that_succeeds_loads_little(tmp_path):
    """Redaction, YAML and OpenSSL take longer to load than a command may take."""
    heavy = [
        "mainstay.core.redact.patterns", "yaml", "mainstay.core.events.catalogue", "rich",
        "hashlib", "tempfile", "shutil", "zipfile", "socket", "dataclasses", "difflib", "shlex",
        "mainstay.core.audit.chain", "mainstay.core.circuit.breaker",
        "mainstay.core.analytics.alerts", "mainstay.core.limits.budget",
    ]  # fmt: skip
    if sys.version_info >= (3, 14):
        heavy.remove("dataclasses")  # logging itself loads it
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print([m for m in {heavy!r} if m in sys.modules]))\n"
        "from mainstay.cli import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "exec", "--", "true"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")


def test_the_collector_of_another_program_is_left_alone(monkeypatch):
    """Only the process of a command has other thresholds, and ends without a last search."""
    for name in ("freeze", "set_threshold"):
        monkeypatch.setattr(gc, name, lambda *_: pytest.fail("changed"))
    assert main(["--version"]) == 0
