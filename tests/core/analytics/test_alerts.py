"""Alert rules: against a naive model that keeps everything, and case by case."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstay.core.analytics.alerts import COUNTED, GROUPS, OTHER, AlertRule, Board
from mainstay.core.analytics.events import AlertCleared, AlertFired
from mainstay.core.circuit.events import CircuitStateChanged
from mainstay.core.limits.budget import spent
from mainstay.core.retry.events import (
    AttemptFailed,
    CallFailed,
    CallInterrupted,
    CallRefused,
    CallSucceeded,
    RetryAttempt,
    RetryExhausted,
)
from mainstay.errors import PolicyError

EVENTS = [
    RetryAttempt(),
    CallSucceeded(total_attempts=1),
    CallFailed(reason="not retryable"),
    CallFailed(reason=spent("retry", "b") + "; transient"),
    RetryExhausted(reason=spent("token", "b")),
    RetryExhausted(reason="no attempts left"),
    CallRefused(),
    CallInterrupted(),
    AttemptFailed(),
    CircuitStateChanged(from_state="closed", to_state="open"),
    CircuitStateChanged(from_state="half_open", to_state="open"),
    CircuitStateChanged(from_state="open", to_state="forced_open"),
    CircuitStateChanged(from_state="open", to_state="half_open"),
    CircuitStateChanged(from_state="metrics_only", to_state="metrics_only"),
]


def about(event, who):
    """The event, of somebody: the same name in all three ways of telling groups apart."""
    return type(event)(**{
        **{name: getattr(event, name) for name in event.__struct_fields__},
        "operation": who, "retry_category": who or None, "tenant_id": who or None,
    })  # fmt: skip


class Naive:
    """Keeps every event for ever, and looks at all of them each time."""

    def __init__(self, rule):
        self.rule = rule
        self.happened = []
        self.pending = {}
        self.on = {}

    def counts(self, event):
        """(seen, counted) of one event."""
        metric, name = self.rule.metric, type(event).__name__
        ends = {"CallSucceeded": 0, "CallFailed": 1, "RetryExhausted": 1, "CallRefused": 1}
        if metric == "failure_rate":
            return (1, ends[name]) if name in ends else (0, 0)
        opens = name == "CircuitStateChanged" and (event.from_state, event.to_state) in (
            ("closed", "open"), ("half_open", "open"),
        )  # fmt: skip
        is_counted = {
            "retries_per_minute": name == "RetryAttempt",
            "exhausted_per_minute": name == "RetryExhausted",
            "circuits_opened": opens,
            "budget_denied": "budget" in getattr(event, "reason", ""),
            "lost_events": False,
        }[metric]
        return (1, 1) if is_counted else (0, 0)

    def add(self, event, now):
        seen, counted = self.counts(event)
        if seen:
            group = "" if self.rule.per is None else getattr(event, self.rule.per) or ""
            self.happened.append((group, now, seen, counted))

    def lost(self, count, now):
        if self.rule.metric == "lost_events":
            self.happened.append(("", now, count, count))

    def value(self, group, now):
        width = self.rule.window / 10
        live = [e for e in self.happened if e[0] == group]
        live = [e for e in live if int(e[1] // width) > int(now // width) - 10]
        seen, counted = sum(e[2] for e in live), sum(e[3] for e in live)
        if self.rule.metric == "failure_rate":
            return seen, counted / seen if seen else 0.0
        if "per_minute" in self.rule.metric:
            return seen, counted / self.rule.window * 60.0
        return seen, counted

    def due(self, now):
        told = []
        for group in dict.fromkeys(e[0] for e in self.happened):
            seen, value = self.value(group, now)
            rule, limit = self.rule, self.rule.threshold
            if group in self.on:
                calm = value <= rule.clear if rule.above is not None else value >= rule.clear
                if not seen or calm:
                    told.append(("cleared", group, now - self.on.pop(group)))
                    self.pending.pop(group, None)
                continue
            past = value > limit if rule.above is not None else value < limit
            if not (past and seen >= rule.minimum):
                self.pending.pop(group, None)
            elif now - self.pending.setdefault(group, now) >= rule.for_seconds:
                self.on[group] = now
                told.append(("fired", group, value))
        return told


def told(events):
    """What a board says, as the model says it."""
    return sorted(
        ("fired", e.group, pytest.approx(e.value)) if isinstance(e, AlertFired)
        else ("cleared", e.group, pytest.approx(e.lasted_seconds))
        for e in events
    )  # fmt: skip


RULES = st.builds(
    lambda metric, side, level, window, minimum, per, lasting: AlertRule(
        "r", metric, **{side: level}, window=window, minimum=minimum, per=per, for_seconds=lasting
    ),
    st.sampled_from(sorted(COUNTED)), st.sampled_from(["above", "below"]),
    st.sampled_from([0.0, 0.5, 1.0, 2.0, 6.0]), st.sampled_from([1.0, 10.0, 60.0]),
    st.integers(1, 4), st.sampled_from([None, *GROUPS]), st.sampled_from([0.0, 1.0, 15.0]),
)  # fmt: skip
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("event"), st.sampled_from(EVENTS), st.sampled_from(["", "a", "b"])),
        st.tuples(st.just("lost"), st.integers(1, 3), st.just("")),
        st.tuples(st.just("wait"), st.sampled_from([0.05, 0.5, 1.0, 7.0, 70.0]), st.just("")),
        st.tuples(st.just("check"), st.none(), st.just("")),
    ),
    max_size=120,
)  # fmt: skip


@pytest.mark.req("CP-17.alert")
@settings(max_examples=300, deadline=None)
@given(RULES, STEPS)
def test_a_board_says_what_one_that_remembers_everything_says(rule, steps):
    """Fired once, cleared once, at the same looks, with the same values, for the same groups."""
    board, model, now = Board([rule]), Naive(rule), 1000.0
    for what, value, who in [*steps, ("check", None, "")]:
        if what == "wait":
            now += value
        elif what == "event":
            board.add(about(value, who), now)
            model.add(about(value, who), now)
        elif what == "lost":
            board.lost(value, now)
            model.lost(value, now)
        else:
            assert told(board.due(now)) == sorted(model.due(now))
            assert board.firing() == [("r", group) for group in board_order(board, model)]


def board_order(board, model):
    """The groups that are on, in the board's order."""
    return sorted(model.on, key=list(board._groups[0]).index)


