"""The reducer of a saga's record: every command, and each of them twice."""

import pytest
from msgspec import Raw
from msgspec.structs import replace

from mainstay.core.base.change import KEEP
from mainstay.core.base.clock_jumps import ClockView, Jump
from mainstay.core.codec.outcome import encode_value
from mainstay.core.saga.commands import (
    Append,
    Begin,
    Busy,
    Cancel,
    Claimed,
    Done,
    Found,
    Lost,
    Mismatch,
    Refusal,
    Release,
    Renew,
    Resolve,
    Take,
    Written,
)
from mainstay.core.saga.progress import Entry, Mark
from mainstay.core.saga.record import DEADLINE, GONE, lease_of, reduce
from mainstay.core.saga.state import SagaState, Stuck, decode, encode
from mainstay.errors import StoredValueError

RUNNING, COMPENSATING, SUCCEEDED, COMPENSATED, STUCK = SagaState
LEASE = 10.0
SHAPE = "a~ > b~! > c"
DONE = Entry(Mark.STEP_DONE, 0, data=Raw(encode_value(5)))


def begin(owner="me", fingerprint="f", **options):
    return Begin(owner, "transfer", 1, SHAPE, fingerprint, b"null", (0,), LEASE, **options)


def append(number=0, entries=(), owner="me", epoch=1, **options):
    return Append(owner, epoch, number, entries, LEASE, **options)


def begun(now=0.0, **options):
    change, answer = reduce(None, begin(**options), now)
    assert isinstance(answer, Claimed)
    return change.value


def step(value, command, now=1.0, view=None):
    """The record after a command, and the answer, whose record is the one that was written."""
    change, answer = reduce(value, command, now, *([view] if view else []))
    left = value if change is KEEP else change.value
    if isinstance(answer, Claimed | Written):
        assert answer.record == decode(left)
        assert encode(answer.record) == left
    return left, answer


def written(answer):
    """What a write was answered with, besides the record."""
    assert isinstance(answer, Written)
    return answer.left, answer.stop


def stuck(phase="undo", number=0, state=COMPENSATING):
    value, answer = step(
        begun(), append(stuck=Stuck(phase, number, "it failed", state), state=STUCK)
    )
    assert isinstance(answer, Written)
    return value


def test_begin_writes_the_first_steps():
    """The first steps are in the log before they run, and the record has the whole request."""
    change, answer = reduce(None, begin(deadline=5.0, tenant="t"), 3.0)
    record = decode(change.value)
    assert answer == Claimed(record, 5.0)
    assert [(e.what, e.step, e.at) for e in record.log] == [(Mark.STEP_STARTED, 0, 3.0)]
    assert (record.state, record.epoch, record.lease_until, record.until) == (RUNNING, 1, 13.0, 8.0)
    assert record.tenant == "t"
    assert change.expires is None


def test_begin_twice():
    """The same claim again has the same answer; another caller waits, or is refused."""
    value = begun()
    assert isinstance(step(value, begin())[1], Claimed)
    assert step(value, begin("you"), 4.0)[1] == Busy(6.0)
    assert step(value, begin("you", "other"))[1] == Mismatch()
    assert isinstance(step(value, begin("you"), 11.0)[1], Found)


def test_begin_after_the_end():
    """A saga that has ended is found until its record has expired; then the id is new."""
    value = begun(keep=100.0)
    change, _ = reduce(value, append(entries=(DONE,), state=SUCCEEDED), 2.0)
    assert change.expires == 102.0
    assert step(change.value, begin("you"), 101.0)[1].record.state is SUCCEEDED
    assert isinstance(step(change.value, begin("you"), 102.0)[1], Claimed)
    forever, _ = step(begun(), append(state=SUCCEEDED))
    assert isinstance(step(forever, begin("you"), 1e9)[1], Found)


def test_append_and_the_next_start_are_one_write():
    """The end of a step and the beginning of the next have one moment, and renew the lease."""
    value, answer = step(begun(), append(entries=(DONE,), starts=(1,)), 4.0)
    record = decode(value)
    assert written(answer) == (None, "")
    assert [e.what.value for e in record.log] == ["started", "done", "started"]
    assert record.log[-1].at == 4.0
    assert record.lease_until == 14.0


