"""SQLite and forks: both sides go on, or the child refuses; files outside are the oracle."""

from __future__ import annotations

import os
import sys
import textwrap

import pytest

from tests.crash.forks import lines, run, run_forks, violations

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def refusals(folder):
    """The reasons that uses of the store were refused for, without the key."""
    return [line.partition(" ")[2] for line in lines(folder, "refused")]


def keys(folder, name):
    """The keys that were noted in a file, in order."""
    return sorted(line.split()[0] for line in lines(folder, name))


# --- what holds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["engine.close()", "os._exit(0)", "pass"])
def test_what_a_child_records_is_kept_when_its_parent_closes_or_exits(tmp_path, end):
    """Another process replays it; before, it went to a log of SQLite's that was deleted."""
    program = f"""
    engine = Engine(url)
    once(engine, "parent")
    reader, writer = os.pipe()
    def work():
        os.close(writer)
        once(engine, "early")
        os.read(reader, 1)
        for number in range(5):
            once(engine, f"late-{{number}}")
    pid = in_child(work)
    while "early" not in open(f"{{where}}/answers").read():
        time.sleep(0.01)
    {end}
    os.close(writer)
    os.waitpid(pid, 0)
    """
    run(program, tmp_path)
    late = [f"late-{number}" for number in range(5)] if end != "os._exit(0)" else []
    assert set(late) <= set(keys(tmp_path, "answers"))
    assert violations(tmp_path) == []


def test_many_forks_under_load_lose_nothing(tmp_path):
    """Threads of the parent, its children and another process write; every record is there."""
    assert run_forks(15, tmp_path) == []


@pytest.mark.parametrize("fork", ["os.fork", "lambda: os.forkpty()[0]"])
def test_every_fork_through_python_has_the_hooks(tmp_path, fork):
    """A child that exits as a program does closes nothing of its parent's."""
    program = f"""
    engine = Engine(url, breakers=[mainstay.CircuitBreaker("pay")])
    once(engine, "before")
    assert reap(in_child(lambda: once(engine, "child"), end=sys.exit, fork={fork})) == 0
    once(engine, "after")
    engine.close()
    """
    run(program, tmp_path)
    assert keys(tmp_path, "answers") == ["after", "before", "child"]
    assert violations(tmp_path) == []


