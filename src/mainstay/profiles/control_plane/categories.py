"""What sort of operation is retried: the document's codes, which stand in every record."""

from __future__ import annotations

from enum import Enum


class RetryCategory(str, Enum):  # noqa: UP042 -- as the document has it
    """The sort of an operation, and its code. Recorded codes are a contract: odd ones stay.

    >>> RetryCategory("RETRY_KV_GET").name, RetryCategory.REPLAY_PROCESSING.value
    ('KV_GET', 'REPLAY_REPLAY_PROCESSING')
    """

    NATS_CONNECT = "RETRY_NATS_CONNECT"
    NATS_PUBLISH = "RETRY_NATS_PUBLISH"
    NATS_SUBSCRIBE = "RETRY_NATS_SUBSCRIBE"
    NATS_STREAM_CREATE = "RETRY_NATS_STREAM_CREATE"

    KV_CREATE = "RETRY_KV_CREATE"
    KV_GET = "RETRY_KV_GET"
    KV_PUT = "RETRY_KV_PUT"
    KV_DELETE = "RETRY_KV_DELETE"

    EXECUTION_INTENT = "RETRY_EXECUTION_INTENT"
    EXECUTION_CONTAINMENT = "RETRY_EXECUTION_CONTAINMENT"
    EXECUTION_EXPIRATION = "RETRY_EXECUTION_EXPIRATION"

    APPROVAL_CHECK = "RETRY_APPROVAL_CHECK"
    APPROVAL_GRANT = "RETRY_APPROVAL_GRANT"

    REPLAY_PROCESSING = "REPLAY_REPLAY_PROCESSING"
    REPLAY_VALIDATION = "REPLAY_REPLAY_VALIDATION"

    API_REQUEST = "RETRY_API_REQUEST"
    API_VALIDATION = "RETRY_API_VALIDATION"


def code_of(category: RetryCategory | str) -> str:
    """The code of a category, also of one that the document does not know."""
    return category.value if isinstance(category, RetryCategory) else category
