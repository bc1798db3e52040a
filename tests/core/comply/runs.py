"""Runs of pipelines as the record formats hold them, generated from a seed: for `comply`.

Each world has some runs of one pipeline, with what they leave behind: telemetry with its totals,
the records of the store with both chains, and the audit events. Everything is made by the code that
makes the real ones: the reducer of runs, and the sums of telemetry.
"""

import random
from dataclasses import dataclass, field

from msgspec.structs import replace

from mainstay.core.base.timestamps import stamp
from mainstay.core.circuit.events import CircuitStateChanged
from mainstay.core.pipeline.commands import Append, Begin, Review, Take
from mainstay.core.pipeline.ledger import RETRY_LOG, VERSIONING, LedgerEntry, ledger_of
from mainstay.core.pipeline.record import reduce
from mainstay.core.pipeline.state import HALTED, Halt, Quarantine, StageRecord, decode
from mainstay.core.retry.events import (
    AttemptFailed,
    CallFailed,
    CallRefused,
    CallSucceeded,
    RetryAttempt,
    RetryExhausted,
)
from mainstay.core.telemetry.record import Telemetry, first_try, merged, summed, total_of

PIPELINE = "etl_v1.2"
COOLDOWN = 300.0
TRANSIENT = ("TimeoutError", "HTTP_503", "neo4j.exceptions.TransientError")
FORBIDDEN = (
    "mainstay.errors.SchemaValidationError",
    "mainstay.errors.GovernanceViolation",
    "mainstay.errors.LineageMismatch",
    "jsonschema.exceptions.ValidationError",
)


@dataclass
class World:
    """What some runs leave behind."""

    telemetry: Telemetry
    runs: list
    events: list
    """Pairs of writer and event."""

    @property
    def retry_log(self):
        return ledger_of(RETRY_LOG, [run.retries for run in self.runs])

    @property
    def versioning(self):
        return ledger_of(VERSIONING, [run.versions for run in self.runs])


@dataclass
class Circuit:
    """The circuit of one stage."""

    name: str
    limit: int
    failures: int = 0
    opened: float | None = None
    is_probing: bool = False


