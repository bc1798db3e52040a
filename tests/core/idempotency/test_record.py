"""The record's reducer: rules as a table, and laws against a model that knows everything."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mainstay.core.base.change import DROP, KEEP, Change
from mainstay.core.idempotency.record import (
    Begin,
    Busy,
    Done,
    Doubt,
    Forget,
    Lost,
    Mismatch,
    Record,
    RecordState,
    Release,
    Renew,
    Replay,
    Resolve,
    Run,
    Settle,
    Unknown,
    decode,
    encode,
    glimpse,
    reduce,
)
from mainstay.errors import StoredValueError

RUNNING, SUCCEEDED, FAILED, UNKNOWN = RecordState
LEASE, MOST, TTL = 10.0, 3, 50.0
FOUND = Unknown(1, "it was found so before", owner="a", epoch=1)


def begin(owner="a", fingerprint="f", on_crash="retry", most=MOST):
    return Begin(owner, fingerprint, LEASE, most, on_crash)


def after(*commands, now=0.0):
    """The value that these commands leave, one a second."""
    value = None
    for second, command in enumerate(commands):
        change, _ = reduce(value, command, now + second)
        value = value if change is KEEP else change.value
    return value


def settle(owner="a", epoch=1, state=SUCCEEDED, outcome=b"1", ttl=TTL):
    return Settle(owner, epoch, state, outcome, ttl)


# --- rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "command", "now", "answer"),
    [
        ([], begin(), 0.0, Run(1, 1)),
        ([begin()], begin("b"), 4.0, Busy(6.0)),
        ([begin()], begin("b"), 9.999, Busy(pytest.approx(0.001))),
        ([begin()], begin("b"), 10.0, Run(2, 2)),
        ([begin()], begin("b", "g"), 4.0, Mismatch("f")),
        ([begin()], begin("b", "g"), 99.0, Mismatch("f")),
        ([begin()], begin("b", on_crash="unknown"), 4.0, Busy(6.0)),
        ([begin(), settle()], begin("b"), 4.0, Replay(SUCCEEDED, b"1")),
        ([begin(), settle()], begin("b"), 50.9, Replay(SUCCEEDED, b"1")),
        ([begin(), settle()], begin("b"), 51.0, Run(1, 1)),
        ([begin(), settle()], begin("b", "g"), 51.0, Run(1, 1)),
        ([begin(), settle(ttl=None)], begin("b"), 1e12, Replay(SUCCEEDED, b"1")),
        ([begin(), settle(state=FAILED)], begin("b"), 4.0, Replay(FAILED, b"1")),
        ([begin(), Doubt("a", 1)], begin("b"), 1e12, FOUND),
        ([begin(), Release("a", 1)], begin("b"), 4.0, Run(1, 1)),
        ([begin(), Release("a")], begin("b"), 4.0, Run(1, 1)),
        ([], settle(), 0.0, Lost()),
        ([begin()], settle("b"), 4.0, Lost()),
        ([begin()], settle(epoch=2), 4.0, Lost()),
        ([begin()], settle(), 99.0, Done()),
        ([begin(), settle()], settle(state=FAILED), 4.0, Lost()),
        ([begin(), settle()], Renew("a", 1, LEASE), 4.0, Lost()),
        ([begin(), settle()], Release("a", 1), 4.0, Lost()),
        ([begin(), settle()], Doubt("a", 1), 4.0, Lost()),
        ([begin(), Doubt("a", 1)], settle(), 4.0, Lost()),
        ([begin()], Release("b"), 4.0, Lost()),
    ],
)
def test_a_command_has_this_answer(before, command, now, answer):
    """Every case of the table in the design."""
    assert reduce(after(*before), command, now)[1] == answer


DOUBTED = [begin(), Doubt("a", 1)]
MEANT = Resolve("item", "a", 1, SUCCEEDED, b"7", TTL)
LET_GO = Resolve("item", "a", 1)


@pytest.mark.parametrize(
    ("before", "command", "answer"),
    [
        (DOUBTED, MEANT, Done()),
        (DOUBTED, Resolve("item", state=FAILED), Done()),
        (DOUBTED, LET_GO, Done()),
        ([*DOUBTED, MEANT], MEANT, Done()),
        ([*DOUBTED, LET_GO], LET_GO, Done()),
        ([*DOUBTED, MEANT], Resolve("item", "a", 1, FAILED), Lost()),
        ([*DOUBTED, MEANT], Resolve("other", "a", 1, SUCCEEDED), Lost()),
        ([*DOUBTED, MEANT], LET_GO, Lost()),
        (DOUBTED, Resolve("item", "b", 1, SUCCEEDED), Lost()),
        (DOUBTED, Resolve("item", "a", 2, SUCCEEDED), Lost()),
        ([], MEANT, Lost()),
        ([begin()], MEANT, Lost()),
        ([begin()], LET_GO, Lost()),
        ([begin(), settle()], MEANT, Lost()),
        ([*DOUBTED, LET_GO, begin("b")], LET_GO, Lost()),
        ([*DOUBTED, LET_GO, begin("b"), Doubt("b", 1)], LET_GO, Lost()),
        ([*DOUBTED, LET_GO, begin("b"), Doubt("b", 1)], MEANT, Lost()),
    ],
)
def test_what_a_person_says_is_about_the_claim_in_doubt_and_no_other(before, command, answer):
    """It may come twice; a record that has moved on stays as it is."""
    value = after(*before)
    change, said = reduce(value, command, 5.0)
    assert said == answer
    if answer == Lost():
        assert change is KEEP


def test_what_a_person_says_is_replayed_as_any_outcome():
    """With its time to live, and without one for ever."""
    change, _ = reduce(after(*DOUBTED), MEANT, 5.0)
    assert change.expires == 5.0 + TTL
    assert decode(change.value).resolved == "item"
    assert reduce(change.value, begin("b"), 6.0)[1] == Replay(SUCCEEDED, b"7")
    change, _ = reduce(after(*DOUBTED), Resolve("item", state=FAILED, outcome=b"8"), 5.0)
    assert change.expires is None
    assert reduce(change.value, begin("b"), 1e12)[1] == Replay(FAILED, b"8")


def test_what_a_person_lets_go_runs_again():
    """As if it had never begun."""
    assert reduce(after(*DOUBTED), LET_GO, 5.0)[0] is DROP
    assert reduce(after(*DOUBTED, LET_GO), begin("b"), 6.0)[1] == Run(1, 1)


@pytest.mark.parametrize(
    ("before", "now", "answer"),
    [
        ([], 5.0, Done()),
        ([begin()], LEASE, Done()),
        ([begin()], LEASE - 0.1, Lost()),
        (DOUBTED, 99.0, Lost()),
        ([begin(), settle()], 99.0, Lost()),
    ],
)
def test_attempts_are_forgotten_of_what_nobody_is_at(before, now, answer):
    """Neither of a call under way, nor of one that has ended or is in doubt."""
    change, said = reduce(after(*before), Forget(), now)
    assert said == answer
    assert (change is DROP) == (answer == Done() and bool(before))


def test_who_crashed_too_often_leaves_an_unknown_outcome():
    """As many claims as attempts are allowed, and the next one finds out."""
    value = None
    for number in range(MOST):
        change, answer = reduce(value, begin(str(number)), number * LEASE)
        assert answer == Run(number + 1, number + 1)
        value = change.value
    change, answer = reduce(value, begin("last"), MOST * LEASE)
    told = "it was left unfinished 3 times"
    assert answer == Unknown(MOST, told, is_new=True, owner="2", epoch=3)
    assert decode(change.value).state is UNKNOWN
    assert change.expires is None


def test_where_a_crash_is_for_a_person_the_first_is():
    """Whatever the number of attempts."""
    change, answer = reduce(after(begin()), begin("b", on_crash="unknown", most=9), LEASE)
    told = "the process that ran it is gone"
    assert answer == Unknown(1, told, is_new=True, owner="a", epoch=1)
    assert decode(change.value).state is UNKNOWN


@pytest.mark.parametrize(
    ("before", "command"),
    [
        ([begin()], settle()),
        ([begin()], settle(state=FAILED)),
        ([begin()], Doubt("a", 1)),
    ],
)
def test_the_end_of_a_call_may_be_told_twice(before, command):
    """The reply to the first was lost: the second is done as well, and changes nothing."""
    change, first = reduce(after(*before), command, 5.0)
    assert reduce(change.value, command, 99.0) == (KEEP, first)


def test_a_claim_whose_reply_was_lost_is_heard_of_with_a_whole_lease():
    """Neither epoch nor attempts move; what went by of the lease unheard is given back."""
    change, answer = reduce(after(begin()), begin(), 9.0)
    assert answer == Run(1, 1)
    assert reduce(change.value, begin("b"), 18.9)[1] == Busy(pytest.approx(0.1))


def test_releasing_twice_harms_nobody():
    """Also where somebody else has begun meanwhile."""
    change, answer = reduce(after(begin()), Release("a", 1), 5.0)
    assert (change, answer) == (DROP, Done())
    assert reduce(None, Release("a", 1), 6.0) == (KEEP, Lost())
    assert reduce(after(begin("b")), Release("a", 1), 6.0) == (KEEP, Lost())


def test_an_attempt_is_counted_once_if_its_command_arrives_twice():
    """The reply to the first was lost; the number in the command is the number of the attempt."""
    value = after(begin(), Renew("a", 1, LEASE, 2), Renew("a", 1, LEASE, 2))
    assert decode(value).attempts == 2
    assert decode(reduce(value, Renew("a", 1, LEASE, 3), 5.0)[0].value).attempts == 3
    assert decode(reduce(value, Renew("a", 1, LEASE), 5.0)[0].value).attempts == 2


# --- a claim that may still be on its way ---------------------------------------------------------


FENCE = Release("a", fence=True)


@pytest.mark.parametrize(
    ("before", "answer"),
    [([], Lost()), ([begin()], Done()), ([begin("b"), settle("b")], Lost())],
    ids=["absent", "its own", "expired"],
)
def test_a_fence_leaves_a_mark_that_anybody_may_begin_on(before, answer):
    """Also a process that does not know of marks: it sees a failure that has expired."""
    change, given = reduce(after(*before), FENCE, 60.0)
    assert given == answer
    mark = decode(change.value)
    assert (mark.state, mark.owner, mark.expires, change.expires) == (FAILED, "a", 0.0, 120.0)
    for command in (begin("b"), begin("b", "g"), begin("b", on_crash="unknown")):
        assert reduce(change.value, command, 60.0)[1] == Run(1, 1)
    assert glimpse(change.value, "f", 60.0) is None
    assert reduce(change.value, FENCE, 61.0)[1] == Lost()


@pytest.mark.parametrize(
    ("before", "now", "is_written"),
    [
        ([begin("b")], 4.0, False),
        ([begin("b")], 10.0, True),
        ([begin("b"), settle("b")], 4.0, False),
        ([begin("b"), Doubt("b", 1)], 99.0, False),
    ],
    ids=["held", "left", "ended", "unknown"],
)
def test_a_fence_changes_nothing_in_the_record_of_another(before, now, is_written):
    """It is written once more as it is, if a claim that is on its way could take it over."""
    value = after(*before)
    change, answer = reduce(value, FENCE, now)
    assert answer == Lost()
    assert change == (Change(value) if is_written else KEEP)


MOMENTS = st.sampled_from([0.0, 0.5, 9.5, 11.0])
OF_OTHERS = st.lists(
    st.tuples(
        MOMENTS,
        st.sampled_from([begin("b"), begin("c", on_crash="unknown"), settle("b"), settle("b", 2)]),
    ),
    max_size=4,
)


@given(before=OF_OTHERS, between=OF_OTHERS, later=OF_OTHERS, pause=MOMENTS)
def test_a_claim_that_was_fenced_is_never_written(before, between, later, pause):
    """The store decides first, and writes if the record is the one that it has read."""
    kept = Versions()
    for moment, command in before:
        kept.step(command, moment)
    claim, read = kept.decided(begin("a"))
    for moment, command in between:
        kept.step(command, moment)
    kept.step(FENCE, pause)
    for moment, command in later:
        kept.step(command, moment)
    if claim is not KEEP and kept.now < 60.0:
        assert kept.version != read


class Versions:
    """A record whose every write has a version of its own; no record has version 0."""

    def __init__(self):
        self.value, self.version, self.written, self.now = None, 0, 0, 0.0

    def decided(self, command):
        return reduce(self.value, command, self.now)[0], self.version

    def step(self, command, seconds):
        self.now += seconds
        change, _ = self.decided(command)
        if change is not KEEP:
            self.written += 1
            self.value = change.value
            self.version = self.written if change.value is not None else 0


def test_renewing_counts_an_attempt_only_where_it_says_so():
    """And prolongs the lease from the store's now."""
    change, answer = reduce(after(begin()), Renew("a", 1, LEASE), 5.0)
    assert answer == Done()
    assert (decode(change.value).attempts, decode(change.value).lease_until) == (1, 15.0)
    change, _ = reduce(change.value, Renew("a", 1, LEASE, 2), 6.0)
    assert (decode(change.value).attempts, decode(change.value).lease_until) == (2, 16.0)


