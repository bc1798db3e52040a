"""From files, the environment and options to settings."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay import Backoff, BreakerSettings, ConfigError, Jitter, Kind, KindRule, RetryPolicy
from mainstay.config.fields import SCHEMES
from mainstay.config.files.search import candidates
from mainstay.config.load import load
from mainstay.config.policies import BUILT_IN
from mainstay.config.shapes import camel, snake
from mainstay.engine.registry import STANDARD
from mainstay.stores.open import ALSO, STORES
from tests.config.trusting import trusted

AGENT = """\
retry:
  defaultPolicy: standard
  policies:
    standard:
      maxAttempts: 3
      backoff: exponential
      initialDelayMs: 100
      maxDelayMs: 5000
      factor: 2.0
      jitterPercent: 10
    aggressive:
      maxAttempts: 5
      backoff: exponential
      initialDelayMs: 50
      maxDelayMs: 30000
      factor: 2.0
      jitterPercent: 20
    noRetry:
      maxAttempts: 1
  
  operationPolicies:
    network: aggressive
    file: standard
    permission: noRetry
  
  circuitBreaker:
    enabled: true
    failureThreshold: 5
    openDurationMs: 30000
    halfOpenProbes: 1
"""  # noqa: W293  as it stands in the document


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Writes and trusts a file below an empty working directory, which is no project."""
    monkeypatch.chdir(tmp_path)

    def put(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return trusted(path)

    return put


def settings(path=None, *sets, **env):
    """The settings of a configuration without problems."""
    loaded = load(path, overrides=sets, env=env, make=RetryPolicy)
    assert [str(problem) for problem in loaded.report.problems] == []
    return loaded.settings


def problems(path=None, *sets, **env):
    """What is wrong, as sentences."""
    return [str(problem) for problem in load(path, overrides=sets, env=env).report.problems]


def policies(found):
    """The policies by name."""
    return {policy.name: policy for policy in found.policies}


# --- what a file says -----------------------------------------------------------------------------


@pytest.mark.req("AG-07", "FR-041-66", "FR-041-67", "FR-041-68", "FR-041-69", "IT-041-02")
def test_the_agent_documents_block_loads_to_its_values(put):
    """Every value of the document's YAML, found under agent/config.yml without being named."""
    put("agent/config.yml", AGENT)
    found = settings()
    assert found.file == str(Path("agent/config.yml"))
    exponential = Backoff.exponential
    assert policies(found) == {
        "standard": RetryPolicy(
            name="standard",
            max_attempts=3,
            backoff=exponential(0.1, factor=2.0, max_delay=5.0),
            jitter=Jitter.percent(0.1),
        ),
        "aggressive": RetryPolicy(
            name="aggressive",
            max_attempts=5,
            backoff=exponential(0.05, factor=2.0, max_delay=30.0),
            jitter=Jitter.percent(0.2),
        ),
        "noRetry": RetryPolicy(name="noRetry", max_attempts=1),
    }
    assert dict(found.operations) == {
        "network": "aggressive",
        "file": "standard",
        "permission": "noRetry",
    }
    assert found.default == "standard"
    assert found.breaker == BreakerSettings(
        failure_threshold=5, recovery_timeout=30.0, half_open_probes=1, count="all"
    )


@pytest.mark.req("AG-07")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("maxAttempts: 3", "maxAttempts: 4"),
        ("backoff: exponential", "backoff: linear"),
        ("initialDelayMs: 100", "initialDelayMs: 101"),
        ("maxDelayMs: 5000", "maxDelayMs: 5001"),
        ("factor: 2.0", "factor: 2.5"),
        ("jitterPercent: 10", "jitterPercent: 11"),
        ("maxAttempts: 1\n", "maxAttempts: 2\n"),
        ("file: standard", "file: aggressive"),
        ("enabled: true", "enabled: false"),
        ("failureThreshold: 5", "failureThreshold: 6"),
        ("openDurationMs: 30000", "openDurationMs: 30001"),
        ("halfOpenProbes: 1", "halfOpenProbes: 2"),
    ],
)
def test_no_value_of_the_agent_documents_block_is_a_default_by_chance(put, old, new):
    """Many are what we have anyway: each is changed, and the change is found."""
    assert old in AGENT
    as_written = settings(put("agent/config.yml", AGENT))
    changed = settings(put("agent/config.yml", AGENT.replace(old, new, 1)))
    assert changed.file == as_written.file
    fields = ("policies", "breaker")
    found = [getattr(changed, name) != getattr(as_written, name) for name in fields]
    assert any([*found, dict(changed.operations) != dict(as_written.operations)])


