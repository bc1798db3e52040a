"""An engine and its store: URLs, abilities, and what is refused when it is built."""

import importlib
from pathlib import Path

import pytest

from mainstay import Engine, StoreError, UsageError
from mainstay.ports import ABILITIES
from mainstay.stores import open as opening
from mainstay.stores.memory import MemoryStore


def test_an_engine_that_needs_more_than_its_store_can_is_not_built():
    """The error says what is missing and which stores have it."""
    with pytest.raises(
        StoreError, match="memory:// cannot do what is needed: outlives the process"
    ):
        Engine(needs=["durable"])
    with pytest.raises(StoreError, match="stores that can: sqlite://, postgresql://"):
        Engine("memory://", needs=["transactions"])
    Engine("sqlite:///:memory:", needs=["durable", "transactions", "records"]).close()


def test_a_need_that_nobody_knows_is_refused():
    """With those there are."""
    with pytest.raises(UsageError, match="known: records, circuits, budgets, inbox, durable"):
        Engine(needs=["telepathy"])


def test_an_unknown_store_is_refused():
    """With those there are."""
    with pytest.raises(StoreError, match=r"known stores: memory://, sqlite://, postgresql://"):
        Engine("floppy://a")


def test_what_stores_say_they_can_is_what_the_engine_says_of_them():
    """The hint names a store if and only if that store has the ability."""
    for scheme, (module, name) in opening.STORES.items():
        abilities = getattr(importlib.import_module(module), name).abilities
        assert abilities <= set(ABILITIES), scheme
        for ability, able in opening._ABLE.items():
            assert (ability in abilities) is (scheme in able), (scheme, ability)


def test_a_store_of_ones_own_is_used_as_it_is():
    """And closed with the engine."""
    store = MemoryStore()
    with Engine(store) as mine:
        assert mine.store is store


@pytest.mark.parametrize(
    "wrong",
    [
        {"share": 0},
        {"sinks": [7]},
        {"guards": [7]},
        {"breaker": 7},
        {"breakers": [7]},
        {"seed": 1.5},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_engine_that_is_refused_has_opened_no_store(tmp_path, wrong):
    """There is nobody who could close it."""
    with pytest.raises((UsageError, ValueError, TypeError, AttributeError)):
        Engine(f"sqlite:///{tmp_path}/kept.db", **wrong)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ("shop.db", "write sqlite:///shop.db"),
        ("data/shop.db", "write sqlite:///data/shop.db"),
        ("/var/lib/shop.db", "write sqlite:////var/lib/shop.db"),
        ("C:\\data\\shop.db", "write sqlite:///C:/data/shop.db"),
        ("sqlite:shop.db", "write sqlite:///shop.db"),
        (Path("shop.db"), "write sqlite:///shop.db"),
        ("sqllite:///shop.db", "write sqlite:///shop.db"),
        ("postgre://u:s3cret@h/d", "write postgres://u:[redacted]@h/d"),
        ("floppy://a", "known stores: memory://"),
        ("", "known stores: memory://"),
        (":memory:", "write memory:// to keep it in this process only"),
        ("memory", "write memory://"),
        ("sqlite", "write sqlite:///mainstay.db"),
        ("nats", "write nats://localhost"),
        ("localhost:6379", "write postgresql://localhost:6379, redis://localhost:6379 or nats://"),
        ("db.test:5432/app", "write postgresql://db.test:5432/app, "),
        ("postgres@host/db", "write postgresql://postgres@host/db, redis://"),
        ("ann:s3cret@host/db", "write postgresql://ann:[redacted]@host/db, "),
        ("ann:s3cret@host:5432/db", "write postgresql://ann:[redacted]@host:5432/db, "),
        ("postgres:host/db", "write postgres://host/db"),
        ("redis:/host", "write redis://host"),
        ("valkey:host:6379", "write valkey://host:6379"),
        ("./a@b.db", "write sqlite:///./a@b.db"),
        (None, "memory:// is for this process only; known stores"),
    ],
)
def test_a_path_in_place_of_a_url_gets_the_url_suggested(given, instead):
    """`Engine("shop.db")` names what to write; a password is not shown.

    `Engine(os.environ.get("STORE"))` is refused if there is none: it kept records in memory. A
    scheme alone was a file of that name.
    """
    with pytest.raises(StoreError) as caught:
        Engine(given)
    assert caught.value.hint.startswith(instead)
    assert "s3cret" not in str(caught.value)
