"""The check of commit messages, on messages and on small repositories made for each test."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import commits

ROOT = Path(__file__).parents[2]
SUBJECT = "Refuse a lease that has expired"
BODY = "A worker that was suspended wrote over the result of its successor."
GOOD = f"{SUBJECT}\n\n{BODY}\n"


def problems(message):
    """What is wrong with a message, as one text."""
    return "\n".join(commits.problems_of(message.strip("\n")))


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        f"{'A' + 'b' * 71}\n\n{BODY}",
        f"Embed the schema in the wheel\n\n{BODY}",
        f"Pass the engine to each driver\n\n{BODY}",
        f"Process items in order of arrival\n\n{BODY}",
        f"Rename `story` to `flow`\n\n{BODY}",
        f"Rename away.py to store_retry.py\n\n{BODY}",
        f"Send a heartbeat while a keyed call runs\n\n{BODY}",
        f"{SUBJECT}\n\n{BODY}\n\nReviewed-by: A Person <person@example.org>",
        f"{SUBJECT}\n\n{BODY}\nSee\nhttps://example.org/{'x' * 120}",
        f"{SUBJECT}\n\n{SUBJECT}. {BODY}",
        f'{SUBJECT}\n\nThe text was "lease is still held by nobody."\n',
    ],
)
def test_a_good_message_has_no_problem(message):
    """What the rules allow is not refused, names of the code and long addresses included."""
    assert problems(message) == ""


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("A" + "b" * 72, "73 characters; at most 72"),
        ("refuse a lease that has expired", "no capital letter at its start"),
        ("core: refuse a lease", "no capital letter at its start"),
        ("", "no capital letter at its start"),
        ("Refuse a lease that has expired.", "ends with a period"),
        ("Refused a lease that has expired", "'refused' is no imperative"),
        ("Refusing a lease that has expired", "'refusing' is no imperative"),
        ("Refuses a lease that has expired", "'refuses' is no imperative"),
        ("A lease that has expired", "'a' is no imperative"),
        ("One way to hold a lease", "'one' is no imperative"),
        *(
            (f"Let a lease {word} here", f"'{word}' is a replaced word; instead: ")
            for word in "tell told say said hear heard story knock glance calm away heart".split()
        ),
        ("Say, once, that a lease has expired", "'say' is a replaced word"),
        ("Stop the heart's thread at fork", "'heart' is a replaced word"),
    ],
)
def test_a_subject_that_breaks_a_rule_is_refused(subject, problem):
    """Each rule of the subject has its own message, with what to do."""
    found = list(commits.problems_of(f"{subject}\n\n{BODY}"))
    assert any(line.startswith(f"subject: {problem}") for line in found)


@pytest.mark.parametrize(
    "body",
    [
        "",
        f"\n\n{SUBJECT}.",
        f"\n\n{SUBJECT.lower()}!",
        "\n\nIt was wrong.",
        "\n\nbecause the lease of a worker had expired",
        "\n\nReviewed-by: A Person who reads all of it. <person@example.org>",
        "\n\n(cherry picked from commit 0123456789abcdef)",
    ],
)
def test_a_body_without_a_reason_is_refused(body):
    """No body, the subject again, a fragment or trailers alone give no reason."""
    assert problems(SUBJECT + body).startswith("body: no sentence besides the subject; write why")


def test_the_second_line_is_blank():
    """Git takes the first paragraph for the subject."""
    assert problems(f"{SUBJECT}\n{BODY}") == (
        "line 2: not blank; put a blank line between subject and body"
    )


def test_a_long_line_of_the_body_is_named():
    """The number is that of the line in the message."""
    assert problems(f"{GOOD}{'word ' * 20}") == ""
    assert problems(f"{GOOD}{'word ' * 20}w") == "line 4: 101 characters; wrap it at 100 or before"


class Repository:
    """A git repository of a test, apart from the settings of the person who runs it."""

    def __init__(self, root):
        self.root = root
        root.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments):
        """Run git and return its output."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        person = {"NAME": "A Person", "EMAIL": "person@example.org"}
        named = {f"GIT_{who}_{k}": v for who in ("AUTHOR", "COMMITTER") for k, v in person.items()}
        apart = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env=kept | named | apart,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout.strip()

    def commit(self, message):
        """Make an empty commit and return its hash."""
        self.git("commit", "--quiet", "--allow-empty", "--allow-empty-message", "-m", message)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with one commit from before the rules: `repository.since`."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)  # those of a hook that runs the tests
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    made = Repository(tmp_path / "repository")
    made.since = made.commit("said before the rules.")
    return made


def check(root, since, capsys):
    """Exit code and output of the check of a history."""
    code = commits.main(["--root", str(root), "--since", since])
    return code, capsys.readouterr().out


def test_only_commits_after_the_base_are_checked(repository, capsys):
    """What was written before the rules stays as it is, and good messages pass in silence."""
    assert check(repository.root, repository.since, capsys) == (0, "")
    repository.commit(GOOD)
    assert check(repository.root, repository.since, capsys) == (0, "")


def test_a_bad_commit_is_named_with_what_to_do(repository, capsys):
    """Its hash, its subject, each problem, and the command that mends it."""
    repository.commit(GOOD)
    bad = repository.commit("told")
    repository.commit(GOOD)
    code, out = check(repository.root, repository.since, capsys)
    assert code == 1
    lines = out.splitlines()
    assert lines[0] == f"{bad[:12]} told"
    assert [line.split(":")[0] for line in lines[1:-1]] == ["  subject", "  subject", "  body"]
    assert lines[-1] == (
        "1 of 3 messages need a change (CONTRIBUTING.md, Commits). The last one: git commit"
        f" --amend. Others that are not pushed: git rebase -i {repository.since[:12]}, with reword."
    )


