"""What certain pages must state: requirements on the documentation itself."""

import re
from pathlib import Path

import pytest

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def section(page, heading):
    """The text below a heading, up to the next of its rank."""
    text = (HOW_TO / page).read_text(encoding="utf-8")
    rank = heading.partition(" ")[0]
    assert f"\n{heading}\n" in text, f"{page} has no {heading!r}"
    return re.split(rf"\n{rank} ", text.split(f"\n{heading}\n")[1])[0]


@pytest.mark.req("CP-17.page")
@pytest.mark.parametrize(
    ("page", "heading", "words"),
    [
        ("control-plane.md", "## Choose the policy", ["max_attempts=5", "jitter_factor"]),
        ("control-plane.md", "## Run it once", ["compute_idempotency_key"]),
        ("control-plane.md", "## Watch it", ["audit_stream", "rate_per_minute", "filter("]),
        ("control-plane.md", "## Use NATS", ["NATS_CONNECT", "Nats-Msg-Id", "kv_watch"]),
        ("control-plane.md", "## Watch it", ["calculate_success_rate", "AlertRule"]),
        ("control-plane.md", "## Operating procedures", ["success_rate", "whatif", "inbox"]),
        ("monitoring.md", "## Operating procedures", ["retries", "circuit"]),
    ],
)
def test_the_operating_procedures_have_their_place(page, heading, words):
    """Policy, key, monitoring and patterns; the code of these pages runs in test_docs.py."""
    text = section(page, heading)
    assert [word for word in words if word not in text] == []


@pytest.mark.req("AG-09.documented")
@pytest.mark.parametrize("system", ["macOS", "Windows"])
def test_a_system_that_was_not_run_is_named_as_that(system):
    """Nobody takes a simulation for a run."""
    table = section("platforms.md", "## Python")
    assert re.search(rf"^\| {system} \| not run", table, re.MULTILINE)
