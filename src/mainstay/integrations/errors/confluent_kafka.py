"""confluent-kafka: a KafkaException is judged by the name of the KafkaError that it carries.

The class of a KafkaException calls its module `cimpl`. Names with an underscore are librdkafka's
own, the others are those of Kafka's protocol. A full queue of a producer is a `BufferError`, which
is no class of this library.
"""

from __future__ import annotations

from mainstay.core.known.kind import RETRIED_KINDS, Kind
from mainstay.core.known.table import Cases, Inner, Row, Same, Table, by_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_GROUPS: tuple[tuple[Row, str], ...] = (
    (
        Row(Kind.TRANSIENT, "the connection was lost after sending, maybe", ambiguous=True),
        "_TRANSPORT NETWORK_EXCEPTION",
    ),
    (
        Row(Kind.TRANSIENT, "no broker was reached, so nothing was sent"),
        "_ALL_BROKERS_DOWN _RESOLVE REBOOTSTRAP_REQUIRED",
    ),
    (
        Row(Kind.TIMEOUT, "maybe sent, and not confirmed in time", ambiguous=True),
        "_MSG_TIMED_OUT _TIMED_OUT REQUEST_TIMED_OUT",
    ),
    (Row(Kind.TIMEOUT, "not sent in time"), "_TIMED_OUT_QUEUE"),
    (
        Row(Kind.TRANSIENT, "another broker is in charge by now, or will be"),
        (
            "LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION REPLICA_NOT_AVAILABLE NOT_COORDINATOR"
            " COORDINATOR_NOT_AVAILABLE NOT_CONTROLLER FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH"
            " PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE LISTENER_NOT_FOUND"
            " _WAIT_COORD"
        ),
    ),
    (
        Row(Kind.TRANSIENT, "what the client knows of the cluster is out of date"),
        (
            "UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID FETCH_SESSION_ID_NOT_FOUND"
            " INVALID_FETCH_SESSION_EPOCH MEMBER_ID_REQUIRED SHARE_SESSION_NOT_FOUND"
            " INVALID_SHARE_SESSION_EPOCH _WAIT_CACHE _NODE_UPDATE _UNKNOWN_BROKER _OUTDATED"
        ),
    ),
    (
        Row(Kind.TRANSIENT, "not ready yet: another operation is under way"),
        (
            "CONCURRENT_TRANSACTIONS UNSTABLE_OFFSET_COMMIT OFFSET_NOT_AVAILABLE"
            " UNRELEASED_INSTANCE_ID _IN_PROGRESS _PREV_IN_PROGRESS _RETRY _INTR"
        ),
    ),
    (Row(Kind.TRANSIENT, "the message was damaged on its way, and not stored"), "INVALID_MSG"),
    (
        Row(Kind.TRANSIENT, "refused with its batch, for another message; it was not stored"),
        "_INVALID_DIFFERENT_RECORD",
    ),
    (
        Row(Kind.TRANSIENT, "the transaction must be aborted; the whole of it can be repeated"),
        "TRANSACTION_ABORTABLE",
    ),
    (
        Row(Kind.TRANSIENT, "the broker failed, maybe after it had stored it", ambiguous=True),
        "UNKNOWN KAFKA_STORAGE_ERROR",
    ),
    (
        Row(Kind.OVERLOAD, "too few replicas are in sync; nothing was stored"),
        "NOT_ENOUGH_REPLICAS _ISR_INSUFF",
    ),
    (
        Row(Kind.OVERLOAD, "stored, with fewer replicas than asked for", ambiguous=True),
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    ),
    (
        Row(Kind.OVERLOAD, "the broker or the client has no room for it at present"),
        (
            "BROKER_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS GROUP_MAX_SIZE_REACHED"
            " SHARE_SESSION_LIMIT_REACHED _QUEUE_FULL _CRIT_SYS_RESOURCE"
        ),
    ),
    (Row(Kind.THROTTLED, "more requests than the quota allows"), "THROTTLING_QUOTA_EXCEEDED"),
    (
        Row(Kind.AUTH, "the broker refuses the credentials"),
        (
            "SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE"
            " UNACCEPTABLE_CREDENTIAL DELEGATION_TOKEN_EXPIRED DELEGATION_TOKEN_NOT_FOUND"
            " PRINCIPAL_DESERIALIZATION_FAILURE _AUTHENTICATION"
        ),
    ),
    (
        Row(Kind.AUTH, "the user may not do that"),
        (
            "TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED"
            " TRANSACTIONAL_ID_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTH_DISABLED"
            " DELEGATION_TOKEN_OWNER_MISMATCH DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
            " DELEGATION_TOKEN_AUTHORIZATION_FAILED SECURITY_DISABLED"
        ),
    ),
    (
        Row(Kind.PERMANENT, "another with the same id has taken its place"),
        (
            "INVALID_PRODUCER_EPOCH PRODUCER_FENCED TRANSACTION_COORDINATOR_FENCED"
            " FENCED_INSTANCE_ID FENCED_MEMBER_EPOCH STALE_MEMBER_EPOCH FENCED_STATE_EPOCH"
            " STALE_CTRL_EPOCH STALE_BROKER_EPOCH STREAMS_TOPOLOGY_FENCED _FENCED"
        ),
    ),
    (
        Row(
            Kind.PERMANENT, "the producer cannot go on; what it sent may be stored", ambiguous=True
        ),
        (
            "OUT_OF_ORDER_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID INVALID_PRODUCER_ID_MAPPING _FATAL"
            " _GAPLESS_GUARANTEE _INCONSISTENT _PURGE_INFLIGHT"
        ),
    ),
    (Row(Kind.PERMANENT, "it was stored before"), "DUPLICATE_SEQUENCE_NUMBER"),
    (
        Row(Kind.PERMANENT, "the consumer is not in the group any more, and must poll first"),
        (
            "REBALANCE_IN_PROGRESS ILLEGAL_GENERATION UNKNOWN_MEMBER_ID _ASSIGNMENT_LOST"
            " _MAX_POLL_EXCEEDED"
        ),
    ),
    (
        Row(Kind.PERMANENT, "there is no such topic, partition, group or resource"),
        (
            "UNKNOWN_TOPIC_OR_PART RESOURCE_NOT_FOUND GROUP_ID_NOT_FOUND LOG_DIR_NOT_FOUND"
            " NO_REASSIGNMENT_IN_PROGRESS VOTER_NOT_FOUND UNKNOWN_SUBSCRIPTION_ID"
            " UNKNOWN_CONTROLLER_ID _UNKNOWN_TOPIC _UNKNOWN_PARTITION _UNKNOWN_GROUP _NOENT"
        ),
    ),
    (
        Row(Kind.PERMANENT, "more than the broker accepts"),
        (
            "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE OFFSET_METADATA_TOO_LARGE TELEMETRY_TOO_LARGE"
            " INVALID_COMMIT_OFFSET_SIZE"
        ),
    ),
    (Row(Kind.PERMANENT, "TLS failed: certificate, key or protocol"), "_SSL"),
    (
        Row(Kind.PERMANENT, "the client is being closed, or was asked to drop it"),
        "_DESTROY _DESTROY_BROKER _PURGE_QUEUE",
    ),
    (Row(Kind.UNKNOWN, "no failure: an event that librdkafka reports as one"), "NO_ERROR _NOOP"),
    (
        Row(Kind.UNKNOWN, "a failure that is not explained further"),
        "_FAIL _PARTIAL _APPLICATION",
    ),
    (
        Row(Kind.PERMANENT, "the request is refused: the same answer every time"),
        (
            "OFFSET_OUT_OF_RANGE INVALID_MSG_SIZE TOPIC_EXCEPTION INVALID_REQUIRED_ACKS"
            " INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID INVALID_SESSION_TIMEOUT"
            " INVALID_TIMESTAMP UNSUPPORTED_VERSION TOPIC_ALREADY_EXISTS INVALID_PARTITIONS"
            " INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG INVALID_REQUEST"
            " UNSUPPORTED_FOR_MESSAGE_FORMAT POLICY_VIOLATION INVALID_TXN_STATE"
            " INVALID_TRANSACTION_TIMEOUT OPERATION_NOT_ATTEMPTED REASSIGNMENT_IN_PROGRESS"
            " INVALID_PRINCIPAL_TYPE NON_EMPTY_GROUP TOPIC_DELETION_DISABLED"
            " UNSUPPORTED_COMPRESSION_TYPE ELECTION_NOT_NEEDED GROUP_SUBSCRIBED_TO_TOPIC"
            " INVALID_RECORD DUPLICATE_RESOURCE INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION"
            " FEATURE_UPDATE_FAILED UNSUPPORTED_ASSIGNOR MISMATCHED_ENDPOINT_TYPE"
            " UNSUPPORTED_ENDPOINT_TYPE INVALID_REGISTRATION INVALID_RECORD_STATE INVALID_VOTER_KEY"
            " DUPLICATE_VOTER INVALID_REGULAR_EXPRESSION STREAMS_INVALID_TOPOLOGY"
            " STREAMS_INVALID_TOPOLOGY_EPOCH"
        ),
    ),
    (
        Row(Kind.PERMANENT, "a mistake in the call or the configuration"),
        (
            "_BAD_MSG _BAD_COMPRESSION _FS _INVALID_ARG _EXISTING_SUBSCRIPTION _CONFLICT _STATE"
            " _UNKNOWN_PROTOCOL _NOT_IMPLEMENTED _NO_OFFSET _UNSUPPORTED_FEATURE _READ_ONLY"
            " _UNDERFLOW _INVALID_TYPE _NOT_CONFIGURED _AUTO_OFFSET_RESET _LOG_TRUNCATION"
            " _PARTITION_EOF _ASSIGN_PARTITIONS _REVOKE_PARTITIONS"
            " _KEY_SERIALIZATION _VALUE_SERIALIZATION _KEY_DESERIALIZATION _VALUE_DESERIALIZATION"
        ),
    ),
)