@pytest.mark.req("AG-07")
@pytest.mark.parametrize(
    ("breaker", "count"),
    [
        ("{}", "all"),
        ("true", "all"),
        ("{failureThreshold: 3}", "all"),
        ("{count: dependency}", "dependency"),
        ("{countOn: OSError}", "dependency"),
    ],
)
def test_circuits_of_the_agents_file_count_every_failure(
    put, tmp_path, monkeypatch, breaker, count
):
    """Its document records a failure before it asks whether that is retryable; a key overrides."""
    text = f"circuitBreaker: {breaker}\nbreakers: {{global: {breaker}, named: {{x: {breaker}}}}}"
    put("agent/config.yml", text.replace("x: true", "x: {}"))
    for folder, path in ((tmp_path, None), (tmp_path / "agent", "config.yml")):
        monkeypatch.chdir(folder)
        found = settings(path)
        assert found.breaker.count == count
        assert found.global_breaker.count == count
        assert found.breakers[0].settings.count == count


def test_circuits_of_any_other_file_count_failures_of_the_dependency(put):
    """Unless they have `count: all`."""
    assert settings(put("mainstay.yml", "circuitBreaker: true")).breaker.count == "dependency"
    path = put("agents/config.yml", "circuitBreaker: true")
    assert settings(path).breaker.count == "dependency"
    path = put("mainstay.yml", "circuitBreaker: {count: all}")
    assert settings(path).breaker == BreakerSettings(count="all")
    problem = "must be one of dependency, all"
    path = put("mainstay.yml", "circuitBreaker: {count: most}")
    assert any(problem in each for each in problems(path)), problems(path)


EVERYTHING = """\
retry:
  policies:
    all:
      maxAttempts: 7
      backoff: {kind: linear, initial: 1, step: 0.5, maxDelay: 20}
      jitter: {kind: additive, amount: 0.25}
      retryOn: [ConnectionError, SlowDown, "kind:overload"]
      neverRetryOn: [PermissionError]
      classify: {shop.SlowDown: throttled, OSError: transient}
      perKind:
        throttled: {maxAttempts: 9, initialDelay: 5, maxDelay: 60, jitter: full}
      attemptTimeout: 2
      timeoutBy: thread
      deadlineMs: 20000
      maxRetryAfter: 30
      respectRetryAfter: false
      onExhausted: raise
      nested: refuse
      logLevel: INFO
"""


@pytest.mark.req("FR-041-16", "FR-041-17")
def test_every_field_of_a_policy_can_be_configured(put):
    """Every field but the functions, which no file can hold."""
    (found,) = settings(put("mainstay.yml", EVERYTHING)).policies
    assert found == RetryPolicy(
        name="all",
        max_attempts=7,
        backoff=Backoff.linear(1.0, step=0.5, max_delay=20.0),
        jitter=Jitter.additive(0.25),
        retry_on=(ConnectionError, "SlowDown", Kind.OVERLOAD),
        never_retry_on=(PermissionError,),
        classify={"shop.SlowDown": "throttled", OSError: "transient"},
        per_kind={
            "throttled": KindRule(9, Backoff.exponential(5.0, max_delay=60.0), Jitter.full())
        },
        attempt_timeout=2.0,
        timeout_by="thread",
        deadline=20.0,
        max_retry_after=30.0,
        respect_retry_after=False,
        on_exhausted="raise",
        nested="refuse",
        log_level="INFO",
    )


CHAINS = """\
retry:
  policies:
    steps: {backoff: {kind: chain, delays: [0.1, 1, 5]}}
    grows: {extends: steps, backoff: {kind: chain, then: {kind: linear, initial: 10, maxDelay: 30}}}
    plain: {extends: grows, backoff: constant}
    kinds: {perKind: {throttled: {backoff: {kind: chain, delays: [2]}}}}
"""


