"""A sync attempt in a worker thread, so that a timeout can end the wait for it.

A thread cannot be killed: one that is still busy when its time is up is abandoned, counted, and
ends by itself when the function returns. Asked for with `timeout_by="thread"` only.
"""

from __future__ import annotations

import sys
import threading
from contextvars import copy_context

import mainstay.runtime.clock as clock
from mainstay.core.retry.effects import Returned
from mainstay.errors import AttemptTimeout
from mainstay.runtime.enclosing import OPEN, Enclosure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.types import UserValue
    from mainstay.core.retry.effects import Outcome
    from mainstay.drivers.call.callables import Args, Function, Kwargs

_abandoned: set[_Worker] = set()


def abandoned_threads() -> int:
    """How many timed-out attempts are still running in threads that no call waits for.

    >>> abandoned_threads()
    0
    """
    return len(_abandoned)


def run_in_thread(
    enclosure: Enclosure,
    limit: float,
    function: Function,
    args: Args,
    kwargs: Kwargs,
) -> UserValue:
    """The function's result, or AttemptTimeout when the limit comes first."""
    worker = _Worker(enclosure, function, args, kwargs)
    worker.start()
    try:
        if not clock.current.sleep(limit, worker.done):
            raise AttemptTimeout(limit)
        return worker.result()
    finally:
        if worker.done.is_set():
            worker.join()
        else:
            _abandoned.add(worker)
            if worker.done.is_set():  # just now: it may have looked before it was entered
                _abandoned.discard(worker)


class WorkDone(threading.Event):
    """Set once a thread has ended its work: a virtual clock gives it real time to do so."""

    is_work = True


class _Worker(threading.Thread):
    """Runs one attempt in a copy of the caller's context."""

    def __init__(
        self,
        enclosure: Enclosure,
        function: Function,
        args: Args,
        kwargs: Kwargs,
    ) -> None:
        super().__init__(name=f"mainstay-{enclosure.plan.operation}", daemon=True)
        self._enclosure = enclosure
        self.done = WorkDone()
        self._call = (copy_context(), function, args, kwargs)
        self._outcome: Outcome | None = None

    def run(self) -> None:
        frame = sys._getframe()
        OPEN[frame] = self._enclosure  # an inner retry then sees this one
        context, function, args, kwargs = self._call
        try:
            self._outcome = Returned(context.run(function, *args, **kwargs))
        except BaseException as error:
            self._outcome = error
        finally:
            del OPEN[frame], frame, self._call
            self.done.set()
            _abandoned.discard(self)

    def result(self) -> UserValue:
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, Returned):
            return outcome.value
        assert outcome is not None
        try:
            raise outcome
        finally:
            del outcome
