"""The exit codes of `mainstay`: every one there is, and no number anywhere else.

The numbers from 69 to 76 follow sysexits.h, 124 follows timeout(1), 126 and more follow the shell.
A command that `mainstay exec` runs keeps its own code.
"""

from __future__ import annotations

from enum import IntEnum

MISSING = "the command line needs click and rich: pip install 'mainstay[cli]'"
"""What USAGE means if only the base install is there."""


class Exit(IntEnum):
    """What a code means; docs/how-to/command-line.md has the same table."""

    OK = 0
    NEGATIVE = 1
    """The command worked, and found a problem or refuses."""
    USAGE = 2
    """A mistake of the caller's: an option, a name, a file, an extra that is not installed."""
    STORE_UNAVAILABLE = 69
    """`exec` only: not run, because its key could not be looked up."""
    INTERNAL = 70
    """A bug in mainstay."""
    CANNOT_WRITE = 74
    """The output could not be written: a full disk, a closed descriptor."""
    CIRCUIT_OPEN = 75
    """`exec` only: not run: the circuit is open, or another run has the key; try later."""
    NEEDS_PERSON = 76
    """`exec` only: an operator must decide; the item is in the inbox."""
    TIMEOUT = 124
    """`exec` only: the time was up."""
    NOT_RUN = 126
    """`exec` only: the system did not start the command; 127 if it was not found."""
    INTERRUPTED = 130
    """Ctrl+C."""
    CLOSED_PIPE = 141
    """The reader has closed the pipe, as in `mainstay policies | head -1`."""
