"""The names under which our own classes are stored: public, the same for ever, and found again."""

import subprocess
import sys
from importlib import import_module

import pytest

import mainstay
import mainstay.audit
import mainstay.testing
from mainstay.core.codec.introspect import (
    find_class,
    is_dataclass,
    is_enum,
    is_named_tuple,
    is_struct,
    key_name,
    stored_name,
)
from mainstay.core.codec.outcome import Failed, Succeeded, encode_outcome
from mainstay.core.codec.stored_names import DOORS, HOMES, LATER, VERSION_1, class_named
from mainstay.errors import RetryError, StoredValueError
from mainstay.events import CallFailed

MODULES = [import_module(door) for door in DOORS]
FROZEN = {f"mainstay.{old}.{name}" for old, name in HOMES}


def is_data(cls):
    return any(is_one(cls) for is_one in (is_enum, is_named_tuple, is_dataclass, is_struct))


PUBLIC = {
    getattr(module, name): (module.__name__, name)
    for module in reversed(MODULES)
    for name in getattr(module, "__all__", [])
    if isinstance(getattr(module, name), type) and is_data(getattr(module, name))
    if getattr(module, name).__name__ == name  # another name for a class is not what is stored
}
ROWS = [(old, home, name) for old, home, names in VERSION_1 for name in names.split()]


@pytest.mark.parametrize(("cls", "expected"), PUBLIC.items(), ids=str)
def test_a_public_class_is_stored_by_its_public_name(cls, expected):
    """Not by its module, which may move; a module that is public itself is such a name."""
    is_at_home = cls.__module__ in DOORS
    assert stored_name(cls) == ((cls.__module__, cls.__qualname__) if is_at_home else expected)
    assert find_class(*stored_name(cls)) is cls


@pytest.mark.parametrize("cls", PUBLIC, ids=lambda cls: cls.__qualname__)
def test_a_public_class_has_a_name_in_fingerprints_that_no_move_changes(cls):
    """That of version 1, or else its public name: never the module in which it happens to be."""
    assert key_name(cls) in FROZEN | {".".join(stored_name(cls))}
    assert stored_name(cls)[0] in DOORS


def test_there_are_public_classes():
    """The two tests above have something to look at."""
    assert {mainstay.Kind, mainstay.Item, CallFailed, mainstay.Verdict} <= set(PUBLIC)
    assert len(PUBLIC) > 35


@pytest.mark.parametrize(("old", "home", "name"), ROWS)
def test_a_name_of_version_1_leads_to_what_it_named(old, home, name):
    """In a record, which names classes; and under the module's old name, as a pickle asks."""
    thing = getattr(import_module(home), name)
    assert getattr(import_module(f"mainstay.{old}"), name) is thing
    if isinstance(thing, type):
        assert find_class(f"mainstay.{old}", name) is thing
        assert key_name(thing) == f"mainstay.{old}.{name}"


def test_no_name_of_version_1_is_listed_twice():
    """Neither of then, nor of now: a class has one name in fingerprints."""
    assert len({(old, name) for old, _, name in ROWS}) == len(ROWS)
    assert len({(home, name) for _, home, name in ROWS}) == len(ROWS)


def test_a_name_of_a_later_version_leads_to_what_it_named():
    """Of what has moved more than once."""
    for old, home, names in LATER:
        for name in names.split():
            assert getattr(import_module(f"mainstay.{old}"), name).__module__ == home


def test_every_exception_of_ours_lives_in_a_module_that_is_public():
    """Events, evidence and rules name an exception by its module, and stay as they are."""
    found = {
        getattr(module, name).__module__
        for module in MODULES
        for name in getattr(module, "__all__", [])
        if isinstance(getattr(module, name), type)
        and issubclass(getattr(module, name), BaseException)
    }
    testing = {"mainstay.testing.sagas", "mainstay.testing.scripts"}
    assert found == {"mainstay.errors", "mainstay.profiles.errors", *testing}


def test_values_and_failures_of_ours_are_written_by_public_names():
    """As whoever reads the store sees them."""
    assert b'["mainstay","Kind","AUTH"]' in encode_outcome(Succeeded(mainstay.Kind.AUTH))
    event = CallFailed(
        operation="a", total_attempts=1, total_seconds=0.5, final_exception_type="",
        final_exception_message="", kind="", reason="", proof=None,
    )  # fmt: skip
    assert b'"$object":["mainstay.events","CallFailed"' in encode_outcome(Succeeded(event))
    failed = encode_outcome(Failed(RetryError("network", 3, "pay")))
    assert b'"type":["mainstay.errors","RetryError"]' in failed


def test_a_class_of_ours_that_is_not_public_keeps_the_name_of_version_1():
    """What is in a public value may be of such a class."""
    old = "core.operators"
    operator = getattr(import_module(HOMES[old, "Operator"]), "Operator")  # noqa: B009 -- by name
    assert stored_name(operator) == (f"mainstay.{old}", "Operator")


def test_a_class_of_ours_that_was_never_stored_goes_by_its_module():
    """As anybody's does."""
    ours = import_module("mainstay.core.idempotency.call").Keyed
    assert stored_name(ours) == (ours.__module__, "Keyed")
    assert key_name(ours) == f"{ours.__module__}.Keyed"


@pytest.mark.parametrize(
    "name",
    [
        ("mainstay", "NoSuchName"),
        ("mainstay", "retry"),
        ("mainstay", "sys"),
        ("mainstay.events", "decode"),
        ("mainstay.errors", "ClassVar"),
        ("mainstay.core.retry.kinds", "NoSuchName"),
        ("mainstay.core.base.value", "_rebuild"),
        ("mainstay.nonsense", "Kind"),
        ("mainstayed", "Kind"),
    ],
)
def test_nothing_else_of_ours_is_found_by_a_record(name):
    """A name that is not listed, or that is no class."""
    with pytest.raises(StoredValueError):
        find_class(*name)


def test_a_record_loads_no_module_that_it_names():
    """Of ours as of anybody's: only what stands behind a door is loaded on demand."""
    program = (
        "import sys\n"
        "from mainstay import StoredValueError\n"
        "from mainstay.core.codec.outcome import decode_outcome\n"
        "try:\n"
        """    decode_outcome(b'{"v":1,"value":{"$enum":["mainstay.cli.exits","Exit","OK"]}}')\n"""
        "except StoredValueError:\n"
        "    print([name for name in sys.modules if name.startswith('mainstay.cli')])\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_a_class_whose_module_is_not_loaded_is_found_behind_a_door(monkeypatch):
    """Its public name leads to it, and loads it."""
    home = HOMES["core.kinds", "Kind"]
    monkeypatch.delitem(sys.modules, home)
    found = class_named("mainstay.core.kinds", "Kind")
    assert found is mainstay.Kind
