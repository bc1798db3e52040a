"""What `mainstay comply` prints: text for people, JSON for programs, JUnit XML for CI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from mainstay.cli.screen.output import shielded
from mainstay.core.comply.check import RULES
from mainstay.core.redact.redactor import REDACTOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.cli.comply.read import Sources
    from mainstay.core.comply.finding import Finding

_FIXES = {rule.id: rule.fix for rule in RULES}
_WORDS = {
    "runs": "runs",
    "telemetry_records": "telemetry records",
    "ledger_entries": "ledger entries",
    "audit_records": "audit records",
}


def place_of(finding: Finding) -> str:
    """Where a finding is: file and line, or the record of a log."""
    if finding.line is not None:
        return f"{finding.file}:{finding.line}"
    return finding.file if finding.index is None else f"{finding.file}, record {finding.index}"


def text_of(findings: Sequence[Finding], sources: Sources) -> str:
    """For people: each finding with its place, what to do about each rule, and the sum."""
    lines = []
    for finding in findings:
        lines += [f"{place_of(finding)}: {finding.rule}: {finding.text}"]
        if finding.run_id:
            lines[-1] += f" (run {finding.pipeline_id}/{finding.run_id})"
    for rule in dict.fromkeys(finding.rule for finding in findings):
        lines += [f"  next, for {rule}: {_FIXES[rule]}"]
    lines += [f"note: {note}" for note in sources.notes]
    checked = ", ".join(f"{text}: {sources.counts.get(name, 0):,}" for name, text in _WORDS.items())
    return "\n".join(map(shielded, [*lines, f"findings: {len(findings):,}; {checked}"]))


def document_of(findings: Sequence[Finding], sources: Sources) -> dict[str, Any]:
    """For programs."""
    return {
        "ok": not findings,
        "checked": {name: sources.counts.get(name, 0) for name in _WORDS},
        "notes": sources.notes,
        "rules": [rule.id for rule in RULES],
        "findings": [
            {
                "rule": each.rule,
                "text": each.text,
                "fix": _FIXES[each.rule],
                "file": each.file,
                "line": each.line,
                "record": each.index if each.line is None else None,
                "pipeline_id": each.pipeline_id,
                "run_id": each.run_id,
                "stage": each.stage,
                "call_id": each.call_id,
            }
            for each in findings
        ],
    }


def junit_of(findings: Sequence[Finding], sources: Sources) -> str:
    """For CI: a test case for each finding, and one that passed for each rule without any."""
    broken = {finding.rule for finding in findings}
    passed = [rule.id for rule in RULES if rule.id not in broken]
    counts = {"tests": len(findings) + len(passed), "failures": len(findings)}
    counts |= {"errors": 0, "skipped": 0}
    numbers = {name: str(number) for name, number in counts.items()} | {"time": "0"}
    outer = ET.Element("testsuites", {"name": "mainstay comply", **numbers})
    suite = ET.SubElement(outer, "testsuite", {"name": "mainstay comply", **numbers})
    for finding in findings:
        _add_failure(suite, finding)
    for rule in passed:
        _case(suite, rule, rule)
    if sources.notes:
        ET.SubElement(suite, "system-out").text = _clean("\n".join(sources.notes))
    ET.indent(outer)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(outer, encoding="unicode")


def _add_failure(suite: ET.Element, finding: Finding) -> None:
    whose = f"{finding.pipeline_id}/{finding.run_id}".strip("/")
    name = f"{finding.rule}: {whose}" if whose else finding.rule
    case = _case(suite, name, finding.rule)
    if finding.file:
        case.set("file", _clean(finding.file))
    if finding.line is not None:
        case.set("line", str(finding.line))
    failure = ET.SubElement(
        case, "failure", {"type": finding.rule, "message": _clean(finding.text)}
    )
    failure.text = _clean(f"{place_of(finding)}: {finding.text}\nnext: {_FIXES[finding.rule]}")


def _case(suite: ET.Element, name: str, rule: str) -> ET.Element:
    values = {"classname": f"mainstay.comply.{rule}", "name": _clean(name), "time": "0"}
    return ET.SubElement(suite, "testcase", values)


def _clean(text: str) -> str:
    """A text without secrets, and without what XML cannot hold."""
    return "\n".join(shielded(REDACTOR.text(line)) for line in text.split("\n"))
