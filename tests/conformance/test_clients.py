"""The client document: every block and every table of it, on the front door.

A block runs with the door's names and those of PRELUDE, and what it defines is compared with what
the door has. Decisions of DESIGN.md that a case names are those by which it differs.
"""

import dataclasses
import inspect
import logging
import random
import re
import threading
import types
from collections.abc import Callable
from enum import Enum
from functools import wraps
from typing import ParamSpec, TypeVar

import pytest
import requests

from mainstay import PolicyError
from mainstay.profiles import clients
from mainstay.testing import virtual_time
from tests.conformance.document import WHY_NOT, blocks, read, run, tables

TEXT = read("client-retry-data-model.md")
if not TEXT:
    pytest.skip(WHY_NOT, allow_module_level=True)

PRELUDE = {
    "Callable": Callable, "Enum": Enum, "R": TypeVar("R"), "T": ParamSpec("T"),
    "dataclass": dataclasses.dataclass, "logger": logging.getLogger("sample"),
    "requests": requests, "threading": threading, "wraps": wraps,
}  # fmt: skip
"""What a sample leaves open."""
DOOR = {name: getattr(clients, name) for name in clients.__all__}


def ran(block, **names):
    return run(block, **{**PRELUDE, **DOOR, **names})


def fields_of(cls):
    return {field.name: field.default for field in dataclasses.fields(cls)}


def signature_of(function):
    return [(p.name, p.default) for p in inspect.signature(function).parameters.values()]


# --- the blocks -----------------------------------------------------------------------------------


def the_entities(block):
    """Every class and field in the picture is there; two names are drawn shorter than they are."""
    drawn = {"CircuitBreakerConfig": "CircuitBreakerConfiguration"}
    classes = {drawn.get(name, name) for name in re.findall(r"│ +([A-Z][a-z]\w+) +│", block.text)}
    assert classes <= {*DOOR}
    shown = {"recovery_timeout": "recovery_timeout_seconds"}
    names = {shown.get(name, name) for name in re.findall(r"- (\w+)", block.text)}
    objects = [
        clients.RetryConfiguration(), clients.CircuitBreakerConfiguration(),
        clients.RetryDecorator(), clients.CircuitBreaker("s3"), clients.RetryResult(True, 1),
    ]  # fmt: skip
    assert {name for name in names if not any(hasattr(each, name) for each in objects)} == set()


def the_configuration(block):
    """The same fields in the same order with the same defaults; the lists item by item."""
    theirs, ours = (fields_of(ran(block)["RetryConfiguration"]), fields_of(DOOR[block.heading]))
    assert list(theirs) == list(ours)
    lists = ("retry_on_exceptions", "ignore_on_exceptions")
    assert {n: v for n, v in theirs.items() if n not in lists} == {
        n: v for n, v in ours.items() if n not in lists
    }
    for name in lists:
        named = {rule if isinstance(rule, str | type) else rule.__name__ for rule in ours[name]}
        items = {_spelled(item) for item in theirs[name]}
        items.discard("requests.exceptions.HTTPError")  # decision 12: by status
        assert items <= named
    # The defaults are accepted as they stand.
    clients.RetryConfiguration(**theirs)


def _spelled(item):
    is_foreign = isinstance(item, type) and item.__module__ != "builtins"
    return f"{item.__module__}.{item.__qualname__}" if is_foreign else item


def the_presets(block):
    theirs = vars(ran(block)["RetryPresets"])
    ours = vars(clients.RetryPresets)
    names = [name for name in theirs if name.isupper()]
    assert names == [name for name in ours if name.isupper()]
    assert {name: theirs[name] for name in names} == {name: ours[name] for name in names}


def the_settings_of_a_circuit(block):
    theirs = ran(block)["CircuitBreakerConfiguration"]
    assert fields_of(theirs) == fields_of(clients.CircuitBreakerConfiguration)


def the_transitions(block):
    """Decision 16: the picture sends HALF_OPEN to OPEN on success; the code below is right."""
    assert "HALF_" in block.text


def the_breaker(block):
    """The same names; for the same calls the same states and log lines (decisions 6, 8)."""
    made = ran(block, time=None)
    states = {state.name: state.value for state in made["CircuitState"]}
    assert states.items() <= {s.name: s.value for s in clients.CircuitState}.items()
    theirs = made["CircuitOpenException"]("s3.get", made["CircuitState"].OPEN)
    ours = clients.CircuitOpenException("s3.get", clients.CircuitState.OPEN)
    assert (str(theirs), theirs.operation_name) == (str(ours), ours.operation_name)
    public = [name for name in vars(made["CircuitBreaker"]) if not name.startswith("_")]
    assert [name for name in public if not hasattr(clients.CircuitBreaker, name)] == []
    assert signature_of(made["CircuitBreaker"]) == signature_of(clients.CircuitBreaker)[:2]
    for seed in range(100):
        _walk(block, random.Random(seed))


