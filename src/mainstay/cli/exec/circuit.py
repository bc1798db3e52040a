"""Whether a command of `mainstay exec` has a circuit, its settings and its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.cli.exec.exit_codes import rules_of
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.engine.from_config import settings_in

if TYPE_CHECKING:
    from mainstay.cli.exec.request import ExecRequest
    from mainstay.config.load import Loaded


def circuit_of(request: ExecRequest, loaded: Loaded) -> tuple[BreakerSettings | None, str]:
    """The settings of the command's own circuit, and its name; none of its own without settings.

    A named operation has a circuit, unless the configuration disables it. It counts every failure,
    as the agent's document does; but a command that could not be run and an exit that is final do
    not count against it. Any other command has one if the configuration asks for circuits.
    """
    configured = settings_in(loaded).breaker
    name: str | None = request.operation
    if not request.is_named and configured is not None:
        from mainstay.cli.exec.circuit_name import circuit_name

        name = circuit_name(request.command)
    if name is None:
        return None, request.operation
    if configured is not None or not request.is_named or _has_section(loaded):
        return configured, name
    ignored = ["CommandNotRun", *rules_of(request.never_on)]
    return BreakerSettings(count="all", ignore=ignored), name


def _has_section(loaded: Loaded) -> bool:
    """Whether the configuration has a section for the circuits of operations, also one turned off.

    It may stand in three places.
    """
    found = loaded.checked
    return (
        "circuit_breaker" in found
        or "circuit_breaker" in found.get("retry", {})
        or "default" in found.get("breakers", {})
    )
