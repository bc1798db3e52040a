"""The skeleton: exit codes, errors, pipes, colours, and what starting costs."""

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from shutil import which

import click
import pytest

import mainstay
from mainstay.cli import guard
from mainstay.cli.app import HOMES, app
from mainstay.cli.audit import command as audit
from mainstay.cli.config import policies
from mainstay.cli.errors import CommandError, explain
from mainstay.cli.exits import Exit
from mainstay.cli.options import asks_for_json
from mainstay.cli.screen.console import Screen
from mainstay.errors import Problem

ROOT = Path(__file__).parents[2]
MAIN = "import sys; from mainstay.cli import main; sys.exit(main())"
INSTALL = "pip install 'mainstay[cli]'"


def every_command(command=app, path=("mainstay",)):
    """Each command and subcommand with its words."""
    context = click.Context(command, info_name=path[-1])
    yield path, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from every_command(command.get_command(context, name), (*path, name))


EVERY = list(every_command())
IDS = [" ".join(path) for path, _, _ in EVERY]


def python(code, *arguments, **options):
    """Runs a line of Python as a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def test_version(run):
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"mainstay {mainstay.__version__}\n")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["demo", "--help"]])
def test_what_needs_no_engine_loads_none(arguments):
    """Start-up stays close to that of click: neither rich, nor asyncio, nor the engine."""
    code = (
        f"import sys; from mainstay.cli import main; main({arguments!r})\n"
        "heavy = {'rich', 'asyncio', 'msgspec', 'yaml', 'mainstay.engine', 'mainstay.core'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    assert python(code).stderr == "[]\n"


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
def test_ctrl_c_while_python_ends_shows_no_traceback():
    """The command has said all it had to say."""
    late = "import atexit, os, signal\natexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
    done = python(late + MAIN, "--version")
    assert done.stdout == f"mainstay {mainstay.__version__}\n"
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_a_second_ctrl_c_while_the_first_is_told_ends_it():
    """The exit code stays."""
    again = (
        "from mainstay.cli import guard\n"
        "def interrupted(*_args, **_options): raise KeyboardInterrupt\n"
        "guard._invoke = guard._end = interrupted\n"
    )
    done = python(again + MAIN, "policies")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_no_command_shows_help_and_is_a_mistake(run):
    """A script whose variable was empty must not pass for a success."""
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "Commands:" in done.stderr
    assert "mainstay demo" in done.stderr


@pytest.mark.parametrize(("path", "command", "context"), EVERY, ids=IDS)
def test_every_command_explains_itself(path, command, context):
    """Help has a sentence and an example, which is a command line of that very command."""
    text = command.get_help(context)
    assert command.help
    examples = re.findall(r"^ +\$ (.*)$", text, re.MULTILINE)
    assert any(line.startswith(" ".join(path)) for line in examples), text
    assert "..." not in command.get_short_help_str(limit=64)


@pytest.mark.parametrize(("path", "command", "context"), EVERY[1:], ids=IDS[1:])
def test_every_command_has_json(path, command, context):
    """Whatever a person can read a program can read."""
    assert "--json" in {name for p in command.get_params(context) for name in p.opts}


def test_a_command_is_a_file_of_its_name():
    """A command is `<name>.py`, or `command.py` in a folder `<name>`; no other file defines one."""
    folder = ROOT / "src/mainstay/cli"
    defined = {p for p in folder.rglob("*.py") if "\ndef command(" in p.read_text("utf-8")}
    names = {p.parent.name if p.stem == "command" else p.stem for p in defined}
    names = {name.replace("_", "-") for name in names}
    assert names == {*HOMES, *audit.COMMANDS}
    assert len(defined) == len(HOMES) + len(audit.COMMANDS)


def test_every_exit_code_is_documented():
    """The page has a row for each code, and none for a code that is not there."""
    page = (ROOT / "docs/how-to/command-line.md").read_text(encoding="utf-8")
    assert [int(n) for n in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == list(Exit)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message", "after"),
    [
        (["polices"], "there is no command 'polices'; did you mean 'policies'?", "mainstay --help"),
        (
            ["zzz"],
            (
                "there is no command 'zzz'; there are audit, circuits, comply, config, demo,"
                " doctor, exec, explain-error,"
                " inbox, operators, outbox, pipelines, policies, sagas, spill, status, store"
            ),
            "mainstay --help",
        ),
        (["audit", "verfy"], "there is no command 'verfy'; did you mean 'verify'?", "audit --help"),
        (["--jsn"], "No such option '--jsn'", "mainstay --help"),
        (["demo", "--calls", "0"], "'--calls': 0 is not in the range", "mainstay demo --help"),
        (["policies", "show"], "Missing argument 'NAME'", "mainstay policies show --help"),
        (["policies", "show", "x"], "no policy is named 'x'; there are: standard", "policies"),
    ],
)
def test_a_mistake_is_told_with_what_to_do_next(arguments, message, after, capsys):
    """Exit code 2, the message and the next step on stderr, no traceback, nothing on stdout."""
    assert guard.run(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err.replace("No such option: --jsn", "No such option '--jsn'")
    assert re.search(rf"^  next: .*{re.escape(after)}$", said.err, re.MULTILINE), said.err
    assert "Traceback" not in said.err


def test_a_mistake_in_json(run):
    """A program gets an error that it can read, though the arguments could not be parsed."""
    done = run("policies", "show", "x", "--json", "--nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    error = json.loads(done.stderr)["error"]
    assert error["code"] == "usage"
    assert error["exit_code"] == 2
    assert "--nonsense" in error["message"]
    assert error["hint"] == "mainstay policies show --help"


def test_what_follows_the_double_dash_is_not_ours():
    assert asks_for_json(["exec", "--json", "--", "ls"])
    assert not asks_for_json(["exec", "--", "ls", "--json"])


@pytest.mark.parametrize(
    ("error", "code", "message", "hint"),
    [
        (mainstay.UsageError("no", hint="yes"), 2, "no", "yes"),
        (mainstay.PolicyError("p", [Problem("a", 1, "2")]), 2, "a = 1: must be 2", ""),
        (mainstay.DeadlineExceeded(2.0), 1, "deadline of 2 s", ""),
        (mainstay.MainstayError(), 1, "MainstayError", ""),
        (CommandError("shut", hint="open", exit_code=1), 1, "shut", "open"),
        (click.FileError("a.yml", "gone"), 2, "a.yml", "mainstay --help"),
        (OSError(errno.ENOSPC, "full"), 74, "cannot write: full", "make room"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.yml"), 2, "a.yml: No such", "path"),
        (OSError(errno.ENETDOWN, "down"), 70, "internal error: OSError: ", "report"),
        (ZeroDivisionError("x"), 70, "internal error: ZeroDivisionError: x", "doctor --json"),
        (ModuleNotFoundError(name="rich.box"), 2, INSTALL, ""),
        (ModuleNotFoundError("m", name="msgspec"), 70, "internal error", "report"),
        (BrokenPipeError(), 141, "", ""),
        (KeyboardInterrupt(), 130, "", ""),
        (click.Abort(), 130, "", ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_each_trouble_has_its_code(error, code, message, hint):
    """Ours, the caller's, the system's and a bug are told apart."""
    report = explain(error)
    assert report.exit_code == code
    assert message in report.message
    assert hint in report.hint
    assert bool(report.message) == (code not in (130, 141))


def broken():
    raise ZeroDivisionError("planted")


def test_a_bug_is_a_short_line(monkeypatch, capsys):
    """Two lines: what happened, and what to report."""
    monkeypatch.setattr(policies, "_registry", broken)
    monkeypatch.delenv("MAINSTAY_DEBUG", raising=False)
    assert guard.run(["policies"]) == 70
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "mainstay: internal error: ZeroDivisionError: planted"
    assert "this is a bug; report it" in said[1]
    assert len(said) == 2


def test_a_bug_shows_its_traceback_where_asked(monkeypatch, capsys):
    monkeypatch.setattr(policies, "_registry", broken)
    monkeypatch.setenv("MAINSTAY_DEBUG", "1")
    assert guard.run(["policies"]) == 70
    said = capsys.readouterr().err
    assert "Traceback (most recent call last)" in said
    assert "in broken" in said


def test_ctrl_c_anywhere_is_quiet(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(policies, "_registry", interrupted)
    assert guard.run(["policies"]) == 130
    assert capsys.readouterr() == ("", "")


# --- what is not installed ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [("click", ["--version"]), ("rich", ["policies"]), ("rich", ["demo", "--calls", "1"])],
)
def test_the_base_install_names_the_extra(missing, arguments):
    """Without click or rich there is one line that says what to install."""
    done = python(f"import sys; sys.modules[{missing!r}] = None; {MAIN}", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"mainstay: the command line needs click and rich: {INSTALL}\n"


def test_json_needs_no_rich():
    """A program is served without what only people need."""
    done = python(f"import sys; sys.modules['rich'] = None; {MAIN}", "policies", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["name"] == "standard"


# --- where the output goes ------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["policies"], ["policies", "--json"], ["--help"]])
def test_a_closed_pipe_is_silent(arguments):
    """`mainstay policies | head -0` says nothing, and its code is that of SIGPIPE."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "mainstay", *arguments]
    with os.fdopen(write, "w") as pipe:
        done = subprocess.run(
            command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("arguments", [["policies"], ["policies", "--json"], ["--help"]])
def test_a_full_disk_is_told(arguments):
    """What was not written is not passed over."""
    command = [sys.executable, "-m", "mainstay", *arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 74
    assert "cannot write: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


PRINTS = """
import sys
from mainstay.cli import guard
from mainstay.cli.config import policies
policies.write_json = print
sys.exit(guard.run(["policies", "--json"]))
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_what_a_command_left_in_the_buffer_counts_too():
    """A command that prints without flushing is told of the full disk, once, by us."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", PRINTS],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 74
    assert json.loads(done.stderr)["error"]["code"] == "output"


def test_the_screen_leaves_a_closed_pipe_to_us(monkeypatch):
    """Rich alone would end the process with 1."""

    class Gone(io.StringIO):
        def write(self, _text):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(sys, "stdout", Gone())
    with pytest.raises(BrokenPipeError):
        Screen().print("x")


@pytest.mark.skipif(os.name != "posix", reason="closes a descriptor as a POSIX shell does")
def test_a_closed_stdout_is_told():
    line = f"{sys.executable} -m mainstay policies >&-"
    done = subprocess.run(
        ["/bin/sh", "-c", line], stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert done.returncode == 74
    assert "standard output is closed" in done.stderr


def test_a_terminal_gets_colours_unless_it_says_no(terminal):
    """NO_COLOR leaves no escape at all, neither colour nor bold."""
    plain, styled = terminal("policies", NO_COLOR="1"), terminal("policies")
    assert (plain.wait(), styled.wait()) == (0, 0)
    assert "\x1b[" in styled.text
    assert "\x1b" not in plain.text
    assert plain.text == re.sub(r"\x1b\[[0-9;]*m", "", styled.text)
    assert "standard" in plain.text


def test_a_pipe_gets_neither_colours_nor_padding(run):
    done = run("policies")
    assert "\x1b" not in done.stdout
    assert all(line == line.rstrip() for line in done.stdout.splitlines())


def test_an_encoding_without_our_characters_is_no_error(run):
    """A terminal in Latin-2 has no ×-like luxury for every character; the table still comes."""
    done = run("doctor", PYTHONIOENCODING="iso8859-6")
    assert done.returncode == 0, done.stderr
    assert "mainstay" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(run, shell):
    """Each shell gets a script that asks this very command."""
    script = run(_MAINSTAY_COMPLETE=f"{shell}_source")
    assert (script.returncode, script.stderr) == (0, "")
    assert "_mainstay_completion" in script.stdout
    assert f"_MAINSTAY_COMPLETE={shell}_complete" in script.stdout


@pytest.mark.req("IT-041-09")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("po", ["policies"]),
        ("st", ["status", "store"]),
        ("circuits re", ["reset"]),
        ("circuits reset --wh", ["--why"]),
        ("audit stats x.jsonl --by te", ["tenant"]),
    ],
)
def test_what_a_shell_offers(run, typed, offered):
    """Commands, options and choices, from the commands themselves."""
    words = f"mainstay {typed}"
    number = str(len(words.split()) - 1)
    done = run(_MAINSTAY_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=number)
    assert done.stdout.splitlines() == [f"plain,{each}" for each in offered]


@pytest.mark.skipif(not which("bash"), reason="there is no bash here")
def test_a_real_bash_takes_the_completion():
    """The line of the page, and what Tab then offers."""
    page = (ROOT / "docs/how-to/command-line.md").read_text(encoding="utf-8")
    line = re.search(r"^eval .*$", page, re.MULTILINE)[0]
    lines = f"{line}; COMP_WORDS=(mainstay cir); COMP_CWORD=1; _mainstay_completion mainstay; "
    folder = Path(sys.executable).parent
    done = subprocess.run(
        [which("bash"), "-c", lines + 'echo "${COMPREPLY[@]}"'],
        capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.stdout == "circuits\n", done.stderr
