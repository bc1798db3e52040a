"""The flow of a saga: the order of steps and compensations, and laws under a crash at every write.

The driver of these tests carries the effects out in memory, on the real reducer. What a saga must
come to is computed by a model that knows neither log nor generator.
"""

from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from mainstay.core.codec.outcome import Failed, encode_outcome, encode_value
from mainstay.core.saga.commands import Begin, Cancel, Claimed, Renew, Resolve, Take
from mainstay.core.saga.definition import Saga, SagaStep, outline_of
from mainstay.core.saga.flow import (
    AwaitStep,
    EmitSaga,
    End,
    Escalate,
    Outcome,
    Plan,
    RunSteps,
    UndoStep,
    Write,
    failure_of,
    saga_flow,
)
from mainstay.core.saga.progress import Entry, Mark, Progress
from mainstay.core.saga.record import reduce
from mainstay.core.saga.state import SagaState, decode, encode
from mainstay.core.saga.view import view_of
from mainstay.errors import (
    CallCancelled,
    DeadlineExceeded,
    OutcomeUnknown,
    StoredFailure,
)

RUNNING, COMPENSATING, SUCCEEDED, COMPENSATED, STUCK = SagaState
OK, FAIL, DOUBT = "ok", "fail", "doubt"


class Crash(Exception):
    """The process is gone."""


class World:
    """A saga, its record, and what its steps do; `crash` is the number of a write, and when."""

    def __init__(self, saga, script=None, crash=()):
        self.saga, self.script = saga, script or {}
        self.crashes = list(crash)
        self.value, self.now, self.lease = None, 0.0, saga.lease
        self.happened, self.events, self.items = [], [], []
        self.writes = self.epoch = 0
        self.group = []
        self.done_twice = []
        self.outbox = []

    def run(self):
        """From the beginning to the end, over as many processes as it takes."""
        for _ in range(50):
            try:
                return self.process()
            except Crash:
                self.now += self.lease
        raise AssertionError("the saga does not end")

    def process(self, *, is_late=False):
        self.epoch += 1
        owner = f"process {self.epoch}"
        saga, is_new = self.saga, self.value is None
        if is_new:
            command = Begin(
                owner, saga.name, saga.version, saga.shape, "f", encode_value(None),
                saga.groups[0], saga.lease, saga.deadline,
            )  # fmt: skip
        else:
            command = Take(owner, saga.shape, saga.lease)
        answer = self.write(command)
        if not isinstance(answer, Claimed):
            return answer
        flow = saga_flow(
            Plan(saga, "1", owner, 100), answer.record, answer.left, is_recovery=not is_new
        )
        answer = None
        while True:
            try:
                effect = flow.send(answer)
            except StopIteration as end:
                return end.value
            answer = self.perform(effect)

    def perform(self, effect):
        if isinstance(effect, Write):
            return self.write(effect.command, effect.messages)
        if isinstance(effect, RunSteps):
            self.group = [self.act(step) for step in effect.steps]
            return self.group.pop(0)
        if isinstance(effect, AwaitStep):
            return self.group.pop(0)
        if isinstance(effect, UndoStep):
            return self.undo(effect.step)
        if isinstance(effect, Escalate):
            self.items.append(effect.stuck)
            return f"item {len(self.items)}"
        assert isinstance(effect, EmitSaga)
        self.events.append(effect.event)
        return None

    def write(self, command, messages=()):
        number, self.writes = self.writes, self.writes + 1
        if (number, "before") in self.crashes:
            raise Crash
        self.now += 0.01
        change, answer = reduce(self.value, command, self.now)
        if change.value is not None and change.value != b"keep":
            self.value = change.value
            self.outbox += messages
        if (number, "after") in self.crashes:
            raise Crash
        return answer

    def act(self, step):
        name = self.saga.steps[step].name
        if (
            self.value
            and Progress(outline_of(self.saga.shape), decode(self.value).log).status.get(step)
            is Mark.STEP_DONE
        ):
            self.done_twice.append(name)
        self.happened.append(name)
        does = self.script.get(name, OK)
        if does == OK:
            return Outcome(step, value=name, messages=(name,))
        return Outcome(step, error=OSError(name), in_doubt=does == DOUBT)

    def undo(self, step):
        name = self.saga.steps[step].name
        self.happened.append(f"-{name}")
        fails = self.script.get(f"-{name}") == FAIL
        if fails:
            return Outcome(step, error=OSError(f"-{name}"))
        return Outcome(step, messages=(f"-{name}",))

    @property
    def record(self):
        return decode(self.value)

    @property
    def undone(self):
        return [each for each in self.happened if each.startswith("-")]


