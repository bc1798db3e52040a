"""Which circuit a command of `mainstay exec` has, what it is called, and what a refusal prints."""

import json
import os
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainstay import Engine
from mainstay.cli.circuits.command import command as circuits
from mainstay.cli.exec.circuit_name import circuit_name
from mainstay.cli.exec.engine import engine_of
from mainstay.cli.exec.report import Reporter
from mainstay.cli.exec.request import ExecRequest
from mainstay.config.load import load

pytestmark = pytest.mark.skipif(os.name == "nt", reason="commands of a POSIX shell")

QUICK = ("--set", "retry.policies.standard.initialDelayMs=1")
ON = ("--set", "circuitBreaker.enabled=true", "--set", "circuitBreaker.failureThreshold=1")
COUNTS = ("--set", "circuitBreaker.count=all")


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    """A state folder, and a working directory without a configuration."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def execute(invoke):
    """Runs `mainstay exec`; its exit code and what it wrote to stderr."""

    def execute(*arguments):
        done = invoke(*arguments)
        return done.return_value, done.stderr

    return execute


def script(path, text):
    """A script of the shell's that can be run."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


# --- whether there is one -------------------------------------------------------------------------


def circuits_of(tmp_path, config, *words, named=None):
    """The names of the circuits that guard a command under this configuration."""
    path = tmp_path / "mainstay.yml"
    path.write_text(config, encoding="utf-8")
    name = named or Path(words[0]).name
    request = ExecRequest(command=words, operation=name, is_named=named is not None)
    reporter = Reporter(quiet=True, as_json=False)
    with engine_of(request, load(path), reporter) as engine:
        return [circuit.name for circuit in engine.circuits.of(name)]


ASKED = "store: memory://\ncircuitBreaker: {enabled: true}\n"
GROUP = "store: memory://\nbreakers: {named: {bank: {operations: [charge.sh]}}}\n"


@pytest.mark.parametrize(
    ("config", "named", "wanted"),
    [
        ("store: memory://", None, []),
        ("store: memory://", "nightly", ["nightly"]),
        (ASKED, None, ["{folder}/charge.sh"]),
        (ASKED, "nightly", ["nightly"]),
        ("store: memory://\ncircuitBreaker: {enabled: false}", "nightly", []),
        ("store: memory://\nretry: {circuitBreaker: {enabled: false}}", "nightly", []),
        ("store: memory://\nbreakers: {default: {enabled: false}}", "nightly", []),
        (GROUP, None, ["bank"]),
        (GROUP + "circuitBreaker: {enabled: true}\n", None, ["{folder}/charge.sh", "bank"]),
    ],
)
def test_a_command_has_a_circuit_only_if_it_is_asked_for(tmp_path, config, named, wanted):
    """By --operation, by a circuit that names the operation, or by circuitBreaker."""
    words = (script(tmp_path / "charge.sh", "exit 1"), "42")
    found = circuits_of(tmp_path, config, *words, named=named)
    assert found == [each.format(folder=tmp_path) for each in wanted]


def test_failing_scripts_stop_no_other_command(execute):
    """A shell whose scripts fail, however often, is not refused."""
    for _ in range(3):
        code, told = execute(*QUICK, "--quiet", "--", "sh", "-c", "exit 1")
        assert (code, told) == (1, "")
    assert execute("--", "sh", "-c", "exit 0")[0] == 0


def test_a_failing_script_stops_itself_and_no_other_of_its_interpreter(execute, tmp_path):
    """The circuit is that of the interpreter and the script together."""
    bad, good = script(tmp_path / "bad.sh", "exit 1"), script(tmp_path / "good.sh", "exit 0")
    assert execute(*QUICK, *ON, *COUNTS, "--quiet", "--", "sh", bad)[0] == 1
    assert execute(*QUICK, *ON, *COUNTS, "--quiet", "--", "sh", bad)[0] == 75
    assert execute(*QUICK, *ON, *COUNTS, "--", "sh", good)[0] == 0
    assert execute(*QUICK, *ON, *COUNTS, "--", "sh", "-c", "exit 0")[0] == 0


def test_a_policy_is_found_by_the_bare_name_of_the_command(execute, tmp_path):
    """Also where the circuit has the whole path as its name."""
    count = script(tmp_path / "charge.sh", f"echo x >> {tmp_path}/ran; exit 1")
    named = tmp_path / "mainstay.yml"
    named.write_text(
        ASKED + "retry: {policies: {once: {maxAttempts: 1}},"
        " operationPolicies: {charge.sh: once}}\n",
        encoding="utf-8",
    )
    assert execute("--quiet", "--config", str(named), "--", count)[0] == 1
    assert (tmp_path / "ran").read_text() == "x\n"


