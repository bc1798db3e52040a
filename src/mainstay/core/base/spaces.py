"""The spaces of a store: each kind of record has one, and its keys are unique within it."""

from __future__ import annotations

from enum import StrEnum


class Space(StrEnum):
    """Every space; the values are stored, so a name may change and a value may not.

    Code passes `.value` to a store: database clients adapt an Enum by its type, and some of them
    write its name.
    """

    RECORDS = "records"
    """Keyed calls: claims and outcomes, by the address of the key."""
    INBOX = "inbox"
    """Items that wait for a person, by their id."""
    OPERATORS = "operators"
    """People who may act on items, by their name."""
    FIRST_OPERATOR = "operators.first"
    """The name of the first operator, who needs no authorisation: one record."""
    IDENTITY = "identity"
    """What a store is known by, in the signatures of operators: one record."""
    CIRCUITS = "circuits"
    """Circuits that processes share, by the name of the breaker."""
    PERMITS = "circuits.permits"
    """Permits for the probes of shared circuits, by the name of the breaker."""
    BUDGETS = "budgets"
    """Counts of retry budgets that processes share, by the name of the budget."""
    TOKENS = "tokens"
    """Buckets of token budgets that processes share, by the name of the budget."""
    WAITS = "waits"
    """What processes wait for between two attempts, by a random key for each engine."""
    KEY_COUNTS = "records.counts"
    """How many keys a caller of a service has begun to use, by operation and caller."""
    PURGES = "purges"
    """When expired records were last purged, and on SQLite a reading of the clocks then."""
    TASKS = "tasks"
    """How often tasks of a queue have been begun, by their id."""
    SAGAS = "sagas"
    """Sagas, by name and id."""
    OPEN_SAGAS = "sagas.open"
    """An entry for each saga that has not ended, by the same key: what recovery reads."""
    RUNS = "pipelines.runs"
    """Runs of pipelines, by pipeline and run."""
    OPEN_RUNS = "pipelines.open"
    """An entry for each run whose end is not carried over to data sets, inbox and files yet."""
    DATASETS = "pipelines.datasets"
    """What is known of a data set by its id: quarantine, strongest masking, restricted calls."""
