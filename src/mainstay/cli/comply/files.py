"""Telemetry and ledger files of `mainstay comply`: which is which, their content, their lines."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from mainstay.cli.errors import CommandError
from mainstay.cli.screen.progress import watched
from mainstay.core.base.change import ready
from mainstay.core.codec.json_lines import line_at, line_of_error, places
from mainstay.core.pipeline.ledger import LEDGERS
from mainstay.core.pipeline.ledger_file import decode as decode_ledger
from mainstay.core.telemetry.record import StageTotals, TelemetryRecord
from mainstay.runtime.private_files import (
    LARGEST,
    NotPrivateError,
    open_regular,
    read_beside,
    read_bounded,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mainstay.core.comply.telemetry_facts import TelemetryFacts
    from mainstay.core.pipeline.ledger import Ledger

_HINT = "nothing was changed; give another file, or restore this one from a copy"
_FOUND_HINT = (
    "look where it comes from, and move it; or name the files to check: mainstay comply FILE ..."
)
_SQLITE = b"SQLite format 3\x00"
_VERSION = 1


class Telemetry(Struct):
    """A telemetry file, its records as they are written."""

    records: list[msgspec.Raw]
    version: int = _VERSION
    totals: list[StageTotals] = []
    records_left_out: Annotated[int, Meta(ge=0)] = 0


class _Ledger(Struct):
    entries: list[msgspec.Raw]


def kind_of(path: str) -> str:
    """What a file is, by its content: "telemetry", "ledger" or "audit"."""
    with _refusals(path), open(path, "rb", opener=open_regular) as file:
        head = file.read(4096)  # it is opened twice, so a pipe would lose this
    if head.startswith(_SQLITE) or path.endswith(".jsonl"):
        return "audit"
    return "ledger" if re.search(rb'"ledger"\s*:', head) else "telemetry"


def read_named(path: str) -> bytes | None:
    """The content of a file that a user has named, also of a pipe; None if it is not there."""
    with _refusals(path), suppress(FileNotFoundError):
        return read_bounded(path, os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0)), LARGEST)
    return None


def read_found(path: str, root: str) -> bytes | None:
    """The content of a file that nobody has named; None if it is not there.

    Args:
        path: its place, as the document has it.
        root: the folder in which it was searched for. A link may lead to a file in it, and to no
            other: else a repository would decide which file of the user's is read.
    """
    real, inside = os.path.realpath(path), os.path.realpath(root)
    if not real.startswith(os.path.join(inside, "")):  # noqa: PTH118  pathlib loads slowly
        where = "this folder" if root == os.curdir else root
        raise CommandError(f"{path} is reached by a link out of {where}", hint=_FOUND_HINT)
    with _refusals(path, _FOUND_HINT), suppress(FileNotFoundError):
        return read_beside(Path(real), LARGEST)
    return None


@contextmanager
def _refusals(path: str, hint: str = _HINT) -> Iterator[None]:
    """What is not opened or read is a mistake of the command line, or of the checkout."""
    try:
        yield
    except NotPrivateError as error:
        raise CommandError(f"{path} {error.reason}", hint=hint) from error


def read_ledger(path: str, data: bytes) -> Ledger:
    """The ledger in a file; LedgerError with the line if it cannot be read, or is the other one."""
    name = os.path.basename(path).removesuffix(".json")  # noqa: PTH119  pathlib loads slowly
    return decode_ledger(data, path, name if name in LEDGERS else "")


def add_telemetry(facts: TelemetryFacts, path: str, data: bytes) -> int:
    """Adds the totals and the records of a file, and returns how many records there are."""
    try:
        outer = msgspec.json.decode(data, type=Telemetry)
    except (ValueError, RecursionError) as error:
        raise _unreadable(
            path, line_of_error(data, error), f"it holds no telemetry: {error}"
        ) from error
    if outer.version != _VERSION:
        line = line_at(data, max(0, data.find(b'"version"')))
        text = f"it has version {outer.version}, and this mainstay reads version {_VERSION}"
        raise _unreadable(path, line, text)
    facts.begin(path, outer.totals, outer.records_left_out)
    decode = msgspec.json.Decoder(TelemetryRecord).decode
    for index, raw in enumerate(watched(outer.records, "telemetry records", len(outer.records))):
        try:
            facts.add(decode(raw))
        except (ValueError, RecursionError) as error:
            line = lines_of(data, {index})[index]
            raise _unreadable(path, line, f"this is no telemetry record: {error}") from error
    return len(outer.records)


def lines_of(data: bytes, wanted: Collection[int]) -> dict[int, int]:
    """The lines of some records of a telemetry file, or entries of a ledger, by their index."""
    is_ledger = re.search(rb'"ledger"\s*:', data[:4096]) is not None
    if is_ledger:
        raws = msgspec.json.decode(data, type=_Ledger).entries
    else:
        raws = msgspec.json.decode(data, type=Telemetry).records
    start = data.find(b'"entries"' if is_ledger else b'"records"')
    found, line, counted = {}, 1, 0
    parts = raws[: max(wanted, default=-1) + 1]
    for index, place in enumerate(places(data, parts, start)):
        if index in wanted:
            line += data.count(b"\n", counted, place)
            found[index], counted = line, place
    return found


def _unreadable(path: str, line: int, text: str) -> CommandError:
    return CommandError(f"{path}, line {line}: {text}", hint=_HINT)


ready(Telemetry)
ready(_Ledger)
