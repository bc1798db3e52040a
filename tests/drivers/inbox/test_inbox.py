"""The inbox of an engine: what deciding does, who wins, and what is left when somebody dies."""

import asyncio
import json
import signal
import subprocess
import sys
import threading

import pytest
import trio

from mainstay import CallAbandoned, Engine, Item, OperatorKey, OutcomeUnknown, RetryPolicy
from mainstay.audit import make_key
from mainstay.core.base.change import Change
from mainstay.core.circuit.breaker import ORDERS, Signal
from mainstay.core.inbox.actions import Already, Gone, Illegal, Stale, Won
from mainstay.drivers.inbox.circuit_admin import order_circuit, shared_circuit
from mainstay.drivers.inbox.credentials import Signature
from mainstay.drivers.inbox.inbox import Inbox, about_of
from mainstay.drivers.inbox.resolution import MOVED_ON
from mainstay.errors import AttemptTimeout, IdentityRefused, StoredValueError
from mainstay.events import InboxClosed, InboxDecided, InboxRaised

SECRET = "correct horse"
ONCE = RetryPolicy(name="standard", max_attempts=1)


@pytest.fixture
def heard():
    return []


@pytest.fixture
def engine(heard):
    with Engine(sinks=[heard.append], policies=[ONCE]) as engine:
        engine.operators.add("ann", secret=SECRET)
        yield engine


def doubted(engine, key="order-7", **options):
    """An unsafe call whose reply was lost."""
    operation = engine.operation("charge", idempotency="unsafe", key=key, **options)

    def charge():
        raise OutcomeUnknown("charge")

    with pytest.raises(OutcomeUnknown):
        operation.call(charge)
    (item,) = engine.inbox
    return operation, item


def never():
    pytest.fail("it was called")


def decide(engine, item, action, **options):
    return engine.inbox.act(item.id, action, by="ann", proof=SECRET, **options)


# --- what actions do ------------------------------------------------------------------------------


@pytest.mark.req("IT-041-11")
def test_an_outcome_that_a_person_knows_is_what_calls_return(engine):
    """mark_done with the outcome as evidence: recorded, replayed, and nothing runs."""
    operation, item = doubted(engine)
    answer = decide(engine, item, "mark_done", why="on the statement", evidence='{"id": [7, "x"]}')
    assert answer.won
    assert operation.call(never) == {"id": [7, "x"]}
    kept = engine.inbox.get(item.id)
    assert (kept.status, kept.decision.by) == ("closed", "ann")
    assert kept.result == "the outcome is recorded: calls with the key return it"
    assert list(engine.inbox) == []


@pytest.mark.req("IT-041-11")
def test_an_abandoned_call_raises_who_gave_it_up_and_why(engine):
    """In every process, for as long as the record lasts."""
    operation, item = doubted(engine)
    assert decide(engine, item, "abandon", why="the customer has cancelled").won
    with pytest.raises(CallAbandoned, match="abandoned by ann: the customer has cancelled") as told:
        operation.call(never)
    assert (told.value.by, told.value.operation) == ("ann", "charge")


@pytest.mark.req("IT-041-11")
def test_a_released_call_runs_the_next_time(engine):
    """And may be in doubt once more: the same item, open again, with what was before."""
    operation, item = doubted(engine)
    assert decide(engine, item, "retry").won
    assert operation.call(lambda: 5) == 5
    other, item = doubted(engine, key="order-8")
    decide(engine, item, "retry")
    _, again = doubted(engine, key="order-8")
    assert (again.id, again.status, again.times) == (item.id, "open", 1)
    assert again.revision > item.revision
    assert "ann decided 'retry'" in [each.text for each in again.history]
    assert decide(engine, again, "mark_done", evidence="9").won
    assert other.call(never) == 9


def test_an_outcome_lives_as_long_as_the_operation_says(engine):
    """The options of the call that raised it, not those of whoever decides."""
    _, item = doubted(engine, ttl=77.0)
    decide(engine, item, "mark_done", evidence="1")
    value, now = engine.store.read("records", item.subject)
    assert 70.0 < json.loads(value)["expires"] - now <= 77.0


def test_a_record_that_has_moved_on_stays_as_it_is(engine):
    """A decision that was late in being carried out changes nothing of the new occasion."""
    operation, item = doubted(engine)
    room = engine.inbox._rooms["unknown_outcome"]
    decided = decide(engine, item, "retry").item
    assert operation.call(lambda: 5) == 5
    assert room(decided, decided.decision) == MOVED_ON
    assert operation.call(never) == 5


