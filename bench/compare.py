"""From timings to rows: each contender relative to a base, and mainstay relative to its peers."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench.measure import Absent, Effort, Results, Timing, spread
from bench.peers import PEERS
from bench.table import SPREAD_LIMIT, Goal, Row

FASTEST = "the fastest peer"


def ratios(
    results: Results,
    base: str,
    goals: dict[str, Goal],
    *,
    named: str = "{}",
    notes: dict[str, str] | None = None,
) -> list[Row]:
    """Every result as a row relative to `base`; the base first, then those with a goal."""
    notes = notes or {}
    unit = results[base]
    if isinstance(unit, Absent):
        return [Row(named.format(base), None, note=unit.reason)]
    rows = [Row(named.format(base), 1.0, note=f"{duration(unit.best)} on this machine")]
    for name in [*goals, *(name for name in results if name not in goals and name != base)]:
        what, goal, result = named.format(name), goals.get(name), results[name]
        if isinstance(result, Absent):
            rows.append(Row(what, None, goal, note=result.reason))
        else:
            ratio, noise = result.over(unit), result.spread_over(unit)
            note, again = notes.get(name, ""), result.is_repeated
            rows.append(Row(what, ratio, goal, spread=noise, note=note, is_repeated=again))
    return rows


def rank(results: Results, name: str, base: str) -> str:
    """The place of a contender among all but the base, and who is right before it."""
    unit, timed = results[base], {n: r for n, r in results.items() if isinstance(r, Timing)}
    if name not in timed or isinstance(unit, Absent):
        return ""
    places = sorted(timed.keys() - {base}, key=lambda each: timed[each].over(unit))
    place = places.index(name)
    after = f", after {places[place - 1]}" if place else ""
    return f"rank {place + 1} of {len(places)}{after}"


def faster_than(results: Results, goals: dict[str, Goal], *, named: str = "{}") -> list[Row]:
    """How many times faster mainstay is than each peer in `goals`; FASTEST is one of them."""
    timed = {n: r for n, r in results.items() if n in PEERS and isinstance(r, Timing)}
    fastest = min(timed, key=lambda name: timed[name].best, default="")
    rows = []
    for rival, goal in goals.items():
        what = named.format(f"mainstay, times faster than {rival}")
        note = fastest if rival == FASTEST else ""
        mine, its = results["mainstay"], timed.get(fastest if rival == FASTEST else rival)
        if isinstance(mine, Absent) or its is None:
            rows.append(Row(what, None, goal, note=note))
        else:
            noise, again = its.spread_over(mine), its.is_repeated or mine.is_repeated
            row = Row(what, its.over(mine), goal, spread=noise, note=note, is_repeated=again)
            rows.append(row)
    return rows


def paired(
    name: str, ratios: list[float], goal: Goal | None, pair: Callable[[], float], effort: Effort
) -> Row:
    """The median of the ratios of pairs of processes; if they are noisy, of as many again.

    The thirds of a run give its spread. Only a row with a goal is measured again, and the steadier
    of both figures stands.
    """
    is_repeated = goal is not None and not effort.is_quick and _of_thirds(ratios) > SPREAD_LIMIT
    if is_repeated:
        ratios = min(ratios, [pair() for _ in ratios], key=_of_thirds)
    noise = _of_thirds(ratios) if len(ratios) > 1 else None
    return Row(name, statistics.median(ratios), goal, spread=noise, is_repeated=is_repeated)


def _of_thirds(ratios: list[float]) -> float:
    return spread([statistics.median(ratios[third::3]) for third in range(min(3, len(ratios)))])


def duration(seconds: float) -> str:
    """Seconds in the unit a person would choose."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-9:.3g} ns"
