"""Resets of circuits without an account: by the owner of a private file, while nobody has one."""

import os

import pytest

from mainstay import BreakerSettings, Engine, IdentityRefused, RetryPolicy
from mainstay.core.circuit.breaker import Signal
from mainstay.drivers.inbox.circuit_admin import order_circuit, shared_circuit
from mainstay.drivers.inbox.private_store import private_owner
from mainstay.events import CircuitOrdered
from mainstay.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.skipif(os.name != "posix", reason="files have no owner here")
ONCE = RetryPolicy(name="once", max_attempts=1)


def down():
    raise ConnectionError("down")


@pytest.fixture
def desk(tmp_path):
    """An engine on a private file, with an open circuit and no operator; and what it emits."""
    tmp_path.chmod(0o755)
    settings = BreakerSettings(failure_threshold=1, recovery_timeout=600.0)
    options = {"policies": [ONCE], "default": "once", "audit": False, "share": 3600.0}
    heard = []
    with Engine(
        f"sqlite:///{tmp_path}/own.db", breaker=settings, sinks=[heard.append], **options
    ) as engine:
        (tmp_path / "own.db").chmod(0o600)
        engine.run("pay", down)
        engine.catch_up()
        yield engine, heard, tmp_path / "own.db"


def order(engine, signal=Signal.RESET, **who):
    return order_circuit(engine.store, engine.operators, "pay", signal, why="it is back", **who)


def test_the_owner_of_a_private_file_resets_a_circuit_without_an_account(desk):
    """The record and the event name the user of the system, by its own table."""
    import pwd

    engine, heard, _ = desk
    assert order(engine).order.signal is Signal.RESET
    engine.catch_up()
    assert engine.breaker("pay").state.value == "closed"
    me = f"os:{pwd.getpwuid(os.getuid()).pw_name}"
    assert shared_circuit(engine.store, "pay").order.by == me
    (event,) = [each for each in heard if isinstance(each, CircuitOrdered)]
    assert (event.operator, event.order, event.why) == (me, "reset", "it is back")


def test_a_user_that_the_system_does_not_know_is_named_by_number(desk, monkeypatch):
    """In a container, for one."""
    import pwd

    def unknown(_uid):
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert private_owner(desk[0].store) == f"os:{os.getuid()}"


@pytest.mark.parametrize("signal", [Signal.FORCE_OPEN, Signal.FORCE_CLOSE, Signal.DISABLE])
def test_every_other_order_needs_an_operator(desk, signal):
    """What stands until another order has a name."""
    with pytest.raises(IdentityRefused, match="an operator must order it"):
        order(desk[0], signal)


def test_once_there_is_an_operator_nobody_resets_without_an_account(desk):
    """Also not the owner of the file."""
    engine = desk[0]
    engine.operators.add("ann", secret="correct horse")
    with pytest.raises(IdentityRefused, match="the store has operators"):
        order(engine)
    with pytest.raises(IdentityRefused, match="secret is wrong"):
        order(engine, by="ann")
    with pytest.raises(IdentityRefused, match="secret is wrong"):
        order(engine, proof="correct horse")
    assert order(engine, by="ann", proof="correct horse") is not None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666, 0o610])
def test_a_file_that_others_can_open_is_shared(desk, mode):
    """Unless its folder is closed to them."""
    engine, heard, path = desk
    path.chmod(mode)
    with pytest.raises(IdentityRefused, match="private SQLite file"):
        order(engine)
    assert heard[-1].event_type == "operator_refused"
    assert heard[-1].about == "circuit pay: reset"
    path.parent.chmod(0o700)
    assert private_owner(engine.store).startswith("os:")


def test_the_file_of_another_user_is_not_ours(desk, monkeypatch):
    """Also if this user, such as root, can write it; nor is one that is gone."""
    engine, _, path = desk
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    assert private_owner(engine.store) == ""
    monkeypatch.undo()
    path.rename(path.with_name("moved.db"))
    assert private_owner(engine.store) == ""
    path.with_name("moved.db").rename(path)


def test_what_is_no_file_is_not_private(desk, monkeypatch):
    """Memory, a server; and no file is where the platform knows no owner of it."""
    memory = SqliteStore("sqlite:///:memory:")
    assert private_owner(memory) == ""
    memory.close()
    with Engine(sinks=[]) as engine:
        assert private_owner(engine.store) == ""
    monkeypatch.delattr(os, "getuid")
    assert private_owner(desk[0].store) == ""


def test_a_server_needs_an_operator(valkey_url):
    """Whoever reaches it may be anybody."""
    with Engine(valkey_url, sinks=[], share=None) as engine:
        if engine.operators.is_empty:
            with pytest.raises(IdentityRefused, match="private SQLite file"):
                order(engine)
