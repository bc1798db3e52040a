"""Build the package and use it as a stranger would.

    python tools/dist.py [ROOT]

Builds dist/*.tar.gz and dist/*.whl; checks that the sdist builds the same wheel and that the wheel
holds every file of src/mainstay and nothing else; installs the wheel into an empty environment,
runs the code of README.md there (tools/pages.py), and the command line with its extra. The sdist
holds tests and benchmarks too, so that a packager can run them; the wheel does not. Needs the
dependency group `dist`, and an index from which pip installs the package's own dependencies.
Exits 1 with the reason on the first thing that fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

CACHES = {"__pycache__", ".git", ".venv", ".venvs", "dist", "mutants"}
CACHE_ENDINGS = ("_cache", ".egg-info", ".pyc", ".pyo", ".db", ".db-shm", ".db-wal")
LEFT_OUT = ("PYTHON", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "VIRTUAL_ENV", "COVERAGE")
"""Variables by which the caller's environment would reach into the empty one."""


class Failed(Exception):
    """A step that did not work; the message is the reason."""


@dataclass(frozen=True)
class Built:
    """The two files of a release."""

    sdist: Path
    wheel: Path


def main(arguments: list[str] | None = None) -> int:
    """Build and check; 1 with the reason if something fails."""
    given = sys.argv[1:] if arguments is None else arguments
    root = Path(given[0] if given else Path(__file__).parents[1]).resolve()
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="mainstay-dist-") as folder:
            check(root, Path(folder))
    except Failed as reason:
        print(f"dist: failed: {reason}")
        return 1
    print(f"dist: all passed in {time.monotonic() - began:.0f} s")
    return 0


def check(root: Path, folder: Path) -> None:
    """Every step, in order; each prints a line."""
    built = build(root, root / "dist", "--sdist", "--wheel")
    for path in (built.sdist, built.wheel):
        print(f"built     dist/{path.name}, {path.stat().st_size / 1024:,.0f} KiB")
    print(f"sdist     {check_sdist(root, built.sdist)} files, no caches")
    print(f"wheel     {check_wheel(root, built.wheel)} files: all of src/mainstay, nothing else")
    again = build(unpack(built.sdist, folder), folder / "again", "--wheel")
    check_same(built.wheel, again.wheel)
    print("rebuild   the sdist builds the same wheel, byte for byte")
    python = make_environment(folder / "env")
    print(f"install   {', '.join(install(python, str(built.wheel)))}")
    print(f"README    {run_readme(root, python, folder)}")
    install(python, f"{built.wheel}[cli]")
    print(f"command   {run_commands(root, python, folder)}")


def build(tree: Path, into: Path, *kinds: str) -> Built:
    """Build with the pinned hatchling; the folder is emptied first."""
    shutil.rmtree(into, ignore_errors=True)
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(into)]
    run("the build", [*command, str(tree)], cwd=tree)
    files = {path.suffix: path for path in into.iterdir()}
    sdist, wheel = files.get(".gz", Path()), files.get(".whl")
    if wheel is None:
        raise Failed(f"the build made no wheel in {into}")
    return Built(sdist, wheel)


def check_sdist(root: Path, sdist: Path) -> int:
    """The number of its files; `Failed` if one is missing or does not belong there."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {f"src/{name}" for name in package_files(root)}
    needed |= {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"}
    refuse("the sdist lacks", needed - names)
    refuse("the sdist holds caches", filter(is_cache, names))
    return len(names)


def check_wheel(root: Path, wheel: Path) -> int:
    """The number of its files; `Failed` if the package is not exactly src/mainstay."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = f"{project['name']}-{project['version']}.dist-info/"
    needed = {*package_files(root), f"{about}METADATA", f"{about}licenses/LICENSE"}
    refuse("the wheel lacks", needed - names)
    refuse("the wheel holds caches", filter(is_cache, names))
    refuse("the wheel holds more than the package", {n for n in names - needed if about not in n})
    if "mainstay/py.typed" not in names:
        raise Failed("the wheel has no py.typed: type checkers would ignore its types")
    return len(names)


