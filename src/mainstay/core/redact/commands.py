"""Secrets of commands, by the options of common programs: in command lines, and in any text.

A word after `-p` is a secret of `sshpass`, a port of `ssh` and a folder of `mkdir`: the options of
common programs are in one table (programs.py). Where a program is found among the words, its
options hold from there on, so that `sudo`, `env`, `docker exec` and folders in front of it change
nothing. A word that is a command line itself, as after `sh -c`, is looked at in the same way.

It knows the programs of the table, and hides too much rather than too little: a word that only
looks like a program adds its options.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from mainstay.core.redact import MARK
from mainstay.core.redact.plain import is_dense, is_plain, is_random, is_reference
from mainstay.core.redact.programs import HEADS, LOGIN_SIGNS, PROGRAMS, WRAPPERS, Program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstay.core.redact.names import SecretNames

    Span = tuple[int, int]

_DEEPEST = 4
"""Command lines inside command lines that are looked at."""
_SUFFIX = re.compile(r"\.(?:exe|cmd|bat|com)$")
_ASSIGNED = re.compile(r"(?s)(-{0,2}[\w.\[\]/:-]*?[A-Za-z_][\w.\]-]*)=(.*)")
_HOLDER = re.compile(r"\$\{?\w+\}?|\$\(.*\)|<.*>|\*+|-")
"""What stands for a value, and is none."""
_SPACE = re.compile(r"[\s;|&]")
_SWITCH = re.compile(r"/[A-Za-z]{1,12}:\S*")
"""An option of a program of Windows."""
_LOGIN = re.compile(r"([\w.@%+-]{1,60}:)([^:/\s]{4,200})")
_USER_OPTIONS = frozenset("-u -U -l -x --user --username -user -username".split())
_PASSWORD_OPTIONS = frozenset("-p -P -w -pw /p".split())
_LONG = re.compile(r"-\w{2,}")
"""An option as some programs write all of theirs: `-key` is none of `-k` and a value."""


class Rules(NamedTuple):
    """What decides about the words that no program explains."""

    is_secret: Callable[[str], bool]
    """Whether a value of that name is a secret."""
    can_be_secret: Callable[[str], bool]
    """Whether a word is one that stands where a program takes a secret without an option."""
    text: Callable[[str], str]
    """A text without its secrets."""


class Walk:
    """One walk along the words of a command."""

    def __init__(self, rules: Rules, depth: int = 0) -> None:
        self._rules = rules
        self._depth = depth
        self._seen: dict[str, None] = {}
        """The programs of the table so far."""
        self._known: dict[Program, int] = {}
        """Whose options hold, and how many words each has had since that are no options."""
        self._next: Callable[[str], str] | None = None
        """What becomes of the next word, if the one before decides that."""
        self._is_named = False
        """Whether the setting that was named last is a secret."""
        self._has_user = False
        """Whether an option for a user came before."""
        self.is_whole = True
        """Whether no word follows those that are given."""

    def words(self, words: list[str]) -> list[str]:
        """The words without their secrets."""
        found = [self._word(word) for word in words]
        is_last = self.is_whole and any(program.last for program in self._known)
        if is_last and not words[-1].startswith("-"):
            found[-1] = self._placed(words[-1])  # htpasswd -b FILE USER PASSWORD
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
        elif not self._is_switch(word) and self._is_placed(word):
            return self._placed(word)
        else:
            self._enter(word)
        return self._plain(word)

    def _is_switch(self, word: str) -> bool:
        """Whether it is an option of Windows: `/user:ann`, and `/add` of `net`."""
        is_net = "net" in self._seen and word.startswith("/")
        return is_net or _SWITCH.fullmatch(word) is not None

    # --- programs ---------------------------------------------------------------------------------

    def _enter(self, word: str) -> None:
        """A program, or a subcommand of one that was seen, begins to hold."""
        name = _SUFFIX.sub("", re.split(r"[/\\]", word)[-1].lower().lstrip("(")).rstrip(
            "0123456789."
        )
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
            is_value = program.is_assigned and "=" in word
            is_secret = is_secret or (self._known[program] in program.places and not is_value)
        return is_secret and not _HOLDER.fullmatch(word) and not word.startswith(("//", "\\\\"))

    def _placed(self, word: str) -> str:
        if self._rules.can_be_secret(word):
            return MARK
        login = _LOGIN.fullmatch(word)  # bundle config HOST USER:PASSWORD
        is_login = login is not None and self._rules.can_be_secret(login[2])
        return word if login is None or not is_login else login[1] + MARK

    # --- options ----------------------------------------------------------------------------------

    def _option(self, word: str) -> str | None:
        """The word without its secret if it is an option that takes one; else None."""
        for program in reversed(self._known):
            found = self._option_of(program, word)
            if found is not None:
                return found
        name, sign, value = word.partition("=")
        if name.startswith("--") or (name.startswith("-") and len(name) > 2):
            if sign and self._rules.is_secret(name):
                return f"{name}={_hidden(value)}"
            if not sign and self._rules.is_secret(name):
                is_optional = name == "--password" and any(
                    "-p" in each.attached for each in self._known
                )
                self._next = self._if_written if is_optional else self._unless_option
                return word
        if word in _USER_OPTIONS:
            self._has_user = True
        elif word in _PASSWORD_OPTIONS:
            self._next = self._if_random
            return word
        return None

    def _if_random(self, word: str) -> str:
        """What follows `-p` of a program that is not in the table: a port, a folder, a password."""
        is_password = is_dense(word) or (self._has_user and is_random(word, is_named=True))
        return MARK if is_password and "/" not in word else self._word(word)

    def _if_written(self, word: str) -> str:
        """What follows `--password` of MySQL, which takes a value behind `=` only."""
        return MARK if is_random(word, is_named=True) else self._word(word)

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
        return self._naming(word) if word in program.naming else None

    def _naming(self, word: str) -> str:
        """An option for the name of a setting, or for its value: `reg add /v NAME /d VALUE`."""
        is_value = any(program.naming[1:] == (word,) for program in self._known)
        self._next = self._name
        if is_value:
            self._next = _hidden if self._is_named else self._rules.text
        return word

    def _name(self, word: str) -> str:
        self._is_named = self._rules.is_secret(word)
        return word

    def _unless_option(self, word: str) -> str:
        """The value of an option that may be a flag: another option is none."""
        return self._word(word) if word.startswith("-") and len(word) > 1 else _hidden(word)

    # --- other words ------------------------------------------------------------------------------

    def _plain(self, word: str) -> str:
        """A word that no option explains."""
        assigned = _ASSIGNED.fullmatch(word)
        if assigned is not None and not re.match(r"[a-z+]+://", word):
            name, value = assigned.groups()
            is_set = any(program.is_assigned for program in self._known)
            is_set = is_set and not word.startswith("-") and self._rules.can_be_secret(value)
            if is_set or self._rules.is_secret(name):
                return f"{name}={_hidden(value)}"
        is_setting = any(program.names_values for program in self._known)
        if is_setting and _SPACE.search(word) is None and self._rules.is_secret(word):
            self._next = self._unless_option
            return word
        return self._script_or_text(word)

    def _script_or_text(self, word: str) -> str:
        if self._depth < _DEEPEST and _SPACE.search(word) is not None:
            word = _script(word, self._rules, self._depth + 1)
        return self._rules.text(word)


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
    if word.startswith("--") or len(word) < 3 or any(map(_LONG.fullmatch, options)):
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
_READERS = (
    r"(?:secrets?[ ](?:set|put|add|create)\b|--password-stdin|--passphrase-fd"
    r"|--with-token|--stdin|chpasswd|kinit|sudo[ ]{1,4}-S"
    r"|cryptsetup|smbpasswd)"
)
_PIPED = re.compile(
    r"\b(?:echo|printf)[ ](?:-\w{1,4}[ ]|'%s(?:\\n)?'[ ]|\"%s(?:\\n)?\"[ ])?['\"]?"
    r"(?:[\w.-]{1,60}:)?"
    rf"(?P<secret>[^|;&\r\n]{{1,400}}?)['\"]?[ ]{{0,4}}\|[^|;&\r\n]{{0,200}}?{_READERS}"
    rf"|{_READERS}[^|;&<\r\n]{{0,100}}<<<[ ]?['\"]?(?:[\w.-]{{1,60}}:)?(?P<here>[^\s'\"]{{1,200}}+)"
)
"""A secret that is written to a program which reads one."""


def _script(text: str, rules: Rules, depth: int) -> str:
    """A text of a shell without its secrets; what holds none stays as it is written."""
    parts: list[str] = []
    walk = Walk(rules, depth)
    for token in _TOKEN.finditer(text):
        raw = token[0]
        if token["end"] is not None and not raw.startswith(("<", ">")):
            walk = Walk(rules, depth)
        if token["word"] is None:
            parts.append(raw)
            continue
        word = _unquoted(raw)
        found = walk.words([word])[0]
        parts.append(raw if found == word else _quoted(found))
    return _without_piped("".join(parts))


def _without_piped(text: str) -> str:
    for start, end in reversed([*_piped(text)]):
        text = text[:start] + MARK + text[end:]
    return text


def _piped(text: str) -> Iterator[Span]:
    for found in _PIPED.finditer(text):
        group = found.lastgroup or ""
        if not is_reference(found[group]):
            yield found.span(group)


def _unquoted(raw: str) -> str:
    """The word that a shell makes of it; its quotes are balanced."""
    return "".join(shlex.split(raw)) if set(raw) & set("'\"\\") else raw


def _quoted(word: str) -> str:
    """The word for a shell; the mark needs no quotes to be read."""
    return word if re.fullmatch(r"[\w@%+=:,./\[\]-]+", word) else shlex.quote(word)


# --- commands in a text ---------------------------------------------------------------------------


def _signs() -> Iterator[str]:
    """What one of must be in a text with such a command: an option, or a program with places."""
    for program in PROGRAMS.values():
        for option in (*program.secrets, *program.logins, *program.attached, *program.naming):
            yield f" {option[:3].lower()}"
            yield f"'{option[:3].lower()}"
            yield f'"{option[:3].lower()}'
        is_placed = program.places or program.last or program.names_values
        if is_placed or program.is_assigned or program.flags:
            head = program.name.partition(" ")[0]
            yield from (f"{head} ", f"{head}',", f'{head}",')


SIGNS = (*dict.fromkeys(_signs()), "echo ", "printf ", "<<<")
_PROGRAM = re.compile(
    r"(?<![\w.-])(?:"
    + "|".join(map(re.escape, sorted(HEADS, reverse=True)))
    + r")[0-9.]{0,5}(?:\.exe)?(?=[ ]|['\"],|['\"][ ](?:a[0-9]{1,3}=)?['\"])",
    re.IGNORECASE,
)
_ITEM = re.compile(
    r"""(?:['"]?,[ ]?|['"][ ](?:a[0-9]{1,3}=)?)"""
    r"""(?:'(?P<one>(?:[^'\\\r\n]|\\.)*+)'|"(?P<two>(?:[^"\\\r\n]|\\.)*+)")"""
)
_LONGEST = 1000
"""Of a command in a text."""


def _same(word: str) -> str:
    return word


_PHRASE = re.compile(r"\w{2,20}(?:[ ][\w!&+-]{1,20}){1,4}")
"""Some words in quotes, where a program takes one."""


_SENTENCE = re.compile(
    r"""(?i)(?<![\w./=-])(?:the|an?|is|was|are|were|be|has|had|have|failed|fails|fail|not|for|with|from
    |to|of|and|or|command|commands|returned|returns|error|errors|if|when|must|should|you|your
    |please|see|because|after|before|than|that|this|then|expects?|requires?|needs?|succeeded|succeeds
    |timed|expired|exited|usage|using|use|via|but|does|can|cannot|could|will|too|did|it|its|in|on|as)(?![\w./=-])
    |["'`]\s[a-z]{2,}\s[a-z]{2,}""",
    re.VERBOSE,
)
"""What a line has in it if it is about a command."""
_LETTERS = re.compile(r"[^\W\d_][\w!@#%^&*.+/~-]{3,100}+")


def _can_be_secret(word: str) -> bool:
    return is_random(word, is_named=True) or _PHRASE.fullmatch(word) is not None


def _can_be_word(word: str) -> bool:
    """Whether a word of a line that is a command and nothing else can be a secret."""
    is_word = _LETTERS.fullmatch(word) is not None and not ("/" in word and "@" in word)
    is_word = is_word and not is_plain(word, "", is_quoted=False)
    return _can_be_secret(word) or is_word


def _is_command(text: str, at: int) -> bool:
    """Whether the line is a command, and no sentence about one."""
    first = max(text.rfind("\n", max(0, at - _LINE), at) + 1, at - _LINE, 0)
    last = text.find("\n", at, at + _LINE)
    end = at + _LINE if last < 0 else last
    if _NET_USE.match(text, at):  # no sentence, for all that `use` is a word of one
        return _SENTENCE.search(text, first, at) is None and "\\\\" in text[at:end]
    return _SENTENCE.search(text, first, end) is None and _SETTINGS.match(text, at) is None


_SETTINGS = re.compile(
    r"(?:poetry|composer|bundle) config (?!(?:--?\w[\w-]{0,20} |set |add ){0,4}"
    r"(?:http-basic|pypi-token|bearer|github-oauth|git(?:hub|lab|ea)-(?:oauth|token)|bitbucket-oauth"
    r"|custom-headers|[\w-]{1,60}\.[\w.-]{1,100} [\w.%+-]{1,60}:)[. ]?)"
)
"""What sets values of any sort, but for logins."""
_NET_USE = re.compile(r"(?i)net use[ ]")


_LINE = 160


def in_commands(text: str, names: SecretNames) -> Iterator[Span]:
    """Where the secrets of commands stand, in a line and in a list of words."""
    yield from _piped(text)
    loose = Rules(names.is_secret, _can_be_secret, _same)
    strict = Rules(names.is_secret, _can_be_word, _same)
    at = 0
    while (program := _PROGRAM.search(text, at)) is not None:
        at = program.end()
        is_command = _is_command(text, program.start())
        walk = Walk(strict if is_command else loose)
        walk.words([program[0]])
        words = _items if text.startswith(("'", '"'), at) or _ITEM.match(text, at) else _line
        found_words = list(words(text, at))
        for number, (start, raw, word) in enumerate(found_words, 1):
            walk.is_whole = not is_command or number == len(found_words)
            found = walk.words([word])[0]
            at = start + len(raw)
            if found != word and MARK in found:
                yield _place(start, raw, found)


def _line(text: str, at: int) -> Iterator[tuple[int, str, str]]:
    """The words of a shell, to the end of the command."""
    for token in _TOKEN.finditer(text, at, at + _LONGEST):
        if token["end"] is not None:
            return
        if token["word"] is not None:
            yield token.start(), token[0], _unquoted(token[0])


def _items(text: str, at: int) -> Iterator[tuple[int, str, str]]:
    """The words of a list: `['sshpass', '-p', 'hunter2']`."""
    last = at + _LONGEST
    while (item := _ITEM.match(text, at, last)) is not None:
        at = item.end() - 1
        group = item.lastgroup or ""
        yield item.start(group), item[group], item[group]


def _place(start: int, raw: str, found: str) -> Span:
    """Where the secret stands in a word, without the quotes around it."""
    prefix, _, rest = found.partition(MARK)
    first = 1 if raw[0] in "'\"" and not prefix.startswith(raw[0]) else 0
    if raw.startswith(prefix, first):
        first += len(prefix)
    if raw[first] in "'\"":
        first += 1
    last = len(raw) - (raw[-1] in "'\"" and len(raw) - 1 > first)
    last -= len(rest) if raw.endswith(rest, first, last) else 0
    return start + first, start + last