def test_retrying_what_was_exhausted_resets_its_circuit():
    """So that the next call goes out."""
    from mainstay import BreakerSettings

    breaker = BreakerSettings(failure_threshold=1, recovery_timeout=999.0)
    with Engine(sinks=[], policies=[ONCE], breaker=breaker) as engine:
        engine.operators.add("ann", secret=SECRET)
        with pytest.raises(ConnectionError):
            engine.operation("fetch", escalate=True).call(failing)
        assert engine.breaker("fetch").state.name == "OPEN"
        (item,) = engine.inbox
        assert decide(engine, item, "retry").text == "the circuit fetch is reset"
        assert engine.breaker("fetch").state.name == "CLOSED"


def exhausted_pay(url, **options):
    """A process whose circuit of `pay` has opened, and the item that says so."""
    from mainstay import BreakerSettings

    breaker = BreakerSettings(failure_threshold=1, recovery_timeout=999.0)
    engine = Engine(url, policies=[ONCE], breaker=breaker, share=3600.0, sinks=[], **options)
    with pytest.raises(ConnectionError):
        engine.operation("pay", escalate=True).call(failing)
    engine.catch_up()
    return engine


def test_retrying_resets_the_circuit_in_the_processes_that_share_it(tmp_path):
    """Whoever decides is another process than whoever has the circuit."""
    url = f"sqlite:///{tmp_path}/app.db"
    with exhausted_pay(url) as engine, Engine(url, sinks=[], share=None) as desk:
        desk.operators.add("ann", secret=SECRET)
        (item,) = desk.inbox
        answer = decide(desk, item, "retry", why="token=hunter2-of-ann is new")
        assert answer.text == "the circuit pay is reset in every process"
        assert engine.breaker("pay").state.name == "OPEN"
        engine.catch_up()
        assert engine.breaker("pay").state.name == "CLOSED"
        order = shared_circuit(desk.store, "pay").order
        assert (order.by, order.why) == ("ann", "the inbox: token=[redacted] is new")


@pytest.mark.parametrize("signal", [Signal.FORCE_OPEN, Signal.DISABLE])
def test_retrying_lifts_nobodys_order(tmp_path, signal):
    """What an operator has forced is that operator's to lift."""
    url = f"sqlite:///{tmp_path}/app.db"
    with exhausted_pay(url) as engine, Engine(url, sinks=[], share=None) as desk:
        desk.operators.add("ann", secret=SECRET)
        said = {"by": "ann", "proof": SECRET, "why": "the bank asks for it"}
        order_circuit(desk.store, desk.operators, "pay", signal, **said)
        (item,) = desk.inbox
        answer = decide(desk, item, "retry")
        assert answer.text == f"the circuit pay stays as ann ordered: {signal.value}"
        engine.catch_up()
        assert engine.breaker("pay").state.name == ORDERS[signal].name


def test_retrying_leaves_a_circuit_that_was_forced_here(tmp_path):
    """Also where nothing is shared."""
    with exhausted_pay("memory://") as engine:
        engine.operators.add("ann", secret=SECRET)
        engine.breaker("pay").force_open()
        (item,) = engine.inbox
        assert decide(engine, item, "retry").text == "the circuit pay stays forced_open"
        assert engine.breaker("pay").state.name == "FORCED_OPEN"


def test_kinds_of_which_nothing_is_here_stay_decided(engine):
    """Whoever raised them carries them out; an alert needs nobody."""
    held = engine.inbox.put(Item(kind="quarantine", subject="t-1", operation="transfer", text="?"))
    alert = engine.inbox.put(Item(kind="alert", subject="a", operation="fetch", text="failing"))
    assert decide(engine, held, "release").text == "decided, and not carried out yet"
    assert decide(engine, alert, "mark_done", evidence="the deploy").item.status == "closed"
    assert engine.inbox.get(held.id).status == "decided"
    engine.inbox.settle("quarantine", lambda _item, decision: f"{decision.action} it is")
    assert engine.inbox.carry_out_all() == 1
    assert engine.inbox.get(held.id).result == "release it is"


# --- who wins -------------------------------------------------------------------------------------