def saga_of(*parts, **options):
    """A saga of names: `a~` can be undone, `a!` is the pivot, a tuple is a group."""

    def made(name):
        bare = name.rstrip("~!?")
        return SagaStep(
            bare,
            print,
            print if "~" in name else None,
            pivot="!" in name,
            idempotency="unsafe" if "?" in name else "keyed",
        )

    return Saga("s", [made(p) if isinstance(p, str) else [*map(made, p)] for p in parts], **options)


# --- one after the other --------------------------------------------------------------------------


def test_three_steps_write_four_times():
    """The end of a step and the beginning of the next are one write."""
    world = World(saga_of("a~", "b~", "c"))
    assert world.run() == End(SUCCEEDED)
    assert world.writes == 4
    assert world.happened == ["a", "b", "c"]
    assert [event.event_type for event in world.events] == ["saga_ended"]


def test_compensation_in_reverse_order():
    """What is done is undone, the last first; the step that failed is not."""
    world = World(saga_of("a~", "b~", "c", "d~"), {"d": FAIL})
    end = world.run()
    assert end.state is COMPENSATED
    assert str(end.failure) == "d"
    assert world.happened == ["a", "b", "c", "d", "-b", "-a"]
    assert world.record.state is COMPENSATED
    assert str(failure_of(world.record)) == "d"
    kinds = [event.event_type for event in world.events]
    assert kinds == ["saga_step_failed", "saga_step_undone", "saga_step_undone", "saga_ended"]
    assert (world.events[0].completed, world.events[0].in_doubt) == (3, False)


def test_a_step_in_doubt_is_undone_first():
    """A step that failed and may have happened is undone, too."""
    world = World(saga_of("a~", "b~"), {"b": DOUBT})
    assert world.run().state is COMPENSATED
    assert world.undone == ["-b", "-a"]


def test_nothing_to_undo():
    """A saga whose first step fails is compensated with one write."""
    world = World(saga_of("a~", "b"), {"a": FAIL})
    assert world.run().state is COMPENSATED
    assert (world.undone, world.writes) == ([], 2)


def test_behind_the_pivot():
    """Behind the pivot there is no way back: a person decides, and the saga goes on from there."""
    world = World(saga_of("a~", "b!", "c"), {"c": FAIL})
    end = world.run()
    assert (end.state, end.step, end.item) == (STUCK, "c", "item 1")
    assert end.stuck.text == "step c failed behind the pivot: OSError: c"
    assert world.undone == []
    world.write(Resolve("retry", world.record.stuck.item, "t", "it is back"))
    world.script = {}
    assert world.process().state is SUCCEEDED
    assert world.happened == ["a", "b", "c", "c"]


@pytest.mark.parametrize(
    ("action", "state", "happened"),
    [
        ("skip", SUCCEEDED, ["a", "b", "c", "d"]),
        ("mark_done", SUCCEEDED, ["a", "b", "c", "d"]),
    ],
)
def test_a_step_behind_the_pivot_is_passed_over(action, state, happened):
    """A step that a person skips or marks done is not run, and the next one is."""
    world = World(saga_of("a~", "b!", "c", "d"), {"c": FAIL})
    world.run()
    world.write(Resolve(action, world.record.stuck.item, "t", "by hand"))
    assert world.process().state is state
    assert world.happened == happened


@pytest.mark.parametrize(
    ("action", "state", "happened"),
    [
        ("retry", SUCCEEDED, ["a", "b", "b", "c"]),
        ("skip", COMPENSATED, ["a", "b", "-a"]),
        ("mark_done", SUCCEEDED, ["a", "b", "c"]),
    ],
)
def test_a_pivot_in_doubt(action, state, happened):
    """Whether a pivot in doubt has happened is a person's to decide: forward or back."""
    world = World(saga_of("a~", "b!", "c"), {"b": DOUBT})
    assert world.run().stuck.phase == "pivot"
    world.write(Resolve(action, world.record.stuck.item, "t", "looked"))
    world.script = {}
    assert world.process().state is state
    assert world.happened == happened


def test_a_pivot_that_fails():
    """A pivot that has certainly not happened leaves the way back open."""
    world = World(saga_of("a~", "b!"), {"b": FAIL})
    assert world.run().state is COMPENSATED
    assert world.undone == ["-a"]