@dataclass
class Maker:
    """Plays runs on a clock of its own."""

    dice: random.Random
    now: float = 1_790_000_000.0
    records: list = field(default_factory=list)
    events: list = field(default_factory=list)
    circuits: dict = field(default_factory=dict)

    def wait(self, seconds):
        self.now += seconds

    def emit(self, kind, stage, **fields):
        operation = f"{PIPELINE}.{stage}"
        self.events.append(("w-1", kind(operation=operation, timestamp=stamp(self.now), **fields)))

    def add(self, stage, **fields):
        record = replace(first_try(PIPELINE, stage), timestamp=stamp(self.now), **fields)
        self.records.append(replace(record, policy="doc", retry_policy="exp_full_jitter"))

    def change(self, circuit, stage, state):
        before = "open" if circuit.opened is not None else "closed"
        before = "half_open" if circuit.is_probing else before
        circuit.opened = self.now if state == "open" else None
        circuit.is_probing = state == "half_open"
        if state == "closed":
            circuit.failures = 0
        self.emit(CircuitStateChanged, stage, from_state=before, to_state=state)

    def is_admitted(self, circuit, stage):
        if circuit.opened is None:
            return True
        if self.now - circuit.opened < COOLDOWN:
            return False
        self.change(circuit, stage, "half_open")
        return True

    def call(self, stage, fate):
        """One call of a stage: its telemetry and events, and the draft of its ledger entry."""
        limit = self.dice.choice((3, 4, 9))
        circuit = self.circuits.setdefault(stage, Circuit(stage, limit))
        if not self.is_admitted(circuit, stage):
            self.emit(CallRefused, stage, by="mainstay.errors.CircuitOpenError")
            self.add(stage, attempt=0, outcome="failure", error_class="CircuitOpenError",
                     circuit_open=True)  # fmt: skip
            return draft("refused", stage, circuit_open=True)
        is_probe = circuit.is_probing
        failures = {"quick": 0, "retried": self.dice.randint(1, 4), "exhausted": 5, "fast": 1}[fate]
        if fate == "fast":
            failures = self.dice.randint(1, 3)
        call_id, classes = f"{self.dice.getrandbits(64):x}", []
        for number in range(1, failures + 1):
            self.wait(self.dice.uniform(0.001, 2.0))
            is_fatal = fate == "fast" and number == failures
            classes.append(self.dice.choice(FORBIDDEN if is_fatal else TRANSIENT))
            circuit.failures += not is_fatal
            if circuit.is_probing and is_fatal:
                self.change(circuit, stage, "closed")
            elif circuit.is_probing or (circuit.failures >= circuit.limit and not circuit.opened):
                self.change(circuit, stage, "open")
            is_open = circuit.opened is not None
            failed = {"attempt": number, "outcome": "failure", "error_class": classes[-1],
                      "retryable": not is_fatal, "circuit_open": is_open,
                      "sequence": call_id}  # fmt: skip
            self.emit(AttemptFailed, stage, call_id=call_id, attempt_number=number, max_attempts=5,
                      exception_type=classes[-1], retryable=not is_fatal,
                      attempt_seconds=0.001)  # fmt: skip
            if is_fatal or number == 5:
                self.add(stage, **failed)
                end = CallFailed if is_fatal else RetryExhausted
                self.emit(end, stage, call_id=call_id, total_attempts=number,
                          final_exception_type=classes[-1])  # fmt: skip
                kind = "failed_fast" if is_fatal else "exhausted"
                break
            delay = self.dice.uniform(0.0, 30.0)
            self.add(stage, **failed, delay_ms=delay * 1000.0, is_final=False)
            self.emit(RetryAttempt, stage, call_id=call_id, attempt_number=number, max_attempts=5,
                      delay_seconds=delay, exception_type=classes[-1])  # fmt: skip
            self.wait(delay)
            if not self.is_admitted(circuit, stage):
                self.add(stage, **(failed | {"circuit_open": True}))
                self.emit(RetryExhausted, stage, call_id=call_id, total_attempts=number,
                          final_exception_type=classes[-1], reason="circuit open")  # fmt: skip
                kind = "probe_failed" if is_probe else "exhausted"
                break
        else:
            self.wait(self.dice.uniform(0.001, 2.0))
            if circuit.is_probing:
                self.change(circuit, stage, "closed")
            circuit.failures = 0
            if not failures:
                self.add(stage)
                return None
            self.add(stage, attempt=failures + 1, sequence=call_id)
            self.emit(CallSucceeded, stage, call_id=call_id, total_attempts=failures + 1)
            kind = "retried"
        made = failures + 1 if kind == "retried" else len(classes)
        return draft(kind, stage, attempts=made, max_attempts=5, error_classes=tuple(classes),
                     call_id=call_id, retryable=kind != "failed_fast", policy="doc",
                     circuit_open=circuit.opened is not None)  # fmt: skip

    def run(self, name):
        """One run, to its end or to where it stays halted."""
        stages = [f"s{number}" for number in range(self.dice.randint(1, 4))]
        shape = ";".join(stages)
        begin = Begin("me", PIPELINE, name, shape, "f", b"null", (stages[0],), lease=30.0)
        value = reduce(None, begin, self.now)[0].value
        for _ in range(4):
            value = self.play(value, stages)
            record = decode(value)
            if record.state is not HALTED or self.dice.random() < 0.4:
                break
            value = self.resumed(record, value, shape)
            if value is None:
                break
        return decode(value) if value is not None else record

    def play(self, value, stages):
        record = decode(value)
        todo = [name for name in stages if record.stages.get(name, NONE).status != "done"]
        for index, name in enumerate(todo):  # the number of the write, too
            fate = self.dice.choices(("quick", "retried", "exhausted", "fast"), (5, 3, 1, 1))[0]
            entry = self.call(name, fate)
            is_done = entry is None or entry.kind == "retried"
            following = todo[index + 1] if is_done and index + 1 < len(todo) else ""
            command = appended(record, name, entry, index, following, is_done)
            value = reduce(value, command, self.now)[0].value
            if not is_done:
                return value
        return value

    def resumed(self, record, value, shape):
        self.wait(self.dice.choice((1.0, 1000.0)))
        if record.is_held:
            review = Review("release", record.halt.occasion, f"t{self.now}", "ann", "fine")
            value = reduce(value, review, self.now)[0].value
        self.wait(1.0)
        return reduce(value, Take("me", shape, 30.0, most=99), self.now)[0].value


NONE = StageRecord("none")


def draft(kind, stage, **fields):
    return LedgerEntry(kind=kind, pipeline_id="", run_id="", stage=stage, **fields)


def appended(record, name, entry, number, following, is_done):
    own = {"pipeline_id": record.pipeline, "run_id": record.run}
    attempts = 1 if entry is None else entry.attempts
    became = StageRecord("done" if is_done else "failed", attempts=attempts)
    command = Append(record.owner, record.epoch, number, 30.0, stage=name, became=became,
                     starts=(following,) if following else (),
                     is_over=is_done and not following)  # fmt: skip
    if entry is not None:
        command = replace(command, retries=(replace(entry, **own),))
    kinds = []
    if is_done:
        kinds = [] if following else ["completed"]
    else:
        is_fast = entry.kind == "failed_fast"
        kinds = ["halted", *(["quarantined"] if is_fast else [])]
        held = Quarantine(name, ("d-1",), "X", "x") if is_fast else None
        cause = {"failed_fast": "fail_fast", "refused": "refused"}.get(entry.kind, "exhausted")
        command = replace(command, halt=Halt(name, cause, "X", "x"), quarantine=held)
    versions = tuple(LedgerEntry(kind=kind, stage=name, **own) for kind in kinds)
    return replace(command, versions=versions)


def telemetry_of(records, keep=1000):
    """The telemetry of records, as the sink adds it up."""
    new = Telemetry(totals=summed([total_of(each) for each in records]), records=list(records))
    return merged(Telemetry(), new, keep)


def world(seed, runs=None):
    """Some runs, the same for the same seed."""
    maker = Maker(random.Random(seed))
    count = runs or maker.dice.randint(1, 3)
    made = []
    for number in range(count):
        made.append(maker.run(f"r-{number}"))
        maker.wait(maker.dice.choice((1.0, 1000.0)))
    return World(telemetry_of(maker.records), made, maker.events)
