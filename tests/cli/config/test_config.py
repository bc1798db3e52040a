"""`mainstay config` and what other commands make of a configuration."""

import json

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from mainstay.cli import guard
from mainstay.cli.app import app
from mainstay.config.load import load
from tests.config.trusting import trusted

SHOP = """\
store: postgresql://app:${DB_PASSWORD}@db/shop
retry:
  policies:
    fast: {max_attempts: 2, retryOn: [ConnectionError, "kind:throttled"]}
  operations:
    "db.*": fast
inbox:
  notify:
    webhook: {url: "https://hooks.example/a", secret: hunter2}
"""
SECONDS = (
    "must be a number of seconds above 0 and up to 31622400, or a duration such as 500ms, 30s or"
    " 1h30m, or null"
)
BROKEN = "retry:\n  policies:\n    fast: {maxAtempts: 2}\n    slow: {deadline: soon}\n"


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A working directory with a configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DB_PASSWORD", "hunter2")
    (tmp_path / "mainstay.yml").write_text(SHOP.partition("inbox:")[0], encoding="utf-8")
    trusted(tmp_path / "mainstay.yml")
    return tmp_path


def invoke(*arguments, code=0):
    """The output of `mainstay` with these arguments, for a pipe."""
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def test_a_good_configuration_has_no_problems(shop):
    assert invoke("config", "check") == "mainstay.yml: no problems; 2 policies, 1 operation\n"
    assert json.loads(invoke("config", "check", "--json")) == {
        "file": "mainstay.yml",
        "ok": True,
        "problems": [],
        "warnings": [],
        "notes": [],
    }


@pytest.mark.req("FR-041-71")
def test_every_problem_is_listed(shop):
    """One line for each, and an exit code that a script can see."""
    (shop / "mainstay.yml").write_text(BROKEN, encoding="utf-8")
    assert invoke("config", "check", code=1).splitlines() == [
        "mainstay.yml:3: retry.policies.fast.maxAtempts: unknown key; did you mean maxAttempts?",
        f"mainstay.yml:4: retry.policies.slow.deadline = 'soon': {SECONDS}",
    ]
    told = json.loads(invoke("config", "check", "--json", code=1))
    assert [(p["line"], p["nearest"]) for p in told["problems"]] == [(3, "maxAttempts"), (4, "")]


def test_a_slip_is_a_warning_and_what_cannot_be_known_a_note(shop):
    """A warning is exit code 1, for a step of a build; a note is not."""
    text = "retry: {policies: {a: {retryOn: [ConectionError, nosuchlib.Down]}}}\n"
    (shop / "mainstay.yml").write_text(text, encoding="utf-8")
    warning, note = invoke("config", "check", code=1).splitlines()
    assert warning.startswith("warning: mainstay.yml:1: retry.policies.a.retryOn[0]: no exception")
    assert note.startswith("note: mainstay.yml:1: retry.policies.a.retryOn[1]: nosuchlib.Down")
    told = json.loads(invoke("config", "check", "--json", code=1))
    assert (told["ok"], told["problems"], len(told["warnings"]), len(told["notes"])) == (
        False,
        [],
        1,
        1,
    )
    (shop / "mainstay.yml").write_text(text.replace("Cone", "Conne"), encoding="utf-8")
    assert invoke("config", "check").splitlines()[0].startswith("note: ")


def test_what_holds_is_shown_with_its_origin(shop, monkeypatch):
    """After overrides, as YAML that would load again; no secret is in it."""
    monkeypatch.setenv("MAINSTAY_RETRY__NESTED", "warn")
    out = invoke("config", "show", "--set", "retry.policies.fast.maxAttempts=9")
    assert "hunter2" not in out
    lines = [line.split("#")[0].rstrip() + " #" + line.split("#")[-1] for line in out.splitlines()]
    assert lines == [
        " # mainstay.yml",
        "store: postgresql://app:${DB_PASSWORD}@db/shop # mainstay.yml:1",
        "retry: #retry:",
        "  policies: #  policies:",
        "    fast: #    fast:",
        '      retryOn: [ConnectionError, "kind:throttled"] # mainstay.yml:4',
        "      maxAttempts: 9 # --set retry.policies.fast.maxAttempts",
        "  operations: #  operations:",
        '    "db.*": fast # mainstay.yml:6',
        "  nested: warn # MAINSTAY_RETRY__NESTED",
    ]
    assert yaml.safe_load(out)["retry"]["policies"]["fast"]["maxAttempts"] == 9
    (shop / "again.yml").write_text(out, encoding="utf-8")
    assert load(shop / "again.yml", env={"DB_PASSWORD": "x"}).report.problems == []


