"""The reducer of a run's record: every command, and each of them twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.change import KEEP
from mainstay.core.base.clock_jumps import ClockView
from mainstay.core.pipeline.commands import (
    Append,
    Begin,
    Busy,
    Claimed,
    Done,
    Found,
    Lost,
    Mismatch,
    Refusal,
    Release,
    Renew,
    Review,
    Take,
    Written,
)
from mainstay.core.pipeline.ledger import (
    RETRY_LOG,
    VERSIONING,
    LedgerEntry,
    ledger_of,
    verify,
    verify_together,
)
from mainstay.core.pipeline.record import GONE, lease_of, reduce
from mainstay.core.pipeline.state import (
    ABANDONED,
    HALTED,
    RUNNING,
    SUCCEEDED,
    Halt,
    Quarantine,
    StageRecord,
    address_of,
    decode,
)
from mainstay.errors import StoredValueError

LEASE = 10.0
SHAPE = "poll;load<poll"


def begin(owner="me", fingerprint="f", **options):
    return Begin(owner, "etl", "r-1", SHAPE, fingerprint, b"null", ("poll",), LEASE, **options)


def append(number=0, owner="me", epoch=1, **options):
    return Append(owner, epoch, number, LEASE, **options)


def take(owner="you", shape=SHAPE, most=3, **options):
    return Take(owner, shape, LEASE, most, **options)


def entry(kind, **fields):
    return LedgerEntry(kind=kind, pipeline_id="etl", run_id="r-1", **fields)


def step(value, command, now=1.0, view=None):
    """The record after a command, and the answer."""
    change, answer = reduce(value, command, now, *([view] if view else []))
    return (value if change is KEEP else change.value), answer


def begun(now=0.0, **options):
    change, answer = reduce(None, begin(**options), now)
    assert isinstance(answer, Claimed)
    return change.value


def halting(number=0, cause="fail_fast", **options):
    held = Quarantine("poll", ("d-1",), "SchemaValidationError", "no id", 1, ("CARE-A",))
    return append(
        number,
        stage="poll",
        became=StageRecord("failed", attempts=2, note="no id"),
        halt=Halt("poll", cause, "SchemaValidationError", "no id"),
        quarantine=held if cause == "fail_fast" else None,
        retries=(entry("failed_fast", stage="poll"),),
        versions=(entry("halted", stage="poll"), entry("quarantined", stage="poll")),
        **options,
    )


def halted(cause="fail_fast"):
    value, answer = step(begun(), halting(cause=cause))
    assert isinstance(answer, Written)
    return value


def is_whole(value):
    record = decode(value)
    retries, versions = (
        ledger_of(RETRY_LOG, [record.retries]),
        ledger_of(VERSIONING, [record.versions]),
    )
    return not [*verify(retries), *verify(versions), *verify_together(retries, versions)]


def kinds(value):
    record = decode(value)
    return [each.kind for each in record.retries], [each.kind for each in record.versions]


def test_begin_starts_the_first_stage():
    """The first stage is in the record before it is called, and the ledger has the beginning."""
    change, answer = reduce(None, begin(tenant="t", datasets=("d-1",)), 3.0)
    record = decode(change.value)
    assert answer == Claimed(record)
    assert record.stages == {"poll": StageRecord("started", 3.0)}
    assert (record.state, record.epoch, record.lease_until, record.tenant) == (
        RUNNING,
        1,
        13.0,
        "t",
    )
    assert record.versions[0].dataset_ids == ("d-1",)
    assert change.expires is None
    assert is_whole(change.value)


def test_begin_twice():
    """The same claim again has the same answer; another caller waits, or finds what is there."""
    value = begun()
    assert isinstance(step(value, begin())[1], Claimed)
    assert step(value, begin("you"), 4.0)[1] == Busy(6.0)
    assert isinstance(step(value, begin("you"), 10.0)[1], Found)
    assert step(value, begin(fingerprint="g"))[1] == Mismatch()
    assert isinstance(step(halted(), begin())[1], Found)


def test_halt_quarantine_and_ledgers_are_one_write():
    """The state, what is held back and the entries of both ledgers are in the same bytes."""
    record = decode(halted())
    assert (record.state, record.halt.stage, record.halt.at) == (HALTED, "poll", 1.0)
    assert record.is_held
    assert record.quarantine.datasets == ("d-1",)
    assert kinds(halted()) == (["failed_fast"], ["began", "halted", "quarantined"])
    assert record.versions[-1].retry_log_head == record.retries[-1].hash
    assert (record.lease, record.stages["poll"].attempts) == (0.0, 2)
    assert is_whole(halted())


def test_a_stage_is_done_and_the_next_begins():
    """Both are one write; the last one ends the run."""
    done = StageRecord("done", attempts=1)
    value, answer = step(begun(), append(stage="poll", became=done, starts=("load",)), 2.0)
    assert isinstance(answer, Written)
    stages = decode(value).stages
    assert (stages["poll"].ended, stages["load"].status) == (2.0, "started")
    assert step(value, append(stage="poll", became=done, starts=("load",)))[0] == value
    value, _ = step(value, append(1, stage="load", became=done, is_over=True), 3.0)
    record = decode(value)
    assert (record.state, record.ended, record.state.is_ended) == (SUCCEEDED, 3.0, True)
    assert step(value, append(5))[1] == Lost()
    assert step(value, take())[1] == Found(record)


def test_a_stage_begins_without_one_before():
    """A stage that is begun and recorded later than the run was, such as on resumption."""
    value, _ = step(begun(), append(starts=("load",)))
    assert decode(value).stages["load"].attempts == 0
    value, _ = step(value, append(1, stage="extra", became=StageRecord("done")))
    assert decode(value).stages["extra"].began == 1.0
    value, _ = step(value, append(2, starts=("extra",)))
    assert decode(value).stages["extra"].status == "started"


def test_a_write_of_another_owner_is_lost():
    """What another process wrote since stays as it is."""
    value = begun()
    for command in (append(owner="you"), append(epoch=2), append(3), Renew("you", 1, LEASE)):
        assert step(value, command) == (value, Lost())
    assert step(halted(), Renew("me", 1, LEASE))[1] == Lost()
    assert step(None, take())[1] == GONE


def test_the_lease_is_renewed_and_released():
    """A run that is released may be taken at once."""
    value, answer = step(begun(), Renew("me", 1, LEASE), 7.0)
    assert isinstance(answer, Done)
    assert decode(value).lease_until == 17.0
    assert step(value, take(), 16.0)[1] == Busy(1.0)
    value, _ = step(value, Release("me", 1), 8.0)
    assert isinstance(step(value, take(), 8.0)[1], Claimed)


def test_the_lease_counts_by_the_uptime_of_the_machine():
    """No setting of a clock ends it."""
    view = ClockView(boot="b", uptime=100.0)
    change, _ = reduce(None, begin(), 0.0, view)
    later = ClockView(boot="b", uptime=104.0)
    assert lease_of(decode(change.value), 3600.0, later) == 6.0


def test_a_held_run_is_not_resumed():
    """Not before a person has released it; then where it stopped, with the next epoch."""
    value = halted()
    answer = step(value, take())[1]
    assert isinstance(answer, Refusal)
    assert answer.why == "d-1 is in quarantine until a person has reviewed it"
    occasion = decode(value).halt.occasion
    review = Review("release", occasion, "t-1", "ann", "the schema is repaired")
    value, answer = step(value, review)
    assert isinstance(answer, Done)
    assert not decode(value).is_held
    assert step(value, review)[0] == value
    assert step(value, Review("release", "other", "t-2", "bob", ""))[1] == Lost()
    value, answer = step(value, take(by="ann"))
    assert isinstance(answer, Claimed)
    assert (answer.record.epoch, answer.record.resumes, answer.record.halt) == (2, 1, None)
    assert kinds(value)[1][-2:] == ["reviewed", "resumed"]
    assert answer.record.versions[-1].by == "ann"
    assert step(value, take(by="ann"))[0] == value
    assert is_whole(value)


def test_a_person_ends_a_run():
    """It is not resumed, and what it held stays held."""
    value = halted()
    review = Review("abandon", decode(value).halt.occasion, "t", "ann", "")
    change, answer = reduce(value, review, 5.0)
    record = decode(change.value)
    assert (record.state, record.quarantine.status, record.ended) == (ABANDONED, "abandoned", 5.0)
    assert isinstance(answer, Done)
    assert isinstance(step(change.value, take())[1], Found)
    assert decode(change.value).versions[-1].reason == "abandon"


def test_resumptions_without_progress_are_bounded():
    """A loop of resumptions ends; a stage that is done, or a person, lets it go on."""
    value = halted("exhausted")
    for epoch in (2, 3):
        value, answer = step(value, take(most=2))
        assert isinstance(answer, Claimed)
        value, _ = step(value, halting(cause="exhausted", owner="you", epoch=epoch))
    value, answer = step(value, take(most=2))
    assert isinstance(answer, Refusal)
    assert "2 times without progress; the last time: " in answer.why
    assert step(value, take(most=2)) == (value, answer)
    record = decode(value)
    assert (record.state, record.halt.cause, record.halt.stage) == (HALTED, "stalled", "poll")
    review = Review("release", decode(value).halt.occasion, "t", "ann", "it is back")
    value, _ = step(value, review)
    assert isinstance(step(value, take(most=2))[1], Claimed)
    assert decode(value).stages["poll"].attempts == 6
    assert decode(value).versions[-1].dataset_ids == ()


def test_a_changed_pipeline():
    """A run goes on with another shape unless a stage that is done has changed."""
    value = halted("exhausted")
    assert isinstance(step(value, take(shape="fetch"))[1], Claimed)
    done = StageRecord("done", attempts=1)
    value, _ = step(begun(), append(stage="poll", became=done, starts=("load",)))
    answer = step(value, take(shape="load"), 20.0)[1]
    assert isinstance(answer, Refusal)
    assert "no such stage" in answer.why


def test_an_unsafe_stage_is_not_begun_twice():
    """If its process is gone, it may have happened: the run is halted until a person decides."""
    value, answer = step(begun(), take(unsafe=("poll",)), 20.0)
    assert isinstance(answer, Refusal)
    assert "may have happened" in answer.why
    record = decode(value)
    assert (record.state, record.halt.cause) == (HALTED, "unknown")
    assert kinds(value) == (["unknown"], ["began", "halted"])
    assert isinstance(step(value, take(unsafe=("poll",)), 20.0)[1], Refusal)
    review = Review("release", record.halt.occasion, "t", "ann", "it has not happened")
    value, _ = step(value, review)
    value, answer = step(value, take(unsafe=("poll",)), 20.0)
    assert isinstance(answer, Claimed)
    assert isinstance(step(begun(), take(unsafe=("load",)), 20.0)[1], Claimed)


def test_a_run_without_data_sets():
    """What is held is the run itself."""
    value, _ = step(
        begun(),
        append(halt=Halt("poll", "fail_fast", "X", ""), quarantine=Quarantine("poll", (), "X", "")),
    )
    assert step(value, take())[1].why.startswith("the run is in quarantine")


def test_what_has_ended_expires():
    """If it is to be kept for some time only; then its id may be used anew."""
    change, _ = reduce(None, begin(keep=100.0), 0.0)
    assert change.expires is None
    done = append(stage="poll", became=StageRecord("done"), is_over=True)
    change, _ = reduce(change.value, done, 5.0)
    assert change.expires == 105.0
    assert isinstance(step(change.value, begin("you"), 100.0)[1], Found)
    assert isinstance(step(change.value, begin("you"), 105.0)[1], Claimed)


def test_a_damaged_record():
    """It raises an error that names what it is."""
    with pytest.raises(StoredValueError, match="record of the run is damaged"):
        decode(b"{}")
    assert address_of("etl", "a/b") == "etl/a/b"


@given(
    st.lists(st.sampled_from(["done", "halt", "take", "review", "release", "again"]), max_size=12)
)
def test_whatever_happens_the_ledgers_are_whole(moves):
    """Chains only grow, each is a prefix of the next, and both fit together."""
    value, owner, epoch = begun(), "me", 1
    for number, move in enumerate(moves):
        record, now = decode(value), 100.0 * (number + 1)
        occasion = record.halt.occasion if record.halt else ""
        commands = {
            "done": append(record.writes, owner, epoch, stage="poll", became=StageRecord("done")),
            "halt": halting(record.writes, "exhausted" if number % 2 else "fail_fast",
                            owner=owner, epoch=epoch),
            "take": take(f"o{number}"),
            "review": Review("release", occasion, str(number), "a", ""),
            "release": Release(owner, epoch),
            "again": begin("other"),
        }  # fmt: skip
        value, answer = step(value, commands[move], now)
        if isinstance(answer, Claimed):
            owner, epoch = answer.record.owner, answer.record.epoch
        after = decode(value)
        assert after.retries[: len(record.retries)] == record.retries
        assert after.versions[: len(record.versions)] == record.versions
        assert is_whole(value)
