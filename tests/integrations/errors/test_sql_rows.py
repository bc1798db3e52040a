"""sqlite3, SQLAlchemy and Django: rows of the tables that the other tests do not come to."""

import contextlib
import gc
import sqlite3
import types
from pathlib import Path

import pytest
import sqlalchemy
import sqlalchemy.exc
import sqlalchemy.orm
import sqlalchemy.pool
import sqlalchemy.sql.naming
import sqlalchemy.util.queue
from django.apps import apps
from django.conf import UserSettingsHolder, global_settings, settings
from django.db import connection as django_connection
from django.db import connections, migrations, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.graph import MigrationGraph
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ModelState, ProjectState, StateApps
from django.db.models import expressions
from django.db.models.sql import Query
from django.db.transaction import atomic
from sqlalchemy import Column, ForeignKey, Integer, MetaData, Table, text

from tests.integrations.errors.rows import comes_to

# --- sqlite3 --------------------------------------------------------------------------------------


def memory():
    return contextlib.closing(sqlite3.connect(":memory:"))


def reading_a_blob_that_changed():
    with memory() as made:
        made.execute("CREATE TABLE t (b)")
        made.execute("INSERT INTO t VALUES (zeroblob(10))")
        with made.blobopen("t", "b", 1) as blob:
            made.execute("UPDATE t SET b = 'other'")
            blob.read()


def too_many_parameters():
    with memory() as made:
        made.execute("SELECT ?", [])


def unreadable():
    """A file of which nothing can be read (Linux)."""
    if not Path("/proc/self/mem").exists():
        pytest.skip("no /proc")
    with contextlib.closing(sqlite3.connect("file:/proc/self/mem?mode=ro", uri=True)) as made:
        made.execute("SELECT * FROM sqlite_master")


def too_long():
    with memory() as made:
        made.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 5)
        made.execute("SELECT 1")


SQLITE = {
    "sqlite3.Error code SQLITE_ABORT*": reading_a_blob_that_changed,
    "sqlite3.Error code SQLITE_IOERR*": unreadable,
    "sqlite3.DataError otherwise": too_long,
    "sqlite3.ProgrammingError otherwise": too_many_parameters,
}


@pytest.mark.parametrize("row", SQLITE)
def test_sqlite(row):
    """A real SQLite."""
    comes_to(row, SQLITE[row])


# --- SQLAlchemy -----------------------------------------------------------------------------------


@pytest.fixture
def engine():
    made = sqlalchemy.create_engine("sqlite://")
    yield made
    made.dispose()


class Base(sqlalchemy.orm.DeclarativeBase):
    pass


class Thing(Base):
    __tablename__ = "things"
    id: sqlalchemy.orm.Mapped[int] = sqlalchemy.orm.mapped_column(primary_key=True)
    n: sqlalchemy.orm.Mapped[int] = sqlalchemy.orm.mapped_column(default=0)


class Named(Base):
    __tablename__ = "names"
    name: sqlalchemy.orm.Mapped[str] = sqlalchemy.orm.mapped_column(primary_key=True)
    thing_id: sqlalchemy.orm.Mapped[int] = sqlalchemy.orm.mapped_column(ForeignKey("things.id"))


Thing.names = sqlalchemy.orm.relationship(Named)


def session_of(engine):
    Base.metadata.create_all(engine)
    return sqlalchemy.orm.Session(engine)


def deleted(engine):
    with session_of(engine) as session:
        session.add(thing := Thing(id=1))
        session.commit()
        session.execute(text("DELETE FROM things"))
        thing.n  # noqa: B018 -- it is read again from the database


def gap(engine):
    """A collection that holds nothing at one place."""
    with session_of(engine) as session:
        session.add(Thing(id=1, names=[None]))
        session.flush()


def forgotten(engine):
    """A collection whose owner is there no more."""
    with session_of(engine) as session:
        session.add(Thing(id=1))
        session.commit()
        names = session.get(Thing, 1).names
        session.expunge_all()
        gc.collect()
        names.append(Named(name="x"))


