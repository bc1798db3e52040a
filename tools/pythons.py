"""Run the tests on each Python that is supported, free-threaded builds included.

    python tools/pythons.py [--only '3.12 3.13'] [-- PYTEST ARGUMENT...]

Looks for each Python on the path, among the versions of pyenv and of uv, and among those that
tools/build_python.py has built; a program counts if it runs and has the version of its name (a
pyenv shim may exist and do neither). Each gets an environment of its own in .venvs/, with the
project and the dependency group `dev`, and is used again until pyproject.toml changes. If a library
of `dev` has no wheel for a Python, the tests run without it and the table lists it. Prints a table
at the end. Exits 1 if a test fails, if a required Python is missing (3.11, 3.12 and 3.13, or those
of --only), or if one of the three lacks a library.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.13t", "3.14t")
REQUIRED = ("3.11", "3.12", "3.13")
NEEDED = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
"""The libraries of the group `dev` without which no test runs."""

OUTCOMES = ("passed", "failed", "skipped", "files not collected")
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet", "install")
PROBE = """
import json, sys, sysconfig, venv, ensurepip
print(json.dumps([
    "%d.%d" % sys.version_info[:2] + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "%d.%d.%d" % sys.version_info[:3],
    getattr(sys, "_base_executable", sys.executable),
    sys.implementation.name,
]))
"""


class CannotInstall(Exception):
    """Neither the group `dev` nor what is needed of it can be installed."""


@dataclass
class Run:
    """One Python: where it is, and what became of the tests."""

    version: str
    full: str = ""
    path: Path | None = None
    result: str = "not found"
    seconds: float = 0.0
    lacking: list[str] = field(default_factory=list)
    is_failed: bool = False


def main(arguments: list[str] | None = None) -> int:
    """Run the tests everywhere and print the table; 1 if something required is missing or fails."""
    parser = argparse.ArgumentParser(description="Run the tests on each Python.")
    parser.add_argument("--only", default="", metavar="VERSIONS", help="such as '3.12 3.14t'")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    options = parser.parse_args(arguments)
    chosen = options.only.replace(",", " ").split()
    if unknown := set(chosen) - set(VERSIONS):
        parser.error(f"{', '.join(sorted(unknown))}: choose of {' '.join(VERSIONS)}")
    required = chosen or REQUIRED
    runs = [find(version) for version in chosen or VERSIONS]
    print("\n".join(f"{run.version:<6} {run.path or 'not found'}" for run in runs), flush=True)
    for run in runs:
        if run.path is not None:
            test(run, ROOT, options.pytest)
    print("", *table(runs, required), sep="\n")
    return 1 if any(is_bad(run, required) for run in runs) else 0


def is_bad(run: Run, required: Sequence[str]) -> bool:
    """Whether tests failed, or a required Python could not run them all."""
    is_short = run.version in REQUIRED and run.lacking
    return bool(run.is_failed or is_short or (run.version in required and not run.seconds))


def find(version: str) -> Run:
    """The first program that is this Python."""
    seen = set()
    for program in candidates(version):
        if program in seen or not os.access(program, os.X_OK):
            continue
        seen.add(program)
        is_of, full, path, implementation = probe(program)
        if is_of == version and implementation == "cpython":
            return Run(version, full, Path(path))
    return Run(version)


def candidates(version: str) -> Iterator[Path]:
    """Programs that may be this Python, the likely ones first."""
    folders = [Path(name) for name in os.environ.get("PATH", "").split(os.pathsep) if name]
    for name in (f"python{version}", "python3", "python"):
        yield from (folder / name for folder in folders)
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python")
    number = version.rstrip("t")
    folders_of = ((pyenv, f"{number}*"), (uv, f"cpython-{number}*"), (built(), version))
    for folder, pattern in folders_of:
        found = sorted(folder.glob(f"{pattern}/bin/python"), key=numbers, reverse=True)
        yield from found


def built() -> Path:
    """Where tools/build_python.py installs what it builds, unless it is given another folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "mainstay-pythons"


def numbers(path: Path) -> list[int]:
    """3.13.10 comes after 3.13.9."""
    return [int(number) for number in re.findall(r"\d+", path.parts[-3])]


def probe(program: Path) -> tuple[str, str, str, str]:
    """Version, full version, path and implementation; empty if the program gives no answer."""
    try:
        done = execute([str(program), "-I", "-c", PROBE], timeout=30)
        version, full, path, implementation = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return "", "", "", ""
    return version, full, path, implementation


def test(run: Run, root: Path, arguments: list[str]) -> None:
    """Set up the environment of a Python, run the tests and fill in the result."""
    folder = root / ".venvs" / run.version
    print(f"\n{run.version}: setting up {folder.relative_to(root)}", flush=True)
    try:
        python = set_up(run, root, folder)
    except CannotInstall as reason:
        run.result = f"not run: {reason}"
        return
    lend(Path(sys.prefix) / "opt", folder / "opt")
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal"]
    if run.lacking:
        command.append("--continue-on-collection-errors")
    print(f"{run.version}: pytest {' '.join(arguments)}".rstrip(), flush=True)
    began = time.monotonic()
    done = subprocess.run(  # noqa: S603 -- our own command
        [*command, f"--junitxml={report}", *arguments],
        cwd=root,
        env=environment(run),
        check=False,
    )
    run.seconds = time.monotonic() - began
    run.result, run.is_failed = read_report(report, done.returncode, run.lacking)


def lend(unpacked: Path, link: Path) -> None:
    """Servers that tools/get-promtool and tools/get-rabbitmq unpacked, for another environment."""
    if unpacked.is_dir() and not link.exists():
        link.unlink(missing_ok=True)  # one that leads nowhere
        link.symlink_to(unpacked)


