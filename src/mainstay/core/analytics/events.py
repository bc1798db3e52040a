"""Events of alert rules."""

from __future__ import annotations

from typing import ClassVar

from mainstay.core.base.event import Event

__all__ = ["AlertCleared", "AlertFired"]


class Alert(Event, frozen=True, kw_only=True):
    """What the two ends of an alert have in common; whom it is about stands in the fields above."""

    alert: str = ""
    metric: str = ""
    value: float = 0.0
    threshold: float = 0.0
    window_seconds: float = 0.0
    group: str = ""

    @property
    def _subject(self) -> str:
        return self.operation or self.group or "everything"


class AlertFired(Alert, frozen=True, kw_only=True, tag="alert_fired"):
    """A metric has gone past the threshold of an alert rule.

    >>> AlertFired(alert="failing", metric="failure_rate", value=0.7).event_type
    'alert_fired'
    """

    level: ClassVar[str] = "WARNING"

    def sentence(self) -> str:
        return (
            f"{self._subject}: alert {self.alert} fired: {self.metric} is"
            f" {self.value:.4g}, threshold {self.threshold:.4g}, over {self.window_seconds:g} s"
        )


class AlertCleared(Alert, frozen=True, kw_only=True, tag="alert_cleared"):
    """A metric that had fired an alert is well back.

    >>> AlertCleared(alert="failing", lasted_seconds=90.0).event_type
    'alert_cleared'
    """

    lasted_seconds: float = 0.0
    level: ClassVar[str] = "INFO"

    def sentence(self) -> str:
        return (
            f"{self._subject}: alert {self.alert} cleared after"
            f" {self.lasted_seconds:.0f} s: {self.metric} is {self.value:.4g}"
        )