def test_answers_say_why_nothing_was_decided(engine):
    """Illegal, stale, gone, already; and the identity is looked at before all of them."""
    _, item = doubted(engine)
    assert isinstance(decide(engine, item, "release"), Illegal)
    assert decide(engine, item, "retry", revision=item.revision + 1) == Stale(item.revision)
    assert engine.inbox.act("nothing", "retry", by="ann", proof=SECRET) == Gone()
    for name in (item.id, "nothing"):
        with pytest.raises(IdentityRefused):
            engine.inbox.act(name, "retry", by="ann", proof="a wrong one")
    assert isinstance(decide(engine, item, "retry"), Won)
    answer = decide(engine, item, "abandon", why="no")
    assert isinstance(answer, Already)
    assert answer.item.decision.action == "retry"


def test_an_item_that_is_raised_again_meanwhile_is_decided_all_the_same(engine, monkeypatch):
    """Without a revision one decides on what is there, and looks again where it has changed."""
    item = engine.inbox.put(Item(kind="exhausted", subject="a", operation="b", text="c"))
    verify, raised = engine.operators.verify, []

    def busy(*args):
        if not raised:
            raised.append(engine.inbox.put(item))
        return verify(*args)

    monkeypatch.setattr(engine.operators, "verify", busy)
    assert decide(engine, item, "retry").won


def test_what_failed_to_be_carried_out_is_by_the_next(engine):
    """And cannot be decided otherwise: the second is told, and finishes the first one's work."""
    operation, item = doubted(engine)
    room, tried = engine.inbox._rooms["unknown_outcome"], []

    def broken(item, decision):
        if not tried:
            tried.append(1)
            raise ConnectionError("the store is away")
        return room(item, decision)

    engine.inbox.settle("unknown_outcome", broken)
    with pytest.raises(ConnectionError):
        decide(engine, item, "mark_done", evidence="5")
    assert engine.inbox.get(item.id).status == "decided"
    assert isinstance(decide(engine, item, "abandon", why="no"), Already)
    assert engine.inbox.get(item.id).status == "closed"
    assert operation.call(never) == 5


WORKER = """
import json, os, signal, sys
from mainstay import Engine
from mainstay.core.inbox.operators import Hash
from mainstay.drivers.inbox.authentication import Verifier
Verifier.cost = Hash(salt="", n=16)
url, who, action, dies = sys.argv[1:]
with Engine(url, sinks=[], audit=False, share=None) as engine:
    if dies == "dies":
        engine.inbox.settle("exhausted", lambda item, decision: os.kill(os.getpid(), 9))
    print("ready", flush=True)
    for line in sys.stdin:
        answer = engine.inbox.act(line.strip(), action, by=who, proof=f"correct {who}'s", why="so")
        decision = answer.item.decision
        print(json.dumps([answer.won, decision.by, decision.action]), flush=True)
"""


def worker(url, who, action, dies=""):
    arguments = [sys.executable, "-c", WORKER, url, who, action, dies]
    started = subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert started.stdout.readline() == "ready\n"
    return started


def race(url, rounds):
    """Two processes decide otherwise on the same items, at once; who won each."""
    with Engine(url, sinks=[], audit=False, share=None) as engine:
        engine.operators.add("ann", secret="correct ann's")
        engine.operators.add("bob", secret="correct bob's", by="ann", proof="correct ann's")
        items = [
            engine.inbox.put(Item(kind="exhausted", subject=str(n), operation="f", text="t"))
            for n in range(rounds)
        ]
        both = [worker(url, "ann", "retry"), worker(url, "bob", "abandon")]
        winners = []
        try:
            for item in items:
                for each in both:
                    each.stdin.write(f"{item.id}\n")
                said = [json.loads(each.stdout.readline()) for each in both]
                winners.append([who for (won, who, _) in said if won])
                assert said[0][1:] == said[1][1:], "the loser is told what the winner decided"
                kept = engine.inbox.get(item.id)
                assert [kept.decision.by, kept.decision.action] == said[0][1:]
        finally:
            for each in both:
                each.stdin.close()
                assert each.wait(60) == 0
                each.stdout.close()
    return winners


@pytest.mark.req("AG-02.person")
def test_of_two_processes_that_decide_at_once_one_wins_on_sqlite(tmp_path):
    """Always exactly one, and the other is told who."""
    winners = race(f"sqlite:///{tmp_path}/inbox.db", 12)
    assert [len(each) for each in winners] == [1] * 12


@pytest.mark.req("AG-02.person")
def test_of_two_processes_that_decide_at_once_one_wins_on_postgresql(postgres_database):
    """The same, on a server."""
    winners = race(postgres_database, 12)
    assert [len(each) for each in winners] == [1] * 12


