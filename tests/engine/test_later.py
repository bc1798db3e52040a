"""The parts of an engine that are made when they are first used."""

import subprocess
import sys
import threading

import pytest

from mainstay import Engine, UsageError
from mainstay.engine.later import LaterParts, _Later
from mainstay.ports import SinkWants

LATER = {name: part.make for name, part in vars(LaterParts).items() if isinstance(part, _Later)}


def python(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_engine_that_only_retries_loads_little():
    """No records, circuits or events, and not what they are made of."""
    code = (
        "import sys, mainstay\n"
        "engine = mainstay.Engine()\n"
        "greet = engine.protect('greet')(lambda: 'hello')\n"
        "assert greet() == engine.call('greet', greet) == 'hello'\n"
        "heavy = {'msgspec', 'inspect', 'hashlib', 'mainstay.drivers.idempotency.records',\n"
        "         'mainstay.drivers.inbox', 'mainstay.core.circuit', 'mainstay.stores.memory'}\n"
        "engine.close()\n"
        "if sys.version_info >= (3, 14): heavy.discard('inspect')  # logging itself loads it\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    assert python(code) == "[]"


@pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="there annotations are read by a module that loads typing"
)
def test_a_decorated_function_loads_neither_typing_nor_expressions():
    """They are a sixth of what it costs to import mainstay and decorate."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "import mainstay\n"
        "mainstay.retry(on=OSError)(lambda: None)()\n"
        "print(sorted({'re', 'typing', 'collections.abc'} & (set(sys.modules) - before)))\n"
    )
    assert python(code) == "[]"


def test_a_fork_loads_what_a_call_could_load():
    """A child of a fork beside an import would wait for ever: the hook has loaded all of it."""
    code = (
        "import sys, mainstay\n"
        "from mainstay.runtime.fork import LOADED_LATER\n"
        "policy = mainstay.RetryPolicy(name='standard', backoff=mainstay.Backoff.constant(0))\n"
        "engine = mainstay.Engine(policies=[policy], escalate=True)\n"
        "def fail(): raise ConnectionError('no')\n"
        "for name in LOADED_LATER: __import__(name)\n"
        "before = set(sys.modules)\n"
        "engine.run('fail', fail)\n"
        "engine.operation('parse', key='a').run(int, '7')\n"
        "engine.operation('fail', key='b').run(fail)\n"
        "assert engine.health().is_ready and list(engine.inbox)\n"
        "print(sorted(n for n in set(sys.modules) - before if n.startswith('mainstay')))\n"
    )
    assert python(code) == "[]"


@pytest.mark.parametrize("name", sorted(LATER))
def test_threads_get_one_part(name, monkeypatch):
    """A part that two threads ask for at once is made once."""
    engine = Engine()
    begun, go_on, second = threading.Event(), threading.Event(), threading.Event()
    own = getattr(engine, LATER[name])

    def make():
        (second if begun.is_set() else begun).set()
        go_on.wait(10)
        return own()

    monkeypatch.setattr(engine, LATER[name], make)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(getattr(engine, name))) for _ in range(2)
    ]
    threads[0].start()
    assert begun.wait(10)
    threads[1].start()
    second.wait(0.1)
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert not second.is_set()
    assert found[0] is found[1] is getattr(engine, name)


def test_a_part_that_cannot_be_made_is_asked_for_again(monkeypatch):
    """What raises leaves nothing half made."""
    engine = Engine()
    own, answers = engine._make_circuits, [MemoryError("no room")]

    def make():
        if answers:
            raise answers.pop()
        return own()

    monkeypatch.setattr(engine, "_make_circuits", make)
    with pytest.raises(MemoryError, match="no room"):
        _ = engine.circuits
    assert len(engine.circuits) == 0


def test_there_is_no_other_attribute():
    """A name that is none of them is refused as by any object."""
    engine = Engine()
    with pytest.raises(AttributeError, match="'Engine' object has no attribute 'circuit'"):
        _ = engine.circuit
    assert not hasattr(engine, "recrods")


def test_closing_makes_nothing():
    """An engine that was not used has nothing to close."""
    engine = Engine()
    engine.close()
    assert not set(LATER) & set(vars(engine))


def test_a_circuit_added_later_guards_new_sites():
    """Circuits that nothing was configured for can still be added."""
    from mainstay import CircuitBreaker

    engine = Engine()
    assert engine.protect("poll")(lambda: 1)() == 1
    engine.circuits.add("poll", CircuitBreaker("poll"))
    assert engine._site("poll", None, None).gate is not None


def test_a_sink_that_lacks_a_method_is_refused_at_once():
    """What a sink declares is checked when the engine is made, not when the store is opened."""

    class Broken:
        wants = SinkWants(store_steps=True)

        def __call__(self, event): ...

    with pytest.raises(UsageError, match="store_step"):
        Engine(sinks=[Broken()])


def test_no_hook_makes_the_attributes_of_an_engine_slow():
    """A `__getattr__` of the class would: Python reads every attribute the long way then."""
    assert len(LATER) == 6
    assert not hasattr(Engine, "__getattr__")
    assert Engine.__getattribute__ is object.__getattribute__


def test_no_look_at_its_dict_makes_the_attributes_of_an_engine_slow(tmp_path):
    """Python 3.11 and 3.12 would keep them in a dictionary then, and search for every method.

    They would also if the engines of a process had more than 30 attributes between them.
    """
    code = (
        "import gc, mainstay\n"
        f"for store in ('memory://', 'sqlite:///{tmp_path}/kept.db'):\n"
        "    engine = mainstay.Engine(store, escalate=True)\n"
        "    assert engine.call('parse', int, '7') == engine.protect('p')(lambda: 7)() == 7\n"
        "    engine.circuits.add('parse', mainstay.CircuitBreaker('parse'))\n"
        "    assert not [*engine.inbox, *engine.sagas.open(), *engine.pipelines.all()]\n"
        "    assert engine.health().is_ready\n"
        "    assert any(each is engine.policies for each in gc.get_referents(engine))\n"
        "    engine.close()\n"
        "    print(any(each is engine.policies for each in gc.get_referents(engine)))\n"
    )
    assert python(code).split() == ["True", "True"]
