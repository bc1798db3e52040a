"""Unpacking a Python from Debian's packages: what apt is asked for, and what can be run."""

import os
import subprocess

import pytest

from tools import pythons, unpack_python

APT = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
  *indextargets*) echo http://mirror.invalid/debian/;;
  *download*) {download};;
esac
"""
DPKG = """#!/bin/sh
mkdir -p "$3/usr/bin" "$3/usr/lib/some-linux" "$3/usr/lib/python3.14"
printf '#!/bin/sh\\necho "$0 runs $*"\\n' > "$3/usr/bin/{program}"
printf '#!/bin/sh\\nshift 4; exec sh "$@"\\n' > "$3/usr/lib/some-linux/ld-linux-some.so.2"
chmod 755 "$3/usr/bin/{program}" "$3/usr/lib/some-linux/ld-linux-some.so.2"
echo "WHEEL_PKG_DIR = '/usr/share/python-wheels/'" > "$3/usr/lib/python3.14/_sysconfigdata_x.py"
"""


@pytest.fixture
def debian(tmp_path, monkeypatch):
    """Programs apt-get and dpkg with one package, which holds a program."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    log = tmp_path / "asked"
    (tmp_path / "bin").mkdir()

    def install(download="touch one.deb", program="python3.14"):
        texts = {
            "apt-get": APT.format(log=log, download=download),
            "dpkg": DPKG.format(program=program),
        }
        for name, text in texts.items():
            (tmp_path / "bin" / name).write_text(text, encoding="utf-8")
            (tmp_path / "bin" / name).chmod(0o755)
        return log

    return install


def test_a_python_is_unpacked_beside_its_libraries(debian, tmp_path):
    """The newer loader starts it, its own wheels are used, and it is unpacked once."""
    log, into = debian(), tmp_path / "into"
    assert unpack_python.main(["3.14", "--into", str(into)]) == 0
    program = into / "3.14/bin/python"
    done = subprocess.run([program, "-V"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{into}/3.14/bin/python3.14.real runs -V\n"
    data = into / "3.14/lib/python3.14/_sysconfigdata_x.py"
    assert f"'{into}/3.14/share/python-wheels/'" in data.read_text(encoding="utf-8")
    assert [path.name for path in into.iterdir()] == ["3.14"], "no scratch is left"
    asked = log.read_text(encoding="utf-8")
    assert " download python3.14 python3.14-minimal " in asked
    assert "-oDir::Etc::SourceParts=- -oDir::State::Lists=" in asked
    assert unpack_python.main(["3.14", "--into", str(into)]) == 0
    assert log.read_text(encoding="utf-8") == asked


def test_what_is_unpacked_is_found_by_test_all(tmp_path, monkeypatch):
    """It lies where the Pythons that were built lie."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = tmp_path / "mainstay-pythons/3.14/bin/python"
    program.parent.mkdir(parents=True)
    program.touch()
    assert program in pythons.candidates("3.14")


@pytest.mark.parametrize(
    ("version", "changes", "reason"),
    [
        ("3.14", {"download": "echo 404 Not Found; exit 100"}, "apt-get exited with 100\n  404"),
        ("3.14", {"program": "other"}, "the packages hold no program python3.14"),
        ("3.14t", {}, "Debian has no package of a free-threaded Python"),
    ],
)
def test_what_cannot_be_had_is_an_error_with_its_reason(
    debian, tmp_path, capsys, version, changes, reason
):
    """And nothing is left behind."""
    debian(**changes)
    assert unpack_python.main([version, "--into", str(tmp_path / "into")]) == 1
    assert reason in capsys.readouterr().err
    assert not list((tmp_path / "into").glob("*"))
