"""Tracebacks without our own frames: what a reader looks for is the frame of the function.

A failure that is raised again carries the frames of the attempt that it came from, and gets those
of the call on top. Two rules leave at most two frames of ours, the wrapper and what it called:

- Code that ends a call with an exception calls `shorten` on it.
- Code that an exception only passes leaves its own frame out: it calls `leave_out`, or
  `with_traceback` with what is below, and raises it again with a bare `raise`, which adds no entry.

Nothing is lost of a defect in this package: what was not raised on purpose keeps every frame.
"""

from __future__ import annotations

_MOST = 10
"""How many causes are looked at."""


def shorten(error: BaseException) -> None:
    """Leaves out our own frames at the head of a traceback, and of those of its causes.

    >>> error = ValueError("no frames")
    >>> shorten(error)
    >>> error.__traceback__ is None
    True
    """
    current: BaseException | None = error
    for _ in range(_MOST):
        if current is None:
            break
        trace = current.__traceback__
        while trace is not None:
            name = trace.tb_frame.f_globals.get("__name__")
            if name is None or name[:9] != "mainstay.":
                break
            trace = trace.tb_next
        current.with_traceback(trace)  # a frozen exception refuses to be set an attribute
        current = current.__cause__


def leave_out(error: BaseException, frames: int = 1) -> None:
    """Leaves out the frame of the code that catches the error, and perhaps of what it called.

    >>> error = ValueError("no frames")
    >>> leave_out(error)
    >>> error.__traceback__ is None
    True
    """
    trace = error.__traceback__
    for _ in range(frames):
        trace = trace and trace.tb_next
    error.with_traceback(trace)
