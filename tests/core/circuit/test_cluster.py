"""Tables of nodes that share a circuit: who has a vote, what a newcomer takes over."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from mainstay.core.base.change import KEEP
from mainstay.core.base.clock_jumps import Jump
from mainstay.core.circuit.breaker import Circuit, CircuitState, Signal, record, voted
from mainstay.core.circuit.cluster import (
    Order,
    Seat,
    Table,
    counted_elsewhere,
    decode,
    encode,
    give,
    has_recovered,
    is_live,
    is_voted_open,
    prospect,
    sit,
    without_ended,
)
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.circuit.window import Evidence

SILENCE = 10.0
OPEN = Circuit(state=CircuitState.OPEN, generation=1, since=100.0, open_seconds=30.0)
CLOSED = Circuit(since=100.0)


def begins_with(value, node, now):
    """What a new node begins with, by what is stored."""
    return prospect(Table() if value is None else decode(value), node, now, SILENCE)


def inherited(value, node, now, _silence):
    return begins_with(value, node, now).circuit


def obeyed_before(value, node, now, _silence):
    return begins_with(value, node, now).obeyed


def table(**circuits):
    return Table({name: Seat(100.0, circuit) for name, circuit in circuits.items()})


@pytest.mark.parametrize(
    ("circuits", "seconds"),
    [
        ({"a": OPEN}, 30.0),
        ({"a": OPEN, "b": CLOSED}, 0.0),
        ({"a": OPEN, "b": OPEN}, 30.0),
        ({"a": OPEN, "b": CLOSED, "c": CLOSED}, 0.0),
        ({"a": OPEN, "b": OPEN, "c": CLOSED}, 30.0),
        ({"a": OPEN, "b": OPEN, "c": CLOSED, "d": CLOSED}, 0.0),
        ({"a": OPEN, "b": OPEN, "c": OPEN, "d": CLOSED, "e": CLOSED}, 30.0),
    ],
)
def test_more_than_half_must_have_it_open(circuits, seconds):
    """One bad node opens nobody else's, and half of the nodes are not most of them."""
    assert is_voted_open(table(**circuits), "a", 100.0, SILENCE) == seconds


def test_who_was_opened_by_the_others_has_no_vote():
    """Or an opening would keep itself alive for ever."""
    opened = voted(BreakerSettings(), CLOSED, 30.0, 100.0)
    assert opened.state is CircuitState.OPEN
    assert opened.reason == Signal.VOTED.value
    assert is_voted_open(table(a=opened, b=OPEN, c=CLOSED), "c", 100.0, SILENCE) == 0.0


def test_a_vote_leads_from_closed_to_open_only():
    """Whoever is open, half open or under orders stays as they are."""
    settings = BreakerSettings()
    for state in CircuitState:
        circuit = Circuit(state=state, generation=7, since=100.0, open_seconds=1000.0)
        after = voted(settings, circuit, 5.0, 100.0)
        assert (after == circuit) is (state is not CircuitState.CLOSED)


def test_a_node_opened_by_vote_that_fails_its_probe_votes_from_then_on():
    """Now it has seen it for itself."""
    settings = BreakerSettings(recovery_timeout=30.0)
    from mainstay.core.circuit.breaker import admit

    opened = voted(settings, CLOSED, 5.0, 100.0)
    half_open, ticket = admit(settings, opened, 105.0)
    relapsed = record(settings, half_open, ticket, 106.0, failed=True)
    assert (relapsed.state, relapsed.is_voted) == (CircuitState.OPEN, False)


def test_the_silent_and_the_departed_have_no_vote():
    """Neither a process that was killed nor one that ended."""
    seats = {
        "a": Seat(100.0, OPEN),
        "gone": Seat(80.0, OPEN),
        "left": Seat(100.0, OPEN, has_left=True),
        "b": Seat(100.0, CLOSED),
    }
    assert is_voted_open(Table(seats), "b", 100.0, SILENCE) == 0.0
    assert [is_live(seat, 100.0, SILENCE) for seat in seats.values()] == [True, False, False, True]


