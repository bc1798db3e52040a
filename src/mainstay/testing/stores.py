"""What every store must do, as tests: run it against a store of your own.

    from mainstay.testing.stores import StoreContract

    class TestMyStore(StoreContract):
        def open(self):
            return MyStore("my://server")

Every test has a space of its own, so a server may be shared. If two objects are opened, they
stand for two processes.
"""

from __future__ import annotations

import asyncio
import random
import threading
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from mainstay.core.base.change import DROP, KEEP, Change
from mainstay.core.codec.outcome import Failed, Succeeded, decode_outcome, encode_outcome
from mainstay.core.idempotency.record import (
    Begin,
    Busy,
    Done,
    Lost,
    Mismatch,
    RecordState,
    Release,
    Renew,
    Replay,
    Run,
    Settle,
    Unknown,
    reduce,
)
from mainstay.errors import ValueTooLarge
from mainstay.ports import many_of, max_value_of
from mainstay.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstay.ports import Store

_SOON = 10.0
"""Seconds that anything here may take at most."""
_LEASE = 0.4

VALUES: tuple[Any, ...] = (
    None, 0, "", False, [], {}, b"", b"\x00\xff", "\u00e9\U0001f600", {"a": [1, 2.5]}, (1, 2),
)  # fmt: skip


class StoreContract:
    """The tests; a subclass opens the store.

    >>> from mainstay.stores.memory import MemoryStore
    >>> class TestMyStore(StoreContract):
    ...     def open(self):
    ...         return MemoryStore()
    >>> TestMyStore().test_a_step_reads_decides_and_writes()
    """

    def open(self) -> Store:
        """Opens the store; twice for the same place gives two views of the same records."""
        raise NotImplementedError("a subclass opens its store")

    # --- steps -----------------------------------------------------------------------------------

    def test_a_step_reads_decides_and_writes(self) -> None:
        """What one step wrote the next one reads; dropping it makes it absent."""
        with _opened(self) as (store, space):
            assert store.transact(space, "k", lambda value, now: (Change(b"1"), value)) is None
            assert store.transact(space, "k", lambda value, now: (Change(b"2"), value)) == b"1"
            assert store.read(space, "k")[0] == b"2"
            assert store.transact(space, "k", lambda value, now: (DROP, value)) == b"2"
            assert store.read(space, "k")[0] is None

    def test_a_decision_to_keep_writes_nothing(self) -> None:
        """Absent stays absent, and a record stays as it is."""
        with _opened(self) as (store, space):
            store.transact(space, "k", lambda value, now: (KEEP, None))
            assert store.read(space, "k")[0] is None
            store.transact(space, "k", lambda value, now: (Change(b"1"), None))
            store.transact(space, "k", lambda value, now: (KEEP, None))
            assert store.read(space, "k")[0] == b"1"

    def test_a_decision_that_raises_changes_nothing(self) -> None:
        """Its error comes back as it is, and the store can go on."""
        with _opened(self) as (store, space):
            store.transact(space, "k", lambda value, now: (Change(b"1"), None))
            try:
                store.transact(space, "k", lambda value, now: (Change(b"2"), 1 / 0))
            except ZeroDivisionError:
                pass
            else:
                raise AssertionError("the decision's error was lost")
            assert store.read(space, "k")[0] == b"1"

    def test_a_hint_changes_nothing_but_the_cost(self) -> None:
        """Right or wrong, of a record that is there or of none; for a store that takes hints."""
        with _opened(self) as (store, space):
            do = partial(_hinted, store, space)
            for hint in (None, b"", b"1", b"2"):
                assert do(hint, lambda value, now: (Change(b"1"), value)) is None
                assert do(hint, lambda value, now: (Change(b"2"), value)) == b"1"
                assert store.read(space, "k")[0] == b"2"
                assert do(hint, lambda value, now: (KEEP, value)) == b"2"
                assert do(hint, lambda value, now: (DROP, value)) == b"2"
                assert do(hint, lambda value, now: (DROP, value)) is None
                assert store.read(space, "k")[0] is None

    # --- many steps at once ----------------------------------------------------------------------

    def test_many_steps_come_to_the_same_as_one_after_another(self) -> None:
        """Answers and records; also of several steps on one record, and of one that raises."""
        chance = random.Random(7)  # noqa: S311 -- the same in every run
        with _opened(self) as (store, space):
            together, alone = space + "m", space + "o"
            for _ in range(10):
                chosen = [(chance.choice("abcdefgh"), chance.choice(_STEPS)) for _ in range(12)]
                many = many_of(store)([(together, key, step) for key, step in chosen])
                one_by_one = [_answer_of(store, alone, key, step) for key, step in chosen]
                assert list(map(_shown, many)) == list(map(_shown, one_by_one))
                for key in "abcdefgh":
                    assert store.read(together, key)[0] == store.read(alone, key)[0], key

    def test_hundreds_of_leases_are_renewed_in_one_call(self) -> None:
        """On the store's clock, each alone: one that was lost is the answer of its step."""
        keys = [f"k{number}" for number in range(300)]
        with _opened(self) as (store, space):
            many = many_of(store)
            begun = many([(space, key, _does(Begin("a", "f", 30.0, 3))) for key in keys])
            assert begun == [Run(1, 1)] * 300
            store.transact(space, "k7", _does(Release("a", 1)))
            renewed = many([(space, key, _does(Renew("a", 1, 60.0))) for key in keys])
            assert [key for key, answer in zip(keys, renewed, strict=True) if answer == Lost()] == [
                "k7"
            ]
            assert isinstance(store.transact(space, "k8", _does(Begin("b", "f", 1.0, 3))), Busy)
            ended = many([(space, key, _does(Release("a", 1))) for key in keys])
            assert ended.count(Done()) == 299
            assert store.scan(space) == []

    def test_no_step_of_many_is_lost_between_threads(self) -> None:
        """Four threads count on the same records, in any order, through two views of the store."""
        keys = [f"k{number}" for number in range(20)]
        with _opened(self) as (store, space):
            other = self.open()

            def count(number: int) -> None:
                mine = keys if number % 2 else keys[::-1]
                for _ in range(3):
                    steps = [(space, key, _count) for key in mine]
                    assert many_of((store, other)[number % 2])(steps) == [None] * 20

            try:
                _in_threads(4, count)
            finally:
                other.close()
            assert [store.read(space, key)[0] for key in keys] == [b"12"] * 20

    def test_spaces_and_keys_are_apart(self) -> None:
        """Any text is a key, and no two are the same record."""
        keys = ["k", "K", " k", "k ", "a.b", "a/b", "a:b", "*", ">", "$x", "\u00e9", "\U0001f600"]
        keys += ["", "line\nbreak", "x" * 600, "x" * 601, '["t","op","k"]']
        with _opened(self) as (store, space):
            for number, key in enumerate(keys):
                store.transact(space, key, _puts(str(number).encode()))
            store.transact(space + "2", "k", lambda value, now: (Change(b"other"), None))
            for number, key in enumerate(keys):
                assert store.read(space, key)[0] == str(number).encode(), repr(key)

    def test_a_large_value_comes_back(self) -> None:
        """Half a megabyte, byte for byte."""
        data = bytes(range(256)) * 2048
        with _opened(self) as (store, space):
            store.transact(space, "k", lambda value, now: (Change(data), None))
            assert store.read(space, "k")[0] == data

    def test_a_value_beyond_the_limit_is_refused_and_nothing_is_written(self) -> None:
        """With ValueTooLarge; a step beside it goes on. Only limits up to 4 MB are tried out."""
        with _opened(self) as (store, space):
            store.transact(space, "k", _puts(b"1"))
            limit = max_value_of(store)
            assert store.describe().get("max_value") == limit
            if limit is None or limit > 4 << 20:
                return
            data = b"x" * (limit + 1024)

            async def both() -> tuple[Any, Any]:
                large = store.atransact(space, "k", _puts(data))
                small = store.atransact(space, "other", _puts(b"2"))
                return await asyncio.gather(large, small, return_exceptions=True)

            refused, taken = asyncio.run(both())
            assert isinstance(refused, ValueTooLarge)
            assert taken is None
            try:
                store.transact(space, "k", _puts(data))
            except ValueTooLarge:
                pass
            else:
                raise AssertionError("it was taken")
            assert store.read(space, "k")[0] == b"1"
            assert store.read(space, "other")[0] == b"2"

    def test_a_space_is_scanned_page_by_page(self) -> None:
        """In the order of the keys, each once, and nothing of another space."""
        names = [f"{number:03}" for number in range(25)]
        with _opened(self) as (store, space):
            for name in reversed(names):
                store.transact(space, name, lambda value, now: (Change(b"x"), None))
            store.transact(space, names.pop(), lambda value, now: (DROP, None))
            store.transact(space + "2", "other", lambda value, now: (Change(b"y"), None))
            found: list[str] = []
            while page := store.scan(space, found[-1] if found else "", 10):
                found += [key for key, _ in page]
            assert found == names

    def test_expired_records_are_purged_and_no_others(self) -> None:
        """Those whose time has come on the store's clock; without a time they stay."""
        with _opened(self) as (store, space):
            for key, seconds in (("past", 0.05), ("future", 3600.0), ("always", None)):

                def decide(_: Any, now: float, seconds: float | None = seconds) -> Any:
                    return Change(b"x", None if seconds is None else now + seconds), None

                store.transact(space, key, decide)
            _until(lambda: store.purge(1000) >= 0 and store.read(space, "past")[0] is None)
            assert store.read(space, "future")[0] == b"x"
            assert store.read(space, "always")[0] == b"x"

    def test_the_clock_is_the_stores(self) -> None:
        """Two views of the store agree on the time, and it moves."""
        with _opened(self) as (store, space):
            other = self.open()
            try:
                first = store.transact(space, "k", lambda value, now: (KEEP, now))
                second = other.transact(space, "k", lambda value, now: (KEEP, now))
                third = store.read(space, "k")[1]
                assert first <= second + 0.5
                assert abs(third - first) < _SOON
                _until(lambda: store.read(space, "k")[1] > third)
            finally:
                other.close()

    # --- concurrency -----------------------------------------------------------------------------

    def test_no_step_is_lost_between_threads(self) -> None:
        """Eight threads count together, through two views of the store."""
        with _opened(self) as (store, space):
            other = self.open()

            def count(number: int) -> None:
                for _ in range(25):
                    (store, other)[number % 2].transact(space, "k", _count)

            try:
                _in_threads(8, count)
            finally:
                other.close()
            assert store.read(space, "k")[0] == b"200"

    def test_no_step_is_lost_between_tasks(self) -> None:
        """Fifty tasks count together, and a thread with a loop of its own beside them."""
        with _opened(self) as (store, space):

            async def many() -> None:
                await asyncio.gather(*(store.atransact(space, "k", _count) for _ in range(50)))

            _in_threads(2, lambda _: asyncio.run(many()))
            assert store.read(space, "k")[0] == b"100"
            assert asyncio.run(store.aread(space, "k"))[0] == b"100"

    def test_of_a_hundred_that_begin_one_runs(self) -> None:
        """The others find it running, whatever view of the store they have."""
        with _opened(self) as (store, space):
            answers: list[Any] = []

            async def begin(number: int) -> None:
                command = Begin(f"owner-{number}", "f", 30.0, 3)
                answers.append(await store.atransact(space, "k", _does(command)))

            async def all_of_them() -> None:
                await asyncio.gather(*(begin(number) for number in range(100)))

            asyncio.run(all_of_them())
            assert sum(isinstance(answer, Run) for answer in answers) == 1
            assert sum(isinstance(answer, Busy) for answer in answers) == 99

    # --- records ---------------------------------------------------------------------------------

    def test_a_later_write_carries_the_epoch(self) -> None:
        """Who was overtaken cannot renew, settle or release; who overtook can."""
        with _opened(self) as (store, space):
            do = _doer(store, space)
            first = do(Begin("a", "f", _LEASE, 3))
            assert first == Run(1, 1)
            _until(lambda: not isinstance(do(Begin("probe", "g", 1.0, 1)), Busy))
            second = _eventually(lambda: do(Begin("b", "f", 30.0, 3)), Run)
            assert second == Run(2, 2), "the crashed attempt counts"
            for command in (
                Renew("a", 1, 30.0),
                Settle("a", 1, RecordState.SUCCEEDED, b"1", None),
                Release("a", 1),
            ):
                assert isinstance(do(command), Lost)
            assert isinstance(do(Settle("b", 2, RecordState.SUCCEEDED, b"2", None)), Done)
            assert do(Begin("c", "f", 30.0, 3)) == Replay(RecordState.SUCCEEDED, b"2")

    def test_a_lease_that_is_renewed_does_not_end(self) -> None:
        """Others find it busy for as long as its owner renews the lease."""
        with _opened(self) as (store, space):
            do = _doer(store, space)
            do(Begin("a", "f", _LEASE, 3))
            end = SYSTEM.monotonic() + _LEASE * 2
            while SYSTEM.monotonic() < end:
                sent, renewed = SYSTEM.monotonic(), do(Renew("a", 1, _LEASE))
                other = do(Begin("b", "f", _LEASE, 3))
                if SYSTEM.monotonic() - sent >= _LEASE:
                    return  # the machine stood still for longer than the lease
                assert (type(renewed), type(other)) == (Done, Busy)
                SYSTEM.sleep(_LEASE / 10)

    def test_attempts_are_counted_with_the_claim(self) -> None:
        """If a process dies again and again, the outcome is unknown."""
        with _opened(self) as (store, space):
            do = _doer(store, space)
            attempts = []
            for number in range(3):
                begin = Begin(f"o{number}", "f", 0.05, 3)
                attempts.append(_eventually(partial(do, begin), Run).attempts)
            assert attempts == [1, 2, 3]
            answer = _eventually(lambda: do(Begin("last", "f", 0.05, 3)), Unknown)
            assert answer.is_new
            assert isinstance(do(Begin("later", "f", 0.05, 3)), Unknown)

    def test_another_payload_is_refused_and_nothing_overwritten(self) -> None:
        """While it runs and after it has ended."""
        with _opened(self) as (store, space):
            do = _doer(store, space)
            do(Begin("a", "f", 30.0, 3))
            assert do(Begin("b", "other", 30.0, 3)) == Mismatch("f")
            do(Settle("a", 1, RecordState.SUCCEEDED, b"1", None))
            assert do(Begin("b", "other", 30.0, 3)) == Mismatch("f")
            assert do(Begin("b", "f", 30.0, 3)) == Replay(RecordState.SUCCEEDED, b"1")

    def test_only_what_has_ended_expires(self) -> None:
        """An outcome past its time is as if it had not been; what runs or is unknown stays."""
        with _opened(self) as (store, space):
            do = _doer(store, space)
            do(Begin("a", "f", 30.0, 3))
            store.purge(1000)
            assert isinstance(do(Begin("b", "f", 30.0, 3)), Busy)
            do(Settle("a", 1, RecordState.SUCCEEDED, b"1", 0.2))
            answer = _eventually(lambda: do(Begin("c", "f", 30.0, 3)), Run)
            assert answer.attempts == 1

    def test_every_outcome_comes_back_as_it_was(self) -> None:
        """None, nothing and false are outcomes like any other; so are bytes and exceptions."""
        with _opened(self) as (store, space):
            for number, value in enumerate(VALUES):
                outcome = self._recorded(store, space, f"v{number}", Succeeded(value))
                assert isinstance(outcome, Succeeded)
                assert (type(outcome.value), outcome.value) == (type(value), value)
            failure = ValueError("no", 7)
            failure.add_note("a note")
            outcome = self._recorded(store, space, "failed", Failed(failure))
            assert isinstance(outcome, Failed)
            assert repr(outcome.exception) == repr(failure)
            assert outcome.exception.__notes__ == ["a note"]

    def _recorded(self, store: Store, space: str, key: str, outcome: Any) -> Any:
        state = RecordState.FAILED if isinstance(outcome, Failed) else RecordState.SUCCEEDED
        do = _doer(store, space, key)
        do(Begin("a", "f", 30.0, 3))
        do(Settle("a", 1, state, encode_outcome(outcome), None))
        replay = do(Begin("b", "f", 30.0, 3))
        assert replay.state is state
        return decode_outcome(replay.outcome)

    # --- the store itself ------------------------------------------------------------------------

    def test_it_says_what_it_is(self) -> None:
        """Its kind and place, without secrets; and what it can do."""
        with _opened(self) as (store, _):
            described = store.describe()
            assert described["store"]
            assert described["url"]
            assert "records" in store.abilities

    def test_closing_twice_is_closing(self) -> None:
        """And nothing is left behind that would keep a program from ending."""
        store = self.open()
        store.close()
        store.close()


