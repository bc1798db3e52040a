"""The name of a command's circuit: its program's path and its script's, never a bare interpreter.

Two failing scripts of a shell must not stop every script of that shell. So a program that runs
whatever it is given has a circuit only if the file that it runs is known. A text of code has none:
it may hold a secret, and a circuit's name is shown. If something is in doubt, there is no circuit:
`--operation` gives one.

Links are not followed: where every program is a link to one file (BusyBox, alternatives), all
would share a circuit.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST = 16
"""Programs in front of a program that are looked through."""


class _Interpreter(NamedTuple):
    """Letters of options: those that are followed by code, and those that take the rest."""

    code: str = ""
    rest: str = ""


_SHELL, _PYTHON = _Interpreter("cs", "oO"), _Interpreter("c", "WXQ")
_PERL, _JAVASCRIPT = _Interpreter("eE", "IMmF0i"), _Interpreter("ep", "r")
_OTHER = _Interpreter("eErBRc")
_OTHERS = (
    r"(?:php|luajit|lua|tclsh|expect|rscript|r|julia|java|jshell|jbang|groovy|scala|amm"
    r"|kotlin|deno|bun|ts-node|tsx|zx|qjs|gjs|d8|coffee|pwsh|powershell|nu|ion|es|osascript"
    r"|guile|racket|sbcl|clojure|bb|nbb|janet|fennel|elixir|iex|escript|erl|ocaml|utop|ghci"
    r"|runghc|octave|maxima|gnuplot|dotnet|swift|crystal|nim|ed|ex|n?vim?|emacs|[gmn]?awk"
    r"|cscript|wscript)"
)
_INTERPRETERS = (
    (r"(?:r?ba|da|r?z|r?k|mk|pdk|lk|a|c|tc|fi|ya|po|r|o|y|hu|sa|wi|elvi)?sh", _SHELL),
    (r"(?:i?python|pypy|jython|(?:micro|circuit|b|pt)python|pyw?|hy|xonsh)", _PYTHON),
    (r"(?:perl|ruby|jruby|truffleruby|raku)", _PERL),
    (r"node(?:js)?", _JAVASCRIPT),
    (_OTHERS, _OTHER),
)
_KNOWN = [
    (re.compile(rf"{names}[0-9.]*w?(?:[-_][\w.]*)?"), interpreter)
    for names, interpreter in _INTERPRETERS
]
"""With a version or a variant behind: python3.12-intel64."""
_RUNNERS = frozenset(
    """
    ssh docker podman nerdctl kubectl oc npx npm yarn pnpm corepack uv uvx poetry pipenv pipx hatch
    pdm tox nox rye conda mamba xargs find parallel watch screen tmux script su runuser chroot
    unshare nsenter systemd-run flatpak flatpak-spawn snap mainstay just task rake bundle gradle
    gradlew mvn mvnw ant sbt cargo go bazel ninja cmake invoke fab ansible ansible-playbook
    cmd wsl strace ltrace gdb valgrind perf proot fakeroot firejail bwrap entr direnv op doppler
    tini dumb-init gosu su-exec setpriv capsh pkexec runcon eatmydata rlwrap setarch linux32 linux64
    numactl cgexec catchsegv xvfb-run dbus-run-session systemd-inhibit chpst softlimit envdir
    s6-setuidgid s6-softlimit faketime torsocks torify proxychains proxychains4 nsjail hyperfine
    mpirun mpiexec srun sem rr pyenv rbenv nvm asdf mise nix nix-shell guix start-stop-daemon
    daemonize cronic logsave trickle with-contenv aws-vault chamber dotenv envchain vault-env sops
    foreman honcho overmind
    """.split()
)
"""They run what they are given, or one of many things that a folder holds."""

_WRAPPERS = {
    "env": ("uC", 0), "sudo": ("ugpCcDhRrtTU", 0), "doas": ("uC", 0), "nice": ("n", 0),
    "timeout": ("ks", 1), "gtimeout": ("ks", 1), "nohup": ("", 0), "setsid": ("", 0),
    "stdbuf": ("ioe", 0), "ionice": ("cn", 0), "chrt": ("", 1), "taskset": ("", 1),
    "time": ("fo", 0), "sshpass": ("pfdP", 0), "flock": ("wE", 1), "chronic": ("", 0),
    "busybox": ("", 0), "toybox": ("", 0), "caffeinate": ("tw", 0), "unbuffer": ("", 0),
    "command": ("", 0), "exec": ("a", 0), "prlimit": ("", 0),
}  # fmt: skip
"""Programs in front of a program: options with a value, and words before the program."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")