def test_an_opening_that_is_over_is_no_vote():
    """The time of the store decides."""
    assert is_voted_open(table(a=OPEN), "a", 105.0, SILENCE) == 25.0
    assert is_voted_open(Table({"a": Seat(135.0, OPEN)}), "a", 135.0, SILENCE) == 0.0
    assert is_voted_open(table(a=OPEN), "stranger", 105.0, SILENCE) == 0.0


def test_a_quorum_may_be_a_number_of_nodes():
    """One open node opens all, however many have it closed; two are more than there are."""
    found = table(a=OPEN, b=CLOSED, c=CLOSED)
    assert is_voted_open(found, "b", 105.0, SILENCE, 1) == 25.0
    assert is_voted_open(found, "b", 105.0, SILENCE, 2) == 0.0
    assert prospect(found, "stranger", 105.0, SILENCE, 1).open_until == 130.0
    assert prospect(found, "stranger", 105.0, SILENCE).open_until == 0.0


def test_a_newcomer_takes_over_where_nobody_is_left():
    """After a restart or a kill it goes on with what the last one knew; not beside the living."""
    failing = Circuit(failures=4, since=50.0, probes=((1, 2.0),))
    change, _ = sit(None, "old", Seat(0.0, failing), 100.0, SILENCE)
    assert inherited(change.value, "new", 105.0, SILENCE) is None, "the old one may be alive"
    taken = inherited(change.value, "new", 111.0, SILENCE)
    assert (taken.failures, taken.probes) == (4, ())
    change, _ = sit(change.value, "old", Seat(0.0, failing, has_left=True), 112.0, SILENCE)
    assert inherited(change.value, "new", 112.1, SILENCE).failures == 4
    assert inherited(None, "new", 0.0, SILENCE) is None
    assert inherited(encode(Table({"b": Seat(0.0)})), "new", 99.0, SILENCE) is None


def test_of_several_who_were_last_the_most_cautious_is_believed():
    """The circuits are merged."""
    value = encode(Table({"a": Seat(0.0, CLOSED), "b": Seat(0.0, OPEN), "c": Seat(0.0, CLOSED)}))
    assert inherited(value, "new", 100.0, SILENCE).state is CircuitState.OPEN


def test_seats_of_the_dead_are_cleared_when_somebody_is_there():
    """The table does not grow with every restart; where all have left, it is kept for the next."""
    value = None
    for number in range(20):
        change, found = sit(value, f"n{number}", Seat(0.0, CLOSED), number * 100.0, SILENCE)
        value = change.value
        assert len(found.seats) == 1
    change, found = sit(value, "n19", Seat(0.0, CLOSED, has_left=True), 1950.0, SILENCE)
    assert list(found.seats) == ["n19"]
    assert change.expires > 1950.0


def test_a_newcomer_takes_over_from_those_of_its_host_that_have_left():
    """Short-lived processes count together beside one that lives long; other hosts do not."""
    failing = Circuit(failures=4, since=50.0)
    value = None
    for node, seat in [
        ("a:1:x", Seat(0.0, CLOSED)),
        ("a:2:x", Seat(0.0, failing, has_left=True)),
        ("b:1:x", Seat(0.0, OPEN, has_left=True)),
    ]:
        change, found = sit(value, node, seat, 100.0, SILENCE)
        value = change.value
    assert list(found.seats) == ["a:1:x", "a:2:x", "b:1:x"]
    assert inherited(value, "a:3:x", 101.0, SILENCE).failures == 4
    assert inherited(value, "c:1:x", 101.0, SILENCE) is None
    change, found = sit(value, "a:3:x", Seat(0.0, CLOSED), 101.0, SILENCE)
    assert list(found.seats) == ["a:1:x", "a:3:x", "b:1:x"], "it was taken over"
    assert inherited(change.value, "a:4:x", 101.0, SILENCE) is None


