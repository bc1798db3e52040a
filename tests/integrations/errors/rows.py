"""A call that is to fail, and the row of the table that what it raises comes to.

    ROWS = {"exceptions.PaginationError": lambda: list(pages), ...}

    @pytest.mark.parametrize("row", ROWS)
    def test_rows(row):
        comes_to(row, ROWS[row])

A row is named as tools/provoked.py names it, or by the end of that name.
"""

import asyncio
import contextlib
import gc
import inspect
import warnings

import mainstay
from mainstay import Kind
from mainstay.core.known.registry import REGISTRY
from mainstay.core.retry.kinds import kind_of
from tools import provoked


def comes_to(row, call):
    """What `call` raises comes to this row, and is judged as the row has it."""
    error = raised_by(call)
    name, line = row_of(error)
    assert name == row or name.endswith(f".{row}"), f"{name} instead of {row}: {error!r}"
    if line.row is not None and line.case != "otherwise":
        known = kind_of(error)
        assert (known.kind, known.is_ambiguous) == (line.row.kind, line.row.ambiguous)
    decided_alike(error)
    return error


POLICIES = {
    "a policy without on=": mainstay.RetryPolicy(),
    "on=mainstay.transient": mainstay.RetryPolicy(on=mainstay.transient),
    "Engine()": mainstay.Engine().policies.of("calls"),
}
RETRIED = (Kind.TRANSIENT, Kind.THROTTLED, Kind.TIMEOUT, Kind.OVERLOAD)


def decided_alike(error):
    """Whatever a user begins with: it is repeated by its kind, unless its request is unsafe."""
    known = kind_of(error)
    expected = known.kind in RETRIED and not (known.unsafe or known.once)
    ways = {name: each.classification(error).retryable for name, each in POLICIES.items()}
    assert ways == dict.fromkeys(POLICIES, expected and isinstance(error, Exception))


def raised_by(call):
    """What it raises, a coroutine or not; which may be no `Exception`."""
    try:
        made = call()
        if inspect.isawaitable(made):
            made = asyncio.run(_awaited(made))
    except BaseException as error:  # what ends a program is judged too
        kind_of(error)
        return error
    raise AssertionError(f"nothing was raised: {made!r}")


@contextlib.contextmanager
def leaving_open():
    """Around calls of a library that leaves a socket or a loop open if they fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


async def _awaited(made):
    return await made


def row_of(error):
    """The name of the row that an exception comes to, and its line."""
    found = REGISTRY.entry_of(type(error))
    assert found is not None, f"no table knows {type(error)}: {error!r}"
    table, name, entry = found
    case = provoked.case_of(entry, error)
    full = f"{provoked.name_of(table, name)} {case}".strip()
    lines = {each: line for each, _, line, _ in provoked.rows_of(file_of(table))}
    return full, lines[full]


def file_of(table):
    from mainstay.integrations.errors import FILES

    return FILES[table.packages[0]]