def test_a_chain_of_delays_can_be_configured(put):
    """With a curve that goes on; a policy that extends it may replace the whole by a curve."""
    found = {each.name: each for each in settings(put("mainstay.yml", CHAINS)).policies}
    assert found["steps"].backoff == Backoff.chain(0.1, 1, 5)
    grown = Backoff.chain(0.1, 1, 5, Backoff.linear(10, max_delay=30))
    assert found["grows"].backoff == grown
    assert found["plain"].backoff == Backoff.constant(0.1)
    assert found["kinds"].per_kind[Kind.THROTTLED].backoff == Backoff.chain(2)


@pytest.mark.parametrize(
    ("backoff", "field"),
    [
        ("{kind: chain}", "backoff"),
        ("{kind: chain, delays: [1, -2]}", "backoff.delays"),
        ("{kind: linear, delays: [1]}", "backoff.delays"),
        ("{kind: chain, delays: [1], then: {kind: chain}}", "backoff.then.kind"),
    ],
)
def test_a_wrong_chain_is_found_with_its_place(put, backoff, field):
    """The line and the key of what is wrong."""
    text = f"retry:\n  policies:\n    a: {{backoff: {backoff}}}\n"
    [found] = problems(put("mainstay.yml", text))
    assert f"mainstay.yml:3: retry.policies.a.{field}" in found


def test_a_limit_for_first_calls_can_be_configured(put):
    """Beside the others of the rate."""
    text = "budgets:\n  rate: {perSecond: 5, firstCalls: true}\n"
    assert settings(put("mainstay.yml", text)).budgets["rate"]["first_calls"] is True


def test_what_a_policy_is_printed_as_can_be_configured(put):
    """`to_dict` without the name and the functions is a policy in a file."""
    import yaml

    policy = RetryPolicy(name="p", retry_on=OSError, backoff=Backoff.linear(1.0), deadline=9.0)
    plain = policy.to_dict()
    for left_out in ("name", "retry_if_result", "before_retry", "after_retry", "retry_on"):
        plain.pop(left_out)
    plain = {key: value for key, value in plain.items() if value is not None}
    path = put("a.yml", yaml.safe_dump({"retry": {"policies": {"p": plain}}}))
    (found,) = settings(path).policies
    assert found == policy.replace(retry_on=None)


@pytest.mark.req("AG-06.extends", "FR-041-18")
def test_a_policy_extends_another(put):
    """What a policy does not say comes from the one it extends; a curve's parts one by one."""
    text = """
retry:
  policies:
    base: {maxAttempts: 6, initialDelay: 1, maxDelay: 30, retryOn: [OSError], deadline: 60}
    quick: {extends: base, initialDelayMs: 10, deadline: null}
    quicker: {extends: quick, maxAttempts: 2, jitter: none}
    usual: {extends: standard, maxAttempts: 4}
"""
    found = policies(settings(put("mainstay.yml", text)))
    quick = found["quick"]
    assert (quick.max_attempts, quick.retry_on, quick.deadline) == (6, (OSError,), None)
    assert quick.backoff == Backoff.exponential(0.01, max_delay=30.0)
    assert found["quicker"].replace(name="x", max_attempts=6) == quick.replace(
        name="x", jitter=Jitter.none()
    )
    assert found["usual"] == STANDARD.replace(name="usual", max_attempts=4)


def test_a_chain_of_a_thousand_is_followed(put):
    """Nobody writes that by hand, and no stack overflows."""
    lines = [f"    p{n}: {{extends: p{n + 1}}}" for n in range(1500)]
    text = "retry:\n  policies:\n" + "\n".join([*lines, "    p1500: {maxAttempts: 9}"])
    assert {p.max_attempts for p in settings(put("mainstay.yml", text)).policies} == {9}


def test_nested_holds_for_every_policy_that_does_not_say(put):
    text = "retry: {nested: warn, policies: {a: {}, b: {nested: refuse}}}"
    found = policies(settings(put("mainstay.yml", text)))
    assert {name: policy.nested for name, policy in found.items()} == {
        "a": "warn",
        "b": "refuse",
        BUILT_IN: "warn",
    }


