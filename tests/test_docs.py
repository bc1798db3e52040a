"""The code of README.md and docs/ runs, as tools/pages.py describes."""

import traceback
from pathlib import Path
from types import ModuleType

import pytest

from mainstay.testing import virtual_time
from tests.servers import commands
from tools import pages
from tools.pages import read_blocks, run_page

ROOT = Path(__file__).parents[1]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def forked(arguments, env):
    """A command of a page, in a process that has the library loaded."""
    return commands.run(*arguments, env=env, text=True)


@pytest.fixture
def _no_django_settings():
    """A page configures Django, which can be done once; others of this process have done it."""
    conf = pytest.importorskip("django.conf")
    before, conf.settings._wrapped = conf.settings._wrapped, conf.empty
    yield
    conf.settings._wrapped = before


@pytest.mark.usefixtures("logged", "_collected")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_code_of_a_page_runs(path, tmp_path, monkeypatch, request):
    """A reader who copies the code of a page gets what the page says."""
    if path.name == "django.md":
        request.getfixturevalue("_no_django_settings")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pages, "start_command", forked)
    page = path.read_text(encoding="utf-8")
    code = [each for each in read_blocks(page) if each.language in ("python", "console")]
    assert run_page(page, str(path)) == [each for each in code if not each.rest]


def test_the_tutorial_is_one_program(tmp_path, monkeypatch):
    """A reader who puts its blocks into one file can run that file with plain Python."""
    monkeypatch.chdir(tmp_path)
    path = ROOT / "docs/tutorial.md"
    blocks = [each for each in read_blocks(path.read_text("utf-8")) if each.language == "python"]
    assert len(blocks) > 10
    assert all(not each.rest and not each.text.startswith(">>>") for each in blocks)
    program = compile("".join(each.text for each in blocks), "tutorial.py", "exec")
    module = ModuleType("__main__")
    with virtual_time():
        exec(program, vars(module))  # a page of our own
    assert module.engine.health().is_closed


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
    """The forms that the docstring of tools/pages.py promises are all taken."""
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
