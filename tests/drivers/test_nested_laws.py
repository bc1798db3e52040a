"""The law of nested retries: trees of calls against a model of the words.

*The innermost retry owns its attempts; an outer one does not repeat what an inner one has given up
on, if that very failure reached it.* A tree has retries, siblings, handlers that swallow, translate
or fail over, threads, tasks, groups, exception objects that are raised again, and outcomes that
several calls share. `Play` makes the calls. `Model` knows nothing of notes, frames and numbers: it
has a clock that ticks, failures with the times at which they were given up on, and the words.

*An attempt that refuses retries inside ends each that would make a second attempt after a failure
which it would retry itself; in tasks and in threads that copy the context, not in plain pools.* For
that the model has the list of those attempts.
"""

import asyncio
import contextlib
import contextvars
import functools
import itertools
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from mainstay import Backoff, NestedRetryError, NestedRetryWarning, RetryPolicy, retry
from mainstay.testing import virtual_time

TYPES = {"A": ConnectionError, "B": ValueError}
"""Types that a policy settles: such failures are decided on the fast path, where they can be."""
REFUSAL = "N"

# --- trees ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """Fails by its script, one step at each call; then it succeeds, or fails for ever."""

    script: str
    """A, B: a new failure; S: one object that all leaves share; a dot: a success."""


@dataclass(frozen=True)
class Retry:
    """Retries what is inside."""

    attempts: int
    on: str
    nested: str
    way: str
    child: object


@dataclass(frozen=True)
class Sequence:
    """One after the other; the first failure ends it."""

    children: tuple


@dataclass(frozen=True)
class Handled:
    """A handler: swallows, translates, or calls something else."""

    how: str
    child: object
    other: object


@dataclass(frozen=True)
class Elsewhere:
    """In a thread of a pool, in one that copies the context, or in a task; it is waited for."""

    where: str
    child: object


@dataclass(frozen=True)
class Group:
    """All of them, and their failures as a group."""

    children: tuple


@dataclass(frozen=True)
class Shared:
    """The outcome of the first call is that of all: a task that several wait for."""

    child: object


ONS = ("A", "A", "AB", "AB", "B")
MODES = ("collapse", "collapse", "warn", "allow", "refuse")
WAYS = ("decorated", "call", "block", "bounded", "listener")
HOWS = ("swallow", "from A", "from B", "anew A", "anew B", "from None A", "fail over", "again")
LEAVES = st.builds(Leaf, st.text("AAAABSS.", min_size=1, max_size=4))


def grown(children):
    several = st.lists(children, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(
            Retry,
            st.integers(1, 3),
            st.sampled_from(ONS),
            st.sampled_from(MODES),
            st.sampled_from(WAYS),
            children,
        ),
        st.builds(Sequence, several),
        st.builds(Handled, st.sampled_from(HOWS), children, children),
        st.builds(Elsewhere, st.sampled_from(["thread", "copied", "task"]), children),
        st.builds(Group, several),
        st.builds(Shared, children),
    )


def around(children):
    """A retry around a tree: most trees should have two, one inside the other."""
    return st.builds(
        Retry,
        st.integers(2, 3),
        st.sampled_from(ONS),
        st.sampled_from(MODES),
        st.sampled_from(WAYS),
        children,
    )


TREES = around(st.recursive(LEAVES | around(LEAVES) | around(around(LEAVES)), grown, max_leaves=6))


def step(script, number):
    """What a script has for the call of that number; the last step is for all after it."""
    return script[min(number, len(script) - 1)]


# --- the calls ------------------------------------------------------------------------------------


@functools.cache
def policy_of(attempts, on, nested, is_bounded):
    """A policy that has settled both types: so a call that can takes the fast path."""
    made = RetryPolicy(
        retry_on=tuple(TYPES[each] for each in on),
        max_attempts=attempts,
        nested=nested,
        backoff=Backoff.constant(0),
        deadline=1e6 if is_bounded else None,
    )
    for each in TYPES.values():
        made.classification(each())
    return made