def _walk(block, draw):
    """The same calls on both: one at a time, so that decision 6 makes no difference."""
    config = clients.CircuitBreakerConfiguration(failure_threshold=draw.randint(1, 4))
    lines, own = [], logging.getLogger("mainstay.security")
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    own.addHandler(handler)
    level = own.level
    own.setLevel(logging.INFO)  # which also forgets what was found to be off
    try:
        with virtual_time() as time:
            logged = []
            log = types.SimpleNamespace(info=logged.append)
            made = ran(block, time=types.SimpleNamespace(time=time.wall), logger=log)
            theirs, ours = (
                made["CircuitBreaker"]("walked", config),
                clients.CircuitBreaker("walked", config),
            )
            for _ in range(40):
                time.advance(draw.choice([0.0, 1.0, 15.0, 31.0]))
                assert theirs.state.value == ours.state.value
                allowed = theirs.allow_request()
                assert ours.allow_request() is allowed
                if allowed:
                    end = draw.choice(["record_failure", "record_success"])
                    getattr(theirs, end)()
                    getattr(ours, end)()
                assert theirs.state.value == ours.state.value
    finally:
        own.removeHandler(handler)
        own.setLevel(level)
    assert logged == [line for line in lines if "'walked'" in line]  # others may be logged


def the_result(block):
    theirs, ours = ran(block)["RetryResult"], clients.RetryResult
    assert list(fields_of(theirs)) == list(inspect.signature(ours).parameters)[:4]
    for success in (True, False):
        for attempts in (1, 2):
            one, other = theirs(success, attempts), ours(success, attempts)
            for name in ("last_exception", "total_time_ms", "succeeded_on_first_attempt",
                         "failed_after_retries"):  # fmt: skip
                assert getattr(one, name) == getattr(other, name)


def the_decorator(block):
    """The same parameters, in the same order, with the same defaults."""
    ((name, theirs),) = [(n, v) for n, v in ran(block).items() if n.startswith("with_")]
    own = inspect.signature(DOOR[name]).parameters.values()  # ours beside them are by name alone
    assert signature_of(theirs) == [
        (p.name, p.default) for p in own if p.kind is not p.KEYWORD_ONLY
    ]


CASES = {
    "Entities Overview": the_entities,
    "RetryConfiguration": the_configuration,
    "Preset Configurations": the_presets,
    "CircuitBreakerConfiguration": the_settings_of_a_circuit,
    "State Transitions": the_transitions,
    "CircuitBreaker": the_breaker,
    "RetryResult": the_result,
    "S3 Retry Decorator": the_decorator,
    "API Retry Decorator": the_decorator,
}


@pytest.mark.req("CL-01", "CL-02", "CL-06", "CL-07", "CL-08", "CL-09", "CL-10", "CL-11")
@pytest.mark.parametrize("block", blocks(TEXT), ids=lambda block: block.key)
def test_a_block_of_the_document_holds(block):
    """Each one has a case; one that is added to the document fails until it has."""
    CASES[block.key](block)


def test_no_case_is_left_over():
    """A block that is gone from the document leaves the list."""
    assert [block.key for block in blocks(TEXT)] == list(CASES)


# --- the tables -----------------------------------------------------------------------------------

BOUNDS = re.findall(r"^- `(\w+)`: Must be >= (\S+) \(default: (\S+)\)", TEXT, re.MULTILINE)


@pytest.mark.req("CL-01")
@pytest.mark.parametrize(("name", "bound", "default"), BOUNDS)
def test_a_rule_of_validation_holds(name, bound, default):
    """The bound itself is accepted, and the next smaller value is refused with it."""
    assert getattr(clients.RetryConfiguration(), name) == float(default)
    least = 1.0 if bound == "base_delay" else float(bound)
    least, below = (int(least), int(least) - 1) if name == "max_attempts" else (least, least - 0.01)
    clients.RetryConfiguration(**{name: least})
    with pytest.raises(PolicyError, match=f"{name} = "):
        clients.RetryConfiguration(**{name: below})


def test_all_five_rules_are_found():
    """The list of the document has the five fields that are numbers."""
    assert len(BOUNDS) == 5


def errors_of(row):
    """The exceptions that a row of the two tables describes."""
    name, code, source = row["Exception"].strip("`").split("`")[0], row["Code"], row["Source"]
    if source == "Application":
        return [__builtins__[name]("wrong")]
    if not code.endswith("xx") and source != "requests":
        error = RuntimeError(name)
        error.response = {
            "Error": {"Code": name}, "ResponseMetadata": {"HTTPStatusCode": int(code)},
        }  # fmt: skip
        return [error]
    cls = getattr(requests.exceptions, name)
    if code == "-":
        return [cls("down")]
    found = []
    for status in range(int(code[0]) * 100, int(code[0]) * 100 + 100):
        response = requests.Response()
        response.status_code = status
        if status != 429:
            found.append(cls(str(status), response=response))
    return found


ROWS = {
    (heading, row["Exception"]): row
    for heading, rows in tables(TEXT).items()
    for row in rows
    if heading in ("Retryable Exceptions", "Non-Retryable Exceptions")
}


@pytest.mark.req("CL-12", "CL-03", "CL-04")
@pytest.mark.parametrize(("heading", "name"), ROWS)
def test_a_row_of_the_exception_tables_holds(heading, name):
    """Every exception that it describes is retried, or is not."""
    policy = clients.RetryConfiguration().policy()
    answers = {policy.classification(e).retryable for e in errors_of(ROWS[heading, name])}
    assert answers == {heading == "Retryable Exceptions"}


def test_all_rows_are_found():
    """Seven are retried, six are not."""
    assert [heading for heading, _ in ROWS].count("Retryable Exceptions") == 7
    assert len(ROWS) == 13
