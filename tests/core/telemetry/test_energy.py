"""Energy and CO2 by a model: the formula, its bounds, and what stands beside every figure."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.telemetry.energy import EnergyModel
from mainstay.errors import PolicyError

SECONDS = st.floats(0.0, 1e6)
MODELS = st.builds(
    EnergyModel,
    watts=st.floats(0.0, 1e6),
    waiting_share=st.floats(0.0, 1.0),
    pue=st.floats(1.0, 10.0),
    grid_g_per_kwh=st.floats(0.0, 10_000.0),
)


@given(MODELS, SECONDS, SECONDS)
def test_the_formula_is_the_one_it_states(model, cpu, waiting):
    """Computing and a share of waiting, times watts and PUE; then the grid's grams."""
    energy = model.energy_wh(cpu, waiting)
    wanted = (cpu + waiting * model.waiting_share) * model.watts * model.pue / 3600
    assert energy == pytest.approx(wanted)
    assert model.co2_g(energy) == pytest.approx(wanted / 1000 * model.grid_g_per_kwh)
    assert model.energy_wh(cpu) <= energy


def test_an_hour_of_a_busy_core_is_its_watts():
    """Ten watts for an hour are ten watt-hours, and fifteen with a PUE of 1.5."""
    assert EnergyModel(watts=10.0, pue=1.0).energy_wh(3600.0) == 10.0
    assert EnergyModel(watts=10.0, pue=1.5).energy_wh(3600.0) == 15.0
    assert EnergyModel(waiting_share=0.0).energy_wh(0.0, 1e6) == 0.0


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [("watts", 0.0, 1e6), ("waiting_share", 0.0, 1.0), ("pue", 1.0, 10.0),
     ("grid_g_per_kwh", 0.0, 10_000.0)],
)  # fmt: skip
def test_a_parameter_that_cannot_be_is_refused(field, low, high):
    """Both ends are allowed."""
    for value in (low, high):
        assert getattr(EnergyModel(**{field: value}), field) == value
    for value in (low - 0.01, high * 1.01, math.nan, math.inf, True, "1"):
        with pytest.raises(PolicyError, match=field):
            EnergyModel(**{field: value})


@given(MODELS)
def test_a_statement_holds_method_parameters_and_scope(model):
    """And comes back from JSON as it was, with the same name."""
    statement = model.statement()
    assert statement.parameters == model
    assert "not a measurement" in statement.method
    assert statement.scope.startswith("Counted: ")
    assert "Not counted: first attempts" in statement.scope
    again = msgspec.json.decode(msgspec.json.encode(statement), type=type(statement))
    assert (again, again.name) == (statement, statement.name)