def test_of_those_that_have_left_only_some_stay_beside_the_living():
    """A table does not grow with every process that comes and goes."""
    change, _ = sit(None, "a:0:x", Seat(0.0, CLOSED), 100.0, SILENCE)
    for number in range(40):
        seat = Seat(0.0, CLOSED, has_left=True)
        change, found = sit(change.value, f"b{number}:1:x", seat, 100.0 + number / 10, SILENCE)
    assert len(found.seats) == 1 + 16
    assert list(found.seats)[-1] == "b39:1:x"


def test_budgets_add_up_what_the_others_count():
    """Of those who are there, and not one's own."""
    seats = {
        "me": Seat(100.0, counts=(5, 1)),
        "b": Seat(100.0, counts=(10, 2)),
        "c": Seat(99.0, counts=(100, 3)),
        "gone": Seat(50.0, counts=(1000, 1000)),
    }
    assert counted_elsewhere(Table(seats), "me", 100.0, SILENCE) == (110, 5)


@given(
    st.dictionaries(st.text(min_size=1, max_size=5), st.booleans(), min_size=1, max_size=9),
    st.floats(0.0, 29.0),
)
def test_the_vote_is_a_majority_of_the_living(votes, later):
    """The same for every node that asks, and never by half."""
    seats = {n: Seat(100.0 + later, OPEN if is_open else CLOSED) for n, is_open in votes.items()}
    now = 100.0 + later
    answers = {is_voted_open(Table(seats), node, now, SILENCE) for node in votes}
    assert len(answers) == 1
    assert (answers.pop() > 0.0) is (sum(votes.values()) * 2 > len(votes))
    assert decode(encode(Table(seats))) == Table(seats)


# --- an operator's orders -------------------------------------------------------------------------


def given(value, signal=Signal.RESET, now=100.0):
    """The table after one more order."""
    change, _ = give(value, signal, "ann", "it is back", now)
    return change.value


def test_an_order_has_a_number_and_says_who_when_and_why():
    """The next one has the next number, and takes its place."""
    value = given(given(encode(table(a=OPEN))), Signal.FORCE_OPEN, 101.0)
    order = decode(value).order
    assert order == Order(2, Signal.FORCE_OPEN, "ann", 101.0, "it is back")
    assert give(None, Signal.RESET, "ann", "", 0.0) == (KEEP, None), "there is no such circuit"


def test_an_order_stays_on_the_table():
    """Whoever sits down leaves it there."""
    change, found = sit(given(encode(table(a=OPEN))), "b", Seat(0.0, CLOSED), 101.0, SILENCE)
    assert found.order.number == decode(change.value).order.number == 1


def test_an_order_that_stands_outlives_the_day():
    """Nobody may be there for a weekend; a reset is over once there is nobody left to reset."""
    value = encode(table(a=OPEN))
    assert give(value, Signal.FORCE_OPEN, "ann", "", 100.0)[0].expires is None
    assert give(value, Signal.RESET, "ann", "", 100.0)[0].expires == 100.0 + 86_400.0


def test_a_circuit_that_is_open_for_a_week_is_remembered_for_it():
    """A process that starts on the third day is refused; a closed one is forgotten after a day."""
    day, week = 86_400.0, 7 * 86_400.0
    long = Circuit(state=CircuitState.OPEN, generation=1, since=100.0, open_seconds=week)
    change, _ = sit(None, "a", Seat(0.0, long, has_left=True), 160.0, SILENCE)
    assert change.expires == 100.0 + week
    change, found = sit(change.value, "b", Seat(0.0, CLOSED, has_left=True), 3 * day, SILENCE)
    assert set(found.seats) == {"a", "b"}
    assert inherited(change.value, "c", 4 * day, SILENCE).state is CircuitState.OPEN
    _, found = sit(change.value, "c", Seat(0.0, CLOSED, has_left=True), 100.0 + week, SILENCE)
    assert set(found.seats) == {"c"}


