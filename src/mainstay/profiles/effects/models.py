"""The models of the effects document, on pydantic: settings of the five kinds, envelope, outbox.

Each refuses what its document refuses, all problems at once, in pydantic's ValidationError. Unlike
plain models they also refuse a name that is not known, and a wrong value that is assigned later.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, field_validator

from mainstay.core.effects.settings import client_options, policy_fields, seconds_given
from mainstay.core.effects.taxonomy import STATUSES
from mainstay.drivers.policy import RetryPolicy

if TYPE_CHECKING:
    from mainstay.core.base.types import Seconds

Payload = TypeVar("Payload")


class RetryConfig(BaseModel):
    """What the settings of the five kinds have in common."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)
    kind: ClassVar[str]
    max_attempts: int = Field(3, ge=1, le=10)
    exponential_base: float = Field(2.0, ge=1.5, le=4.0)

    _seconds = field_validator("*", mode="before")(seconds_given)

    def policy(self, name: str = "", **fields: Any) -> RetryPolicy:
        """The engine's policy with these values; `fields` are others that it is to have.

        >>> from mainstay.profiles.effects import DatabaseRetryConfig
        >>> DatabaseRetryConfig().policy().attempt_timeout
        40.0
        """
        return RetryPolicy(**{"name": name or self.kind, **policy_fields(self), **fields})

    def client_options(self, library: str) -> dict[str, Any]:
        """The arguments by which a client library gets the timeouts.

        >>> from mainstay.profiles.effects import HttpRetryConfig
        >>> HttpRetryConfig(read_timeout_seconds=5.0).client_options("requests")
        {'timeout': (10.0, 5.0)}
        """
        return client_options(self, library)


class DatabaseRetryConfig(RetryConfig):
    """Settings of calls of a database.

    >>> DatabaseRetryConfig().client_options("asyncpg")
    {'timeout': 10.0, 'command_timeout': 30.0}
    """

    kind = "database"
    initial_delay_seconds: float = Field(0.5, ge=0.01, le=10.0)
    max_delay_seconds: float = Field(30.0, ge=1.0, le=120.0)
    connection_timeout_seconds: float = Field(10.0, ge=1.0, le=60.0)
    query_timeout_seconds: float = Field(30.0, ge=1.0, le=300.0)

    if TYPE_CHECKING:  # fields are floats, whatever is given

        def __init__(
            self,
            *,
            max_attempts: int = 3,
            exponential_base: float = 2.0,
            initial_delay_seconds: Seconds = 0.5,
            max_delay_seconds: Seconds = 30.0,
            connection_timeout_seconds: Seconds = 10.0,
            query_timeout_seconds: Seconds = 30.0,
        ) -> None: ...


class KafkaRetryConfig(RetryConfig):
    """Settings of publishing to Kafka.

    >>> KafkaRetryConfig().client_options("confluent_kafka")["delivery.timeout.ms"]
    120000
    """

    kind = "kafka"
    max_attempts: int = Field(5, ge=1, le=10)
    initial_delay_seconds: float = Field(1.0, ge=0.1, le=30.0)
    max_delay_seconds: float = Field(60.0, ge=1.0, le=300.0)
    producer_timeout_ms: int = Field(30_000, ge=1_000, le=300_000)
    delivery_timeout_ms: int = Field(120_000, ge=10_000, le=600_000)

    if TYPE_CHECKING:  # fields are floats, whatever is given

        def __init__(
            self,
            *,
            max_attempts: int = 5,
            exponential_base: float = 2.0,
            initial_delay_seconds: Seconds = 1.0,
            max_delay_seconds: Seconds = 60.0,
            producer_timeout_ms: int = 30_000,
            delivery_timeout_ms: int = 120_000,
        ) -> None: ...


class HttpRetryConfig(RetryConfig):
    """Settings of HTTP requests; `retry_on_status_codes` are those that are retried, and no others.

    >>> HttpRetryConfig().retry_on_status_codes
    [429, 500, 502, 503, 504]
    """

    kind = "http"
    initial_delay_seconds: float = Field(0.5, ge=0.1, le=10.0)
    max_delay_seconds: float = Field(30.0, ge=1.0, le=120.0)
    connect_timeout_seconds: float = Field(10.0, ge=1.0, le=60.0)
    read_timeout_seconds: float = Field(30.0, ge=1.0, le=300.0)
    retry_on_status_codes: list[int] = Field(default_factory=lambda: list(STATUSES))

    if TYPE_CHECKING:  # fields are floats, whatever is given

        def __init__(
            self,
            *,
            max_attempts: int = 3,
            exponential_base: float = 2.0,
            initial_delay_seconds: Seconds = 0.5,
            max_delay_seconds: Seconds = 30.0,
            connect_timeout_seconds: Seconds = 10.0,
            read_timeout_seconds: Seconds = 30.0,
            retry_on_status_codes: list[int] = ...,
        ) -> None: ...


