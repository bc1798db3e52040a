"""Records on a clock that is set: a dead owner's key comes free, a live owner keeps it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.change import DROP, KEEP
from mainstay.core.base.clock_jumps import NO_TIME, TOLERANCE, ClockView, observed
from mainstay.core.idempotency.fast_replay import MISS, hit
from mainstay.core.idempotency.purge import may_purge
from mainstay.core.idempotency.record import (
    Begin,
    Busy,
    Done,
    Doubt,
    Forget,
    Lost,
    RecordState,
    Renew,
    Replay,
    Resolve,
    Run,
    Settle,
    decode,
    glimpse,
    reduce,
)

LEASE, TTL, DAY = 30.0, 3600.0, 86_400.0
OUTCOME = b'{"v":1,"value":7}'


class World:
    """One record, a clock that may be set, and time that passes."""

    def __init__(self, is_local=False):
        self.now, self.time, self.value = 1e9, 0.0, None
        self.is_local = is_local

    def passes(self, seconds):
        self.now += seconds
        self.time += seconds

    def is_set(self, by):
        self.now += by

    def does(self, command, process=None):
        """A step of a process; without one, of a process that has just started."""
        process = process or Process(self)
        change, answer = reduce(self.value, command, self.now, process.view())
        self.value = self.value if change is KEEP else change.value
        return answer


class Process:
    """Watches the clock of the world; knows its uptime, if the store is on its machine."""

    def __init__(self, world):
        self.world, self.reading = world, None

    def view(self):
        world = self.world
        self.reading = observed(self.reading, world.now, world.time + 500.0)
        boot = "boot" if world.is_local else ""
        return ClockView(self.reading.jumps, boot, world.time + 70.0 if boot else NO_TIME)


def begin(owner="b", lease=LEASE, **more):
    return Begin(owner, "f", lease, 9, **more)


def settle(ttl=TTL):
    return Settle("a", 1, RecordState.SUCCEEDED, OUTCOME, ttl)


def of_before(value):
    """The record as it was before records had lengths."""
    fields = msgspec.json.decode(value)
    new = ("lease", "kept_for", "boot", "uptime")
    return msgspec.json.encode({name: each for name, each in fields.items() if name not in new})


@pytest.fixture(params=[False, True], ids=["far", "local"])
def world(request):
    return World(request.param)


def test_after_the_clock_was_set_back_a_dead_owners_key_is_free_after_one_lease(world):
    """Not after the day by which it was set back: whoever asks makes the lease begin again."""
    world.does(begin("a"))
    world.passes(1.0)
    world.is_set(-DAY)
    assert world.does(begin()) == Busy(pytest.approx(LEASE, abs=1.001))
    world.passes(LEASE + 0.001)
    assert world.does(begin()) == Run(2, 2)


def test_a_live_owner_keeps_its_key_while_the_clock_is_set_back(world):
    """It renews the lease at a third of it, on whatever clock there is then."""
    owner = Process(world)
    world.does(begin("a"), owner)
    for by in (-DAY, 0.0, -7.0, -DAY, 0.0, 0.0, 0.0, 0.0):
        world.is_set(by)
        assert isinstance(world.does(begin()), Busy)
        world.passes(LEASE / 3)
        assert isinstance(world.does(begin()), Busy)
        assert world.does(Renew("a", 1, LEASE), owner) == Done()


def test_a_process_that_saw_the_clock_set_ahead_takes_no_live_lease(world):
    """What was stored before the jump is moved along; its owner has the time to renew."""
    other = Process(world)
    world.does(begin("a"))
    assert isinstance(world.does(begin(), other), Busy)
    world.is_set(DAY)
    assert world.does(begin(), other) == Busy(pytest.approx(LEASE))
    world.passes(LEASE / 3)
    assert world.does(Renew("a", 1, LEASE)) == Done()
    assert world.does(begin(), other) == Busy(pytest.approx(LEASE))
    world.passes(LEASE)
    assert world.does(begin(), other) == Run(2, 2)


def test_on_one_machine_a_process_that_starts_after_the_jump_takes_none_either():
    """The uptime of the machine is in the record, and no setting of a clock changes it."""
    world = World(is_local=True)
    world.does(begin("a"))
    world.is_set(DAY)
    world.passes(LEASE - 0.001)
    assert world.does(begin()) == Busy(pytest.approx(0.001))
    world.passes(0.002)
    assert world.does(begin()) == Run(2, 2)


def test_elsewhere_a_process_that_starts_after_it_cannot_know():
    """The window that is documented: until the owner renews, a third of a lease at most."""
    world = World()
    world.does(begin("a"))
    world.is_set(DAY)
    assert world.does(begin()) == Run(2, 2)


def test_a_record_of_before_there_were_lengths_has_the_length_it_was_claimed_with(world):
    """An old process may have written it; how far its lease lies after its start has the length."""
    world.does(begin("a"))
    world.value = of_before(world.value)
    world.is_set(-DAY)
    assert world.does(begin(lease=20.0)) == Busy(LEASE)
    world.passes(LEASE + 0.001)
    assert world.does(begin()) == Run(2, 2)


def test_a_live_owner_of_an_older_version_keeps_its_longer_lease(world):
    """A new version may come with a shorter one; the owner renews at a third of its own."""
    world.does(begin("a", lease=10 * LEASE))
    for _ in range(3):
        world.value = before = of_before(world.value)
        assert world.does(begin()) == Busy(pytest.approx(10 * LEASE))
        assert world.value is before
        world.passes(3 * LEASE)
        assert isinstance(world.does(begin()), Busy)
        assert world.does(Renew("a", 1, 10 * LEASE)) == Done()


def test_a_small_difference_of_clocks_is_not_written_down():
    """Two processes that read a server's clock a moment apart do not write in turns."""
    world = World()
    world.does(begin("a"))
    before = world.value
    world.is_set(-TOLERANCE / 2)
    assert world.does(begin()) == Busy(LEASE)
    assert world.value is before