CODES: dict[str | int, Row] = {name: row for row, names in _GROUPS for name in names.split()}
"""The errors of Kafka and of librdkafka by name; aiokafka's classes are judged by the same."""

_STATES: dict[str | int, Row] = {
    "fatal": Row(
        Kind.PERMANENT, "fatal: the producer or consumer must be replaced", ambiguous=True
    ),
    "abort": CODES["TRANSACTION_ABORTABLE"],
    "retriable": Row(Kind.TRANSIENT, "librdkafka calls it retriable"),
}


def _code(error: Any) -> list[str]:
    """Fatal, a transaction that can be repeated, the name; `retriable` only if that is new."""
    inner = error.args[0]
    name = inner.name()
    states = [
        ("fatal", inner.fatal()),
        ("abort", inner.txn_requires_abort() and not _is_refused(name)),
        (name, True),
        ("retriable", inner.retriable()),
    ]
    return [state for state, holds in states if holds]


def _is_refused(name: str) -> bool:
    """Whether a transaction would be refused again, for the same reason."""
    row = CODES.get(name)
    return row is not None and row.kind not in RETRIED_KINDS and not row.ambiguous


def _registry_status(error: Any) -> list[int | None]:
    return [error.http_status_code]


_SERIALIZED = Row(Kind.PERMANENT, "the key or value cannot be serialized or deserialized")
_CODE = Cases(
    _code,
    {**CODES, **_STATES},
    otherwise=Row(Kind.UNKNOWN, "a code that is newer than this table"),
)
_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_OF_CODE = Same("cimpl.KafkaException")
_REGISTRY = "confluent_kafka.schema_registry"

