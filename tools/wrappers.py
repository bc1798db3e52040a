"""The wrappers that drivers/call/templates.py makes of functions, as text.

python tools/wrappers.py                     print the modules of the commonest shapes
python tools/wrappers.py --write             write them: src/mainstay/drivers/call/shapes/
python tools/wrappers.py first gated kept    print one wrapper, with the lines that tracebacks show
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TypeAlias

from mainstay.drivers.call.templates import ANY, Signature, source_of

Shape: TypeAlias = tuple[int, int, int]

FOLDER = Path(__file__).parents[1] / "src" / "mainstay" / "drivers" / "call" / "shapes"
PATHS = ("first", "async_first")
STAR, STARS = 0x04, 0x08
SHAPES: tuple[Shape, ...] = (
    *((count, 0, 0) for count in range(8)),
    (10, 0, 0),
    (1, 1, 0),
    (2, 1, 0),
    *((count, 0, STAR) for count in (1, 2)),
    *((count, 0, STARS) for count in (1, 2, 3, 4)),
    *((count, 0, STAR | STARS) for count in (0, 1, 2)),
)
"""Of 56,000 functions in clients and frameworks, 93 % have one of these: how many parameters are
positional, how many are keyword only, and which stars there are."""
HEAD = '''\
"""The wrappers of the commonest shapes, as the template `{path}` makes them.

Python compiles them when mainstay is installed, and not when a function is decorated. Made by
tools/wrappers.py: edit drivers/call/templates.py, then .venv/bin/python tools/wrappers.py --write
"""

# mypy: ignore-errors

from __future__ import annotations

SHAPES: dict = {{}}
'''


def render(path: str) -> str:
    """The module of a path."""
    makers = (f"\n\n{_maker(path, shape)}\n\nSHAPES[{shape}] = {path}\n" for shape in SHAPES)
    return HEAD.format(path=path) + "".join(makers)


def _maker(path: str, shape: Shape) -> str:
    return source_of((path,), Signature(shape)).rstrip("\n")


def numbered(path: tuple[str, ...]) -> str:
    """One wrapper, of a function with any parameters, each line with its number."""
    lines = source_of(path, ANY).splitlines()
    return "".join(f"{number:3}  {line}\n" for number, line in enumerate(lines, start=1))


def main() -> int:
    """Prints the modules or one wrapper, or writes the modules."""
    parser = argparse.ArgumentParser(description="the wrappers of functions, as text")
    parser.add_argument("--write", action="store_true", help=f"write {FOLDER.name}/")
    parser.add_argument("path", nargs="*", help="a template and the tags of the lines to keep")
    options = parser.parse_args()
    if options.path:
        print(numbered(tuple(options.path)), end="")
        return 0
    for path in PATHS:
        if options.write:
            (FOLDER / f"{path}.py").write_text(render(path), encoding="utf-8")
        else:
            print(render(path), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
