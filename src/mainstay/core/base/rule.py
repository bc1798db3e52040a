"""The version of the rules by which calls decide; in a module of its own, which loads nothing."""

from __future__ import annotations

RULE = 4
"""The version of the rules by which calls decide now. A decision that comes out otherwise on the
same outcomes and answers is a new version; replay decides by the version that a call has.

1: an inner retry stands back if an enclosing one would retry its failure; a policy may name
MemoryError; decorrelated jitter caps what it has drawn; a Retry-After is waited for without jitter.
2: an outer retry does not repeat what an inner one has given up on; a MemoryError is final; the
range of decorrelated jitter is capped; the jitter of the policy is added to a Retry-After.
3: what a library's table knows of an exception is recorded; a rule that names a class does not name
a status or error code that is permanent, nor a request that must not be repeated.
4: the curve at the end of a chain is spread as it is by itself; decorrelated jitter draws from a
range also after a wait that was shorter than the initial delay.
"""