TABLE = Table(
    "confluent_kafka",
    {
        "cimpl.KafkaException": _CODE,
        "cimpl.ConcurrentModificationException": _WRONG,
        "cimpl.IllegalStateException": _WRONG,
        "confluent_kafka.error._KafkaClientError": _OF_CODE,
        "confluent_kafka.error.ConsumeError": _OF_CODE,
        "confluent_kafka.error.ProduceError": _OF_CODE,
        "confluent_kafka.error.KeyDeserializationError": _SERIALIZED,
        "confluent_kafka.error.ValueDeserializationError": _SERIALIZED,
        "confluent_kafka.error.KeySerializationError": Inner("exception", otherwise=_SERIALIZED),
        "confluent_kafka.error.ValueSerializationError": Inner("exception", otherwise=_SERIALIZED),
        "confluent_kafka.serialization.SerializationError": _SERIALIZED,
        f"{_REGISTRY}.error.SchemaRegistryError": by_status(read=_registry_status),
        f"{_REGISTRY}.error.OAuthTokenError": by_status(Row(Kind.AUTH, "no token was given")),
        f"{_REGISTRY}.common.serde.RuleError": _SERIALIZED,
        f"{_REGISTRY}.common.serde.RuleConditionError": _SERIALIZED,
        f"{_REGISTRY}.rules.cel.constraints.CompilationError": _SERIALIZED,
        f"{_REGISTRY}.confluent.type.variant_utils.VariantError": _SERIALIZED,
        "confluent_kafka.avro.error.ClientError": Row(
            Kind.UNKNOWN, "an error of the old registry client, which has no code that is reliable"
        ),
        "confluent_kafka.avro.serializer.SerializerError": _SERIALIZED,
        "confluent_kafka.avro.serializer.KeySerializerError": _SERIALIZED,
        "confluent_kafka.avro.serializer.ValueSerializerError": _SERIALIZED,
    },
    packages=("confluent_kafka", "cimpl"),
    retries=(
        "every message until delivery.timeout.ms, 5 minutes, is over; leave that on: an idempotent"
        " producer needs it to keep the order and to store once, and shorten delivery.timeout.ms"
    ),
)

OTHER_VERSIONS = tuple(
    name for name in TABLE.entries if ".schema_registry." in name or ".avro." in name
)
"""What needs the extras of the library to be imported."""
