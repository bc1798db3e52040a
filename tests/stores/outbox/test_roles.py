"""The outbox of PostgreSQL with a role that may create nothing."""

import re
import uuid
from pathlib import Path

import psycopg
import pytest

from mainstay import Backoff, Engine, RetryPolicy
from mainstay.errors import MainstayError
from tests.servers.databases import postgres_place

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "outbox.md"
ONCE = RetryPolicy(max_attempts=1, backoff=Backoff.constant(0.0), attempt_timeout=30.0)


@pytest.fixture
def place(postgres_url):
    return postgres_place(postgres_url)


@pytest.fixture
def role(place):
    """A role of its own, which may look into the schema and nothing else."""
    name, schema = f"shop_{uuid.uuid4().hex[:12]}", place.url.rpartition("%3D")[2]
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {name}")
    yield name
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {name}")
        connection.execute(f"DROP ROLE {name}")


def created_by_the_owner(place):
    with Engine(sinks=[], outbox=place.url) as owner:
        owner.outbox.counts()


def granted(place, role):
    """Gives a role the privileges that the page names."""
    found = re.search("```sql\n(GRANT .*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(re.sub(r"\bshop\b", role, found[1]))


def fails(_message):
    raise ConnectionError("down")


def test_a_role_that_may_create_nothing(place, role):
    """With the privileges of the page it adds, publishes, replays, consumes and purges."""
    created_by_the_owner(place)
    granted(place, role)
    url = place.url.replace("postgres@", f"{role}@")
    with Engine(sinks=[], outbox=url) as engine:
        with psycopg.connect(url) as connection:
            for name in "ab":
                engine.outbox.add(connection, topic="t", payload={}, id=name, aggregate_id="X")
        engine.outbox.relay(fails, policy=ONCE).drain()
        assert engine.outbox.counts() == {"DEAD": 2}
        for name in "ab":
            engine.outbox.replay(name)
        with psycopg.connect(url) as connection:
            engine.outbox.add(connection, topic="t", payload={}, aggregate_id="X", dedupe_key="k")
            with engine.consumed(connection, "mailer", "a") as is_fresh:
                assert is_fresh
        assert engine.outbox.relay(lambda _message: None).drain().published == 3
        assert engine.outbox.purge(0.0) == 3
        assert engine.outbox.counts() == {}
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT * FROM mainstay_consumed").fetchall() == []


def test_a_role_that_may_do_nothing_reads_what_the_owner_has_to_do(place, role):
    """Whether the tables are missing, or are not hers."""
    url = place.url.replace("postgres@", f"{role}@")
    with pytest.raises(MainstayError, match="mainstay outbox schema"):
        Engine(sinks=[], outbox=url).outbox.counts()
    created_by_the_owner(place)
    with pytest.raises(MainstayError, match="GRANT SELECT, INSERT, UPDATE, DELETE"):
        Engine(sinks=[], outbox=url).outbox.counts()
