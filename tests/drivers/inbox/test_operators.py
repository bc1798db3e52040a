"""Operators in a store: who may act, and that a secret is nowhere but in its hash."""

import contextlib

import pytest

from mainstay import Engine, OperatorKey, testing
from mainstay.audit import make_key
from mainstay.audit.open import open_journal
from mainstay.audit.read import records_in
from mainstay.core.base.change import Change
from mainstay.drivers.inbox.credentials import Secret, Signature, public_pem
from mainstay.errors import IdentityRefused, StoredValueError, UsageError
from mainstay.events import decode

SECRET, PLANT = "correct horse", "plant-9f3kqz-secret"


@pytest.fixture
def heard():
    return []


@pytest.fixture
def operators(heard):
    with testing.virtual_time() as time, Engine(sinks=[heard.append]) as engine:
        engine.operators.add("ann", secret=SECRET)
        engine.operators.time = time
        yield engine.operators


def refused(operators, name, proof, **options):
    with pytest.raises(IdentityRefused) as told:
        operators.verify(name, proof, **options)
    return told.value


@pytest.mark.req("AG-02.person")
def test_the_first_needs_nobodys_leave_and_every_other_does(operators, heard):
    """Who has the store may be the first, and no more than that."""
    with pytest.raises(IdentityRefused, match="not the first"):
        operators.add("eve", secret="eve's secret")
    with pytest.raises(IdentityRefused, match="name or the secret is wrong"):
        operators.add("eve", secret="eve's secret", by="ann", proof="a guess")
    operators.add("bob", secret="battery staple", by="ann", proof=SECRET)
    operators.verify("bob", "battery staple")
    assert [(each.name, each.added_by) for each in operators] == [("ann", ""), ("bob", "ann")]
    told = [(e.event_type, e.operator) for e in heard]
    assert told == [
        ("operator_added", "ann"),
        ("operator_refused", ""),
        ("operator_refused", "ann"),
        ("operator_added", "bob"),
    ]
    with pytest.raises(UsageError, match="already"):
        operators.add("bob", secret="battery staple", by="ann", proof=SECRET)


@pytest.mark.req("AG-02.person")
def test_a_wrong_secret_and_a_name_that_nobody_has_read_the_same(operators):
    """Also when they are locked, by the fifth try of a quarter of an hour."""
    seen = {"ann": [], "eve": []}
    for name, said in seen.items():
        for _ in range(6):
            said.append(str(refused(operators, name, "a guess")).replace(name, "NAME"))
    assert seen["ann"] == seen["eve"]
    assert seen["ann"][0] == "the name or the secret is wrong"
    assert "NAME is locked for 60 s" in seen["ann"][4]
    assert "too many wrong tries" in seen["ann"][5]


@pytest.mark.req("AG-02.person")
def test_a_lock_holds_for_the_right_secret_until_its_time_is_over(operators):
    """On the store's clock; and says how long."""
    for _ in range(5):
        refused(operators, "ann", "a guess")
    told = refused(operators, "ann", SECRET)
    assert (told.operator, told.retry_after) == ("ann", pytest.approx(60.0))
    operators.time.sleep(61.0)
    operators.verify("ann", SECRET)
    for _ in range(4):
        refused(operators, "ann", "a guess")
    operators.verify("ann", SECRET)


def test_guessing_a_name_does_not_make_an_operator(operators):
    """The tries are counted, and nobody is listed; the name can still be given."""
    refused(operators, "eve", "a guess")
    assert [each.name for each in operators] == ["ann"]
    assert operators.get("eve") is None
    operators.add("eve", secret="eve's secret", by="ann", proof=SECRET)
    operators.verify("eve", "eve's secret")