def test_append_twice():
    """A write whose reply was lost changes nothing, and has the same answer."""
    command = append(entries=(DONE,), starts=(1,))
    value, answer = step(begun(), command)
    assert step(value, command) == (value, answer)
    ended = append(1, state=SUCCEEDED)
    value, answer = step(value, ended)
    assert step(value, ended) == (value, answer)


def test_append_of_another():
    """What carries another owner, epoch or number is refused."""
    value = begun()
    for command in (append(owner="you"), append(epoch=2), append(number=3)):
        assert step(value, command) == (value, Lost())
    assert reduce(None, append(), 1.0) == (KEEP, GONE)
    ended, _ = step(value, append(state=SUCCEEDED))
    assert step(ended, append(1)) == (ended, Lost())


def test_cancel_stops_before_the_next_step():
    """A cancelled saga records what is done, and begins nothing."""
    value, answer = step(begun(), Cancel("a mistake"))
    assert answer == Done()
    assert step(value, Cancel("again"))[1] == Done()
    command = append(entries=(DONE,), starts=(1,))
    value, answer = step(value, command)
    assert written(answer) == (None, "a mistake")
    assert [e.what.value for e in decode(value).log] == ["started", "done"]
    assert step(value, command) == (value, answer)
    behind = append(1, starts=(1,), stops=False)
    assert step(value, behind)[1].stop == ""


def test_deadline_stops_before_the_next_step():
    """After its deadline a saga begins no step; the answer has the seconds that are left."""
    value = begun(deadline=5.0)
    assert written(step(value, append(starts=(1,)), 3.0)[1]) == (2.0, "")
    assert written(step(value, append(starts=(1,)), 5.0)[1]) == (0.0, DEADLINE)
    late, _ = step(value, append(starts=(1,)), 6.0)
    assert written(step(late, append(starts=(1,)), 7.0)[1]) == (0.0, DEADLINE)


def test_cancel_is_refused():
    """Nothing is cancelled that has ended, is on its way back, or is past its pivot."""
    ended, _ = step(begun(), append(state=SUCCEEDED))
    assert step(ended, Cancel("x"))[1] == Refusal("it is succeeded")
    back, _ = step(begun(), append(state=COMPENSATING))
    assert step(back, Cancel("x"))[1] == Refusal("it is compensating")
    past, _ = step(begun(), append(entries=(replace(DONE, step=1),)))
    assert "pivot" in step(past, Cancel("x"))[1].why
    begun_pivot, _ = step(begun(), append(entries=(DONE,), starts=(1,)))
    assert "its pivot was begun" in step(begun_pivot, Cancel("x"))[1].why
    assert reduce(None, Cancel("x"), 1.0)[1] == GONE


def test_cancel_in_the_last_step():
    """A saga that was cancelled does not succeed; the answer to the same write is the same."""
    last = append(entries=(DONE,), state=SUCCEEDED)
    value, _ = step(begun(), Cancel("a mistake"))
    value, answer = step(value, last)
    assert written(answer) == (None, "a mistake")
    assert (decode(value).state, decode(value).owner) == (RUNNING, "me")
    assert step(value, last) == (value, answer)
    value, answer = step(begun(deadline=5.0), last, 9.0)
    assert (answer.stop, decode(value).state) == ("", SUCCEEDED)


def test_take_after_the_lease():
    """A saga is taken over once its lease is over, with the next epoch; that is counted."""
    value = begun()
    take = Take("you", SHAPE, LEASE)
    assert step(value, take, 9.0)[1] == Busy(1.0)
    value, answer = step(value, take, 10.0)
    record = answer.record
    assert (record.owner, record.epoch, record.recoveries, record.stalled) == ("you", 2, 1, 1)
    assert step(value, take, 11.0)[1].record == record
    assert step(value, append())[1] == Lost()
    value, _ = step(value, append(0, (DONE,), "you", 2), 12.0)
    assert decode(value).stalled == 0


def test_take_of_what_was_released():
    """A lease that is given up is free at once; that is counted, unless only the store failed."""
    for is_counted in (True, False):
        value, answer = step(begun(), Release("me", 1, is_counted))
        assert answer == Done()
        taken = step(value, Take("you", SHAPE, LEASE))[1].record
        assert (taken.recoveries, taken.stalled) == (is_counted, is_counted)
        assert step(value, Renew("me", 1, LEASE))[1] == Lost()
        assert step(value, Release("me", 1))[1] == Lost()


