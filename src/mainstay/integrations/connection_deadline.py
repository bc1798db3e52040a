"""What makes and ends connections in time, for drivers that cannot be interrupted themselves.

libpq looks a name up and connects in whole seconds, two at least, and waits for an answer without a
limit. psycopg2.py, psycopg.py and sqlalchemy_connect.py use what is here; none of it is for users.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import copy_context
from socket import SHUT_RDWR, socket
from threading import Lock, Thread, Timer
from typing import TYPE_CHECKING

from mainstay.core.base.attributes import add_note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    C = TypeVar("C")

LATE = "connection to server failed: timeout expired at the deadline"
"""The text of a connection that was not made in time; libpq's own begins like this."""


def connect_within(
    left: float,
    connect: Callable[[], C],
    late: Callable[[], Exception],
    discard: Callable[[C], object],
) -> C:
    """What `connect` returns, if it does so in the time that is left; else raises what `late` has.

    It connects in a thread of its own, which is left behind if it takes too long, and discards what
    comes late. If no time is left, nothing is begun.
    """
    if left <= 0.0:
        raise late()
    made: Future[C] = Future()
    context = copy_context()

    def run() -> None:
        try:
            connection = context.run(connect)
        except BaseException as error:  # raised where it is waited for
            if made.set_running_or_notify_cancel():
                made.set_exception(error)
        else:
            if made.set_running_or_notify_cancel():
                made.set_result(connection)
            else:
                discard(connection)

    Thread(target=run, name="mainstay-connect", daemon=True).start()
    try:
        return made.result(left)
    except TimeoutError:
        if not made.cancel():
            return made.result()
    raise late()


@contextmanager
def ended_after(left: float, connection: Any, close: Callable[[], object]) -> Iterator[None]:
    """Ends a connection, and closes it, if the block takes longer than the time that is left.

    Its socket is shut down from another thread: libpq, which waits in that of the caller, reads the
    end of the connection, and raises. The socket is duplicated, so that the number of a connection
    that was closed meanwhile, and is another file's by now, is never touched.
    """
    end = _End(connection)
    timer = Timer(max(left, 0.0), end)
    timer.daemon = True
    timer.name = "mainstay-deadline"
    timer.start()
    try:
        yield
    except Exception as error:
        if end.stop():
            add_note(error, "mainstay: the server had not answered at the deadline")
        raise
    finally:
        timer.cancel()
        if end.stop():
            with suppress(Exception):  # a pool must see that it cannot be used any more
                close()


class _End:
    """Shuts a connection down when it is called, unless it was stopped before."""

    def __init__(self, connection: Any) -> None:
        own = socket(fileno=connection.fileno())
        try:
            self._socket = own.dup()
        finally:
            own.detach()
        self._lock = Lock()
        self._is_over = False
        self._has_ended = False

    def __call__(self) -> None:
        with self._lock:
            if not self._is_over:
                self._has_ended = True
                with suppress(OSError):  # the server was faster
                    self._socket.shutdown(SHUT_RDWR)
                self._socket.close()

    def stop(self) -> bool:
        """Whether the connection was ended."""
        with self._lock:
            self._is_over = True
            self._socket.close()
            return self._has_ended
