"""What `mainstay exec` is asked for."""

from __future__ import annotations

from msgspec import Struct

from mainstay.drivers.process.options import GRACE


class ExecRequest(Struct, frozen=True, kw_only=True):
    """What was asked for on the command line."""

    command: tuple[str, ...]
    operation: str
    is_named: bool = False
    """Whether the operation was named: its circuit and its keys have that name."""
    policy: str | None = None
    timeout: float | None = None
    deadline: float | None = None
    key: str | None = None
    retry_on: tuple[int, ...] = ()
    never_on: tuple[int, ...] = ()
    escalate: bool = False
    store: str | None = None
    on_config_error: str = "stop"
    keep: int = 0
    grace: float = GRACE
    lease: float = 15.0
