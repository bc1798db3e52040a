"""The code of README.md and docs/ runs.

The ```python blocks of a file run in order, as one module, in an empty folder and under virtual
time; `await` may stand outside a function. A block that starts with >>> is a doctest. In a
```console block every `$ mainstay ...` line runs and must exit 0, and every `$ make ...` line
names a target of the Makefile. A block that cannot run says why: ```python no-run: needs a
server.
"""

import ast
import asyncio
import doctest
import inspect
import os
import re
import shlex
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

import mainstay.testing

ROOT = Path(__file__).parents[1]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
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


def run_page(markdown: str, path: str) -> None:
    """Run the blocks of a page in order."""
    module = ModuleType("page")
    module.__file__ = path
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        for block in read_blocks(markdown):
            if block.language == "python" and runs(block):
                run_python(block, path, module)
            elif block.language == "console" and runs(block):
                run_console(block)


def run_python(block: Block, path: str, module: ModuleType) -> None:
    """Run one block in the module of its page, with the page's line numbers."""
    if block.text.lstrip().startswith(">>>"):
        run_doctest(block, path, module)
        return
    source = "\n" * block.line + block.text
    code = compile(source, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with mainstay.testing.virtual_time():
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, vars(module)))
        else:
            exec(code, vars(module))


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
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "100", "XDG_STATE_HOME": str(Path.cwd() / ".state")},
    )
    said = f"line {line}: mainstay {shlex.join(arguments)} exited {done.returncode}"
    assert done.returncode == 0, f"{said}\n{done.stdout}{done.stderr}"


def make_targets() -> set[str]:
    """The targets of the Makefile."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_code_of_a_page_runs(path, tmp_path, monkeypatch):
    """A reader who copies the code of a page gets what the page says."""
    monkeypatch.chdir(tmp_path)
    run_page(path.read_text(encoding="utf-8"), str(path))


GOOD = """\
```python
x = 1
```
- in a list

  ```python
  import asyncio
  async def f():
      await asyncio.sleep(0)
      return x + 1
  y = await f()
  ```
```python
>>> y
2
>>> z = 3
```
```python no-run: needs a server
this is not Python
```
```python
assert z == 3 and __name__ == "page" and open("made", "w").close() is None
```
```console
$ pip install something   # not ours
$ make test ARGS='-k x'
output, not a command: mainstay --no-such-option
```
```text
not code
```
"""


def test_a_good_page_passes(tmp_path, monkeypatch):
    """The forms that the docstring above promises are all taken."""
    monkeypatch.chdir(tmp_path)
    run_page(GOOD, "good.md")
    assert (tmp_path / "made").exists()
    assert len(read_blocks(GOOD)) == 7


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```python\nassert 1 == 2, 'planted'\n```\n", "planted"),
        ("```python\n>>> 1 + 1\n3\n```\n", "Expected"),
        ("```python no-run\nx = 1\n```\n", "says why"),
        ("```python no-run:\nx = 1\n```\n", "says why"),
        ("```python norun: typo\nx = 1\n```\n", "says why"),
        ("```python\nx = 1\n", "never closed"),
        ("```console\n$ mainstay --no-such-option\n```\n", "exited"),
        ("```console\n$ mainstay \\\n  --no-such-option\n```\n", "exited"),
        ("```console\n$ make coffee\n```\n", "make has no coffee"),
    ],
)
def test_a_bad_page_fails(page, message, tmp_path, monkeypatch):
    """The test above can fail, each time with the reason."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=message):
        run_page(page, "bad.md")


def test_an_error_shows_the_line_of_its_page():
    """A failing block is found by the line that the traceback shows."""
    with pytest.raises(ZeroDivisionError) as caught:
        run_page("text\n\n```python\nx = 1\n1 / 0\n```\n", "bad.md")
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.lineno) == ("bad.md", 5)
