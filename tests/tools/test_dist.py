"""`make dist` on small packages made for each test: what it refuses, and with which reason."""

import io
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools import dist

PACKAGE = ("mainstay/__init__.py", "mainstay/py.typed", "mainstay/sql/0001.sql")
ABOUT = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
WHEEL = (*PACKAGE, *(f"mainstay-1.0.dist-info/{name}" for name in ABOUT))
TOP = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile")
SDIST = (*(f"src/{name}" for name in PACKAGE), *TOP, "tests/test_a.py")


@pytest.fixture
def root(tmp_path):
    """A checkout of a small package, with what a run leaves in it."""
    made = tmp_path / "root"
    for name in (*PACKAGE, "mainstay/__pycache__/a.pyc"):
        path = made / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    (made / "pyproject.toml").write_text('[project]\nname = "mainstay"\nversion = "1.0"\n')
    return made


def write_wheel(path, *names, text="x"):
    """A wheel with these members."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), text)
    return path


def write_sdist(path, *names):
    """An sdist with these members."""
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"mainstay-1.0/{name}"), io.BytesIO())
    return path


def test_a_whole_wheel_and_sdist_pass(root, tmp_path):
    """The files of the package, data files included; caches in the checkout do not count."""
    assert dist.check_wheel(root, write_wheel(tmp_path / "a.whl", *WHEEL)) == len(WHEEL)
    assert dist.check_sdist(root, write_sdist(tmp_path / "a.tar.gz", *SDIST)) == len(SDIST)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (set(WHEEL) - {"mainstay/sql/0001.sql"}, r"lacks: mainstay/sql/0001\.sql"),
        (set(WHEEL) - {"mainstay/py.typed"}, r"lacks: mainstay/py\.typed"),
        (set(WHEEL) - {WHEEL[-1]}, "lacks: .*LICENSE"),
        ({*WHEEL, "tests/test_a.py"}, r"more than the package: tests/test_a\.py"),
        ({*WHEEL, "bench/a.py", "tools/a.py"}, r"more than the package: bench/a\.py, tools/a\.py"),
        ({*WHEEL, "mainstay/scratch.py"}, r"more than the package: mainstay/scratch\.py"),
        ({*WHEEL, "mainstay/__pycache__/a.cpython-311.pyc"}, "holds caches: mainstay/__pycache__"),
        ({*WHEEL, "mainstay/.mypy_cache/a.json"}, "holds caches"),
        ({*WHEEL, *(f"tests/{n}.py" for n in range(9))}, "tests/4.py and 4 more"),
    ],
)
def test_a_wheel_that_is_not_the_package_is_refused(names, reason, root, tmp_path):
    """What is missing, and what does not belong in it, is named."""
    with pytest.raises(dist.Failed, match=reason):
        dist.check_wheel(root, write_wheel(tmp_path / "a.whl", *names))


def test_a_package_without_py_typed_is_refused(root, tmp_path):
    """Also if it is gone from the checkout, so that nothing is missing in the wheel."""
    (root / "src/mainstay/py.typed").unlink()
    names = set(WHEEL) - {"mainstay/py.typed"}
    with pytest.raises(dist.Failed, match=r"no py\.typed"):
        dist.check_wheel(root, write_wheel(tmp_path / "a.whl", *names))


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (set(SDIST) - {"src/mainstay/sql/0001.sql"}, r"lacks: src/mainstay/sql/0001\.sql"),
        (set(SDIST) - {"LICENSE"}, "lacks: LICENSE"),
        ({*SDIST, "tests/__pycache__/a.pyc"}, "holds caches"),
        ({*SDIST, ".venv/bin/python"}, "holds caches"),
        ({*SDIST, "docs/shop.db"}, "holds caches"),
    ],
)
def test_an_sdist_that_is_not_the_source_is_refused(names, reason, root, tmp_path):
    """A packager gets the source, and nothing that a run left."""
    with pytest.raises(dist.Failed, match=reason):
        dist.check_sdist(root, write_sdist(tmp_path / "a.tar.gz", *names))


def test_two_wheels_are_compared_by_their_members(tmp_path):
    """Equal ones pass; what differs is named."""
    one = write_wheel(tmp_path / "one.whl", "a", "b")
    dist.check_same(one, write_wheel(tmp_path / "two.whl", "a", "b"))
    with pytest.raises(dist.Failed, match="another wheel; these differ: b"):
        dist.check_same(one, write_wheel(tmp_path / "three.whl", "a"))
    with pytest.raises(dist.Failed, match="another wheel; these differ: a, b"):
        dist.check_same(one, write_wheel(tmp_path / "four.whl", "a", "b", text="y"))
    with pytest.raises(dist.Failed, match="other bytes"):
        dist.check_same(one, write_wheel(tmp_path / "five.whl", "b", "a"))


def test_an_sdist_is_unpacked_to_its_tree(tmp_path):
    """The folder with name and version is the tree that is built again."""
    tree = dist.unpack(write_sdist(tmp_path / "a.tar.gz", "README.md"), tmp_path)
    assert tree == tmp_path / "sdist/mainstay-1.0"
    assert (tree / "README.md").exists()


def test_the_readme_runs_with_the_installed_package_alone(root, tmp_path):
    """If Python finds the checkout's package, the run would show nothing."""
    with pytest.raises(dist.Failed, match="not from the new environment"):
        dist.run_readme(root, Path(sys.executable), tmp_path)


def test_the_callers_environment_does_not_reach_in(monkeypatch):
    """PYTHONPATH and the like would put the checkout in front of the wheel."""
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("VIRTUAL_ENV", "/nowhere")
    code = "import os; print([n for n in ('PYTHONPATH', 'VIRTUAL_ENV') if n in os.environ])"
    assert dist.run("a program", [sys.executable, "-c", code]) == "[]\n"
    assert os.environ["PYTHONPATH"] == "/nowhere"


def test_a_failing_program_gives_the_reason(monkeypatch, root, capsys):
    """Its name, exit code and output, in the output of `make dist`, which exits with 1."""
    code = "import sys; print('half done'); sys.exit('planted')"

    def build(*_):
        return dist.run("the build", [sys.executable, "-c", code])

    monkeypatch.setattr(dist, "build", build)
    assert dist.main([str(root)]) == 1
    out = capsys.readouterr().out
    assert out == "dist: failed: the build exited with 1\nhalf done\nplanted\n"
