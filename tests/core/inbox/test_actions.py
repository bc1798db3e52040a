"""Acting on items: one wins, always; what was decided stays decided until it is carried out."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from mainstay.core.base.change import KEEP
from mainstay.core.inbox.actions import (
    Already,
    Gone,
    Illegal,
    Stale,
    Won,
    act,
    close,
    is_json,
    problem_with,
    resolve,
)
from mainstay.core.inbox.items import ACTIONS, Item, decode, encode, put

ITEM = Item(kind="unknown_outcome", subject="a", operation="charge", text="?", revision=3)


def acted(item=ITEM, action="retry", by="ann", why="", evidence="", revision=3, now=5.0, token=""):
    value = None if item is None else encode(item)
    return act(value, action, by, why, evidence, revision, now, token=token)


def test_a_decision_is_kept_with_who_when_and_why():
    """And the item waits for it to be carried out."""
    change, answer = acted(why="it is back", token="t1")
    assert isinstance(answer, Won)
    assert answer.won
    kept = decode(change.value)
    assert kept == answer.item
    assert (kept.status, kept.revision, kept.actions) == ("decided", 4, ())
    decision = kept.decision
    assert (decision.action, decision.by, decision.at) == ("retry", "ann", 5.0)
    assert (decision.why, decision.token) == ("it is back", "t1")
    assert kept.history[-1].text == "ann decided 'retry': it is back"
    assert answer.text == "decided, and not carried out yet"


def test_the_second_is_told_who_was_first_and_what_was_decided():
    """Also the same person; only the very same decision, whose reply was lost, has won before."""
    _, first = acted(token="t1")
    change, second = acted(first.item, "abandon", "bob", "enough", revision=None)
    assert (change, second) == (KEEP, Already(first.item))
    assert (second.won, second.text) == (False, "ann has decided 'retry' before")
    assert acted(first.item, revision=None, token="t2")[1] == Already(first.item)
    assert acted(first.item, revision=None)[1] == Already(first.item)
    assert acted(first.item, token="t1") == (KEEP, Won(first.item))


def test_one_that_was_closed_before_decisions_were_kept_says_so():
    """By the first version."""
    answer = acted(replace(ITEM, status="done"))[1]
    assert answer.text == "it was closed before (done)"


def test_whoever_looked_at_another_state_is_told():
    """Nothing is decided on what one has not seen."""
    change, answer = acted(revision=2)
    assert (change, answer) == (KEEP, Stale(3))
    assert answer.text == "it has changed since it was looked at: its revision is 3"
    assert isinstance(acted(revision=None)[1], Won)


def test_what_is_not_there_cannot_be_decided():
    """And says so."""
    assert acted(None) == (KEEP, Gone())
    assert (Gone().won, Gone().text) == (False, "there is no such item")


@pytest.mark.parametrize(
    ("action", "why", "evidence", "told"),
    [
        ("release", "x", "1", "'release' is no action for unknown_outcome"),
        ("abandon", " ", "", "to abandon needs a reason"),
        ("mark_done", "x", " ", "to mark it done needs evidence"),
        ("mark_done", "x", "yes", "the evidence must be the outcome, as JSON"),
        ("mark_done", "", "yes", "the evidence must be the outcome, as JSON"),
        ("mark_done", "", '{"id": 7}', ""),
        ("abandon", "x", "", ""),
        ("retry", "", "", ""),
    ],
)
def test_an_action_needs_what_it_needs(action, why, evidence, told):
    """And what is not legal names what is."""
    change, answer = acted(action=action, why=why, evidence=evidence)
    assert problem_with(ITEM, action, why, evidence) == told
    if told:
        assert (change, answer) == (KEEP, Illegal(told, ACTIONS["unknown_outcome"]))
        assert not answer.won
    else:
        assert isinstance(answer, Won)


def test_evidence_of_another_kind_is_any_text():
    """An alert has no outcome."""
    alert = replace(ITEM, kind="alert")
    assert problem_with(alert, "mark_done", "", "it was the deploy") == ""


@pytest.mark.parametrize("kind", ACTIONS)
def test_every_kind_takes_all_its_actions_and_no_other(kind):
    """With a reason and evidence."""
    item = replace(ITEM, kind=kind)
    for action in ("retry", "mark_done", "abandon", "release", "explode"):
        answer = acted(item, action, why="so", evidence="1")[1]
        assert isinstance(answer, Won if action in ACTIONS[kind] else Illegal)


def test_what_was_carried_out_is_closed_once():
    """And never by the decision of another occasion."""
    _, won = acted()
    change, is_closed = close(encode(won.item), won.item.decision, "released", 9.0)
    kept = decode(change.value)
    assert is_closed
    assert change.expires == 9.0 + 90 * 86_400.0, "so that closed items do not pile up"
    assert (kept.status, kept.result, kept.revision) == ("closed", "released", 5)
    assert kept.history[-1].text == "released"
    assert Won(kept).text == "released"
    assert close(change.value, won.item.decision, "again", 9.0) == (KEEP, False)
    assert close(None, won.item.decision, "again", 9.0) == (KEEP, False)
    other = replace(won.item.decision, by="bob")
    assert close(encode(won.item), other, "again", 9.0) == (KEEP, False)


def test_json_is_told_from_other_texts():
    """One value, whole."""
    assert [is_json(text) for text in ("7", '"a"', "{}", "", "{", "7 8", "no")] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip


class Acting(RuleBasedStateMachine):
    """Raising, deciding, carrying out and dying between, against a model of three words."""

    @initialize()
    def begin(self):
        self.value, self.status, self.decided, self.now = None, "absent", None, 0.0
        self.revisions, self.wins, self.occasions = [], 0, 0

    def _write(self, change):
        self.now += 1.0
        if change is not KEEP:
            self.value = change.value
            self.revisions.append(decode(self.value).revision)

    @rule(is_new=st.booleans(), is_other=st.booleans())
    def raised(self, is_new, is_other):
        self.occasions += is_other
        item = Item(
            kind="unknown_outcome", subject="s", operation="o", text="t",
            occasion=str(self.occasions + 1),
        )  # fmt: skip
        fresh = self.value is None or decode(self.value).occasion != item.occasion
        change, _ = put(self.value, item, self.now, is_new=is_new)
        self._write(change)
        is_again = self.status == "closed" and (is_new or fresh)
        if self.status == "absent" or is_again or (self.status == "decided" and fresh):
            self.status, self.decided = "open", None

    @rule(
        who=st.sampled_from(["ann", "bob"]),
        action=st.sampled_from(["retry", "abandon", "mark_done", "release"]),
        off=st.sampled_from([None, 0, 0, 1]),
    )
    def decide(self, who, action, off):
        revision = None
        if off is not None and self.value is not None:
            revision = decode(self.value).revision - off
        change, answer = act(self.value, action, who, "so", "1", revision, self.now)
        self._write(change)
        if self.status == "absent":
            assert answer == Gone()
        elif self.status != "open":
            assert isinstance(answer, Already)
            assert (answer.item.decision.by, answer.item.decision.action) == self.decided
        elif revision is not None and off:
            assert isinstance(answer, Stale)
        elif action == "release":
            assert isinstance(answer, Illegal)
        else:
            assert isinstance(answer, Won)
            self.status, self.decided = "decided", (who, action)

    @rule()
    def carried_out(self):
        item = None if self.value is None else decode(self.value)
        if item is None or item.decision is None:
            return
        change, is_closed = close(self.value, item.decision, "did", self.now)
        self._write(change)
        assert is_closed == (self.status == "decided")
        self.status = "closed" if is_closed else self.status

    @invariant()
    def the_item_is_as_the_model_says(self):
        if getattr(self, "value", None) is None:
            return
        item = decode(self.value)
        assert item.status == self.status
        decision = item.decision
        assert (None if decision is None else (decision.by, decision.action)) == self.decided
        assert self.revisions == list(range(1, len(self.revisions) + 1))


TestActing = Acting.TestCase
TestActing.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize(
    "text",
    ["[" * 150 + "]" * 150, "[" * 100_000, '"\ud800"', '"\\ud800"'],
    ids=["deep", "too deep to read", "half a letter", "half a letter, escaped"],
)
def test_what_cannot_be_recorded_is_no_evidence(text):
    """It would be decided and never carried out, and nobody could decide otherwise."""
    change, answer = act(encode(ITEM), "mark_done", "ann", "", text, None, 5.0)
    assert (change, answer.won) == (KEEP, False)


def test_only_those_who_are_named_may_decide():
    """An item for a group of operators is refused to every other one."""
    named = {"deciders": ["ann", "zoe"]}
    item = Item(kind="governance", subject="a", operation="etl", text="?", data=named)
    change, answer = act(encode(item), "abandon", "bob", "no", "", 1, now=5.0)
    assert (change, answer.text) == (KEEP, "only ann, zoe may decide about it")
    assert act(encode(item), "abandon", "zoe", "no", "", 1, now=5.0)[1].won


def test_an_open_item_whose_matter_was_resolved_elsewhere_is_closed():
    """With the reason, once; whoever acts on it later finds that."""
    change, item = resolve(encode(ITEM), "it was replayed by ben", now=5.0)
    assert decode(change.value) == item
    assert (item.status, item.result, item.revision) == ("closed", "it was replayed by ben", 4)
    assert resolve(change.value, "again", now=6.0) == (KEEP, None)
    assert act(change.value, "retry", "ann", "", "", 3, 7.0)[0] is KEEP


def test_a_decided_item_is_closed_by_its_decision_alone():
    """Nor is one that is gone."""
    decided, _ = acted()
    assert resolve(decided.value, "it was replayed", now=6.0) == (KEEP, None)
    assert resolve(None, "it was replayed", now=6.0) == (KEEP, None)