@pytest.mark.parametrize(
    ("breaker", "expected"),
    [
        ("{}", BreakerSettings()),
        ("", BreakerSettings()),
        ("true", BreakerSettings()),
        ("false", None),
        ("{enabled: false, failureThreshold: 3}", None),
        ("{recoveryTimeout: 5}", BreakerSettings(recovery_timeout=5.0)),
        (
            "{openDuration: {initial: 5, factor: 3, maxDelay: 100}, recoveryJitter: full}",
            BreakerSettings(
                recovery_timeout=Backoff.exponential(5.0, factor=3.0, max_delay=100.0),
                recovery_jitter=Jitter.full(),
            ),
        ),
        ("{countOn: OSError, ignore: [KeyError]}",
         BreakerSettings(count_on=OSError, ignore=KeyError)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["circuitBreaker", "retry.circuit_breaker", "breakers.default"])
def test_a_breaker_for_each_operation(put, breaker, expected, place):
    """In any of three places, and however much of it is said."""
    text = ": {".join(place.split(".")) + f": {breaker}" + "}" * place.count(".")
    assert settings(put("mainstay.yml", text)).breaker == expected


@given(words=st.lists(st.from_regex(r"[a-z]{2,5}", fullmatch=True), min_size=1, max_size=4))
def test_a_name_and_its_spellings(words):
    """Both ways to write a name say the same."""
    name = "_".join(words)
    assert snake(camel(name)) == name


# --- which file -----------------------------------------------------------------------------------


def project(folder):
    """Makes a folder the root of a project."""
    (folder / ".git").mkdir(parents=True)


def test_the_order_in_a_directory(put, tmp_path):
    """mainstay.yml before the agent's file before the project's."""
    project(tmp_path)
    assert settings().file is None
    put("pyproject.toml", "[tool.mainstay]\nstore = 'memory://'\n")
    assert settings().file == "pyproject.toml"
    put("agent/config.yml", AGENT)
    assert settings().file == str(Path("agent/config.yml"))
    put("mainstay.yaml", "store: memory://\n")
    assert settings().file == "mainstay.yaml"
    put("mainstay.yml", "store: memory://\n")
    assert settings().file == "mainstay.yml"


def test_directories_above_are_searched_up_to_the_project(put, tmp_path, monkeypatch):
    """The nearest file counts; what is above the project's root is somebody else's."""
    put("mainstay.yml", "store: memory://")
    project(tmp_path / "shop")
    (tmp_path / "shop/src/deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shop/src/deep")
    assert settings().file is None
    path = put("shop/mainstay.yml", "store: memory://")
    assert settings().file == str(path)
    put("shop/src/mainstay.yml", "store: memory://")
    assert settings().file == str(tmp_path / "shop/src/mainstay.yml")


def test_the_search_ends_at_home(put, tmp_path):
    """A file in the home directory is found from below it; nothing above is looked at."""
    put("mainstay.yml", "")
    inner = put("ann/project/a.txt", "").parent
    home = tmp_path / "ann"
    assert list(candidates(inner, home)) == []
    mine = put("ann/mainstay.yml", "")
    assert list(candidates(inner, home)) == [mine]


@pytest.mark.parametrize("table", ["tools.mainstay", "tool.mainsaty", "mainstay", "Tool.mainstay"])
def test_a_table_of_a_project_that_is_not_read_is_a_problem(put, table):
    """The built-in policy would hold for what the table maps to one attempt."""
    ours = "[tool.mainstay.retry.policies.once]\nmaxAttempts = 1\n"
    put("pyproject.toml", f'{ours}[{table}.retry.operationPolicies]\ncharge = "once"\n')
    (problem,) = problems()
    assert f"has [{table}], which is not read: the table is [tool.mainstay]" in problem


@pytest.mark.parametrize("table", ["toolmainstay.retry", "tool.mainstayretry", "tool.x.retry"])
def test_a_map_in_another_table_of_a_project_is_a_problem(put, table):
    """Nothing else has that name."""
    put("pyproject.toml", f'[tool.mainstay.retry]\n[{table}.operationPolicies]\ncharge = "x"\n')
    (problem,) = problems()
    assert f"has [{table}], which is not read" in problem


def test_a_dependency_of_a_project_is_no_table_of_ours(put):
    """Other tools have tables of that name for where the package comes from."""
    put("pyproject.toml", '[tool.uv.sources]\nmainstay = {path = "../mainstay"}\n'
        '[project.optional-dependencies]\nmainstay = ["mainstay"]\n')  # fmt: skip
    assert problems() == []


@pytest.mark.parametrize("key", ["operationPolicies", "operation_policies", "perationPolicies"])
def test_a_map_one_level_too_high_in_the_agents_file_is_a_problem(put, key):
    """What is not ours is passed over; this can be nothing else."""
    put("agent/config.yml", f"model: x\n{AGENT}{key}:\n  charge: noRetry\n")
    (problem,) = problems()
    assert f"{key}: unknown key" in problem


@pytest.mark.skipif(os.name != "posix", reason="links need rights on Windows")
def test_a_home_behind_a_link_is_the_home(put, tmp_path):
    """`/home` may be a link to another disk; the working directory has no links in it."""
    inner = put("disk/ann/project/a.txt", "").parent
    mine = put("disk/ann/mainstay.yml", "")
    (tmp_path / "home").symlink_to("disk")
    assert list(candidates(inner, tmp_path / "home/ann")) == [mine]


@pytest.mark.skipif(os.name != "posix", reason="links need rights on Windows")
@pytest.mark.parametrize("name", ["mainstay.yml", "agent/config.yml", "pyproject.toml"])
def test_a_link_to_nothing_is_a_problem_and_not_no_file(put, tmp_path, name):
    """What it led to may have mapped an operation to one attempt."""
    put("agent/notes.txt", "")
    (tmp_path / name).symlink_to("/nowhere/on/this/machine.yml")
    assert problems() == [f"{name}: is a link to a file that is not there"]


def test_outside_of_a_project_only_the_working_directory_counts(put, tmp_path, monkeypatch):
    """A folder for everybody's temporary files is above, and not to be trusted."""
    put("mainstay.yml", "store: memory://")
    assert settings().file == "mainstay.yml"
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    assert settings().file is None


def test_a_file_that_is_given_comes_first(put):
    """An argument, then MAINSTAY_CONFIG, then the search."""
    put("mainstay.yml", "store: memory://")
    one, other = put("one.yml", ""), put("other.yml", "")
    assert settings(MAINSTAY_CONFIG=str(other)).file == str(other)
    assert settings(one, MAINSTAY_CONFIG=str(other)).file == str(one)
    assert settings(MAINSTAY_CONFIG="").file == "mainstay.yml"
    assert problems(MAINSTAY_CONFIG="nowhere.yml") == ["nowhere.yml: there is no such file"]


def test_the_rest_of_the_agents_file_is_not_ours(put):
    """Sections that belong to the agent are passed over; a misspelt one of ours is told."""
    path = put("agent/config.yml", "model: gpt\ntools: [a]\n" + AGENT)
    assert len(settings(path).policies) == 3
    put("agent/config.yml", "model: gpt\n")
    assert settings().file is None
    path = put("agent/config.yml", "model: gpt\nrerty: {}\n")
    assert problems(path) == [f"{path}:2: rerty: unknown key; did you mean retry?"]


TOML = """\
[project]
name = "shop"

[tool.mainstay]
store = "sqlite:///shop.db"

[tool.mainstay.retry]
default_policy = "fast"
operations = { "db.*" = "fast" }

[tool.mainstay.retry.policies.fast]
max_attempts = 2
retryOn = [
    "ConnectionError",
]

[[tool.mainstay.alerts.rules]]
name = "failing"
metric = "failure_rate"
above = 0.5
"""


def test_a_table_of_pyproject(put):
    """The same sections, as TOML."""
    found = settings(put("pyproject.toml", TOML))
    assert found.store == {"url": "sqlite:///shop.db"}
    assert policies(found)["fast"].retry_on == (ConnectionError,)
    assert found.operations == {"db.*": "fast"}
    assert found.alerts["rules"][0]["name"] == "failing"


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("max_attempts = 2", "max_attempts = 0", ":12: tool"),
        ('"ConnectionError"', '"throttled"', ":13: tool"),
        ('"db.*" = "fast"', '"db.*" = "slow"', ":9: tool"),
        ('metric = "failure_rate"', "metric = 5", ":19: tool"),
        ('name = "failing"', "", ":17: tool"),
        ('"sqlite:///shop.db"', "2024-01-01", ":5: tool"),
    ],
)
def test_lines_of_toml(put, old, new, where):
    """The line of the key, or of the key that it stands in."""
    path = put("pyproject.toml", TOML.replace(old, new))
    (problem,) = problems(path)
    assert problem.startswith(f"{path}{where.removesuffix(' tool')}")