def test_a_merge_is_not_checked_but_what_it_brings_is(repository, capsys):
    """Git words a merge by itself; the commits of its branch have authors."""
    repository.git("switch", "--quiet", "--create", "side")
    repository.commit(GOOD)
    repository.git("switch", "--quiet", "main")
    repository.git("merge", "--quiet", "--no-ff", "--no-edit", "side")
    assert check(repository.root, repository.since, capsys) == (0, "")
    repository.git("switch", "--quiet", "side")
    bad = repository.commit("worse")
    repository.git("switch", "--quiet", "main")
    repository.git("merge", "--quiet", "--no-ff", "--no-edit", "side")
    code, out = check(repository.root, repository.since, capsys)
    assert (code, out[:18]) == (1, f"{bad[:12]} worse")


def test_a_fixup_commit_does_not_land(repository, capsys):
    """The hook lets it pass, for it is squashed before it lands; the history has none."""
    repository.commit(f"fixup! {GOOD}")
    assert check(repository.root, repository.since, capsys)[0] == 1


BEFORE = 296  # commits up to the base
NOT_CHECKED = "commit messages are not checked: "


def test_a_shallow_clone_is_not_checked(repository, tmp_path, capsys):
    """It has no base; one line gives the cause, and the check passes."""
    repository.commit("worse")
    shallow = tmp_path / "shallow"
    repository.git("clone", "--quiet", "--depth=1", repository.root.as_uri(), str(shallow))
    code, out = check(shallow, repository.since, capsys)
    assert (code, out.count("\n")) == (0, 1)
    assert out.startswith(NOT_CHECKED)
    assert "shallow" in out


def test_a_history_without_the_base_is_not_checked(repository, tmp_path, capsys):
    """Another project's history, for example where the source was imported."""
    other = Repository(tmp_path / "other")
    other.commit("worse")
    code, out = check(other.root, repository.since, capsys)
    assert (code, out.count("\n")) == (0, 1)
    assert "not an ancestor" in out


def test_a_source_archive_is_not_checked(repository, tmp_path, capsys):
    """Neither alone nor unpacked inside another repository, whose commits are not ours."""
    repository.commit("worse")
    inside = repository.root / "archive"
    inside.mkdir()
    code, out = check(inside, repository.since, capsys)
    assert (code, out.count("\n")) == (0, 1)
    assert "not the root of a git repository" in out
    alone = tmp_path / "alone"
    alone.mkdir()
    code, out = check(alone, repository.since, capsys)
    assert (code, out.count("\n")) == (0, 1)
    assert out.startswith(NOT_CHECKED)


def test_a_machine_without_git_is_not_checked(repository, monkeypatch, tmp_path, capsys):
    """A source archive on a machine that never had git."""
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out = check(repository.root, repository.since, capsys)
    assert (code, out.count("\n")) == (0, 1)
    assert "git does not run" in out


COMMENTED = f"""\
{GOOD}
# Please enter the commit message for your changes.
# ------------------------ >8 ------------------------
diff --git a/x b/x
{"+ long " * 40}
"""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (GOOD, 0),
        (COMMENTED, 0),
        (f"\n# a comment first\n{GOOD}", 0),
        ("fixup! Refuse a lease\n", 0),
        ("Merge branch 'side'\n", 0),
        ("Merge the two encoders\n", 1),
        ("said\n", 1),
        (f"{SUBJECT}\n\n# {BODY}\n", 1),
    ],
)
def test_a_hook_checks_the_file_that_git_gives_it(text, code, tmp_path, capsys):
    """Comments and the diff below the scissors are not part of the message."""
    path = tmp_path / "COMMIT_EDITMSG"
    path.write_text(text, encoding="utf-8")
    assert commits.main(["--message", str(path)]) == code
    out = capsys.readouterr().out
    assert out.startswith("The commit message needs a change") if code else out == ""


def test_it_runs_as_a_commit_msg_hook_of_git(repository):
    """Git refuses a bad message, and takes a good one."""
    hook = repository.root / ".git/hooks/commit-msg"
    hook.parent.mkdir(exist_ok=True)
    program = f"'{sys.executable}' '{ROOT / 'tools/commits.py'}'"
    hook.write_text(f'#!/bin/sh\nexec {program} --message "$1"\n', encoding="utf-8")
    hook.chmod(0o755)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        repository.commit("said")
    assert "is a replaced word" in refused.value.stdout + refused.value.stderr
    assert repository.commit(GOOD) != repository.since


def test_the_base_is_a_commit_of_this_history():
    """If it were mistyped, the check would pass for ever without looking at anything."""
    try:
        top, count = (
            commits.git(ROOT, "rev-parse", "--show-toplevel").strip(),
            int(commits.git(ROOT, "rev-list", "--count", "HEAD")),
        )
    except commits.Unreadable as cause:
        pytest.skip(str(cause))
    if Path(top) != ROOT or count < BEFORE:
        pytest.skip("the history is not here: a source archive or a shallow clone")
    commits.read_history(ROOT, commits.SINCE)


def test_the_check_is_part_of_make_check():
    """`make check`, `make check-rest` and so .ci/run look at the messages."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("check", "check-rest"):
        assert "commits" in re.search(rf"^{target}:(.*?)##", makefile, re.MULTILINE)[1].split()
