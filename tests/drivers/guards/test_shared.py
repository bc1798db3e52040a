"""Circuits and budgets shared by processes: quorum, restarts, kills, and a store that is away."""

import json
import logging
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from mainstay import (
    Backoff,
    BreakerSettings,
    CircuitBreaker,
    CircuitState,
    Engine,
    RetryBudget,
    RetryPolicy,
    StoreUnavailable,
    TokenBudget,
)
from mainstay.core.circuit import cluster
from mainstay.stores.sqlite.store import SqliteStore
from tests.processes import wait_until

ONCE = RetryPolicy(name="once", max_attempts=1)


def node(url, **fields):
    """One process's engine; its steps are taken by hand."""
    settings = BreakerSettings(failure_threshold=3, recovery_timeout=60.0)
    fields = {"breaker": settings, **fields}
    return Engine(url, policies=[ONCE], default="once", sinks=[], share=3600.0, **fields)


def use(engine):
    engine.call("pay", int)


def fail(engine, times=3):
    def down():
        raise ConnectionError("down")

    for _ in range(times):
        engine.run("pay", down)


def sync(*engines):
    for _ in range(2):  # one to tell, one to hear
        for engine in engines:
            assert engine._sharing.sync()


def state_of(engine):
    return engine.breaker("pay").state


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/shared.db"


@pytest.fixture
def nodes(url):
    engines = [node(url) for _ in range(5)]
    for engine in engines:
        use(engine)
    yield engines
    for engine in engines:
        engine.close()


def test_one_bad_node_does_not_open_the_others(nodes):
    """Local evidence opens the local node."""
    fail(nodes[0])
    fail(nodes[1])
    sync(*nodes)
    assert [state_of(each).value for each in nodes] == [
        "open",
        "open",
        "closed",
        "closed",
        "closed",
    ]


def test_most_nodes_open_it_for_all(nodes):
    """Three of five have seen it for themselves: the other two need not."""
    for each in nodes[:3]:
        fail(each)
    sync(*nodes)
    assert {state_of(each) for each in nodes} == {CircuitState.OPEN}
    assert nodes[4].breaker("pay").snapshot().reason == "most nodes have it open"


@pytest.mark.req("FR-041-65", "IT-041-05")
def test_a_circuit_outlives_the_process(url):
    """Opened, ended, begun again: still open; and failures in a row go on counting."""
    first = node(url)
    use(first)
    fail(first, 2)
    first.close()
    second = node(url)
    assert second.breaker("pay").snapshot().failure_count == 2
    fail(second, 1)
    assert state_of(second) is CircuitState.OPEN
    second.close()
    third = node(url)
    assert state_of(third) is CircuitState.OPEN
    assert 0.0 < third.breaker("pay").retry_after <= 60.0
    third.close()


def test_no_call_takes_a_step_of_the_store(url, monkeypatch):
    """Healthy or failing, also the first of its operation; only an opening is brought at once."""
    engine = node(url)
    use(engine)
    asked = []

    def refuse(*args):
        asked.append((threading.current_thread().name, args[:2]))
        raise AssertionError("a call asked the store")

    for name in ("transact", "read", "atransact", "aread", "scan"):
        monkeypatch.setattr(engine.store, name, refuse)
    use(engine)
    engine.call("ship", int)
    fail(engine, 2)
    assert asked == []
    fail(engine, 1)
    assert state_of(engine) is CircuitState.OPEN
    fail(engine, 5)
    wait_until(lambda: asked, "the step of the opening")  # a call waits 100 ms for it at most
    assert asked == [("mainstay-circuits", ("circuits", "pay"))]
    monkeypatch.undo()
    engine.close()


def test_a_store_that_is_away_fails_no_call(url, caplog, monkeypatch):
    """Local state, one warning however long it lasts, and one word when it is back."""
    caplog.set_level(logging.INFO, logger="mainstay")
    engine = node(url)
    use(engine)

    def away(*_):
        raise StoreUnavailable(url, "write", "it is away")

    with monkeypatch.context() as patch:
        patch.setattr(engine.store, "transact", away)
        assert engine._sharing.sync() is False
        assert engine._sharing.sync() is False
        use(engine)
        fail(engine)
        assert state_of(engine) is CircuitState.OPEN
    assert engine._sharing.sync() is True
    told = [record.getMessage() for record in caplog.records if "shared" in record.getMessage()]
    assert len(told) == 2
    assert told[0].startswith("circuits and budgets are not shared for now: ")
    assert told[1] == "circuits and budgets are shared again"
    engine.close()


