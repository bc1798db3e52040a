"""`mainstay exec` and mistakes in its configuration: not run, or exactly once."""

import json
import os

import pytest

from mainstay.cli import guard
from mainstay.cli.errors import CommandError
from mainstay.cli.exec.engine import engine_of
from mainstay.cli.exec.report import Reporter
from mainstay.cli.exec.request import ExecRequest
from mainstay.engine.from_config import read
from mainstay.errors import ConfigError

CHARGE = """\
retry:
  policies:
    once: {maxAttempts: 1}
  operationPolicies:
    charge.sh: once
"""
RUN = ("--", "sh", "-c", "echo ran >> ran; exit 1")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A state folder, and a working directory with a configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "mainstay.yml").write_text(CHARGE, encoding="utf-8")
    return tmp_path


MISTAKES = {
    "the policy": CHARGE.replace("maxAttempts", "maxAtempts"),
    "the map": CHARGE.replace("operationPolicies", "operationPolices"),
    "the section": CHARGE.replace("retry", "rtery"),
    "another section": CHARGE + "budgets: {retires: {ratio: 1}}\n",
    "the policy's name": CHARGE.replace("charge.sh: once", "charge.sh: onec"),
    "no YAML": CHARGE + "\tstore: x\n",
    "given twice": CHARGE + "retry: {}\n",
    "a policy of nothing": CHARGE.replace("{maxAttempts: 1}", ""),
}