class VaultRetryConfig(RetryConfig):
    """Settings of calls of Vault; `attempt_timeout_seconds` is ours, the document has none.

    >>> VaultRetryConfig().client_options("hvac")
    {'timeout': 30.0}
    """

    kind = "vault"
    initial_backoff_seconds: float = Field(0.1, ge=0.01, le=10.0)
    max_backoff_seconds: float = Field(10.0, ge=1.0, le=60.0)
    attempt_timeout_seconds: float = Field(30.0, ge=0.1, le=300.0)

    if TYPE_CHECKING:  # fields are floats, whatever is given

        def __init__(
            self,
            *,
            max_attempts: int = 3,
            exponential_base: float = 2.0,
            initial_backoff_seconds: Seconds = 0.1,
            max_backoff_seconds: Seconds = 10.0,
            attempt_timeout_seconds: Seconds = 30.0,
        ) -> None: ...


class ConsulRetryConfig(RetryConfig):
    """Settings of calls of Consul; `attempt_timeout_seconds` is ours, the document has none.

    >>> ConsulRetryConfig().client_options("consul")
    {'connections_timeout': 30.0}
    """

    kind = "consul"
    initial_delay_seconds: float = Field(1.0, ge=0.1, le=60.0)
    max_delay_seconds: float = Field(30.0, ge=1.0, le=300.0)
    attempt_timeout_seconds: float = Field(30.0, ge=0.1, le=300.0)

    if TYPE_CHECKING:  # fields are floats, whatever is given

        def __init__(
            self,
            *,
            max_attempts: int = 3,
            exponential_base: float = 2.0,
            initial_delay_seconds: Seconds = 1.0,
            max_delay_seconds: Seconds = 30.0,
            attempt_timeout_seconds: Seconds = 30.0,
        ) -> None: ...


class ModelEventEnvelope(BaseModel, Generic[Payload]):
    """An event with its own id, its time and the request that it belongs to.

    >>> envelope = ModelEventEnvelope(payload={"user": 7}, event_type="user.created.v1")
    >>> envelope.payload, envelope.correlation_id
    ({'user': 7}, None)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    payload: SerializeAsAny[Payload]
    event_type: str = ""
    envelope_id: UUID = Field(default_factory=uuid4)
    envelope_timestamp: datetime = Field(default_factory=lambda: datetime.now(UTC))
    correlation_id: UUID | None = None
    source: str = "mainstay"


class OutboxEntry(BaseModel):
    """An event that is added to the outbox in the transaction of the change that it reports.

    `add` keeps it in the outbox of an engine; `outbox_publisher_worker` publishes what is there.

    >>> import sqlite3, tempfile
    >>> from mainstay import Engine
    >>> class UserCreated(BaseModel):
    ...     user_id: str
    >>> path = f"{tempfile.mkdtemp()}/app.db"
    >>> entry = OutboxEntry(id=UUID(int=1), aggregate_type="User", aggregate_id=UUID(int=2),
    ...     event_type="user.created.v1", payload=UserCreated(user_id="u-2"),
    ...     created_at=datetime.now(UTC))
    >>> with Engine(f"sqlite:///{path}") as engine, sqlite3.connect(path) as connection:
    ...     entry.add(engine, connection)
    '00000000-0000-0000-0000-000000000001'
    >>> connection.close()
    """

    id: UUID
    aggregate_type: str
    aggregate_id: UUID
    event_type: str
    payload: SerializeAsAny[BaseModel]
    created_at: datetime
    published_at: datetime | None = None
    retry_count: int = 0

    def add(self, engine: Any, connection: Any) -> str:
        """Adds it in the transaction of a connection; returns its id."""
        added: str = engine.outbox.add(connection, **self._message())
        return added

    async def aadd(self, engine: Any, connection: Any) -> str:
        """The same on an async connection."""
        added: str = await engine.outbox.aadd(connection, **self._message())
        return added

    def _message(self) -> dict[str, Any]:
        return {
            "topic": self.event_type, "payload": self.payload, "id": str(self.id),
            "aggregate_type": self.aggregate_type, "aggregate_id": str(self.aggregate_id),
        }  # fmt: skip


ModelDatabaseRetryConfig = DatabaseRetryConfig
ModelKafkaRetryConfig = KafkaRetryConfig
ModelHttpRetryConfig = HttpRetryConfig
ModelVaultRetryConfig = VaultRetryConfig
ModelConsulRetryConfig = ConsulRetryConfig
