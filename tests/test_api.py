"""The public door: what stands in it, what it costs to open, and that its examples run."""

import doctest
import importlib
import inspect
import json
import subprocess
import sys
from types import ModuleType

import pytest

import mainstay
import mainstay.testing
from tools import api

HOW = "run .venv/bin/python tools/api.py --write and review the diff"
BASE = {"msgspec", "yaml"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SRC = api.ROOT / "src"
APART = {"arq.py": "tests/integrations/test_arq_jobs.py runs its examples, beside arq"}
WITH_EXAMPLES = [
    path
    for path in sorted(SRC.rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8") and path.name not in APART
]
NAMES = [(door, name) for door in api.DOORS for name in importlib.import_module(door).__all__]


def test_the_public_api_is_the_reviewed_one():
    """No public name or signature changes without a line of api.txt changing beside it."""
    reviewed = api.FILE.read_text(encoding="utf-8") if api.FILE.exists() else ""
    now = api.render()
    old, new = reviewed.splitlines(), now.splitlines()
    changes = [f"- {line}" for line in old if line not in new]
    changes += [f"+ {line}" for line in new if line not in old]
    assert reviewed == now, "\n".join(["the public API is not that of api.txt:", *changes, HOW])


@pytest.mark.parametrize("door", api.DOORS)
def test_all_is_sorted_and_without_doubles(door):
    """Two people who add a name add it in the same place."""
    names = importlib.import_module(door).__all__
    assert list(names) == sorted(set(names), key=_order)


def _order(name):
    """Constants, then classes, then functions: the order that ruff keeps."""
    return not name.isupper(), not name[0].isupper(), name


@pytest.mark.parametrize(("door", "name"), NAMES)
def test_every_name_can_be_imported(door, name):
    """What the door names is there, also under the names that `dir` shows."""
    module = importlib.import_module(door)
    assert getattr(module, name) is not None
    assert name in dir(module)


def test_a_name_that_is_not_there_says_so():
    """A lazy door answers as a plain module does."""
    with pytest.raises(AttributeError, match="no_such_name"):
        mainstay.no_such_name  # noqa: B018  the access is what is tested


def test_import_loads_no_third_party_module():
    """`import mainstay` costs what it costs, and nobody else's import time."""
    assert third_party("import mainstay") == set()


def test_decorating_loads_only_the_base_install():
    """Decorating a function needs no extra."""
    code = "import mainstay\n@mainstay.retry(on=OSError)\ndef f(): pass\nf()"
    assert third_party(code) <= BASE


def test_an_engine_of_plain_functions_loads_no_event_loop(tmp_path):
    """Nor what reads configurations, verifies logs or speaks TLS: a command starts with it."""
    program = (
        "import sys\nfrom mainstay import Engine\n"
        f"with Engine('sqlite:///{tmp_path}/app.db', sinks=[]) as engine:\n"
        "    engine.operation('a', key='k').call(int)\n    engine.run('b', int, 'x')\n"
        "heavy = {'asyncio', 'ssl', 'yaml', 'tomllib', 'mainstay.core.audit.replay'}\n"
        "print(heavy & set(sys.modules))"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "set()"


def third_party(code: str) -> set[str]:
    """The top-level modules outside the standard library that `code` loads."""
    program = (
        f"import sys, json\nbefore = set(sys.modules)\n{code}\n"
        "print(json.dumps(sorted({m.partition('.')[0] for m in set(sys.modules) - before}"
        " - set(sys.stdlib_module_names))))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(run.stdout)) - {"mainstay"}


@pytest.mark.parametrize(("door", "name"), NAMES)
def test_every_name_has_an_example(door, name):
    """A user learns each public name from an example in its docstring, or in one of its methods."""
    value = getattr(importlib.import_module(door), name)
    module = value if isinstance(value, ModuleType) else inspect.getmodule(value)
    finder = doctest.DocTestFinder(recurse=not isinstance(value, ModuleType))
    found = finder.find(value, name, module)
    assert type(value) is dict or any(test.examples for test in found), (
        f"{door}.{name} has no example: write one in its docstring, after >>>"
    )


@pytest.mark.usefixtures("_collected")
@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")  # examples are short
@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.relative_to(SRC).as_posix())
def test_the_examples_of_a_module_are_true(path):
    """Every >>> in the source, public or not, gives what it says."""
    name = ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")
    module = importlib.import_module(name)
    public = {n: getattr(mainstay, n) for n in mainstay.__all__}
    names = {"mainstay": mainstay, **public, **vars(module)}
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for test in doctest.DocTestFinder().find(module, name, globs=names):
        with mainstay.testing.virtual_time():
            runner.run(test, out=report.append)
    assert runner.tries > 0
    assert not runner.failures, "".join(report)


@pytest.mark.parametrize(("door", "name"), NAMES)
def test_every_public_member_has_a_docstring(door, name):
    """A public class explains each method and property it defines."""
    value = getattr(importlib.import_module(door), name)
    members = vars(value).items() if isinstance(value, type) else []
    silent = [n for n, m in members if n[0] != "_" and is_explained(m) is False]
    assert silent == []


def is_explained(member: object) -> bool | None:
    """Whether a method or property has a docstring; None for what cannot have one."""
    if isinstance(member, classmethod | staticmethod):
        member = member.__func__
    if isinstance(member, property) or inspect.isfunction(member):
        return bool(member.__doc__)
    return None