def test_a_line_that_is_not_known_is_not_made_up(put):
    """The same line twice in a text of several lines: neither is given."""
    text = '[retry]\nnested = "no"\n[x]\nx-a = """\n[retry]\nnested = 1\n"""\n'
    path = put("a.toml", text)
    told = problems(path)
    assert told[0] == f"{path}: retry.nested = 'no': must be one of collapse, warn, allow, refuse"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "retry = \n", ":1: is not TOML: Invalid value"),
        ("pyproject.toml", "[tool.other]\n", ": has no table [tool.mainstay]"),
        ("pyproject.toml", "[tool.mainstay\n", ":1: is not TOML: "),
    ],
)
def test_broken_toml(put, name, text, message):
    path = put(name, text)
    (problem,) = problems(path)
    assert problem.startswith(f"{path}{message}")


def test_json_is_yaml(put):
    assert settings(put("a.json", '{"retry": {"default": "standard"}}')).default == "standard"


def test_anchors_and_merges(put):
    """What YAML offers against repetition."""
    text = """
x-common: &common {maxAttempts: 4, deadline: 9}
retry:
  policies:
    a: *common
    b: {<<: *common, deadline: 5}
    c: {<<: [{maxAttempts: 2}, *common]}
"""
    found = policies(settings(put("mainstay.yml", text)))
    shown = {name: (policy.max_attempts, policy.deadline) for name, policy in found.items()}
    assert shown == {"a": (4, 9.0), "b": (4, 5.0), "c": (2, 9.0)}
    other = settings(put("mainstay.yml", text), "retry.policies.a.maxAttempts=1")
    assert {n: p.max_attempts for n, p in policies(other).items()} == {"a": 1, "b": 4, "c": 2}