def test_an_operator_is_disabled_enabled_changed_and_removed(operators, heard):
    """Each by an operator, and told with whose leave."""
    operators.add("bob", secret="battery staple", by="ann", proof=SECRET)
    operators.disable("bob", by="ann", proof=SECRET)
    assert str(refused(operators, "bob", "battery staple")) == "the operator is disabled"
    operators.enable("bob", by="ann", proof=SECRET)
    operators.change("bob", secret="another one", by="bob", proof="battery staple")
    refused(operators, "bob", "battery staple")
    operators.verify("bob", "another one")
    operators.remove("ann", by="bob", proof="another one")
    refused(operators, "ann", SECRET)
    changes = [(e.operator, e.change, e.authorised_by) for e in heard if hasattr(e, "change")]
    assert changes == [
        ("bob", "disabled", "ann"),
        ("bob", "enabled", "ann"),
        ("bob", "changed", "bob"),
        ("ann", "removed", "bob"),
    ]


def test_the_last_one_who_can_act_stays(operators):
    """Or nobody could ever be added again by name."""
    for verb in (operators.disable, operators.remove):
        with pytest.raises(UsageError, match="last operator who can act"):
            verb("ann", by="ann", proof=SECRET)
    with pytest.raises(UsageError, match="no operator 'eve'"):
        operators.enable("eve", by="ann", proof=SECRET)


def test_a_key_is_proof_and_a_secret_is_none_for_it(operators, tmp_path):
    """Nor is the key of somebody else."""
    private, public = make_key(tmp_path / "bob.pem")
    other, _ = make_key(tmp_path / "eve.pem")
    operators.add("bob", public_key=public, by="ann", proof=SECRET)
    operators.verify("bob", OperatorKey(private))
    refused(operators, "bob", OperatorKey(other))
    refused(operators, "bob", "battery staple")
    refused(operators, "ann", OperatorKey(private))
    refused(operators, "eve", OperatorKey(private))
    assert repr(OperatorKey(private)) == "OperatorKey(...)"


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 65, "a\nb", None])
def test_what_is_no_name_is_refused(operators, name):
    """When it is given, and when it is tried."""
    with pytest.raises(UsageError, match="no name for an operator"):
        operators.add(name, secret=SECRET, by="ann", proof=SECRET)
    assert str(refused(operators, name, "a guess")) == "the name or the secret is wrong"


def test_an_operator_has_a_secret_or_a_key_that_is_one(operators, tmp_path):
    """Not both, not neither, not a short one, not a file of something else."""
    (tmp_path / "bad.pem").write_text("nothing")
    for options, told in (
        ({}, "a secret or a public key"),
        ({"secret": "x" * 9, "public_key": "y"}, "a secret or a public key"),
        ({"secret": "short"}, "at least 8 characters"),
        ({"public_key": tmp_path / "bad.pem"}, "cannot be read"),
        ({"public_key": tmp_path / "none.pem"}, "No such file"),
    ):
        with pytest.raises(UsageError, match=told):
            operators.add("bob", by="ann", proof=SECRET, **options)
    for bad in (b"nothing", tmp_path / "bad.pem"):
        with pytest.raises(UsageError, match="cannot be read as a private key"):
            OperatorKey(bad)
    with pytest.raises(UsageError, match="not empty"):
        Secret("")
    with pytest.raises(UsageError, match="cannot be read"):
        public_pem(b"nothing")


def test_a_planted_secret_is_nowhere_but_in_its_hash(tmp_path, caplog):
    """Neither in the log, the audit, the events, an exception nor any byte of the store."""
    caplog.set_level("DEBUG")
    heard, path = [], tmp_path / "store.db"
    with Engine(f"sqlite:///{path}", sinks=[heard.append]) as engine:
        engine.operators.add("ann", secret=PLANT)
        engine.operators.verify("ann", PLANT)
        told = refused(engine.operators, "ann", PLANT + "x")
        engine.operators.change("ann", secret=PLANT + "2", by="ann", proof=PLANT)
        assert engine.audit.flush(60)
    read = [repr(heard), repr(told), caplog.text, repr(Secret(PLANT))]
    assert PLANT not in "".join(read)
    files = [file for file in tmp_path.iterdir() if file.is_file()]
    assert path in files
    for file in files:
        assert PLANT.encode() not in file.read_bytes()