def test_who_has_yet_to_follow_an_order_has_no_vote():
    """Or the others' evidence from before a reset would open at once what was reset."""
    old = decode(given(encode(table(a=OPEN, b=OPEN))))
    assert is_voted_open(old, "a", 100.0, SILENCE) == 0.0
    anew = Table({name: Seat(100.0, OPEN, obeyed=1) for name in "ab"}, old.order)
    assert is_voted_open(anew, "a", 100.0, SILENCE) == 30.0


def test_a_new_node_follows_what_its_forebears_did_not():
    """An open circuit that nobody was there to reset is reset by the next one."""
    left = Table({"old": Seat(100.0, OPEN, has_left=True)})
    assert obeyed_before(given(encode(left)), "new", 101.0, SILENCE) == 0
    followed = Table({"old": Seat(100.0, OPEN, has_left=True, obeyed=1)})
    assert obeyed_before(given(encode(followed)), "new", 101.0, SILENCE) == 1


def test_a_new_node_that_takes_over_nothing_follows_what_stands():
    """It has nothing to reset, and a reset of last week says nothing of its own failures."""
    there = encode(table(a=OPEN))
    assert obeyed_before(given(there), "new", 101.0, SILENCE) == 1
    assert obeyed_before(given(there, Signal.FORCE_CLOSE), "new", 101.0, SILENCE) == 0
    assert obeyed_before(there, "new", 101.0, SILENCE) == 0
    assert obeyed_before(None, "new", 101.0, SILENCE) == 0


def test_a_table_from_before_there_were_orders_is_read():
    """A store outlives the version that wrote it."""
    found = decode(b'{"seats":{"a":{"seen":1.0,"circuit":null,"counts":[0,0],"has_left":false}}}')
    assert (found.order, found.seats["a"].obeyed, found.seats["a"].silence) == (None, 0, 10.0)


# --- a clock that is set --------------------------------------------------------------------------

DAY = 86_400.0


def test_after_the_clock_was_set_back_a_dead_node_is_live_for_its_silence_at_most():
    """Whoever takes a seat counts the seats of the future from now on; not for the day."""
    before = encode(Table({"a": Seat(DAY + 100.0, OPEN), "b": Seat(DAY + 100.0, CLOSED)}))
    change, found = sit(before, "b", Seat(0.0, CLOSED), 100.0, SILENCE)
    assert found.seats["a"].seen == 100.0
    assert is_live(found.seats["a"], 100.0, SILENCE)
    _, later = sit(change.value, "b", Seat(0.0, CLOSED), 100.0 + SILENCE, SILENCE)
    assert set(later.seats) == {"b"}


def test_to_who_only_reads_a_seat_of_the_future_is_not_live():
    """Nobody has renewed it since the clock was set back."""
    assert is_live(Seat(105.0), 100.0, SILENCE)
    assert not is_live(Seat(100.0 + DAY), 100.0, SILENCE)


def test_a_newcomer_counts_the_seats_of_the_future_as_live():
    """Their nodes have not renewed them yet on the clock of now: there is nothing to take over."""
    before = encode(Table({"a": Seat(DAY + 100.0, OPEN)}))
    assert begins_with(before, "b", 100.0).circuit is None
    assert begins_with(before, "b", DAY + 200.0).circuit == OPEN


def test_an_open_time_of_the_future_lasts_no_longer_than_its_length():
    """A circuit that opened before the clock was set back is voted for with its whole time."""
    opened = Circuit(state=CircuitState.OPEN, since=DAY + 100.0, open_seconds=30.0)
    found = Table({"a": Seat(100.0, opened)})
    assert is_voted_open(found, "a", 100.0, SILENCE) == 30.0