# --- outcomes -------------------------------------------------------------------------------------


def test_an_outcome_is_kept_no_longer_than_its_time_from_the_next_call_on(world):
    """A clock that was set back does not make a day of an hour."""
    world.does(begin("a"))
    world.does(settle())
    world.is_set(-DAY)
    assert hit(world.value, "f", world.now) is MISS
    assert glimpse(world.value, "f", world.now) is None
    assert world.does(begin()) == Replay(RecordState.SUCCEEDED, OUTCOME)
    assert hit(world.value, "f", world.now) == 7
    world.passes(TTL + 0.001)
    assert world.does(begin()) == Run(1, 1)


def test_an_outcome_outlives_a_clock_that_was_set_ahead(world):
    """For a process that saw it, and on one machine for every process."""
    other = Process(world)
    world.does(begin("a"))
    world.does(settle(), other)
    world.is_set(DAY)
    assert hit(world.value, "f", world.now) is MISS
    assert world.does(begin(), other) == Replay(RecordState.SUCCEEDED, OUTCOME)
    world.passes(TTL - 0.002)
    assert world.does(begin(), other) == Replay(RecordState.SUCCEEDED, OUTCOME)
    world.passes(0.003)
    assert world.does(begin(), other) == Run(1, 1)


def test_an_outcome_without_a_length_expires_as_it_did(world):
    """A record of before, and one that is kept for ever."""
    world.does(begin("a"))
    world.does(settle())
    world.value = of_before(world.value)
    world.is_set(-DAY)
    assert hit(world.value, "f", world.now) == 7
    assert world.does(begin()) == Replay(RecordState.SUCCEEDED, OUTCOME)
    world.is_set(DAY + TTL)
    assert world.does(begin()) == Run(1, 1)
    world.does(Settle("b", 1, RecordState.SUCCEEDED, OUTCOME, None))
    world.is_set(1000 * DAY)
    assert world.does(begin()) == Replay(RecordState.SUCCEEDED, OUTCOME)


def test_what_a_person_has_resolved_expires_likewise(world):
    """Its time begins when it was resolved."""
    world.does(begin("a"))
    world.does(Doubt("a", 1))
    world.does(Resolve("item", "a", 1, RecordState.SUCCEEDED, OUTCOME, TTL))
    world.is_set(-DAY)
    assert world.does(begin()) == Replay(RecordState.SUCCEEDED, OUTCOME)
    world.passes(TTL + 0.001)
    assert world.does(begin()) == Run(1, 1)


def test_forgetting_an_unfinished_call_waits_for_one_lease_at_most(world):
    """Also if the clock was set back since; without a length, for as long as the record has."""
    world.does(begin("a"))
    world.is_set(-DAY)
    assert world.does(Forget()) == Lost()
    world.passes(LEASE + 0.001)
    assert world.does(Forget()) == Done()
    world.value = None
    world.does(begin("a"))
    world.value = of_before(world.value)
    assert world.does(Forget()) == Lost()
    world.now += LEASE
    assert world.does(Forget()) == Done()