# --- the environment and options ------------------------------------------------------------------


@pytest.mark.req("FR-041-73")
@pytest.mark.parametrize(
    ("name", "value", "get", "expected"),
    [
        ("MAINSTAY_RETRY__POLICIES__STANDARD__MAX_ATTEMPTS", "5", "standard.max_attempts", 5),
        ("MAINSTAY_RETRY__POLICIES__STANDARD__MAXATTEMPTS", "5", "standard.max_attempts", 5),
        ("MAINSTAY_retry__policies__Standard__maxAttempts", "5", "standard.max_attempts", 5),
        ("MAINSTAY_RETRY__POLICIES__NO_RETRY__DEADLINE_MS", "1500", "noRetry.deadline", 1.5),
        ("MAINSTAY_RETRY__POLICIES__NORETRY__RETRY_ON", "[OSError, x]", "noRetry.retry_on",
         (OSError, "x")),
        ("MAINSTAY_RETRY__POLICIES__AGGRESSIVE__INITIAL_DELAY", "1", "aggressive.backoff.initial",
         1.0),
        ("MAINSTAY_RETRY__POLICIES__AGGRESSIVE__BACKOFF__KIND", "linear", "aggressive.backoff.kind",
         "linear"),
    ],
)  # fmt: skip
def test_the_environment_overrides_a_value(put, name, value, get, expected):
    """Whatever the key's case, and in place of any other spelling of it."""
    found = policies(settings(put("mainstay.yml", AGENT), **{name: value}))
    policy, *attributes = get.split(".")
    value = found[policy]
    for attribute in attributes:
        value = getattr(value, attribute)
    assert value == expected


@pytest.mark.req("FR-041-73", "FR-041-74")
def test_options_come_after_the_environment_after_the_file(put):
    name = "MAINSTAY_RETRY__POLICIES__STANDARD__MAX_ATTEMPTS"
    path = put("mainstay.yml", AGENT)

    def attempts(*sets, **env):
        return policies(settings(path, *sets, **env))["standard"].max_attempts

    option = "retry.policies.standard.max_attempts"
    assert attempts() == 3
    assert attempts(**{name: "5"}) == 5
    assert attempts(f"{option}=7", **{name: "5"}) == 7
    assert attempts(f"{option}=7", f"{option}=8") == 8