@pytest.mark.parametrize(
    ("action", "undone"),
    [
        ("retry", ["-b", "-b", "-a"]),
        ("skip", ["-b", "-a"]),
        ("mark_done", ["-b", "-a"]),
    ],
)
def test_a_compensation_that_fails(action, undone):
    """The others wait, since their order was promised; a person decides, and they follow."""
    world = World(saga_of("a~", "b~", "c"), {"c": FAIL, "-b": FAIL})
    end = world.run()
    assert (end.state, end.step, str(end.error), str(end.failure)) == (STUCK, "b", "-b", "c")
    assert world.undone == ["-b"]
    world.write(Resolve(action, world.record.stuck.item, "t", "by hand"))
    world.script = {}
    end = world.process()
    assert (end.state, str(end.failure)) == (COMPENSATED, "c")
    assert world.undone == undone


def test_group():
    """Each end of a group is written when it comes; it is undone in reverse order."""
    world = World(saga_of("a~", ("b~", "c~", "d~"), "e"), {"e": FAIL})
    assert world.run().state is COMPENSATED
    assert world.undone == ["-d", "-c", "-b", "-a"]


def test_a_group_in_which_one_fails():
    """The others of a group end first; those that may have happened are undone."""
    world = World(saga_of(("a~", "b~", "c~", "d~")), {"b": FAIL, "c": DOUBT})
    assert world.run().state is COMPENSATED
    assert world.undone == ["-c", "-d", "-a"]


def test_two_steps_of_a_group_fail_behind_the_pivot():
    """Each is a matter of its own: once one is decided, the other is raised."""
    world = World(saga_of("p!", ("a", "b")), {"a": FAIL, "b": FAIL})
    assert world.run().step == "a"
    world.write(Resolve("skip", world.record.stuck.item, "t", "x"))
    assert world.process().step == "b"
    world.write(Resolve("skip", world.record.stuck.item, "u", "x"))
    assert world.process().state is SUCCEEDED
    assert world.happened == ["p", "a", "b"]


def test_cancelled():
    """A cancelled saga begins no further step, and undoes what is done."""

    class Cancelled(World):
        def act(self, step):
            if step == 1:
                self.value = reduce(self.value, Cancel("a mistake"), self.now)[0].value
            return super().act(step)

    world = Cancelled(saga_of("a~", "b~", "c~"))
    end = world.run()
    assert isinstance(end.failure, CallCancelled)
    assert end.failure.__notes__ == ["a mistake"]
    assert world.happened == ["a", "b", "-b", "-a"]
    last = Cancelled(saga_of("a~", "b~"))
    assert isinstance(last.run().failure, CallCancelled)
    assert last.happened == ["a", "b", "-b", "-a"]


def test_deadline():
    """After its deadline a saga begins no step before the pivot."""

    class Slow(World):
        def act(self, step):
            self.now += 3.0
            return super().act(step)

    world = Slow(saga_of("a~", "b~", "c~", deadline=5.0))
    end = world.run()
    assert isinstance(end.failure, DeadlineExceeded)
    assert world.happened == ["a", "b", "-b", "-a"]
    assert Slow(saga_of("a~", "b!", "c", "d", deadline=5.0)).run().state is SUCCEEDED


def test_the_lease_is_lost():
    """What another process has taken over is not written any more."""

    class Late(World):
        def act(self, step):
            if step == 1 and self.epoch == 1:
                self.now += 40.0
                self.epoch += 1
                other = Take("another", self.saga.shape, 10.0)
                self.value = reduce(self.value, other, self.now)[0].value
            return super().act(step)

    world = Late(saga_of("a~", "b~", "c"))
    assert world.run() == End(None)
    assert world.record.owner == "another"
    assert "c" not in world.happened


def test_the_record_is_gone():
    """What has no record any more is not begun again: no step begins, and nothing is undone."""

    class Gone(World):
        def act(self, step):
            if step == 1:
                self.value = None
            return super().act(step)

    world = Gone(saga_of("a~", "b~", "c"))
    assert world.run() == End(None)
    assert world.value is None
    assert world.happened == ["a", "b"]


def test_results_that_cannot_be_kept():
    """A result that is too large, or is no data, leaves a note in its place."""

    class Big(World):
        def act(self, step):
            return Outcome(step, value="x" * 200 if step == 0 else object())

    world = Big(saga_of("a", "b"))
    assert world.run().state is SUCCEEDED
    notes = [entry.note for entry in world.record.log if entry.what is Mark.STEP_DONE]
    assert notes[0] == "it has 218 bytes, more than 100"
    assert "object" in notes[1]


