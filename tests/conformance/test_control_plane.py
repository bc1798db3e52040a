"""The control-plane document: every block and every table of it, on the front door.

A block runs with the door's names and those of PRELUDE. Decisions of DESIGN.md that a case names
are those by which it does not run, or differs.
"""

import ast
import asyncio
import dataclasses
import hashlib
import inspect
import json
import random
import re
import textwrap
import types
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Optional, Union

import pytest

from mainstay import events
from mainstay.core.events.codec import encode
from mainstay.profiles import control_plane
from mainstay.profiles.control_plane import (
    POLICIES,
    IdempotencyManager,
    RetryCategory,
    RetryError,
    RetryManager,
    RetryPolicy,
)
from mainstay.profiles.control_plane import manager as module
from mainstay.testing import virtual_time
from tests.conformance.document import WHY_NOT, Block, blocks, read, run, tables

TEXT = read("control-plane-retry-idempotency.md")
if not TEXT:
    pytest.skip(WHY_NOT, allow_module_level=True)


class NetworkError(Exception):
    """Of the reader's own."""


PRELUDE = {
    "Any": Any, "Dict": dict, "Enum": Enum, "List": list, "NetworkError": NetworkError,
    "Optional": Optional, "Union": Union, "dataclass": dataclass, "field": field,
    "hashlib": hashlib, "random": random,
}  # fmt: skip
"""What a sample leaves open."""
DOOR = {name: getattr(control_plane, name) for name in control_plane.__all__}


def ran(block, **names):
    return run(block, **{**PRELUDE, **DOOR, **names})


def awaited(block, **names):
    """The names after a block with `await` in it, which stands in no function."""
    body = textwrap.indent(block.text, "    ")
    made = ran(Block(block.heading, 1, "python", f"async def sample():\n{body}"), **names)
    return asyncio.run(made["sample"]())


# --- definitions ----------------------------------------------------------------------------------


def the_categories(block):
    theirs = ran(block)["RetryCategory"]
    assert {c.name: c.value for c in theirs} == {c.name: c.value for c in RetryCategory}
    assert list(theirs.__members__) == list(RetryCategory.__members__)
    assert issubclass(RetryCategory, str)


def the_policy(block):
    theirs = ran(block)["RetryPolicy"]()
    ours = RetryPolicy()
    names = [f.name for f in dataclasses.fields(theirs)]
    assert names == [f.name for f in dataclasses.fields(ours)]
    for name in names:
        value = getattr(theirs, name)
        assert getattr(ours, name) == (tuple(value) if isinstance(value, list) else value)


def the_methods(block):
    """Signatures without bodies: each method is there, async or not, with these parameters."""
    text = re.sub(r"(-> [^\n]+)$", r"\1: ...", block.text, flags=re.MULTILINE)
    (cls,) = ast.parse(text).body
    ours = DOOR[cls.name]
    assert len(cls.body) >= 2
    for method in cls.body:
        function = getattr(ours, method.name)
        assert inspect.iscoroutinefunction(function) == isinstance(method, ast.AsyncFunctionDef)
        parameters = inspect.signature(function).parameters.values()
        given = [a.arg for a in method.args.args]
        assert [p.name for p in parameters if p.name != "self"][: len(given)] == given
        if defaults := len(method.args.defaults):
            optional = [p for p in parameters if p.default is None]
            assert [p.name for p in optional][-defaults:] == given[-defaults:]


# --- the flow -------------------------------------------------------------------------------------


def the_check(block):
    """Nothing, then what was recorded; a recorded None is a Hit (decisions 7 and 18)."""
    manager = IdempotencyManager(sinks=[])
    names = {"idempotency_manager": manager, "idempotency_key": "k"}
    assert awaited(block, **names) is None
    asyncio.run(manager.record_result("k", None))
    assert awaited(block, **names).value is None


def the_loop(block):
    """Decision 18: what is awaited is made anew for each attempt; a coroutine object is refused."""
    assert "await coro\n" in block.text


def the_exhaustion(block):
    """Its RetryError takes the three arguments by place."""

    async def emit(*_):
        return None

    names = {
        "attempt": 3, "max_attempts": 3, "category": RetryCategory.KV_GET, "attempts": 3,
        "operation": "get", "self": types.SimpleNamespace(_emit_retry_exhausted_audit=emit),
    }  # fmt: skip
    with pytest.raises(RetryError) as caught:
        awaited(block, **names)
    error = caught.value
    assert (error.category, error.attempts, error.operation) == (RetryCategory.KV_GET, 3, "get")


def the_key(block):
    """The same parameters; decision 18: canonical JSON, so the digits are others."""
    theirs = ran(block)["compute_idempotency_key"]
    ours = IdempotencyManager.compute_idempotency_key
    assert list(inspect.signature(theirs).parameters) == list(inspect.signature(ours).parameters)
    for arguments in (("op", "t", "c", {"a": 1}), ("op", None, None, None)):
        assert len(theirs(*arguments)) == len(ours(*arguments)) == 64
    assert ours("op", None, None, None) == ours("op", "", "", {})


def the_delay(block):
    """The same number for every attempt, policy and draw."""
    draw = types.SimpleNamespace(uniform=lambda low, high: low + (high - low) * 0.25)
    theirs = ran(block, random=draw)["_compute_delay"]
    for policy in (*POLICIES.values(), RetryPolicy(9, jitter_enabled=False),
                   RetryPolicy(9, 3.0, 7.0, 1.5, jitter_factor=0.5)):  # fmt: skip
        for attempt in range(1, 9):
            ours = policy.policy().delay(attempt, 0.25)
            assert theirs(None, attempt, policy) == pytest.approx(ours)


