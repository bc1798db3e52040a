"""Group commit: one thread carries out all waiting steps in one transaction.

Threads hand in steps if others write at the same time, and wait. Async callers hand in a step and
await its answer. The steps of one turn of an event loop go to the
thread together, at the end of that turn: steps that gather while a commit is under way are in the
next one, and the loop and the thread do not compete for the interpreter meanwhile. The answers come
back with one call per event loop.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from contextlib import suppress
from operator import attrgetter
from sys import modules as _modules
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.errors import StoreUnavailable
from mainstay.runtime.background import detached_thread
from mainstay.runtime.context import BOUND, UNBOUND
from mainstay.runtime.enclosing import enclosures
from mainstay.runtime.fork import PROCESS, fork_mark, make_lock, reset_in_child
from mainstay.stores.time_left import shown, time_for

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Callable, Generator, Iterator
    from contextvars import Context
    from typing import Any

_MOST = 256
"""Steps in one transaction; longer ones would keep other processes waiting."""
_LINGER = 0.005
"""Seconds after a commit for several threads in which the next step of one comes here as well."""
_LOOK = 0.1
"""Seconds between two looks at whether the thread that is waited for is alive."""


class Writer:
    """Runs `carry_out(steps)` in a thread of its own, started when it is first needed.

    Args:
        carry_out: one transaction.
        name: that of the thread.
        url: that of the store, for what it raises.
    """

    def __init__(
        self, carry_out: Callable[[list[Any]], list[Any]], name: str, url: str = ""
    ) -> None:
        self._carry_out = carry_out
        self._name = name
        self._url = url or name
        self._lock = make_lock()
        self._is_closed = False
        self._here = fork_mark()
        self._reset()
        reset_in_child(self, Writer._reset)

    def _reset(self) -> None:
        """Without a step or a thread: what was handed in before a fork is the parent's to do."""
        self._turns: dict[AbstractEventLoop, _Turn] = {}
        """What each event loop has gathered in its present turn; only the loop's thread uses it."""
        self._queue: queue.SimpleQueue[_Turn | _ThreadTurn | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.is_crowded = False
        """Whether a commit is under way, or was a moment ago for several threads."""

    async def submit(self, step: Any, patience: float) -> Any:
        """The answer to a step; raises the error that the step raised."""
        trio = _modules.get("trio")
        if trio is not None and trio.lowlevel.in_trio_task():
            return await trio.to_thread.run_sync(self._alone, step)
        if self._is_closed or clock.current is not clock.SYSTEM:
            # A closed store raises its own error; virtual time would jump past a thread.
            return self._alone(step)
        if not self._here[0]:  # a child that was forked without hooks has no thread
            PROCESS.notice()
        loop = _modules["asyncio"].get_running_loop()
        turn = self._turns.get(loop)
        if turn is None:
            turn = self._turns[loop] = _Turn(loop)
            loop.call_soon(self._hand_over, turn, patience)
        item = _Waiting(step, turn)
        turn.items.append(item)
        if BOUND.get() is not UNBOUND or enclosures():  # as time_for asks, without its frames
            self._note_deadline(item, patience)
        await item
        answer, item.answer = item.answer, None
        if not isinstance(answer, BaseException):
            return answer
        answers = [answer]
        del answer  # its traceback will have this frame
        return answer_of(answers)

    def _note_deadline(self, item: _Waiting, patience: float) -> None:
        """That of this caller, and of no other step of the turn."""
        left = time_for(patience)
        if left < patience:
            give_up, limit = self._give_up_on, shown(left, patience)
            item.timer = item.turn.loop.call_later(left, give_up, item, limit)

    def carry_out(self, steps: list[Any], patience: float) -> list[Any]:
        """The answers to steps of a thread, each an answer or an error.

        They come after all steps that were handed in before: a step that ends what a cancelled
        caller has begun finds it, or the caller's step was withdrawn.
        """
        PROCESS.notice()
        thread = self._thread
        if thread is None or not thread.is_alive() or self._is_closed:  # nothing is under way
            parts = [steps[first : first + _MOST] for first in range(0, len(steps), _MOST)]
            return [answer for part in parts for answer in self._carry_out(part)]
        patience = time_for(patience)
        batch = _ThreadTurn(steps)
        self._queue.put(batch)
        try:
            is_done = batch.waited_for(thread, patience)
        except BaseException:
            batch.withdraw()
            raise
        if is_done:
            return [item.answer for item in batch.items]
        batch.withdraw()
        if not thread.is_alive():  # the writer was closed meanwhile
            return self.carry_out(steps, patience)
        raise StoreUnavailable(self._url, "write", f"no answer within {patience:g} s")

    def share(self, steps: list[Any], patience: float) -> list[Any]:
        """The same for a thread that has found another one writing: one commit for all of them."""
        PROCESS.notice()
        if not self._is_closed:
            with suppress(RuntimeError):  # the program ends, and no thread is started any more
                self._start()
        return self.carry_out(steps, patience)

    def _hand_over(self, turn: _Turn, patience: float) -> None:
        """The loop's turn is over: what it has gathered goes to the thread."""
        if self._turns.pop(turn.loop, None) is not turn:  # it was gathered before a fork
            return
        turn.left = len(turn.items)
        turn.timer = turn.loop.call_later(patience, self._give_up, turn, patience)
        if self._is_closed:
            self._answer(turn.items)  # as above
            return
        self._start()
        self._queue.put(turn)

    def _give_up(self, turn: _Turn, patience: float) -> None:
        for item in turn.items:
            self._give_up_on(item, f"{patience:g} s")

    def _give_up_on(self, item: _Waiting, limit: str) -> None:
        if not item.is_done:
            reason = f"no answer within {limit}"
            item.end(StoreUnavailable(self._url, "write", reason))

    def _alone(self, step: Any) -> Any:
        answer = self._carry_out([step])[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            with self._lock:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = detached_thread(self._run, self._name)
                    self._thread.start()

    def _run(self) -> None:
        while True:
            items = self._gather()
            if items is None:
                return
            is_shared = items[0].turn is not items[-1].turn
            self.is_crowded = True
            for part in _parts(items):
                self._answer(part)
            self.is_crowded = is_shared
            del items, part  # nothing is held while nothing is to be done

    def _answer(self, items: list[Any]) -> None:
        """One transaction, with the steps whose callers still wait."""
        live = [item for item in items if not item.is_done]
        try:
            answers = self._carry_out([item.step for item in live]) if live else []
        except Exception as error:
            answers = [error] * len(live)
        gone = [item for item in items if item not in live] if len(live) < len(items) else []
        _deliver([*live, *gone], [*answers, *([None] * len(gone))])

    def _gather(self) -> list[Any] | None:
        """All waiting steps, at least one; None if the writer is closed."""
        items: list[Any] = []
        turn = self._first()
        while turn is not None:
            items += turn.items
            if len(items) >= _MOST:
                return items
            try:
                turn = self._queue.get_nowait()
            except queue.Empty:
                return items
        if items:
            self._queue.put(None)  # what came before the end is carried out first
        return items or None

    def _first(self) -> _Turn | _ThreadTurn | None:
        """The next turn, however long that takes."""
        if self.is_crowded:
            with suppress(queue.Empty):
                return self._queue.get(timeout=_LINGER)
            self.is_crowded = False
        return self._queue.get()

    def close(self) -> None:
        """Carries out what waits, and ends the thread."""
        self._is_closed = True
        thread = self._thread
        if thread is not None and thread.is_alive():
            self._queue.put(None)
            if thread is not threading.current_thread():
                thread.join(5.0)


class _Turn:
    """The steps of one turn of an event loop, and the timer that bounds all of them."""

    __slots__ = ("items", "left", "loop", "timer")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self.items: list[_Waiting] = []
        self.left = 0
        self.timer: TimerHandle | None = None

    def end(self) -> None:
        """All have their answers: steps and turn let go of each other, and the timer of both."""
        self.items.clear()
        if self.timer is not None:
            self.timer.cancel()


class _ThreadTurn:
    """The steps of a thread, which waits for all of them together."""

    __slots__ = ("is_done", "items", "left", "loop")

    def __init__(self, steps: list[Any]) -> None:
        self.loop = None
        self.is_done = threading.Event()
        self.items = [_ThreadStep(step, self) for step in steps]
        self.left = len(steps)

    def waited_for(self, thread: threading.Thread, patience: float) -> bool:
        """Whether all have their answers, in time and before that thread has ended."""
        end = clock.SYSTEM.monotonic() + patience
        while not self.is_done.wait(min(_LOOK, max(0.0, end - clock.SYSTEM.monotonic()))):
            if clock.SYSTEM.monotonic() >= end or not thread.is_alive():
                return self.is_done.is_set()
        return True

    def withdraw(self) -> None:
        """What is not yet carried out is not carried out any more."""
        for item in self.items:
            item.is_done = True

    def end(self) -> None:
        """All have their answers."""
        self.is_done.set()


class _ThreadStep:
    """One of them, and its answer."""

    __slots__ = ("answer", "is_done", "step", "turn")

    def __init__(self, step: Any, turn: _ThreadTurn) -> None:
        self.step = step
        self.turn = turn
        self.is_done = False
        self.answer: Any = None

    def take(self, answers: list[Any]) -> None:
        """The last of the answers, which the thread reads when all are there."""
        self.answer = answers.pop()


class _Waiting:
    """The step of a task of asyncio, which waits for its answer; to the task it is a future.

    A future calls its task back in a turn of the loop of its own, with a handle for each. Here the
    tasks of one commit go on in the one call that brings their answers.
    """

    __slots__ = (
        "_asyncio_future_blocking", "_context", "_loop", "_wakeup", "answer", "is_done", "step",
        "timer", "turn",
    )  # fmt: skip

    def __init__(self, step: Any, turn: _Turn) -> None:
        self.step = step
        self.turn = turn
        self.is_done = False
        self.timer: TimerHandle | None = None
        self._wakeup: Callable[..., object] | None = None
        self._loop = turn.loop
        self._asyncio_future_blocking = True
        """By these two a task knows that it is a future, of its loop, and that it is awaited."""

    def __await__(self) -> Generator[Any, Any, Any]:
        return iter((self,))  # type: ignore[return-value]  # no frame: it yields this, and ends

    def add_done_callback(self, wakeup: Callable[..., object], *, context: Context) -> None:
        """The task waits; it is the only one."""
        self._wakeup, self._context = wakeup, context

    def done(self) -> bool:
        """As a future has it."""
        return self.is_done

    def take(self, answers: list[Any]) -> None:
        """The last of the answers, unless it waits no more; no task is in a step, and this goes on.

        The answer leaves the list when it is here: Ctrl+C may come before any call of a function.
        """
        if self.is_done:
            answers.pop()
            return
        if self.timer is not None:
            self.timer.cancel()
        self.answer, self.is_done = answers[-1], True
        del answers[-1]  # the frame of a task that has failed, in the traceback, refers to this one
        if self._wakeup is not None:  # or the coroutine is in no task, and looks by itself
            self._context.run(self._wakeup, self)
            self._wakeup = None  # the task, which has its failure, whose frames have this step

    def end(self, error: BaseException) -> None:
        """It has waited for long enough; another task may be in a step."""
        if not self.is_done:
            self.is_done, self.answer = True, error
            if self.timer is not None:
                self.timer.cancel()
            if self._wakeup is not None:
                self._loop.call_soon(self._wakeup, self, context=self._context)
                self._wakeup = None  # as above

    def cancel(self, msg: object = None) -> bool:
        """The task is cancelled; False if it goes on in any case, and the task has to see to it."""
        is_waiting = not self.is_done
        cancelled = _modules["asyncio"].CancelledError
        self.end(cancelled() if msg is None else cancelled(msg))
        return is_waiting

    result = staticmethod(bool)
    """Asked by the task, which goes on in `submit` and raises there: a call without a frame."""


def _parts(items: list[Any]) -> Iterator[list[Any]]:
    """Transactions of them: what a thread hands in is in one, if it fits into one."""
    if len(items) <= _MOST:  # as nearly always
        yield items
        return
    part: list[Any] = []
    for number, item in enumerate(items):
        turn = item.turn
        is_first = turn.loop is None and (not number or items[number - 1].turn is not turn)
        if len(part) >= _MOST or (is_first and len(part) + min(turn.left, _MOST) > _MOST):
            yield part
            part = []
        part.append(item)
    yield part


def answer_of(answers: list[Any]) -> Any:
    """The answer to the one step there is; raises the error that it raised."""
    answer = answers.pop()
    if isinstance(answer, StoreUnavailable):  # of the whole commit: other threads raise it as well
        cause = answer.__cause__
        raise StoreUnavailable(answer.url, answer.operation, answer.reason) from cause
    if not isinstance(answer, BaseException):
        return answer
    try:
        raise answer
    finally:
        del answer  # its traceback holds this frame: only the collector could free both


def _deliver(items: list[Any], answers: list[Any]) -> None:
    """Brings the answers back, with one call for each event loop."""
    loops = {item.turn.loop for item in items}
    for loop in loops:
        mine, theirs = items, answers
        if len(loops) > 1:
            pairs = [each for each in zip(items, answers, strict=True) if each[0].turn.loop is loop]
            mine, theirs = [item for item, _ in pairs], [answer for _, answer in pairs]
        if loop is None:
            _settle(mine, theirs)
            continue
        try:
            loop.call_soon_threadsafe(_settle, mine, theirs)
        except RuntimeError:  # the loop was closed: no caller waits any more
            continue


def _settle(items: list[Any], answers: list[Any]) -> None:
    """Gives each its answer; none is left here when the task goes on, as in `take`."""
    answers.reverse()
    for number, item in enumerate(items):
        try:
            item.take(answers)
        except BaseException:  # the task's own SystemExit or Ctrl+C ends the loop, perhaps for now
            left = items[number:]
            taken = [None] * (len(left) - len(answers))  # unless Ctrl+C came before it had its own
            item.turn.loop.call_soon(_settle, left, [*taken, *reversed(answers)])
            _count_off(items[:number])
            raise
    _count_off(items)


def _count_off(items: list[Any]) -> None:
    """They have their answers; last, as a thread that waits for all of its own reads them then."""
    for turn, count in Counter(map(_turn_of, items)).items():
        turn.left -= count
        if not turn.left:
            turn.end()


_turn_of = attrgetter("turn")