POOL = """
import multiprocessing, sys
sys.argv = [sys.argv[0], {folder!r}]
{prelude}
engine = Engine(url, share=0.05)

def work(number):
    return once(engine, f"child-{{number}}")

if __name__ == "__main__":
    once(engine, "parent")
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        assert all(pool.map(work, range(20)))
    once(engine, "last")
    engine.close()
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_pool_of_multiprocessing_records_as_one_process_does(tmp_path, method):
    """However its workers are started."""
    from tests.crash.forks import PRELUDE

    program = tmp_path / "pool.py"
    program.write_text(POOL.format(folder=str(tmp_path), prelude=PRELUDE, method=method))
    run(f"sys.exit(os.system(f'{{sys.executable}} {program}') >> 8)", tmp_path)
    assert len(keys(tmp_path, "answers")) == 22
    assert violations(tmp_path) == []


HOLD = """import subprocess
    code = chr(10).join((
        "import os, sqlite3, sys, time",
        "held = sqlite3.connect(sys.argv[1] + '/kept.db', isolation_level=None)",
        "held.execute('BEGIN IMMEDIATE')",
        "print('held', flush=True)",
        "while not os.path.exists(sys.argv[1] + '/free'): time.sleep(0.01)",
    ))
    holder = subprocess.Popen([sys.executable, "-c", code, where], stdout=subprocess.PIPE)"""


def test_a_step_that_waits_for_a_lock_gives_way_to_a_fork(tmp_path):
    """It waits in short slices, goes on after the fork, and the child is not refused."""
    program = f"""
    engine = Engine(url)
    once(engine, "first")
    {HOLD}
    holder.stdout.readline()
    waiting = threading.Thread(target=once, args=(engine, "waiting"))
    waiting.start()
    time.sleep(0.3)
    def work():
        note("free", "")
        once(engine, "child")
    assert reap(in_child(work)) == 0
    waiting.join()
    holder.wait()
    """
    run(program, tmp_path)
    assert keys(tmp_path, "answers") == ["child", "first", "waiting"]
    assert violations(tmp_path) == []


def test_a_thread_that_waits_keeps_no_file_open_for_a_fork(tmp_path):
    """What it has prepared is given up; a free-threaded Python kept it until the thread ran."""
    program = """
    from mainstay.stores.sqlite.connections import CONNECTIONS, inode_of, _open_files
    engine = Engine(url)
    wrote, goes_on = threading.Event(), threading.Event()
    def other():
        once(engine, "other")
        wrote.set()
        goes_on.wait(60)
    thread = threading.Thread(target=other)
    thread.start()
    wrote.wait(60)
    CONNECTIONS._before()
    is_open = inode_of(f"{where}/kept.db") in _open_files()
    CONNECTIONS._after_in_parent()
    goes_on.set()
    thread.join()
    once(engine, "after")
    assert not is_open
    """
    run(program, tmp_path)
    assert keys(tmp_path, "answers") == ["after", "other"]


def test_a_fork_waits_for_a_connection_that_is_being_closed(tmp_path):
    """It is marked as closed before it is; the child would find the file open, and refuse it."""
    program = """
    from mainstay.stores.sqlite.connections import CONNECTIONS
    engine = Engine(url)
    once(engine, "first")
    held = next(each for each in CONNECTIONS._all if not each.is_closed)
    class Slow:
        def close(self):
            begun.set()
            time.sleep(0.3)
            own.close()
    own, held.connection, begun = held.connection, Slow(), threading.Event()
    thread = threading.Thread(target=held.close, args=(1.0,))
    thread.start()
    begun.wait(60)
    assert reap(in_child(lambda: once(engine, "child"))) == 0
    thread.join()
    once(engine, "after")
    """
    run(program, tmp_path)
    assert keys(tmp_path, "answers") == ["after", "child", "first"]
    assert refusals(tmp_path) == []


def test_a_fork_just_after_a_connection_was_opened_costs_no_step(tmp_path):
    """It has closed that connection too, so the step and the journal open another one."""
    program = """
    from mainstay.stores.sqlite.connections import SqliteConnections
    from mainstay.stores.sqlite.store import SqliteStore
    store = SqliteStore(url)
    journal = store.journal()
    journal.tail()
    opened, forks = SqliteConnections.open, []
    def then_fork(*args):
        held = opened(*args)
        if len(forks) % 2 == 0:
            forks.append(reap(in_child(lambda: None)))
        else:
            forks.append(0)
        return held
    reap(in_child(lambda: None))
    SqliteConnections.open = then_fork
    store.purge()
    assert len(forks) == 2, forks
    journal.tail()
    assert len(forks) == 4, forks
    """
    run(program, tmp_path)


def test_a_database_in_memory_is_copied(tmp_path):
    """Parent and child have what was recorded before, and each its own from then on."""
    program = """
    engine = Engine("sqlite:///:memory:")
    once(engine, "before")
    def work():
        once(engine, "before")
        once(engine, "child")
        engine.close()
    assert reap(in_child(work, end=sys.exit)) == 0
    once(engine, "child")
    """
    run(program, tmp_path)
    assert keys(tmp_path, "effects") == ["before", "child", "child"]
    assert refusals(tmp_path) == lines(tmp_path, "errors") == []


def test_a_child_closes_its_engine_and_shares_circuits_as_a_node_of_its_own(tmp_path):
    """Its seat at the circuit's table is there beside its parent's."""
    program = """
    engine = Engine(url, breakers=[mainstay.CircuitBreaker("pay")], share=0.05)
    once(engine, "first")
    def work():
        end = time.monotonic() + 20
        while f":{os.getpid()}:" not in str(engine.store.read("circuits", "pay")[0]):
            assert time.monotonic() < end, engine.store.read("circuits", "pay")
            time.sleep(0.01)
        engine.close()
    assert reap(in_child(work)) == 0
    assert f":{os.getpid()}:" in str(engine.store.read("circuits", "pay")[0])
    engine.close()
    """
    run(program, tmp_path)
    assert lines(tmp_path, "errors") == []


def test_an_audit_log_goes_on_in_both_and_a_reader_reads_on(tmp_path):
    """The chain holds; a reader that was in the middle reads the rest."""
    program = """
    from mainstay.stores.sqlite.store import SqliteStore
    def boom():
        raise ValueError("boom")
    engine = Engine(url)
    def fail(count):
        for _ in range(count):
            try:
                engine.call("pay", boom)
            except ValueError:
                pass
            engine.audit.flush()
    fail(40)
    journal = SqliteStore(url).journal(closes=True)
    blocks = journal.blocks()
    first = [next(blocks) for _ in range(3)]
    def work():
        assert len([*first, *blocks]) >= 40
        fail(3)
        engine.close()
    assert reap(in_child(work)) == 0
    fail(3)
    rest = list(blocks)
    assert len(first) + len(rest) >= 40
    engine.close()
    from mainstay.audit.verify import verify_log
    verdict = verify_log(url)
    assert verdict.ok, verdict
    print(verdict.records)
    """
    assert int(run(program, tmp_path)) >= 46
    assert lines(tmp_path, "errors") == []


# --- refusals -------------------------------------------------------------------------------------


def refused_once(folder, reason):
    """The child was refused for a reason, at once; the parent went on, and its records are kept."""
    found = refusals(folder)
    assert found
    assert all(reason in each for each in found), found
    assert keys(folder, "effects") == ["after", "before"]
    assert violations(folder) == []


def test_a_step_that_lasts_longer_than_a_second_has_the_child_refuse(tmp_path):
    """The parent's step ends as if nothing had happened."""
    program = """
    engine = Engine(url)
    once(engine, "before")
    began, ended = threading.Event(), threading.Event()
    def slow(value, now):
        began.set()
        ended.wait(60.0)
        return mainstay.core.base.change.Change(b"slow"), None
    import mainstay.core.base.change
    step = threading.Thread(target=engine.store.transact, args=("s", "slow", slow))
    step.start()
    began.wait()
    def work():
        once(engine, "child")
        once(Engine(url), "child")
    def shown():
        try:
            work()
        except StoreUnavailable as error:
            note("refused", f"open {error}")
    assert reap(in_child(shown, end=sys.exit)) == 0
    ended.set()
    step.join()
    assert engine.store.read("s", "slow")[0] == b"slow"
    once(engine, "after")
    engine.close()
    """
    run(program, tmp_path)
    assert len(refusals(tmp_path)) == 2
    refused_once(tmp_path, "under way for more than 1 s in the parent process")


