"""`make test-all`: which Pythons it finds, what it prints of them, and when it fails."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import pythons
from tools.pythons import Run

ROOT = Path(__file__).parents[2]
SHIM = "echo 'pyenv: command not found' >&2; exit 127"


def answer(version, full, implementation="cpython"):
    """A program that answers the probe as this Python would."""
    return f"""echo '["{version}", "{full}", "'"$0"'", "{implementation}"]'"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Writes programs, and a path, a pyenv, a uv and a cache that hold nothing else."""
    homes = {
        "PATH": "bin",
        "PYENV_ROOT": "pyenv",
        "UV_PYTHON_INSTALL_DIR": "uv",
        "XDG_CACHE_HOME": "cache",
    }
    for name, folder in homes.items():
        monkeypatch.setenv(name, str(tmp_path / folder))

    def write(name, script):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    return write


def test_a_python_on_the_path_is_found(machine):
    """By its own name, or as `python3` if that is the version."""
    own = machine("bin/python3.12", answer("3.12", "3.12.1"))
    plain = machine("bin/python3", answer("3.11", "3.11.7"))
    assert pythons.find("3.12") == Run("3.12", "3.12.1", own)
    assert pythons.find("3.11") == Run("3.11", "3.11.7", plain)
    assert pythons.find("3.13") == Run("3.13")


def test_a_shim_that_does_not_run_is_passed_over(machine):
    """The path has a pyenv shim for each version, also for those that are not selected."""
    machine("bin/python3.13", SHIM)
    real = machine("pyenv/versions/3.13.0/bin/python", answer("3.13", "3.13.0"))
    assert pythons.find("3.13") == Run("3.13", "3.13.0", real)


def test_a_program_with_the_name_of_another_version_is_passed_over(machine):
    """Nor does another implementation count, or output that is no answer."""
    machine("bin/python3.12", answer("3.11", "3.11.7"))
    machine("bin/python3", answer("3.12", "3.12.1", "pypy"))
    machine("bin/python", "echo hello")
    assert pythons.find("3.12").path is None


def test_the_newest_version_of_pyenv_is_taken(machine):
    """3.13.10 is newer than 3.13.9; a free-threaded build is another Python."""
    for full in ("3.13.9", "3.13.10", "3.13.11t"):
        machine(f"pyenv/versions/{full}/bin/python", answer("3.13" + "t" * ("t" in full), full))
    assert pythons.find("3.13").full == "3.13.10"
    assert pythons.find("3.13t").full == "3.13.11t"


def test_a_python_of_uv_is_found(machine):
    """The program uv itself need not be installed; its folder is read."""
    folder = "uv/cpython-3.14.0+freethreaded-linux-x86_64-gnu"
    real = machine(f"{folder}/bin/python", answer("3.14t", "3.14.0"))
    assert pythons.find("3.14t").path == real


def test_the_python_of_this_test_is_recognised():
    """The probe works with a real Python, and finds the one below a virtual environment."""
    version, full, path, implementation = pythons.probe(Path(sys.executable))
    assert version.rstrip("t") == "{}.{}".format(*sys.version_info)
    assert full == "{}.{}.{}".format(*sys.version_info)
    assert implementation == sys.implementation.name
    assert Path(path) == Path(sys._base_executable)


CASE = '<testcase name="a"/>'
FAILED = '<testcase name="b"><failure>no</failure></testcase>'
BOTH = '<testcase name="c"><failure>no</failure><error>at teardown</error></testcase>'
SKIPPED = '<testcase name="d"><skipped/></testcase>'
UNCOLLECTED = "<testcase><error>ModuleNotFoundError: No module named 'nats'</error></testcase>"


@pytest.mark.parametrize(
    ("cases", "code", "lacking", "expected"),
    [
        (CASE * 1200 + SKIPPED, 0, [], ("1,200 passed, 1 skipped", False)),
        (CASE + FAILED + BOTH, 1, [], ("1 passed, 2 failed", True)),
        (CASE + UNCOLLECTED, 1, [], ("1 passed, 1 failed", True)),
        (CASE + UNCOLLECTED, 1, ["nats-py"], ("1 passed, 1 files not collected", False)),
        (UNCOLLECTED + FAILED, 1, ["redis"], ("0 passed, 1 failed, 1 files not collected", True)),
        (UNCOLLECTED, 1, ["nats-py"], ("0 passed, 1 files not collected", True)),
        ("", 5, [], ("0 passed, pytest exited with 5", True)),
        (CASE, 2, [], ("1 passed, pytest exited with 2", True)),
        (CASE, -11, [], ("1 passed, pytest exited with -11", True)),
        (SKIPPED, 0, [], ("0 passed, 1 skipped", True)),
    ],
)  # fmt: skip
def test_the_counts_are_those_of_the_report(cases, code, lacking, expected, tmp_path):
    """A run in which nothing passed, or that pytest ended itself, has failed."""
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
    assert pythons.read_report(report, code, lacking) == expected


