"""An operator's order on a circuit, through the store, to every process that shares it."""

import contextlib
import json
import subprocess
import sys
import textwrap
import time

import pytest

from mainstay import BreakerSettings, Engine, IdentityRefused, RetryPolicy
from mainstay.core.circuit.breaker import Signal
from mainstay.drivers.inbox.circuit_admin import order_circuit, shared_circuit, shared_circuits
from mainstay.events import CircuitStateChanged
from tests.processes import wait_until

SECRET = "correct-horse-9f3kqz"
ONCE = RetryPolicy(name="once", max_attempts=1)


@pytest.fixture
def url(tmp_path):
    """A store with one operator, ann."""
    url = f"sqlite:///{tmp_path}/shared.db"
    with Engine(url, sinks=[], share=None) as engine:
        engine.operators.add("ann", secret=SECRET)
    return url


@pytest.fixture
def node(url):
    """Makes engines as processes have them; their steps are taken by hand."""
    engines = []

    def make(**fields):
        settings = BreakerSettings(failure_threshold=3, recovery_timeout=60.0)
        fields = {"breaker": settings, "sinks": [], **fields}
        engine = Engine(url, policies=[ONCE], default="once", share=3600.0, **fields)
        engines.append(engine)
        engine.run("pay", int)
        engine.catch_up()
        return engine

    yield make
    for engine in engines:
        engine.close()


def fail(engine):
    def down():
        raise ConnectionError("down")

    for _ in range(3):
        engine.run("pay", down)


def order(url, signal, why="so it is", by="ann", proof=SECRET):
    with Engine(url, sinks=[], share=None) as engine:
        return order_circuit(
            engine.store, engine.operators, "pay", signal, by=by, proof=proof, why=why
        )


def state_of(engine):
    return engine.breaker("pay").state.value


def test_an_order_is_followed_once_by_everybody(url, node):
    """What happens to the circuit after it counts again."""
    nodes = [node(), node()]
    for each in nodes:
        fail(each)
        each.catch_up()
    assert order(url, Signal.RESET).pending_nodes == 2
    for each in nodes:
        each.catch_up()
    assert [state_of(each) for each in nodes] == ["closed", "closed"]
    fail(nodes[0])
    nodes[0].catch_up()
    nodes[0].catch_up()
    assert state_of(nodes[0]) == "open", "a reset that was followed is over"
    assert shared_circuit(nodes[0].store, "pay").pending_nodes == 1, "the other has yet to say so"


def test_a_reset_is_not_undone_by_evidence_from_before_it(url, node):
    """The one that follows late has no vote, however open it is."""
    nodes = [node(), node(), node()]
    for each in nodes:
        fail(each)
        each.catch_up()
    order(url, Signal.RESET)
    for _ in range(2):
        nodes[0].catch_up()
        assert state_of(nodes[0]) == "closed"


def test_an_order_enters_the_events_with_who_and_why(url, node):
    """And so each process's audit; a secret in the reason does not."""
    heard = []
    one = node(sinks=[heard.append])
    order(url, Signal.FORCE_OPEN, "the bank is down, password=hunter2")
    one.catch_up()
    (event,) = [each for each in heard if isinstance(each, CircuitStateChanged)]
    assert event.to_state == "forced_open"
    assert event.reason.startswith("force open, ordered by ann: the bank is down")
    assert "hunter2" not in event.reason
    assert "hunter2" not in shared_circuit(one.store, "pay").order.why


@pytest.mark.req("AG-02.breaker")
def test_an_order_is_an_event_of_whoever_gave_it(url, node):
    """Also where no process is there to follow it; a refused one is told by the operators."""
    heard = []
    node().close()
    with Engine(url, sinks=[heard.append], share=None) as desk:
        given = {"by": "ann", "why": "password=hunter2 is out"}
        for proof in (SECRET, "a wrong one"):
            with contextlib.suppress(IdentityRefused):
                order_circuit(
                    desk.store, desk.operators, "pay", Signal.FORCE_OPEN, proof=proof, **given
                )
        order_circuit(desk.store, desk.operators, "none", Signal.RESET, proof=SECRET, **given)
    ordered, refused = heard
    assert (ordered.event_type, ordered.operation) == ("circuit_ordered", "pay")
    assert (ordered.order, ordered.operator) == ("force open", "ann")
    assert ordered.why == "password=[redacted] is out"
    assert refused.event_type == "operator_refused"


def test_one_that_comes_later_follows_what_stands(url, node):
    """Also where others are there already."""
    node()
    order(url, Signal.FORCE_OPEN)
    assert state_of(node()) == "forced_open"


