"""A TCP proxy that fails on command: it stands between a client and its server in a test.

`FaultProxy` (proxy.py) is what tests use, from any thread. Everything else runs in the proxy's own
thread and event loop: the `Hub` (hub.py) accepts, a `Connection` has two directions, each a `Lane`
(connection.py); faults.py has the faults as values.

A lane reads ahead, 4 MB at most, and passes data on when the current faults allow; a client that
sends more has to wait, as without a proxy. Faults are one frozen value, read anew for each piece of
data and whenever they change. A byte stream has no holes: a connection that lost bytes is reset, at
the latest by `heal()`.
"""

from __future__ import annotations

from mainstay.testing.proxy.proxy import FaultProxy

__all__ = ["FaultProxy"]
