"""Walk the exception classes of the oldest versions of libraries that their tables must know.

    python tools/oldest.py [--only 'httpx redis']

tests/integrations/errors/oldest.txt has, for each table of mainstay.integrations.errors, the
oldest version that has a wheel for the oldest Python that is supported and can be imported there.
Each line gets a folder of its own in .venvs/oldest-3.11/libraries, so that no version stands in
the way of another; it is used again until the line changes. Prints what was found, and exits 1 if
a class has no entry, if a library cannot be installed, or if that Python is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.pythons import PIP, CannotInstall, demand, execute, find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PINS = ROOT / "tests/integrations/errors/oldest.txt"
OLDEST = "3.11"


@dataclass(frozen=True)
class Pin:
    """A line of oldest.txt: a table, and what is installed for it; the first is the library."""

    table: str
    requirements: tuple[str, ...]

    @property
    def folder(self) -> str:
        """The name of its folder, such as `httpx==0.7.5`."""
        return self.requirements[0]


def main(arguments: list[str] | None = None) -> int:
    """Walk them all and print a line for each; 1 if something is not judged or not walked."""
    parser = argparse.ArgumentParser(description="Walk the oldest versions of libraries.")
    parser.add_argument("--only", default="", metavar="TABLES", help="such as 'httpx redis'")
    chosen = parser.parse_args(arguments).only.replace(",", " ").split()
    pins = list(read(PINS.read_text(encoding="utf-8")))
    if unknown := set(chosen) - {pin.table for pin in pins}:
        parser.error(f"{', '.join(sorted(unknown))}: not in {PINS.name}")
    pins = [pin for pin in pins if not chosen or pin.table in chosen]
    try:
        python = set_up(ROOT, ROOT / f".venvs/oldest-{OLDEST}")
    except CannotInstall as reason:
        print(f"FAILED  {reason}")
        return 1
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = list(pool.map(lambda pin: report(pin, python), pins))
    print(f"{len(pins)} oldest versions on Python {OLDEST}; {sum(problems)} FAILED")
    return 1 if any(problems) else 0


def read(text: str) -> Iterator[Pin]:
    """The pins of a file; comments and empty lines left out."""
    for line in text.splitlines():
        table, *requirements = line.partition("#")[0].split() or [""]
        if table:
            yield Pin(table, tuple(requirements))


def set_up(root: Path, folder: Path) -> Path:
    """The Python of an environment with mainstay in it, and none of the libraries."""
    python = folder / "bin/python"
    run = find(OLDEST)
    if run.path is None:
        raise CannotInstall(f"Python {OLDEST} was not found")
    if is_ready(folder, state := f"{run.full} {run.path}"):
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    demand([str(run.path), "-m", "venv", str(folder)], root)
    demand([str(python), *PIP, "--upgrade", "pip>=25.1"], root)
    demand([str(python), *PIP, "--editable", "."], root)
    mark(folder, state)
    return python


def report(pin: Pin, python: Path) -> bool:
    """Walk one library and print a line; whether there is a problem."""
    try:
        result = walk(pin, python, python.parents[1] / "libraries" / pin.folder)
    except CannotInstall as reason:
        result = f"FAILED  {reason}"
    print(f"{pin.folder:<26} {result}", flush=True)
    return result.startswith("FAILED")


def walk(pin: Pin, python: Path, folder: Path) -> str:
    """What the walk of one library found; it begins with FAILED if a class is not judged."""
    if not is_ready(folder, state := " ".join(pin.requirements)):
        shutil.rmtree(folder, ignore_errors=True)
        wheels = [*PIP, "--only-binary", ":all:", "--target", str(folder)]
        demand([str(python), *wheels, *pin.requirements], ROOT)
        mark(folder, state)
    start = "import sys; from tests.integrations.errors import walk"  # some have `tests` too
    start += f"; sys.path.insert(0, {str(folder)!r}); walk.main(sys.argv[1])"
    done = execute([str(python), "-W", "ignore", "-c", start, pin.table], cwd=ROOT)
    if done.returncode:
        return f"FAILED  {(done.stderr.strip().splitlines() or ['no output'])[-1]}"
    found = json.loads(done.stdout.splitlines()[-1])
    if found["unjudged"]:
        return f"FAILED  no entry for {', '.join(found['unjudged'])}"
    lacking = f"; it does without {', '.join(found['missing'])}" if found["missing"] else ""
    return f"{found['classes']} classes are judged{lacking}"


def is_ready(folder: Path, state: str) -> bool:
    """Whether a folder was made whole, and of the same things."""
    ready = folder / ".ready"
    return ready.is_file() and ready.read_text(encoding="utf-8") == digest(state)


def mark(folder: Path, state: str) -> None:
    """Note that a folder is whole."""
    (folder / ".ready").write_text(digest(state), encoding="utf-8")


def digest(state: str) -> str:
    """A short form of what a folder was made of."""
    return hashlib.sha256(state.encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