# --- what a refusal prints ------------------------------------------------------------------------


def test_a_refusal_names_the_circuit_and_the_commands_for_it(execute, tmp_path):
    """Which one, how to see it, how to go on; the commands work as they are printed."""
    bad, store = script(tmp_path / "my jobs" / "bad.sh", "exit 1"), f"sqlite:///{tmp_path}/c.db"
    given = (*QUICK, *ON, *COUNTS, "--store", store, "--", bad)
    assert execute(*given)[0] == 1
    code, told = execute(*given)
    show = f"mainstay circuits show {shlex.quote(bad)} --store {store}"
    assert code == 75
    first, *advice = told.splitlines()
    assert first.startswith(f"mainstay: not run: circuit {bad!r} is open")
    assert advice == [
        f"  see it: {show}",
        f"  to go on: mainstay circuits reset {shlex.quote(bad)} --why TEXT --store {store}",
        "  or use another circuit: --operation NAME",
    ]
    shown = CliRunner().invoke(circuits, shlex.split(show)[2:])
    assert (shown.exit_code, "open" in shown.stdout) == (0, True)


def test_a_refusal_as_json_has_the_circuit_and_the_commands_as_fields(execute):
    """One object, for programs."""
    brittle = (*QUICK, *ON, *COUNTS, "--json", "--operation", "o", "--")
    assert execute(*brittle, "sh", "-c", "exit 1")[0] == 1
    code, told = execute(*brittle, "sh", "-c", "exit 1")
    document = json.loads(told.splitlines()[-1])
    assert (code, document["event"], document["circuit"]) == (75, "refused", "o")
    assert document["show"] == "mainstay circuits show o"
    assert document["reset"] == "mainstay circuits reset o --why TEXT"


def test_retry_of_an_item_resets_the_circuit_of_its_command(execute, tmp_path):
    """The circuit has the path of the command as its name, and the item knows it."""
    bad, store = script(tmp_path / "bad.sh", "exit 1"), f"sqlite:///{tmp_path}/c.db"
    given = (*QUICK, *ON, *COUNTS, "--quiet", "--escalate", "--store", store, "--", bad)
    assert [execute(*given)[0] for _ in range(2)] == [76, 75]
    with Engine(store, sinks=[]) as engine:
        engine.operators.add("ann", secret="correct horse battery")
        (item,) = engine.inbox
        engine.inbox.act(item.id, "retry", by="ann", proof="correct horse battery", why="fixed")
    assert execute(*given)[0] == 76


# --- its name -------------------------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A PATH with these programs, and some files in the working directory."""
    names = """python3 python3.11 bash node perl java make curl env sudo nice timeout xargs docker
               flock tool busybox ruby sh php"""
    for name in names.split():
        script(tmp_path / "bin" / name, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("deploy.py", "job.sh", "app.js", "app.jar", "Makefile"):
        (tmp_path / name).write_text("", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("tool 42", "{bin}/tool"),
        ("curl -fsS https://example.org", "{bin}/curl"),
        ("python3 deploy.py 42", "{bin}/python3 {here}/deploy.py"),
        ("python3.11 -W once -I deploy.py", "{bin}/python3.11 {here}/deploy.py"),
        ("python3 ./deploy.py", "{bin}/python3 {here}/deploy.py"),
        ("python3 -m shop.jobs --all", "{bin}/python3 -m shop.jobs"),
        ("python3 -mshop", "{bin}/python3 -m shop"),
        ("bash -eu -o pipefail job.sh", "{bin}/bash {here}/job.sh"),
        ("node --max-old-space-size=1 app.js", "{bin}/node {here}/app.js"),
        ("java -jar app.jar", "{bin}/java {here}/app.jar"),
        ("python3 -u deploy.py app.js", "{bin}/python3 {here}/deploy.py"),
        ("python3 -um shop app.js", "{bin}/python3 -m shop"),
        ("perl -Ilib -MData::Dumper job.sh", "{bin}/perl {here}/job.sh"),
        ("make deploy", "{bin}/make {here}/Makefile"),
        ("env A=1 -u B python3 deploy.py", "{bin}/python3 {here}/deploy.py"),
        ("sudo -u app -- tool", "{bin}/tool"),
        ("nice -n 5 timeout -k 5 10 tool", "{bin}/tool"),
        ("flock lock tool", "{bin}/tool"),
        ("busybox sh job.sh", "{bin}/sh {here}/job.sh"),
    ],
)
def test_a_circuit_is_named_by_the_program_and_its_script(programs, line, wanted):
    """With their paths, whatever is in front of them."""
    name = circuit_name(shlex.split(line))
    assert name == wanted.format(bin=programs / "bin", here=programs)


