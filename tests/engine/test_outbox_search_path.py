"""A message is for the table that the relay reads, whatever search_path is set meanwhile."""

import asyncio

import psycopg
import pytest

from mainstay import Engine
from mainstay.errors import StoreError
from mainstay.stores.outbox import insert
from tests.servers.databases import postgres_place


@pytest.fixture
def places(postgres_url):
    """Two schemas of one database, each with an outbox."""
    found = [postgres_place(postgres_url) for _ in range(2)]
    for place in found:
        with Engine(place.url, sinks=[], audit=False) as engine:
            engine.outbox.counts()
    return found


def schema_of(place):
    return place.url.rpartition("%3D")[2]


@pytest.mark.parametrize("fields", [{}, {"dedupe_key": "k"}, {"delay": 60.0}], ids=str)
def test_a_search_path_that_is_set_later_loses_no_message_in_silence(places, fields):
    """Before, the second message was written to the other table, and nobody published it."""
    own, other = places
    with Engine(own.url, sinks=[], audit=False) as engine, own.connect() as connection:
        engine.outbox.add(connection, topic="t", payload={})
        connection.commit()
        connection.execute(f"SET search_path = {schema_of(other)}")
        connection.commit()
        with pytest.raises(StoreError, match="another table mainstay_outbox"):
            engine.outbox.add(connection, topic="t", payload={}, **fields)
        connection.rollback()
        with pytest.raises(StoreError, match="another database"):
            engine.outbox.add(connection, topic="t", payload={}, **fields)
        connection.execute(f"SET search_path = {schema_of(own)}")
        engine.outbox.add(connection, topic="t", payload={}, **fields)
        connection.commit()
        assert engine.outbox.counts() == {"PENDING": 2}


def test_an_async_connection_whose_search_path_was_set_is_refused(places):
    own, other = places

    async def adding(engine):
        async with await psycopg.AsyncConnection.connect(own.url) as connection:
            await engine.outbox.aadd(connection, topic="t", payload={})
            await connection.execute(f"SET search_path = {schema_of(other)}")
            with pytest.raises(StoreError, match="another table mainstay_outbox"):
                await engine.outbox.aadd(connection, topic="t", payload={})

    with Engine(own.url, sinks=[], audit=False) as engine:
        asyncio.run(adding(engine))


def test_a_pipeline_raises_at_its_end_and_commits_nothing(places):
    own, other = places
    with Engine(own.url, sinks=[], audit=False) as engine, own.connect() as connection:
        engine.outbox.add(connection, topic="t", payload={})
        connection.commit()
        connection.execute(f"SET search_path = {schema_of(other)}")
        with pytest.raises(psycopg.errors.NotNullViolation), connection.pipeline():
            engine.outbox.add(connection, topic="t", payload={})
        connection.rollback()
        assert engine.outbox.counts() == {"PENDING": 1}


class Wrapped(Exception):
    """As SQLAlchemy and Django wrap what a driver raises."""

    def __init__(self, text, orig=None):
        super().__init__(text)
        self.orig = orig


GERMAN = {
    insert._is_missing: psycopg.errors.UndefinedTable(
        "FEHLER: Relation »mainstay_outbox« existiert nicht"
    ),
    insert._is_elsewhere: psycopg.errors.NotNullViolation(
        "FEHLER: NULL-Wert in Spalte »id« der Relation »mainstay_outbox« verletzt einen Constraint"
    ),
}
"""Messages of a server whose lc_messages are German."""


@pytest.mark.parametrize("how", ["bare", "orig", "cause"])
@pytest.mark.parametrize("judge", GERMAN, ids=lambda judge: judge.__name__)
def test_an_error_is_known_by_its_code_in_every_language(judge, how):
    error = GERMAN[judge]
    if how == "orig":
        error = Wrapped(str(error), error)
    if how == "cause":
        error, error.__cause__ = Wrapped(str(error)), error
    assert judge(error)
    assert not judge(psycopg.errors.UndefinedColumn("FEHLER: »mainstay_outbox«"))
    assert not judge(Wrapped("mainstay_outbox"))
