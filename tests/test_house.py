"""The rules of the house are set where the checks read them."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.req("CP-23")
def test_the_gate_on_the_core_is_every_branch():
    """`make check` and .ci/run demand 100 % of the branches of core/, with no way around it."""
    coverage = PROJECT["tool"]["coverage"]
    assert coverage["run"]["branch"] is True
    assert coverage["report"]["fail_under"] == 100
    assert "coverage report --include='src/mainstay/core/*'" in MAKEFILE
    for target in ("check", "check-rest"):
        assert "cover" in re.search(rf"^{target}:(.*?)##", MAKEFILE, re.MULTILINE)[1].split()
    assert "make check-rest" in (ROOT / ".ci/run").read_text(encoding="utf-8")


@pytest.mark.req("CP-23")
def test_no_line_of_the_core_is_excused_from_coverage():
    """A pragma would make 100 % mean less."""
    for path in (ROOT / "src/mainstay/core").rglob("*.py"):
        assert "pragma: no" not in path.read_text(encoding="utf-8"), path


def test_the_extra_all_holds_every_other():
    """`pip install mainstay[all]` leaves nothing out."""
    extras = PROJECT["project"]["optional-dependencies"]
    named = ",".join(re.search(r"\[(.*)\]", line)[1] for line in extras["all"]).split(",")
    assert sorted([*named, "all"]) == sorted(extras)


def test_development_tools_are_pinned():
    """A check that fails tomorrow fails because of us."""
    groups = PROJECT["dependency-groups"]
    loose = [line for group in groups.values() for line in group if "==" not in line]
    assert loose == []


def test_every_ignored_rule_has_its_reason():
    """A lint rule that is off says why, on its own line."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text[text.index("[tool.ruff.lint]") : text.index("[tool.ruff.format]")]
    bare = re.findall(r'^ +"[A-Z]+\d*",?\s*$', section, re.MULTILINE)
    assert bare == []


def find_python(tmp_path, **programs):
    """Run tools/find-python with only these programs on the path."""
    for name, script in programs.items():
        path = tmp_path / name.replace("_", ".")
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
    return subprocess.run(
        ["/bin/sh", ROOT / "tools/find-python"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"PATH": str(tmp_path)},
    )


OLD = 'case "$2" in *print*) echo 3.9 ;; *version_info*) exit 1 ;; esac'
BARE = 'case "$2" in *print*) echo 3.12 ;; *venv*) exit 1 ;; esac'
GOOD = 'case "$2" in *print*) echo 3.13 ;; esac'
SHIM = "exit 127"


def test_set_up_passes_over_a_python_that_will_not_do(tmp_path):
    """An old one, a shim that answers nothing and one without venv are passed over."""
    done = find_python(tmp_path, python3=OLD, python3_13=SHIM, python3_12=BARE, python3_11=GOOD)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/python3.11\n")


def test_set_up_says_that_venv_is_missing(tmp_path):
    """A bare Debian has Python without venv; the message names the package."""
    done = find_python(tmp_path, python3=BARE)
    assert done.returncode == 1
    assert "apt install python3-venv   (or python3.12-venv)" in done.stderr


def test_set_up_says_that_python_is_missing(tmp_path):
    """Where there is no Python of 3.11 or later the message says what was seen."""
    done = find_python(tmp_path, python3=OLD)
    assert done.returncode == 1
    assert "no Python 3.11 or later was found; too old: python3 (3.9)" in done.stderr
    assert "apt install python3 python3-venv" in done.stderr


# --- sizes ----------------------------------------------------------------------------------------

SRC = ROOT / "src/mainstay"
MOST_MODULES = 16
CATALOGUES = {
    "integrations": "one file is one library",
    "integrations/errors": "one file is the table of one library",
}
"""Folders that may hold more, each with the reason: one file there is one thing."""


def crowded(src, most=MOST_MODULES):
    """Folders of source or tests with more modules than a person takes in at a glance."""
    folders = {path.parent for path in src.rglob("*.py")}
    names = {folder.relative_to(src).as_posix(): folder for folder in folders}
    return sorted(
        name
        for name, folder in names.items()
        if name not in CATALOGUES
        and sum(path.name != "__init__.py" for path in folder.glob("*.py")) > most
    )


def test_no_folder_of_the_source_is_crowded():
    """A folder holds at most 16 modules, but for catalogues that are named with their reason."""
    assert crowded(SRC) == []


def test_no_folder_of_the_tests_is_crowded():
    """Tests mirror the source, so their folders are small too."""
    assert crowded(ROOT / "tests") == []


def test_a_crowded_folder_is_found(tmp_path):
    """The rule above can fail."""
    for number in range(17):
        (tmp_path / f"module_{number}.py").touch()
    assert crowded(tmp_path) == ["."]
    (tmp_path / "module_0.py").rename(tmp_path / "__init__.py")
    assert crowded(tmp_path) == []