def test_what_is_shown_as_json(shop):
    (shop / "mainstay.yml").write_text(SHOP, encoding="utf-8")
    trusted(shop / "mainstay.yml")
    done = CliRunner().invoke(app, ["config", "show", "--json"])
    assert "hunter2" not in done.output
    told = json.loads(done.output)
    assert told["settings"]["store"] == "postgresql://app:${DB_PASSWORD}@db/shop"
    assert told["settings"]["inbox"]["notify"]["webhook"]["secret"] == "[redacted]"
    assert told["origins"]['retry.operations."db.*"'] == "mainstay.yml:6"


def test_what_is_wrong_is_shown_beside_what_holds(shop):
    (shop / "mainstay.yml").write_text(BROKEN, encoding="utf-8")
    out = invoke("config", "show", code=1)
    assert "maxAtempts: 2" in out
    assert "problem: mainstay.yml:3: retry.policies.fast.maxAtempts: unknown key" in out


def test_without_a_file_nothing_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("config", "show") == "# no file\n"
    assert invoke("config", "check") == "no file: no problems; 1 policy, 0 operations\n"


@pytest.mark.req("FR-041-75")
def test_the_schema_is_printed():
    """What editors need, whether or not JSON is asked for."""
    printed = json.loads(invoke("config", "schema"))
    jsonschema.Draft202012Validator.check_schema(printed)
    assert json.loads(invoke("config", "schema", "--json")) == printed


@pytest.mark.req("FR-041-74")
@pytest.mark.parametrize(
    "words",
    [
        ["policies", "--set", "retry.policies.fast.maxAttempts=7", "show", "fast", "--json"],
        ["policies", "show", "fast", "--json", "--set", "retry.policies.fast.maxAttempts=7"],
    ],
)
def test_policies_are_those_of_the_configuration(shop, words):
    """With the values that the command line sets, on either side of the word."""
    found = json.loads(invoke(*words))
    assert (found["name"], found["max_attempts"]) == ("fast", 7)
    assert "fast" in invoke("policies")


def test_a_file_can_be_named(shop):
    (shop / "other.yml").write_text("retry: {policies: {slow: {}}}", encoding="utf-8")
    names = [p["name"] for p in json.loads(invoke("policies", "--config", "other.yml", "--json"))]
    assert names == ["standard", "slow"]
    assert invoke("config", "--config", "other.yml", "check").startswith("other.yml: no problems")


@pytest.mark.parametrize("word", ["check", "show"])
def test_a_file_can_be_named_as_trust_takes_it(shop, word, capsys):
    """As an argument; with another one in `--config` it is not clear which is meant."""
    (shop / "other.yml").write_text("retry: {policies: {slow: {}}}", encoding="utf-8")
    assert "other.yml" in invoke("config", word, "other.yml").partition("\n")[0]
    assert "other.yml" in invoke("config", word, "--config", "other.yml", "other.yml")
    assert guard.run(["config", word, "--config", "mainstay.yml", "other.yml"]) == 2
    assert "--config names another file: mainstay.yml" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nowhere.yml", "."])
def test_a_file_that_is_none_is_a_mistake(shop, name, capsys):
    assert guard.run(["config", "check", "--config", name]) == 2
    assert "next: mainstay config check --help" in capsys.readouterr().err


def test_other_commands_refuse_a_broken_configuration(shop, capsys):
    """All problems on stderr, and no traceback."""
    (shop / "mainstay.yml").write_text(BROKEN, encoding="utf-8")
    assert guard.run(["policies"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[0] == "mainstay: the configuration has 2 problems:"
    assert guard.run(["policies", "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "MS107"


def test_config_alone_shows_its_help(capsys):
    assert guard.run(["config"]) == 2
    assert "check" in capsys.readouterr().err
