"""aiokafka: what a broker answers has a class for each of Kafka's codes.

A code that aiokafka has no class for is an `UnknownError`, as if the broker had failed.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, Row, Table
from mainstay.integrations.errors.confluent_kafka import CODES

_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_LOST = Row(Kind.TRANSIENT, "the connection was lost after sending, maybe", ambiguous=True)
_NOT_SENT = Row(Kind.TRANSIENT, "no broker was reached, so nothing was sent")
_OUTDATED = Row(Kind.TRANSIENT, "what the client knows of the cluster is out of date")
_OLD = Row(Kind.PERMANENT, "the broker is too old or too new for it")
_CLOSED = Row(Kind.PERMANENT, "the producer or consumer was closed; nothing was sent")
_NOT_RAISED = Row(Kind.UNKNOWN, "a class that aiokafka itself does not raise")
_BUSY = Row(Kind.OVERLOAD, "as many requests are under way as may be; nothing was sent")

_BROKER = {
    "NoError": "NO_ERROR",
    "UnknownError": "UNKNOWN",
    "OffsetOutOfRangeError": "OFFSET_OUT_OF_RANGE",
    "CorruptRecordException": "INVALID_MSG",
    "UnknownTopicOrPartitionError": "UNKNOWN_TOPIC_OR_PART",
    "InvalidFetchRequestError": "INVALID_MSG_SIZE",
    "LeaderNotAvailableError": "LEADER_NOT_AVAILABLE",
    "NotLeaderForPartitionError": "NOT_LEADER_FOR_PARTITION",
    "RequestTimedOutError": "REQUEST_TIMED_OUT",
    "BrokerNotAvailableError": "BROKER_NOT_AVAILABLE",
    "ReplicaNotAvailableError": "REPLICA_NOT_AVAILABLE",
    "MessageSizeTooLargeError": "MSG_SIZE_TOO_LARGE",
    "StaleControllerEpochError": "STALE_CTRL_EPOCH",
    "OffsetMetadataTooLargeError": "OFFSET_METADATA_TOO_LARGE",
    "StaleLeaderEpochCodeError": "NETWORK_EXCEPTION",
    "GroupLoadInProgressError": "COORDINATOR_LOAD_IN_PROGRESS",
    "GroupCoordinatorNotAvailableError": "COORDINATOR_NOT_AVAILABLE",
    "NotCoordinatorForGroupError": "NOT_COORDINATOR",
    "InvalidTopicError": "TOPIC_EXCEPTION",
    "RecordListTooLargeError": "RECORD_LIST_TOO_LARGE",
    "NotEnoughReplicasError": "NOT_ENOUGH_REPLICAS",
    "NotEnoughReplicasAfterAppendError": "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "InvalidRequiredAcksError": "INVALID_REQUIRED_ACKS",
    "IllegalGenerationError": "ILLEGAL_GENERATION",
    "InconsistentGroupProtocolError": "INCONSISTENT_GROUP_PROTOCOL",
    "InvalidGroupIdError": "INVALID_GROUP_ID",
    "UnknownMemberIdError": "UNKNOWN_MEMBER_ID",
    "InvalidSessionTimeoutError": "INVALID_SESSION_TIMEOUT",
    "RebalanceInProgressError": "REBALANCE_IN_PROGRESS",
    "InvalidCommitOffsetSizeError": "INVALID_COMMIT_OFFSET_SIZE",
    "TopicAuthorizationFailedError": "TOPIC_AUTHORIZATION_FAILED",
    "GroupAuthorizationFailedError": "GROUP_AUTHORIZATION_FAILED",
    "ClusterAuthorizationFailedError": "CLUSTER_AUTHORIZATION_FAILED",
    "InvalidTimestampError": "INVALID_TIMESTAMP",
    "UnsupportedSaslMechanismError": "UNSUPPORTED_SASL_MECHANISM",
    "IllegalSaslStateError": "ILLEGAL_SASL_STATE",
    "UnsupportedVersionError": "UNSUPPORTED_VERSION",
    "TopicAlreadyExistsError": "TOPIC_ALREADY_EXISTS",
    "InvalidPartitionsError": "INVALID_PARTITIONS",
    "InvalidReplicationFactorError": "INVALID_REPLICATION_FACTOR",
    "InvalidReplicationAssignmentError": "INVALID_REPLICA_ASSIGNMENT",
    "InvalidConfigurationError": "INVALID_CONFIG",
    "NotControllerError": "NOT_CONTROLLER",
    "InvalidRequestError": "INVALID_REQUEST",
    "UnsupportedForMessageFormatError": "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    "PolicyViolationError": "POLICY_VIOLATION",
    "OutOfOrderSequenceNumber": "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "DuplicateSequenceNumber": "DUPLICATE_SEQUENCE_NUMBER",
    "InvalidProducerEpoch": "INVALID_PRODUCER_EPOCH",
    "InvalidTxnState": "INVALID_TXN_STATE",
    "InvalidProducerIdMapping": "INVALID_PRODUCER_ID_MAPPING",
    "InvalidTransactionTimeout": "INVALID_TRANSACTION_TIMEOUT",
    "ConcurrentTransactions": "CONCURRENT_TRANSACTIONS",
    "TransactionCoordinatorFenced": "TRANSACTION_COORDINATOR_FENCED",
    "TransactionalIdAuthorizationFailed": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "SecurityDisabled": "SECURITY_DISABLED",
    "OperationNotAttempted": "OPERATION_NOT_ATTEMPTED",
    "KafkaStorageError": "KAFKA_STORAGE_ERROR",
    "LogDirNotFound": "LOG_DIR_NOT_FOUND",
    "SaslAuthenticationFailed": "SASL_AUTHENTICATION_FAILED",
    "UnknownProducerId": "UNKNOWN_PRODUCER_ID",
    "ReassignmentInProgress": "REASSIGNMENT_IN_PROGRESS",
    "DelegationTokenAuthDisabled": "DELEGATION_TOKEN_AUTH_DISABLED",
    "DelegationTokenNotFound": "DELEGATION_TOKEN_NOT_FOUND",
    "DelegationTokenOwnerMismatch": "DELEGATION_TOKEN_OWNER_MISMATCH",
    "DelegationTokenRequestNotAllowed": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "DelegationTokenAuthorizationFailed": "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    "DelegationTokenExpired": "DELEGATION_TOKEN_EXPIRED",
    "InvalidPrincipalType": "INVALID_PRINCIPAL_TYPE",
    "NonEmptyGroup": "NON_EMPTY_GROUP",
    "GroupIdNotFound": "GROUP_ID_NOT_FOUND",
    "FetchSessionIdNotFound": "FETCH_SESSION_ID_NOT_FOUND",
    "InvalidFetchSessionEpoch": "INVALID_FETCH_SESSION_EPOCH",
    "ListenerNotFound": "LISTENER_NOT_FOUND",
    "MemberIdRequired": "MEMBER_ID_REQUIRED",
}
"""What a broker answers, by class."""


def _phase(error: BaseException) -> list[str]:
    """What the text is about: aiokafka has one class for a connection not made and one lost."""
    text = str(error)
    parts = ("Unable to bootstrap", "Unable to get cluster metadata")
    return ["connecting" for part in parts if part in text]


TABLE = Table(
    "aiokafka",
    {
        **{f"aiokafka.errors.{name}": CODES[code] for name, code in _BROKER.items()},
        "aiokafka.errors.BrokerResponseError": Row(
            Kind.UNKNOWN, "a base class, which aiokafka itself does not raise"
        ),
        "aiokafka.errors.KafkaError": Cases(
            _phase,
            {"connecting": _NOT_SENT},
            otherwise=Inner(
                "__cause__", otherwise=Row(Kind.UNKNOWN, "a failure that is not explained further")
            ),
            of="phase",
        ),
        "aiokafka.errors.KafkaConnectionError": Cases(
            _phase, {"connecting": _NOT_SENT}, otherwise=_LOST, of="phase"
        ),
        "aiokafka.errors.KafkaTimeoutError": Row(
            Kind.TIMEOUT, "maybe sent, and not confirmed in time", ambiguous=True
        ),
        "aiokafka.errors.KafkaUnavailableError": _NOT_RAISED,
        "aiokafka.errors.NoBrokersAvailable": _NOT_SENT,
        "aiokafka.errors.NodeNotReadyError": Row(
            Kind.TRANSIENT,
            "the broker is not connected; aiokafka may have sent it before",
            ambiguous=True,
        ),
        "aiokafka.errors.StaleMetadata": _OUTDATED,
        "aiokafka.errors.MetadataEmptyBrokerList": _OUTDATED,
        "aiokafka.errors.TooManyInFlightRequests": _BUSY,
        "aiokafka.errors.Cancelled": _NOT_RAISED,
        "aiokafka.errors.QuotaViolationError": CODES["THROTTLING_QUOTA_EXCEEDED"],
        "aiokafka.errors.KafkaProtocolError": Row(
            Kind.PERMANENT, "the answer is not of the protocol", ambiguous=True
        ),
        "aiokafka.errors.CorrelationIdError": Row(
            Kind.TRANSIENT, "an answer to another request, after which it is cut", ambiguous=True
        ),
        "aiokafka.errors.AuthenticationFailedError": CODES["SASL_AUTHENTICATION_FAILED"],
        "aiokafka.errors.AuthenticationMethodNotSupported": CODES["UNSUPPORTED_SASL_MECHANISM"],
        "aiokafka.errors.CommitFailedError": CODES["ILLEGAL_GENERATION"],
        "aiokafka.errors.ProducerFenced": CODES["PRODUCER_FENCED"],
        "aiokafka.errors.ProducerClosed": _CLOSED,
        "aiokafka.errors.ConsumerStoppedError": _CLOSED,
        "aiokafka.errors.NoOffsetForPartitionError": Row(
            Kind.PERMANENT, "no offset is stored, and auto_offset_reset is none"
        ),
        "aiokafka.errors.RecordTooLargeError": CODES["MSG_SIZE_TOO_LARGE"],
        "aiokafka.errors.UnrecognizedBrokerVersion": _OLD,
        "aiokafka.errors.IncompatibleBrokerVersion": _OLD,
        "aiokafka.errors.UnsupportedCodecError": Row(
            Kind.PERMANENT, "the library for this compression is not installed"
        ),
        "aiokafka.errors.KafkaConfigurationError": _WRONG,
        "aiokafka.errors.IllegalArgumentError": _WRONG,
        "aiokafka.errors.IllegalStateError": _WRONG,
        "aiokafka.errors.IllegalOperation": _WRONG,
    },
    retries=(
        "a producer sends a batch again until request_timeout_ms, 40 s, is over; a consumer does"
        " so for ever; leave that on with enable_idempotence"
    ),
)
