"""The file of a ledger: JSON with one entry on a line, and errors that name the line."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from mainstay.core.base.change import ready
from mainstay.core.codec.json_lines import line_at, line_of_error, places
from mainstay.core.pipeline.ledger import VERSION, Ledger, LedgerEntry
from mainstay.errors import LedgerError


def encode(ledger: Ledger) -> bytes:
    """The ledger as its file holds it: whole JSON, one run and one entry on a line.

    >>> from mainstay.core.pipeline.ledger import RETRY_LOG, ledger_of
    >>> decode(encode(ledger_of(RETRY_LOG, []))).entries
    ()
    """
    plain = msgspec.json.encode
    rows = [
        b'"version": %d' % ledger.version,
        b'"ledger": %b' % plain(ledger.ledger),
        b'"kept_since": %b' % plain(ledger.kept_since),
        b'"runs": %b' % _lines(ledger.runs),
        b'"seal": %b' % plain(ledger.seal),
        b'"entries": %b' % _lines(ledger.entries),
    ]
    return b"{\n  " + b",\n  ".join(rows) + b"\n}\n"


def _lines(parts: tuple[Struct, ...]) -> bytes:
    if not parts:
        return b"[]"
    return b"[\n    " + b",\n    ".join(map(msgspec.json.encode, parts)) + b"\n  ]"


class _Header(Struct):
    """What is read of any version."""

    version: int


class _Outer(Struct, forbid_unknown_fields=True):
    """The parts of a ledger, its entries as they are written."""

    version: int
    ledger: msgspec.Raw
    kept_since: msgspec.Raw
    runs: msgspec.Raw
    seal: msgspec.Raw
    entries: list[msgspec.Raw]


def decode(data: bytes, path: str = "", ledger: str = "") -> Ledger:
    """The ledger of such a file; LedgerError with the line if it is damaged, or of a later version.

    Args:
        data: the content of the file.
        path: its name, for the error.
        ledger: which of the two it must be.

    >>> decode(b'{"version": 1, "ledger": "pipeline_retry_l', "retry_log.json")
    Traceback (most recent call last):
    mainstay.errors.LedgerError: retry_log.json, line 1: it is damaged or cut off: Input ...
    """
    outer = _outer(data, path)
    for raw, at in zip(outer.entries, places(data, outer.entries), strict=True):
        try:
            msgspec.json.decode(raw, type=LedgerEntry)
        except (ValueError, RecursionError) as error:
            raise LedgerError(path, line_at(data, at), f"this is no entry: {error}") from error
    try:
        found = msgspec.json.decode(data, type=Ledger)
    except (ValueError, RecursionError) as error:
        raise LedgerError(path, line_of_error(data, error), f"it is no ledger: {error}") from error
    if ledger and found.ledger != ledger:
        raise LedgerError(path, 1, f"it is the ledger {found.ledger}, not {ledger}")
    return found


def line_of(data: bytes, index: int | None) -> int:
    """The line of an entry in such a file; 1 for the whole.

    >>> line_of(encode(Ledger(ledger="versioning_ledger")), None)
    1
    """
    if index is None:
        return 1
    entries = msgspec.json.decode(data, type=_Outer).entries[: index + 1]
    return line_at(data, list(places(data, entries))[-1])


def _outer(data: bytes, path: str) -> _Outer:
    try:
        header = msgspec.json.decode(data, type=_Header)
    except (ValueError, RecursionError) as error:
        text = f"it is damaged or cut off: {error}"
        raise LedgerError(path, line_of_error(data, error), text) from error
    if header.version != VERSION:
        text = f"it has version {header.version}, and this mainstay reads version {VERSION}"
        raise LedgerError(path, line_at(data, max(0, data.find(b'"version"'))), text)
    try:
        return msgspec.json.decode(data, type=_Outer)
    except (ValueError, RecursionError) as error:
        raise LedgerError(path, line_of_error(data, error), f"it is no ledger: {error}") from error


ready(_Header)
ready(_Outer)