@given(STEPS)
def test_memory_is_bounded_by_the_groups_that_are_kept(steps):
    """However many groups there are, those past the limit are one."""
    board = Board([AlertRule("r", "retries_per_minute", above=1, per="operation")], most=2)
    now = 0.0
    for number, (what, value, who) in enumerate(steps):
        now += value if what == "wait" else 0.0
        board.add(RetryAttempt(operation=f"{who}-{number}"), now)
        assert len(board._groups[0]) <= 3
    board.due(now)


# --- case by case ---------------------------------------------------------------------------------


def board_of(**options):
    return Board([AlertRule("storm", "retries_per_minute", **{"above": 2.0, **options})])


def retries(board, count, now, operation="fetch"):
    for _ in range(count):
        board.add(RetryAttempt(operation=operation), now)


def test_an_alert_fires_once_and_clears_once():
    """However often somebody looks in between."""
    board = board_of()
    retries(board, 3, 100.0)
    assert board.due(100.0) == [
        AlertFired(
            alert="storm", metric="retries_per_minute", value=3.0, threshold=2.0,
            window_seconds=60.0,
        )
    ]  # fmt: skip
    assert board.due(101.0) == []
    assert board.firing() == [("storm", "")]
    (cleared,) = board.due(200.0)
    assert (type(cleared), cleared.value, cleared.lasted_seconds) == (AlertCleared, 0.0, 100.0)
    assert board.due(300.0) == []


def test_a_value_at_the_brink_does_not_flap():
    """Between the threshold and where it clears, what is on stays on and what is off stays off."""
    board = Board([AlertRule("storm", "retries_per_minute", above=10.0, clear=5.0)])
    retries(board, 5, 100.0)
    retries(board, 3, 130.0)
    assert board.due(130.0) == []
    retries(board, 3, 140.0)
    assert len(board.due(140.0)) == 1
    assert board.due(165.0) == []  # 6 in the window
    (cleared,) = board.due(186.0)
    assert cleared.value == 3.0


def test_an_alert_waits_until_the_trouble_lasts():
    """A moment below the threshold starts the time anew."""
    board = board_of(for_seconds=30.0, window=10.0, above=1.0)
    for second in range(0, 25, 5):
        retries(board, 3, 100.0 + second)
        assert board.due(100.0 + second) == []
    assert board.due(140.0) == []  # nothing for a while
    for second in range(0, 30, 5):
        retries(board, 3, 200.0 + second)
        assert board.due(200.0 + second) == []
    retries(board, 3, 230.0)
    assert len(board.due(230.0)) == 1


def test_a_few_calls_are_no_reason():
    """One failure of one call is a rate of 1; a rule may ask for more calls."""
    board = Board([AlertRule("failing", "failure_rate", above=0.5, minimum=4)])
    for _ in range(3):
        board.add(CallFailed(operation="a"), 100.0)
    assert board.due(100.0) == []
    board.add(CallRefused(operation="a"), 100.0)
    assert [event.value for event in board.due(100.0)] == [1.0]