def test_after_a_jump_ahead_the_others_are_still_there():
    """They were not silent for the day by which the clock was set: a vote of one is no quorum."""
    before = encode(Table({"a": Seat(100.0, OPEN), "b": Seat(100.0, CLOSED)}))
    now, jumps = 101.0 + DAY, (Jump(101.0, DAY),)
    _, found = sit(before, "a", Seat(0.0, OPEN), now, SILENCE, jumps)
    assert set(found.seats) == {"a", "b"}
    assert found.seats["b"].seen == now - 1.0
    assert is_voted_open(found, "a", now, SILENCE) == 0.0
    _, found = sit(before, "a", Seat(0.0, OPEN), now, SILENCE)
    assert set(found.seats) == {"a"}, "a process that did not see it cannot know"


# --- a node that is new ---------------------------------------------------------------------------


def test_a_new_node_begins_open_if_most_of_the_live_ones_are():
    """It counts as one that has it closed, so one bad node alone opens no new one."""
    assert begins_with(encode(table(a=OPEN)), "new", 105.0).open_until == 0.0
    found = begins_with(encode(table(a=OPEN, b=OPEN)), "new", 105.0)
    assert (found.open_until, found.circuit) == (130.0, None)
    assert begins_with(encode(table(a=OPEN, b=OPEN, c=CLOSED)), "new", 105.0).open_until == 0.0


def test_a_process_that_has_ended_has_left_its_seat():
    """One that was killed a moment ago: the next one of its host need not wait for its silence."""
    seats = {
        "h:1:x": Seat(100.0, OPEN, process="p1"),
        "h:2:x": Seat(100.0, CLOSED, process="p2"),
        "h:3:x": Seat(100.0, CLOSED),
    }
    found = without_ended(Table(seats), frozenset({"p1"}))
    assert [seat.has_left for seat in found.seats.values()] == [True, False, False]
    assert prospect(found, "h:4:x", 101.0, SILENCE).circuit.state is CircuitState.OPEN
    assert prospect(Table(seats), "h:4:x", 101.0, SILENCE).circuit is None


@pytest.mark.parametrize(
    ("circuit", "rank"),
    [
        (Circuit(), 0),
        (Circuit(failures=1), 1),
        (Circuit(openings=1), 1),
        (Circuit(evidence=Evidence(calls=3, failed=1)), 1),
        (Circuit(evidence=Evidence(calls=3, slow=1)), 1),
        (Circuit(evidence=Evidence(buckets=((1, 5, 0, 0), (2, 5, 1, 0)))), 1),
        (Circuit(evidence=Evidence(buckets=((1, 5, 0, 1),))), 1),
        (Circuit(evidence=Evidence(calls=3, buckets=((1, 5, 0, 0),))), 0),
        (OPEN, 2),
        (Circuit(state=CircuitState.FORCED_CLOSED), 2),
    ],
)
def test_what_matters_to_a_new_node(circuit, rank):
    """What is not closed, and closed circuits with failures that count."""
    value = encode(Table({"old": Seat(0.0, circuit, has_left=True)}))
    assert begins_with(value, "new", 100.0).rank == rank


def test_orders_and_votes_matter_most():
    """An order that stands, whoever is there; a reset only to those who have something to reset."""
    value = encode(table(a=CLOSED))
    assert begins_with(None, "new", 100.0).rank == 0
    assert begins_with(given(value, Signal.FORCE_OPEN), "new", 101.0).rank == 3
    assert begins_with(given(value), "new", 101.0).rank == 0
    assert begins_with(encode(table(a=OPEN, b=OPEN)), "new", 101.0).rank == 3


# --- a probe that succeeded -----------------------------------------------------------------------


def recovered(at):
    return Circuit(generation=3, since=at, reason=Signal.RECOVERED.value, openings=1)


