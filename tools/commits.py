"""Whether commit messages keep the rules of CONTRIBUTING.md.

    python tools/commits.py                  every commit since the rules hold
    python tools/commits.py --message FILE   one message, as a commit-msg hook

The subject is an imperative of at most 72 characters in the words of the field; a blank line; a
body that gives the reason. A program sees only the form of that: it refuses what is certainly
wrong, and a reviewer judges the rest. Merges are not checked. If the history cannot be read (no
git, a source archive, a shallow clone), one line on the output names the cause, and the exit code
is 0. Exits 1 on any problem.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SINCE = "bdf140cec54b864ed47aa3e87c2009d83c3010c1"
"""The last commit before the rules: messages up to it stay as they are."""

SUBJECT_LENGTH = 72
LINE_LENGTH = 100
SENTENCE_WORDS = 5

ENDING = re.compile(r"\w*(ed|ing|[^s]s)")
IMPERATIVES = frozenset(
    "alias bias bring canvas embed exceed feed focus need ping proceed ring seed shed speed spring"
    " string succeed swing".split()
)
"""Imperatives that end as a past, a participle or a third person does."""

NOT_IMPERATIVES = frozenset(
    "a an and another at each every few fewer for from if in is it less many more no now of on one"
    " some that the there these this those to two what when where with".split()
)

REPLACED = {
    word: instead
    for words, instead in {
        "tell tells telling told": "emit, report, record, notify or describe",
        "say says saying said": "report, print, record or document",
        "hear hears hearing heard": "receive, observe or listen",
        "story stories retelling": "flow",
        "knock knocks knocking": "run guarded",
        "glance glances glancing": "fast path",
        "calm calms": "quiet",
        "away": "unavailable",
        "trouble troubles": "error",
        "heart hearts beat beats beating": "lease renewal",
        "manner manners": "options",
        "wish wishes": "request",
        "whoever somebody": "the name of the part: caller, worker, operator",
    }.items()
    for word in words.split()
}

PASSING = re.compile(
    r"(fixup|squash|amend)! "
    r"|Merge (branch|branches|commit|remote-tracking branch|tag|pull request) "
)
"""Messages that git writes by itself, and that are gone or exempt when the work lands."""

TRAILER = re.compile(r"[A-Z][A-Za-z-]+: \S.*|\(cherry picked from commit [0-9a-f]+\)")
SCISSORS = re.compile(r"^# -+ >8 -+$.*", re.MULTILINE | re.DOTALL)


class Unreadable(Exception):
    """The history cannot be read here; the message is the cause."""


def main(arguments: list[str] | None = None) -> int:
    """Check the history, or one message; 1 if there are problems."""
    parser = argparse.ArgumentParser(description="Check commit messages.")
    parser.add_argument("--message", type=Path, metavar="FILE", help="check this message alone")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--since", default=SINCE, help="the last commit that is not checked")
    options = parser.parse_args(arguments)
    if options.message is not None:
        return check_message(options.message.read_text(encoding="utf-8"))
    try:
        return check_history(options.root, options.since)
    except Unreadable as cause:
        print(f"commit messages are not checked: {cause}")
        return 0


def check_message(text: str) -> int:
    """Check the file that git gives to a commit-msg hook."""
    message = without_comments(text)
    if PASSING.match(message):
        return 0
    problems = list(problems_of(message))
    if problems:
        print("The commit message needs a change (CONTRIBUTING.md, Commits):")
        print(*(f"  {problem}" for problem in problems), sep="\n")
    return 1 if problems else 0


def check_history(root: Path, since: str) -> int:
    """Check every commit after `since`, and print what to change and how."""
    found = [(commit, text, list(problems_of(text))) for commit, text in read_history(root, since)]
    bad = [(commit, text, problems) for commit, text, problems in found if problems]
    for commit, text, problems in bad:
        print(commit[:12], text.partition("\n")[0])
        print(*(f"  {problem}" for problem in problems), sep="\n")
    if bad:
        print(
            f"{len(bad)} of {len(found)} messages need a change (CONTRIBUTING.md, Commits)."
            " The last one: git commit --amend."
            f" Others that are not pushed: git rebase -i {since[:12]}, with reword."
        )
    return 1 if bad else 0


def read_history(root: Path, since: str) -> list[tuple[str, str]]:
    """Hash and message of the commits after `since`, the oldest first, without merges."""
    top = git(root, "rev-parse", "--show-toplevel").strip()
    if Path(top).resolve() != root.resolve():
        raise Unreadable("this folder is not the root of a git repository")
    try:
        git(root, "merge-base", "--is-ancestor", since, "HEAD")
    except Unreadable:
        shallow = git(root, "rev-parse", "--is-shallow-repository").strip() == "true"
        why = "this clone is shallow" if shallow else "it is not an ancestor of HEAD"
        raise Unreadable(f"{since[:12]}, where the rules begin, is not found; {why}") from None
    log = git(root, "log", "-z", "--reverse", "--no-merges", "--format=%H%n%B", f"{since}..HEAD")
    split = (record.partition("\n") for record in log.split("\0") if record)
    return [(commit, text.strip("\n")) for commit, _, text in split]


def git(root: Path, *arguments: str) -> str:
    """The output of a git command; `Unreadable` if it fails."""
    settings = ("-c", "i18n.logOutputEncoding=UTF-8", "-c", "log.showSignature=false")
    try:
        done = subprocess.run(  # noqa: S603 -- our own arguments
            ["git", *settings, *arguments],  # noqa: S607 -- git is where the path has it
            cwd=root,
            capture_output=True,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unreadable(f"git does not run ({error})") from None
    if done.returncode:
        cause = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        raise Unreadable(cause or f"git {arguments[0]} exits with {done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def without_comments(text: str) -> str:
    """The message as git will store it, for the default cleanup."""
    kept = SCISSORS.sub("", text).splitlines()
    return "\n".join(line.rstrip() for line in kept if not line.startswith("#")).strip("\n")


def problems_of(message: str) -> Iterator[str]:
    """What is wrong with a message, each with what to do."""
    subject, *rest = message.split("\n")
    yield from problems_of_subject(subject)
    if rest and rest[0].strip():
        yield "line 2: not blank; put a blank line between subject and body"
        rest = ["", *rest]
    yield from problems_of_body(subject, rest[1:])


def problems_of_subject(subject: str) -> Iterator[str]:
    """Length, form and words of the first line."""
    if len(subject) > SUBJECT_LENGTH:
        yield f"subject: {len(subject)} characters; at most {SUBJECT_LENGTH}, the rest to the body"
    if not subject[:1].isupper():
        yield "subject: no capital letter at its start; begin with an imperative (Add, Fix)"
    first = next(iter(words_of(subject)), "")
    if first in NOT_IMPERATIVES or (ENDING.fullmatch(first) and first not in IMPERATIVES):
        yield f"subject: {first!r} is no imperative; begin with what the commit does (Add, Fix)"
    if subject.rstrip().endswith("."):
        yield "subject: ends with a period; remove it"
    for word in words_of(re.sub(r"`[^`]*`", "", subject)):
        if word in REPLACED:
            yield (
                f"subject: {word!r} is a replaced word; instead: {REPLACED[word]}"
                " (a name in the code stands in backquotes)"
            )


def problems_of_body(subject: str, lines: list[str]) -> Iterator[str]:
    """A reason, in lines that a terminal shows whole."""
    reason = " ".join(line.strip() for line in lines if not TRAILER.fullmatch(line))
    if not any(is_sentence(text, subject) for text in re.split(r"(?<=[.!?])[)\"'`]*\s+", reason)):
        yield (
            "body: no sentence besides the subject; write why the change is made, and what was"
            f" rejected ({SENTENCE_WORDS} words or more, with a period)"
        )
    for number, line in enumerate(lines, start=3):
        if len(line) > LINE_LENGTH and " " in line.strip():
            yield f"line {number}: {len(line)} characters; wrap it at {LINE_LENGTH} or before"


def is_sentence(text: str, subject: str) -> bool:
    """Whether it is long enough, has an end, and is not the subject again."""
    ends = re.search(r"[.!?][)\"'`]*$", text.rstrip()) is not None
    words = words_of(text)
    return ends and len(words) >= SENTENCE_WORDS and words != words_of(subject)


def words_of(text: str) -> list[str]:
    """The words in lower case; a name such as `away.py` or `exec_says` stays one word."""
    bare = (word.strip(".,;:!?()[]\"'`*-–").lower() for word in text.split())
    return [word.removesuffix("'s").removesuffix("’s") for word in bare if word]


if __name__ == "__main__":
    sys.exit(main())
