"""For your own tests: virtual time, scripted failures, traces, sagas, fault proxy, contracts.

>>> import mainstay
>>> from mainstay.testing import scripted, virtual_time
>>> flaky = scripted(ConnectionError("down"), ConnectionError("down"), "up")
>>> with virtual_time() as time:
...     policy = mainstay.RetryPolicy(retry_on=OSError, backoff=mainstay.Backoff.constant(60))
...     policy.replace(jitter=mainstay.Jitter.none()).call(flaky)
'up'
>>> time.elapsed
120.0
"""

from __future__ import annotations

from mainstay.testing.proxy import FaultProxy
from mainstay.testing.publishers import BrokerContract, PublisherContract, Received
from mainstay.testing.replays import assert_replays
from mainstay.testing.sagas import ProcessDied, SagaTrace, run_saga
from mainstay.testing.scripts import Script, ScriptEnded, Step, scripted, scripted_async, takes
from mainstay.testing.stores import StoreContract
from mainstay.testing.switches import no_retry
from mainstay.testing.time import VirtualTime, virtual_time
from mainstay.testing.traces import Trace, record

__all__ = [
    "BrokerContract",
    "FaultProxy",
    "ProcessDied",
    "PublisherContract",
    "Received",
    "SagaTrace",
    "Script",
    "ScriptEnded",
    "Step",
    "StoreContract",
    "Trace",
    "VirtualTime",
    "assert_replays",
    "no_retry",
    "record",
    "run_saga",
    "scripted",
    "scripted_async",
    "takes",
    "virtual_time",
]
