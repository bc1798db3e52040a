"""Faults of seven kinds on four stores, with an oracle outside the library.

`python -m tests.crash.faults --faults 2000` is the second half of `make crash`; the first half,
`tests/crash/campaign.py`, enumerates the boundaries of one call. This one has many processes under
load and breaks what is around them.

A *cell* is a fault and a store, such as `pause:nats`. A *trial* of a cell is:

1. *Load* (`worker.py`). Some processes, sync and async, share one store and call the same keys by
   the public API. Keys differ: short calls, calls of nearly a lease, calls that fail for ever,
   calls that must not be repeated (`idempotency="unsafe"`).
2. *Oracle* (`oracle.py`). A function that is called writes `began` and `ended` with key and pid to
   a pipe, a caller writes what it saw. All write to one pipe, and so does the injector, when it has
   killed or stopped a process: the pipe is one order of everything. The library has no part in it.
3. *Faults* (`injections.py`), some in a row, at moments drawn from the seed. Each is noted in the
   pipe with its beginning and its end.
4. *Recovery*. The faults are over. A new process asks for every key, then another one.
5. *Check* (`checker.py`), from the lines of the pipe alone; besides, SQLite's own integrity check,
   and `verify` of the audit log.

Properties:

- `one_outcome`: all callers of a key that saw an outcome saw the same one.
- `real_outcome`: an outcome that a caller saw is the outcome of an execution of that key.
- `not_again`: after a caller saw an outcome, that key is not executed again.
- `one_at_a_time`: two executions of a key do not overlap, unless the process of the first was
  stopped, or the store was unavailable, for a quarter of the lease or longer.
- `unsafe_once`: a key that must not be repeated is executed once at most.
- `comes_to_an_end`: after recovery every key has an outcome or is in the inbox; no conflict lasts
  longer than a lease.
- `unknown_in_inbox`: OutcomeUnknown has an open item in the inbox, and only keys that must not be
  repeated come to it.
- `documented_errors`: callers see documented exceptions only.
- `no_hang`: every process ends when it is asked to.
- `store_whole`: the store opens; the file is not malformed; the audit log verifies.

A trial is drawn from the seed, the cell and its number; a violation is printed with all three, and
`--only pause:nats --seed 7 --trial 3` runs that trial again with the same draws (the operating
system's scheduling is not part of the seed).
"""

FAULTS = ("kill", "fork", "pause", "restart", "reply", "disk", "clock")
STORES = ("sqlite", "postgres", "valkey", "nats")
CELLS = tuple((fault, store) for fault in FAULTS for store in STORES)
LEASE = 1.5
"""Seconds of every lease; short, because a pause must be longer."""
