"""Stages at the same time: in threads and tasks, bounded, and halted together."""

import asyncio
import threading
import time

import pytest
import trio

from mainstay import Engine
from mainstay.errors import PolicyError
from mainstay.profiles.pipelines import GovernanceBlocked, SchemaValidationError
from tests.profiles.pipelines.places import Flaky, Place, decide, stage


@pytest.fixture
def place(tmp_path):
    """Without virtual time: the stages wait for each other."""
    return Place(tmp_path)


class Meeting:
    """Stages that only go on once so many of them are there at the same time."""

    def __init__(self, count):
        self.barrier = threading.Barrier(count)
        self.lock, self.there, self.widest = threading.Lock(), 0, 0

    def __enter__(self):
        with self.lock:
            self.there += 1
            self.widest = max(self.widest, self.there)
        self.barrier.wait(20)

    def __exit__(self, *_):
        with self.lock:
            self.there -= 1


def test_independent_stages_meet(place):
    """Two at the same time, in threads; what comes after both has the results of both."""
    meeting = Meeting(2)

    def poll(ctx):
        with meeting:
            return ctx.stage_name

    with place.engine() as engine:
        pipeline = place.pipeline(
            engine,
            stage("a", poll), stage("b", poll),
            stage("c", lambda ctx: dict(ctx.results), after=("a", "b")),
            max_parallel=2,
        )  # fmt: skip
        result = pipeline.run(run_id="r")
        assert result.results["c"] == {"a": "a", "b": "b"}
        assert {each.status for each in pipeline.get("r").stages} == {"done"}
    assert meeting.widest == 2
    assert place.kinds() == ([], ["began", "completed"])


def on_asyncio(work):
    return asyncio.run(work())


@pytest.mark.parametrize("run", [on_asyncio, trio.run], ids=["asyncio", "trio"])
def test_tasks_meet(place, run):
    """Async stages are tasks, and plain ones beside them threads."""
    seen = []

    async def main():
        library = trio if run is trio.run else asyncio
        begun = [library.Event(), library.Event()]

        async def poll(ctx):
            mine = "ab".index(ctx.stage_name)
            begun[mine].set()
            await begun[1 - mine].wait()
            return ctx.stage_name

        with place.engine() as engine:
            stages = [stage("a", poll), stage("b", poll), stage("c", lambda: "c")]
            pipeline = place.pipeline(engine, *stages, max_parallel=3)
            seen.append(dict((await pipeline.arun(run_id="r")).results))

    run(main)
    assert seen == [{"a": "a", "b": "b", "c": "c"}]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_more_at_the_same_time_than_allowed(place, most):
    """Six stages that do not need each other, under each bound."""
    lock, there, widest = threading.Lock(), [0], [0]

    def poll():
        with lock:
            there[0] += 1
            widest[0] = max(widest[0], there[0])
        time.sleep(0.01)
        with lock:
            there[0] -= 1

    with place.engine() as engine:
        stages = [stage(name, poll) for name in "abcdef"]
        place.pipeline(engine, *stages, max_parallel=most).run()
    assert 1 <= widest[0] <= most


@pytest.mark.req("PL-03")
def test_a_halt_waits_for_the_stages_under_way(place):
    """It is in the store at once, no stage is begun after it, and what was done stays done."""
    is_halting, later = threading.Event(), Flaky()
    states = []

    def side(ctx):
        assert is_halting.wait(20)
        for _ in range(2000):  # until the halt is written
            view = pipeline.get("r")
            if view.quarantine:
                break
            time.sleep(0.005)
        states.append((view.state, view.quarantine, [e.kind for e in view.versions]))
        return "done"

    def check(ctx):
        is_halting.set()
        raise SchemaValidationError("row 7")

    with place.engine() as engine:
        pipeline = place.pipeline(
            engine,
            stage("side", side), stage("check", check, datasets="d-1"),
            stage("later", later, after="side"),
            max_parallel=2,
        )  # fmt: skip
        with pytest.raises(SchemaValidationError):
            pipeline.run(run_id="r")
        assert states == [("running", ("d-1",), ["began", "halted", "quarantined"])]
        view = pipeline.get("r")
        assert (view.state, view.halted_at) == ("halted", "check")
        assert {each.name: each.status for each in view.stages} == {
            "side": "done", "check": "failed", "later": "pending",
        }  # fmt: skip
        assert later.calls == 0
        decide(engine, "release")
        check_again = stage("check", Flaky(), datasets="d-1")
        stages = stage("side", side), check_again, stage("later", later, after="side")
        place.pipeline(engine, *stages, max_parallel=2).resume("r")
    assert (later.calls, len(states)) == (1, 1)
    place.assert_whole()


