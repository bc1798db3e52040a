"""Begins the notes of a call that needs only attempts and waits, if a listener wants some."""

from __future__ import annotations

from mainstay.runtime.reports.logs import LEVELS, LOGS, QUIET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.drivers.call.emit import Notes
    from mainstay.drivers.call.site import Site


_ERROR, _CRITICAL = LEVELS["ERROR"], LEVELS["CRITICAL"]
_loaded: list[Any] = []


def _load() -> None:
    """Loads what builds events, once: an import statement costs a failing call half a µs."""
    from mainstay.drivers.call.emit import Notes

    _loaded[:] = [Notes]


def notes_of(site: Site, key: int, started: float | None) -> Notes | None:
    """The notes of a call that has failed; None if no listener wants any."""
    receivers, levelled, thresholds = site.receivers, site.levelled, site.thresholds
    if site.logs is LOGS and (LOGS.root.handlers or LOGS.own.handlers != QUIET):
        ways = LOGS.ways
        receivers = (*receivers, *[takes for _, takes, _ in ways])
        levelled, thresholds = (*levelled, *ways), (*thresholds, *ways)
    for asks, log, _ in thresholds:  # as `wanted` does, without a call
        if not asks(_CRITICAL if site.policy.log_level == "CRITICAL" else _ERROR):
            is_alone = receivers == (log,)
            receivers = () if is_alone else tuple([each for each in receivers if each is not log])
    if not (receivers or site.takers or site.waits):
        return None
    if not _loaded:
        _load()
    made: Notes = _loaded[0](site, key, started, receivers, levelled)
    return made
