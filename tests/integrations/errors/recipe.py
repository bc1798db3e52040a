"""Runs the code of a page of docs/cookbook/ against a server of the test."""

from pathlib import Path

from mainstay.testing import virtual_time
from tools.pages import read_blocks

COOKBOOK = Path(__file__).parents[3] / "docs" / "cookbook"


def run_recipe(name, **replaced):
    """The names that the Python blocks of a page define; words of the page may be replaced."""
    page = (COOKBOOK / f"{name}.md").read_text(encoding="utf-8")
    code = "".join(each.text for each in read_blocks(page) if each.language == "python")
    for word, other in replaced.items():
        assert word in code, word
        code = code.replace(word, str(other))
    names = {"__name__": name}
    with virtual_time():
        exec(compile(code, f"{name}.md", "exec"), names)  # a page of our own
    return names
