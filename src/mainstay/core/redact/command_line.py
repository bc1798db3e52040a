"""Secrets of a command line: its words are redacted one by one, before they are quoted.

A word after `-p` is a secret of `sshpass`, a port of `ssh` and a folder of `mkdir`: the options of
common programs are in a table (programs.py). What has a secret name (`--token`, `DB_PASSWORD=`) or
the shape of a secret is found as in any text. Where a program is found among the words, its
options hold from there on, so that `sudo`, `env`, `docker exec` and folders in front of it change
nothing. A word that is a command line itself, as after `sh -c`, is looked at in the same way.

It knows the programs of the table, and hides too much rather than too little: a word that only
looks like a program adds its options.
"""

from __future__ import annotations

import re
import shlex

from mainstay.core.redact.patterns import MARK
from mainstay.core.redact.programs import HEADS, LOGIN_SIGNS, NAMES, PROGRAMS, WRAPPERS, Program
from mainstay.core.redact.redactor import REDACTOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainstay.core.redact.redactor import Redactor

_DEEPEST = 4
"""Command lines inside command lines that are looked at."""
_SUFFIX = re.compile(r"\.(?:exe|cmd|bat|com)$")
_ASSIGNED = re.compile(r"(?s)(-{0,2}[\w.\[\]/:-]*?[A-Za-z_][\w.\]-]*)=(.*)")
_HOLDER = re.compile(r"\$\{?\w+\}?|\$\(.*\)|<.*>|\*+|-")
"""What stands for a value, and is none."""


def redacted_words(words: Iterable[str], redactor: Redactor = REDACTOR) -> list[str]:
    """The words of a command without their secrets.

    >>> redacted_words(["sudo", "/usr/bin/mysql", "-uroot", "-phunter2", "shop"])
    ['sudo', '/usr/bin/mysql', '-uroot', '-p[redacted]', 'shop']
    >>> redacted_words(["curl", "-sSu", "ann:hunter2", "https://example.org"])
    ['curl', '-sSu', 'ann:[redacted]', 'https://example.org']
    """
    return _Walk(redactor, 0).words(list(words))


def redacted_line(words: Sequence[str], redactor: Redactor = REDACTOR) -> str:
    """A command as one line, quoted for a shell, without its secrets; fit to be stored.

    >>> redacted_line(["sh", "-c", "redis-cli -a hunter2 ping"])
    "sh -c 'redis-cli -a [redacted] ping'"
    """
    line = shlex.join(redacted_words(words, redactor))
    return line.encode("utf-8", "backslashreplace").decode()


class _Walk:
    """One walk along the words of a command."""

    def __init__(self, redactor: Redactor, depth: int) -> None:
        self._redactor = redactor
        self._depth = depth
        self._seen: dict[str, None] = {}
        """The programs of the table so far."""
        self._known: dict[Program, int] = {}
        """Whose options hold, and how many words each has had since that are no options."""
        self._next: Callable[[str], str] | None = None
        """What becomes of the next word, if the one before decides that."""

    def words(self, words: list[str]) -> list[str]:
        found = [self._word(word) for word in words]
        if any(program.last for program in self._known) and not words[-1].startswith("-"):
            found[-1] = MARK  # htpasswd -b FILE USER PASSWORD
        return found

    def _word(self, word: str) -> str:
        if self._next is not None:
            replace, self._next = self._next, None
            return replace(word)
        if word.startswith(("-", "/")):
            found = self._option(word)
            if found is not None:
                return found
        if word.startswith("-"):
            self._enter_by_flag(word)
        elif self._is_placed(word):
            return MARK
        else:
            self._enter(word)
        return self._plain(word)

    # --- programs ---------------------------------------------------------------------------------

    def _enter(self, word: str) -> None:
        """A program, or a subcommand of one that was seen, begins to hold."""
        name = _SUFFIX.sub("", re.split(r"[/\\]", word)[-1].lower()).rstrip("0123456789.")
        for program in WRAPPERS:
            self._known.pop(program, None)
        self._hold(name, *(f"{seen} {name}" for seen in self._seen))
        if name in HEADS:
            self._seen[name] = None

    def _enter_by_flag(self, word: str) -> None:
        """A flag by which words become secrets: `htpasswd -b`."""
        flags = [word] if word.startswith("--") else [f"-{letter}" for letter in word[1:6]]
        self._hold(*(f"{seen} {flag}" for seen in self._seen for flag in flags))

    def _hold(self, *keys: str) -> None:
        self._known |= {PROGRAMS[key]: 0 for key in keys if key in PROGRAMS}

    def _is_placed(self, word: str) -> bool:
        """Whether the word is a secret by its place: the first after `vault login`."""
        is_secret = False
        for program in self._known:
            self._known[program] += 1
            if self._known[program] in program.places and not (program.is_assigned and "=" in word):
                is_secret = True
        return is_secret and not _HOLDER.fullmatch(word)

    # --- options ----------------------------------------------------------------------------------

    def _option(self, word: str) -> str | None:
        """The word without its secret if it is an option that takes one; else None."""
        for program in reversed(self._known):
            found = self._option_of(program, word)
            if found is not None:
                return found
        name, sign, value = word.partition("=")
        if name.startswith("--") or (name.startswith("-") and len(name) > 2):
            if sign and self._is_secret(name):
                return f"{name}={_hidden(value)}"
            if not sign and self._is_secret(name):
                self._next = self._unless_option
                return word
        return None

    def _option_of(self, program: Program, word: str) -> str | None:
        name, sign, value = word.partition("=")
        for options, replace in (
            (program.secrets, _hidden),
            (program.logins, _without_password),
            (program.texts, self._script_or_text),
        ):
            if word in options:
                self._next = replace
                return word
            if sign and name in options:
                return f"{name}={replace(value)}"
            found = _attached(program, options, word, replace)
            if found is not None:
                return found
            letter = _last_letter(program, word)
            if letter is not None and letter in options:
                self._next = replace
                return word
        for prefix in program.attached:
            if word.startswith(prefix) and len(word) > len(prefix):
                return prefix + _hidden(word[len(prefix) :])
        return None

    def _unless_option(self, word: str) -> str:
        """The value of an option that may be a flag: another option is none."""
        return self._word(word) if word.startswith("-") and len(word) > 1 else _hidden(word)

    def _is_secret(self, name: str) -> bool:
        """Whether a value of that name is a secret, by the rules of the redactor."""
        bare = name.lstrip("-/+")
        if bare.lower() in NAMES:
            return True
        return bool(bare) and self._redactor.data({bare: "a1b2c3"}) != {bare: "a1b2c3"}

    # --- other words ------------------------------------------------------------------------------

    def _plain(self, word: str) -> str:
        """A word that no option explains."""
        assigned = _ASSIGNED.fullmatch(word)
        if assigned is not None and not re.match(r"[a-z+]+://", word):
            name, value = assigned.groups()
            is_set = any(program.is_assigned for program in self._known)
            if self._is_secret(name) or (is_set and not word.startswith("-")):
                return f"{name}={_hidden(value)}"
        is_setting = any(program.names_values for program in self._known)
        if is_setting and _SPACE.search(word) is None and self._is_secret(word):
            self._next = self._unless_option
            return word
        return self._script_or_text(word)

    def _script_or_text(self, word: str) -> str:
        if self._depth < _DEEPEST and _SPACE.search(word) is not None:
            word = _script(word, self._redactor, self._depth + 1)
        return self._redactor.text(word)


