"""What a page or a docstring names exists: files, folders, modules, links and their headings."""

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src/mainstay"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
ROOMS = sorted(path.name for path in SRC.iterdir() if path.name != "__pycache__")

FILE = re.compile(r"(?<![\w/.<>*-])(?:[\w-]+/)*[\w-]+\.(?:py|sql|lua)\b(?!\.\w)")
FOLDER = re.compile(rf"(?<![\w/.<>*-])(?:{'|'.join(ROOMS)})/(?:\w+/)*(?![\w<*{{])")
DOTTED = re.compile(r"(?<![\w/.@-])mainstay(?:\.[A-Za-z_]\w*)+(?![\w/(-]*\.(?:yml|db|json))")
NOT_OURS = re.compile(
    r"mainstay\.(?:yml|yaml|db|toml|schema\.json|security"
    r"|attempts?|call_id|kind|operation|outcome|policy|reason|core\.(?:kinds|nonsense).*)"
)
"""Files, a logger, attributes of spans, names that old records hold."""


def missing(text, folder=SRC):
    """What a text names and does not exist; a path may also begin at the folder, or inside it."""
    places = (ROOT, SRC, folder, *(each for each in folder.iterdir() if each.is_dir()))
    paths = {*FILE.findall(text), *FOLDER.findall(text)}
    gone = [path for path in paths if not any((place / path).exists() for place in places)]
    names = {name for name in DOTTED.findall(text) if not NOT_OURS.fullmatch(name)}
    return sorted([*gone, *(name for name in names if not is_there(name))])


def is_there(name):
    """Whether a dotted name is a module, or what a module holds."""
    module, _, rest = name.partition(".")
    found = import_module(module)
    for part in rest.split("."):
        module = f"{module}.{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = import_module(module)
            except ImportError:  # of a library that is not here, such as arq
                return find_spec(module) is not None
    return True


def docstrings(path):
    """Every text of a module that stands alone: docstrings, also those of attributes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return "\n".join(n.value for n in nodes if isinstance(n, ast.Constant) and type(n.value) is str)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_a_page_names_exists(page):
    """A reader who follows a path or an import finds it."""
    assert missing(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_docstring_names_exists(room):
    """A module that moves is moved in the docstrings of others too."""
    files = [SRC / room] if room.endswith(".py") else sorted((SRC / room).rglob("*.py"))
    found = {str(file.relative_to(SRC)): missing(docstrings(file), file.parent) for file in files}
    assert {name: gone for name, gone in found.items() if gone} == {}


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("see `core/retry/call.py` and tools/house.py", []),
        ("see `core/call.py`", ["core/call.py"]),
        ("see call.py", ["call.py"]),
        ("the rooms `core/retry/` and `core/telling/`", ["core/telling/"]),
        ("`core/<feature>/events.py`, sqlite:///app.db, mainstay.yml", []),
        (
            "`mainstay.testing.virtual_time()` and `mainstay.testing.no_time()`",
            ["mainstay.testing.no_time"],
        ),
    ],
)
def test_what_is_missing_is_found(text, gone):
    """The rules above can fail."""
    assert missing(text) == gone


# --- links ----------------------------------------------------------------------------------------

LINK = re.compile(r"\]\((?!https?://)([^)\s#]*)(?:#([^)\s]+))?\)")


def anchors(page):
    """The headings of a page, as GitHub spells them in links."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    """A link to a page finds the page, and a link to a heading the heading."""
    dead = []
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(f"{path}#{anchor}")
    assert dead == []


# --- the threat model -----------------------------------------------------------------------------

SECURITY = (ROOT / "docs/security.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(test_[a-z0-9_]+)`")


def claims():
    """The rows of the tables whose last column is a test."""
    is_tested = False
    for line in SECURITY.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            is_tested = False
        elif cells[-1] == "test":
            is_tested = True
        elif is_tested and not set(line) <= set("|- :"):
            yield cells


def names_of_tests():
    """Every test of the project."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        yield from re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tests():
    """The names of all tests."""
    return set(names_of_tests())


def test_each_row_that_holds_names_its_test(tests):
    """A claim without a test is no claim."""
    found = list(claims())
    assert len(found) > 50
    unnamed = [cells for cells in found if not NAMED.findall(cells[-1])]
    assert unnamed == []
    missing = [name for cells in found for name in NAMED.findall(cells[-1]) if name not in tests]
    assert missing == []


def test_each_attacker_has_what_holds_and_what_does_not():
    """A model that only lists what holds is advertising."""
    for part in SECURITY.split("\n## ")[1:]:
        if "| test |" in part:
            assert "Does not hold" in part, part.splitlines()[0]