def test_a_run_without_a_report_has_failed(tmp_path):
    """A crash of the interpreter leaves none."""
    result = pythons.read_report(tmp_path / "none.xml", -11, [])
    assert result == ("pytest exited with -11, without a report", True)


def table(*runs):
    """The rows of the table, without its heading."""
    return list(pythons.table(list(runs), ["3.11", "3.12"]))[1:]


def test_the_table_names_each_python():
    """Version, place, time and result; what is missing is listed, and whether that matters."""
    found = Run("3.11", "3.11.7", Path("/bin/python3.11"), "9 passed", 61.4)
    assert table(found, Run("3.12"), Run("3.14t")) == [
        "3.11.7  /bin/python3.11   61 s  9 passed",
        "3.12    –                    –  FAILED  not found: required",
        "3.14t   –                    –  not found, optional",
    ]
    new = Run("3.14", "3.14.0", Path("/p"), "9 passed, 1 failed", 5.0, ["nats-py", "redis"], True)
    assert table(new) == [
        "3.14.0  /p       5 s  FAILED  9 passed, 1 failed; without nats-py, redis"
    ]


@pytest.fixture
def outcomes(monkeypatch):
    """Runs `main` with Pythons and results that a test chooses."""

    def run(found, *arguments):
        tested = []

        def test(run, root, words):
            tested.append((run.version, words))
            run.seconds, (run.result, run.is_failed) = 1.0, found[run.version]

        def find(version):
            return Run(version, version, Path("/p") if version in found else None)

        monkeypatch.setattr(pythons, "find", find)
        monkeypatch.setattr(pythons, "test", test)
        return pythons.main(list(arguments)), tested

    return run


GOOD, BAD = ("1 passed", False), ("1 failed", True)


def test_it_passes_with_the_three_required_pythons(outcomes, capsys):
    """The others are listed as not found."""
    code, tested = outcomes(dict.fromkeys(pythons.REQUIRED, GOOD), "--", "-x", "-k", "a or b")
    assert code == 0
    assert tested == [(version, ["-x", "-k", "a or b"]) for version in ("3.11", "3.12", "3.13")]
    assert capsys.readouterr().out.count("not found, optional") == 3


@pytest.mark.parametrize(
    "found",
    [
        {"3.11": GOOD, "3.12": GOOD},
        {"3.11": GOOD, "3.12": BAD, "3.13": GOOD},
        {"3.11": GOOD, "3.12": GOOD, "3.13": GOOD, "3.14t": BAD},
    ],
)
def test_it_fails_without_a_required_python_or_with_a_failing_test(found, outcomes):
    """Also if the failing Python is an optional one."""
    assert outcomes(found)[0] == 1


def test_only_the_named_pythons_run_and_all_of_them_are_required(outcomes, capsys):
    """`make test-all PYTHONS='3.12 3.14'`."""
    code, tested = outcomes({"3.12": GOOD, "3.13": GOOD}, "--only", "3.12 3.14")
    assert (code, tested) == (1, [("3.12", [])])
    with pytest.raises(SystemExit):
        outcomes({}, "--only", "3.9")
    assert "3.9: choose of 3.11 3.12" in capsys.readouterr().err


PSYCOPG = ("psycopg[binary,pool]==3.3.8", "psycopg[pool]==3.3.8")


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Records what is installed, where pip refuses the requirements that a test names."""
    (tmp_path / "pyproject.toml").write_text(
        '[dependency-groups]\ndev = ["pytest==9.1.1", "hypothesis==6", "pytest-xdist==3",'
        ' "pytest-timeout==2", "nats-py==2.16.0", "psycopg[binary,pool]==3.3.8"]\n'
    )
    calls = []

    def arrange(*refused):
        def execute(command, cwd=None, timeout=0.0):
            if "venv" in command:
                Path(command[-1]).mkdir(parents=True)
            calls.append(command[command.index("install") + 1 :] if "install" in command else [])
            code = int(any(word in refused for word in command))
            return subprocess.CompletedProcess(command, code, "", "ERROR: no wheel\n" * code)

        monkeypatch.setattr(pythons, "execute", execute)
        return calls

    return arrange


def test_the_whole_group_is_installed_where_it_can_be(installed, tmp_path):
    """One call of pip, and nothing is lacking."""
    calls = installed()
    assert pythons.install(Path("python"), tmp_path) == []
    assert calls == [["--editable", ".[cli,trio]", "--group", "dev"]]


def test_a_library_without_a_wheel_is_left_out_and_named(installed, tmp_path, capsys):
    """What is needed to run a test comes first; the rest one by one, never from source."""
    calls = installed("--group", *PSYCOPG)
    assert pythons.install(Path("python"), tmp_path) == ["psycopg"]
    assert calls[1] == ["--editable", "."]
    assert calls[2][0] == "pytest==9.1.1"
    assert ["--only-binary", ":all:", "nats-py==2.16.0"] in calls
    assert "one by one" in capsys.readouterr().out


def test_a_library_without_a_compiled_wheel_is_installed_without_it(installed, tmp_path):
    """Of psycopg there is none for free-threaded Pythons; it runs with the system's libpq."""
    calls = installed("--group", PSYCOPG[0])
    assert pythons.install(Path("python"), tmp_path) == []
    assert [call[-1] for call in calls][-2:] == list(PSYCOPG)


