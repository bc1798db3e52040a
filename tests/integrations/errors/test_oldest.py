"""`make test-all`: the oldest versions of the libraries whose errors are known."""

import sys
from pathlib import Path

import pytest

from mainstay.integrations.errors import FILES
from tools import oldest
from tools.oldest import Pin

STANDARD = {"smtplib", "socket", "sqlite3", "ssl", "subprocess"}


def test_every_table_but_those_of_the_standard_library_has_its_oldest_version():
    """A new table is walked with its oldest version too."""
    pins = list(oldest.read(oldest.PINS.read_text(encoding="utf-8")))
    assert {pin.table for pin in pins} == set(FILES.values()) - STANDARD - {"profiles"}  # ours
    assert all("==" in pin.requirements[0] for pin in pins)
    assert len({pin.folder for pin in pins}) == len(pins)


def test_a_line_is_a_table_and_what_is_installed_for_it():
    """Comments and empty lines are left out."""
    text = "# all\n\nhttpx httpx==0.7.5  # the first\npsycopg psycopg==3.1 psycopg-binary==3.1\n"
    assert list(oldest.read(text)) == [
        Pin("httpx", ("httpx==0.7.5",)),
        Pin("psycopg", ("psycopg==3.1", "psycopg-binary==3.1")),
    ]


@pytest.fixture
def acme(tmp_path):
    """An hvac of its own, in a folder that counts as installed; a function that writes it."""
    pin = Pin("hvac", ("hvac==0.0.1",))
    folder = tmp_path / "libraries" / pin.folder
    (folder / "hvac").mkdir(parents=True)
    oldest.mark(folder, "hvac==0.0.1")

    def write(text):
        (folder / "hvac" / "__init__.py").write_text(text, encoding="utf-8")
        return oldest.walk(pin, Path(sys.executable), folder)

    return write


def test_a_class_that_nobody_has_judged_fails(acme):
    """It is named, and so is what a library that cannot be imported lacks."""
    assert acme("class Odd(Exception): ...") == "FAILED  no entry for hvac.Odd"
    assert acme("import sys; sys.exit('broken')") == "FAILED  broken"
    assert acme("import no_such_module").startswith("FAILED  ModuleNotFoundError")


def test_a_version_whose_classes_are_all_judged_passes(acme):
    """The number is shown, so that a walk that found next to nothing is noticed."""
    text = "class VaultError(Exception): __module__ = 'hvac.exceptions'"
    assert acme(text) == "1 classes are judged"


def test_a_table_that_is_not_in_the_file_is_refused(capsys):
    """A misspelt name would walk nothing, and pass."""
    with pytest.raises(SystemExit):
        oldest.main(["--only", "htpx"])
    assert "htpx: not in oldest.txt" in capsys.readouterr().err
