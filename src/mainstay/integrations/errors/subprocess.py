"""subprocess: the exit code of a command decides, where it has one meaning everywhere.

Those meanings are the ones of BSD's sysexits.h, of the shell (126, 127) and of timeout(1). All
others each program defines for itself.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Row, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_WRONG = "the command was called or set up wrongly"


def _code(exception: Any) -> Iterable[int | None]:
    return (exception.returncode,)


TABLE = Table(
    "subprocess",
    {
        "subprocess.SubprocessError": Row(
            Kind.PERMANENT, "the function that prepares the child failed"
        ),
        "subprocess.CalledProcessError": Cases(
            _code,
            {
                64: Row(Kind.PERMANENT, f"EX_USAGE: {_WRONG}"),
                65: Row(Kind.PERMANENT, "EX_DATAERR: the input is not valid"),
                66: Row(Kind.PERMANENT, "EX_NOINPUT: the input is missing"),
                67: Row(Kind.PERMANENT, "EX_NOUSER: there is no such user"),
                68: Row(Kind.PERMANENT, "EX_NOHOST: there is no such host"),
                69: Row(Kind.TRANSIENT, "EX_UNAVAILABLE: a service was not available"),
                71: Row(Kind.OVERLOAD, "EX_OSERR: the system refused something, such as a fork"),
                75: Row(Kind.TRANSIENT, "EX_TEMPFAIL: the command asks to be run again later"),
                77: Row(Kind.AUTH, "EX_NOPERM: not permitted"),
                78: Row(Kind.PERMANENT, f"EX_CONFIG: {_WRONG}"),
                124: Row(Kind.TIMEOUT, "cut by timeout(1) while it ran", ambiguous=True),
                126: Row(Kind.PERMANENT, "the command cannot be executed"),
                127: Row(Kind.PERMANENT, "there is no such command"),
                "-*": Row(
                    Kind.UNKNOWN, "killed by a signal, and nobody knows why or how far it had come"
                ),
            },
            otherwise=Row(Kind.UNKNOWN, "an exit code that each program defines for itself"),
            of="exit code",
        ),
        "subprocess.TimeoutExpired": Row(
            Kind.TIMEOUT, "cut by its timeout while it ran", ambiguous=True
        ),
    },
    retries="none",
)
