"""The code of a migration that `mainstay outbox schema --for` prints, with the tools themselves."""

import asyncio

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from mainstay import Engine
from mainstay.cli.outbox.migration import migration
from mainstay.stores.outbox.open import open_outbox
from mainstay.stores.outbox.schema import newest
from tests.engine.test_outbox_connections import with_driver
from tests.servers.databases import postgres_place, sqlite_place

DRIVERS = ["pysqlite", "aiosqlite", "psycopg", "psycopg2", "asyncpg"]


@pytest.fixture(params=DRIVERS)
def driver(request):
    return request.param


@pytest.fixture
def place(request, driver, tmp_path):
    if "sqlite" in driver:
        return sqlite_place(tmp_path)
    return postgres_place(request.getfixturevalue("postgres_url"))


def works(place):
    """A role that creates nothing finds the newest tables."""
    open_outbox(place.url, creates=False).close()
    with place.connect() as connection:
        rows = connection.execute("SELECT version FROM mainstay_outbox_schema").fetchall()
    assert rows == [(newest(place.dialect),)]
    with Engine(place.url, sinks=[], audit=False) as engine:
        with place.connect() as connection:
            engine.outbox.add(connection, topic="t", payload={}, aggregate_id="X")
        assert engine.outbox.relay(lambda _message: None).drain().published == 1


@pytest.mark.parametrize("steps", [(0,), (0, 1)])
def test_alembic(place, driver, steps):
    """As a revision runs it, on each driver; the second time the difference to version 1."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    def upgrades(connection):
        context = MigrationContext.configure(connection)
        with Operations.context(context), context.begin_transaction():
            for after in steps:
                code = migration("alembic", place.dialect, after)
                names = {}
                exec(compile(code, "revision", "exec"), names)
                if steps == (0, 1) and after == 0:
                    first = migration("alembic", place.dialect, 1)
                    known = {}
                    exec(compile(first, "revision", "exec"), known)
                    names["STATEMENTS"][-len(known["STATEMENTS"]) :] = []
                names["upgrade"]()

    url, given = with_driver(place, driver)
    if driver in ("aiosqlite", "asyncpg"):
        pytest.importorskip(driver)

        async def main():
            made = create_async_engine(url, connect_args=given)
            async with made.begin() as connection:
                await connection.run_sync(upgrades)
            await made.dispose()

        asyncio.run(main())
    else:
        made = sqlalchemy.create_engine(url, connect_args=given)
        with made.begin() as connection:
            upgrades(connection)
        made.dispose()
    works(place)


@pytest.mark.parametrize("driver", ["pysqlite", "psycopg"], indirect=True)
def test_django(place):
    """RunSQL, as a migration of Django runs it."""
    from django.conf import UserSettingsHolder, global_settings, settings
    from django.db.migrations.state import ProjectState

    from tests.engine.test_outbox import django_connections, patched

    before = settings._wrapped
    settings._wrapped = holder = UserSettingsHolder(global_settings)
    holder.DATABASES = {"default": {"ENGINE": "django.db.backends.dummy"}}
    try:
        names = {}
        exec(compile(migration("django", place.dialect, 0), "migration", "exec"), names)
        made = names["Migration"]("0001", "shop")
        handler = django_connections(place)
        connection = handler["default"]
        with patched(handler), connection.schema_editor() as editor:
            made.apply(ProjectState(), editor)
        connection.close()
    finally:
        settings._wrapped = before
    works(place)
