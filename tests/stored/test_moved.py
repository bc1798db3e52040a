"""Modules move, and what is stored is still read: shown with moves that never were."""

import base64
import json
import pickle
import pickletools
import subprocess
import sys
from functools import partial
from importlib import import_module
from types import ModuleType

import pytest

import mainstay
from mainstay import Backoff, Item, Kind, StoredValueError
from tests.stored import cases
from tests.stored.generate import pickles
from tests.stored.test_stored import VERSIONS

GONE = "mainstay.core.no_longer_here"


@pytest.fixture
def names(monkeypatch):
    """The table of names, with a module that is gone: its classes are where they are today."""
    from mainstay.core.codec import stored_names

    moved = import_module("mainstay.runtime.moved")
    for cls in (Backoff, Kind, Item):
        key = (GONE.removeprefix("mainstay."), cls.__name__)
        monkeypatch.setitem(stored_names.HOMES, key, cls.__module__)
    monkeypatch.setattr(moved, "_MODULES", frozenset({GONE}))
    yield stored_names
    sys.modules.pop(GONE, None)
    vars(import_module("mainstay.core")).pop("no_longer_here", None)


def read(text):
    """A value as a store has it recorded."""
    from mainstay.core.codec.outcome import decode_outcome

    return decode_outcome(json.dumps({"v": 1, "value": text}).encode()).value


def test_a_record_that_names_a_module_that_is_gone_is_read(names):
    """By the class's name, which is listed."""
    assert read({"$enum": [GONE, "Kind", "AUTH"]}) is Kind.AUTH


def test_a_class_whose_module_is_not_loaded_is_found_behind_the_door(names, monkeypatch):
    """Since the record says which it means."""
    monkeypatch.delitem(sys.modules, Kind.__module__)
    assert read({"$enum": [GONE, "Kind", "AUTH"]}) is Kind.AUTH


def test_a_class_that_is_nowhere_is_told_by_name(names, monkeypatch):
    """Neither loaded nor public."""
    key = (GONE.removeprefix("mainstay."), "Nobody")
    monkeypatch.setitem(names.HOMES, key, "mainstay.core.nobody")
    with pytest.raises(StoredValueError, match=f"{GONE}.Nobody"):
        read({"$enum": [GONE, "Nobody", "A"]})


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_that_names_a_module_that_is_gone_is_read(names, protocol):
    """As a pickle of an older version does."""
    data = pickle.dumps(Backoff.constant(2.0), protocol)
    home = Backoff.__module__
    old = {
        2: (f"c{home}\n".encode(), f"c{GONE}\n".encode()),
        4: (_short(home), _short(GONE)),
        5: (_short(home), _short(GONE)),
    }[protocol]
    assert old[0] in data
    plain = data.replace(*old) if protocol == 2 else _reframed(data.replace(*old))
    assert pickle.loads(plain) == Backoff.constant(2.0)


def _short(text):
    return b"\x8c" + bytes([len(text)]) + text.encode()


def _reframed(data):
    """Without the frame, whose length is no longer that."""
    return data[:2] + data[11:]


def test_a_package_that_took_the_name_of_a_module_answers_for_it(names):
    """With two lines: what it does not have itself, it asks the door for."""
    package = ModuleType(GONE)
    package.__getattr__ = partial(mainstay._moved, GONE)
    sys.modules[GONE] = package
    assert pickle.loads(f"c{GONE}\nBackoff\n.".encode()) is Backoff
    for name in ("NoSuchName", "items", "__path__"):
        with pytest.raises(AttributeError, match=name):
            getattr(package, name)


def test_a_module_that_never_was_is_not_found(names):
    """Nor anything that a module of version 1 did not have."""
    with pytest.raises(ModuleNotFoundError):
        import_module("mainstay.core.nonsense")
    with pytest.raises(ImportError):
        exec(f"from {GONE} import NoSuchName")


def test_the_names_are_loaded_when_they_are_needed():
    """Neither importing mainstay nor a recorded call of plain values reads the table."""
    program = (
        "import sys, mainstay\n"
        "with mainstay.Engine(sinks=[]) as engine:\n"
        "    engine.operation('a', key='k').call(int, '7')\n"
        "print({'mainstay.runtime.moved', 'mainstay.core.codec.stored_names'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"


def test_the_newest_version_has_the_names_that_pickles_have_today():
    """Whoever moves a class writes a version with its new name: `generate` writes it."""
    stored = json.loads((VERSIONS[-1] / "pickles.json").read_text(encoding="utf-8"))
    known = set().union(*(globals_of(texts["2"]) for texts in stored.values()))
    today = set().union(*(globals_of(texts["2"]) for texts in pickles().values()))
    how = "run: python -m tests.stored.generate v<next>, and commit what it writes"
    assert today <= known, f"{sorted(today - known)}: {how}"
    assert set(stored) == set(cases.PICKLED), how


def globals_of(text):
    """What of ours a pickle names."""
    names = (
        arg for op, arg, _ in pickletools.genops(base64.b64decode(text)) if op.name == "GLOBAL"
    )
    return {name for name in names if name.startswith("mainstay")}