def pending(engine):
    with session_of(engine) as session:
        session.add(Thing(id=1))
        session.commit()
        session.expunge_all()
        session.add(Thing(id=1))
        with contextlib.suppress(sqlalchemy.exc.IntegrityError):
            session.flush()
        session.execute(text("SELECT 1"))


def circular(engine):
    with session_of(engine):
        metadata = MetaData()
        Table("a", metadata, Column("x", Integer, ForeignKey("b.x")))
        Table("b", metadata, Column("x", Integer, ForeignKey("a.x")))
        list(sqlalchemy.util.topological.sort([("a", "b"), ("b", "a")], ["a", "b"]))


def identifier(engine):
    name = "x" * 100
    table = Table("t", MetaData(), Column("a", Integer))
    index = sqlalchemy.Index(name, table.c.a)
    from sqlalchemy.dialects import postgresql
    from sqlalchemy.schema import CreateIndex

    str(CreateIndex(index).compile(dialect=postgresql.dialect()))


def compiled(_engine):
    str(sqlalchemy.insert(Table("t", MetaData(), Column("a", Integer))).values(b=1))


ALCHEMY = {
    "orm.exc.ObjectDeletedError": deleted,
    "orm.exc.FlushError": gap,
    "orm.exc.ObjectDereferencedError": forgotten,
    "exc.PendingRollbackError": pending,
    "exc.CircularDependencyError": circular,
    "exc.IdentifierError": identifier,
    "exc.CompileError": compiled,
    "util.queue.Empty": lambda _: sqlalchemy.util.queue.Queue().get(block=False),
    "util.queue.Full": lambda _: full(sqlalchemy.util.queue.Queue(1)),
}


def full(queue):
    for _ in range(2):
        queue.put(1, block=False)


@pytest.mark.parametrize("row", ALCHEMY)
def test_sqlalchemy(engine, row):
    """On SQLite in memory."""
    comes_to(f"sqlalchemy.{row}", lambda: ALCHEMY[row](engine))


# --- Django ---------------------------------------------------------------------------------------


@pytest.fixture
def django(tmp_path):
    holder = UserSettingsHolder(global_settings)
    holder.DATABASES = {
        name: {"ENGINE": "django.db.backends.sqlite3", "NAME": place}
        for name, place in (("default", ":memory:"), ("file", tmp_path / "file.db"))
    }
    before, settings._wrapped = settings._wrapped, holder
    with contextlib.suppress(AttributeError):
        del connections.settings
    apps.populate(())
    yield django_connection
    if (opened := connections["default"].connection) is not None:
        opened.close()  # Django itself keeps a database in memory open
    connections["default"].close()
    for name in ("default", "file"):
        with contextlib.suppress(AttributeError):
            del connections[name]
    with contextlib.suppress(AttributeError):
        del connections.settings
    settings._wrapped = before


def graph(*edges):
    made = MigrationGraph()
    for each in {node for edge in edges for node in edge}:
        made.add_node(each, migrations.Migration(each[1], each[0]))
    for child, parent in edges:
        made.add_dependency(child, child, parent)
    return made


A, B = ("app", "1"), ("app", "2")


def loader(**disk):
    made = MigrationLoader(None, load=False)
    made.disk_migrations = {("app", name): migrations.Migration(name, "app") for name in disk}
    return made


def history(connection):
    made = MigrationLoader(None, load=False)
    made.graph = graph((B, A))
    made.applied_migrations = {B: None}
    MigrationRecorder(connection).ensure_schema()
    MigrationRecorder(connection).record_applied(*B)
    made.replacements = {}
    made.check_consistent_history(connection)


def bases(_connection):
    state = ModelState("app", "M", [], bases=("app.Nowhere",))
    project = ProjectState()
    project.add_model(state)
    StateApps([], project.models)


def plan(connection):
    executor = MigrationExecutor(connection)
    first, second = (migrations.Migration(name, "app") for name in "12")
    executor.migrate([], plan=[(first, False), (second, True)])


def irreversible(connection):
    migration = migrations.Migration("1", "app")
    migration.operations = [migrations.RunSQL("SELECT 1")]
    migration.unapply(ProjectState(), connection.schema_editor())