def test_two_that_fail_are_both_in_the_ledgers(place):
    """The first is raised, with a note about the other; the data sets of both are held."""
    meeting = Meeting(2)

    def check(ctx):
        with meeting:
            raise SchemaValidationError(ctx.stage_name)

    with place.engine() as engine:
        stages = [stage(name, check, datasets=f"d-{name}") for name in "ab"]
        with pytest.raises(SchemaValidationError) as caught:
            place.pipeline(engine, *stages, max_parallel=2).run(run_id="r")
        assert "failed beside it: SchemaValidationError" in " ".join(caught.value.__notes__)
        for name in "ab":
            with pytest.raises(GovernanceBlocked):
                place.pipeline(engine, stage("x", Flaky(), datasets=f"d-{name}"), name=name).run()
        (item,) = [each for each in engine.inbox if each.subject == "etl/r"]
        assert sorted(item.data["datasets"]) == ["d-a", "d-b"]
    assert place.kinds()[0].count("failed_fast") == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_thread_is_raised_when_the_others_have_ended(place, error):
    """The run is left to be resumed."""
    meeting, ended = Meeting(2), []

    def stop():
        with meeting:
            raise error

    def poll():
        with meeting:
            time.sleep(0.05)
            ended.append(1)

    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("a", stop), stage("b", poll), max_parallel=2)
        with pytest.raises(error):
            pipeline.run(run_id="r")
        assert ended == [1]
        engine.pipelines.close()
        again = place.pipeline(engine, stage("a", Flaky()), stage("b", poll), max_parallel=2)
        assert again.resume("r").results["a"] == "done"
    assert ended == [1]


def test_a_task_that_is_cancelled_cancels_its_stages(place):
    """None of them goes on behind its back."""
    begun, ended = {}, []

    async def poll(ctx):
        begun[ctx.stage_name].set()
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(ctx.stage_name)

    async def main():
        begun.update({name: asyncio.Event() for name in "ab"})
        with place.engine() as engine:
            stages = [stage(name, poll) for name in "ab"]
            task = asyncio.ensure_future(place.pipeline(engine, *stages, max_parallel=2).arun())
            for each in begun.values():
                await each.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sorted(ended) == ["a", "b"]

    asyncio.run(main())


def test_a_stage_beside_others_sees_what_it_comes_after(place):
    """Not what happens to be done by then: the same in every run."""
    seen = {}

    def look(ctx):
        seen[ctx.stage_name] = sorted(ctx.results)
        return 1

    with place.engine() as engine:
        place.pipeline(
            engine,
            stage("a", look), stage("b", look), stage("c", look, after="a"),
            stage("d", look, after="c"),
            max_parallel=2,
        ).run()  # fmt: skip
    assert seen == {"a": [], "b": [], "c": ["a"], "d": ["a", "c"]}


@pytest.mark.req("PL-12.runtime")
def test_a_resumed_run_is_no_wider_than_it_began(place):
    """A retry with growing concurrency is forbidden."""
    lock, there, widest, failures = threading.Lock(), [0], [0], [OSError(11, "busy")] * 9

    def poll():
        with lock:
            there[0] += 1
            widest[0] = max(widest[0], there[0])
        time.sleep(0.01)
        with lock:
            there[0] -= 1

    def first():
        if failures:
            raise KeyError("x")

    with place.engine() as engine:
        stages = [stage("first", first), *[stage(name, poll, after="first") for name in "abc"]]
        with pytest.raises(KeyError):
            place.pipeline(engine, *stages, max_parallel=1).run(run_id="r")
        failures.clear()
        decide(engine, "release")
        place.pipeline(engine, *stages, max_parallel=3).resume("r")
    assert widest == [1]


@pytest.mark.parametrize("most", [0, 65, 1.5, "2"])
def test_the_bounds_of_max_parallel(tmp_path, most):
    """Refused when the pipeline is made."""
    with Engine(sinks=[]) as engine, pytest.raises(PolicyError, match="max_parallel"):
        Place(tmp_path).pipeline(engine, stage("a", print), max_parallel=most)
