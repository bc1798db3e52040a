"""What carries out the decisions of core/: calls, waits, clocks, threads and event loops.

Rules of the room: no decision is taken here. call/sync.py and call/aio.py perform the effects
of core/retry/call.py; call/wrap.py is the fast path in front of them.
"""

import mainstay.integrations.errors as _errors  # noqa: F401 -- tables of libraries are found by it
