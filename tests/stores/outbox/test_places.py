"""The place of an entry on PostgreSQL is that of its commit, whatever comes before that."""

import uuid

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstay.stores.outbox.insert import add
from mainstay.stores.outbox.new_row import new_row
from mainstay.stores.outbox.open import open_outbox
from tests.servers.databases import postgres_place


@pytest.fixture(scope="module")
def module_place(postgres_url):
    """One for all examples of the law: each has aggregates of its own."""
    place = postgres_place(postgres_url)
    open_outbox(place.url).close()
    return place


def ids(table):
    return [entry.id for entry in table.claim(100, 30.0, "one", is_idle=True).entries]


@pytest.fixture
def postgres(postgres_url):
    place = postgres_place(postgres_url)
    place.table = open_outbox(place.url)
    yield place
    place.table.close()


def adds(connection, *names):
    for name in names:
        add(connection, new_row("t", {}, {"id": name, "aggregate_id": "X"}), creates=False)


CHECKS = ("SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL DEFERRED")


@pytest.mark.req("EF-10")
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("checks", [CHECKS, CHECKS[:1], ("; ".join(CHECKS),)])
def test_constraints_that_are_checked_early_leave_the_order_to_the_commit(postgres, checks, rounds):
    """As Django's check_constraints() does; messages may come before, between and after."""
    with psycopg.connect(postgres.url) as one, psycopg.connect(postgres.url) as two:
        adds(one, "a1", "a2")
        for _ in range(rounds):
            for statement in checks:
                one.execute(statement)
        adds(one, "a3")
        adds(two, "b")
        two.commit()
        adds(one, "a4")
        one.commit()
    assert ids(postgres.table) == ["b", "a1", "a2", "a3", "a4"]


def test_constraints_that_are_checked_in_a_savepoint(postgres):
    """One that is rolled back, and one that is kept."""
    with psycopg.connect(postgres.url) as one, psycopg.connect(postgres.url) as two:
        adds(one, "a1")
        for is_kept in (False, True):
            with one.transaction(force_rollback=not is_kept):
                adds(one, f"a2 {is_kept}")
                one.execute(CHECKS[0])
        adds(two, "b")
        two.commit()
        one.commit()
    assert ids(postgres.table) == ["b", "a1", "a2 True"]


@pytest.mark.parametrize(
    "commit", ["COMMIT", "commit;", "END", "COMMIT AND CHAIN", "/* x */ COMMIT"]
)
def test_every_commit_gives_places(postgres, commit):
    with psycopg.connect(postgres.url) as one, psycopg.connect(postgres.url) as two:
        adds(one, "a1", "a2")
        adds(two, "b")
        two.commit()
        one.execute(commit)
        one.rollback()
    assert ids(postgres.table) == ["b", "a1", "a2"]


def test_a_statement_that_is_its_own_transaction(postgres):
    """Its commit is not in the text of the statement; nor is that of a procedure."""
    columns = "(id, topic, payload, content_type, aggregate)"
    with psycopg.connect(postgres.url, autocommit=True) as one:
        one.execute(
            f"INSERT INTO mainstay_outbox {columns} SELECT n::text, 't', '', '', 'X'"
            " FROM generate_series(1, 3) AS n"
        )
        one.execute(
            "DO $$ BEGIN"
            f" INSERT INTO mainstay_outbox {columns} VALUES ('4', 't', '', '', 'X'); COMMIT;"
            f" INSERT INTO mainstay_outbox {columns} VALUES ('5', 't', '', '', 'X'); COMMIT; END $$"
        )
    assert ids(postgres.table) == list("12345")


@pytest.mark.parametrize(
    "commit",
    ["COMMIT", " end ;", "Commit Work", "COMMIT AND NO CHAIN", "/* route='x' */ COMMIT /* y */"],
)
def test_a_commit_writes_each_row_once(postgres, commit):
    """What is done for early checks costs a commit nothing."""
    with psycopg.connect(postgres.url) as one:
        adds(one, "a1", "a2")
        one.execute(commit)
        query = "SELECT count(*) FROM mainstay_outbox WHERE fired_at IS NOT NULL"
        assert one.execute(query).fetchone() == (0,)


# --- many of one aggregate, and the law -----------------------------------------------------------


def looks(connection):
    """Entries of the aggregates' index that were read."""
    connection.execute("SELECT pg_stat_force_next_flush()")
    connection.execute("SELECT pg_stat_clear_snapshot()")
    query = (
        "SELECT idx_tup_read FROM pg_stat_user_indexes"
        " WHERE indexrelid = 'mainstay_outbox_aggregate'::regclass"
    )
    (found,) = connection.execute(query).fetchone()
    connection.commit()
    return found


@pytest.mark.req("EF-10")
@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("in_savepoints", [False, True])
def test_a_commit_of_many_of_one_aggregate_looks_at_each_a_few_times(
    postgres, before, between, in_savepoints
):
    """It was half the square of their number: 499,500 for 1,000."""
    count = 200
    with psycopg.connect(postgres.url) as one, psycopg.connect(postgres.url) as two:
        first = [f"b{n}" for n in range(before)]
        adds(two, *first)
        two.commit()
        since = looks(two)
        one.execute("SELECT 1")  # or the first savepoint would be a transaction
        for number in range(count):
            if in_savepoints:
                with one.transaction():
                    adds(one, f"a{number:03}")
            else:
                adds(one, f"a{number:03}")
            if between and number == count // 2:
                adds(two, "between")
                two.commit()
        one.commit()
        looks(one)
        assert looks(two) - since < 8 * count
    names = [f"a{n:03}" for n in range(count)]
    found = [entry.id for entry in postgres.table.list(["ready"], limit=1000)]
    assert found == first + ["between"] * between + names