class Play:
    """Makes the calls of a tree; counts those of each leaf."""

    def __init__(self, pools):
        self.counts = {}
        self.shared = TYPES["A"]("one object")
        self.kept = {}
        self.pools = pools

    def outcome(self, tree):
        try:
            self.run(tree, ())
        except Exception as error:
            return type(error).__name__
        return "success"

    def run(self, tree, at):
        return getattr(self, f"run_{type(tree).__name__.lower()}")(tree, at)

    def run_leaf(self, leaf, at):
        number = self.counts[at] = self.counts.get(at, -1) + 1
        what = step(leaf.script, number)
        if what == "S":
            raise self.shared
        if what != ".":
            raise TYPES[what](f"{at} {number}")

    def run_retry(self, node, at):
        policy = policy_of(node.attempts, node.on, node.nested, node.way == "bounded")
        at = (*at, 0)
        if node.way == "block":
            for attempt in policy.attempts():
                with attempt:
                    self.run(node.child, at)
        elif node.way == "call":
            policy.call(self.run, node.child, at)
        elif node.way == "listener":
            retry(policy=policy, listener=lambda _: None)(self.run)(node.child, at)
        else:
            policy(self.run)(node.child, at)

    def run_sequence(self, node, at):
        for number, child in enumerate(node.children):
            self.run(child, (*at, number))

    def run_handled(self, node, at):
        how, _, name = node.how.rpartition(" ")
        try:
            self.run(node.child, (*at, 0))
        except Exception as error:
            if node.how == "swallow":
                return
            if node.how == "again":
                raise
            if node.how == "fail over":
                self.run(node.other, (*at, 1))
            elif how == "from":
                raise TYPES[name]("translated") from error
            elif how == "from None":
                raise TYPES[name]("translated") from None
            else:
                raise TYPES[name]("translated")  # noqa: B904 -- the context is what is tested

    def run_elsewhere(self, node, at):
        work = self.in_task if node.where == "task" else self.run
        pool = self.pools[len(at)]  # a thread of its own at each level: none waits for itself
        if node.where != "thread":  # as asyncio.to_thread and each new task do
            work = functools.partial(contextvars.copy_context().run, work)
        pool.submit(work, node.child, (*at, 0)).result()

    def in_task(self, tree, at):
        async def task():
            self.run(tree, at)

        async def main():
            await asyncio.create_task(task())

        asyncio.run(main())

    def run_group(self, node, at):
        failures = []
        for number, child in enumerate(node.children):
            try:
                self.run(child, (*at, number))
            except Exception as error:
                failures.append(error)
        if failures:
            raise ExceptionGroup("group", failures) from None

    def run_shared(self, node, at):
        if at not in self.kept:
            self.kept[at] = None
            try:
                self.run(node.child, (*at, 0))
            except Exception as error:
                self.kept[at] = error
        if self.kept[at] is not None:
            raise self.kept[at]


# --- the model ------------------------------------------------------------------------------------


@dataclass(eq=False)
class Failure(Exception):
    """A failure of the model: its type, and when it was given up on."""

    kind: str
    cause: object = None
    members: tuple = ()
    given_up: list = field(default_factory=list)

    def is_one_of(self, kinds):
        if self.members:
            return all(each.is_one_of(kinds) for each in self.members)
        return self.kind in kinds

    def was_given_up_since(self, moment):
        if any(time >= moment for time in self.given_up):
            return True
        if self.cause is not None and self.cause.was_given_up_since(moment):
            return True
        return any(each.was_given_up_since(moment) for each in self.members)