def test_failures_in_the_log():
    """A huge failure is shortened, and a cancellation is recorded as one."""

    class Failing(World):
        def act(self, step):
            return Outcome(step, error=self.script["error"])

    world = Failing(saga_of("a"), {"error": ValueError("x" * 100_000)})
    world.run()
    assert len(world.value) < 10_000
    assert isinstance(failure_of(world.record), StoredFailure)
    world = Failing(saga_of("a"), {"error": KeyboardInterrupt()})
    world.run()
    assert isinstance(failure_of(world.record), CallCancelled)
    assert failure_of(decode(World(saga_of("a")).run() and fresh())) is None


def fresh():
    return reduce(None, Begin("me", "s", 1, "a", "f", b"null", (0,), 10.0), 0.0)[0].value


def test_a_failure_that_is_no_failure():
    """A record that holds a result in place of a failure has none."""
    odd = replace(decode(fresh()), failure=Raw(encode_value(5)))
    assert failure_of(decode(encode(odd))) is None
    own = replace(odd, failure=Raw(encode_outcome(Failed(OSError("x")))))
    assert isinstance(failure_of(decode(encode(own))), OSError)


# --- recovery -------------------------------------------------------------------------------------


def test_recovery_runs_the_step_again_that_has_no_outcome():
    """After a crash in a step it runs again, with the same key; what is done does not."""
    world = World(saga_of("a~", "b~", "c"), crash=[(2, "before")])
    assert world.run().state is SUCCEEDED
    assert world.happened == ["a", "b", "b", "c"]
    assert world.record.recoveries == 1
    assert world.events[0].event_type == "saga_recovered"


def test_an_unsafe_step_does_not_run_again():
    """Its outcome is unknown: before the pivot the saga goes back, and undoes it."""
    world = World(saga_of("a~", "b~?", "c"), crash=[(2, "before")])
    end = world.run()
    assert isinstance(end.failure, OutcomeUnknown)
    assert world.happened == ["a", "b", "-b", "-a"]


def test_an_unsafe_step_behind_the_pivot():
    """Behind the pivot a person decides."""
    world = World(saga_of("a!", "b?"), crash=[(2, "before")])
    assert world.run().stuck.phase == "forward"


def test_a_step_that_kills_its_processes():
    """After too many recoveries without progress the step counts as failed, in doubt."""
    crash = [(number, "before") for number in (1, 3, 5, 7)]
    world = World(saga_of("a~", max_recoveries=2), crash=crash)
    assert world.run().state is COMPENSATED
    assert world.happened == ["a", "a", "a", "-a"]


def test_a_compensation_that_kills_its_processes():
    """After too many recoveries without progress a person decides."""
    crash = [(number, "before") for number in (3, 5, 7, 9)]
    world = World(saga_of("a~", "b", max_recoveries=2), {"b": FAIL}, crash)
    end = world.run()
    assert (end.state, end.stuck.phase) == (STUCK, "undo")
    assert end.stuck.text == "the compensation of step a failed: its processes ended in it"


def test_cancelled_while_no_process_runs_it():
    """A saga that is cancelled after a crash undoes the step that has no outcome."""
    world = World(saga_of("a~", "b~"), crash=[(2, "before")])
    with pytest.raises(Crash):
        world.process()
    world.now += world.lease
    world.write(Cancel("a mistake"))
    assert world.process().state is COMPENSATED
    assert world.undone == ["-b", "-a"]


def test_renewed_meanwhile():
    """A lease that is renewed keeps others away."""
    world = World(saga_of("a"), crash=[(1, "before")])
    with pytest.raises(Crash):
        world.process()
    world.write(Renew("process 1", 1, 10.0))
    assert world.process().retry_after > 0.0


# --- laws -----------------------------------------------------------------------------------------

NAMES = "abcdefgh"


@st.composite
def worlds(draw):
    """Shapes, failures, and a crash at some writes."""
    names = list(NAMES[: draw(st.integers(1, 6))])
    pivot = draw(st.sampled_from([None, *names]))
    parts, rest = [], [name + "~" * draw(st.booleans()) + "!" * (name == pivot) for name in names]
    while rest:
        size = 1 if "!" in rest[0] else draw(st.integers(1, 3))
        group = [rest.pop(0)]
        while rest and len(group) < size and "!" not in rest[0]:
            group.append(rest.pop(0))
        parts.append(group[0] if len(group) == 1 else tuple(group))
    script = {name: draw(st.sampled_from([OK, OK, OK, FAIL, DOUBT])) for name in names}
    script |= {f"-{name}": draw(st.sampled_from([OK, OK, OK, FAIL])) for name in names}
    crash = draw(
        st.lists(st.tuples(st.integers(0, 25), st.sampled_from(["before", "after"])), max_size=3)
    )
    return parts, script, crash


