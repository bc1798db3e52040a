"""A command that is tried more than once: each attempt reads the same input, and is bounded."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from subprocess import DEVNULL
from typing import TYPE_CHECKING

import mainstay.deadline as deadline
from mainstay.drivers.process import run as process
from mainstay.drivers.process.capture import KEPT
from mainstay.drivers.process.options import ProcessOptions, own_environment
from mainstay.runtime.context import CANCEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from mainstay.core.base.types import Seconds
    from mainstay.drivers.process.command import Output


class Tool:
    """A command with its input, and how often it was tried."""

    def __init__(
        self,
        command: Sequence[str],
        timeout: Seconds | None,
        given: bytes | None,
        cwd: str | None,
        env: Mapping[str, str] | None,
    ) -> None:
        self.attempts = 0
        self._command = command
        self._timeout = timeout
        self._input = None if given is None else tempfile.TemporaryFile()  # noqa: SIM115  closed on exit
        if self._input is not None:
            self._input.write(given or b"")
            self._input.flush()
        stdin = DEVNULL if self._input is None else self._input.fileno()
        cancel, env = CANCEL.get(), own_environment() if env is None else env
        self._options = ProcessOptions(
            keep=KEPT, through=False, cancel=cancel, stdin=stdin, cwd=cwd, env=env
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._input is not None:
            self._input.close()

    def attempt(self) -> Output:
        self.attempts += 1
        if self._input is not None:
            self._input.seek(0)
        with nullcontext() if self._timeout is None else deadline.within(self._timeout):
            return process.run(self._command, self._options)