def test_a_probe_that_succeeded_closes_what_was_open_by_then():
    """Not what has opened since, and a circuit that was closed all along says nothing."""
    assert has_recovered(table(a=OPEN, b=recovered(110.0)), "a", 100.0)
    assert not has_recovered(table(a=OPEN, b=recovered(90.0)), "a", 100.0)
    assert not has_recovered(table(a=OPEN, b=CLOSED), "a", 100.0)
    assert not has_recovered(table(a=recovered(110.0), b=recovered(120.0)), "a", 100.0)
    assert not has_recovered(Table({"a": Seat(100.0)}), "a", 100.0)
    probing = Circuit(state=CircuitState.HALF_OPEN, generation=2, since=130.0, open_seconds=30.0)
    assert has_recovered(table(a=probing, b=recovered(110.0)), "a", 100.0)


def test_a_circuit_closed_by_another_nodes_probe_closes_no_further_one():
    """Its time is later than the probe's: one that opened in between has evidence of its own."""
    followed = Circuit(generation=3, since=110.0, reason=Signal.RECOVERED_ELSEWHERE.value)
    assert not has_recovered(table(a=OPEN, b=followed), "a", 100.0)


def test_a_probe_from_before_an_order_says_nothing():
    """The order has the last word."""
    seats = {"a": Seat(100.0, OPEN, obeyed=1), "b": Seat(100.0, recovered(110.0))}
    order = Order(1, Signal.RESET, "ann", 100.0)
    assert not has_recovered(Table(seats, order), "a", 100.0)
    assert has_recovered(Table(seats), "a", 100.0)


def test_what_was_open_before_a_probe_succeeded_has_no_vote():
    """Or a node that has just closed would be opened again by those that have yet to."""
    assert is_voted_open(table(a=OPEN, b=OPEN, c=recovered(110.0)), "c", 111.0, 100.0) == 0.0
    assert is_voted_open(table(a=OPEN, b=OPEN, c=recovered(90.0)), "c", 111.0, 100.0) > 0.0


def test_those_whose_place_was_taken_are_gone_also_if_the_new_node_leaves_at_once():
    """A short process: two failures, then one that succeeds; the third has none to count."""
    change, _ = sit(None, "h:1:x", Seat(0.0, Circuit(failures=2), has_left=True), 100.0, SILENCE)
    found = begins_with(change.value, "h:2:x", 101.0)
    assert (found.circuit.failures, found.places) == (2, {"h:1:x"})
    seat = Seat(0.0, Circuit(failures=0), has_left=True)
    change, table = sit(change.value, "h:2:x", seat, 102.0, SILENCE, places=found.places)
    assert list(table.seats) == ["h:2:x"]
    assert begins_with(change.value, "h:3:x", 103.0).circuit.failures == 0


def test_of_several_that_have_left_the_most_failures_count():
    """They ran side by side."""
    seats = {
        "h:1:x": Seat(100.0, Circuit(failures=2, since=1.0), has_left=True),
        "h:2:x": Seat(100.0, Circuit(failures=1, since=9.0), has_left=True),
    }
    assert begins_with(encode(Table(seats)), "h:3:x", 101.0).circuit.failures == 2


class OldCircuit(Struct):
    """A circuit as versions before permits have it."""

    state: str = "closed"
    since: float = 0.0


class OldSeat(Struct):
    seen: float
    circuit: OldCircuit | None = None
    silence: float = 10.0


class OldTable(Struct):
    seats: dict[str, OldSeat] = {}


def test_a_process_of_an_older_version_reads_the_table():
    """And what it writes is read here, without the fields that it has dropped."""
    written = encode(Table({"a": Seat(100.0, OPEN, process="p")}))
    old = msgspec.json.decode(written, type=OldTable)
    assert old.seats["a"].circuit.state == "open"
    again = decode(msgspec.json.encode(old)).seats["a"]
    assert (again.circuit.state, again.process) == (CircuitState.OPEN, "")


def test_a_table_of_a_later_version_is_read():
    """What this version does not know is left out, and what it knows is used."""
    found = decode(b'{"seats":{"a":{"seen":1.0,"circuit":{"state":"open","later":1}}},"more":[]}')
    assert found.seats["a"].circuit.state is CircuitState.OPEN
