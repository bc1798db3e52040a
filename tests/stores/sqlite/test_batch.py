"""Many steps in one transaction: the answers and records of the same steps one after the other."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.change import DROP, KEEP, Change
from mainstay.stores.sqlite.batch import carry_out
from mainstay.stores.sqlite.store import SqliteStore


class Wrong(Exception):
    """What a decision may raise."""


def decision(name):
    """Each tells what it saw, so that the answers tell the order."""

    def decide(value, _now):
        seen = (name, value)
        if name == "raise":
            raise Wrong(*seen)
        change = {"keep": KEEP, "drop": DROP}.get(name)
        return change or Change((value or b"") + name.encode(), float(len(name))), seen

    return decide


STEPS = st.lists(
    st.tuples(
        st.sampled_from("st"),
        st.sampled_from("abcdefgh"),
        st.sampled_from(["x", "yy", "keep", "drop", "raise"]),
    ),
    max_size=40,
)


def told(answer):
    return answer.args if isinstance(answer, Exception) else answer


def rows(connection):
    return connection.execute("SELECT * FROM mainstay_kept ORDER BY space, key").fetchall()


@pytest.fixture(scope="module")
def connections(tmp_path_factory):
    """Two stores' connections."""
    folder = tmp_path_factory.mktemp("batch")
    stores = [SqliteStore(f"sqlite:///{folder}/{name}.db") for name in "ab"]
    yield [store._hold().connection for store in stores]
    for store in stores:
        store.close()


@given(batches=st.lists(STEPS, max_size=4))
def test_together_is_as_one_by_one(connections, batches):
    """Whatever the steps, and whatever was there before."""
    for connection in connections:
        connection.execute("DELETE FROM mainstay_kept")
    for steps in batches:
        made = [(space, key, decision(name)) for space, key, name in steps]
        together, one_by_one = connections
        answers = carry_out(together, made, lambda: 0.0)
        alone = [carry_out(one_by_one, [step], lambda: 0.0)[0] for step in made]
        assert list(map(told, answers)) == list(map(told, alone))
        assert rows(together) == rows(one_by_one)


@pytest.mark.parametrize("number", [1, 3, 4, 17, 64, 255, 256, 257, 600])
def test_a_batch_of_any_size_reads_what_is_there(connections, number):
    """Also one that takes more than one reading, and records of other spaces are no matter."""
    connection = connections[0]
    connection.execute("DELETE FROM mainstay_kept")
    keys = [f"key-{each}" for each in range(number)]
    steps = [(space, key, decision("x")) for key in keys for space in ("s", "other")]
    carry_out(connection, steps, lambda: 0.0)
    seen = carry_out(connection, [("s", key, decision("keep")) for key in keys], lambda: 0.0)
    assert seen == [("keep", b"x")] * number


def test_all_steps_of_a_transaction_have_one_moment(connections):
    """The clock is read when it has the lock, and once."""
    moments, seen = iter([7.0, 8.0]), []
    steps = [("s", key, lambda _, now: (KEEP, seen.append(now))) for key in "abc"]
    carry_out(connections[0], steps, lambda: next(moments))
    assert seen == [7.0] * 3


def test_a_record_that_expires_in_an_infinite_time_never_does(connections):
    """As one without an expiry; beside others of the same batch."""
    connection = connections[0]
    connection.execute("DELETE FROM mainstay_kept")
    ends = {"a": None, "b": float("inf"), "c": 5.0}
    steps = [("s", key, lambda *_, end=end: (Change(b"x", end), None)) for key, end in ends.items()]
    carry_out(connection, steps, lambda: 0.0)
    assert [row[3] for row in rows(connection)] == [None, None, 5.0]


@pytest.mark.parametrize("space", ["s", "a space of some length"])
def test_a_row_is_refused_by_its_bytes(connections, space):
    """Alone, whether its value, its key or both are too large; to the byte for plain text."""
    connection = connections[0]
    connection.execute("DELETE FROM mainstay_kept")
    most = 1000 - 64 - len(space)
    sizes = {("k", most - 1): True, ("l", most): False, ("\xe9" * 400, most - 800): True}
    sizes |= {("\xea" * 400, most - 799): False}
    steps = [
        (space, key, lambda *_, size=size: (Change(b"x" * size), "taken")) for key, size in sizes
    ]
    answers = carry_out(connection, steps, lambda: 0.0, 1000)
    assert [answer == "taken" for answer in answers] == list(sizes.values())
    assert len(rows(connection)) == 2


def test_a_key_that_is_no_text_fails_alone(connections):
    """A lone surrogate has no form that SQLite could keep."""
    connection = connections[0]
    connection.execute("DELETE FROM mainstay_kept")
    steps = [("s", key, decision("x")) for key in ("a", "\ud800", "b")]
    first, wrong, last = carry_out(connection, steps, lambda: 0.0)
    assert isinstance(wrong, UnicodeEncodeError)
    assert (first, last) == (("x", None), ("x", None))
    assert [row[1] for row in rows(connection)] == ["a", "b"]


def test_trouble_of_the_database_is_everybodys(connections):
    """The transaction is over then, whoever it was."""

    def broken(_value, _now):
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(sqlite3.OperationalError):
        carry_out(connections[0], [("s", "a", decision("x")), ("s", "b", broken)], lambda: 0.0)


@pytest.mark.parametrize("number", [1, 3, 4, 15, 16, 63, 64, 85, 200])
def test_a_batch_of_any_size_is_written_by_few_statements(connections, number):
    """Each as many rows as there are, up to 64: a row by itself costs a change of threads."""
    connection, written = connections[0], []
    connection.execute("DELETE FROM mainstay_kept")
    steps = [("s", f"key-{each:03d}", decision("x")) for each in range(number)]
    steps += [("s", "key-000", decision("yy")), ("s", "key-none", decision("drop"))]
    connection.set_trace_callback(lambda text: written.append(text[:6]))
    try:
        carry_out(connection, steps, lambda: 0.0)
    finally:
        connection.set_trace_callback(None)
    assert written.count("INSERT") == number // 64 + sum(divmod(number % 16, 4)) + number % 64 // 16
    kept = {key: value for _, key, value, _ in rows(connection)}
    assert kept == {f"key-{each:03d}": b"x" if each else b"xyy" for each in range(number)}