def test_a_glimpse_shows_ends_and_nothing_else():
    """What a plain reading cannot settle is left to a step."""
    ended = after(begin(), settle())
    assert glimpse(ended, "f", 50.0) == Replay(SUCCEEDED, b"1")
    assert glimpse(ended, "f", 51.0) is None
    assert glimpse(ended, "g", 4.0) is None
    assert glimpse(after(begin()), "f", 4.0) is None
    assert glimpse(after(begin(), Doubt("a", 1)), "f", 4.0) is None


def test_a_record_reads_back_as_it_was():
    """With an outcome that is JSON, byte for byte."""
    value = after(begin(), settle(outcome=b'{"v":1,"value":[1.0,"\\u00e9"]}'))
    record = decode(value)
    assert bytes(record.outcome) == b'{"v":1,"value":[1.0,"\\u00e9"]}'
    assert encode(record) == value
    assert decode(encode(Record(RUNNING, "f", "a", 1, 1, 0.0))).expires is None


# --- laws -----------------------------------------------------------------------------------------

OWNERS = st.sampled_from("abc")
STATES = st.sampled_from([SUCCEEDED, FAILED])


class Store(RuleBasedStateMachine):
    """One record, one clock, three callers at a time, and messages that come again.

    The model keeps what the reducer does not: who may write, when the lease ends, how often
    somebody was let in, and every end that was ever accepted.
    """

    @initialize()
    def start(self):
        self.value, self.now = None, 0.0
        self.sent, self.names = [], dict.fromkeys("abc", "")
        self.forget()

    def forget(self):
        """As if there had never been a call."""
        self.holder, self.until, self.counted, self.end = None, 0.0, 0, None
        self.fingerprint, self.expires, self.epoch = None, None, 0

    def send(self, command):
        """Carries a command out, and remembers it for coming again."""
        self.sent.append(command)
        return self.carry_out(command)

    def carry_out(self, command):
        before = self.value
        change, answer = reduce(before, command, self.now)
        if change is not KEEP:
            self.value = change.value
            assert change.value is not None or isinstance(command, Release)
            assert change.expires == self.expiry_of(change.value)
        self.follow(command, answer, before)
        return answer

    def expiry_of(self, value):
        return None if value is None else decode(value).expires

    # --- the model -------------------------------------------------------------------------------

    def follow(self, command, answer, before):
        if isinstance(command, Begin):
            self.follow_begin(command, answer)
        else:
            self.follow_owner(command, answer, before)

    def follow_begin(self, command, answer):
        if self.expires is not None and self.expires <= self.now:
            self.forget()
        if self.fingerprint not in (None, command.fingerprint):
            assert answer == Mismatch(self.fingerprint)
        elif self.end is not None:
            self.follow_ended(answer)
        elif self.holder == command.owner:
            assert answer == Run(self.epoch, self.counted)
            self.until = self.now + command.lease
        elif self.holder is not None and self.until > self.now:
            assert answer == Busy(self.until - self.now)
        elif self.holder is not None and self.is_given_up(command):
            assert answer.is_new
            assert answer.attempts == self.counted
            self.end = (UNKNOWN, None)
        else:
            self.let_in(command, answer)

    def follow_ended(self, answer):
        state, outcome = self.end
        if state is UNKNOWN:
            assert isinstance(answer, Unknown)
            assert not answer.is_new
        else:
            assert answer == Replay(state, outcome)

    def is_given_up(self, command):
        return command.on_crash == "unknown" or self.counted >= command.max_attempts

    def let_in(self, command, answer):
        self.counted, self.epoch = self.counted + 1, self.epoch + 1
        assert answer == Run(self.epoch, self.counted)
        self.holder, self.fingerprint = command.owner, command.fingerprint
        self.until = self.now + command.lease

    def follow_owner(self, command, answer, before):
        is_holder = command.owner == self.holder and command.epoch in (None, self.epoch)
        if not is_holder or (self.end is not None and not self.is_told_again(command)):
            assert (answer, self.value) == (Lost(), before)
        elif self.end is not None:
            assert (answer, self.value) == (Done(), before)
        else:
            assert answer == Done()
            self.accept(command)

    def is_told_again(self, command):
        told = {Settle: lambda: command.state, Doubt: lambda: UNKNOWN}.get(type(command))
        return told is not None and told() is self.end[0]

    def accept(self, command):
        if isinstance(command, Renew):
            self.until = self.now + command.lease
            self.counted = max(self.counted, command.attempts)
        elif isinstance(command, Release):
            self.forget()
        elif isinstance(command, Doubt):
            self.end = (UNKNOWN, None)
        else:
            self.end = (command.state, command.outcome)
            self.expires = None if command.ttl is None else self.now + command.ttl

    # --- what happens ----------------------------------------------------------------------------

    @rule(
        who=OWNERS,
        fingerprint=st.sampled_from("fffg"),
        lease=st.sampled_from([1.0, 10.0]),
        most=st.integers(1, 4),
        on_crash=st.sampled_from(["retry", "retry", "unknown"]),
    )
    def begins(self, who, fingerprint, lease, most, on_crash):
        """A caller comes with a name of its own; the one before in its place is gone."""
        self.names[who] = f"{who}{len(self.sent)}"
        self.send(Begin(self.names[who], fingerprint, lease, most, on_crash))

    @rule(
        who=OWNERS, epoch=st.integers(1, 4), lease=st.sampled_from([1.0, 10.0]), n=st.integers(0, 4)
    )
    def renews(self, who, epoch, lease, n):
        self.send(Renew(self.names[who], epoch, lease, n))

    @rule(who=OWNERS, epoch=st.integers(1, 4), state=STATES, ttl=st.sampled_from([None, 5.0]))
    def settles(self, who, epoch, state, ttl):
        outcome = str(len(self.sent)).encode()
        self.send(Settle(self.names[who], epoch, state, outcome, ttl))

    @rule(who=OWNERS, epoch=st.sampled_from([None, 1, 2, 3]))
    def releases(self, who, epoch):
        self.send(Release(self.names[who], epoch))

    @rule(who=OWNERS, epoch=st.integers(1, 4))
    def doubts(self, who, epoch):
        self.send(Doubt(self.names[who], epoch))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def comes_again(self, data):
        """A reply was lost, or a message was long on its way."""
        self.carry_out(data.draw(st.sampled_from(self.sent)))

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 6.0, 11.0]))
    def time_passes(self, seconds):
        self.now += seconds

    @precondition(lambda self: self.value is not None)
    @rule()
    def is_purged(self):
        """As a store does, by the time it was told to keep the record."""
        expires = decode(self.value).expires
        if expires is not None and expires <= self.now:
            self.value = None
            self.forget()

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def the_record_is_what_the_model_knows(self):
        if self.value is None:
            assert self.holder is None
            return
        record = decode(self.value)
        state, outcome = self.end or (RUNNING, None)
        assert (record.state, record.owner, record.epoch) == (state, self.holder, self.epoch)
        assert (record.attempts, record.fingerprint) == (self.counted, self.fingerprint)
        if state.is_terminal:
            assert bytes(record.outcome) == outcome
        assert record.expires == self.expires
        assert record.expires is None or record.state.is_terminal

    @invariant()
    def a_glimpse_shows_what_a_step_would(self):
        if self.value is not None and self.fingerprint is not None:
            seen = glimpse(self.value, self.fingerprint, self.now)
            told = reduce(self.value, Begin("nobody", self.fingerprint, 1.0, 9), self.now)[1]
            assert seen == (told if isinstance(told, Replay) else None)


