"""The `mainstay` command: one module per command, loaded when it is used.

    app.py      the group, and the names of the commands
    guard.py    runs a command, and turns what it raises into a message and an exit code
    exits.py    the exit codes
    errors.py   the message and the exit code of each error
    options.py  what every command has: --json, --config, --set, an example
    screen/     plain text and JSON to stdout; tables and live displays, which need rich

A command turns arguments into a call of the library and the result into text; it decides nothing.
This file imports neither click nor rich: the base install has neither, and prints one line then.
"""

from __future__ import annotations

import gc
import sys

from mainstay.cli.exits import MISSING, Exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `mainstay` with these arguments, or the process's own; returns the exit code."""
    if arguments is None:
        gc.set_threshold(50_000)  # what is loaded stays: looking through it again and again is vain
    try:
        from mainstay.cli.guard import run
    except ModuleNotFoundError as missing:
        if missing.name != "click":
            raise
        print(f"mainstay: {MISSING}", file=sys.stderr)
        return Exit.USAGE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    if arguments is not None:
        return run(arguments)
    try:
        return run(sys.argv[1:])
    except KeyboardInterrupt:  # a second one, while the first was handled
        return Exit.INTERRUPTED
    finally:
        _end_at_once_on_ctrl_c()
        gc.freeze()  # Python ends, and would look through everything twice more


def _end_at_once_on_ctrl_c() -> None:
    """All is done, and Python ends: Ctrl+C from now on shows no traceback."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