class _opened:  # noqa: N801 -- a context manager is used like a function
    """The store, and a space of its own."""

    def __init__(self, contract: StoreContract) -> None:
        self._store = contract.open()

    def __enter__(self) -> tuple[Store, str]:
        return self._store, f"test-{uuid.uuid4().hex}"

    def __exit__(self, *_: object) -> None:
        self._store.close()


def _does(command: Any) -> Callable[[bytes | None, float], Any]:
    return lambda value, now: reduce(value, command, now)


def _doer(store: Store, space: str, key: str = "k") -> Callable[[Any], Any]:
    return lambda command: store.transact(space, key, _does(command))


def _hinted(store: Any, space: str, hint: bytes | None, decide: Any) -> Any:
    """A step with a hint, if the store takes one."""
    hints = (hint,) if getattr(store, "takes_hints", False) else ()
    return store.transact(space, "k", decide, *hints)


def _answer_of(store: Store, space: str, key: str, step: Any) -> Any:
    try:
        return store.transact(space, key, step)
    except ZeroDivisionError as error:
        return error


def _shown(answer: Any) -> Any:
    return type(answer) if isinstance(answer, Exception) else answer


def _puts(data: bytes) -> Callable[[bytes | None, float], Any]:
    return lambda value, now: (Change(data), None)


