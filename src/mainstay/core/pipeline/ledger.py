"""The two ledgers of pipelines: what an entry holds, how entries are chained, how that is verified.

`pipeline_retry_log` has an entry for each call of a stage that did not succeed at once;
`versioning_ledger` one for each change of a run and of the data sets in it. The entries of one run
in one ledger are a chain: each holds the SHA-256 of the one before, and the first the digest of
ledger, pipeline and run. An entry of the versioning ledger also holds the length and the head of
the retry log at its moment, so that an entry that is missing at the end of that log shows.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from mainstay.core.base.change import ready
from mainstay.core.base.timestamps import sortable, stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RETRY_LOG, VERSIONING = "pipeline_retry_log", "versioning_ledger"
LEDGERS = (RETRY_LOG, VERSIONING)
VERSION = 1
"""The version of the files; what has a later one is not read."""

RetryKind = Literal["retried", "exhausted", "failed_fast", "refused", "probe_failed", "unknown"]
VersioningKind = Literal[
    "began", "resumed", "halted", "quarantined", "escalated", "reviewed", "masked", "completed"
]
Count = Annotated[int, Meta(ge=0)]


class LedgerEntry(
    Struct, frozen=True, kw_only=True, omit_defaults=False, forbid_unknown_fields=True
):
    """One entry: attempts, error classes, data set ids and CARE labels, with what became of them.

    `kind` in the retry log: "retried" (it succeeded in the end), "exhausted", "failed_fast" (a
    class that is never retried), "refused" (no call was made), "probe_failed" (the single test call
    of a half-open circuit), "unknown" (it may have happened). In the versioning ledger: "began",
    "resumed", "halted", "quarantined", "escalated" (to the council), "reviewed" (a person decided),
    "masked" (a data set has this masking level from now on), "completed".

    >>> entry = LedgerEntry(kind="retried", pipeline_id="etl", run_id="r", stage="poll", attempts=3)
    >>> sealed([entry], RETRY_LOG, (), now=0.0)[0].sequence
    1
    """

    kind: RetryKind | VersioningKind
    pipeline_id: str
    run_id: str
    stage: str = ""
    sequence: Count = 0
    """The number within its run and ledger, from 1."""
    timestamp: str = ""
    attempts: Count = 0
    """Calls that were made; 0 if it was refused before the first."""
    max_attempts: Count = 0
    """Calls that the policy allows."""
    error_classes: tuple[str, ...] = ()
    """The class of each failure, or its HTTP status (`HTTP_503`), in order."""
    dataset_ids: tuple[str, ...] = ()
    care_labels: tuple[str, ...] = ()
    retryable: bool = False
    circuit_open: bool = False
    """Whether the circuit of the stage was open, or opened by this."""
    policy: str = ""
    """The name of the policy."""
    retry_policy: str = ""
    """The policy by its curve and jitter: `exp_full_jitter`."""
    call_id: str = ""
    """The `sequence` of the telemetry records of the call."""
    masking: Count = 0
    reason: str = ""
    by: str = ""
    """The operator, of what a person decided."""
    retry_log_length: Count = 0
    retry_log_head: str = ""
    """Of the retry log of this run, when this entry was made; the versioning ledger has it."""
    previous: str = ""
    hash: str = ""


class RunHead(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many entries a run has in a ledger, and the hash of its last."""

    pipeline_id: str
    run_id: str
    length: Count
    head: str