def test_whoever_is_killed_after_deciding_leaves_what_anybody_carries_out(tmp_path):
    """SIGKILL between the decision and the deed: it stays decided, then it is done."""
    url = f"sqlite:///{tmp_path}/inbox.db"
    with Engine(url, sinks=[], audit=False, share=None) as engine:
        engine.operators.add("ann", secret="correct ann's")
        item = engine.inbox.put(Item(kind="exhausted", subject="a", operation="f", text="t"))
        dying = worker(url, "ann", "retry", "dies")
        dying.stdin.write(f"{item.id}\n")
        assert dying.wait(60) == -signal.SIGKILL
        dying.stdin.close()
        dying.stdout.close()
        kept = engine.inbox.get(item.id)
        assert (kept.status, kept.decision.by) == ("decided", "ann")
        answer = engine.inbox.act(item.id, "abandon", by="ann", proof="correct ann's", why="no")
        assert isinstance(answer, Already)
        assert engine.inbox.get(item.id).status == "closed"
        assert engine.inbox.get(item.id).decision.action == "retry"


# --- with a key -----------------------------------------------------------------------------------


def test_a_signature_is_good_for_one_act_alone(engine, tmp_path):
    """Of another action, another item, another state or a second time it is of no use."""
    private, public = make_key(tmp_path / "bob.pem")
    engine.operators.add("bob", public_key=public, by="ann", proof=SECRET)
    items = [
        engine.inbox.put(Item(kind="exhausted", subject=name, operation="f", text="t"))
        for name in "ab"
    ]
    key, made = OperatorKey(private), []

    class Recording(OperatorKey):
        def sign(self, message, at):
            made.append(super().sign(message, at))
            return made[-1]

    act = engine.inbox.act
    assert act(items[0].id, "retry", by="bob", proof=Recording(private), why="w").won
    (signature,) = made
    for name, action, why in (
        (items[0].id, "retry", "w"),
        (items[1].id, "retry", "w"),
        (items[0].id, "abandon", "w"),
    ):
        with pytest.raises(IdentityRefused):
            act(name, action, by="bob", proof=signature, why=why)
    assert engine.inbox.get(items[1].id).status == "open"
    assert act(items[1].id, "retry", by="bob", proof=key).won


def test_a_signature_made_elsewhere_is_of_now(engine, tmp_path):
    """Signed where the key is, six minutes ago: refused; now: taken."""
    from mainstay.core.inbox.operators import statement
    from mainstay.runtime import clock

    private, public = make_key(tmp_path / "bob.pem")
    engine.operators.add("bob", public_key=public, by="ann", proof=SECRET)
    item = engine.inbox.put(Item(kind="exhausted", subject="a", operation="f", text="t"))
    about = about_of(item.id, item, item.revision, "retry", "", "")
    now, key = clock.current.wall(), OperatorKey(private)
    for at, is_good in ((now - 360.0, False), (now + 360.0, False), (now, True)):
        signed = key.sign(statement("act", "bob", about, at, engine.operators.store_identity), at)
        proof = Signature(signed.data, at)
        if is_good:
            assert engine.inbox.act(item.id, "retry", by="bob", proof=proof).won
        else:
            with pytest.raises(IdentityRefused):
                engine.inbox.act(item.id, "retry", by="bob", proof=proof)


# --- what is told ---------------------------------------------------------------------------------


def test_an_item_is_told_once_and_so_is_what_becomes_of_it(engine, heard):
    """Raised, decided with who and why, closed with the result; a repetition is no news."""
    heard.clear()
    _, item = doubted(engine)
    with pytest.raises(OutcomeUnknown):
        engine.operation("charge", idempotency="unsafe", key="order-7").call(never)
    decide(engine, item, "mark_done", why="token=hunter2 says so", evidence='{"password": "x1"}')
    told = [event for event in heard if event.event_type.startswith("inbox")]
    raised, decided, closed = told
    assert [type(each) for each in told] == [InboxRaised, InboxDecided, InboxClosed]
    assert (raised.item, raised.item_kind, raised.severity) == (item.id, "unknown_outcome", "high")
    assert (decided.operator, decided.decision) == ("ann", "mark_done")
    assert decided.why == "token=[redacted] says so"
    assert "x1" not in decided.decided_evidence
    assert (closed.operator, closed.result) == ("ann", engine.inbox.get(item.id).result)
    assert all(event.timestamp for event in told)


def failing():
    raise ConnectionError("no route")


# --- escalation -----------------------------------------------------------------------------------


