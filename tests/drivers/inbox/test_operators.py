"""Operators in a store: who may act, and that a secret is nowhere but in its hash."""

import contextlib
import shutil

import pytest

from mainstay import Engine, OperatorKey, testing
from mainstay.audit import make_key
from mainstay.audit.open import open_journal
from mainstay.audit.read import records_in
from mainstay.core.base.change import DROP, Change
from mainstay.core.inbox import operators as core
from mainstay.core.inbox.operators import Hash
from mainstay.drivers.inbox.authentication import Verifier
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
    operators.change("bob", secret="one more staple", by="bob", proof="battery staple")
    refused(operators, "bob", "battery staple")
    operators.verify("bob", "one more staple")
    operators.remove("ann", by="bob", proof="one more staple")
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
        ({"secret": "x" * 11}, "at least 12 characters"),
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
    said = statement("verify", "kim", (), at, operators.store_identity)
    signed = OperatorKey(private).sign(said, at)
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


# --- the cost of a hash ---------------------------------------------------------------------------


def test_a_hash_of_an_earlier_cost_is_replaced_when_its_secret_was_right(operators, monkeypatch):
    """A wrong secret replaces nothing; the secret goes on working."""
    before = operators.get("ann").hash
    monkeypatch.setattr(Verifier, "cost", Hash(salt="", n=2**6))
    refused(operators, "ann", "a wrong guess")
    assert operators.get("ann").hash == before
    operators.verify("ann", SECRET)
    after = operators.get("ann").hash
    assert (before.n, after.n) == (2**4, 2**6)
    assert before.salt != after.salt
    operators.verify("ann", SECRET)
    assert operators.get("ann").hash == after, "it is replaced once"


def test_two_acts_at_once_both_replace_a_hash_and_neither_is_refused(operators, monkeypatch):
    """Both have checked the old hash; the second finds another one."""
    monkeypatch.setattr(Verifier, "cost", Hash(salt="", n=2**6))
    better, met = operators._better, []

    def slowly(known, proof):
        """Between the check and the record, another act of the same operator is done."""
        if not met:
            met.append(1)
            operators.verify("ann", SECRET)
        return better(known, proof)

    monkeypatch.setattr(operators, "_better", slowly)
    operators.verify("ann", SECRET)
    assert operators.get("ann").hash.n == 2**6


def test_an_unknown_name_is_hashed_at_the_cost_of_a_new_secret(operators, monkeypatch):
    """And a name whose hash costs less is padded to it: the time shows neither."""
    work = []
    hashed = core.hashed

    def counted(secret, using):
        work.append(using.n * using.p)
        return hashed(secret, using)

    monkeypatch.setattr(Verifier, "cost", Hash(salt="", n=2**6))
    monkeypatch.setattr(core, "hashed", counted)
    refused(operators, "nobody", "a wrong guess")
    unknown, work[:] = sum(work), []
    refused(operators, "ann", "a wrong guess")
    assert unknown == sum(work) == 2**6


def test_a_short_secret_of_an_earlier_version_still_works(operators):
    """Only a new secret needs twelve characters."""
    old = core.hashed("8 chars.", Hash(salt="ab" * 16, n=2**4))
    operators._step("ann", lambda value, now: core.change(value, now, proof=old))
    operators.verify("ann", "8 chars.")
    with pytest.raises(UsageError, match="at least 12 characters"):
        operators.change("ann", secret="8 chars.", by="ann", proof="8 chars.")


# --- the identity of the store --------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "nats"])
def store_url(request, tmp_path):
    """A store of each kind, on a real server where there is one."""
    if request.param == "memory":
        return "memory://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/a.db"
    name = {"postgres": "postgres_url", "redis": "valkey_url", "nats": "nats_url"}[request.param]
    return request.getfixturevalue(name)


def signed(key, purpose, about, at, identity):
    return key.sign(core.statement(purpose, "kim", about, at, identity), at)


@pytest.mark.req("AG-02.person")
def test_an_order_that_was_signed_for_one_store_is_refused_in_another(store_url, tmp_path):
    """On each kind of store; and an act without an identity, as older versions signed it, too."""
    private, public = make_key(tmp_path / "kim.pem")
    key, about = OperatorKey(private), ("pay", "FORCE_OPEN", "so")
    with Engine(store_url, sinks=[], audit=False, share=None) as one, Engine(sinks=[]) as other:
        for engine in (one, other):
            if engine.operators.get("kim") is None:
                engine.operators.add("kim", public_key=public)
        at = one.store.read("operators", "")[1]
        mine, theirs = one.operators.store_identity, other.operators.store_identity
        assert mine == one.operators.store_identity != theirs
        verify = one.operators.verify
        for identity in (theirs, ""):
            with pytest.raises(IdentityRefused, match="secret is wrong"):
                verify("kim", signed(key, "circuit", about, at, identity), "circuit", about)
        verify("kim", signed(key, "circuit", about, at, mine), "circuit", about)
        one.operators.renew_identity(by="kim", proof=key)
        with pytest.raises(IdentityRefused, match="secret is wrong"):
            verify("kim", signed(key, "circuit", about, at + 1, mine), "circuit", about)
        verify("kim", key, "circuit", about)
        for space, name in (("operators", "kim"), ("operators.first", "")):  # others use the server
            one.store.transact(space, name, lambda *_: (DROP, None))


def test_a_copy_keeps_the_identity_until_it_is_renewed(tmp_path):
    """A restored backup goes on as it was; a clone gets one of its own, and that is recorded."""
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in "ab"]
    with Engine(urls[0], sinks=[], audit=False) as engine:
        engine.operators.add("ann", secret=SECRET)
        first = engine.operators.store_identity
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
    heard = []
    with Engine(urls[1], sinks=[heard.append], audit=False) as clone:
        assert clone.operators.store_identity == first
        with pytest.raises(IdentityRefused, match="an operator must renew"):
            clone.operators.renew_identity()
        with pytest.raises(IdentityRefused, match="secret is wrong"):
            clone.operators.renew_identity(by="ann", proof="a wrong guess")
        made = clone.operators.renew_identity(by="ann", proof=SECRET)
        assert first != made == clone.operators.store_identity
    assert [each.event_type for each in heard] == ["operator_refused"] * 2 + ["operator_changed"]
    assert heard[-1].sentence() == "operators: the identity of the store was renewed by ann"


# --- before a secret is asked for -----------------------------------------------------------------


def test_what_would_be_refused_whoever_asked_is_known_before_a_secret_is(operators, heard):
    """The same errors as the act itself raises, and nothing is changed."""
    operators.add("bob", secret="battery staple", by="ann", proof=SECRET)
    for verb in ("remove", "disable", "enable", "change"):
        operators.check("bob", verb)
    operators.check("cat", "add", by="ann")
    for name, verb, told in (
        ("eve", "remove", "no operator 'eve'"),
        ("a b", "change", "no operator 'a b'"),
        ("a b", "add", "no name for an operator"),
        ("bob", "add", "an operator 'bob' already"),
    ):
        with pytest.raises(UsageError, match=told):
            operators.check(name, verb, by="ann")
    with pytest.raises(IdentityRefused, match="not the first"):
        operators.check("cat", "add")
    assert heard[-1].event_type == "operator_refused"
    operators.remove("bob", by="ann", proof=SECRET)
    with pytest.raises(UsageError, match="last operator"):
        operators.check("ann", "disable")