def test_deleting_the_file_under_way_fails_no_call(url, tmp_path):
    """Whatever becomes of the store, calls go on by what this process knows; also new threads."""
    engine = node(url)
    use(engine)
    for file in tmp_path.iterdir():
        file.unlink()
    for _ in range(3):
        engine._sharing.sync()
        thread = threading.Thread(target=engine._sharing.sync)
        thread.start()
        thread.join(60)
        use(engine)
    fail(engine)
    assert state_of(engine) is CircuitState.OPEN
    engine.close()


def test_a_budget_counts_what_others_retry(url):
    """The floor is one floor for all: what one node has spent, the other has not."""
    engines = [
        Engine(
            url, policies=[RetryPolicy(name="p", max_attempts=2, backoff=Backoff.constant(0))],
            default="p", sinks=[], share=3600.0, budget=RetryBudget(ratio=0.001, floor=3),
        )
        for _ in range(2)
    ]  # fmt: skip
    fail(engines[0], 2)
    sync(*engines)
    ran = []

    def down():
        ran.append(1)
        raise ConnectionError

    for _ in range(3):
        engines[1].run("pay", down)
    assert len(ran) == 3 + 1, "one retry was left of three"
    for engine in engines:
        engine.close()


RETRY_ONCE = RetryPolicy(name="p", max_attempts=2, backoff=Backoff.constant(0))


def token_node(url, **fields):
    """An engine with a bucket of three retries and no gain for plain successes, and the bucket."""
    budget = TokenBudget(**{"capacity": 15, "cost": 5, "success_refund": 0, **fields})
    engine = Engine(url, policies=[RETRY_ONCE], default="p", sinks=[], share=3600.0, budget=budget)
    return engine, budget


def attempts_of(engine, calls):
    """How many attempts so many failing calls come to."""
    ran = []

    def down():
        ran.append(1)
        raise ConnectionError

    for _ in range(calls):
        engine.run("pay", down)
    return len(ran)


def test_tokens_that_one_node_took_are_gone_for_the_others(url):
    """One bucket for all: of three retries two were made elsewhere."""
    (one, mine), (two, yours) = token_node(url), token_node(url)
    assert attempts_of(one, 2) == 4
    sync(one, two)
    assert yours.snapshot()["tokens"] == mine.snapshot()["tokens"] == 5.0
    assert attempts_of(two, 3) == 3 + 1, "one retry was left of three"
    one.close()
    two.close()


def test_what_succeeds_on_one_node_brings_tokens_to_all(url):
    """As it would in one process."""
    (one, mine), (two, yours) = token_node(url, success_refund=1), token_node(url, success_refund=1)
    assert attempts_of(one, 3) == 6
    sync(one, two)
    assert yours.snapshot()["tokens"] == 0.0
    for _ in range(7):
        use(two)
    sync(one, two)
    assert mine.snapshot()["tokens"] == yours.snapshot()["tokens"] == 7.0
    one.close()
    two.close()


def test_a_bucket_outlives_the_process(url):
    """A restart does not fill it, and a reset fills it for everybody."""
    first, _ = token_node(url)
    assert attempts_of(first, 2) == 4
    first.close()
    (second, tokens), (third, others) = token_node(url), token_node(url)
    assert tokens.snapshot()["tokens"] == 5.0
    tokens.reset()
    sync(second, third)
    assert others.snapshot()["tokens"] == 15.0
    second.close()
    third.close()


def test_what_is_taken_while_the_store_is_asked_is_not_given_back(url, monkeypatch):
    """The answer is of the moment before: what came since is taken from it."""
    engine, budget = token_node(url)
    transact = engine.store.transact

    def slow(*args):
        answer = transact(*args)
        if args[0] == "tokens":
            assert attempts_of(engine, 1) == 2
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(engine.store, "transact", slow)
        assert engine._sharing.sync()
    assert budget.snapshot()["tokens"] == 10.0
    sync(engine)
    assert budget.snapshot()["tokens"] == 10.0
    engine.close()


def test_a_reply_that_is_lost_takes_no_token_twice(url, monkeypatch):
    """The step was taken, the answer never came; the next one is asked as if nothing had been."""
    engine, budget = token_node(url)
    assert attempts_of(engine, 1) == 2
    transact = engine.store.transact

    def lost(*args):
        transact(*args)
        raise StoreUnavailable(url, "write", "no reply")

    with monkeypatch.context() as patch:
        patch.setattr(engine.store, "transact", lost)
        assert engine._sharing.sync() is False
    sync(engine)
    assert budget.snapshot()["tokens"] == 10.0
    engine.close()