TestStore = Store.TestCase
TestStore.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_metadata_is_kept_beside_the_outcome_and_not_before():
    """A record under way has none; one without any is written as it always was."""
    value = after(begin())
    change, answer = reduce(
        value, Settle("a", 1, RecordState.SUCCEEDED, b"1", 50.0, '{"by":1}'), 1.0
    )
    assert (answer, decode(value).metadata, decode(change.value).metadata) == (
        Done(),
        "",
        '{"by":1}',
    )
    change, _ = reduce(value, Settle("a", 1, RecordState.SUCCEEDED, b"1", 50.0), 1.0)
    assert b"metadata" not in change.value


def test_a_record_that_has_ended_has_nothing_of_its_lease():
    """It is shorter, and no rule reads it; one in doubt keeps it."""
    value = after(begin())
    change, _ = reduce(value, Settle("a", 1, RecordState.SUCCEEDED, b"1", 50.0), 1.0)
    assert b"lease" in value
    assert b"lease" not in change.value


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"state":"gone"}', b"\xff", b"[" * 100_000])
def test_a_damaged_record_says_so(value):
    """Whoever asks, and whatever for: the way to it is a person's."""
    for command in (Begin("me", "f", 30.0, 3), Renew("me", 1, 30.0), Forget()):
        with pytest.raises(StoredValueError, match="the record of the call is damaged"):
            reduce(value, command, 0.0)
    with pytest.raises(StoredValueError, match="the record of the call is damaged"):
        glimpse(value, "f", 0.0)
