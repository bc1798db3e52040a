"""The code of a page: the fenced blocks of a Markdown file, and how they run.

    python tools/pages.py PAGE...

The ```python blocks of a file run in order, as one module, in the current folder and under virtual
time; `await` may stand outside a function. A block that starts with >>> is a doctest. In a
```console block every `$ mainstay ...` line runs and must exit 0, and every `$ make ...` line
names a target of the Makefile. A block that cannot run says why: ```python no-run: needs a
server.

tests/test_docs.py runs every page this way, and `make dist` the README in an empty environment:
this module imports the standard library and mainstay alone.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import mainstay.testing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"(?P<indent> *)(?P<fence>```+)(?P<info>[^`]*)")
NO_RUN = re.compile(r"no-run(?P<colon>:?)\s*(?P<reason>.*)")
MAIN = "import sys; from mainstay.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, what follows it, its first line and its text."""

    language: str
    rest: str
    line: int
    text: str


def read_blocks(markdown: str) -> list[Block]:
    """The fenced blocks of a page, also indented ones."""
    blocks, lines = [], iter(enumerate(markdown.splitlines(), start=1))
    for number, line in lines:
        opened = FENCE.fullmatch(line)
        if opened is None:
            continue
        indent, text = len(opened["indent"]), []
        for _, inner in lines:
            if inner.strip() == opened["fence"]:
                break
            text.append(inner[indent:] if not inner[:indent].strip() else inner)
        else:
            raise AssertionError(f"line {number}: a block that is never closed")
        language, _, rest = opened["info"].strip().partition(" ")
        blocks.append(Block(language, rest.strip(), number, "\n".join(text) + "\n"))
    return blocks


def runs(block: Block) -> bool:
    """Whether the block is to run; one that says no must say why."""
    excuse = NO_RUN.fullmatch(block.rest)
    if block.rest and (excuse is None or not (excuse["colon"] and excuse["reason"])):
        raise AssertionError(
            f"line {block.line}: `{block.language} {block.rest}`: a block that does not run says"
            f" why: `{block.language} no-run: reason`"
        )
    return excuse is None


def run_page(markdown: str, path: str) -> list[Block]:
    """Run the blocks of a page in order; which they were."""
    ran = []
    module = ModuleType("page")
    module.__file__ = path
    with as_module(module):
        for block in read_blocks(markdown):
            if block.language in ("python", "console") and runs(block):
                if block.language == "python":
                    run_python(block, path, module)
                else:
                    run_console(block)
                ran.append(block)
    return ran


@contextmanager
def as_module(module: ModuleType) -> Iterator[None]:
    """While a page runs, its module can be imported: pickle looks its classes up there."""
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        if before is None:
            del sys.modules[module.__name__]
        else:
            sys.modules[module.__name__] = before


def run_python(block: Block, path: str, module: ModuleType) -> None:
    """Run one block in the module of its page, with the page's line numbers."""
    if block.text.lstrip().startswith(">>>"):
        run_doctest(block, path, module)
        return
    source = "\n" * block.line + block.text
    code = compile(source, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with mainstay.testing.virtual_time():
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, vars(module)))  # noqa: S307 -- a page of our own
        else:
            exec(code, vars(module))  # noqa: S102 -- a page of our own


def run_doctest(block: Block, path: str, module: ModuleType) -> None:
    """Run a block of >>> lines; the names it makes stay for the next block."""
    test = doctest.DocTestParser().get_doctest(block.text, {}, path, path, block.line)
    test.globs = vars(module)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    with mainstay.testing.virtual_time():
        runner.run(test, out=report.append, clear_globs=False)
    assert not runner.failures, "".join(report)


def run_console(block: Block) -> None:
    """Run the commands of one block that are ours."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True) if line[:2] == "$ " else []
        if words[:1] == ["mainstay"]:
            run_command(words[1:], block.line)
        elif words[:1] == ["make"]:
            unknown = {w for w in words[1:] if "=" not in w} - make_targets()
            assert not unknown, f"line {block.line}: make has no {', '.join(unknown)}"


def run_command(arguments: list[str], line: int) -> None:
    """Run `mainstay` as a process of its own."""
    env = {**os.environ, "COLUMNS": "100", "XDG_STATE_HOME": str(Path.cwd() / ".state")}
    done = start_command(arguments, env)
    said = f"line {line}: mainstay {shlex.join(arguments)} exited {done.returncode}"
    assert done.returncode == 0, f"{said}\n{done.stdout}{done.stderr}"


def start_command(arguments: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Start `mainstay`, and wait for its end; tests fork it instead, which costs less."""
    return subprocess.run(  # noqa: S603 -- a page of our own
        [sys.executable, "-c", MAIN, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        stdin=subprocess.DEVNULL,
        env=env,
    )


def make_targets() -> set[str]:
    """The targets of the Makefile."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


def main(pages: list[str]) -> int:
    """Run the pages in the current folder; the first that fails ends it with a traceback."""
    for page in pages:
        markdown = Path(page).read_text(encoding="utf-8")
        run_page(markdown, page)
        ran = [block for block in read_blocks(markdown) if block.language == "python"]
        print(f"{Path(page).name}: {sum(map(runs, ran))} blocks of Python ran")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