@pytest.mark.parametrize(
    "own", ["sqlite3.connect(f'{where}/kept.db')", "open(f'{where}/kept.db', 'rb')"]
)
def test_a_file_that_is_open_in_another_way_is_refused_in_the_child(tmp_path, own):
    """A user's own connection, or a file object: SQLite's table of locks may be wrong there."""
    program = f"""
    engine = Engine(url)
    once(engine, "before")
    own = {own}
    if hasattr(own, "execute"):
        own.execute("SELECT count(*) FROM mainstay_kept").fetchall()
    def work():
        once(engine, "child")
        if hasattr(own, "execute"):
            once(Engine(store=engine.store.within(own)), "child")
    assert reap(in_child(work)) == 0
    own.close()
    once(engine, "after")
    assert reap(in_child(lambda: once(engine, "before"))) == 0
    engine.close()
    """
    run(program, tmp_path)
    assert keys(tmp_path, "answers") == ["after", "before", "before"]
    refused_once(tmp_path, "not mainstay's; close that before the fork")


HOOKS = ["pass"]
if sys.version_info < (3, 13):  # from 3.13 on Python ends a child that has called only this one
    HOOKS.append("ctypes.pythonapi.PyOS_AfterFork_Child()")


@pytest.mark.parametrize("hooks", HOOKS)
def test_a_fork_by_c_code_is_found_by_the_process_number(tmp_path, hooks):
    """Without the hooks before the fork, the child refuses what was open; a new file it may use.

    No other thread may be there: of an interpreter that learns of no fork, threads that waited for
    its lock are phantoms in the child, and a thread inside SQLite leaves its locks taken.
    """
    program = """
    import ctypes
    from mainstay.core.base.change import Change
    from mainstay.stores.sqlite.store import SqliteStore
    store = SqliteStore(url)
    def put(store, key):
        store.transact("s", key, lambda value, now: (Change(b"1"), note("effects", f"{key} 1")))
        note("answers", f"{key} 1")
    put(store, "before")
    pid = ctypes.PyDLL(None).fork()
    if not pid:
        HOOKS
        try:
            put(store, "child")
        except StoreUnavailable as error:
            note("refused", f"child {error}")
        other = SqliteStore(f"sqlite:///{where}/other.db")
        put(other, "other")
        other.close()
        os._exit(0)
    assert reap(pid) == 0
    put(store, "after")
    store.close()
    """
    run(program.replace("HOOKS", hooks), tmp_path)
    assert {line.split()[0] for line in lines(tmp_path, "answers")} == {"before", "other", "after"}
    (refused,) = lines(tmp_path, "refused")
    assert "forked by C code, without Python's hooks" in refused