def _count(value: bytes | None, _now: float) -> tuple[Change, None]:
    return Change(str(int(value or b"0") + 1).encode()), None


_STEPS: tuple[Any, ...] = (
    _count,
    _count,
    lambda value, now: (KEEP, value),
    lambda value, now: (DROP, value),
    lambda value, now: (Change(b"9", now + 3600.0), value),
    lambda value, now: (Change(b"5"), 1 / 0),
)
"""What a step of many may do."""


def _until(condition: Callable[[], bool]) -> None:
    """Waits for a condition, not for long."""
    for _ in _moments():
        if condition():
            return
    raise AssertionError("it did not come to that")


def _eventually(ask: Callable[[], Any], kind: type) -> Any:
    """The first answer of a kind, not for long."""
    for _ in _moments():
        answer = ask()
        if isinstance(answer, kind):
            return answer
    raise AssertionError(f"there was no {kind.__name__}")


def _moments() -> Iterator[None]:
    end = SYSTEM.monotonic() + _SOON
    while SYSTEM.monotonic() < end:
        yield
        SYSTEM.sleep(0.01)


def _in_threads(number: int, function: Callable[[int], object]) -> None:
    errors: list[BaseException] = []

    def guarded(index: int) -> None:
        try:
            function(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_SOON * 3)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads)
