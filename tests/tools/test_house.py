"""tools/house.py draws what the import statements say."""

import pytest

from tools import house

PAGE = "".join(f"<!-- {name}: tools/house.py -->\n<!-- end of {name} -->\n" for name in house.PARTS)


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A package of two rooms, of which one imports the other, and the pyproject.toml for it."""
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.importlinter.contracts]]\ncontainers = ["mainstay"]\n'
        'layers = ["(cli) | (later)", "core : drivers", "errors"]\n',
        encoding="utf-8",
    )
    src = tmp_path / "src/mainstay"
    files = {
        "__init__.py": '"""All."""\nfrom mainstay.cli.app import app\n',
        "errors.py": '"""Errors."""\n',
        "cli/__init__.py": '"""Commands.\n\nMore of them.\n"""\n',
        "cli/app.py": "from mainstay.core.a.one import x\nimport mainstay.errors\n",
        "core/__init__.py": '"""Decides."""\n',
        "core/a/__init__.py": '"""A."""\n',
        "core/a/one.py": "from mainstay.core import b\nfrom mainstay.core.a import two\n",
        "core/a/two.py": "import os\n",
        "core/b/__init__.py": '"""B."""\nif False:\n    from mainstay.errors import E\n',
        "drivers/__init__.py": '"""Drives."""\n',
    }
    for name, text in files.items():
        path = src / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(house, "ROOT", tmp_path)
    monkeypatch.setattr(house, "SRC", src)
    return src


def test_an_arrow_is_an_import_between_two_rooms(source):
    """Imports inside a room are no arrows, and a name means the module that holds it."""
    inside = house.folded(house.imports(source / "core"))
    assert inside == {"a": {"b"}, "b": set()}


def test_an_arrow_that_a_longer_way_replaces_is_left_out(source):
    """The cli imports errors itself, and by way of the core: one arrow suffices."""
    whole = house.folded(house.imports(source))
    assert whole["cli"] == {"core", "errors"}
    assert house.reduced(whole)["cli"] == {"core"}


def test_layers_are_those_of_the_contract_and_of_rooms_that_exist(source):
    """A room that the contract expects later is not drawn."""
    assert house.layers(house.folded(house.imports(source))) == [
        ["cli"],
        ["core", "drivers"],
        ["errors"],
    ]


def test_a_room_without_arrows_is_drawn(source):
    """No room is missing from the picture."""
    assert "\n    drivers\n" in house.draw_layers()


def test_the_line_of_a_room_is_the_first_of_its_docstring(source):
    """The table follows the source, and a room without a docstring is refused."""
    table = house.list_rooms()
    assert "| `cli/` | Commands. | app |" in table
    assert "| `errors.py` | Errors. |  |" in table
    (source / "core/b/__init__.py").write_text("", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"core/b/__init__\.py has no docstring"):
        house.list_rooms()


def test_a_page_is_written_twice_as_once(source):
    """Writing replaces the generated parts and nothing else."""
    once = house.render(f"before\n{PAGE}after\n")
    assert house.render(once) == once
    assert once.startswith("before\n")
    assert once.endswith("after\n")
    assert "cli --> core" in once


def test_a_page_without_its_markers_is_refused(source):
    """A part that is lost from the page is not lost in silence."""
    with pytest.raises(SystemExit, match="needs the lines"):
        house.render("nothing\n")
