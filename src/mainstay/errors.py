"""Every exception and warning: the tree, with a code and a hint on each.

    MainstayError                     code, hint
    ├── UsageError                    the caller misused us
    │   ├── PolicyError               (ValueError)  a policy, backoff or jitter with wrong values
    │   ├── WrapError                 (TypeError)   something that cannot be retried as it stands
    │   ├── NestedRetryError          a retry inside a retry, if the policy refuses it
    │   ├── StoreError                (ValueError)  a store URL or ability that is not there
    │   │   └── ValueTooLarge         ... a value that is larger than the store takes
    │   ├── MissingExtraError         (ImportError) an optional library that is not installed
    │   ├── PayloadMismatch           a key that was used for another payload
    │   ├── LedgerError               (ValueError)  a ledger file that is damaged, altered or newer
    │   ├── RetryForbidden            a pipeline retries in a way that its rules forbid
    │   └── ConfigError               (ValueError)  a configuration with problems, all of them
    ├── DependencyError               what we called failed
    │   ├── RetryError                the control plane's retries ran out; chained from the last
    │   ├── AttemptTimeout            (TimeoutError) one attempt took too long and was cut
    │   ├── CommandFailed             a command ended with an exit code other than 0
    │   │   ├── CommandKilled         ... by a signal
    │   │   └── CommandNotRun         ... before it began: not found, or not to be run
    │   ├── ResultRejected            no attempt gave a result that retry_if_result accepts
    │   ├── OutcomeUnknown            an unsafe call may or may not have been applied
    │   ├── StoreUnavailable          a store did not do what it was asked
    │   ├── LeaseLost                 another call took over the key meanwhile
    │   ├── StoredFailure             a recorded failure whose class cannot be rebuilt
    │   ├── StoredValueError          (LookupError) a recorded result that cannot be rebuilt
    │   ├── ResultNotKept             (LookupError) the call was made before; its result is not kept
    │   ├── CompensationFailedError   a saga failed, and undoing a step of it failed too
    │   ├── SagaStuckError            a saga can go on only if a person decides how
    │   ├── PipelineHalted            a run of a pipeline is halted, and was not resumed
    │   ├── FailFastError             what a pipeline never retries: it halts at once
    │   │   ├── SchemaValidationError ... data that does not match its schema
    │   │   ├── GovernanceViolation   ... FAIR+CARE or another rule of governance
    │   │   │   └── GovernanceBlocked ... a data set that is blocked, restricted or in quarantine
    │   │   ├── LineageMismatch       ... a lineage or checksum that is not the expected one
    │   │   ├── ImmutabilityViolation ... a change of an artifact that must not change
    │   │   └── LicenseViolation      ... a use that a license or rights do not allow
    │   └── SinkError                 a strict sink could not keep an event
    └── Refused                       we declined to go on
        ├── DeadlineExceeded          (TimeoutError) the whole call ran out of time
        ├── CallCancelled             the caller's cancel event was set
        ├── CircuitOpenError          a circuit is open: the call was not made
        ├── CallShed                  an adaptive throttle kept a call from an overloaded service
        ├── RateLimited               a rate limit has no turn for a first call in time
        ├── BulkheadFull              no room, and none in the queue or not in time
        ├── Conflict                  the same key is being worked on elsewhere
        ├── IdentityRefused           an operator was not authenticated, or is locked
        └── CallAbandoned             a person has decided that this call is not made

    MainstayWarning (UserWarning)
    ├── NestedRetryWarning            a retry inside a retry, with the product that was avoided
    ├── PolicyNotFoundWarning         an operation without configuration runs on the default policy
    └── ConfigWarning                 a configuration with problems was left aside

A message has what happened with the values, and what to do next. The values are attributes.
Codes are stable; docs/reference/errors.md has a section for each.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from typing import Any, ClassVar


class MainstayError(Exception):
    """Anything mainstay itself raises.

    The user's own exceptions are re-raised as they are, never wrapped in one of these.

    >>> MainstayError("it broke", hint="try again").hint
    'try again'
    """

    code: ClassVar[str] = "MS000"

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        end = "" if message.endswith((".", "?", "!")) else "."
        super().__init__(f"{message}{end} {hint}" if hint else message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    cls: type[MainstayError], args: tuple[Any, ...], state: dict[str, Any]
) -> MainstayError:
    """The error with its attributes and notes, without asking its constructor."""
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(MainstayError):
    """The caller asked for something that cannot be right.

    >>> issubclass(PolicyError, UsageError)
    True
    """

    code = "MS100"


class Problem:
    """One wrong value: which field, what it was, what is allowed.

    >>> str(Problem("max_attempts", -1, "an integer from 1 to 1000000"))
    'max_attempts = -1: must be an integer from 1 to 1000000'
    """

    __slots__ = ("allowed", "field", "value")

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field = field
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        shown = _shown(self.value)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        return f"{self.field} = {shown}: must be {self.allowed}"

    def __repr__(self) -> str:
        return f"Problem({self.field!r}, {_shown(self.value)}, {self.allowed!r})"


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # a broken __repr__, or an integer of too many digits
        return f"a {type(value).__name__} that cannot be shown"


class PolicyError(UsageError, ValueError):
    """A policy with wrong values; every problem at once, in `problems`.

    >>> from mainstay import RetryPolicy
    >>> try:
    ...     RetryPolicy(max_attempts=0, deadline=-1.0)
    ... except PolicyError as error:
    ...     [problem.field for problem in error.problems]
    ['max_attempts', 'deadline']
    """

    code = "MS101"

    def __init__(self, subject: str, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        super().__init__(f"{subject} is not valid:{lines}")
        self.subject = subject


class WrapError(UsageError, TypeError):
    """What was given cannot be retried as it stands.

    >>> from mainstay import retry
    >>> try:
    ...     @retry(on=OSError)
    ...     def lines():
    ...         yield 1
    ... except WrapError as error:
    ...     "generator" in str(error)
    True
    """

    code = "MS102"


class NestedRetryError(UsageError):
    """A retry inside a retry whose policy has `nested="refuse"`.

    >>> NestedRetryError("inner", "outer", 3, 4).product
    12
    """

    code = "MS103"

    def __init__(self, inner: str, outer: str, inner_attempts: int, outer_attempts: int) -> None:
        self.inner = inner
        self.outer = outer
        self.inner_attempts = inner_attempts
        self.outer_attempts = outer_attempts
        self.product = inner_attempts * outer_attempts
        is_effect = outer_attempts == 1  # nothing else refuses retries and makes none itself
        super().__init__(
            f"{inner} retries inside {outer}: up to {inner_attempts} x {outer_attempts}"
            f" = {self.product} calls",
            hint=_FOR_AN_EFFECT if is_effect else 'retry in one place, or use nested="collapse"',
        )


_FOR_AN_EFFECT = (
    "take the retry inside out, or give it one attempt; an Orchestrator retries an effect"
)


class StoreError(UsageError, ValueError):
    """A store that does not exist or cannot do what was asked.

    >>> from mainstay import Engine
    >>> Engine(store="floppy://a")
    Traceback (most recent call last):
    mainstay.errors.StoreError: there is no store for 'floppy://a'. known stores: memory://, ...
    """

    code = "MS104"


class ValueTooLarge(StoreError):
    """A value is larger than the store takes. Nothing was written.

    `size` is the value's size in bytes, and `limit` the store's; None if the server did not name
    them.

    >>> ValueTooLarge("nats://127.0.0.1", 2_000_000, 1_048_576).limit
    1048576
    """

    code = "MS108"

    def __init__(self, url: str, size: int | None, limit: int | None, *, hint: str = "") -> None:
        self.url = url
        self.size = size
        self.limit = limit
        what = "the value" if size is None else f"a value of {size} bytes"
        most = "" if limit is None else f", which takes {limit} bytes at most"
        super().__init__(
            f"{what} is too large for {url}{most}", hint=hint or "keep something smaller"
        )


class MissingExtraError(UsageError, ImportError):
    """An optional library is missing; the message names the extra to install.

    >>> MissingExtraError("trio", "trio").hint
    "pip install 'mainstay[trio]'"
    """

    code = "MS105"

    def __init__(self, library: str, extra: str) -> None:
        self.library = library
        self.extra = extra
        super().__init__(f"{library} is not installed", hint=f"pip install 'mainstay[{extra}]'")


class PayloadMismatch(UsageError):
    """The key was used before, with other arguments. Nothing was run, nothing overwritten.

    >>> PayloadMismatch("charge", "order-7").key
    'order-7'
    """

    code = "MS106"

    def __init__(self, operation: str, key: str) -> None:
        self.operation = operation
        self.key = key
        super().__init__(
            f"{operation}: the key {key!r} was used for another payload",
            hint="a key stands for one request; use a new one for a new request",
        )


class LedgerError(UsageError, ValueError):
    """A ledger is damaged, altered, of a later version, or cannot be read; it was not changed.

    `line` is 0 if the file as a whole cannot be read.

    >>> LedgerError("versioning_ledger.json", 7, "entry 3 was altered").line
    7
    """

    code = "MS109"

    def __init__(self, path: str, line: int, reason: str) -> None:
        self.path = path
        self.line = line
        self.reason = reason
        where = f", line {line}" if line else ""
        super().__init__(
            f"{path or 'the ledger'}{where}: {reason}",
            hint="nothing was overwritten: restore the file or move it; the store has the runs, and"
            " a missing file is written anew from it",
        )


class RetryForbidden(UsageError):
    """A pipeline retries in one of the ways that its rules forbid: `rule` names which.

    >>> RetryForbidden("growing-concurrency", "attempt 2 runs 8 calls at once, attempt 1 4").rule
    'growing-concurrency'
    """

    code = "MS110"

    def __init__(self, rule: str, reason: str) -> None:
        self.rule = rule
        self.reason = reason
        super().__init__(f"{reason} ({rule})", hint="remove it: no option allows it")


class ConfigProblem(Problem):
    """One thing that is wrong in a configuration, and where it stands.

    `file` is the file, or the environment variable or option the value came from; `line` is None
    if it is not known. `field` is the path of keys. A secret is never the value.

    >>> print(ConfigProblem("retry.nested", "wern", "one of collapse, warn, allow, refuse",
    ...                     file="mainstay.yml", line=2, nearest="warn"))
    mainstay.yml:2: retry.nested = 'wern': must be one of collapse, warn, allow, refuse; did you ...
    """

    __slots__ = ("file", "line", "nearest", "text")

    def __init__(
        self,
        path: str,
        value: object,
        allowed: str,
        *,
        file: str = "",
        line: int | None = None,
        nearest: str = "",
        text: str = "",
    ) -> None:
        super().__init__(path, value, allowed)
        self.file = file
        self.line = line
        self.nearest = nearest
        self.text = text or f"must be {allowed}"

    @property
    def path(self) -> str:
        """The keys that lead to the value, joined by dots; empty for the file as a whole."""
        return self.field

    @property
    def where(self) -> str:
        """The file and the line, as far as they are known."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def __str__(self) -> str:
        shown = _configured(self.value)
        subject = f"{self.path} = {shown}" if self.path and shown else self.path or shown
        meant = f"; did you mean {self.nearest}?" if self.nearest else ""
        parts = (self.where, subject, self.text + meant)
        return ": ".join(part for part in parts if part)

    def to_dict(self) -> dict[str, Any]:
        """The problem as JSON can hold it.

        >>> ConfigProblem("retry", 3, "a mapping", file="mainstay.yml", line=1).to_dict()["line"]
        1
        """
        names = ("file", "line", "path", "value", "text", "allowed", "nearest")
        return {name: getattr(self, name) for name in names}


