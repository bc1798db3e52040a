"""The checks that git runs at a commit, as .pre-commit-config.yaml has them."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CONFIG = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
HOOKS = {hook["id"]: hook for repository in CONFIG["repos"] for hook in repository["hooks"]}


def test_no_hook_is_downloaded():
    """Every hook is a program of .venv, of the version that `make check` uses."""
    assert [repository["repo"] for repository in CONFIG["repos"]] == ["local"]
    for hook in HOOKS.values():
        assert hook["language"] == "system"
        assert hook["entry"].startswith(".venv/bin/")


@pytest.mark.parametrize("name", ["ruff", "mypy"])
def test_the_tools_of_the_hooks_are_pinned(name):
    """They come with `make setup`."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert any(line.startswith(f"{name}==") for line in groups["dependency-groups"]["dev"])
    assert any(f".venv/bin/{name}" in hook["entry"] for hook in HOOKS.values())


def test_the_message_is_checked_when_git_has_it():
    """At the stage commit-msg, which `pre-commit install` installs too."""
    hook = HOOKS["commit-message"]
    assert hook["stages"] == ["commit-msg"]
    assert hook["entry"].endswith("tools/commits.py --message")
    assert CONFIG["default_install_hook_types"] == ["pre-commit", "commit-msg"]


def test_contributing_lists_the_commands_of_the_makefile():
    """Each command in the table exists, and each that `make` lists is in it."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `make ([a-z-]+)", page, re.MULTILINE))
    exist = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
    parts_of_check = {"lint", "types", "layers", "commits", "cover", "check-rest", "docs"}
    assert listed - exist == set()
    assert exist - listed - parts_of_check == {"help"}


def test_contributing_promises_no_folder_that_is_not_there():
    """A path below tests/, docs/, tools/, src/ or bench/ that a guide names exists."""
    for name in ("CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for path in re.findall(r"`?\b((?:tests|docs|tools|src|bench)/[\w./-]*\w)", text):
            assert (ROOT / path).exists(), f"{name} names {path}"