def environment(run: Run) -> dict[str, str]:
    """That of the tests: no GIL in a free-threaded build, also if an extension asks for it."""
    left_out = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    if run.version.endswith("t"):
        kept["PYTHON_GIL"] = "0"
    return kept


def set_up(run: Run, root: Path, folder: Path) -> Path:
    """The Python of an environment that is up to date; made anew if it is not."""
    python = folder / "bin/python"
    project = (root / "pyproject.toml").read_bytes()
    state = hashlib.sha256(project + f"{run.full} {run.path}".encode()).hexdigest()
    ready = folder / ".ready"
    if ready.is_file():
        held, *lacking = ready.read_text(encoding="utf-8").split()
        if held == state:
            run.lacking = install_each(python, root, lacking)  # there may be a wheel by now
            return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    demand([str(run.path), "-m", "venv", str(folder)], root)
    demand([str(python), *PIP, "--upgrade", "pip>=25.1"], root)
    run.lacking = install(python, root)
    ready.write_text(" ".join([state, *run.lacking]), encoding="utf-8")
    return python


def install(python: Path, root: Path) -> list[str]:
    """Install the project and the group `dev`; the libraries that this Python cannot have."""
    together = [str(python), *PIP, "--editable", ".[cli,trio]", "--group", "dev"]
    if not execute(together, cwd=root).returncode:
        return []
    print("  the group dev cannot be installed as a whole; one by one", flush=True)
    wanted = development(root)
    needed = [line for name, line in wanted.items() if name in NEEDED]
    demand([str(python), *PIP, "--editable", "."], root)  # first: it may be what cannot be had
    demand([str(python), *PIP, *needed], root)
    return install_each(python, root, wanted.keys() - set(NEEDED))


def install_each(python: Path, root: Path, names: Iterable[str]) -> list[str]:
    """Install these of the group `dev`, wheels alone; those that this Python cannot have."""
    wanted = development(root)
    one = [str(python), *PIP, "--only-binary", ":all:"]
    return [
        name
        for name in sorted(names)
        if all(execute([*one, way], cwd=root).returncode for way in ways(wanted[name]))
    ]


def ways(requirement: str) -> list[str]:
    """As it is written; without its compiled part (psycopg then uses the system's libpq)."""
    return [requirement, *[requirement.replace("[binary,", "[")] * ("[binary," in requirement)]


def development(root: Path) -> dict[str, str]:
    """The requirements of the group `dev`, by name."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return {name_of(line): line for line in project["dependency-groups"]["dev"]}


def name_of(requirement: str) -> str:
    """`psycopg` of `psycopg[binary,pool]==3.3.8`."""
    return re.split(r"[\[=<>; ]", requirement, maxsplit=1)[0]


def demand(command: list[str], root: Path) -> None:
    """Run a program of the set-up; `CannotInstall` with its last words if it fails."""
    done = execute(command, cwd=root)
    if done.returncode:
        print(done.stdout + done.stderr)
        shown = " ".join(Path(word).name for word in command[:4])
        raise CannotInstall(f"{shown}: {reason_in(done.stderr)}")


def reason_in(text: str) -> str:
    """The last line of pip's that names what failed; without one, the last that is not a hint."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no output"]
    hints = ("hint:", "note:", "warning:")
    plain = [line for line in lines if not line.lower().startswith(hints)] or lines
    named = [line for line in plain if line.startswith("ERROR:")]
    return (named or plain)[-1]


def execute(
    command: list[str], cwd: Path | None = None, timeout: float = 1200
) -> subprocess.CompletedProcess[str]:
    """Run a program and keep its output."""
    return subprocess.run(  # noqa: S603 -- our own commands
        command, cwd=cwd, timeout=timeout, capture_output=True, text=True, check=False
    )


def read_report(report: Path, code: int, lacking: list[str]) -> tuple[str, bool]:
    """The counts of a run, and whether it failed.

    A file that cannot be collected because a library is lacking is counted, and is no failure.
    """
    if not report.is_file():
        return f"pytest exited with {code}, without a report", True
    cases = ET.parse(report).getroot().iter("testcase")  # noqa: S314 -- pytest wrote it just now
    counts = Counter(outcome_of(case, lacking) for case in cases)
    parts = [f"{counts[name]:,} {name}" for name in OUTCOMES if counts[name] or name == "passed"]
    is_explained = code == 0 or counts["failed"] or counts["files not collected"]
    parts += [] if is_explained else [f"pytest exited with {code}"]
    return ", ".join(parts), bool(counts["failed"] or not counts["passed"] or not is_explained)


def outcome_of(case: ET.Element, lacking: list[str]) -> str:
    """What became of one test, or of one file that could not be collected."""
    error = case.find("error")
    if lacking and error is not None and "No module named" in (error.text or ""):
        return "files not collected"
    if error is not None or case.find("failure") is not None:
        return "failed"
    return "passed" if case.find("skipped") is None else "skipped"


def table(runs: list[Run], required: Sequence[str]) -> Iterator[str]:
    """One line for each Python: version, where it was found, what became of the tests."""
    paths = [str(run.path or "–") for run in runs]
    width = max(map(len, [*paths, "found"]))
    yield f"{'Python':<7} {'found':<{width}} {'time':>6}  result"
    for run, path in zip(runs, paths, strict=True):
        took = f"{run.seconds:.0f} s" if run.seconds else "–"
        result = run.result + (f"; without {', '.join(run.lacking)}" if run.lacking else "")
        if run.path is None:
            result += ": required" if run.version in required else ", optional"
        verdict = "FAILED  " if is_bad(run, required) else ""
        yield f"{run.full or run.version:<7} {path:<{width}} {took:>6}  {verdict}{result}"


if __name__ == "__main__":
    sys.exit(main())