@pytest.mark.req("EF-10")
def test_messages_in_savepoints_keep_their_places(postgres):
    """They are of the transaction, though a savepoint has a number of its own: none is moved."""
    with psycopg.connect(postgres.url) as one:
        one.execute("SELECT 1")
        for name in ("a1", "a2", "a3"):
            with one.transaction():
                adds(one, name)
        one.commit()
        query = "SELECT id FROM mainstay_outbox WHERE NOT is_moved ORDER BY position"
        assert one.execute(query).fetchall() == [("a1",), ("a2",), ("a3",)]


@pytest.fixture
def other(postgres_url):
    """An outbox in another schema of the database."""
    place = postgres_place(postgres_url)
    open_outbox(place.url).close()
    return place


def schema_of(place):
    return place.url.rpartition("%3D")[2]


@pytest.mark.req("EF-10")
@pytest.mark.parametrize("how", ["SET", "SET LOCAL"])
@pytest.mark.parametrize("there", ["other", "none", "temporary"])
@pytest.mark.parametrize("checks", [(), CHECKS])
def test_a_search_path_of_the_commit_leaves_the_order_as_it_is(postgres, other, how, there, checks):
    """The trigger looked at the table that the path led to, and wrote no place or failed."""
    path = {"other": schema_of(other), "none": "pg_catalog", "temporary": schema_of(postgres)}
    with psycopg.connect(postgres.url) as one, psycopg.connect(postgres.url) as two:
        adds(one, "a1", "a2")
        adds(two, "b")
        two.commit()
        if there == "temporary":
            one.execute("CREATE TEMPORARY TABLE mainstay_outbox (id text, position bigint)")
        one.execute(f"{how} search_path = {path[there]}")
        for check in checks:
            one.execute(check)
        assert one.execute("SHOW search_path").fetchone() == (path[there],)
        one.commit()
        expected = path[there] if how == "SET" else schema_of(postgres)
        assert one.execute("SHOW search_path").fetchone() == (expected,)
    assert ids(postgres.table) == ["b", "a1", "a2"]


TAKEN = {
    "claim": "UPDATE mainstay_outbox SET phase = 'claimed', attempts = attempts + 1, token = 'x',"
    " lease_until = 9e9 WHERE aggregate_id = %s AND phase = 'ready'",
    "park": "UPDATE mainstay_outbox SET phase = 'parked' WHERE aggregate_id = %s"
    " AND phase = 'ready'",
}


@pytest.mark.req("EF-10")
@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_message_comes_after_those_that_a_relay_has_taken(postgres, taken, isolation):
    """They were committed before it."""
    with psycopg.connect(postgres.url) as one, psycopg.connect(postgres.url) as two:
        one.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        adds(one, "a1", "a2")
        adds(two, "b")
        two.commit()
        two.execute(TAKEN[taken], ["X"])
        two.commit()
        one.commit()
        query = "SELECT id FROM mainstay_outbox ORDER BY position"
        assert two.execute(query).fetchall() == [("b",), ("a1",), ("a2",)]


ACTIONS = st.tuples(
    st.sampled_from("ABC"),
    st.sampled_from(
        ["add X"] * 4 + ["add Y", "kept", "undone", "commit", "commit", "check", "claim", "park"]
    ),
)


@pytest.mark.req("EF-10")
@settings(max_examples=60)
@given(st.lists(ACTIONS, max_size=24))
def test_the_order_of_an_aggregate_is_that_of_commits(module_place, actions):
    """Of three transactions at once, with savepoints and early checks; own ones as they came."""
    mark = uuid.uuid4().hex
    open_ones = {name: psycopg.connect(module_place.url) for name in "ABC"}
    pending = {name: [] for name in "ABC"}
    expected = []
    try:
        for number, (who, what) in enumerate([*actions, *((name, "commit") for name in "ABC")]):
            one = open_ones[who]
            if what == "commit":
                one.commit()
                expected += pending[who]
                pending[who] = []
            elif what == "check":
                one.execute(CHECKS[0])
            elif what in TAKEN:
                with psycopg.connect(module_place.url) as relay:
                    relay.execute(TAKEN[what], [mark + "X"])
            else:
                one.execute("SELECT 1")
                row = (f"{mark}{number}", what[-1] if what.startswith("add") else "X")
                with one.transaction(force_rollback=what == "undone"):
                    fields = {"id": row[0], "aggregate_id": mark + row[1]}
                    add(one, new_row("t", {}, fields), creates=False)
                if what != "undone":
                    pending[who].append(row)
        query = "SELECT id FROM mainstay_outbox WHERE aggregate_id = %s ORDER BY position"
        for aggregate in "XY":
            found = [row[0] for row in one.execute(query, [mark + aggregate])]
            assert found == [name for name, where in expected if where == aggregate]
    finally:
        for each in open_ones.values():
            each.close()