def cut_off(**options):
    """What an unsafe call raises that its timeout has cut off, and the items of its engine."""

    def pay():
        raise AttemptTimeout(0.1)

    with Engine(policies=[ONCE], sinks=[]) as engine:
        with pytest.raises(OutcomeUnknown) as caught:
            engine.operation("pay", idempotency="unsafe", **options).call(pay)
        return caught.value, list(engine.inbox)


def test_an_unknown_outcome_without_a_key_carries_the_id_of_the_item_it_escalates_to():
    """None if it asks for no item: then there is none to look at."""
    error, (item,) = cut_off(escalate=True)
    assert error.item_id == item.id
    assert (item.kind, item.operation) == ("exhausted", "pay")
    error, items = cut_off()
    assert (error.item_id, items) == (None, [])


def test_an_unknown_outcome_names_no_item_that_could_not_be_raised(monkeypatch, caplog):
    """If the store does not take the item, the error of the call is raised without an id."""
    monkeypatch.setattr(Inbox, "put", lambda *_args, **_options: 1 / 0)
    error, items = cut_off(escalate=True)
    assert (error.item_id, items) == (None, [])
    assert "could not be put into the inbox" in caplog.text


@pytest.mark.req("AG-02.person", "IT-041-11", "UVS-2")
def test_what_was_given_up_is_brought_to_a_person_where_it_asks(engine):
    """Once for each matter, counted; and the caller gets the failure as ever."""
    for _ in range(3):
        with pytest.raises(ConnectionError, match="no route"):
            engine.operation("fetch", escalate=True).call(failing)
    with pytest.raises(ConnectionError):
        engine.operation("other").call(failing)
    (item,) = engine.inbox
    assert (item.kind, item.operation, item.times, item.severity) == (
        "exhausted", "fetch", 3, "normal",
    )  # fmt: skip
    assert "ConnectionError: no route" in item.text
    assert len(item.history) == 3


def test_a_decorated_function_escalates_too(engine):
    """And a success brings nobody anything."""
    answers = [ConnectionError("no route"), 5]

    @engine.protect("fetch", escalate=True)
    def fetch():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(ConnectionError):
        fetch()
    assert fetch() == 5
    assert [item.operation for item in engine.inbox] == ["fetch"]


def test_with_a_key_each_key_is_a_matter_of_its_own(engine):
    """Also through the decorator, where arguments make the key."""

    @engine.idempotent(operation="pay", escalate=True)
    def pay(order):
        raise ConnectionError("no route")

    for order in (1, 2, 2):
        with pytest.raises(ConnectionError):
            pay(order)
    assert sorted(item.times for item in engine.inbox) == [1, 2]
    result = engine.operation("pay", key="k", escalate=True).run(failing)
    assert not result.success
    assert any("with key 'k'" in item.text for item in engine.inbox)


def test_a_call_inside_a_keyed_one_is_not_taken_for_it(engine):
    """Each is a matter of its own operation."""

    def outer():
        engine.operation("inner", escalate=True).call(failing)

    with pytest.raises(ConnectionError):
        engine.operation("outer", key="k", escalate=True).call(outer)
    assert sorted(item.subject for item in engine.inbox) == ['[null,"outer","k"]', "inner"]


@pytest.mark.parametrize("runner", [asyncio.run, trio.run], ids=["asyncio", "trio"])
def test_async_calls_escalate_off_the_event_loop(runner, monkeypatch):
    """A store that is slow must not stand in the way of other tasks; closing waits for it."""
    threads, put = [], Inbox.put

    def noted(inbox, item, **options):
        threads.append(threading.current_thread())
        return put(inbox, item, **options)

    async def fetch():
        raise ConnectionError("no route")

    monkeypatch.setattr(Inbox, "put", noted)
    with Engine(sinks=[], policies=[ONCE]) as engine:

        async def main():
            with pytest.raises(ConnectionError):
                await engine.operation("fetch", escalate=True).acall(fetch)

        runner(main) if runner is trio.run else runner(main())
        engine._escalation.flush()
        assert [item.operation for item in engine.inbox] == ["fetch"]
    assert [thread.name for thread in threads] == ["mainstay-escalation"]


def test_a_store_that_is_away_changes_nothing_for_the_call(engine, monkeypatch, caplog):
    """It is logged, and the caller gets its own failure."""

    def away(*_args):
        raise OSError("the disk is gone")

    monkeypatch.setattr(engine.store, "transact", away)
    with pytest.raises(ConnectionError, match="no route"):
        engine.operation("fetch", escalate=True).call(failing)
    assert "fetch was given up, and could not be put into the inbox" in caplog.text