def package_files(root: Path) -> set[str]:
    """Every file of the package, data files included, relative to src/."""
    source = root / "src"
    paths = (path for path in (source / "mainstay").rglob("*") if path.is_file())
    return {
        path.relative_to(source).as_posix() for path in paths if "__pycache__" not in path.parts
    }


def is_cache(name: str) -> bool:
    """Whether a path lies in a cache or is what a run leaves behind."""
    parts = PurePosixPath(name).parts
    return any(part in CACHES or part.endswith(CACHE_ENDINGS) for part in parts)


def refuse(what: str, names: Iterable[str]) -> None:
    """Fail if there are any, naming the first few."""
    found = sorted(names)
    if found:
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise Failed(f"{what}: {', '.join(found[:5])}{more}")


def unpack(sdist: Path, folder: Path) -> Path:
    """The tree inside an sdist."""
    with tarfile.open(sdist) as archive:
        # The filter came with 3.11.4; the archive is our own, so that without it is safe too.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        archive.extractall(folder / "sdist")  # noqa: S202 -- see above
    return next((folder / "sdist").iterdir())


def check_same(wheel: Path, other: Path) -> None:
    """`Failed`, with the members that differ, unless the two are equal."""
    if wheel.read_bytes() == other.read_bytes():
        return
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(other) as two:
        sums = [{(info.filename, info.CRC) for info in each.infolist()} for each in (one, two)]
    refuse("the sdist builds another wheel; these differ", {name for name, _ in sums[0] ^ sums[1]})
    raise Failed("the sdist builds a wheel with the same files, but other bytes")


def make_environment(folder: Path) -> Path:
    """The Python of a new virtual environment with nothing but pip in it."""
    run("the empty environment", [sys.executable, "-m", "venv", str(folder)])
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    installed = set(packages(python)) - {"pip", "setuptools"}
    refuse("the new environment is not empty", installed)
    return python


def packages(python: Path) -> list[str]:
    """The distributions that an environment holds."""
    code = "from importlib.metadata import distributions as d; print(*(x.name for x in d()))"
    return sorted(run("a list of packages", [str(python), "-I", "-c", code]).lower().split())


def install(python: Path, requirement: str) -> list[str]:
    """Install with wheels alone, and return what is there now."""
    options = ["--disable-pip-version-check", "--quiet", "--only-binary", ":all:"]
    command = [str(python), "-I", "-m", "pip", "install", *options, requirement]
    run(f"pip install {Path(requirement).name}", command)
    return [name for name in packages(python) if name not in {"pip", "setuptools"}]


def run_readme(root: Path, python: Path, folder: Path) -> str:
    """Run the code of README.md in an empty folder, with the installed package."""
    home = folder / "readme"
    home.mkdir()
    code = "import mainstay; print(mainstay.__file__)"
    origin = run("import mainstay", [str(python), "-I", "-c", code], cwd=home).strip()
    if not Path(origin).resolve().is_relative_to((folder / "env").resolve()):
        raise Failed(f"mainstay was imported from {origin}, not from the new environment")
    pages = [str(python), "-I", str(root / "tools/pages.py"), str(root / "README.md")]
    return run("the code of README.md", pages, cwd=home).strip()


def run_commands(root: Path, python: Path, folder: Path) -> str:
    """Run `mainstay --version` and the help of the demo as a shell does."""
    program = str(python.with_name("mainstay"))
    version = run("mainstay --version", [program, "--version"], cwd=folder).strip()
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if project["version"] not in version:
        raise Failed(f"mainstay --version prints {version!r}; expected {project['version']}")
    run("mainstay demo --help", [program, "demo", "--help"], cwd=folder)
    return f"{version}; mainstay demo --help"


def run(what: str, command: list[str], cwd: Path | None = None) -> str:
    """The output of a program; `Failed` with all of it if the program fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
    done = subprocess.run(  # noqa: S603 -- our own commands
        command, cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise Failed(f"{what} exited with {done.returncode}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
