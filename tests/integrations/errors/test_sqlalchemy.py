"""What SQLAlchemy raises of its own; what it wraps is in test_postgres.py and test_sqlite3.py."""

import pytest
import sqlalchemy
from sqlalchemy import event, exc
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.orm.exc import DetachedInstanceError, StaleDataError

from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of


class Base(DeclarativeBase):
    pass


class Item(Base):
    __tablename__ = "items"
    id: Mapped[int] = mapped_column(primary_key=True)
    n: Mapped[int] = mapped_column(default=0)


@pytest.fixture
def engine(tmp_path):
    made = sqlalchemy.create_engine(
        f"sqlite:///{tmp_path}/shop.db", pool_size=1, max_overflow=0, pool_timeout=0.01
    )
    Base.metadata.create_all(made)
    yield made
    made.dispose()


def raised(expected, call, *arguments):
    with pytest.raises(expected) as caught:
        call(*arguments)
    return kind_of(caught.value)


def test_an_empty_pool_is_a_timeout_and_nothing_was_sent(engine):
    """Another call may give its connection back."""
    with engine.connect():
        known = raised(exc.TimeoutError, engine.connect)
    assert (known.kind, known.is_ambiguous) == (Kind.TIMEOUT, False)


def test_a_row_that_changed_is_read_again(engine):
    """An optimistic lock: the whole transaction again reads the new version."""
    with Session(engine) as session:
        session.add(Item(id=1))
        session.commit()
        item = session.get(Item, 1)
        session.execute(sqlalchemy.text("DELETE FROM items"))
        item.n = 2
        assert raised(StaleDataError, session.flush).kind is Kind.TRANSIENT


def test_misuse_is_permanent(engine):
    """No such row, a session that must be rolled back, an object without one, a wrong column."""
    with Session(engine) as session:
        none = session.scalars(sqlalchemy.select(Item)).one
        assert raised(exc.NoResultFound, none).kind is Kind.PERMANENT
        session.add_all([Item(id=1), Item(id=2)])
        session.commit()
        many = session.scalars(sqlalchemy.select(Item)).one
        assert raised(exc.MultipleResultsFound, many).kind is Kind.PERMANENT
        item = session.get(Item, 1)
        session.expire(item)
        session.expunge(item)
        assert raised(DetachedInstanceError, lambda: item.n).kind is Kind.PERMANENT
        session.add(Item(id=2, n="x"))
        assert raised(exc.IntegrityError, session.flush).kind is Kind.PERMANENT
        session.rollback()
        unknown = sqlalchemy.text("SELECT :a")
        assert raised(exc.StatementError, session.execute, unknown).kind is Kind.PERMANENT
        assert raised(exc.ArgumentError, session.execute, "SELECT 1").kind is Kind.PERMANENT
    other = sqlalchemy.create_engine("sqlite://")
    result = other.connect()
    result.close()
    other.dispose()
    assert raised(exc.ResourceClosedError, result.execute, unknown).kind is Kind.PERMANENT


class DriverError(Exception):
    """Of a driver that has no table."""


def wrapped(cls, *, is_disconnect):
    error = cls("SELECT 1", {}, DriverError("gone"))
    error.connection_invalidated = is_disconnect
    return kind_of(error)


def test_of_another_driver_a_disconnect_is_known_and_the_class():
    """SQLAlchemy knows that much of every driver; more is not known."""
    known = wrapped(exc.OperationalError, is_disconnect=True)
    assert (known.kind, known.is_ambiguous) == (Kind.TRANSIENT, True)
    assert wrapped(exc.OperationalError, is_disconnect=False).kind is Kind.UNKNOWN
    for cls in (exc.DataError, exc.IntegrityError, exc.ProgrammingError, exc.NotSupportedError):
        assert wrapped(cls, is_disconnect=False).kind is Kind.PERMANENT


def test_a_connection_that_a_check_finds_dead_is_replaced(engine):
    """What a handler of `checkout` raises; after three of them SQLAlchemy gives up."""
    tried = []

    def dead(*_):
        tried.append(1)
        raise exc.DisconnectionError("dead")

    event.listen(engine, "checkout", dead)
    assert raised(exc.InvalidRequestError, engine.connect).kind is Kind.PERMANENT
    assert len(tried) > 1
    assert kind_of(exc.DisconnectionError("dead")).kind is Kind.TRANSIENT