@pytest.mark.req("FR-041-10")
def test_the_built_in_policy_can_be_overridden_without_a_file(put):
    env = {"MAINSTAY_RETRY__POLICIES__STANDARD__MAX_ATTEMPTS": "9"}
    assert policies(settings(**env))["standard"] == STANDARD.replace(max_attempts=9)


def test_what_a_text_stands_for_can_be_overridden_in_part(put):
    """`store: URL` is a section with a url."""
    path = put("mainstay.yml", "store: sqlite:///a.db\naudit: true\n")
    found = settings(path, "store.share=2", MAINSTAY_AUDIT__EVERY="5")
    assert found.store == {"url": "sqlite:///a.db", "share": 2.0}
    assert found.audit == {"every": 5}
    assert settings(path, MAINSTAY_STORE="memory://").store == {"url": "memory://"}


def test_a_text_may_look_like_a_number(put):
    """An override has no quotes: a field of texts takes it as it is written."""
    found = settings(None, 'retry.policies."1".maxAttempts=2', "retry.default=1")
    assert found.default == "1"


def test_an_option_makes_a_name_that_is_not_there(put):
    found = settings(None, 'retry.operations."db.*"=fast', "retry.policies.fast.maxAttempts=2")
    assert found.operations == {"db.*": "fast"}
    assert policies(found)["fast"].max_attempts == 2


def test_the_short_names_of_fields_are_keys_too(put):
    """A file, the environment and `--set` take the names that Python code takes."""
    text = "{attempts: 5, on: OSError, timeout: 2, perKind: {throttled: {attempts: 2}}}"
    found = policies(settings(put("mainstay.yml", f"retry: {{policies: {{a: {text}}}}}")))["a"]
    assert found.replace(name="b") == RetryPolicy(
        name="b", max_attempts=5, retry_on=OSError, attempt_timeout=2,
        per_kind={"throttled": KindRule(2)},
    )  # fmt: skip
    path = put("mainstay.yml", "retry: {policies: {a: {maxAttempts: 3, attemptTimeoutMs: 100}}}")
    found = policies(
        settings(path, "retry.policies.a.attempts=4", MAINSTAY_RETRY__POLICIES__A__TIMEOUT="9")
    )["a"]
    assert (found.max_attempts, found.attempt_timeout) == (4, 9.0)


def test_both_names_of_a_field_and_words_of_other_libraries_are_problems(put):
    """The file and the line, and the name to use."""
    (problem,) = problems(None, "retry.policies.standard.max_time=5")
    assert "did you mean deadline?" in problem
    path = put("mainstay.yml", "retry:\n policies:\n  a: {attempts: 3, maxAttempts: 3}")
    (problem,) = problems(path)
    assert problem.startswith(f"{path}:3: retry.policies.a.maxAttempts: means the same as attempts")
    path = put("mainstay.yml", "retry:\n policies:\n  a: {max_tries: 3}")
    assert problems(path) == [
        f"{path}:3: retry.policies.a.max_tries: unknown key; did you mean maxAttempts?"
    ]


@pytest.mark.parametrize(
    ("sets", "env", "message"),
    [
        ([], {"MAINSTAY_RETRY__POLICIES__STANDARD__MAX_ATEMPTS": "5"},
         "_ATEMPTS: no key in retry.policies.standard is called 'MAX_ATEMPTS'; there are"),
        ([], {"MAINSTAY_RETRY__POLICIES__FASTER__MAX_ATTEMPTS": "5"},
         "_ATTEMPTS: no policy in retry.policies is called 'FASTER'; there are standard"),
        ([], {"MAINSTAY_RETRIES": "5"}, "did you mean retry?"),
        ([], {"MAINSTAY_STORE": "5"}, "MAINSTAY_STORE: store = 5: must be the URL"),
        ([], {"MAINSTAY_STORE__URL__PORT": "5"}, "store.url: has no keys below it"),
        ([], {"MAINSTAY_RETRY__NESTED": "[a"}, "retry.nested: is not a value as YAML has them"),
        ([], {"MAINSTAY_RETRY__NESTED": ""}, "retry.nested = '': must be one of"),
        (["retry.nested"], {}, "--set retry.nested: must be PATH=VALUE"),
        (["=5"], {}, "--set =5: must be PATH=VALUE"),
        (["retry.nestd=warn"], {}, "did you mean nested?"),
        (["retry.policies.standard.maxAttempts=0"], {},
         "--set retry.policies.standard.maxAttempts: retry.policies.standard.maxAttempts = 0"),
    ],
)  # fmt: skip
def test_an_override_that_cannot_be_right_is_told(put, sets, env, message):
    """With the variable or the option it came from, and what was meant."""
    (problem,) = problems(None, *sets, **env)
    assert message in problem


