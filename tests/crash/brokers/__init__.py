"""The relay against brokers that fail: nothing lost, duplicates by id, order per aggregate.

`python -m tests.crash.brokers` is a part of `make crash`. What a consumer of the broker receives is
the oracle; what was committed is kept by the trial itself.
"""