@pytest.mark.parametrize("verb", ["disable", "remove"])
def test_of_two_who_stop_each_other_at_once_one_stays(operators, verb):
    """Each has found the other one there; then nobody could act, and nobody let anybody in."""
    proofs = {"ann": SECRET, "bob": "battery staple"}
    operators.add("bob", secret=proofs["bob"], by="ann", proof=SECRET)
    look, met = operators._keep_one_besides, []

    def slowly(name):
        """Between looking and stopping, the other one does the same."""
        look(name)
        if not met:
            met.append(name)
            stop("bob", "ann")

    def stop(by, whom):
        with contextlib.suppress(UsageError, IdentityRefused):
            getattr(operators, verb)(whom, by=by, proof=proofs[by])

    operators._keep_one_besides = slowly
    stop("ann", "bob")
    assert met
    assert any(each.is_enabled for each in operators)


def test_a_key_signs_by_the_stores_clock(tmp_path):
    """One whose own clock is an hour off acts all the same, and is not locked for it."""
    private, public = make_key(tmp_path / "kim.pem")
    with Engine(f"sqlite:///{tmp_path}/a.db", sinks=[], audit=False) as engine:
        engine.operators.add("kim", public_key=public)
        with testing.virtual_time() as time:
            time.advance(3600.0)
            for _ in range(7):
                engine.operators.verify("kim", OperatorKey(private))


def test_a_signature_of_another_time_is_refused_as_such(operators, tmp_path):
    """It is theirs: they are told of the clocks, and not that their key is wrong."""
    from mainstay.core.inbox.operators import statement
    from mainstay.runtime import clock

    private, public = make_key(tmp_path / "kim.pem")
    operators.add("kim", public_key=public, by="ann", proof=SECRET)
    at = clock.current.wall() - 360.0
    signed = OperatorKey(private).sign(statement("verify", "kim", (), at), at)
    assert str(refused(operators, "kim", signed)) == (
        "the signature is of 360 s before the store's time"
    )


@pytest.mark.parametrize(
    "proof",
    [Signature(b"x", float("nan")), Signature(b"x", float("inf")), Signature("x", 1.0), None],
    ids=["no number", "infinite", "no bytes", "nothing"],
)
@pytest.mark.parametrize("name", ["ann", "kim", "eve"])
def test_what_is_no_proof_is_refused_as_a_wrong_one_is(operators, tmp_path, name, proof):
    """Of whoever has a secret, a key, or is not there."""
    _, public = make_key(tmp_path / "kim.pem")
    operators.add("kim", public_key=public, by="ann", proof=SECRET)
    assert "name or the secret is wrong" in str(refused(operators, name, proof))


@pytest.mark.parametrize(
    ("name", "told"), [("\udcff", "x"), ("ann", "\udcff"), ("ann", "x" * 9999)]
)
def test_a_guess_is_in_the_audit_whatever_was_sent_with_it(tmp_path, name, told):
    """Half a letter cannot be written: it must not hide who guesses."""
    url = f"sqlite:///{tmp_path}/a.db"
    with Engine(url, sinks=[]) as engine:
        engine.operators.add("ann", secret=SECRET)
        refused(engine.operators, name, "a guess", told=told)
    journal = open_journal(url, reads_only=True)
    try:
        found = [decode(each.body) for block in journal.blocks(0) for each in records_in(block)]
    finally:
        journal.close()
    (event,) = [each for each in found if each.event_type == "operator_refused"]
    assert len(event.about) <= 200


def test_a_damaged_record_makes_nobody_the_first(operators, caplog):
    """It counts as somebody, is passed over and said, and can be removed."""
    damaged = Change(b'{"name": 7')
    operators.add("bob", secret="battery staple", by="ann", proof=SECRET)
    operators._step("ann", lambda *_: (damaged, None))
    assert [each.name for each in operators] == ["bob"]
    assert "operators 'ann' is passed over" in caplog.text
    with pytest.raises(StoredValueError, match="operator is damaged"):
        operators.verify("ann", SECRET)
    operators.remove("ann", by="bob", proof="battery staple")
    assert operators._store.read("operators", "ann")[0] is None
    operators._step("bob", lambda *_: (damaged, None))
    with pytest.raises(IdentityRefused, match="not the first"):
        operators.add("eve", secret="eve's secret")
