"""All rules, and what they find in the evidence."""

from __future__ import annotations

from mainstay.core.comply import (
    altered_ledger,
    attempts_exceeded,
    forbidden_class,
    missing_quarantine,
    missing_telemetry,
    open_circuit,
    unlogged_retry,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.comply.evidence import Evidence
    from mainstay.core.comply.finding import Finding

RULES = (
    missing_telemetry.RULE,
    forbidden_class.RULE,
    attempts_exceeded.RULE,
    unlogged_retry.RULE,
    open_circuit.RULE,
    altered_ledger.RULE,
    missing_quarantine.RULE,
)
"""Every rule, in the order in which they are reported."""


def check(evidence: Evidence) -> list[Finding]:
    """What every rule finds, in the order of the rules.

    >>> from mainstay.core.comply.evidence import Evidence
    >>> check(Evidence())
    []
    """
    return [finding for rule in RULES for finding in rule.check(evidence)]