def test_a_record_on_a_server_has_nothing_but_its_lengths_in_addition():
    """What is not known is not written."""
    world = World()
    world.does(begin("a"))
    assert set(msgspec.json.decode(world.value)) - set(
        msgspec.json.decode(of_before(world.value))
    ) == {"lease"}
    world.does(settle())
    assert b'"lease"' not in world.value
    assert b'"uptime"' not in world.value
    assert b'"kept_for":3600.0' in world.value


# --- laws -----------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.integers(0, 8 * int(LEASE)).map(lambda eighths: eighths / 8),
        st.sampled_from([0.0, 0.0, -DAY, -20.0, 20.0, DAY]),
    ),
    max_size=8,
)


@given(STEPS, st.booleans())
def test_a_dead_owners_key_comes_free_one_lease_after_the_clock_was_last_set(story, is_local):
    """However it was set before, and whoever watched; nobody waits for longer."""
    world = World(is_local)
    other = Process(world)
    world.does(begin("a"), other)
    for seconds, by in story:
        world.passes(seconds)
        world.is_set(by)
        world.does(begin("c" if seconds > LEASE / 2 else "b", on_crash="unknown"), other)
        if decode(world.value).state is not RecordState.RUNNING:
            return  # it came free already
    world.passes(LEASE + TOLERANCE + 1e-3)
    answer = world.does(begin("d"), other)
    assert not isinstance(answer, Busy)


@given(STEPS)
def test_on_one_machine_a_lease_is_over_when_its_time_has_passed_and_not_before(story):
    """Whatever was done to the clock, and whether or not a process watched it."""
    world = World(is_local=True)
    world.does(begin("a"))
    for seconds, by in story:
        world.passes(seconds)
        world.is_set(by)
        answer = world.does(begin())
        assert isinstance(answer, Busy) == (world.time < LEASE)
        if isinstance(answer, Run):
            return
        assert answer.retry_after == pytest.approx(LEASE - world.time, abs=1e-3)


@given(STEPS)
def test_whoever_watched_the_clock_never_takes_a_lease_that_is_renewed(story):
    """The owner renews at a third of the lease; the clock is set in between, ahead or back."""
    world = World()
    owner, other = Process(world), Process(world)
    world.does(begin("a"), owner)
    world.does(begin(), other)
    for seconds, by in story:
        world.passes(seconds / 3)
        world.is_set(by)
        assert isinstance(world.does(begin(), other), Busy)
        assert world.does(Renew("a", 1, LEASE), owner) == Done()


class Kept:
    """An outcome with a time, and what a purge makes of its row."""

    def __init__(self, world):
        self.world = world
        world.does(begin("a"))
        _, _, self.change = self._settled()

    def _settled(self):
        process = Process(self.world)
        change, answer = reduce(self.world.value, settle(), self.world.now, process.view())
        self.world.value = change.value
        return process, answer, change

    def is_replayed(self, process):
        """Whether a read answers with it, by the short way or the whole one."""
        world = self.world
        if isinstance(hit(world.value, "f", world.now), int):
            return True
        return isinstance(reduce(world.value, begin(), world.now, process.view())[1], Replay)

    def is_purged(self, process):
        """As a store does: first by its own clock alone, then by the record."""
        expires, now = self.change.expires, self.world.now
        return expires <= now and may_purge(
            "records", self.world.value, expires, now, process.view()
        )


@given(STEPS, st.floats(0.0, 2 * TTL))
def test_on_one_machine_what_a_read_replays_is_never_purged(story, rest):
    """Whatever was done to the clock, and by a process that has just started, too."""
    world = World(is_local=True)
    kept, watcher = Kept(world), Process(world)
    for seconds, by in [*story, (rest, 0.0), (rest, DAY)]:
        world.passes(seconds * TTL / LEASE)
        world.is_set(by)
        for process in (watcher, Process(world)):
            if kept.is_replayed(process):
                assert not any(kept.is_purged(each) for each in (watcher, Process(world)))


@given(STEPS)
def test_elsewhere_a_process_purges_nothing_that_it_would_replay_itself(story):
    """It knows the jumps that it has seen."""
    world = World()
    watcher = Process(world)
    watcher.view()
    kept = Kept(world)
    for seconds, by in story:
        world.passes(seconds * TTL / LEASE)
        world.is_set(by)
        if kept.is_replayed(watcher):
            assert not kept.is_purged(watcher)


def test_a_drop_is_a_drop():
    """What forgets a call removes its record."""
    world = World()
    world.does(begin("a"))
    change, _ = reduce(world.value, Forget(), world.now + LEASE)
    assert change is DROP
