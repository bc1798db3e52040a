"""What a call costs, in Python frames and C functions: counted, so no neighbour disturbs it."""

import gc
import sys


def costs(function, *args):
    """The Python frames and C functions that one call enters; not those of the collector."""
    entered, was_collecting = [], gc.isenabled()

    def watch(frame, kind, argument):
        if kind == "call":
            entered.append(frame.f_code.co_name)
        elif kind == "c_call":
            entered.append(argument.__qualname__)

    gc.disable()
    sys.setprofile(watch)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
        if was_collecting:
            gc.enable()
    return entered[:-1]  # the last one turns the profile off


def acosts(function, *args):
    """The same for a coroutine function, without an event loop."""

    def run():
        coroutine = function(*args)
        try:  # noqa: SIM105 -- suppress() would be counted
            coroutine.send(None)
        except StopIteration:
            pass

    return [name for name in costs(run) if name not in ("run", "coroutine.send")]