class Ledger(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ledger as its file holds it.

    >>> verify(ledger_of(RETRY_LOG, []))
    []
    """

    version: Literal[1] = 1
    ledger: Literal["pipeline_retry_log", "versioning_ledger"]
    kept_since: str = ""
    """Runs that ended before this moment are no longer kept; empty if all are."""
    runs: tuple[RunHead, ...] = ()
    seal: str = ""
    """The digest of `runs`."""
    entries: tuple[LedgerEntry, ...] = ()


class Flaw(Struct, frozen=True, kw_only=True):
    """What is wrong with a ledger: the index of the entry, or None for the whole, and the text.

    >>> Flaw(index=2, text="entry 3 was altered").index
    2
    """

    index: int | None
    text: str
    pipeline_id: str = ""
    run_id: str = ""


def genesis(ledger: str, pipeline_id: str, run_id: str) -> str:
    """What the first entry of a run has as `previous`.

    >>> genesis(RETRY_LOG, "etl", "r-1") == genesis(VERSIONING, "etl", "r-1")
    False
    """
    return _digest([ledger, pipeline_id, run_id])


def hash_of(entry: LedgerEntry) -> str:
    """The hash of an entry: over every field but the hash itself."""
    fields = asdict(entry)
    del fields["hash"]
    return _digest(fields)


def sealed(
    drafts: Iterable[LedgerEntry], ledger: str, chain: Sequence[LedgerEntry], now: float
) -> tuple[LedgerEntry, ...]:
    """The chain of a run with more entries: numbered, dated and chained to the last one."""
    found, at = list(chain), stamp(now)
    for draft in drafts:
        start = genesis(ledger, draft.pipeline_id, draft.run_id)
        entry = replace(
            draft,
            sequence=len(found) + 1,
            timestamp=at,
            previous=found[-1].hash if found else start,
        )
        found.append(replace(entry, hash=hash_of(entry)))
    return tuple(found)


def head_of(chain: Sequence[LedgerEntry]) -> str:
    """The hash of the last entry; empty if there is none."""
    return chain[-1].hash if chain else ""


def ledger_of(
    ledger: Literal["pipeline_retry_log", "versioning_ledger"],
    chains: Iterable[Sequence[LedgerEntry]],
    kept_since: str = "",
) -> Ledger:
    """The ledger of the chains of runs, in their order."""
    kept = [chain for chain in chains if chain]
    runs = tuple([_run_head(chain) for chain in kept])
    return Ledger(
        ledger=ledger,
        kept_since=kept_since,
        runs=runs,
        seal=seal_of(runs),
        entries=tuple([entry for chain in kept for entry in chain]),
    )


def seal_of(runs: Iterable[RunHead]) -> str:
    """The digest of the heads of all runs."""
    return _digest([asdict(each) for each in runs])


def chains_of(ledger: Ledger) -> dict[tuple[str, str], tuple[LedgerEntry, ...]]:
    """The entries by pipeline and run, in the order of the file."""
    found: dict[tuple[str, str], tuple[LedgerEntry, ...]] = {}
    for entry in ledger.entries:
        at = (entry.pipeline_id, entry.run_id)
        found[at] = (*found.get(at, ()), entry)
    return found


def merged(
    ledger: Ledger,
    chains: Iterable[Sequence[LedgerEntry]],
    dropped: Iterable[tuple[str, str]] = (),
    kept_since: str = "",
) -> Ledger:
    """The ledger with the chains of some runs as they are now; what was there stays.

    Args:
        ledger: what is there.
        chains: those of the runs that have changed.
        dropped: runs, by pipeline and id, that are no longer kept.
        kept_since: since when all runs are kept, if some are dropped.

    LedgerError if an entry that is there differs from that of the run.

    >>> one = sealed([LedgerEntry(kind="began", pipeline_id="a", run_id="r")], VERSIONING, (), 0.0)
    >>> len(merged(ledger_of(VERSIONING, []), [one]).entries)
    1
    """
    found = chains_of(ledger)
    for chain in [each for each in chains if each]:
        at = (chain[0].pipeline_id, chain[0].run_id)
        before = found.get(at, ())
        if before != tuple(chain[: len(before)]):
            index = ledger.entries.index(before[0])
            text = f"the entries of run {at[1]} of {at[0]} are not those of the store"
            raise Altered(index, text)
        found[at] = tuple(chain)
    gone = set(dropped)
    kept = [chain for at, chain in found.items() if at not in gone]
    return ledger_of(ledger.ledger, kept, max(kept_since, ledger.kept_since))


class Altered(Exception):
    """A ledger differs from what the store has: the index of the run's first entry, and why."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index
        self.text = text


def over_before(versioning: Ledger, moment: str) -> frozenset[tuple[str, str]]:
    """The runs that ended before a moment, by pipeline and id.

    >>> over_before(ledger_of(VERSIONING, []), "2026-01-01T00:00:00Z")
    frozenset()
    """
    return frozenset(
        at
        for at, chain in chains_of(versioning).items()
        if _is_end(chain[-1]) and sortable(chain[-1].timestamp) < sortable(moment)
    )


def _is_end(entry: LedgerEntry) -> bool:
    is_abandoned = entry.kind == "reviewed" and entry.reason.startswith("abandon")
    return entry.kind == "completed" or is_abandoned


def verify(ledger: Ledger) -> list[Flaw]:
    """What is wrong with a ledger: altered, missing, foreign or unchained entries.

    >>> draft = LedgerEntry(kind="began", pipeline_id="etl", run_id="r")
    >>> one = sealed([draft], VERSIONING, (), now=0.0)
    >>> verify(ledger_of(VERSIONING, [one]))
    []
    >>> verify(ledger_of(VERSIONING, [[replace(one[0], attempts=7)]]))[0].text
    'entry 1 of run r of etl was altered: its hash is not that of its content'
    """
    flaws = [] if ledger.seal == seal_of(ledger.runs) else [_whole("the list of runs was altered")]
    heads: dict[tuple[str, str], tuple[int, str]] = {}
    for index, entry in enumerate(ledger.entries):
        at = (entry.pipeline_id, entry.run_id)
        start = (0, genesis(ledger.ledger, *at))
        length, head = heads.get(at, start)
        text = _entry_flaw(entry, length, head)
        if text:
            flaws.append(_flaw(index, entry, text))
        heads[at] = (entry.sequence, entry.hash)
    return flaws + _head_flaws(ledger, heads)


def verify_together(retries: Ledger, versioning: Ledger) -> list[Flaw]:
    """What is wrong between the two: a retry log that is shorter, or another, than was recorded.

    >>> verify_together(ledger_of(RETRY_LOG, []), ledger_of(VERSIONING, []))
    []
    """
    chains, flaws = chains_of(retries), []
    for index, entry in enumerate(versioning.entries):
        chain = chains.get((entry.pipeline_id, entry.run_id), ())
        length = entry.retry_log_length
        if head_of(chain[:length]) != entry.retry_log_head or len(chain) < length:
            text = (
                f"entry {entry.sequence} of run {entry.run_id} of {entry.pipeline_id}: the retry"
                f" log had {length} entries then, and has {len(chain)} or others"
            )
            flaws.append(_flaw(index, entry, text))
    return flaws


def _entry_flaw(entry: LedgerEntry, length: int, head: str) -> str:
    name = f"entry {entry.sequence} of run {entry.run_id} of {entry.pipeline_id}"
    if entry.hash != hash_of(entry):
        return f"{name} was altered: its hash is not that of its content"
    if entry.sequence != length + 1:
        return f"{name} follows entry {length}: entries are missing, repeated or exchanged"
    if entry.previous != head:
        return f"{name} is not chained to the entry before it"
    return ""


def _head_flaws(ledger: Ledger, heads: dict[tuple[str, str], tuple[int, str]]) -> list[Flaw]:
    listed = {(each.pipeline_id, each.run_id): (each.length, each.head) for each in ledger.runs}
    flaws = []
    for at in dict.fromkeys([*listed, *heads]):
        wanted, found = listed.get(at, (0, "")), heads.get(at, (0, ""))
        if wanted != found:
            text = f"run {at[1]} of {at[0]} has {found[0]} entries, and {wanted[0]} are listed"
            if wanted[0] == found[0]:
                text = f"the last entry of run {at[1]} of {at[0]} is not the one that is listed"
            flaws.append(Flaw(index=None, text=text, pipeline_id=at[0], run_id=at[1]))
    return flaws


def _run_head(chain: Sequence[LedgerEntry]) -> RunHead:
    last = chain[-1]
    return RunHead(
        pipeline_id=last.pipeline_id, run_id=last.run_id, length=len(chain), head=last.hash
    )


def _flaw(index: int, entry: LedgerEntry, text: str) -> Flaw:
    return Flaw(index=index, text=text, pipeline_id=entry.pipeline_id, run_id=entry.run_id)


def _whole(text: str) -> Flaw:
    return Flaw(index=None, text=text)


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


ready(LedgerEntry)
ready(Ledger)
