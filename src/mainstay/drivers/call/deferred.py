"""Begins the notes of a call that needs only attempts and waits, if a listener wants some."""

from __future__ import annotations

from mainstay.runtime.reports.logs import LOGS, QUIET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.drivers.call.emit import Notes
    from mainstay.drivers.call.site import Site


_loaded: list[Any] = []


def _load() -> None:
    """Loads what builds events, once: an import statement costs a failing call half a µs."""
    from mainstay.drivers.call.emit import Notes, wanted

    _loaded[:] = [Notes, wanted]


def notes_of(site: Site, key: int, started: float | None) -> Notes | None:
    """The notes of a call that has failed; None if no listener wants any."""
    receivers, levelled = site.receivers, site.levelled
    if site.logs is LOGS and (LOGS.root.handlers or LOGS.own.handlers != QUIET):
        logs = LOGS.listeners
        receivers, levelled = (*receivers, *logs), (*levelled, *logs)
    if not _loaded:
        _load()
    notes, wanted = _loaded
    if levelled:
        loudest = site.policy.log_level
        receivers = wanted(receivers, levelled, loudest if loudest == "CRITICAL" else "ERROR")
    if not (receivers or site.takers or site.waits):
        return None
    made: Notes = notes(site, key, started, receivers, levelled)
    return made