def model(parts, script):
    """What a saga must come to: its state, and what is undone, in order."""
    done, is_past = [], False
    for part in parts:
        group = [part] if isinstance(part, str) else list(part)
        bare = {name: name.rstrip("~!") for name in group}
        done += [name for name in group if script[bare[name]] == OK]
        failed = [name for name in group if script[bare[name]] != OK]
        doubtful = [name for name in failed if script[bare[name]] == DOUBT]
        if failed and (is_past or any("!" in name for name in doubtful)):
            return STUCK, []
        if failed:
            undone = []
            for name in [*sorted(doubtful, reverse=True), *reversed(done)]:
                if "~" not in name:
                    continue
                undone.append("-" + name.rstrip("~!"))
                if script[undone[-1]] == FAIL:
                    return STUCK, undone
            return COMPENSATED, undone
        is_past = is_past or any("!" in name for name in group)
    return SUCCEEDED, []


def without_an_end(parts, script):
    """The compensations of failed steps of groups, whose ends a crash may have kept from the log.

    If another step of the group has failed and that was written, they do not run again.
    """
    groups = [part for part in parts if isinstance(part, tuple)]
    names = [name for group in groups for name in group if "~" in name]
    return {"-" + name.rstrip("~") for name in names if script[name.rstrip("~")] == FAIL}


@settings(max_examples=150, deadline=None)
@example(([("a", "b", "c~")], {"a": OK, "b": FAIL, "c": FAIL, "-c": OK}, [(2, "after")]))
@example(([("a", "b", "c~")], {"a": OK, "b": FAIL, "c": FAIL, "-c": FAIL}, [(2, "after")]))
@given(worlds())
def test_every_saga_ends_as_the_model_has_it(case):
    """Whatever the shape, the failures and the crashes: state, order of undoing, nothing twice."""
    parts, script, crash = case
    world = World(saga_of(*parts), script, crash)
    end = world.run()
    state, undone = model(parts, script)
    seen = list(dict.fromkeys(world.undone))
    unknown = without_an_end(parts, script) & set(seen) if crash else set()
    if any(script[name] == FAIL for name in unknown):
        state = STUCK
    if isinstance(end, End):  # or the crash was after the last write, and nothing is left to do
        assert end.state is state
    assert world.record.state is state
    if crash and any(isinstance(part, tuple) for part in parts):
        # A step of a group whose process died has no end: it is undone with those in doubt. And a
        # compensation that fails keeps those behind it waiting.
        assert set(seen) == set(undone) | unknown or state is STUCK
    else:
        assert seen == undone
    assert world.done_twice == []
    assert world.outbox == logged(world)
    times = {name: world.happened.count(name) for name in world.happened}
    assert all(count <= 1 + len(crash) for count in times.values())
    if not crash:
        assert max(times.values()) == 1
        assert len(world.items) == (state is STUCK)
    view = view_of("s/1", world.record, world.now)
    assert view.state == state.value
    assert len(view.steps) == len(world.saga.steps)


def logged(world):
    """What the steps and compensations emit whose end is in the log, in its order."""
    marks = {Mark.STEP_DONE: "", Mark.UNDO_DONE: "-"}
    ends = [entry for entry in world.record.log if entry.what in marks]
    return [marks[entry.what] + world.saga.steps[entry.step].name for entry in ends]


@settings(max_examples=80, deadline=None)
@given(worlds(), st.sampled_from(["retry", "skip", "mark_done"]))
def test_a_person_brings_every_stuck_saga_to_its_end(case, action):
    """With a decision for each item, and failures that are repaired, no saga stays stuck."""
    parts, script, crash = case
    world = World(saga_of(*parts), script, crash)
    world.run()
    for number in range(30):
        record = world.record
        if record.state.is_ended:
            break
        if record.state is STUCK:
            world.script = {}
            with suppress(Crash):
                world.write(Resolve(action, record.stuck.item, f"token {number}", "by hand"))
        else:
            world.now += world.lease
            world.run()
    assert world.record.state.is_ended
    is_back = world.record.state is COMPENSATED
    undoable = {step.name for step in world.saga.steps if step.compensate is not None}
    status = {step.name: step.status for step in view_of("s/1", world.record).steps}
    for name, shown in status.items():
        if is_back and name in undoable:
            assert shown in ("pending", "failed", "undo_done", "undo_skipped")
        if not is_back:
            assert shown in ("done", "skipped")


def test_entries_without_a_step():
    """An entry of a person's about the whole saga changes the status of no step."""
    progress = Progress(outline_of("a"), [Entry(Mark.ENDED, -1), Entry(Mark.STEP_RETRIED, -1)])
    assert progress.status == {}
