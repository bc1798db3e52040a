"""Diagrams of what happened: every step, its status, and text that breaks neither format."""

import re
import xml.etree.ElementTree as ET

import pytest

from mainstay.core.saga.diagram import mermaid, svg
from mainstay.core.saga.view import SagaView, StepView


def view(*steps, saga_id="t-1", stuck=""):
    return SagaView(
        address=f"transfer/{saga_id}",
        saga="transfer",
        id=saga_id,
        tenant_id=None,
        version=1,
        state="stuck" if stuck else "running",
        steps=steps,
        log=(),
        began=0.0,
        ended=None,
        recoveries=0,
        cancelled="",
        failure="",
        stuck=stuck,
        is_leased=False,
    )


STEPS = (
    StepView(name="debit", status="undo_done", group=0, attempts=3, seconds=0.25),
    StepView(name="bill", status="done", group=1),
    StepView(name="ship", status="in_doubt", group=1),
    StepView(name="charge", status="pending", group=2, pivot=True),
)


def test_mermaid():
    """Groups stand side by side, the pivot has a shape of its own, each status its class."""
    lines = [line.strip() for line in mermaid(view(*STEPS)).splitlines()]
    assert 's0["debit<br/>undo done, 3 attempts, 0.25 s"]:::undone' in lines
    assert "begin --> s0" in lines
    assert "s0 --> s1 & s2" in lines
    assert "s1 & s2 --> s3" in lines
    assert 's3{{"charge<br/>pending"}}:::pending' in lines
    assert 'ended(["running"])' in lines


ODD = [
    'a"b', "<script>", "#35;", "a\nb", "x" * 99, "\x1b[31mred", "a\rb", "\u202eb", "\ud800", "\0",
    '%%{init: {"theme": "dark"}}%%', "`**b**`", "&lt;", "a]]>b", "a;b", "\x9b31m", "\u2028",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_any_text(text):
    """No id and no error ends a label or an element; nor does a terminal or Mermaid obey it."""
    odd = view(*STEPS, StepView(name=text, status="done", group=3), saga_id=text, stuck=text)
    drawn = mermaid(odd)
    lines = drawn.splitlines()
    assert len(lines) == len(
        mermaid(view(*STEPS, StepView(name="odd", status="done", group=3), stuck="x")).splitlines()
    )
    assert all(line.isprintable() for line in lines)
    (label,) = re.findall(r'begin\(\["(.*)"\]\)$', lines[1])
    assert not re.search(r'["<>&%{}`]', label)
    assert re.fullmatch(r"([^#]|#\d+;)*", label)
    picture = svg(odd)
    assert picture.replace("\n", "").isprintable()
    assert "<script>" not in drawn + picture
    root = ET.fromstring(picture)
    assert len([each for each in root.iter() if each.tag.endswith("rect")]) == 7


def test_svg():
    """Each step is a box with its name; lines lead from each group to the next."""
    root = ET.fromstring(svg(view(*STEPS)))
    texts = [each.text for each in root.iter() if each.tag.endswith("text")]
    assert {"debit", "bill", "ship", "charge (pivot)", "transfer t-1"} <= set(texts)
    assert len([each for each in root.iter() if each.tag.endswith("line")]) == 6
