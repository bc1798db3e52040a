"""What is in a queue is found while other threads append to it."""

from collections import deque

from mainstay.events import CallSucceeded
from mainstay.sinks.delivery.backlog import Backlog, Ticket
from mainstay.sinks.queues import content_of
from mainstay.sinks.recent import RecentEvents


class Busy(deque):
    """Another thread appends in the midst of the first looks, as without the interpreter's lock."""

    appends = 2

    def _is_mutated(self):
        self.appends -= 1
        if self.appends >= 0:
            self.append(CallSucceeded(operation="meanwhile"))
            raise RuntimeError("deque mutated during iteration")

    def __iter__(self):
        self._is_mutated()
        return super().__iter__()

    def copy(self):
        self._is_mutated()
        return super().copy()


def test_a_look_that_was_disturbed_is_taken_again():
    """And finds what was appended meanwhile."""
    assert len(content_of(Busy([1]))) == 3


def test_what_waits_for_delivery_is_counted_while_calls_go_on():
    """The thread that delivers asks, and must not end by it."""
    backlog = Backlog.__new__(Backlog)
    backlog.queue = Busy([CallSucceeded(operation="a"), Ticket()])
    assert backlog.queued == 3


def test_the_latest_events_are_read_while_calls_go_on():
    """Those of the moment."""
    recent = RecentEvents(most=5)
    recent._events = Busy(maxlen=5)
    assert len(list(recent.records())) == 2
