"""The JSON Schema and the checker are of one mind, since both are made of the same declaration."""

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainstay.config import shapes
from mainstay.config.check import check
from mainstay.config.fields import CONFIG
from mainstay.config.report import Report
from mainstay.config.schema import schema
from mainstay.config.tree import Node, written
from tools import config_doc

SCHEMA = schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
ROOT = Path(__file__).parents[2]
ENV = {"N": "3", "DB": "x"}


def tree(value):
    """A tree of plain data."""
    if isinstance(value, dict):
        return Node({key: tree(child) for key, child in value.items()}, 1, "here")
    if isinstance(value, list):
        return Node([tree(child) for child in value], 1, "here")
    return Node(written(value) if isinstance(value, str) else value, 1, "here")


def is_right(document):
    """Whether the checker has nothing to say, as far as single fields go."""
    report = Report(ENV)
    check(CONFIG, tree(document), (), report)
    return report.problems == []


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


GOOD = """
{}
---
retry:
---
retry:
  default: fast
  nested: warn
  policies:
    fast: {maxAttempts: 2, backoff: constant, initialDelayMs: 0, jitter: none, logLevel: DEBUG}
    slow:
      extends: fast
      backoff: {kind: linear, initial: 1, step: 0.5, max_delay_ms: 9000}
      jitter: {kind: additive, amount: 0.5}
      retry_on: [ConnectionError, "kind:throttled"]
      neverRetryOn: PermissionError
      classify: {SlowDown: throttled}
      perKind: {throttled: {maxAttempts: 8, jitterPercent: 50}}
      attemptTimeout: 2
      deadlineMs: null
    empty: {}
  operations: {"db.*": fast}
---
circuitBreaker: false
---
breakers:
  default: {openDuration: {kind: exponential, initial: 5, factor: 3}}
  global: {window: {seconds: 60, buckets: 6}, slowAfterMs: 500, slowRate: 0.5}
  named: {payments: {operations: "payments.*", countOn: [OSError]}}
---
budgets: {retries: , tokens: aws, rate: 5, throttle: true, memory: 80%}
---
budgets: {memory: {limit: 1000000}}
---
store: sqlite:///shop.db
---
store: {url: "redis://:${DB}@host", share: null, needs: durable}
---
sinks: {logging: false, prometheus: true, otel: , jsonl: {path: a.jsonl, anything: [1, {a: 2}]}}
---
audit: true
---
audit: audit.jsonl
---
audit: {where: audit.jsonl, heads: [a, "log:heads"], spill: false}
---
redaction: {patterns: "EMP-[0-9]+", fields: [patient id], builtin: true}
---
alerts: {rules: [{name: a, metric: failure_rate, above: 0.5}], intervalMs: 500}
---
inbox: {notify: {webhook: "https://a.example/b", email: {host: h, from: a, to: [b]}}}
---
outbox: {url: "postgresql://app@db/shop", publish: "nats://127.0.0.1:4222"}
---
outbox: {publish: "python:shop.events:publish"}
---
x-anchors: [1, 2]
---
retry: {policies: {a: {maxAttempts: "${N}"}}}
"""


@pytest.mark.parametrize("document", list(yaml.safe_load_all(GOOD)), ids=str)
def test_both_take_what_is_right(document):
    """A good file is good to the editor and to mainstay."""
    assert list(VALIDATOR.iter_errors(document)) == []
    assert is_right(document)


BAD = """
[]
---
retry: []
---
rety: {}
---
retry: {policies: {a: {maxAttempts: 0}}}
---
retry: {policies: {a: {maxAttempts: 2.5}}}
---
retry: {policies: {a: {maxAttempts: true}}}
---
retry: {policies: {a: {maxAttempts: }}}
---
retry: {policies: {a: {maxAttempts: 2, max_attempts: 2}}}
---
retry: {policies: {a: {deadline: 2, deadlineMs: 2000}}}
---
retry: {policies: {a: {deadline: 0}}}
---
retry: {policies: {a: {jitter: full, jitterPercent: 5}}}
---
retry: {policies: {"": {}}}
---
retry: {policies: {a: {retryOn: [throttled]}}}
---
retry: {policies: {a: {retryOn: SystemExit}}}
---
retry: {policies: {a: {classify: {"kind:auth": auth}}}}
---
retry: {policies: {a: {perKind: {slow: {}}}}}
---
retry: {default: a, defaultPolicy: a}
---
circuitBreaker: 5
---
circuitBreaker: {openDuration: 5, recoveryTimeoutMs: 5}
---
budgets: {memory: }
---
budgets: {memory: 0}
---
store: sqlite:/a
---
store: 5
---
sinks: {jsonl: 5}
---
sinks: {unknown: true}
---
audit: {spill: 5}
---
alerts: {rules: [{name: a}]}
---
inbox: {notify: {email: {host: h}}}
---
outbox: {publish: "nowhere://host"}
---
outbox: {url: "redis://host"}
---
x: 1
"""


