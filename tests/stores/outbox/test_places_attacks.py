"""The place of an entry on PostgreSQL beside relays, triggers of others and odd schemas."""

import threading
import time

import psycopg
import pytest
from psycopg import sql

from mainstay import Engine
from mainstay.stores.outbox.new_row import new_row
from mainstay.stores.outbox.open import open_outbox
from tests.servers.databases import postgres_place
from tests.stores.outbox.test_places import TAKEN, adds, looks, postgres, schema_of

__all__ = ["postgres"]
GATE = 0x706C6163
"""The advisory lock at which a trigger waits."""
COLUMNS = "(id, topic, payload, content_type, aggregate_id, aggregate)"
AGGREGATE = new_row("t", {}, {"aggregate_id": "X"}).aggregate
ADDS = f"""
CREATE FUNCTION adds(name text) RETURNS text LANGUAGE sql AS $$
    INSERT INTO mainstay_outbox {COLUMNS} VALUES (name, 't', '', '', 'X', '{AGGREGATE}')
    RETURNING id
$$
"""
"""Adds a message of the aggregate of `adds`, in SQL."""


def order(place):
    with psycopg.connect(place.url) as connection:
        query = "SELECT id FROM mainstay_outbox WHERE aggregate_id = 'X' ORDER BY position"
        return [row[0] for row in connection.execute(query)]


def prepared(place, *statements):
    with psycopg.connect(place.url) as connection:
        for each in statements:
            connection.execute(each)


@pytest.mark.req("EF-10")
@pytest.mark.parametrize("taken", TAKEN)
def test_a_relay_that_takes_a_message_during_the_commit(postgres, taken):
    """It was ready at the first look of the trigger, and claimed at the second: seen by neither."""
    with (
        psycopg.connect(postgres.url) as one,
        psycopg.connect(postgres.url) as two,
        psycopg.connect(postgres.url, autocommit=True) as gate,
    ):
        query = "SELECT pg_get_functiondef('mainstay_outbox_committing'::regproc)"
        (function,) = gate.execute(query).fetchone()
        waits = f"INTO moves; PERFORM pg_catalog.pg_advisory_xact_lock_shared({GATE});"
        assert "INTO moves;" in function
        gate.execute(function.replace("INTO moves;", waits))
        adds(one, "a1")
        adds(two, "b")
        two.commit()
        adds(one, "a2")
        gate.execute(f"SELECT pg_advisory_lock({GATE})")
        committing = threading.Thread(target=one.commit)
        committing.start()
        query = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
        while gate.execute(query, [one.info.backend_pid]).fetchone() != (1,):
            time.sleep(0.01)
        two.execute(TAKEN[taken], ["X"])
        two.commit()
        gate.execute(f"SELECT pg_advisory_unlock({GATE})")
        committing.join()
    assert order(postgres) == ["b", "a1", "a2"]


@pytest.mark.req("EF-10")
def test_a_deferred_trigger_of_the_application_adds_at_the_commit(postgres):
    """Its message comes behind one that was moved just before, and is not moved itself."""
    prepared(
        postgres,
        ADDS,
        "CREATE TABLE orders (id text)",
        "CREATE FUNCTION checked() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM adds(NEW.id); RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER checked AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION checked()",
    )
    with psycopg.connect(postgres.url) as one, psycopg.connect(postgres.url) as two:
        adds(one, "a1")
        one.execute("INSERT INTO orders VALUES ('a3')")
        adds(two, "b")
        two.commit()
        adds(one, "a2")
        one.commit()
    assert order(postgres) == ["b", "a1", "a2", "a3"]


@pytest.mark.req("EF-10")
@pytest.mark.parametrize(
    "how",
    ["{0} RETURNING adds('a2')", "WITH a AS ({0} RETURNING id) SELECT adds('a2') FROM a"],
    ids=["returning", "with"],
)
def test_an_insert_that_adds_another_message(postgres, how):
    """PostgreSQL runs the trigger of the inner one first, before that of the one before it."""
    prepared(postgres, ADDS)
    insert = f"INSERT INTO mainstay_outbox {COLUMNS} VALUES ('a1', 't', '', '', 'X', '{AGGREGATE}')"
    with psycopg.connect(postgres.url) as one, psycopg.connect(postgres.url) as two:
        one.execute(how.format(insert))
        adds(two, "b")
        two.commit()
        adds(one, "a3")
        one.commit()
    assert order(postgres) == ["b", "a1", "a2", "a3"]


