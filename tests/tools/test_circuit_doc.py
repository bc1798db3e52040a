"""docs/reference/circuit.md says what the table of the breaker says."""

from mainstay.core.circuit.breaker import ORDERS, TABLE, CircuitState
from tools import circuit_doc

HOW = "run .venv/bin/python tools/circuit_doc.py --write and review the diff"


def test_the_diagram_is_the_table():
    """A change of the table changes the picture that users see."""
    written = circuit_doc.FILE.read_text(encoding="utf-8") if circuit_doc.FILE.exists() else ""
    assert written == circuit_doc.render(), f"docs/reference/circuit.md is not up to date: {HOW}"


def test_every_state_and_change_is_on_the_page():
    """The generator leaves nothing out."""
    page = circuit_doc.render()
    assert all(f"| `{state.name}` |" in page for state in CircuitState)
    for (before, signal), after in TABLE.items():
        if signal not in ORDERS:
            assert f"{before.name} --> {after.name}: {signal.value}\n" in page