def test_a_folder_of_tests_is_a_folder_of_the_source():
    """The same feature has the same folder name in src/ and in tests/."""
    own = {"conformance", "crash", "servers", "stored", "tools", "typing"}
    tests = ROOT / "tests"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    strays = {f for f in folders if f.parts and f.parts[0] not in own and not (SRC / f).is_dir()}
    assert strays == set()


MOST_LINES = 500
LONG = {"errors.py": "the catalogue of exceptions, with the tree drawn on top"}
"""Modules that may be longer, each with the reason."""
LONGEST_FUNCTION = 50


def long_modules(src):
    """Modules over the limit, by their path."""
    lengths = {
        path.relative_to(src).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in src.rglob("*.py")
    }
    return {name: n for name, n in lengths.items() if n > MOST_LINES and name not in LONG}


MOST_LINES_OF_A_DOOR = 400
"""Of code: strings that stand alone, comments, blank lines, and signatures that only type checkers
read are not counted."""


def code_lines(source):
    """How many lines of a module are code."""
    prose = set()
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or _is_signature(node):
            prose |= set(range(node.lineno, node.end_lineno + 1))
    lines = enumerate(source.splitlines(), start=1)
    return sum(n not in prose and not line.strip().startswith(("#",)) and bool(line.strip())
               for n, line in lines)  # fmt: skip


def _is_signature(node):
    """Whether a block gives type checkers the signature of `__init__`, and nothing else."""
    if not isinstance(node, ast.If) or ast.unparse(node.test) != "TYPE_CHECKING":
        return False
    names = [getattr(each, "name", "") for each in node.body]
    return names == ["__init__"] and ast.unparse(node.body[0].body) == "..."


def doors():
    """The front doors: each a module or a folder of profiles/, with the lines of its code."""
    found = {path.stem: [path] for path in (SRC / "profiles").glob("*.py") if path.stem[0] != "_"}
    for folder in (SRC / "profiles").glob("*/__init__.py"):
        found[folder.parent.name] = list(folder.parent.rglob("*.py"))
    return {
        name: sum(code_lines(path.read_text(encoding="utf-8")) for path in paths)
        for name, paths in found.items()
    }


def test_a_front_door_is_thin():
    """What decides is in the engine: a door has at most 400 lines of code."""
    assert {name: n for name, n in doors().items() if n > MOST_LINES_OF_A_DOOR} == {}
    assert {"agents", "clients", "control_plane"} <= doors().keys()


def test_prose_does_not_count_as_code():
    """Docstrings, strings below a name, comments and blank lines."""
    source = '"""Doc.\n\nMore."""\n\nA = 1\n"""What A is."""\n# why\nB = """a\nb"""\n'
    assert code_lines(source) == 3


def test_a_signature_for_type_checkers_does_not_count_as_code():
    """One that does something does."""
    shown = "class A:\n    if TYPE_CHECKING:\n        def __init__(self, a: int) -> None: {}\n"
    assert code_lines(shown.format("...")) == 1
    assert code_lines(shown.format("self.a = a")) == 3


def long_functions(source):
    """Functions over the limit, without their docstrings."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if ast.get_docstring(node) is not None else None
            doc = 0 if first is None else first.end_lineno - first.lineno + 1
            length = node.end_lineno - node.lineno + 1 - doc
            if length > LONGEST_FUNCTION:
                found[node.name] = length
    return found


def test_no_module_is_longer_than_500_lines():
    """A module is one idea; the named exceptions are catalogues."""
    assert long_modules(SRC) == {}


@pytest.mark.parametrize("room", sorted(path.name for path in SRC.iterdir() if path.is_dir()))
def test_no_function_is_longer_than_50_lines(room):
    """A function fits on a screen."""
    for path in (SRC / room).rglob("*.py"):
        assert long_functions(path.read_text(encoding="utf-8")) == {}, path


def untyped(*folders):
    """How often `Any` occurs as a word."""
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    return sum(len(re.findall(r"\bAny\b", path.read_text(encoding="utf-8"))) for path in paths)


def test_the_core_and_the_drivers_name_their_types():
    """`Any` is for what is the user's or a library's; what is ours has a name."""
    assert untyped(SRC / "core", SRC / "drivers") < 300


def test_untyped_names_are_counted(tmp_path):
    """The rule above can fail, and a longer word does not count."""
    (tmp_path / "a.py").write_text("x: Any\ny: list[Any]\nAnything = 1\n", encoding="utf-8")
    assert untyped(tmp_path) == 2


def test_a_long_function_and_a_long_module_are_found(tmp_path):
    """The rules above can fail, and a docstring does not count."""
    body = "    x = 1\n" * 50
    assert long_functions(f"def f():\n{body}") == {"f": 51}
    assert long_functions(f'def f():\n    """A sentence."""\n{body[:-10]}') == {}
    (tmp_path / "errors.py").write_text("x = 1\n" * 501, encoding="utf-8")
    assert long_modules(tmp_path) == {}
    (tmp_path / "errors.py").rename(tmp_path / "other.py")
    assert long_modules(tmp_path) == {"other.py": 501}