WAITING = {
    "a step of an event loop": """
        async def step():
            await engine.store.atransact("s", "child", child)
        asyncio.run(step())
    """,
    "a step beside one that was under way": """
        engine.store.transact("s", "child", child)
    """,
    "several steps": """
        engine.store.transact_many([("s", "child", child)])
    """,
}


@pytest.mark.parametrize("use", WAITING)
def test_no_use_waits_for_the_writer_of_the_parent_after_a_fork_by_c_code(tmp_path, use):
    """Its thread seems to be there: each use would wait for it, and not be refused at once."""
    program = """
    import asyncio, ctypes
    engine = Engine(url, audit=False, sinks=[], purge=None)
    engine.store.timeout = 3600.0
    async def paid():
        note("effects", f"before {os.getpid()}")
        return "before"
    asyncio.run(engine.operation("pay", key="before", idempotency="idempotent").acall(paid))
    time.sleep(0.5)  # a thread that waits for the interpreter's lock would be a phantom
    engine.store._writer.is_crowded = True
    def work():
        try:
            use()
        except StoreUnavailable as error:
            note("refused", f"child {error}")
    def child(value, now):
        note("effects", "child 1")
    def use():
        exec(sys.argv[2], {**globals()})
    assert reap(in_child(work, fork=ctypes.PyDLL(None).fork)) == 0
    once(engine, "before")
    once(engine, "after")
    engine.close()
    """
    run(program, tmp_path, textwrap.dedent(WAITING[use]))
    assert lines(tmp_path, "errors") == []
    refused_once(tmp_path, "forked by C code, without Python's hooks")


def test_a_database_in_memory_is_refused_while_a_step_is_in_it(tmp_path):
    """The copy would be in the middle of a step, with SQLite's own lock taken for ever."""
    program = """
    engine = Engine("sqlite:///:memory:")
    began, ended = threading.Event(), threading.Event()
    def slow(value, now):
        began.set()
        ended.wait(60.0)
        raise ValueError
    def step():
        try:
            engine.store.transact("s", "slow", slow)
        except ValueError:
            pass
    thread = threading.Thread(target=step)
    thread.start()
    began.wait()
    assert reap(in_child(lambda: once(engine, "child"))) == 0
    ended.set()
    thread.join()
    once(engine, "after")
    """
    run(program, tmp_path)
    assert keys(tmp_path, "effects") == ["after"]
    assert "under way for more than 1 s" in refusals(tmp_path)[0]


def test_forks_and_refusals_are_counted(tmp_path):
    """In metrics and health, in each process for itself; a child that refuses is degraded."""
    program = """
    engine = Engine(url)
    own = open(f"{where}/kept.db", "rb")
    def work():
        once(engine, "child")
        once(engine, "child")
        assert engine.health().status == "degraded"
        assert (engine.health().is_live, engine.health().is_ready) == (True, False)
        assert meter()["mainstay_fork_refusals_total"] == {(): 2.0}
    def meter():
        from mainstay.sinks.metrics.gauges import WatchingMeter
        meter = WatchingMeter(10, 60.0)
        meter.watch(engine)
        return meter.readings()
    assert reap(in_child(work)) == 0
    assert engine.health().is_healthy
    assert meter()["mainstay_forks_total"] == {(): 1.0}
    assert meter()["mainstay_fork_refusals_total"] == {(): 0.0}
    """
    run(program, tmp_path)
    assert lines(tmp_path, "errors") == []
    assert len(refusals(tmp_path)) == 2