@pytest.mark.parametrize("per", GROUPS)
def test_each_group_has_an_alert_of_its_own(per):
    """And the event says whom it is about, in the field of that name."""
    board = Board([AlertRule("storm", "retries_per_minute", above=2.0, per=per)])
    for _ in range(3):
        board.add(RetryAttempt(**{per: "a"}), 100.0)
        board.add(RetryAttempt(**{"operation": "x", per: "b"}), 130.0)
    board.add(RetryAttempt(**{per: "c"}), 130.0)
    fired = board.due(130.0)
    assert [(event.group, getattr(event, per)) for event in fired] == [("a", "a"), ("b", "b")]
    assert [event.group for event in board.due(160.0)] == ["a"]


def test_groups_past_the_limit_are_one_and_quiet_ones_make_room():
    """A tenant for each request costs no memory."""
    board = Board([AlertRule("r", "retries_per_minute", above=2.0, per="tenant_id")], most=2)
    for number in range(5):
        board.add(RetryAttempt(tenant_id=f"t{number}"), 100.0)
    assert [event.group for event in board.due(100.0)] == [OTHER]
    board.add(RetryAttempt(tenant_id="t9"), 500.0)
    assert "t9" in board._groups[0]


def test_a_group_that_is_on_is_not_forgotten_for_another():
    """Its clearing will still be told."""
    board = Board([AlertRule("r", "retries_per_minute", above=2.0, per="tenant_id")], most=1)
    for _ in range(3):
        board.add(RetryAttempt(tenant_id="t1"), 100.0)
    assert [event.group for event in board.due(100.0)] == ["t1"]
    board.add(RetryAttempt(tenant_id="t2"), 500.0)
    assert [(type(e), e.group) for e in board.due(500.0)] == [(AlertCleared, "t1")]


def test_events_of_several_rules_are_told_in_the_order_of_the_rules():
    """One event may matter to many."""
    board = Board([
        AlertRule("gone", "exhausted_per_minute", above=0.0),
        AlertRule("failing", "failure_rate", above=0.5),
        AlertRule("spent", "budget_denied", above=0.0),
        AlertRule("lossy", "lost_events", above=1.0),
    ])  # fmt: skip
    board.add(RetryExhausted(reason=spent("retry", "b")), 100.0)
    board.lost(0, 100.0)
    assert [event.alert for event in board.due(100.0)] == ["gone", "failing", "spent"]
    board.lost(2, 100.0)
    assert [(event.alert, event.value) for event in board.due(100.0)] == [("lossy", 2.0)]


# --- the rule itself ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "one of the two"),
        ({"above": 1.0, "below": 2.0}, "one of the two"),
        ({"above": -1.0}, "threshold = -1.0"),
        ({"above": 1.0, "clear": 2.0}, "at most the threshold, 1"),
        ({"below": 1.0, "clear": 0.5}, "at least the threshold, 1"),
        ({"above": 1.0, "metric": "luck"}, "metric = 'luck'"),
        ({"above": 1.0, "per": "call_id"}, "per = 'call_id'"),
        ({"above": 1.0, "window": 0.5}, "window = 0.5"),
        ({"above": 1.0, "minimum": 0}, "minimum = 0"),
        ({"above": 1.0, "for_seconds": -1.0}, "for_seconds = -1.0"),
        ({"above": 1.0, "name": ""}, "name = ''"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(options, text):
    """Every problem is named, with its value."""
    given = {"name": "r", "metric": "failure_rate", **options}
    with pytest.raises(PolicyError, match=text):
        AlertRule(given.pop("name"), given.pop("metric"), **given)


def test_a_rule_on_too_little_fires_below_and_clears_above():
    """The mirror image."""
    rule = AlertRule("quiet", "retries_per_minute", below=4.0)
    assert (rule.clear, rule.threshold) == (5.0, 4.0)
    assert (rule.is_past(3.9), rule.is_past(4.0)) == (True, False)
    assert (rule.is_cleared_by(4.9), rule.is_cleared_by(5.0)) == (False, True)
    assert rule.value(0, 0) == 0.0
    assert AlertRule("f", "failure_rate", above=0.5).value(0, 0) == 0.0


def test_a_clock_that_is_set_back_tells_no_negative_time():
    """How long an alert was on is never below zero."""
    board = board_of()
    retries(board, 3, 5000.0)
    assert len(board.due(5000.0)) == 1
    (cleared,) = board.due(10.0)
    assert cleared.lasted_seconds == 0.0


@pytest.mark.parametrize(
    ("event", "counts"),
    [
        (CircuitStateChanged(from_state="closed", to_state="open"), True),
        (CircuitStateChanged(from_state="half_open", to_state="forced_open"), True),
        (CircuitStateChanged(from_state="open", to_state="forced_open"), False),
        (CircuitStateChanged(from_state="open", to_state="half_open"), False),
        (CallSucceeded(), False),
    ],
)
def test_a_circuit_counts_as_opened_when_it_was_not_open_before(event, counts):
    """And no other event does."""
    assert COUNTED["circuits_opened"](event) is counts
