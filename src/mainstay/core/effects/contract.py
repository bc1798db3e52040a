"""The contract of an orchestrator: how often, and after which delays, it calls an effect again.

`max_retries` r means r + 1 attempts. That under `error_handling` caps each kind of error, that
under `coordination_rules` their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstay.core.base.validate import Checker
from mainstay.core.effects.settings import RANGES, curve, numeric, policy_fields, status_fields
from mainstay.core.effects.taxonomy import STATUSES
from mainstay.core.known.kind import RETRIED_KINDS, Kind
from mainstay.core.retry.backoff import Jitter
from mainstay.core.retry.policy_fields import KindRule

if TYPE_CHECKING:
    from mainstay.core.base.types import Fields, Seconds
    from mainstay.core.effects.settings import Settings

MOST_RETRIES = 9
"""The document's ten attempts."""
JITTER = 0.25
BOUNDS = {
    "initial_backoff_seconds": RANGES["initial_delay_seconds"],
    "max_backoff_seconds": RANGES["max_delay_seconds"],
    "exponential_base": RANGES["exponential_base"],
}
"""The bounds of what `error_handling.retry_policy` has besides `max_retries`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorContract:
    """What an orchestrator's contract.yaml has on retries, with the document's defaults.

    Args:
        max_retries: of `error_handling.retry_policy`: retries for one kind of error.
        total_retries: of `coordination_rules.max_retries`: retries for all kinds together; by
            default as many as for one kind.
        initial_backoff_seconds: the delay before the first retry.
        max_backoff_seconds: the longest delay, before jitter.
        exponential_base: by what a delay grows.
        source: the file.

    >>> contract = OrchestratorContract(max_retries=1, total_retries=3)
    >>> contract.most_attempts, contract.policy_fields()["per_kind"]["timeout"].max_attempts
    (4, 2)
    """

    max_retries: int = 2
    total_retries: int | None = None
    initial_backoff_seconds: Seconds = 1.0
    max_backoff_seconds: Seconds = 60.0
    exponential_base: float = 2.0
    source: str = ""

    def __post_init__(self) -> None:
        check = Checker("OrchestratorContract")
        check.count("max_retries", self.max_retries, MOST_RETRIES, least=0)
        if self.total_retries is not None:
            check.count("total_retries", self.total_retries, MOST_RETRIES, least=0)
        for name, (low, high) in BOUNDS.items():
            object.__setattr__(self, name, numeric(check, name, getattr(self, name), low, high))
        check.close()

    @property
    def most_attempts(self) -> int:
        """The largest number of attempts at one effect, the first included.

        >>> OrchestratorContract(max_retries=3).most_attempts
        4
        """
        return 1 + (self.max_retries if self.total_retries is None else self.total_retries)

    def policy_fields(self) -> dict[str, Any]:
        """The fields of the engine's policy.

        If one kind may not use up all retries, delays are counted for each kind.

        >>> OrchestratorContract(max_retries=3).policy_fields()["max_attempts"]
        4
        """
        fields: Fields = {
            "max_attempts": self.most_attempts,
            "backoff": curve(
                self.initial_backoff_seconds, self.exponential_base, self.max_backoff_seconds
            ),
            "jitter": Jitter.percent(JITTER),
        }
        if self.max_retries + 1 < self.most_attempts:
            rule = KindRule(max_attempts=self.max_retries + 1)
            fields["per_kind"] = dict.fromkeys((*RETRIED_KINDS, Kind.AMBIGUOUS), rule)
        return fields


def kind_fields(settings: Settings | None, contract: OrchestratorContract, most: int) -> Fields:
    """The fields of the policy for one kind: by its settings, or by the contract if it has none.

    >>> kind_fields(None, OrchestratorContract(max_retries=1), 4)["max_attempts"]
    2
    """
    if settings is None:
        return {**contract.policy_fields(), **status_fields(STATUSES)}
    fields = policy_fields(settings)
    return {**fields, "max_attempts": min(fields["max_attempts"], most)}
