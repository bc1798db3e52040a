"""What a call costs, in Python frames and C functions: counted, so no neighbour disturbs it."""

import contextlib
import gc
import sys

from mainstay.runtime import enclosing as frames


@contextlib.contextmanager
def set_apart():
    """What other tests have left under way, such as an abandoned thread, is not counted."""
    gc.collect()
    before = frames._ROOT_AT_REST
    frames.FRAMES["ms_active"] = frames._Active(frames.FRAMES["ms_active"].moment + 1)
    frames._ROOT_AT_REST = frames.references(frames._ROOT)
    frames.OLDER.clear()
    try:
        yield
    finally:
        frames._ROOT_AT_REST = before
        frames.OLDER[:] = [0]  # perhaps: the next look finds out


def costs(function, *args):
    """The Python frames and C functions that one call enters; not those of the collector."""
    with set_apart():
        return _entered(function, args)


def _entered(function, args):
    entered, was_collecting = [], gc.isenabled()

    def watch(frame, kind, argument):
        if kind == "call":
            entered.append(frame.f_code.co_name)
        elif kind == "c_call" and argument.__qualname__ != "RLock.__enter__":  # `with`, in 3.14
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
