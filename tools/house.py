"""The generated parts of docs/contributing/map.md: the pictures and the table of rooms.

    python tools/house.py            print them
    python tools/house.py --write    write them into docs/contributing/map.md

A room is a folder of src/mainstay, or a module beside the folders. An arrow means "imports"; it is
left out if a longer way leads to the same room. The arrows come from the import statements of the
source, also those under TYPE_CHECKING; the layers from the contract in pyproject.toml; the line of
a room from the first line of its docstring.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Graph = Mapping[str, set[str]]

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "mainstay"
PAGE = ROOT / "docs" / "contributing" / "map.md"
HOW = "run .venv/bin/python tools/house.py --write and review the diff"
DOORS = ("", "__main__")
"""The package itself and `python -m mainstay`: they name every room, and would hide the picture."""


def render(page: str) -> str:
    """The page with its generated parts made anew."""
    for name, make in PARTS.items():
        begin, end = f"<!-- {name}: tools/house.py -->\n", f"<!-- end of {name} -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise SystemExit(
                f"{PAGE.name} needs the lines {begin.strip()!r} and {end!r}, once each"
            )
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{make()}\n{end}{rest.partition(end)[2]}"
    return page


# --- pictures -------------------------------------------------------------------------------------


def draw_layers() -> str:
    """The rooms of the top level, layer by layer."""
    graph = reduced(folded(imports(SRC)))
    lines = ["flowchart TD"]
    for number, layer in enumerate(layers(graph)):
        lines += [f"    subgraph layer{number}[ ]", "        direction LR"]
        lines += [f"        {room}" for room in layer]
        lines += ["    end"]
    return _mermaid([*lines, *_arrows(graph)])


def draw_core() -> str:
    """The folders of core/."""
    return _draw_inside(SRC / "core")


def draw_drivers() -> str:
    """The folders of drivers/, and the modules beside them."""
    return _draw_inside(SRC / "drivers")


def _draw_inside(folder: Path) -> str:
    return _mermaid(["flowchart TD", *_arrows(reduced(folded(imports(folder))))])


def layers(graph: Graph) -> list[list[str]]:
    """The layers of the contract, from the top, with the rooms that exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    declared = next(each["layers"] for each in contracts if each.get("containers") == ["mainstay"])
    found = ([name for name in re.findall(r"\w+", line) if name in graph] for line in declared)
    return [layer for layer in found if layer]


def _arrows(graph: Graph) -> list[str]:
    """Every arrow; a room without any stands alone."""
    targets = set().union(*graph.values())
    alone = [f"    {room}" for room in sorted(graph) if not graph[room] and room not in targets]
    arrows = [f"    {room} --> {other}" for room in sorted(graph) for other in sorted(graph[room])]
    return arrows + alone


def _mermaid(lines: Iterable[str]) -> str:
    return "\n".join(["```mermaid", *lines, "```"]) + "\n"


# --- the import graph -----------------------------------------------------------------------------


def imports(folder: Path) -> dict[str, set[str]]:
    """What each module under a folder imports of that folder; names are dotted, from the folder."""
    prefix = ".".join(("mainstay", *folder.relative_to(SRC).parts))
    modules = {_name(path, folder): path for path in sorted(folder.rglob("*.py"))}
    return {
        name: {known for full in _imported(path) for known in _within(full, prefix, modules)}
        for name, path in modules.items()
        if name not in DOORS
    }


def _name(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path) -> Iterator[str]:
    """Every name that a module imports, with its full path."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:  # relative imports are banned
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _within(full: str, prefix: str, modules: Mapping[str, Path]) -> Iterator[str]:
    """The module of a folder that a full name means: itself, or what holds it."""
    if not full.startswith(f"{prefix}."):
        return
    name = full.removeprefix(f"{prefix}.")
    while name:
        if name in modules:
            yield name
            return
        name = name.rpartition(".")[0]


def folded(graph: Graph) -> dict[str, set[str]]:
    """The graph of rooms: modules as one with the folder that they lie in."""
    found: dict[str, set[str]] = {}
    for name, others in graph.items():
        room = name.partition(".")[0]
        found.setdefault(room, set()).update({o.partition(".")[0] for o in others} - {room})
    return found


def reduced(graph: Graph) -> dict[str, set[str]]:
    """The graph without arrows that a longer way makes superfluous."""
    beyond = {room: _reach(graph, others) for room, others in graph.items()}
    return {
        room: {other for other in others if not any(other in beyond[o] for o in others - {other})}
        for room, others in graph.items()
    }


def _reach(graph: Graph, start: Iterable[str]) -> set[str]:
    """Everything that can be reached from some rooms, themselves included."""
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        room = waiting.pop()
        if room not in seen:
            seen.add(room)
            waiting.extend(graph.get(room, ()))
    return seen


# --- the table of rooms ---------------------------------------------------------------------------


def list_rooms() -> str:
    """One line per room: what its docstring states, and its modules."""
    rows = (f"| `{name}` | {first_line(path)} | {_modules(path)} |" for name, path in rooms())
    return "\n".join(["| room | what | modules |", "| --- | --- | --- |", *rows]) + "\n"


def rooms() -> list[tuple[str, Path]]:
    """Every room with the file that describes it: the modules at the top, then the folders."""
    modules = [p for p in SRC.glob("*.py") if _name(p, SRC) not in DOORS]
    folders = [p for p in SRC.rglob("__init__.py") if p.parent != SRC]
    found = [(p.relative_to(SRC).as_posix(), p) for p in modules]
    found += [(f"{p.parent.relative_to(SRC).as_posix()}/", p) for p in folders]
    return sorted(found, key=lambda each: (each[0].endswith("/"), each[0]))


def first_line(path: Path) -> str:
    """The first line of a module's docstring; a room without one is an error."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if not text:
        raise SystemExit(f"{path.relative_to(ROOT)} has no docstring")
    return text.splitlines()[0]


def _modules(path: Path) -> str:
    if path.name != "__init__.py":
        return ""
    names = sorted(p.stem for p in path.parent.glob("*.py") if p.name != "__init__.py")
    data = sorted({f"{p.parent.name}/" for p in path.parent.glob("*/*.[sl][qu][la]")})
    return ", ".join([*names, *data])


PARTS = {
    "layers": draw_layers,
    "core": draw_core,
    "drivers": draw_drivers,
    "rooms": list_rooms,
}


def main() -> int:
    """Prints the parts, or writes them into the page."""
    parser = argparse.ArgumentParser(description="the generated parts of docs/contributing/map.md")
    parser.add_argument("--write", action="store_true", help="write docs/contributing/map.md")
    if parser.parse_args().write:
        PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print("\n".join(make() for make in PARTS.values()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
