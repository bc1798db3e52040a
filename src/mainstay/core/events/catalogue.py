"""Every event by its name, collected from the features that declare them.

The names of retry_attempt, retry_exhausted and idempotency are those of the control-plane
specification, with all its fields.
"""

from __future__ import annotations

import mainstay.core.analytics.events as analytics
import mainstay.core.circuit.events as circuit
import mainstay.core.idempotency.events as idempotency
import mainstay.core.inbox.events as inbox
import mainstay.core.outbox.events as outbox
import mainstay.core.pipeline.events as pipeline
import mainstay.core.retry.events as retry
import mainstay.core.saga.events as saga

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.event import Event

FEATURES = (analytics, circuit, idempotency, inbox, outbox, pipeline, retry, saga)
_CLASSES: list[type[Event]] = [getattr(each, name) for each in FEATURES for name in each.__all__]

CATALOGUE: dict[str, type[Event]] = {
    str(cls.__struct_config__.tag): cls for cls in sorted(_CLASSES, key=lambda cls: cls.__name__)
}
"""Every event by its name."""
