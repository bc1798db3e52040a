"""Runs the command of `mainstay exec`: as an operation of an engine, and back to an exit code."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from msgspec import json
from msgspec.structs import replace

from mainstay.cli.errors import CommandError
from mainstay.cli.exec.engine import engine_of
from mainstay.cli.exec.report import Reporter, what_failed
from mainstay.cli.exits import Exit
from mainstay.cli.options import config_arguments, configuration
from mainstay.core.retry.effects import EXHAUSTED
from mainstay.core.retry.give_up import reason_of
from mainstay.drivers.process import run as process
from mainstay.drivers.process.command import is_output, output_of
from mainstay.drivers.process.interrupt import Interrupt
from mainstay.drivers.process.options import ProcessOptions, own_environment
from mainstay.errors import (
    AttemptTimeout,
    CallCancelled,
    CircuitOpenError,
    CommandFailed,
    CommandKilled,
    CommandNotRun,
    Conflict,
    DeadlineExceeded,
    LeaseLost,
    MainstayError,
    OutcomeUnknown,
    PayloadMismatch,
    ResultNotKept,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from typing import Any

    from mainstay.cli.exec.request import ExecRequest
    from mainstay.drivers.process.command import Output
    from mainstay.drivers.process.terminal import Terminal
    from mainstay.engine.engine import Engine
    from mainstay.engine.operations import Operation


_AROUND = 4096
"""Bytes of an outcome besides the output itself, in most cases."""


def run(request: ExecRequest, reporter: Reporter) -> int:
    """Runs the command; the exit code."""
    reporter.listen()
    _restore_child_signal()
    with Interrupt() as interrupt:
        engine = engine_of(request, configuration(), reporter)
        try:
            return _Run(request, reporter, engine, interrupt).exit_code()
        finally:
            engine.close()


def _restore_child_signal() -> None:
    """The parent may ignore SIGCHLD; then the exit code of a command would be lost."""
    if hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


class _Run:
    """One run of a command, and its attempts so far."""

    def __init__(
        self, request: ExecRequest, reporter: Reporter, engine: Engine, interrupt: Interrupt
    ) -> None:
        self.request = request
        self.reporter = reporter
        self.engine = engine
        self.interrupt = interrupt
        self.history: list[str] = []
        """How each attempt ended."""
        self.code = 0
        """The exit code of the last attempt."""

    def exit_code(self) -> int:
        terminal = _terminal()
        keep = (self.request.keep or None) if self.request.key is not None else None
        options = ProcessOptions(
            grace=self.request.grace,
            keep=keep,
            cancel=self.interrupt,
            terminal=terminal,
            env=own_environment(),
        )

        def attempt(command: tuple[bytes, ...]) -> Output:
            return self._attempt(command, options)

        def attempt_in(command: tuple[bytes, ...], folder: bytes) -> Output:  # noqa: ARG001 -- it counts
            return self._attempt(command, options)

        words = tuple(map(os.fsencode, self.request.command))
        try:
            operation = self._operation()
            folder = self._folder_of_key()
            self.engine.catch_up()
            if folder is None:
                output = operation.call(attempt, words)
            else:
                output = operation.call(attempt_in, words, folder)
        except Exception as failure:
            return self._failed(failure)
        finally:
            if terminal is not None:
                terminal.close()
        return self._ended(output, Exit.OK)

    def _operation(self) -> Operation:
        request, engine = self.request, self.engine
        if request.key is None:
            return engine.operation(request.operation, cancel=self.interrupt, escalate=False)
        return engine.operation(
            request.operation,
            escalate=False,  # the item of a command names its command line: see _escalated
            idempotency="idempotent",  # a killed run is resumed: its attempts count
            cancel=self.interrupt,
            key=request.key,
            lease=request.lease,
            wait=request.lease * 2,
        )

    def _folder_of_key(self) -> bytes | None:
        """Finds the record of the key; the working directory if the key stands for it too."""
        if self.request.key is None:
            return None
        from mainstay.cli.exec.key_record import record_of

        found = record_of(self.request, self.engine.records)
        self.engine.records.place = found.place
        return found.folder

    def _kept_at_most(self, options: ProcessOptions) -> ProcessOptions:
        """The options, with no more output than the store takes: it knows by now how much."""
        if options.keep is None:
            return options
        from mainstay.drivers.idempotency.keys import KeyOptions

        room = self.engine.records.size_limit(KeyOptions(), self.request.operation)
        if room is None:
            return options
        most = max(1, (room - _AROUND) * 3 // 4)  # it is kept as base64
        return options if options.keep <= most else replace(options, keep=most)

    def _attempt(self, command: tuple[bytes, ...], options: ProcessOptions) -> Output:
        self.code, options = Exit.OK, self._kept_at_most(options)
        try:
            output = process.run(command, options)
        except Exception as failure:
            self.code = _code_of(failure)
            self.history.append(what_failed(failure))
            if isinstance(failure, CommandFailed) and failure.output:
                self._warn_lost(failure.output)
            raise
        self.history.append("exit 0")
        self._warn_lost(output)
        return output

    def _warn_lost(self, output: Output) -> None:
        if output["lost"]:
            key = self.request.key
            self.reporter.warn(f"the output is not kept under the key {key!r}: {output['lost']}")

    # --- the outcome ------------------------------------------------------------------------

    def _ended(self, output: Output, code: int) -> int:
        """The command has run; now, or before under the same key: then its output is replayed."""
        if self.history:
            return code
        if not is_output(output):
            return self._marked_done(output)
        if output["lost"]:
            raise CommandError(
                f"the command ran before under the key {self.request.key!r} and ended with exit"
                f" {code}, but its output was not kept: {output['lost']}",
                hint="use a new key to run it again; --keep-output 0 replays the exit code alone",
                exit_code=Exit.CANNOT_WRITE,
            )
        from mainstay.drivers.process.capture import frames

        sys.stdout.flush()
        for stream, data in frames(output["tape"]):
            _write(stream, data)
        return code

    def _marked_done(self, evidence: object) -> int:
        """An operator marked the call as done: the evidence replaces the output of the command."""
        text = evidence if isinstance(evidence, str) else json.encode(evidence).decode()
        key = self.request.key
        self.reporter.note(f"an operator has marked {key!r} as done", event="said_done")
        sys.stdout.flush()
        _write(1, (text.rstrip("\n") + "\n").encode("utf-8", "backslashreplace"))
        return Exit.OK

    def _failed(self, failure: Exception) -> int:
        """The exit code of a failure; prints what the command cannot have printed itself."""
        if self.interrupt.is_set():
            return 128 + self.interrupt.number
        if isinstance(failure, CircuitOpenError | Conflict):
            return self._refused(failure)
        if isinstance(failure, OutcomeUnknown):
            return self._doubtful(failure)
        if isinstance(failure, StoreUnavailable | LeaseLost):
            return self._unrecorded(failure)
        if isinstance(failure, ResultNotKept):
            raise CommandError(
                f"the command ran before under the key {self.request.key!r}, but its output was not"
                f" kept: {failure.reason}",
                hint="use a new key to run it again; --keep-output 0 replays the exit code alone",
                exit_code=Exit.CANNOT_WRITE,
            ) from failure
        if isinstance(failure, PayloadMismatch):
            raise CommandError(
                f"the key {self.request.key!r} was used for another command line",
                hint="a key stands for one command with its arguments, and for the working"
                " directory if one of them is a relative path; use a new key for this",
            ) from failure
        if not isinstance(failure, CommandFailed | AttemptTimeout | DeadlineExceeded | OSError):
            raise failure
        if isinstance(failure, CommandFailed) and not self.history:
            return self._ended(failure.output or output_of(None), failure.exit_code)
        self._report_given_up(failure)
        escalates = self.request.escalate or self.engine.escalate
        return self._escalated(failure) if escalates else _code_of(failure)

    def _refused(self, failure: CircuitOpenError | Conflict) -> int:
        wait = failure.retry_after
        later = f"; try again in {wait:.0f} s" if wait else ""
        fields: dict[str, Any] = {"event": "refused", "retry_after_seconds": wait}
        advice: tuple[str, ...] = ()
        if isinstance(failure, CircuitOpenError):
            show, reset = self._circuit_commands(failure.operation)
            fields |= {"circuit": failure.operation, "show": show, "reset": reset}
            other = "or use another circuit: --operation NAME"
            advice = (f"see it: {show}", f"to go on: {reset}", other)
        self.reporter.warn(f"not run: {failure.message}{later}", **fields)
        self.reporter.advise(*advice)
        return Exit.CIRCUIT_OPEN

    def _circuit_commands(self, name: str) -> tuple[str, str]:
        """The commands that show and reset a circuit, in the store that it is in."""
        from mainstay.core.redact.command_line import redacted_line  # most runs need none

        store = [] if self.request.store is None else ["--store", self.request.store]
        given = redacted_line([*store, *config_arguments()])
        options = f" {given}" if given else ""
        name = redacted_line([name])
        return (
            f"mainstay circuits show {name}{options}",
            f"mainstay circuits reset {name} --why TEXT{options}",
        )

    def _doubtful(self, failure: OutcomeUnknown) -> int:
        if failure.item_id is None:
            raise failure
        return self._needs_person(failure.message, failure.item_id)

    def _unrecorded(self, failure: MainstayError) -> int:
        """The store did not take it: the command has run all the same, or was not begun."""
        if not self.history:
            self.reporter.warn(f"not run: the key cannot be looked up: {failure.message}")
            return Exit.STORE_UNAVAILABLE
        for text in (failure.message, *getattr(failure, "__notes__", ())):
            self.reporter.warn(text)
        return self.code

    def _report_given_up(self, failure: Exception) -> None:
        """Reports why there is no further attempt; the command has printed why it failed."""
        attempts, text = len(self.history), what_failed(failure)
        why = _why_no_more(failure)
        if attempts > 1 or why:
            times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
            text = f"gave up after {times}: {text}{f' ({why})' if why else ''}"
        elif _is_reported(failure):
            return
        report = self.reporter.warn if isinstance(failure, CommandNotRun) else self.reporter.note
        report(
            f"{self.request.operation}: {text}",
            event="given_up",
            attempts=attempts,
            exit_code=_code_of(failure),
        )

    # --- a person ---------------------------------------------------------------------------------

    def _escalated(self, failure: Exception) -> int:
        """Raises an inbox item and prints its id; if that fails, returns the command's code."""
        from mainstay.core.codec.canonical import fingerprint
        from mainstay.core.inbox.items import Item
        from mainstay.core.redact.command_line import redacted_line

        request, attempts = self.request, len(self.history)
        digest = fingerprint(
            {"command": tuple(map(os.fsencode, request.command)), "key": request.key}
        )
        circuits = [circuit.name for circuit in self.engine.circuits.of(request.operation)]
        item = Item(
            kind="exhausted",
            subject=f"exec:{request.operation}:{digest}",
            operation=request.operation,
            text=f"gave up after {attempts} attempt(s) ({', '.join(self.history)}):"
            f" {redacted_line(request.command)}",
            attempts=attempts,
            data={"circuits": circuits} if circuits else {},
        )
        try:
            if "durable" not in self.engine.store.abilities:
                raise StoreUnavailable(self.engine.store.url, "keep an item", "it is not durable")
            raised = self.engine.inbox.put(item)
        except MainstayError as error:
            self.reporter.warn(f"no item could be raised: {error}")
            return _code_of(failure)
        return self._needs_person(f"{request.operation} gave up", raised.id)

    def _needs_person(self, why: str, item_id: str) -> int:
        self.reporter.warn(
            f"{why}: an operator must decide; item {item_id}: mainstay inbox show {item_id}",
            event="needs_person",
            item=item_id,
        )
        return Exit.NEEDS_PERSON


def _code_of(failure: Exception) -> int:
    if isinstance(failure, CommandFailed):
        return failure.exit_code
    if isinstance(failure, CallCancelled):
        return Exit.INTERRUPTED
    return Exit.TIMEOUT if isinstance(failure, AttemptTimeout | DeadlineExceeded) else Exit.NOT_RUN


def _why_no_more(failure: Exception) -> str:
    """What ended the retries, if it was not their number."""
    reason = reason_of(failure)
    return "" if reason == EXHAUSTED.text else reason


def _is_reported(failure: Exception) -> bool:
    """Whether the command itself has printed why it failed."""
    if isinstance(failure, CommandNotRun):
        return failure.output is not None
    if isinstance(failure, CommandKilled):
        return failure.signal == getattr(signal, "SIGPIPE", 0)  # the reader has closed the pipe
    return isinstance(failure, CommandFailed)


def _terminal() -> Terminal | None:
    if os.name == "nt":
        return None
    from mainstay.drivers.process.terminal import Terminal

    return Terminal.of_process()


def _write(stream: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(stream, left) :]
