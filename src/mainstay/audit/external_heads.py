"""Writes heads outside the log, and reads them back.

A process that can rewrite a log can rewrite the heads in it. A head that is kept elsewhere (a file
on another machine, a collected log, a function of yours) shows what the log was.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mainstay.core.audit.chain import Head, decode_head, encode_head
from mainstay.core.base.functions import is_async
from mainstay.core.events.describe import reason_of, shown
from mainstay.errors import UsageError
from mainstay.runtime.reports.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logger()
_HINT = 'a path, "log:NAME" for a logger, or a plain function of one head'


_AT_ONCE: int = getattr(os, "O_NONBLOCK", 0)


class ExternalHeads:
    """The external heads of one log. A destination that fails is reported once, and tried again."""

    def __init__(self, destinations: Any) -> None:
        several = isinstance(destinations, list | tuple)
        given = () if destinations is None else tuple(destinations) if several else (destinations,)
        self._destinations = [(_shown(destination), _writer(destination)) for destination in given]
        self._silent: set[str] = set()

    def keep(self, head: Head) -> None:
        """Writes a head to each of them."""
        for name, write in self._destinations:
            try:
                write(head)
                self._silent.discard(name)
            except Exception as error:
                if name not in self._silent:
                    self._silent.add(name)
                    reason = reason_of(error)
                    _log.warning("audit: a head could not be written to %s: %s", name, reason)


def _shown(destination: Any) -> str:
    return shown(
        str(destination) if isinstance(destination, str | os.PathLike) else repr(destination)
    )


def _writer(destination: Any) -> Callable[[Head], object]:
    if isinstance(destination, logging.Logger):
        return lambda head: destination.info("%s", encode_head(head).decode())
    if isinstance(destination, str) and destination.startswith("log:"):
        return _writer(logging.getLogger(destination.removeprefix("log:")))
    if isinstance(destination, str | os.PathLike):
        return lambda head: _append(Path(destination), encode_head(head) + b"\n")
    if callable(destination) and not is_async(destination):
        return lambda head: destination(msgspec.to_builtins(head))
    raise UsageError(f"heads = {destination!r}: heads cannot be written there", hint=_HINT)


def _append(path: Path, line: bytes) -> None:
    """One write of one line, so that it is whole beside other writers.

    It may be a pipe: one that nobody reads, or that is full, is an error and not waited for.
    """
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _AT_ONCE, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def read_heads(given: Any) -> list[Head]:
    """Heads that were kept outside: a file of lines, or heads as a function has received them.

    Lines of a log may have something before the head; those without one are passed over.
    """
    if given is None:
        return []
    if isinstance(given, str | os.PathLike):
        try:
            with Path(given).open("rb") as file:
                return [head for line in file if (head := _in_line(line)) is not None]
        except OSError as error:
            raise UsageError(f"heads: {error}", hint=_HINT) from None
    if isinstance(given, Iterable):
        return [each if isinstance(each, Head) else _from_plain(each) for each in given]
    raise UsageError(f"heads = {given!r}: are no heads", hint=_HINT)


def _from_plain(given: Any) -> Head:
    try:
        return msgspec.convert(given, Head)
    except msgspec.ValidationError as error:
        raise UsageError(f"heads: {given!r} is no head: {error}") from None


def _in_line(line: bytes) -> Head | None:
    start, end = line.find(b'{"block":'), line.rfind(b"}")
    if start < 0 or end < start:
        return None
    try:
        return decode_head(line[start : end + 1])
    except msgspec.MsgspecError:
        return None