def test_a_token_budget_and_a_retry_budget_of_one_name_do_not_meet(url):
    """They count different things."""
    tokens, ratio = TokenBudget("same", capacity=15), RetryBudget("same", floor=3)
    engine = Engine(url, policies=[RETRY_ONCE], default="p", sinks=[], share=3600.0,
                    guards=[tokens, ratio])  # fmt: skip
    assert attempts_of(engine, 1) == 2
    sync(engine)
    assert (tokens.snapshot()["tokens"], ratio.snapshot()["retries"]) == (10.0, 1)
    engine.close()


def test_memory_is_not_shared_and_sharing_can_be_turned_off(url):
    """There is nobody to share with, or nobody wants to."""
    for place, options in [("memory://", {}), (url, {"share": None})]:
        with Engine(place, breaker=BreakerSettings(), **options) as engine:
            assert engine._sharing is None
    with Engine(url) as engine:
        assert engine._sharing is None
    with Engine(budget=TokenBudget()) as engine:
        assert engine._sharing is None


def test_a_wrong_interval_is_refused(url):
    """With what is allowed."""
    with pytest.raises(ValueError, match=r"share = 0: must be a finite number of seconds"):
        Engine(url, breaker=BreakerSettings(), share=0)


# --- real processes -------------------------------------------------------------------------------

WORKER = """
    import json, os, sys, time
    from mainstay import BreakerSettings, Engine, RetryPolicy
    url, bad, down = sys.argv[1], sys.argv[2] == "bad", sys.argv[3]
    engine = Engine(url, policies=[RetryPolicy(name="once", max_attempts=1)], default="once",
                    sinks=[], share=0.05, breaker=BreakerSettings(failure_threshold=3))
    def work():
        if bad and os.path.exists(down):
            raise ConnectionError("down")
    failed = 0
    while True:
        result = engine.run("pay", work)
        if result.last_exception and "Connection" not in type(result.last_exception).__name__:
            failed += "CircuitOpen" not in type(result.last_exception).__name__
        print(json.dumps([engine.breaker("pay").state.value, failed]), flush=True)
        time.sleep(0.02)
"""


def start(url, kind, down):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WORKER), url, kind, str(down)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def states(processes, seconds=60.0):
    """What each says last, as it goes on."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        lines = [process.stdout.readline() for process in processes]
        assert all(lines), "a worker has ended"
        yield [json.loads(line)[0] for line in lines]
        assert all(json.loads(line)[1] == 0 for line in lines), "a call failed for the store's sake"


def seats(url):
    """How many processes are at the table."""
    store = SqliteStore(url)
    value, _ = store.read("circuits", "pay")
    store.close()
    return 0 if value is None else len(cluster.decode(value).seats)


@pytest.mark.req("FR-041-65")
@pytest.mark.parametrize("kinds", [["bad", "good"], ["bad", "bad", "bad", "good", "good"]])
def test_processes_open_by_quorum_and_survive_kills(kinds, url, tmp_path):
    """Most of five open it for all, one of two does not; a kill of any loses nothing of it.

    All of them sit at the table first: two of three that are there would open the third, which
    then has no vote of its own when the others come.
    """
    down = tmp_path / "down"
    processes = [start(url, kind, down) for kind in kinds]
    wanted = ["open"] * len(kinds) if len(kinds) == 5 else ["open", "closed"]
    try:
        next(None for _ in states(processes) if seats(url) == len(kinds))
        down.touch()
        seen = next(found for found in states(processes) if found == wanted)
        assert seen == wanted
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait(60)
        rest = processes[1:]
        for _, found in zip(range(10), states(rest), strict=False):
            assert found == wanted[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait(60)
            process.stdout.close()


def test_a_shared_breaker_by_name_is_shared_too(url):
    """A group's circuit is at the same table in every process."""
    one = node(url, breaker=None, breakers={"pay": CircuitBreaker("group", failure_threshold=1)})
    fail(one, 1)
    one.close()
    two = node(url, breaker=None, breakers={"pay": CircuitBreaker("group", failure_threshold=1)})
    assert two.breaker("group").state is CircuitState.OPEN, "taken over when the engine is built"
    two.close()


def test_a_flood_of_names_does_not_fill_what_sharing_knows(url, monkeypatch):
    """What the registry has forgotten, sharing forgets too; a circuit that is there it knows."""
    from mainstay.drivers.guards import registry, shared

    monkeypatch.setattr(registry, "_MOST", 20)
    monkeypatch.setattr(shared, "_SPARE", 10)
    with node(url, audit=False) as engine:
        for number in range(30):
            for each in range(10):
                engine.run(f"host-{number}-{each}", int, "x")
            assert engine._sharing.sync()
        assert len(engine._sharing._obeyed) <= 70
        assert {each.name for each in engine.circuits} <= set(engine._sharing._obeyed)
