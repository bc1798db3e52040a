"""Building a Python from Debian's source package: what apt is asked for, and what is built."""

import io
import os
import tarfile

import pytest

from tools import build_python, pythons

CONFIGURE = """#!/bin/sh
for each in "$@"; do case $each in --prefix=*) prefix=${each#--prefix=};; esac; done
printf 'all:\\n\\t@true\\ninstall:\\n' > Makefile
printf '\\tmkdir -p %s/bin\\n\\techo "%s" > %s/bin/python3\\n' "$prefix" "$*" "$prefix" >> Makefile
"""
APT = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
  *indextargets*) echo http://mirror.invalid/debian/;;
  *source*) {source};;
esac
"""


@pytest.fixture
def apt(tmp_path, monkeypatch):
    """A program apt-get that has the source of a Python which builds in no time."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    archive, log = tmp_path / "python3.14_3.14.1.orig.tar.xz", tmp_path / "asked"
    with tarfile.open(archive, "w:xz") as made:
        member = tarfile.TarInfo("Python-3.14.1/configure")
        member.size, member.mode = len(CONFIGURE), 0o755
        made.addfile(member, io.BytesIO(CONFIGURE.encode()))

    def install(source=f"cp {archive} ."):
        program = tmp_path / "bin/apt-get"
        program.parent.mkdir(exist_ok=True)
        program.write_text(APT.format(log=log, source=source), encoding="utf-8")
        program.chmod(0o755)
        return log

    return install


@pytest.mark.parametrize(("version", "is_free"), [("3.14", False), ("3.14t", True)])
def test_a_python_is_built_from_the_source_package(apt, tmp_path, version, is_free):
    """With or without the GIL; what is there is not built again."""
    log = apt()
    assert build_python.main([version, "--into", str(tmp_path / "into")]) == 0
    program = tmp_path / "into" / version / "bin/python"
    assert ("--disable-gil" in program.read_text(encoding="utf-8")) is is_free
    assert [path.name for path in (tmp_path / "into").iterdir()] == [version], "no scratch is left"
    asked = log.read_text(encoding="utf-8")
    assert "source --download-only python3.14\n" in asked
    assert build_python.main([version, "--into", str(tmp_path / "into")]) == 0
    assert log.read_text(encoding="utf-8") == asked


def test_the_configuration_of_apt_itself_is_not_touched(apt, tmp_path):
    """Sources, lists and cache are folders of the build."""
    log = apt()
    build_python.main(["3.14", "--into", str(tmp_path / "into")])
    for line in log.read_text(encoding="utf-8").splitlines()[1:]:
        assert line.count(f"={tmp_path}/into/build-3.14-") == 3
        assert "-oDir::Etc::SourceParts=-" in line


@pytest.mark.parametrize(
    ("source", "reason"),
    [("echo '404  Not Found' >&2; exit 100", "404  Not Found"), ("true", "no archive")],
)
def test_a_source_that_cannot_be_had_is_reported(apt, tmp_path, capsys, source, reason):
    """With the end of what apt printed; nothing is left behind."""
    apt(source)
    assert build_python.main(["3.14", "--into", str(tmp_path / "into")]) == 1
    assert reason in capsys.readouterr().err
    assert list((tmp_path / "into").iterdir()) == []


def test_a_system_without_apt_is_reported(tmp_path, monkeypatch, capsys):
    """The error names the program."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build_python.main(["3.14", "--into", str(tmp_path / "into")]) == 1
    assert "apt-get" in capsys.readouterr().err


def test_what_is_built_is_found(tmp_path, monkeypatch):
    """By tools/pythons.py, in the folder of caches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "mainstay-pythons" == pythons.built()
    made = pythons.built() / "3.14t/bin/python"
    made.parent.mkdir(parents=True)
    made.touch()
    assert made in pythons.candidates("3.14t")
    assert made not in pythons.candidates("3.14")