def test_one_that_comes_later_is_not_reset(url, node):
    """A reset is for what was, not for what comes."""
    node()
    order(url, Signal.RESET)
    heard = []
    late = node(sinks=[heard.append])
    fail(late)
    late.catch_up()
    assert state_of(late) == "open"
    assert [each.to_state for each in heard if isinstance(each, CircuitStateChanged)] == ["open"]


def test_what_nobody_was_there_to_follow_the_next_one_follows(url, node):
    """An open circuit that was left behind is closed for whoever comes."""
    one = node()
    fail(one)
    one.close()
    assert order(url, Signal.RESET).live == ()
    assert state_of(node()) == "closed"


def test_an_order_in_a_store_that_was_emptied_counts_from_the_start(url, node):
    """Its number is one that was followed long ago in the store before; still it is followed."""
    from mainstay.core.base.change import DROP

    one = node()
    for signal in (Signal.FORCE_OPEN, Signal.RESET):
        order(url, signal)
        one.catch_up()
    one.store.transact("circuits", "pay", lambda *_: (DROP, None))
    one.catch_up()
    order(url, Signal.FORCE_CLOSE)
    one.catch_up()
    assert state_of(one) == "forced_closed"


@pytest.mark.parametrize(("by", "proof"), [("ann", "a guess"), ("nobody", SECRET)])
def test_only_an_operator_gives_orders(url, node, by, proof):
    """Whoever else tries has changed nothing."""
    one = node()
    with pytest.raises(IdentityRefused):
        order(url, Signal.FORCE_OPEN, by=by, proof=proof)
    assert shared_circuit(one.store, "pay").order is None


def test_there_is_no_order_for_a_circuit_that_nobody_has(url):
    """A name that is misspelt makes no circuit."""
    assert order(url, Signal.FORCE_OPEN) is None
    with Engine(url, sinks=[], share=None) as engine:
        assert shared_circuit(engine.store, "pay") is None
        assert shared_circuits(engine.store) == []


# --- real processes -------------------------------------------------------------------------------

WORKER = """
    import json, sys, time
    from mainstay import BreakerSettings, Engine, RetryPolicy
    engine = Engine(sys.argv[1], policies=[RetryPolicy(name="once", max_attempts=1)],
                    default="once", sinks=[], share=0.05, breaker=BreakerSettings())
    while True:
        engine.run("pay", int)
        print(json.dumps(engine.breaker("pay").state.value), flush=True)
        time.sleep(0.02)
"""


def both_are(processes, state, seconds=60.0):
    """Waits until both say so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if [json.loads(process.stdout.readline()) for process in processes] == [state, state]:
            return True
    return False


def test_orders_reach_two_running_processes(url):
    """Opened, closed and reset in both, and each says that it has followed."""
    command = [sys.executable, "-c", textwrap.dedent(WORKER), url]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        assert both_are(processes, "closed")
        for signal, state in [
            (Signal.FORCE_OPEN, "forced_open"),
            (Signal.FORCE_CLOSE, "forced_closed"),
            (Signal.RESET, "closed"),
        ]:
            wait_until(lambda signal=signal: order(url, signal) is not None, "it is shared")
            assert both_are(processes, state)
    finally:
        for process in processes:
            process.kill()
            process.wait(60)
            process.stdout.close()


def test_an_order_whose_number_was_followed_in_the_store_before_is_followed(url, node):
    """Where the store was emptied the first order has the first number again."""
    from mainstay.core.base.change import DROP

    one = node()
    order(url, Signal.RESET)
    one.catch_up()
    one.store.transact("circuits", "pay", lambda *_: (DROP, None))
    one.catch_up()
    order(url, Signal.FORCE_OPEN)
    one.catch_up()
    assert state_of(one) == "forced_open"


def test_a_damaged_table_costs_its_own_circuit_and_no_other(url, node, caplog):
    """The others are listed, shared and ordered; it is said which one is damaged."""
    from mainstay.core.base.change import Change
    from mainstay.errors import StoredValueError

    one = node(sinks=[])
    one.call("\udcff", int)
    one.call("charge", int)
    one.catch_up()
    one.store.transact("circuits", "charge", lambda *_: (Change(b"{bad"), None))
    order(url, Signal.FORCE_OPEN)
    one.catch_up()
    assert state_of(one) == "forced_open"
    assert [each.name for each in shared_circuits(one.store)] == ["pay"]
    with pytest.raises(StoredValueError, match="damaged"):
        shared_circuit(one.store, "charge")
    assert "the circuit 'charge' is not shared" in caplog.text
    assert "circuits 'charge' is passed over" in caplog.text
    assert "the circuit '\\udcff' is not shared" in caplog.text