def test_a_python_that_cannot_have_pytest_is_not_run(installed, tmp_path):
    """The table gives pip's last line; for a required Python that is a failure."""
    installed("--group", "pytest==9.1.1")
    with pytest.raises(pythons.CannotInstall, match="ERROR: no wheel"):
        pythons.install(Path("python"), tmp_path)
    run = Run("3.12", "3.12.1", Path("/p"))
    pythons.test(run, tmp_path, [])
    assert run.result == "not run: python -m pip --disable-pip-version-check: ERROR: no wheel"
    assert (run.seconds, run.is_failed) == (0.0, False)
    assert pythons.is_bad(run, ["3.12"])
    assert not pythons.is_bad(run, ["3.11"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no output"),
        ("ERROR: Failed to build msgspec\nerror: failed-wheel\n\nhint: See above.\n",
         "ERROR: Failed to build msgspec"),
        ("╰─> hypothesis\n\nnote: This is not pip's.\nhint: See above for details.\n",
         "╰─> hypothesis"),
    ],
)  # fmt: skip
def test_the_reason_is_the_line_that_names_what_failed(text, reason):
    """Pip's last line may be a hint at those above it, which the table does not have."""
    assert pythons.reason_in(text) == reason


def test_an_environment_is_made_once_and_anew_after_a_change(installed, tmp_path):
    """Another Python or pyproject.toml is a change."""
    calls = installed()
    folder = tmp_path / ".venvs/3.12"

    def set_up(full):
        calls.clear()
        assert (
            pythons.set_up(Run("3.12", full, Path("/p")), tmp_path, folder) == folder / "bin/python"
        )
        return bool(calls)

    assert [set_up(full) for full in ("3.12.1", "3.12.1", "3.12.2", "3.12.2")] == [1, 0, 1, 0]
    with (tmp_path / "pyproject.toml").open("a") as file:
        file.write("# a change\n")
    assert [set_up("3.12.2"), set_up("3.12.2")] == [1, 0]


def test_what_an_environment_lacks_is_tried_again(installed, tmp_path):
    """An index that did not answer once leaves no gap for ever; the rest is not installed anew."""
    calls = installed("--group", "nats-py==2.16.0", *PSYCOPG)
    run, folder = Run("3.14", "3.14.0", Path("/p")), tmp_path / ".venvs/3.14"
    pythons.set_up(run, tmp_path, folder)
    assert run.lacking == ["nats-py", "psycopg"]
    installed("--group", "nats-py==2.16.0")
    calls.clear()
    pythons.set_up(run, tmp_path, folder)
    assert run.lacking == ["nats-py"]
    assert [call[-1] for call in calls] == ["nats-py==2.16.0", "psycopg[binary,pool]==3.3.8"]


def test_a_required_python_has_the_whole_group():
    """Tests that are left out for want of a library would pass unseen."""
    ran = {"path": Path("/p"), "seconds": 1.0, "lacking": ["redis"]}
    assert pythons.is_bad(Run("3.13", **ran), ["3.13"])
    assert not pythons.is_bad(Run("3.14", **ran), ["3.14"])


def test_a_free_threaded_build_runs_without_the_gil(monkeypatch):
    """An extension that asks for it would turn it on again, with a warning that is an error."""
    monkeypatch.setenv("PYTHONPATH", "src")
    monkeypatch.setenv("HOME", "/home")
    monkeypatch.delenv("PYTHON_GIL", raising=False)
    assert pythons.environment(Run("3.13t"))["PYTHON_GIL"] == "0"
    kept = pythons.environment(Run("3.13"))
    assert "PYTHON_GIL" not in kept
    assert "PYTHONPATH" not in kept
    assert kept["HOME"] == "/home"


def test_the_three_pythons_of_the_classifiers_are_the_required_ones():
    """What the package promises is what has to be run."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    promised = [version for version in pythons.VERSIONS if f'Python :: {version}"' in text]
    assert promised == list(pythons.REQUIRED)


def test_servers_that_were_unpacked_are_lent_to_each_environment(tmp_path):
    """Also if an older link leads nowhere; if nothing was unpacked, there is no link."""
    unpacked, link = tmp_path / "opt", tmp_path / "link"
    pythons.lend(unpacked, link)
    assert not link.is_symlink()
    unpacked.mkdir()
    link.symlink_to(tmp_path / "gone")
    for _ in range(2):
        pythons.lend(unpacked, link)
        assert link.resolve() == unpacked