@pytest.mark.parametrize("text", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_anywhere_in_the_file_runs_nothing(folder, text, capsys):
    """Exit code 2, and the place; the built-in policy would run what must run once three times."""
    (folder / "mainstay.yml").write_text(text, encoding="utf-8")
    assert guard.run(["exec", "--operation", "charge.sh", *RUN]) == 2
    assert "mainstay.yml:" in capsys.readouterr().err
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("text", MISTAKES.values(), ids=MISTAKES)
def test_on_request_it_runs_once_whatever_the_mistake(folder, text, capsys):
    """One attempt, whatever the file may have meant."""
    (folder / "mainstay.yml").write_text(text, encoding="utf-8")
    request = ExecRequest(command=("x",), operation="charge.sh", on_config_error="once")
    with engine_of(request, read(env={}), Reporter(quiet=True, as_json=False)) as engine:
        assert engine.policies.of("charge.sh").max_attempts == 1
        assert not engine.circuits.is_used
    assert "is run once, without retries" in capsys.readouterr().err


@pytest.mark.parametrize("named", ["nowhere.yml", "."])
def test_a_file_that_is_not_there_is_a_mistake_as_any_other(folder, named, capsys):
    """It runs nothing, is listed with the others, and on request the command is run once."""
    assert guard.run(["exec", "--config", named, "--set", "retry.x=1", *RUN]) == 2
    told = capsys.readouterr().err
    assert f"{named}: " in told
    assert "--set retry.x" in told
    assert not (folder / "ran").exists()
    assert guard.run(["exec", "--config", named, "--on-config-error=once", *RUN]) == 1
    assert (folder / "ran").read_text(encoding="utf-8") == "ran\n"
    assert "\\n" not in capsys.readouterr().err  # the problems are in one line


def test_every_mistake_is_listed_at_once(folder, capsys):
    """Of the file, --set, --policy and --store; as JSON too."""
    (folder / "mainstay.yml").write_text(MISTAKES["the policy"], encoding="utf-8")
    wrong = ("--set", "retry.nested=wern", "--policy", "onec", "--store", "sqlit:///a.db")
    assert guard.run(["exec", *wrong, *RUN]) == 2
    told = capsys.readouterr().err
    for each in (
        "mainstay.yml:3: retry.policies.once.maxAtempts: unknown key; did you mean maxAttempts?",
        "--set retry.nested: retry.nested = 'wern': must be one of collapse, warn, allow, refuse",
        "--policy: 'onec': must be the name of a policy; there are once, standard; did you mean o",
        "--store: 'sqlit:///a.db': must be the URL of a store",
        "4 problems",
    ):
        assert each in told
    assert guard.run(["exec", "--json", *wrong, *RUN]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "MS107"
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("wrong", ["--policy=onec", "--store=sqlit:///a", "--set=retry.nested=w"])
def test_one_wrong_option_suffices(folder, wrong):
    """Each alone is exit code 2, before anything is run."""
    assert guard.run(["exec", wrong, *RUN]) == 2
    assert not (folder / "ran").exists()


def request_with(**options):
    return ExecRequest(
        command=("x",), operation="charge.sh", on_config_error="once", key="k", **options
    )


def test_with_a_key_the_store_must_be_named_if_the_configuration_is_wrong(folder, capsys):
    """Which store has the key is not known then: the default store may not be the one."""
    (folder / "mainstay.yml").write_text(MISTAKES["another section"], encoding="utf-8")
    reporter = Reporter(quiet=True, as_json=False)
    for options in ({}, {"store": "sqlit:///a.db"}):
        with pytest.raises(CommandError, match="which store has the key") as caught:
            engine_of(request_with(**options), read(env={}), reporter)
        assert caught.value.exit_with == 69
    with engine_of(request_with(store="sqlite:///own.db"), read(env={}), reporter) as engine:
        assert "own.db" in engine.store.url
        assert engine.policies.of("charge.sh").max_attempts == 1
    capsys.readouterr()


def test_without_the_option_the_problems_are_raised():
    request = ExecRequest(command=("x",), operation="charge.sh", policy="fast")
    with pytest.raises(ConfigError, match="fast"):
        engine_of(request, read(env={}), Reporter(quiet=True, as_json=False))


SCRIPT = "#!/bin/sh\necho ran >> ran\nexit 1\n"
OTHERWISE = {
    "a shell": ("--", "sh", "./charge.sh"),
    "a text for a shell": ("--", "sh", "-c", "cd . && ./charge.sh 5"),
    "a program in front": ("--", "env", "A=1", "./charge.sh"),
    "a slip in the name": ("--operation", "charge.hs", "--", "./charge.sh"),
    "a slip alone": ("--operation", "chargesh", "--", "./other.sh"),
}


@pytest.mark.parametrize("words", OTHERWISE.values(), ids=OTHERWISE)
def test_what_must_run_once_runs_once_under_whatever_name(folder, words, capsys):
    """The default policy has more attempts than the file could have meant: the name decides."""
    for name in ("charge.sh", "other.sh"):
        (folder / name).write_text(SCRIPT, encoding="utf-8")
        (folder / name).chmod(0o755)
    assert guard.run(["exec", *words]) == 2
    told = capsys.readouterr().err
    assert "'charge.sh' is mapped to 'once' with 1" in told
    assert "use --operation charge.sh, or --policy standard" in told
    assert not (folder / "ran").exists()
    assert guard.run(["exec", "--operation", "charge.sh", *words[words.index("--") :]]) == 1
    assert (folder / "ran").read_text(encoding="utf-8") == "ran\n"


@pytest.mark.parametrize("key", ["./charge.sh", "Charge.sh", "*.sh", "scripts/charge.sh"])
def test_a_map_of_another_spelling_is_found_too(folder, key, capsys):
    """With a folder, in other letters, as a pattern."""
    (folder / "mainstay.yml").write_text(CHARGE.replace("charge.sh:", f'"{key}":'), "utf-8")
    assert guard.run(["exec", "--", "sh", "./charge.sh"]) == 2
    assert f"{key!r} is mapped to 'once'" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::mainstay.PolicyNotFoundWarning")
@pytest.mark.parametrize(
    "words",
    [
        ("--policy", "standard", "--", "sh", "-c", "exit 0 # charge.sh"),
        ("--operation", "discharge", "--", "true"),
        ("--operation", "charge-sh", "--", "true"),
        ("--", "true", "--file", "charge.shx"),
    ],
)
def test_other_commands_run(folder, words):
    """A policy that was chosen, and names that are no slip of a mapped one."""
    assert guard.run(["exec", *words]) == 0


LINKS = {
    "a link": ("./link.sh",),
    "a link to a link": ("./second.sh",),
    "a link by its whole path": ("FOLDER/link.sh",),
    "as the script of a shell": ("sh", "link.sh"),
    "in a text for a shell": ("sh", "-c", "cd . && ./link.sh 5"),
    "behind a program": ("env", "A=1", "./link.sh"),
    "found by PATH": ("link.sh",),
    "behind a program, found by PATH": ("env", "second.sh"),
    "found by PATH, and another file is here": ("shadowed.sh",),
    "a link in the middle": ("./other-name",),
}


@pytest.mark.filterwarnings("ignore::mainstay.PolicyNotFoundWarning")
@pytest.mark.parametrize("words", LINKS.values(), ids=LINKS)
def test_a_link_to_a_mapped_script_is_that_script(folder, words, monkeypatch, capsys):
    """Each name on the way to the file counts."""
    (folder / "charge.sh").write_text(SCRIPT, encoding="utf-8")
    (folder / "charge.sh").chmod(0o755)
    (folder / "link.sh").symlink_to("charge.sh")
    (folder / "second.sh").symlink_to(folder / "link.sh")
    (folder / "bin").mkdir()
    (folder / "bin" / "shadowed.sh").symlink_to("../charge.sh")
    (folder / "shadowed.sh").touch()
    if words == ("./other-name",):
        (folder / "charge.sh").rename(folder / "charge-2.sh")
        (folder / "charge.sh").symlink_to("charge-2.sh")
        (folder / "other-name").symlink_to("charge.sh")
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{folder}", prepend=os.pathsep)
    command = [word.replace("FOLDER", str(folder)) for word in words]
    assert guard.run(["exec", "--", *command]) == 2
    assert "use --operation charge.sh, or --policy standard" in capsys.readouterr().err
    assert not (folder / "ran").exists()


@pytest.mark.filterwarnings("ignore::mainstay.PolicyNotFoundWarning")
def test_a_link_that_leads_back_to_itself_is_no_endless_search(folder):
    (folder / "one").symlink_to("two")
    (folder / "two").symlink_to("one")
    assert guard.run(["exec", "--", "sh", "-c", "exit 0 # one"]) == 0


def test_a_link_that_is_mapped_itself_has_its_own_policy(folder):
    """Under its own name it is no mistake."""
    (folder / "mainstay.yml").write_text(f"{CHARGE}    link.sh: standard\n", encoding="utf-8")
    (folder / "charge.sh").write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    (folder / "charge.sh").chmod(0o755)
    (folder / "link.sh").symlink_to("charge.sh")
    assert guard.run(["exec", "--", "./link.sh"]) == 0


@pytest.mark.filterwarnings("ignore::mainstay.PolicyNotFoundWarning")
def test_a_name_of_more_attempts_is_no_mistake(folder):
    """The default has fewer: nothing runs more often than was meant."""
    (folder / "mainstay.yml").write_text(CHARGE.replace("1}", "9}"), encoding="utf-8")
    assert guard.run(["exec", "--", "sh", "-c", "exit 0 # charge.sh"]) == 0
