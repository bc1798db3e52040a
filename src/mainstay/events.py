"""The public events: every class, the catalogue, `encode` and `decode`.

The names come from the features: an event that a feature declares is public here.

>>> from mainstay import events
>>> sorted(events.CATALOGUE)[:2]
['alert_cleared', 'alert_fired']
"""

from __future__ import annotations

import mainstay.core.analytics.events as _analytics
import mainstay.core.circuit.events as _circuit
import mainstay.core.idempotency.events as _idempotency
import mainstay.core.inbox.events as _inbox
import mainstay.core.outbox.events as _outbox
import mainstay.core.pipeline.events as _pipeline
import mainstay.core.retry.events as _retry
import mainstay.core.saga.events as _saga
from mainstay.core.analytics.events import *
from mainstay.core.base.event import Event
from mainstay.core.circuit.events import *
from mainstay.core.events.catalogue import CATALOGUE
from mainstay.core.events.codec import decode, encode
from mainstay.core.idempotency.events import *
from mainstay.core.inbox.events import *
from mainstay.core.outbox.events import *
from mainstay.core.pipeline.events import *
from mainstay.core.retry.events import *
from mainstay.core.saga.events import *

__all__ = ["CATALOGUE", "Event", "decode", "encode"]
__all__ += _analytics.__all__
__all__ += _circuit.__all__
__all__ += _idempotency.__all__
__all__ += _inbox.__all__
__all__ += _outbox.__all__
__all__ += _pipeline.__all__
__all__ += _retry.__all__
__all__ += _saga.__all__
__all__.sort()
