"""What carries out the core's decisions: calls, waits, clocks, threads and event loops.

Rules of the room: no decision is taken here. sync.py and aio.py perform the effects of
core/retry/call.py; wrap.py is the fast path in front of them.
"""
