"""docs/reference/events.md says what the catalogue says."""

import msgspec

from mainstay.core.base.event import Event
from mainstay.core.events.catalogue import CATALOGUE
from tools import events_doc

HOW = "run .venv/bin/python tools/events_doc.py --write and review the diff"


def test_the_event_reference_is_the_generated_one():
    """A change of an event changes the page that users read."""
    written = events_doc.FILE.read_text(encoding="utf-8") if events_doc.FILE.exists() else ""
    assert written == events_doc.render(), f"docs/reference/events.md is not up to date: {HOW}"


def test_every_event_and_field_is_on_the_page():
    """The generator leaves nothing out."""
    page = events_doc.render()
    for name, cls in CATALOGUE.items():
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert cls.__name__ in section
        common = {field.name for field in msgspec.structs.fields(Event)}
        own = {field.name for field in msgspec.structs.fields(cls)} - common
        assert {f for f in own if f"| `{f}` |" not in section} == set()


def test_no_meaning_is_left_behind():
    """A field that is gone leaves no meaning in the generator."""
    fields = {f.name for cls in CATALOGUE.values() for f in msgspec.structs.fields(cls)}
    assert set(events_doc.MEANINGS) == fields
    assert set(events_doc.REMARKS) <= set(CATALOGUE)