# --- events ---------------------------------------------------------------------------------------


def an_event(block):
    """It is read as an event of ours, and has every field of it when it is written."""
    sample = json.loads(re.sub(r"\s*//.*", "", block.text))
    classes = (events.RetryAttempt, events.RetryExhausted, events.Idempotency)
    (cls,) = [each for each in classes if each().event_type == sample["event_type"]]
    given = {name: value for name, value in sample.items() if name != "event_type"}
    written = json.loads(encode(cls(**given)))
    assert {name: written.get(name) for name in sample} == sample


# --- operating ------------------------------------------------------------------------------------


def the_classification(block):
    """Decision 1: what is in both lists is not retried."""
    made = ran(block)
    assert made["default_policy"].policy().classification(KeyError()).retryable
    strict, lenient = made["strict_policy"].policy(), made["lenient_policy"].policy()
    assert not any(strict.classification(e()).retryable for e in (ValueError, TypeError, KeyError))
    assert strict.classification(OSError()).retryable
    assert lenient.classification(NetworkError()).retryable
    assert not lenient.classification(ValueError()).retryable


def the_configuration(block):
    made = ran(block)
    assert made["critical_policy"].policy().max_attempts == 5
    assert isinstance(made["retry_mgr"], RetryManager)


def the_use_of_a_key(block):
    assert len(ran(block, retry_mgr=RetryManager(sinks=[]))["idempotency_key"]) == 64


def busy(manager):
    """Two calls of a category, with two retries."""
    left = [OSError(), OSError()]

    async def work():
        if left:
            raise left.pop()

    async def main():
        for _ in range(2):
            await manager.execute_with_retry(RetryCategory.KV_GET, "get", work)

    with virtual_time():
        asyncio.run(main())


def the_monitoring(block):
    """With the stream of the module itself: two retries a minute are over one, not over two."""
    alerts = []
    busy(control_plane.get_retry_manager())
    for threshold in (1, 2):
        ran(block, threshold=threshold, alert=alerts.append)
    assert len(alerts) == 1


def the_analysis(block):
    """With the door's two functions: each of the seventeen categories has its figures."""
    busy(control_plane.get_retry_manager())
    patterns = ran(block)["retry_patterns"]
    assert len(patterns) == 17
    assert patterns["RETRY_KV_GET"]["success_rate"] == 1.0
    assert patterns["RETRY_KV_GET"]["avg_attempts"] == 2.0


CASES = {
    "RetryCategory Enum": the_categories,
    "RetryPolicy Data Structure": the_policy,
    "IdempotencyManager Class": the_methods,
    "RetryManager Class": the_methods,
    "Idempotency Check": the_check,
    "Retry Execution Loop": the_loop,
    "Retry Exhaustion": the_exhaustion,
    "Deterministic Key Generation": the_key,
    "Backoff Algorithm": the_delay,
    "Retryable vs Non-Retryable": the_classification,
    "Retry Attempt Events": an_event,
    "Retry Exhaustion Events": an_event,
    "Idempotency Events": an_event,
    "Retry Policy Configuration": the_configuration,
    "Idempotency Key Generation": the_use_of_a_key,
    "Retry Monitoring": the_monitoring,
    "Retry Pattern Analysis": the_analysis,
}


@pytest.mark.req("CP-01", "CP-03", "CP-05", "CP-09", "CP-10", "CP-11", "CP-12", "CP-13", "CP-18")
@pytest.mark.parametrize("block", blocks(TEXT), ids=lambda block: block.key)
def test_a_block_of_the_document_holds(block, monkeypatch):
    """Each one has a case; one that is added to the document fails until it has."""
    monkeypatch.setattr(module, "_MANAGERS", [])
    CASES[block.key](block)


def test_no_case_is_left_over():
    """A block that is gone from the document leaves the list."""
    assert [block.key for block in blocks(TEXT)] == list(CASES)


# --- the tables -----------------------------------------------------------------------------------

MATRIX = tables(TEXT)["Retry Policy Matrix"]


@pytest.mark.req("CP-02")
@pytest.mark.parametrize("row", MATRIX, ids=lambda row: row["Operation Category"])
def test_a_row_of_the_matrix_holds(row):
    """Every cell of it that is a number."""
    policy = POLICIES[RetryCategory[row["Operation Category"]]]
    assert policy == RetryPolicy(
        max_attempts=int(row["Max Attempts"]),
        base_delay=float(row["Base Delay"].rstrip("s")),
        max_delay=float(row["Max Delay"].rstrip("s")),
        backoff_multiplier=float(row["Backoff"].rstrip("x")),
        jitter_factor=float(row["Jitter"].strip("±%")) / 100,
    )


def test_the_matrix_has_every_category():
    """In the order of the categories."""
    assert [row["Operation Category"] for row in MATRIX] == [c.name for c in RetryCategory]


@pytest.mark.req("CP-04")
def test_the_examples_of_delays_hold():
    """Each with its share of jitter, around the delay."""
    shown = re.findall(r"\*\*Attempt (\d)\*\*: ([\d.]+)s ±([\d.]+)s", TEXT)
    policy = RetryPolicy(max_attempts=9).policy()
    assert len(shown) == 4
    for attempt, base, spread in shown:
        low, high = (policy.delay(int(attempt), u) for u in (0.0, 1.0))
        assert low == pytest.approx(float(base) - float(spread))
        assert high == pytest.approx(float(base) + float(spread))