def test_take_of_what_has_ended():
    """What has ended is not taken over."""
    value, _ = step(begun(), append(state=COMPENSATED))
    assert step(value, Take("you", SHAPE, LEASE), 50.0)[1].record.state is COMPENSATED


def test_take_with_another_definition():
    """A definition that has changed leaves the saga stuck, with the difference in words."""
    value, answer = step(begun(), Take("you", "a~ > z", LEASE), 50.0)
    record = decode(value)
    assert answer == Found(record)
    assert record.state is STUCK
    assert record.stuck.text == (
        "version 1 of the definition has changed since the saga was begun:"
        " part 2 was 'b~!' and is 'z'"
    )


def test_renew():
    """A lease is renewed by its owner alone, while the saga runs."""
    value, answer = step(begun(), Renew("me", 1, LEASE), 5.0)
    assert answer == Done()
    assert decode(value).lease_until == 15.0
    assert step(value, Renew("you", 1, LEASE))[1] == Lost()
    ended, _ = step(value, append(state=SUCCEEDED))
    assert step(ended, Renew("me", 1, LEASE))[1] == Lost()


@pytest.mark.parametrize(
    ("phase", "action", "mark", "state"),
    [
        ("undo", "retry", Mark.UNDO_RETRIED, COMPENSATING),
        ("undo", "skip", Mark.UNDO_SKIPPED, COMPENSATING),
        ("undo", "mark_done", Mark.UNDO_DONE, COMPENSATING),
        ("forward", "retry", Mark.STEP_RETRIED, RUNNING),
        ("forward", "skip", Mark.STEP_SKIPPED, RUNNING),
        ("forward", "mark_done", Mark.STEP_DONE, RUNNING),
        ("pivot", "retry", Mark.STEP_RETRIED, RUNNING),
        ("pivot", "skip", Mark.STEP_FAILED, COMPENSATING),
        ("pivot", "mark_done", Mark.STEP_DONE, RUNNING),
        ("definition", "retry", Mark.STEP_RETRIED, RUNNING),
        ("definition", "skip", Mark.ENDED, COMPENSATED),
        ("definition", "mark_done", Mark.ENDED, SUCCEEDED),
    ],
)
def test_a_person_decides(phase, action, mark, state):
    """Each decision goes into the log with its reason, and lets the saga go on."""
    value = stuck(phase, state=RUNNING)
    item = decode(value).stuck.item
    command = Resolve(action, item, "token", "ann: by hand", encode_value(7))
    after, answer = step(value, command, 9.0)
    record = decode(after)
    assert answer == Done()
    assert (record.state, record.stuck, record.owner) == (state, None, "")
    assert (record.log[-1].what, record.log[-1].note) == (mark, "ann: by hand")
    is_result = mark is Mark.STEP_DONE
    assert (bytes(record.log[-1].data) == encode_value(7)) is is_result
    assert (record.ended == 9.0) is state.is_ended
    assert step(after, command) == (after, Done())  # the reply was lost


def test_a_late_decision():
    """A decision about another occasion changes nothing."""
    value = stuck()
    assert step(value, Resolve("retry", "other", "t", "x")) == (value, Lost())
    running = begun()
    assert step(running, Resolve("retry", "", "t", "x")) == (running, Lost())


def test_lease_on_a_clock_that_was_set():
    """A clock that is set back, or ahead, neither keeps a lease for ever nor ends it."""
    record = decode(begun(now=100.0))
    change, left = lease_of(record, 20.0)  # set back by more than the lease
    assert left == LEASE
    assert decode(change.value).lease_until == 30.0
    ahead = ClockView((Jump(101.0, 3600.0),))
    assert lease_of(record, 3702.0, ahead) == (KEEP, 8.0)
    here = replace(record, boot="b", uptime=5.0)
    assert lease_of(here, 9e9, ClockView((), "b", 9.0)) == (KEEP, 6.0)
    assert lease_of(here, 9e9, ClockView((), "b", 99.0)) == (KEEP, 0.0)


def test_damaged():
    """A record that nothing can read raises that it is damaged."""
    with pytest.raises(StoredValueError) as caught:
        reduce(b"{", begin(), 1.0)
    assert caught.value.is_damaged
    assert decode(encode(decode(begun()))) == decode(begun())