# --- what is hostile, or damaged ------------------------------------------------------------------


def test_one_that_cannot_be_carried_out_stands_in_nobodys_way(engine):
    """The others are; then it is raised, with the item it is about."""
    names = "abcd"
    items = [
        engine.inbox.put(Item(kind="quarantine", subject=name, operation="f", text="t"))
        for name in names
    ]
    for item in items:
        assert decide(engine, item, "release").won
    first = min(item.id for item in items)

    def room(item, _decision):
        if item.id == first:
            raise ConnectionError("it is away")
        return "let go"

    engine.inbox.settle("quarantine", room)
    with pytest.raises(ConnectionError) as told:
        engine.inbox.carry_out_all()
    assert told.value.__notes__ == [f"while carrying out item {first}"]
    left = [item.id for item in engine.inbox.all() if item.status == "decided"]
    assert left == [first]


def test_a_damaged_item_costs_nobody_the_others(engine, caplog):
    """It is passed over and said; the same matter raised again is an item again."""
    item, other = (
        engine.inbox.put(Item(kind="alert", subject=name, operation="f", text="t")) for name in "ab"
    )
    engine.store.transact("inbox", item.id, lambda *_: (Change(b'{"kind": '), None))
    assert [each.id for each in engine.inbox] == [other.id]
    assert f"inbox '{item.id}' is passed over" in caplog.text
    with pytest.raises(StoredValueError, match="item is damaged"):
        decide(engine, item, "mark_done", evidence="x")
    again = engine.inbox.put(item)
    assert (again.status, again.times) == ("open", 1)
    assert any("is damaged" in each.text for each in again.history)
    assert decide(engine, item, "mark_done", evidence="x").won


@pytest.mark.parametrize(
    "item_id",
    ["\udcff", "a\0b", "", "--help", "../../x", "x" * 1_000_000, "ABCDEF0123456789"],
    ids=["half a letter", "null", "empty", "option", "path", "long", "capitals"],
)
def test_what_is_no_id_is_no_item(tmp_path, item_id):
    """Whatever a store would say to such a key."""
    with Engine(f"sqlite:///{tmp_path}/a.db", sinks=[], audit=False) as engine:
        engine.operators.add("ann", secret=SECRET)
        assert engine.inbox.get(item_id) is None
        assert engine.inbox.act(item_id, "retry", by="ann", proof=SECRET) == Gone()


def test_words_with_half_a_letter_are_kept_as_they_can_be_written(engine, tmp_path):
    """A file's name on a command line may hold such; also where a key signs them."""
    private, public = make_key(tmp_path / "bob.pem")
    engine.operators.add("bob", public_key=public, by="ann", proof=SECRET)
    key = OperatorKey(private)
    for subject, by, proof in (("a", "ann", SECRET), ("b", "bob", key)):
        item = engine.inbox.put(
            Item(kind="governance", subject=subject, operation="f", text="\udcff")
        )
        assert item.text == "\\udcff"
        given = {"by": by, "proof": proof, "why": "see \udcff", "evidence": "in \udcff"}
        assert engine.inbox.act(item.id, "mark_done", **given).won
        decision = engine.inbox.get(item.id).decision
        assert (decision.why, decision.evidence) == ("see \\udcff", "in \\udcff")


def test_an_operation_whose_name_is_no_text_is_brought_to_a_person(engine):
    """Rather than lost with a line in the log; the same one is the same matter."""

    def down():
        raise ConnectionError("down")

    for _ in range(2):
        engine.operation("op\udcff", escalate=True).run(down)
    (item,) = engine.inbox
    assert (item.operation, item.times) == ("op\\udcff", 2)


def test_retrying_says_so_where_nothing_was_left_to_forget(engine):
    """The record may be of a call that has ended, or of one that runs."""
    engine.operation("charge", key="k", idempotency="idempotent").call(int)
    ((address, _),) = engine.store.scan("records")
    item = engine.inbox.put(
        Item(
            kind="exhausted",
            subject=address,
            operation="charge",
            text="t",
            data={"address": address},
        )
    )
    assert decide(engine, item, "retry").text == MOVED_ON


def test_an_outcome_that_cannot_be_recorded_is_not_decided(engine):
    """Nobody could carry it out, and nobody decide otherwise."""
    operation, item = doubted(engine)
    deep = decide(engine, item, "mark_done", evidence="[" * 150 + "]" * 150)
    assert isinstance(deep, Illegal)
    assert decide(engine, item, "mark_done", evidence="7").won
    assert operation.call(never) == 7
