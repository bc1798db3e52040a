"""Build a Python that this system has no package of, from the source package of a newer Debian.

    python tools/build_python.py 3.14 3.14t [--release testing] [--into FOLDER] [--jobs 2]

3.14t is the free-threaded build of 3.14. The source comes through apt, from the mirror that this
machine's apt has, and apt checks its signature; the sources, lists and caches of apt itself are not
touched. No optimisations: it is for running tests. `tools/pythons.py` finds what is built here.

Needs Debian with apt, a C compiler, and the headers of what the standard library is built on:
libbz2-dev, libffi-dev, liblzma-dev, libreadline-dev, libsqlite3-dev, libssl-dev, uuid-dev and
zlib1g-dev.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.pythons import built

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
POLITE = ("nice", "-n", "10")
HOUR = 3600.0


class CannotBuild(Exception):
    """A step failed; the message is the program and the end of its output."""


def main(arguments: list[str] | None = None) -> int:
    """Build each version that is asked for; 1 if one cannot be built."""
    parser = argparse.ArgumentParser(description="Build Pythons from Debian's source packages.")
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="such as 3.14 or 3.14t")
    parser.add_argument("--release", default="testing", help="the release of Debian to take")
    parser.add_argument("--into", type=Path, default=built(), help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=2, help="processes of make at once")
    options = parser.parse_args(arguments)
    failed = False
    for version in options.versions:
        try:
            program = build(version, options.release, options.into.absolute(), options.jobs)
        except CannotBuild as reason:
            print(f"{version}: {reason}", file=sys.stderr)
            failed = True
        else:
            print(f"{version}: {program}")
    return int(failed)


def build(version: str, release: str, into: Path, jobs: int) -> Path:
    """The program of a version, built unless it is there already."""
    prefix = into / version
    program = prefix / "bin/python"
    if program.exists():
        return program
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"build-{version}-", dir=into) as scratch:
        source = unpack(download(version.rstrip("t"), release, Path(scratch)), Path(scratch))
        run([*POLITE, *configure(version, prefix)], source)
        run([*POLITE, "make", f"-j{jobs}"], source)
        shutil.rmtree(prefix, ignore_errors=True)
        run([*POLITE, "make", "install"], source)
    program.symlink_to("python3")
    return program


def configure(version: str, prefix: Path) -> list[str]:
    """How the source is configured."""
    free = ["--disable-gil"] if version.endswith("t") else []
    return ["./configure", f"--prefix={prefix}", "--with-ensurepip=install", *free]


def download(number: str, release: str, scratch: Path) -> Path:
    """The source of the newest such Python in a release, as upstream published it."""
    apt = apt_of("deb-src", release, scratch)
    (scratch / "source").mkdir()
    run([*apt, "source", "--download-only", f"python{number}"], scratch / "source")
    found = sorted((scratch / "source").glob("*.orig.tar.*z"))
    if not found:
        raise CannotBuild(f"the source package of python{number} has no archive of upstream's")
    return found[0]


def apt_of(kind: str, release: str, scratch: Path) -> list[str]:
    """An apt-get that knows the packages ("deb") or sources ("deb-src") of a release alone."""
    sources = scratch / "sources.list"
    sources.write_text(f"{kind} [signed-by={KEYRING}] {mirror()} {release} main\n", "utf-8")
    for folder in ("lists/partial", "cache/archives/partial"):
        (scratch / folder).mkdir(parents=True)
    apt = [
        "apt-get",
        f"-oDir::Etc::SourceList={sources}",
        "-oDir::Etc::SourceParts=-",
        f"-oDir::State::Lists={scratch / 'lists'}",
        f"-oDir::Cache={scratch / 'cache'}",
    ]
    run([*apt, "update"], scratch)
    return apt


def mirror() -> str:
    """The address of Debian's archive in the configuration of this machine's apt."""
    how = ["--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    found = run(["apt-get", "indextargets", *how], Path.cwd()).split()
    if not found:
        raise CannotBuild("apt has no lists of Debian's own archive: run `apt-get update` first")
    return found[0]


def unpack(archive: Path, scratch: Path) -> Path:
    """The folder that an archive holds."""
    with tarfile.open(archive) as source:
        source.extractall(scratch / "unpacked", filter="data")
    return next((scratch / "unpacked").iterdir())


def run(command: Sequence[str], where: Path) -> str:
    """The output of a program; `CannotBuild` with its last lines if it fails."""
    try:
        done = subprocess.run(  # noqa: S603 -- our own commands
            command, cwd=where, timeout=HOUR, capture_output=True, text=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(str(error)) from error
    if done.returncode:
        last = (done.stdout + done.stderr).splitlines()[-5:]
        raise CannotBuild("\n  ".join([f"{command[0]} exited with {done.returncode}", *last]))
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