def circuit_name(command: Sequence[str]) -> str | None:
    """The name of the circuit of a command; None if what the command runs is not known.

    >>> circuit_name(["sh", "-c", "exit 1"]), circuit_name(["sh"])
    (None, None)
    >>> circuit_name(["no-such-program"])
    """
    import shutil  # which loads every compression

    words = _without_wrappers(list(command))
    path = shutil.which(words[0]) if words else None
    if path is None:
        return None
    name = _parts(os.path.abspath(path), words[1:])  # noqa: PTH100  a link stays one
    return None if name is None else name.encode("utf-8", "backslashreplace").decode().strip()


def _parts(path: str, arguments: Sequence[str]) -> str | None:
    program = program_name(path)
    if program in _RUNNERS:
        return None
    if program in ("make", "gmake", "bmake"):
        script = _makefile(arguments)
        return None if script is None else f"{path} {script}"
    interpreter = _interpreter(program) or _interpreter(program_name(os.path.realpath(path)))
    if interpreter is not None:
        script = _script(interpreter, arguments)
        return None if script is None else f"{path} {script}"
    return None if any(map(_is_interpreter, arguments)) else path


def _interpreter(program: str) -> _Interpreter | None:
    return next((found for names, found in _KNOWN if names.fullmatch(program)), None)


def _is_interpreter(word: str) -> bool:
    """Whether a word behind a program is an interpreter that can be run: then it may run that."""
    import shutil

    return _interpreter(program_name(word)) is not None and shutil.which(word) is not None


def program_name(word: str) -> str:
    """The name of a program, without its folder, its case and what Windows appends.

    >>> program_name("/usr/bin/python3"), program_name("C:/Tools/Curl.EXE")
    ('python3', 'curl')
    """
    name = Path(word).name.lower()
    return re.sub(r"\.(?:exe|cmd|bat|com)$", "", name)


def _without_wrappers(words: list[str]) -> list[str]:
    """The command behind `env`, `sudo` and the like; nothing if it cannot be found for sure."""
    for _ in range(_MOST):
        found = _WRAPPERS.get(program_name(words[0])) if words else None
        if found is None:
            return words
        words = _after(found, words[1:])
    return []


def _after(wrapper: tuple[str, int], words: list[str]) -> list[str]:
    """What follows a wrapper's own options and words."""
    valued, own = wrapper
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if (word.startswith("--") and "=" not in word) or word.startswith("-S"):
            return []  # whether a value follows is not known; or it is the command (env -S)
        if word.startswith("-") and len(word) > 1:
            at += 2 if word[-1] in valued and len(word) == 2 else 1
        elif _ASSIGNMENT.match(word):
            at += 1
        else:
            break
    return words[at + own :]


def _script(interpreter: _Interpreter, arguments: Sequence[str]) -> str | None:
    """The file that an interpreter runs, or its module; None for code, or if it is in doubt."""
    before = ""
    for at, word in enumerate(arguments):
        if interpreter is _PYTHON and (named := _MODULE.match(word)):
            module = named[1] or "".join(arguments[at + 1 : at + 2])
            return f"-m {module}" if module else None
        if word == "-" or _is_code(interpreter, word):
            return None
        if not word.startswith("-"):
            if Path(word).is_file():
                has_more = not all(each.startswith("-") for each in arguments[at + 1 :])
                if has_more and _may_take(interpreter, before):
                    return None  # node -r hook.js app.js
                return os.path.abspath(word)  # noqa: PTH100  as above
            if not before.startswith("-") and word not in _SUBCOMMANDS:
                return None  # awk PROGRAM data.txt
        before = word
    return None


_MODULE = re.compile(r"-[A-VYZa-ln-z]*m(.*)", re.DOTALL)
"""`-m` of Python, also behind flags; what follows -W and -X is their value."""
_SUBCOMMANDS = ("run", "exec")


def _may_take(interpreter: _Interpreter, option: str) -> bool:
    """Whether the word after an option may be its value, as far as is known."""
    if not option.startswith("-") or "=" in option:
        return False
    if option.startswith("--") or interpreter not in (_SHELL, _PYTHON, _PERL):
        return True
    return option[-1] in interpreter.rest


def _is_code(interpreter: _Interpreter, word: str) -> bool:
    if not word.startswith("-"):
        return False
    if word.startswith("--") or interpreter is _OTHER:  # some have long options with one dash
        name = word.lstrip("-").lower()
        is_short = len(name) == 1 and word[-1] in interpreter.code
        return is_short or name.startswith(("eval", "print", "command", "code", "encoded", "run"))
    for letter in word[1:]:
        if letter in interpreter.code:
            return True
        if letter in interpreter.rest:
            return False
    return False


def _makefile(arguments: Sequence[str]) -> str | None:
    """The file that `make` reads; other folders or files than the usual are read where named."""
    if any(
        word.startswith(("-C", "-f", "--file", "--makefile", "--directory")) for word in arguments
    ):
        return None
    found = next((name for name in _MAKEFILES if Path(name).is_file()), None)
    return None if found is None else os.path.abspath(found)  # noqa: PTH100  as above