def missing_schema(connection):
    connection.cursor().execute("PRAGMA query_only = 1")
    MigrationRecorder(connection).ensure_schema()


def not_supported():
    from django.db.models import QuerySet

    class Item(models.Model):  # noqa: DJ008 -- nobody prints it
        class Meta:
            app_label = "provoked"

    made = QuerySet(Item, Query(Item))
    made.union(made.all()).filter(pk=1)


def protected():
    """What Django asks before it deletes a row that others refer to."""

    class Parent(models.Model):  # noqa: DJ008 -- as above
        class Meta:
            app_label = "provoked"

    class Child(models.Model):  # noqa: DJ008 -- as above
        parent = models.ForeignKey(Parent, models.PROTECT)

        class Meta:
            app_label = "provoked"

    field = Child._meta.get_field("parent")
    models.PROTECT(None, field, [Child(id=1)], "default")


def restricted(connection):
    """A row that others refer to, in tables of their own."""
    key = ("id", models.AutoField(primary_key=True))
    author = models.ForeignKey("provoked.Author", models.RESTRICT)
    project = ProjectState()
    project.add_model(ModelState("provoked", "Author", [key]))
    project.add_model(ModelState("provoked", "Book", [key, ("author", author)]))
    found = [project.apps.get_model("provoked", name) for name in ("Author", "Book")]
    with connection.schema_editor() as editor:
        for each in found:
            editor.create_model(each)
    one = found[0].objects.create()
    found[1].objects.create(author=one)
    one.delete()


def orphaned(connection):
    """What Django finds by itself before a transaction of its tests ends."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA foreign_keys = 0")
        cursor.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
        cursor.execute("CREATE TABLE child (id INTEGER PRIMARY KEY, of REFERENCES parent (id))")
        cursor.execute("INSERT INTO child VALUES (1, 1)")
    connection.check_constraints()


def closed_inside(connection):
    """A transaction whose connection is closed before its end, without autocommit."""
    connection.set_autocommit(False)
    with atomic(using=connection.alias):
        connection.close()
    connection.cursor()


DJANGO = {
    "migrations.exceptions.NodeNotFoundError": lambda _: graph().forwards_plan(A),
    "migrations.exceptions.CircularDependencyError": lambda _: graph(
        (A, B), (B, A)
    ).ensure_not_cyclic(),
    "migrations.exceptions.AmbiguityError": lambda _: loader(
        **{"0001_a": 1, "0001_b": 1}
    ).get_migration_by_prefix("app", "0001"),
    "migrations.exceptions.InconsistentMigrationHistory": history,
    "migrations.exceptions.InvalidBasesError": bases,
    "migrations.exceptions.InvalidMigrationPlan": plan,
    "migrations.exceptions.IrreversibleError": irreversible,
    "migrations.exceptions.MigrationSchemaMissing wraps": missing_schema,
    "models.expressions.OutputFieldIsNoneError": lambda _: expressions.Func().output_field,
    "utils.NotSupportedError otherwise": lambda _: not_supported(),
    "models.deletion.ProtectedError": lambda _: protected(),
    "models.deletion.RestrictedError": restricted,
    "utils.IntegrityError otherwise": orphaned,
    "utils.ProgrammingError otherwise": lambda _: closed_inside(connections["file"]),
}


def empty_module(folder):
    """A module of migrations without a class `Migration`."""
    package = folder / "provoked_migrations"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "0001_x.py").touch()
    made = MigrationLoader(None, load=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setattr(apps, "get_app_configs", lambda: [types.SimpleNamespace(label="provoked")])
        patch.setattr(made, "migrations_module", lambda _label: (package.name, True))
        made.load_disk()


@pytest.mark.parametrize("row", DJANGO)
def test_django(django, row):
    """On SQLite in memory, without models of an application."""
    comes_to(f"django.db.{row}", lambda: DJANGO[row](django))


@pytest.mark.usefixtures("django")
def test_a_module_that_has_no_migration(tmp_path):
    """Django names the module."""
    comes_to("migrations.exceptions.BadMigrationError", lambda: empty_module(tmp_path))
