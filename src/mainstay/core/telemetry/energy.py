"""What retries cost in energy and CO2: an explicit model, never a measurement.

A figure of these is worth nothing by itself. So code that shows one shows the Statement beside it:
by what method, with which parameters, and what was counted.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec import Struct

from mainstay.core.base.validate import Checker

METHOD = (
    "energy_wh = (cpu_seconds + waiting_seconds * waiting_share) * watts * pue / 3600;"
    " co2_g = energy_wh / 1000 * grid_g_per_kwh. A model, not a measurement."
)
SCOPE = (
    "Counted: the CPU time of the calling thread during every attempt after the first, and the"
    " waits before them. In an event loop that is the CPU time of the whole thread while the"
    " attempt lasted, divided among the retried calls under way there: an upper bound. Waits of"
    " calls that wait at the same time add up. Not counted: first attempts, other threads and"
    " processes, the other side, the network, storage, and what making the machines took."
)


class EnergyModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of the model. The defaults are round assumptions: put your own in their place.

    Args:
        watts: what one busy core takes, with its share of the machine.
        waiting_share: which share of that a call takes that only waits.
        pue: power usage effectiveness: what the building takes for each watt of the machine.
        grid_g_per_kwh: grams of CO2 for a kilowatt-hour of the grid it hangs on.

    >>> model = EnergyModel(watts=36.0, waiting_share=0.5, pue=1.0, grid_g_per_kwh=500.0)
    >>> model.energy_wh(cpu_seconds=100.0), model.energy_wh(100.0, waiting_seconds=200.0)
    (1.0, 2.0)
    >>> model.co2_g(2.0)
    1.0
    """

    watts: float = 10.0
    waiting_share: float = 0.05
    pue: float = 1.5
    grid_g_per_kwh: float = 450.0

    def __post_init__(self) -> None:
        check = Checker("EnergyModel")
        check.number("watts", self.watts, 0.0, 1e6)
        check.number("waiting_share", self.waiting_share, 0.0, 1.0)
        check.number("pue", self.pue, 1.0, 10.0)
        check.number("grid_g_per_kwh", self.grid_g_per_kwh, 0.0, 10_000.0)
        check.close()

    def energy_wh(self, cpu_seconds: float, waiting_seconds: float = 0.0) -> float:
        """The watt-hours of so much computing and waiting."""
        busy = cpu_seconds + waiting_seconds * self.waiting_share
        return busy * self.watts * self.pue / 3600.0

    def co2_g(self, energy_wh: float) -> float:
        """The grams of CO2 of an energy in watt-hours."""
        return energy_wh / 1000.0 * self.grid_g_per_kwh

    def statement(self) -> Statement:
        """What stands beside every figure.

        >>> EnergyModel().statement().parameters.pue
        1.5
        """
        return Statement(method=METHOD, parameters=self, scope=SCOPE)


class Statement(Struct, frozen=True, kw_only=True):
    """How a figure was come by: method, parameters and scope."""

    method: str
    parameters: EnergyModel
    scope: str

    @property
    def name(self) -> str:
        """A short name by which records refer to it: another for anything that differs.

        >>> EnergyModel().statement().name == EnergyModel(pue=1.2).statement().name
        False
        """
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:12]
