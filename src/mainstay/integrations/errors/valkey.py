"""valkey-py, a copy of redis-py 5: the same classes and texts under other names."""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import OwnRetries, Row, Same, Table
from mainstay.integrations.errors.redis import ENTRIES
from mainstay.integrations.errors.shared import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.known.table import Entry

_ABSENT = (
    "redis.auth.",
    "redis.event.",
    "redis.exceptions.CrossSlotTransactionError",
    "redis.exceptions.ExternalAuthProviderError",
    "redis.exceptions.IncorrectPolicyType",
    "redis.exceptions.InvalidPipelineStack",
    "redis.exceptions.NoSuchFieldsetError",
    "redis.http.",
    "redis.multidb.",
)
"""What redis-py got after the copy was made."""


def _renamed(name: str) -> str:
    renamed = name.replace("redis.", "valkey.", 1)
    return renamed.replace("RedisError", "ValkeyError").replace("RedisCluster", "ValkeyCluster")


def _entry(entry: Entry) -> Entry:
    return Same(_renamed(entry.ancestor)) if isinstance(entry, Same) else entry


TABLE = Table(
    "valkey",
    {
        **{_renamed(n): _entry(e) for n, e in ENTRIES.items() if not n.startswith(_ABSENT)},
        "valkey.exceptions.ValkeyError": Row(Kind.PERMANENT, "a mistake in the call"),
    },
    retries="none but a `Retry` that is handed over, and one repetition with retry_on_timeout",
    own_retries=OwnRetries(
        lambda error: counted(error, "failures", "valkey.retry", "valkey.asyncio.retry"),
        "leave out retry= and retry_on_timeout= of the client",
    ),
)
