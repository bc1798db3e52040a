"""Unpack a Python that this system has no package of, from the packages of a newer Debian.

    python tools/unpack_python.py 3.14 [--release testing] [--into FOLDER]

For a mirror that has the packages and not their sources; `tools/build_python.py` builds from
source, free-threaded Pythons too, which Debian does not package. The packages come through apt,
which checks their signatures; nothing is installed, and apt's own sources, lists and caches are not
touched. The libraries of the newer release, its libc included, are unpacked beside the program, and
its loader starts it: programs that it starts in turn use the libraries of this system.
`tools/pythons.py` finds it.

There are no headers: a library of the tests that has no wheel for this Python cannot be installed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.build_python import CannotBuild, apt_of, run
from tools.pythons import built

PARTS = (
    "python{0}", "python{0}-minimal", "python{0}-venv", "libpython{0}-stdlib",
    "libpython{0}-minimal", "python3-pip-whl",
)  # fmt: skip
LIBRARIES = (
    "libc6", "libgcc-s1", "libstdc++6", "libbz2-1.0", "libdb5.3t64", "libexpat1", "libffi8",
    "liblzma5", "libncursesw6", "libreadline8t64", "libsqlite3-0", "libssl3t64", "libtinfo6",
    "libuuid1", "libzstd1", "zlib1g",
)  # fmt: skip
WHEELS = "/share/python-wheels/"
PROGRAM = """#!/bin/sh
exec '{loader}' --argv0 "$0" --library-path '{libraries}' '{program}' "$@"
"""


def main(arguments: list[str] | None = None) -> int:
    """Unpack each version that is asked for; 1 if one cannot be had."""
    parser = argparse.ArgumentParser(description="Unpack Pythons from Debian's packages.")
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="such as 3.14")
    parser.add_argument("--release", default="testing", help="the release of Debian to take")
    parser.add_argument("--into", type=Path, default=built(), help="default: %(default)s")
    options = parser.parse_args(arguments)
    failed = False
    for version in options.versions:
        try:
            program = unpack(version, options.release, options.into.absolute())
        except CannotBuild as reason:
            print(f"{version}: {reason}", file=sys.stderr)
            failed = True
        else:
            print(f"{version}: {program}")
    return int(failed)


def unpack(version: str, release: str, into: Path) -> Path:
    """The program of a version, unpacked unless it is there already."""
    if version.endswith("t"):
        raise CannotBuild("Debian has no package of a free-threaded Python: build it from source")
    prefix = into / version
    program = prefix / "bin/python"
    if program.exists():
        return program
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"unpack-{version}-", dir=into) as scratch:
        root = Path(scratch) / "root"
        for package in download(version, release, Path(scratch)):
            run(["dpkg", "-x", str(package), str(root)], into)
        if not (root / f"usr/bin/python{version}").exists():
            raise CannotBuild(f"the packages hold no program python{version}")
        shutil.rmtree(prefix, ignore_errors=True)
        (root / "usr").rename(prefix)
    make_program(version, prefix)
    return program


def download(version: str, release: str, scratch: Path) -> list[Path]:
    """The packages of a Python and of the libraries that it is linked with."""
    apt = apt_of("deb", release, scratch)
    (scratch / "packages").mkdir()
    names = [each.format(version) for each in PARTS] + list(LIBRARIES)
    run([*apt, "download", *names], scratch / "packages")
    return sorted((scratch / "packages").glob("*.deb"))


def make_program(version: str, prefix: Path) -> None:
    """`bin/python`: starts the unpacked program with the loader and the libraries beside it."""
    loader = next((prefix / "lib").glob("*/ld-linux*.so.*"))
    for data in (prefix / f"lib/python{version}").glob("_sysconfig*"):
        text = data.read_text(encoding="utf-8")  # this system's own wheels are too old for it
        moved = text.replace(f"/usr{WHEELS}", f"{prefix}{WHEELS}")
        data.write_text(moved, encoding="utf-8")
    program = prefix / f"bin/python{version}"
    real = program.rename(program.with_name(f"{program.name}.real"))
    start = PROGRAM.format(loader=loader, libraries=loader.parent, program=real)
    program.write_text(start, encoding="utf-8")
    program.chmod(0o755)
    (prefix / "bin/python").symlink_to(program.name)


if __name__ == "__main__":
    sys.exit(main())