def test_other_variables_are_left_alone(put):
    """Those that mainstay reads for other reasons, and those that the file asks for."""
    path = put("mainstay.yml", "store: redis://:${MAINSTAY_DB_PASSWORD}@host")
    env = dict.fromkeys(
        (
            "MAINSTAY_DEBUG",
            "MAINSTAY_REQUIRE_ALL",
            "MAINSTAY_TEST_NATS_URL",
            "MAINSTAYX",
            "MAINSTAY_OPERATOR_SECRET",
            "MAINSTAY_NEW_SECRET",
        ),
        "1",
    )
    found = settings(path, MAINSTAY_DB_PASSWORD="secret", **env)
    assert found.store["url"] == "redis://:secret@host"


# --- secrets --------------------------------------------------------------------------------------


def test_values_come_from_the_environment(put):
    """As a whole with the type that the field has, or as a part of a text."""
    text = """
store: postgresql://app:${PASSWORD}@db/shop
retry: {policies: {a: {maxAttempts: "${N}", retryOn: ["${NAME}"]}}}
redaction: {patterns: ["$${NAME}"]}
"""
    found = settings(put("mainstay.yml", text), PASSWORD="hunter2", N="5", NAME="123")
    assert found.store["url"] == "postgresql://app:hunter2@db/shop"
    assert found.policies[0].max_attempts == 5
    assert found.policies[0].retry_on == ("123",)
    assert found.redaction["patterns"] == ("${NAME}",)


def test_a_value_of_the_environment_is_in_no_message(put):
    """The problem shows what the file says."""
    text = "store: ${URL}\nretry: {policies: {a: {maxAttempts: '${N}'}}}\nbudgets: ${N}"
    told = problems(put("mainstay.yml", text), URL="hunter2", N="hunter2")
    assert len(told) == 3
    assert "hunter2" not in "".join(told)
    assert "store = '${URL}'" in told[0]


def test_what_is_overridden_asks_for_nothing(put):
    """A variable that is missing is missed only where its value would be used."""
    path = put("mainstay.yml", "store: ${URL}")
    assert settings(path, "store=memory://").store == {"url": "memory://"}
    assert "needs the environment variable URL" in problems(path)[0]


def test_the_error_holds_no_secret(put):
    path = put("mainstay.yml", "store: {url: 'http://u:hunter2@h', pasword: hunter2}")
    loaded = load(path, env={})
    error = ConfigError(loaded.report.problems)
    parts = [str(error), repr(error), *(repr(problem.to_dict()) for problem in error.problems)]
    assert len(error.problems) == 2
    assert "hunter2" not in "".join(parts)


# --- the house ------------------------------------------------------------------------------------


def test_the_stores_are_those_of_the_engine():
    """A store that the engine learns is a store that can be configured."""
    assert sorted(SCHEMES) == sorted([*STORES, *ALSO])


def test_every_field_of_a_policy_is_declared():
    """A field that a policy learns is one that a file may have, or says why not."""
    from mainstay.config.retry_fields import BREAKER, POLICY
    from mainstay.core.retry.policy_fields import DEFAULTS

    declared = {field.name for field in POLICY.fields} | set(POLICY.refused)
    assert set(DEFAULTS) <= declared
    circuit = {field.name for field in BREAKER.fields} | set(BREAKER.refused)
    assert set(BreakerSettings._fields()) <= circuit


def test_the_documents_block_is_the_one_tested():
    """The block above is YAML that any reader takes."""
    assert len(re.findall(r"^    \w+:$", AGENT, re.MULTILINE)) == 3
