"""The file that `mainstay config init` writes: valid as it stands, each line with its reason."""

from __future__ import annotations

STARTER = """\
# The configuration of mainstay. Every key and its default: mainstay config schema
# After a change: mainstay config check
#
# Times are seconds, or have a unit: 500ms, 30s, 2m, 1h30m.
# A value may be taken from the environment: ${DB_PASSWORD}. It is shown nowhere.

retry:
  # The policy of operations that nothing below names.
  defaultPolicy: standard

  policies:
    # Built in; what stands here changes it.
    standard:
      # The first attempt included; 1 is no retry.
      maxAttempts: 3
      # The delay before the first retry. It doubles each time, up to maxDelay.
      initialDelay: 100ms
      maxDelay: 5s
      # Spreads the delays by this share, so that clients do not retry all at once.
      jitterPercent: 10
      # The limit of one attempt.
      # attemptTimeout: 10s
      # The limit of the whole call: all attempts and their waits.
      # deadline: 30s
      # What is retried, instead of failures that pass by themselves (transient, throttled,
      # timeout, overload): names of exceptions, error codes, kinds.
      # retryOn: [ConnectionError, TimeoutError, "kind:throttled"]

    # For what must not be repeated, such as a payment without a key.
    once:
      maxAttempts: 1

    # For work in the background, which can wait. What it does not name it has from standard.
    patient:
      extends: standard
      maxAttempts: 8
      maxDelay: 1m
      deadline: 10m

  # Which policy an operation has: its name, or the first pattern that matches.
  operationPolicies:
    payments.charge: once
    "reports.*": patient

# A circuit for each operation, which stops calls to a service that is down: after this number of
# failures in a row, for this time.
# circuitBreaker: {failureThreshold: 5, openDuration: 30s}

# Retries as a share of the calls, so that they do not overload what is slow already.
# budgets:
#   retries: {ratio: 0.2}

# Where records of keyed calls, circuits and the inbox are kept; without it, in memory. A file that
# names a store or a sink is used only if you name it or trust it: mainstay config trust
# store: sqlite:///mainstay.db

# Where events go, besides the log.
# sinks:
#   jsonl: {path: events.jsonl}
"""