OTHERS = """
    rbash rksh rzsh lksh posh ysh nu elvish xonsh ion hush sash es ipython ipython3 bpython ptpython
    hy coffee ts-node tsx swift crystal nim janet fennel bb jshell iex erl ocaml utop gjs qjs d8
    amm nbb zx maxima gnuplot ed vim emacs gawk php8.2 lua5.4 ruby3.1 python3.12-intel64 python3-dbg
    node20 bash-5.2 ksh2020 tclsh8.6 wish8.6 guile-3.0
""".split()
"""Interpreters under the names that systems and their packages give them."""
IN_FRONT = """
    tini dumb-init gosu su-exec setpriv capsh pkexec runcon eatmydata rlwrap setarch linux32 linux64
    numactl cgexec catchsegv xvfb-run dbus-run-session systemd-inhibit chpst softlimit envdir
    s6-setuidgid faketime torsocks proxychains4 nsjail ltrace hyperfine entr mpirun srun sem rr
    pyenv rbenv nvm asdf mise nix nix-shell guix start-stop-daemon daemonize cronic logsave trickle
    with-contenv aws-vault chamber dotenv envchain vault-env sops foreman honcho overmind
""".split()
"""Programs that run the words behind them."""


@pytest.mark.parametrize("program", OTHERS)
def test_an_interpreter_under_another_name_is_not_a_circuit(programs, program):
    """The name of a link, of a version, of a dialect; neither bare nor with code."""
    script(programs / "bin" / program, "exit 0")
    given = ([], ["-c", "x"], ["-e", "x"])
    assert [circuit_name([program, *words]) for words in given] == [None, None, None]


@pytest.mark.parametrize("program", IN_FRONT)
def test_a_program_in_front_of_another_is_not_a_circuit(programs, program):
    """Else one failing script would stop every command that is run in that way."""
    script(programs / "bin" / program, "exit 0")
    assert circuit_name([program, "tool", "42"]) is None


def test_a_link_to_an_interpreter_is_an_interpreter(programs):
    """Whatever the link is called; its circuit has the name of the link and of the script."""
    (programs / "bin" / "py-of-shop").symlink_to(programs / "bin" / "python3.11")
    assert circuit_name(["py-of-shop", "-c", "exit(1)"]) is None
    found = circuit_name(["py-of-shop", "deploy.py"])
    assert found == f"{programs}/bin/py-of-shop {programs}/deploy.py"


@pytest.mark.parametrize("words", ["sh -c x", "-n 1 -- /bin/bash -c x", "a=b python3 deploy.py"])
def test_an_unknown_program_in_front_of_an_interpreter_is_not_a_circuit(programs, words):
    """No list has every one of them; what they run is not known."""
    assert circuit_name(["tool", *shlex.split(words)]) is None


@pytest.mark.parametrize(
    "line",
    [
        "python3", "python3 -", "python3 -c 'exit(1)'", "python3 -Ic 'exit(1)' deploy.py",
        "python3 -m", "python3 missing.py", "sh -ec 'exit 1'", "bash", "node -e 1 app.js",
        "node --eval=1", "perl -ne 1 job.sh", "ruby -e 1", "php -r 1", "java shop.Main",
        "node -r ./app.js job.sh", "node --require ./app.js job.sh", "java -cp app.jar shop.Main",
        "bash --rcfile deploy.py job.sh", "perl -s -I deploy.py job.sh", "sh -s job.sh",
        "java shop.Main app.jar", "make -C elsewhere", "docker run x", "xargs tool",
        "env -S 'python3 deploy.py'", "sudo --user app tool", "env", "timeout 5", "missing",
        "env " * 20 + "tool",
    ],
)  # fmt: skip
def test_what_a_program_runs_must_be_known(programs, line):
    """A bare interpreter, code, or something in front of it that is not understood: none."""
    assert circuit_name(shlex.split(line)) is None


def test_make_without_a_file_has_no_circuit(programs):
    """What it would run is not known."""
    (programs / "Makefile").unlink()
    assert circuit_name(["make", "all"]) is None


def test_a_name_that_is_no_text_is_a_circuit_too(tmp_path):
    """As it is written where it cannot be shown."""
    path = script(tmp_path / os.fsdecode(b"job\xff"), "exit 0")
    assert circuit_name([path]) == f"{tmp_path}/job\\udcff"