_SPACE = re.compile(r"[\s;|&]")


def _hidden(value: str) -> str:
    """The mark; nothing and a variable are no secrets, and what OpenSSL reads stays readable."""
    kind, sign, rest = value.partition(":")
    if sign and kind in ("env", "file", "fd"):  # openssl -passin file:key.pass
        return value
    if sign and kind == "pass":
        return f"pass:{MARK if rest else ''}"
    return value if not value or _HOLDER.fullmatch(value) else MARK


def _without_password(value: str) -> str:
    """A user and a password: the user stays."""
    found = LOGIN_SIGNS.search(value)
    return value if found is None else value[: found.end()] + _hidden(value[found.end() :])


def _attached(
    program: Program, options: frozenset[str], word: str, replace: Callable[[str], str]
) -> str | None:
    """`-pX`, and `-sSuX` behind flags: the value is in the same word."""
    if word.startswith("--") or len(word) < 3:
        return None
    for at, letter in enumerate(word[1:-1], 1):
        if f"-{letter}" in options:
            value = word[at + 1 :].removeprefix("=")
            return word[: len(word) - len(value)] + replace(value)
        if letter not in program.flags:
            return None
    return None


def _last_letter(program: Program, word: str) -> str | None:
    """The option at the end of a group of flags, as in `-sSu`."""
    if word.startswith("--") or len(word) < 3 or not set(word[1:-1]) <= set(program.flags):
        return None
    return f"-{word[-1]}"


# --- a command line inside a word -----------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<word>(?:[^\s'"\\;|&()`<>]|\\.|'[^']*+'|"(?:[^"\\]|\\.)*+")++)
    |(?P<end>[;|&()`\n]|[<>]++&?)|(?P<other>[ \t\r\f\v]++|.)""",
    re.VERBOSE | re.DOTALL,
)


_PIPED = re.compile(
    r"\b((?:echo|printf)\s(?:-\w{1,4}\s)?)[^|;&\n]{1,400}+"
    r"(\|[^|;&\n]{0,200}(?:--password-stdin|--passphrase-fd|--with-token|chpasswd|sudo\s+-S))"
)
"""A secret that is written to a program which reads one."""


def _script(text: str, redactor: Redactor, depth: int) -> str:
    """A text of a shell without its secrets; what holds none stays as it is written."""
    parts: list[str] = []
    walk = _Walk(redactor, depth)
    for token in _TOKEN.finditer(text):
        raw = token[0]
        if token["end"] is not None and not raw.startswith(("<", ">")):
            walk = _Walk(redactor, depth)
        if token["word"] is None:
            parts.append(raw)
            continue
        word = _unquoted(raw)
        found = walk.words([word])[0]
        parts.append(raw if found == word else _quoted(found))
    return _PIPED.sub(rf"\1{MARK} \2", "".join(parts))


def _unquoted(raw: str) -> str:
    """The word that a shell makes of it; its quotes are balanced."""
    return "".join(shlex.split(raw)) if set(raw) & set("'\"\\") else raw


def _quoted(word: str) -> str:
    """The word for a shell; the mark needs no quotes to be read."""
    return word if re.fullmatch(r"[\w@%+=:,./\[\]-]+", word) else shlex.quote(word)
