"""SQL and Lua are found wherever the package is."""

import subprocess
import sys
import zipfile
from pathlib import Path

import mainstay
from mainstay.stores.package_files import read_texts

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from mainstay.stores.package_files import read_texts
import mainstay
assert mainstay.__file__.startswith(sys.argv[1]), mainstay.__file__
print(*sorted(read_texts("mainstay.stores.outbox", "sql", "sqlite")))
"""


def test_the_files_of_a_folder_are_read_by_name():
    """Each with its text."""
    folder = Path(mainstay.__file__).parent / "stores/redis/lua"
    texts = read_texts("mainstay.stores.redis", "lua")
    assert texts == {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert "read.lua" in texts


def test_the_files_are_read_from_an_archive(tmp_path):
    """A program that is one archive, as zipapp makes it, has them too."""
    source = Path(mainstay.__file__).parent
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as archive:
        for path in (*source.rglob("*.py"), *source.rglob("*.sql")):
            archive.write(path, Path("mainstay", path.relative_to(source)))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path / "program.zip"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    expected = read_texts("mainstay.stores.outbox", "sql", "sqlite")
    assert done.stdout.split() == sorted(expected)


def test_what_reads_archives_is_not_loaded_for_files():
    """It loads zipfile and tempfile, which takes as long as sqlite3."""
    script = "import sys; from mainstay.stores.migrations import scripts; scripts('sqlite');"
    done = subprocess.run(
        [sys.executable, "-c", f"{script} print('importlib.resources' in sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "False\n"