_SORTS = {dict: "a mapping", list: "a list"}
_WORDS = {True: "true", False: "false"}


def _configured(value: object) -> str:
    """A value as it stands in a file; None is one that is not there."""
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return _SORTS[type(value)]
    shown = _WORDS[value] if isinstance(value, bool) else _shown(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."


class ConfigError(UsageError, ValueError):
    """A configuration that cannot be used; every problem at once, in `problems`.

    >>> problem = ConfigProblem("retry", 3, "a mapping", file="mainstay.yml", line=1)
    >>> print(ConfigError([problem]))
    the configuration has 1 problem:
      - mainstay.yml:1: retry = 3: must be a mapping
    """

    code = "MS107"

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        many = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        super().__init__(f"the configuration has {many}:{lines}")


class DependencyError(MainstayError):
    """What we called failed.

    >>> issubclass(AttemptTimeout, DependencyError)
    True
    """

    code = "MS200"


class AttemptTimeout(DependencyError, TimeoutError):
    """One attempt took longer than `attempt_timeout` and was cut. It is retried.

    >>> AttemptTimeout(2.0).timeout
    2.0
    """

    code = "MS201"

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        super().__init__(f"the attempt was cut after {timeout:.3g} s")


class RetryError(DependencyError):
    """An operation of the control plane was given up after its retries; the cause is the last one.

    Only `mainstay.profiles.control_plane` raises it: elsewhere the last failure itself is raised.

    >>> error = RetryError("RETRY_KV_GET", 3, "Get kill switch status")
    >>> error.category, error.attempts, error.operation
    ('RETRY_KV_GET', 3, 'Get kill switch status')
    """

    code = "MS210"

    def __init__(
        self,
        category: str,
        attempts: int,
        operation: str,
        additional_context: dict[str, Any] | None = None,
    ) -> None:
        self.category = category
        self.attempts = attempts
        self.operation = operation
        self.additional_context = additional_context or {}
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        code = getattr(category, "value", category)
        super().__init__(f"{operation!r} ({code}) was given up after {times}")


class ResultRejected(DependencyError):
    """No attempt returned a result that `retry_if_result` accepts, under `on_exhausted="raise"`.

    `result` is the last one. It is not in the message, which may be logged.

    >>> error = ResultRejected("poll", 3, {"state": "pending"})
    >>> error.operation, error.attempts, error.result
    ('poll', 3, {'state': 'pending'})
    """

    code = "MS214"

    def __init__(self, operation: str, attempts: int, result: Any = None) -> None:
        self.operation = operation
        self.attempts = attempts
        self.result = result
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        super().__init__(f"{operation} returned no result that was accepted in {times}")


class OutcomeUnknown(DependencyError):
    """An unsafe call failed after it may have been applied; it must not be repeated blindly.

    The failure itself is the `__cause__`. `item_id` is the id of the inbox item that asks an
    operator what became of the call; None if there is no such item.

    >>> error = OutcomeUnknown("charge")
    >>> error.operation, error.item_id
    ('charge', None)
    """

    code = "MS202"
    item_id: str | None = None

    def __init__(self, operation: str, *, hint: str = "") -> None:
        self.operation = operation
        super().__init__(
            f"{operation} may or may not have been applied",
            hint=hint or "look before repeating it, or declare it idempotent or keyed",
        )


class StoreUnavailable(DependencyError):
    """A store did not do what it was asked; the message has what was tried, and why it failed.

    >>> StoreUnavailable("sqlite:///a.db", "write", "database is locked").operation
    'write'
    """

    code = "MS203"

    def __init__(self, url: str, operation: str, reason: str) -> None:
        self.url = url
        self.operation = operation
        self.reason = reason
        super().__init__(
            f"{url} could not {operation}: {reason}", hint="mainstay doctor looks into it"
        )


class LeaseLost(DependencyError):
    """Another call took over this key meanwhile; the result of this one was not recorded.

    It happens if a process stood still for longer than its lease. `value` holds what the
    function returned, and `__cause__` what it raised.

    >>> LeaseLost("charge", "order-7").key
    'order-7'
    """

    code = "MS204"

    def __init__(self, operation: str, key: str, value: object = None) -> None:
        self.operation = operation
        self.key = key
        self.value = value
        super().__init__(
            f"{operation}: the lease of key {key!r} was lost, and the result was not recorded",
            hint="ask again with the same key for the recorded one; use a longer lease",
        )


class StoredFailure(DependencyError):
    """A failure that was recorded, and whose own class cannot be rebuilt here.

    >>> StoredFailure("shop.OutOfStock", "none left").type_name
    'shop.OutOfStock'
    """

    code = "MS205"

    def __init__(self, type_name: str, message: str = "", notes: Iterable[str] = ()) -> None:
        super().__init__(f"{type_name}: {message}")
        self.type_name = type_name
        self.message = message
        for note in notes:
            self.add_note(note)


class StoredValueError(DependencyError, LookupError):
    """A recorded result that cannot be rebuilt here: its class is gone, or has changed.

    Or the record itself `is_damaged`; that of a keyed call then is a matter for a person, and
    `item_id` is the id of the inbox item.

    >>> StoredValueError("no class shop.Order").message
    'no class shop.Order'
    """

    code = "MS206"
    is_damaged: bool = False
    item_id: str | None = None


class ResultNotKept(DependencyError, LookupError):
    """The call with this key was made before, and its result was not kept: it is not made again.

    The store could not take the result: it was too large, or it is no data. The caller of that
    time has received it, with a warning. `at` is when that was, and `reason` why it was not kept.

    >>> from datetime import UTC, datetime
    >>> error = ResultNotKept("charge", "order-7", datetime(2026, 1, 2, tzinfo=UTC), "too large")
    >>> error.key, error.at.year
    ('order-7', 2026)
    """

    code = "MS208"

    def __init__(self, operation: str, key: str, at: datetime, reason: str) -> None:
        self.operation = operation
        self.key = key
        self.at = at
        self.reason = reason
        super().__init__(
            f"{operation} was done at {at:%Y-%m-%d %H:%M:%S %Z} with the key {key!r}, and its"
            f" result is not kept: {reason}",
            hint="it is not done again; use a new key for a new request",
        )


class CompensationFailedError(DependencyError):
    """A saga failed, and so did at least one compensation; the first failure is the `__cause__`.

    `failed_steps` are the names of the steps that could not be undone, in the order in which that
    was tried, and `errors` what each compensation raised. If the saga is kept in a store, `saga_id`
    is its id, and `item_id` the id of the inbox item by which a person decides.

    >>> error = CompensationFailedError("it failed", ["debit"], [OSError("down")])
    >>> error.failed_steps, error.errors
    (['debit'], [OSError('down')])
    """

    code = "MS215"
    saga_id: str = ""
    item_id: str | None = None

    def __init__(
        self, message: str, failed_steps: Iterable[str], errors: Iterable[BaseException]
    ) -> None:
        super().__init__(message)
        self.failed_steps = list(failed_steps)
        self.errors = list(errors)


class SagaStuckError(DependencyError):
    """A saga can go on only if a person decides how: `item_id` is the id of the inbox item.

    What failed is the `__cause__`.

    >>> SagaStuckError("transfer", "t-1", "step notify failed behind the pivot").saga_id
    't-1'
    """

    code = "MS216"

    def __init__(self, saga: str, saga_id: str, reason: str, item_id: str | None = None) -> None:
        self.saga = saga
        self.saga_id = saga_id
        self.reason = reason
        self.item_id = item_id
        super().__init__(
            f"{saga} {saga_id} is stuck: {reason}",
            hint=f"mainstay inbox show {item_id}" if item_id else "mainstay inbox list",
        )


class PipelineHalted(DependencyError):
    """A run of a pipeline is halted, and no stage was called; `item_id` is the inbox item, if any.

    >>> PipelineHalted("etl", "r-1", "poll", "the circuit is open").stage
    'poll'
    """

    code = "MS217"

    def __init__(
        self, pipeline_id: str, run_id: str, stage: str, reason: str, item_id: str | None = None
    ) -> None:
        self.pipeline_id = pipeline_id
        self.run_id = run_id
        self.stage = stage
        self.reason = reason
        self.item_id = item_id
        super().__init__(
            f"run {run_id} of {pipeline_id} is halted at stage {stage}: {reason}",
            hint=f"mainstay inbox show {item_id}" if item_id else "repair it, and resume the run",
        )


class FailFastError(DependencyError):
    """What a pipeline never retries: it halts, and puts the data sets of the stage into quarantine.

    Raise one of the classes derived from it in a stage.

    >>> FailFastError("unit test").message
    'unit test'
    """

    code = "MS220"


class SchemaValidationError(FailFastError):
    """Data does not match its schema.

    >>> SchemaValidationError("row 7 has no id").code
    'MS221'
    """

    code = "MS221"


class GovernanceViolation(FailFastError):
    """FAIR+CARE, or another rule of governance, does not allow it.

    >>> GovernanceViolation("CARE label A needs consent").code
    'MS222'
    """

    code = "MS222"


class GovernanceBlocked(GovernanceViolation):
    """A data set is blocked, restricted or in quarantine: the stage was not called.

    >>> GovernanceBlocked("d-7 is blocked").code
    'MS223'
    """

    code = "MS223"


class LineageMismatch(FailFastError):
    """A lineage or a checksum is not the expected one.

    >>> LineageMismatch("sha256 differs").code
    'MS224'
    """

    code = "MS224"


class ImmutabilityViolation(FailFastError):
    """An artifact that must not change would be changed.

    >>> ImmutabilityViolation("v10.3.0 is published").code
    'MS225'
    """

    code = "MS225"


class LicenseViolation(FailFastError):
    """A license or rights do not allow this use.

    >>> LicenseViolation("CC BY-NC").code
    'MS226'
    """

    code = "MS226"


class SinkError(DependencyError):
    """A strict sink could not keep an event of this call; it may still do so later.

    The sink's own error is the `__cause__`; the call's own failure, if there was one, the
    `__context__`.

    >>> SinkError("audit sqlite:///audit.db", "retry_attempt", 5.0).sink
    'audit sqlite:///audit.db'
    """

    code = "MS207"

    def __init__(self, sink: str, event_type: str, timeout: float) -> None:
        self.sink = sink
        self.event_type = event_type
        self.timeout = timeout
        super().__init__(
            f"{sink} did not keep a {event_type} within {timeout:g} s",
            hint="see to its other side, or use it without strict",
        )


class CommandFailed(DependencyError):
    """A command ended with an exit code other than 0. It is retried.

    Rules of a policy name the exit by `error_code`: `retry_on=["exit:75"]`. `reason` states how
    the command ended, without its name. If the output was kept, `output` holds it.

    >>> error = CommandFailed("rsync", 23)
    >>> error.error_code, error.reason
    ('exit:23', 'exit 23')
    """

    code = "MS211"
    reason: str = ""

    def __init__(self, command: str, exit_code: int, told: str = "", *, hint: str = "") -> None:
        self.command = command
        self.exit_code = exit_code
        self.error_code = f"exit:{exit_code}"
        self.output: Any = None
        self.reason = told or f"exit {exit_code}"
        super().__init__(f"{command}: {self.reason}", hint=hint)


class CommandKilled(CommandFailed):
    """A command was ended by a signal that we did not send. It is not retried.

    Its exit code is 128 and the signal's number, as the shell has it.

    >>> CommandKilled("rsync", 9).exit_code
    137
    """

    code = "MS212"

    def __init__(self, command: str, signal: int, name: str = "") -> None:
        self.signal = signal
        super().__init__(command, 128 + signal, f"killed by {name or f'signal {signal}'}")


class CommandNotRun(CommandFailed):
    """A command could not be run: exit 127 if it was not found, 126 for another reason.

    It is not retried.

    >>> CommandNotRun("rsync", 127, "command not found").exit_code
    127
    """

    code = "MS213"


class Refused(MainstayError):
    """We declined to go on.

    >>> issubclass(DeadlineExceeded, Refused)
    True
    """

    code = "MS300"


class DeadlineExceeded(Refused, TimeoutError):
    """The deadline of the call cut an attempt, whichever it was.

    The last failure of the call's own is the `__cause__`; if there is none, the attempt that was
    cut. If no attempt was cut, because a retry would not fit, that failure itself is raised.

    >>> DeadlineExceeded(30.0).deadline
    30.0
    """

    code = "MS301"

    def __init__(self, deadline: float, *, has_failed: bool = False) -> None:
        self.deadline = deadline
        ended = "succeeded" if has_failed else "ended"
        super().__init__(f"no attempt {ended} within the deadline of {deadline:.3g} s")


class CallCancelled(Refused):
    """The caller's cancel event was set; the last failure, if any, is the `__cause__`.

    >>> CallCancelled("fetch", 2).attempts
    2
    """

    code = "MS302"

    def __init__(self, operation: str, attempts: int) -> None:
        self.operation = operation
        self.attempts = attempts
        super().__init__(f"{operation} was cancelled after {attempts} attempt(s)")


class CircuitOpenError(Refused):
    """A circuit is open, or half open with all its probes under way: the call was not made.

    `retry_after` is how many seconds to wait before it may be worth asking again; None if only
    an operator can close the circuit. `opened_by` is the failure that opened it, as text: its type
    and message. The exception itself is not kept: its traceback would keep the frames of that
    call, and all that they hold, for as long as the circuit is open.

    >>> error = CircuitOpenError("payments", "open", 12.5)
    >>> error.retry_after
    12.5
    >>> str(error)
    "circuit 'payments' is open: the call was not made. try again in 12.5 s"
    """

    code = "MS303"
    if TYPE_CHECKING:

        def __init__(
            self,
            operation: str,
            state: Any = "open",
            retry_after: float | None = None,
            opened_by: str | None = None,
            /,
        ) -> None: ...
    else:  # refusing must be cheap: what is read is made of the arguments, when it is read
        __init__ = Exception.__init__

    @property
    def operation(self) -> str:
        """The circuit's name; also called `operation_name`."""
        return str(self.args[0]) if self.args else ""

    operation_name = operation

    @property
    def state(self) -> Any:
        """The circuit's state."""
        return self.args[1] if len(self.args) > 1 else "open"

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before asking again."""
        return self.args[2] if len(self.args) > 2 else None

    @property
    def opened_by(self) -> str | None:
        """The failure that opened the circuit; None if no failure of this process did.

        >>> CircuitOpenError("payments", "open", 12.5, "ConnectionError: down").opened_by
        'ConnectionError: down'
        """
        return self.args[3] if len(self.args) > 3 else None

    @property
    def message(self) -> str:  # type: ignore[override]
        """What happened, without what to do."""
        state = str(getattr(self.state, "value", self.state)).replace("_", " ")
        if state == "closed":  # it has closed, and lets a growing share of the calls through
            state = "only beginning to let calls through"
        cause = f" (opened by {self.opened_by})" if self.opened_by else ""
        return f"circuit {self.operation!r} is {state}: the call was not made{cause}"

    @property
    def hint(self) -> str:  # type: ignore[override]
        """What to do."""
        if self.retry_after is None:
            return "an operator has to close it"
        return f"try again in {self.retry_after:.3g} s"

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}"


class CallShed(Refused):
    """An adaptive throttle kept this call from a service that refuses most of them.

    >>> CallShed("search", 0.25).probability
    0.25
    """

    code = "MS304"

    def __init__(self, operation: str, probability: float) -> None:
        self.operation = operation
        self.probability = probability
        super().__init__(
            f"{operation} is overloaded: {probability:.0%} of its calls are held back, as this one",
            hint="try again later, or serve something cheaper",
        )


class RateLimited(Refused):
    """A rate limit has no turn for this call in time: it was not made.

    `retry_after` is how many seconds to wait before there is a turn.

    >>> RateLimited("search", 2.5).retry_after
    2.5
    """

    code = "MS309"

    def __init__(self, operation: str, retry_after: float) -> None:
        self.operation = operation
        self.retry_after = retry_after
        super().__init__(
            f"the rate limit {operation!r} has no turn for this call in time",
            hint=f"try again in {retry_after:.3g} s",
        )


class BulkheadFull(Refused):
    """No room in a bulkhead: all places and the queue are taken, or waiting took too long.

    >>> BulkheadFull("reports", 4, 8, 0.0).limit
    4
    """

    code = "MS305"

    def __init__(self, name: str, limit: int, queue: int, waited: float) -> None:
        self.name = name
        self.limit = limit
        self.queue = queue
        self.waited = waited
        waiting = f"after {waited:.3g} s of waiting" if waited else f"and {queue} wait"
        super().__init__(
            f"bulkhead {name!r} is full: {limit} running {waiting}",
            hint="try again later, or raise its limit",
        )


class Conflict(Refused):
    """The same key is being worked on elsewhere, and waiting was not wanted or took too long.

    >>> Conflict("charge", "order-7", 12.5).retry_after
    12.5
    """

    code = "MS306"

    def __init__(self, operation: str, key: str, retry_after: float) -> None:
        self.operation = operation
        self.key = key
        self.retry_after = retry_after
        super().__init__(
            f"{operation}: another call with key {key!r} is under way",
            hint=f"ask again in {retry_after:.3g} s",
        )


class IdentityRefused(Refused):
    """An operator was not allowed to act on the inbox.

    A wrong secret and an unknown name have the same message. After too many attempts the name is
    locked, also for the right secret, for `retry_after` seconds.

    >>> IdentityRefused("the name or the secret is wrong", operator="ann").operator
    'ann'
    """

    code = "MS307"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        operator: str = "",
        retry_after: float | None = None,
    ) -> None:
        self.operator = operator
        self.retry_after = retry_after
        super().__init__(message, hint=hint)


class CallAbandoned(Refused):
    """The outcome of a call was unknown, and a person has abandoned it; its key raises this.

    >>> CallAbandoned("charge", "ann", "the customer has cancelled").by
    'ann'
    """

    code = "MS308"

    def __init__(self, operation: str, by: str, why: str) -> None:
        self.operation = operation
        self.by = by
        self.why = why
        super().__init__(
            f"{operation} was abandoned by {by}: {why}", hint="use another key to call it again"
        )


class MainstayWarning(UserWarning):
    """Anything mainstay warns of, so that one filter can catch it.

    >>> issubclass(NestedRetryWarning, MainstayWarning)
    True
    """


class NestedRetryWarning(MainstayWarning):
    """A retry runs inside another retry.

    >>> issubclass(NestedRetryWarning, UserWarning)
    True
    """


class PolicyNotFoundWarning(MainstayWarning):
    """An operation without configuration runs under the default policy.

    >>> issubclass(PolicyNotFoundWarning, UserWarning)
    True
    """


class ConfigWarning(MainstayWarning):
    """A configuration with problems was left aside, and the built-in default policy is used.

    >>> issubclass(ConfigWarning, MainstayWarning)
    True
    """