class Model:
    """The words, and nothing else."""

    def __init__(self):
        self.counts = {}
        self.shared = Failure("A")
        self.kept = {}
        self.clock = itertools.count()
        self.stood_back = self.refused = 0
        self.refusing = []

    def outcome(self, tree):
        try:
            self.run(tree, ())
        except Failure as failure:
            names = {kind: each.__name__ for kind, each in TYPES.items()}
            names |= {"": "ExceptionGroup", REFUSAL: NestedRetryError.__name__}
            return names[failure.kind]
        return "success"

    def run(self, tree, at):
        return getattr(self, f"run_{type(tree).__name__.lower()}")(tree, at)

    def run_leaf(self, leaf, at):
        number = self.counts[at] = self.counts.get(at, -1) + 1
        what = step(leaf.script, number)
        if what != ".":
            raise self.shared if what == "S" else Failure(what)

    def run_retry(self, node, at):
        for number in range(1, node.attempts + 1):
            began = next(self.clock)
            try:
                self.attempt(node, at)
            except Failure as failure:
                if not failure.is_one_of(node.on) or node.attempts == 1:
                    raise  # it would not retry this: it never gives up on it
                was_given_up = failure.was_given_up_since(began)
                stands_back = node.nested == "collapse" and was_given_up
                if number == node.attempts or stands_back:
                    self.stood_back += number < node.attempts
                    failure.given_up.append(next(self.clock))
                    raise
                around = number == 1 and any(failure.is_one_of(each) for each in self.refusing)
                if around or (node.nested == "refuse" and was_given_up):
                    self.refused += 1
                    raise Failure(REFUSAL, cause=failure) from None
            else:
                return

    def attempt(self, node, at):
        refuses = node.nested == "refuse" and node.attempts > 1
        self.refusing = [*self.refusing, node.on] if refuses else self.refusing
        try:
            self.run(node.child, (*at, 0))
        finally:
            self.refusing = self.refusing[: len(self.refusing) - refuses]

    def run_sequence(self, node, at):
        for number, child in enumerate(node.children):
            self.run(child, (*at, number))

    def run_handled(self, node, at):
        try:
            self.run(node.child, (*at, 0))
        except Failure as failure:
            if node.how == "again":
                raise
            if node.how == "fail over":
                self.run(node.other, (*at, 1))
            elif node.how != "swallow":
                how, _, kind = node.how.rpartition(" ")
                raise Failure(kind, cause=failure if how == "from" else None) from None

    def run_elsewhere(self, node, at):
        before = self.refusing
        self.refusing = [] if node.where == "thread" else before
        try:
            self.run(node.child, (*at, 0))
        finally:
            self.refusing = before

    def run_group(self, node, at):
        failures = []
        for number, child in enumerate(node.children):
            try:
                self.run(child, (*at, number))
            except Failure as failure:
                failures.append(failure)
        if failures:
            raise Failure("", members=tuple(failures))

    def run_shared(self, node, at):
        if at not in self.kept:
            self.kept[at] = None
            try:
                self.run(node.child, (*at, 0))
            except Failure as failure:
                self.kept[at] = failure
        if self.kept[at] is not None:
            raise self.kept[at]


# --- the law --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pools():
    """A thread for each level of a tree."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(40)]


def decorated(attempts, on, child):
    return Retry(attempts, on, "collapse", "decorated", child)


INNER = decorated(3, "A", Leaf("A"))
FINAL = decorated(3, "A", Leaf("ABABAB"))
"""Gives up on nothing: its last failure is one that it does not retry."""
BETWEEN = decorated(3, "B", Sequence((Leaf("B."), INNER)))
"""Does not retry what the inner one gives up on, and has made two attempts by then."""
EARLIER = Sequence((Handled("swallow", decorated(2, "A", Leaf("SS.")), INNER), Leaf("AS")))
"""Raises an object that was given up on in an earlier attempt of what is around it."""


@pytest.mark.req("EF-02")
@settings(max_examples=300)
@given(tree=TREES)
@example(Retry(3, "A", "collapse", "decorated", INNER))
@example(Retry(3, "A", "collapse", "decorated", Elsewhere("thread", INNER)))
@example(Retry(3, "A", "collapse", "decorated", Handled("fail over", INNER, INNER)))
@example(Retry(3, "A", "collapse", "block", Sequence((Handled("swallow", INNER, INNER), INNER))))
@example(Retry(3, "AB", "collapse", "call", Handled("from B", INNER, INNER)))
@example(Retry(3, "AB", "collapse", "call", Handled("anew B", INNER, INNER)))
@example(Retry(3, "A", "collapse", "bounded", Group((Leaf("A"), INNER))))
@example(Retry(3, "A", "collapse", "decorated", Shared(INNER)))
@example(Retry(3, "A", "collapse", "decorated", Sequence((Handled("swallow", Leaf("S"), INNER),))))
@example(Retry(4, "A", "refuse", "decorated", Elsewhere("task", Sequence((INNER, INNER)))))
@example(Retry(4, "A", "refuse", "call", Elsewhere("copied", Handled("swallow", INNER, INNER))))
@example(Retry(4, "A", "refuse", "block", Elsewhere("thread", INNER)))
@example(Retry(2, "AB", "refuse", "listener", Elsewhere("task", Group((INNER, Leaf("B"))))))
@example(decorated(2, "B", FINAL))
@example(decorated(3, "A", BETWEEN))
@example(decorated(3, "A", EARLIER))
def test_every_leaf_is_called_as_often_as_the_words_have_it(pools, tree):
    """Never robbed, and repeated by an outer retry only if it was not given up on."""
    play, model = Play(pools), Model()
    with virtual_time(), warnings.catch_warnings():
        warnings.simplefilter("ignore", NestedRetryWarning)
        outcome = play.outcome(tree)
    expected = model.outcome(tree)
    event(f"stood back: {min(model.stood_back, 3)}")
    event(f"refused: {min(model.refused, 3)}")
    assert (play.counts, outcome) == (model.counts, expected)