@pytest.mark.parametrize("document", list(yaml.safe_load_all(BAD)), ids=str)
def test_both_refuse_what_is_wrong(document):
    """A bad file is bad to the editor and to mainstay."""
    assert list(VALIDATOR.iter_errors(document)) != []
    assert not is_right(document)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([0.5, 2.5, 1e3, 1e12, -0.1, 4.0]),
    st.sampled_from(
        [
            "",
            " a",
            "a\n",
            "standard",
            "exponential",
            "full",
            "warn",
            "kind:auth",
            "throttled",
            "sqlite:///a",
            "https://a/b",
            "80%",
            "DEBUG",
            "SystemExit",
        ]
    ),
)
WRONG = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=2),
    st.dictionaries(st.text(max_size=2), SCALARS, max_size=1),
)


def values(shape):
    """Values for a shape: mostly of the right sort, never surely right."""
    if isinstance(shape, shapes.Section):
        return st.one_of(sections(shape), WRONG)
    if isinstance(shape, shapes.NameMap):
        names = st.sampled_from(["standard", "db.*", "throttled", "kind:auth", "", "a "])
        return st.one_of(st.dictionaries(names, values(shape.shape), max_size=2), WRONG)
    if isinstance(shape, shapes.Listing):
        return st.one_of(st.lists(values(shape.shape), max_size=2), values(shape.shape))
    if isinstance(shape, shapes.Text) and shape.choices:
        return st.one_of(st.sampled_from(shape.choices), WRONG)
    return WRONG


def sections(shape):
    """A few keys of a section, in any spelling, with values for each; or a key it does not know."""
    keys = st.sampled_from([*shape.keys, "stranger", "x-y"])

    def fill(chosen):
        pairs = {k: values(shape.keys[k][1]) if k in shape.keys else WRONG for k in chosen}
        return st.fixed_dictionaries(pairs)

    return st.lists(keys, max_size=3, unique=True).flatmap(fill)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(document=sections(CONFIG))
def test_both_are_of_one_mind(document):
    """Whatever a file holds, the editor and mainstay agree on whether it can be right."""
    assert VALIDATOR.is_valid(document) == is_right(document)


@pytest.mark.parametrize(
    "section", [f for f in CONFIG.fields if f.name != "x"], ids=lambda f: f.name
)
def test_both_are_of_one_mind_in_each_section(section):
    """The same, with more examples of each."""

    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
    @given(value=values(section.shape))
    def agree(value):
        document = {shapes.camel(section.name): value}
        assert VALIDATOR.is_valid(document) == is_right(document)

    agree()


@pytest.mark.req("FR-041-75")
def test_the_written_schema_is_the_generated_one():
    """What editors are pointed to is what mainstay checks."""
    text = config_doc.SCHEMA.read_text(encoding="utf-8")
    assert json.loads(text) == SCHEMA, config_doc.HOW
    assert text == config_doc.schema_text(), config_doc.HOW


@pytest.mark.req("FR-041-75")
def test_the_reference_is_the_generated_one():
    """A change of a field changes the page that users read."""
    assert config_doc.PAGE.read_text(encoding="utf-8") == config_doc.render(), config_doc.HOW


def test_every_field_is_on_the_page():
    """The generator leaves nothing out."""
    page = config_doc.render()
    for section in config_doc.sections():
        for name in section.names:
            assert f"`{name}`" in page, name


def test_the_project_itself_is_no_configuration():
    """Running in the repository configures nothing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "mainstay" not in project["tool"]
