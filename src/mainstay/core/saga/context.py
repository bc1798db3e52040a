"""What an action and a compensation of a saga are given."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote, unquote

from mainstay.core.codec.outcome import Succeeded, decode_outcome
from mainstay.core.saga.progress import DONE, NULL
from mainstay.errors import ResultNotKept, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeAlias

    from mainstay.core.base.types import Fields, UserValue
    from mainstay.core.saga.progress import Entry

    Send: TypeAlias = Callable[[str, UserValue, Fields], str]
    """Takes the topic, the payload and the fields of a message; returns its id."""


class SagaContext:
    """What an action of a saga is given, if it takes an argument.

    Attributes:
        saga: the name of the saga.
        saga_id: its id.
        step: the name of the step.
        input: what the saga was started with.
        results: the results of the steps that are done, by their names.
        key: the same for all attempts of this action, in any process: pass it to the service that
            you call, as its idempotency key. The compensation has another.
        attempt: the number of this attempt; it counts from 1, and begins again after a crash.

    >>> context = SagaContext("transfer", "t-1", "debit", {"amount": 5}, {}, key="k")
    >>> context.input["amount"], context.attempt
    (5, 0)
    """

    __slots__ = ("_send", "attempt", "input", "key", "results", "saga", "saga_id", "step")

    def __init__(
        self,
        saga: str,
        saga_id: str,
        step: str,
        given: UserValue,
        results: Mapping[str, UserValue],
        key: str,
        send: Send | None = None,
    ) -> None:
        self.saga = saga
        self.saga_id = saga_id
        self.step = step
        self.input = given
        self.results = results
        self.key = key
        self.attempt = 0
        self._send = send

    def emit(self, topic: str, payload: UserValue, **fields: Any) -> str:
        """Adds a message to the outbox, in the transaction that writes the end of this step.

        It is published if that is written: what a failed attempt has emitted is not, and neither
        is what a process emitted that was killed before. So the state of the saga and its messages
        never differ. The outbox has to be in the database of the engine's store.

        Args:
            topic: where it is published to.
            payload: as `engine.outbox.add` takes it.
            fields: those of `engine.outbox.add`, without `id`, which is made anew.

        Returns:
            The id of the message.

        >>> from mainstay import Engine, Saga, SagaStep
        >>> import tempfile
        >>> def undo(ctx): ctx.emit("order.cancelled.v1", {"id": ctx.saga_id})
        >>> def fail(): raise KeyError("sold out")
        >>> saga = Saga("order", [SagaStep("place", lambda: 1, undo), SagaStep("pack", fail)])
        >>> with Engine(f"sqlite:///{tempfile.mkdtemp()}/app.db", sinks=[]) as engine:
        ...     try:
        ...         engine.sagas.run(saga, id="o-1")
        ...     except KeyError:
        ...         [entry.message.topic for entry in engine.outbox.entries()]
        ['order.cancelled.v1']
        """
        if self._send is None:
            raise UsageError(
                f"step {self.step} emits {topic!r}, and this saga runs without an outbox",
                hint="run it with engine.sagas on SQLite or PostgreSQL",
            )
        return self._send(topic, payload, fields)


class Results(Mapping[str, "UserValue"]):
    """The results of steps, decoded when they are read.

    A result that could not be kept raises ResultNotKept in a process that has recovered the saga.
    """

    __slots__ = ("_id", "_kept", "_saga", "_values")

    def __init__(
        self, saga: str, saga_id: str, names: tuple[str, ...], log: tuple[Entry, ...] = ()
    ) -> None:
        self._saga, self._id = saga, saga_id
        self._kept = {names[each.step]: each for each in log if each.what is DONE}
        self._values: dict[str, UserValue] = {}

    def add(self, name: str, value: UserValue) -> None:
        """Adds the result of a step that this process has run."""
        self._values[name] = value

    def __getitem__(self, name: str) -> UserValue:
        if name not in self._values:
            entry = self._kept[name]
            if bytes(entry.data) == bytes(NULL):
                at = datetime.fromtimestamp(entry.at, UTC)
                raise ResultNotKept(f"{self._saga}.{name}", self._id, at, entry.note)
            outcome = decode_outcome(bytes(entry.data))
            assert isinstance(outcome, Succeeded)
            self._values[name] = outcome.value
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._kept, *self._values]))

    def __len__(self) -> int:
        return len({*self._kept, *self._values})

    def __repr__(self) -> str:
        return f"Results({', '.join(self)})"


def address_of(saga: str, saga_id: str, tenant: str | None = None) -> str:
    """Where the record of a saga is: `transfer/t-1`, and `acme@transfer/t-1` for a tenant.

    >>> address_of("transfer", "t-1"), address_of("transfer", "t-1", "a@b")
    ('transfer/t-1', 'a%40b@transfer/t-1')
    """
    place = f"{saga}/{saga_id}"
    return place if tenant is None else f"{quote(tenant, safe='')}@{place}"


def parts_of(address: str) -> tuple[str, str, str | None]:
    """The name, the id and the tenant of such an address.

    >>> parts_of("a%40b@transfer/t/1")
    ('transfer', 't/1', 'a@b')
    """
    head, _, saga_id = address.partition("/")
    tenant, at, saga = head.rpartition("@")
    return saga, saga_id, unquote(tenant) if at else None


def key_of(address: str, step: str, *, is_undo: bool = False) -> str:
    """The key of a step, the same in every process.

    >>> key_of("transfer/t-1", "debit") == key_of("transfer/t-1", "debit")
    True
    >>> len(key_of("transfer/t-1", "debit", is_undo=True))
    32
    """
    text = f"{address}\0{step}" + ("\0undo" if is_undo else "")
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
