"""Run the tests of libraries that cannot be installed beside the others.

    python tools/apart.py

tests/integrations/apart.txt has a test file in each line, and what is installed for it. That goes
into a folder of its own in .venvs/apart, which stands before the environment on the path: the
versions in it are the ones that the tests import. It is used again until the line changes. Exits 1
if a test fails or something cannot be installed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.oldest import is_ready, mark
from tools.oldest import read as read_pins
from tools.pythons import PIP, CannotInstall, demand, execute

ROOT = Path(__file__).parents[1]
PINS = ROOT / "tests/integrations/apart.txt"


def main() -> int:
    """Run each file; 1 if one fails."""
    failed = 0
    for pin in read_pins(PINS.read_text(encoding="utf-8")):
        try:
            folder = set_up(pin.requirements)
        except CannotInstall as reason:
            print(f"FAILED  {pin.table}: {reason}")
            failed += 1
            continue
        names = [f"PYTHONPATH={folder}", f"MAINSTAY_APART={folder}"]
        tests = [sys.executable, "-m", "pytest", "-q", "-n", "0", pin.table]
        done = execute(["env", *names, *tests], cwd=ROOT)
        lines = done.stdout.strip().splitlines() or ["no output"]
        print(f"{pin.table}: {lines[-1]}")
        if done.returncode:
            print(done.stdout)
            failed += 1
    return 1 if failed else 0


def set_up(requirements: tuple[str, ...]) -> Path:
    """The folder with the libraries of a line."""
    folder = ROOT / ".venvs/apart" / requirements[0]
    if not is_ready(folder, state := " ".join(requirements)):
        shutil.rmtree(folder, ignore_errors=True)
        demand([sys.executable, *PIP, "--target", str(folder), *requirements], ROOT)
        mark(folder, state)
    return folder


if __name__ == "__main__":
    sys.exit(main())