@pytest.mark.req("EF-10")
@pytest.mark.parametrize("behind", ["uncommitted", "sent"])
def test_what_is_behind_and_does_not_count_is_looked_at_once(postgres, behind):
    """It was looked at for each message: 2,004,000 times for 1,000 and 1,000 that were sent."""
    count = 100
    with psycopg.connect(postgres.url) as one, psycopg.connect(postgres.url) as two:
        adds(one, *(f"a{n}" for n in range(count)))
        adds(two, *(f"b{n}" for n in range(count)))
        if behind == "sent":
            two.commit()
            two.execute(TAKEN["claim"], ["X"])
            two.execute("UPDATE mainstay_outbox SET phase = 'sent', ended_at = 1, token = '',"
                        " lease_until = NULL WHERE phase = 'claimed'")  # fmt: skip
            two.commit()
        with psycopg.connect(postgres.url) as three:
            since = looks(three)
            one.commit()
            looks(one)
            assert looks(three) - since < 8 * (count + count)


@pytest.mark.req("EF-10")
@pytest.mark.parametrize("what", ["any name", "sequence"])
def test_a_commit_finds_its_own_schema(postgres, postgres_url, what):
    """It finds it by its number: whatever it is called, and what else there is in the path."""
    own, name = sql.Identifier(schema_of(postgres)), f'A, "b$ {schema_of(postgres)}'
    renaming = sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(own, sql.Identifier(name))
    path = sql.SQL("SET search_path = {}").format(sql.Identifier(name))
    with (
        psycopg.connect(postgres.url) as one,
        psycopg.connect(postgres.url) as two,
        psycopg.connect(postgres_url, autocommit=True) as owner,
    ):
        adds(one, "a0", "a0+")  # what its session keeps of plans is from before
        one.commit()
        if what == "any name":
            owner.execute(renaming)
            for each in (one, two):
                each.execute(path)
        adds(one, "a1")
        adds(two, "b")
        two.commit()
        adds(one, "a2")
        if what == "any name":
            one.execute("SET search_path = pg_catalog")
        else:
            one.execute("CREATE TEMPORARY SEQUENCE mainstay_outbox_position")
        one.commit()
        two.execute(path if what != "sequence" else "SELECT 1")
        query = "SELECT id FROM mainstay_outbox ORDER BY position"
        found = [row[0] for row in two.execute(query)]
    assert found == ["a0", "a0+", "b", "a1", "a2"]


def has_number_of(one, two):
    """Gives all rows the number of a transaction that is then begun; whether that was met."""
    later = "(pg_current_xact_id()::text::bigint + 5)::text::xid8"
    two.execute(f"UPDATE mainstay_outbox SET added_in = {later}")
    two.commit()
    query = "SELECT pg_current_xact_id() = added_in, pg_current_xact_id() < added_in"
    while True:
        is_met, goes_on = one.execute(f"{query} FROM mainstay_outbox").fetchone()
        if is_met or not goes_on:
            return is_met
        one.rollback()


@pytest.mark.req("EF-10")
def test_a_restored_message_has_the_number_of_a_later_transaction(postgres):
    """A dump keeps added_in, and another server comes to the same numbers of its own."""
    with psycopg.connect(postgres.url) as one, psycopg.connect(postgres.url) as two:
        adds(two, "restored")
        two.commit()
        assert any(has_number_of(one, two) for _ in range(20))
        adds(one, "a1")
        adds(two, "b")
        two.commit()
        adds(one, "a2")
        one.commit()
    assert order(postgres) == ["restored", "b", "a1", "a2"]


def test_the_error_of_a_trigger_of_the_application_is_reported_as_it_is(postgres_url):
    """A column of its own that may not be null is not the id of a message for another table."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    place = postgres_place(postgres_url)
    open_outbox(place.url).close()
    prepared(
        place,
        "CREATE TABLE audit (id text, who text NOT NULL)",
        "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO audit (id) VALUES (NEW.id); RETURN NULL; END $$",
        "CREATE TRIGGER audit AFTER INSERT ON mainstay_outbox FOR EACH ROW EXECUTE FUNCTION"
        " audit()",
    )
    database = sqlalchemy.create_engine(place.url.replace("://", "+psycopg://", 1))
    with (
        Engine(sinks=[], outbox=place.url) as engine,
        database.connect() as connection,
        pytest.raises(sqlalchemy.exc.IntegrityError, match="who"),
    ):
        engine.outbox.add(connection, topic="t", payload={})
    database.dispose()
