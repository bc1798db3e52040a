"""Governance of data sets: what a file allows, and what the gate decides before each call."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainstay.core.base.change import ready
from mainstay.errors import GovernanceBlocked, GovernanceViolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

STATUSES = OPEN, RESTRICTED, BLOCKED = "open", "restricted", "blocked"
MOST_MASKING = 1_000_000


class DatasetRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What governance allows for one data set.

    >>> DatasetRule(status="restricted", care_labels=("CARE-A",)).masking
    0
    """

    status: Literal["open", "restricted", "blocked"] = "open"
    """"restricted": each stage is given it once. "blocked": no stage is."""
    care_labels: tuple[str, ...] = ()
    """A stage must be cleared for all of them."""
    masking: Annotated[int, Meta(ge=0)] = 0
    """The weakest masking with which a stage that masks may leave it."""


class GovernanceRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A governance file: data sets by id, and who decides about conflicts.

    >>> rules = GovernanceRules(datasets={"d-7": DatasetRule(status="blocked")})
    >>> rules.of("d-7").status, rules.of("d-8").status
    ('blocked', 'open')
    """

    version: Literal[1] = 1
    council: tuple[str, ...] = ()
    """The operators to whom conflicts go; empty for every operator."""
    datasets: dict[str, DatasetRule] = {}

    def of(self, dataset: str) -> DatasetRule:
        """What is allowed for a data set; one that is not listed is open."""
        return self.datasets.get(dataset, _ANY)


_ANY = DatasetRule()


def check(rule: DatasetRule, dataset: str, cleared: Iterable[str], masking: int | None) -> None:
    """Raises what forbids a stage to be given a data set, by the rule alone.

    Args:
        rule: what governance allows for it.
        dataset: its id.
        cleared: the CARE labels that the stage is cleared for.
        masking: with which masking the stage leaves it; None if it does not mask.

    >>> check(DatasetRule(care_labels=("CARE-A",)), "d-7", (), None)
    Traceback (most recent call last):
    mainstay.errors.GovernanceViolation: d-7 has the CARE label CARE-A, and the stage is not ...
    """
    if rule.status == BLOCKED:
        raise GovernanceBlocked(f"{dataset} is blocked by governance")
    left = sorted(set(rule.care_labels) - set(cleared))
    if left:
        names = ", ".join(left)
        raise GovernanceViolation(
            f"{dataset} has the CARE label {names}, and the stage is not cleared for it"
        )
    if masking is not None and masking < rule.masking:
        raise GovernanceViolation(
            f"{dataset} needs masking level {rule.masking}, and the stage masks at level {masking}"
        )


ready(GovernanceRules)
