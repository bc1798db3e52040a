"""`mainstay policies`: the policies there are, and the delays each of them gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstay.cli.completion import policy_names
from mainstay.cli.errors import CommandError
from mainstay.cli.options import config_options, configured, example, json_option
from mainstay.cli.screen.output import write_json

if TYPE_CHECKING:
    from typing import Any

    from mainstay import Backoff, Jitter, PolicyRegistry, RetryPolicy

MAX_SHOWN = 20
"""Delays in a table; JSON has all of them."""


@click.group("policies", invoke_without_command=True, epilog=example("mainstay policies"))
@config_options
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show the policies there are, or one with its delays."""
    if ctx.invoked_subcommand is not None:
        return
    policies = list(_registry())
    if as_json:
        write_json([{**policy.to_dict(), "delays": bases(policy)} for policy in policies])
        return
    from mainstay.cli.screen.console import Screen, table

    columns = ("policy", "attempts", "backoff", "jitter", "delays", "deadline")
    Screen().show(table(columns, map(_row, policies), left=6))


@command.command(epilog=example("mainstay policies show standard --seed 7"))
@click.argument("name", shell_complete=policy_names)
@click.option("--seed", type=int, help="Show the exact delays that an engine with this seed waits.")
@config_options
@json_option
def show(name: str, seed: int | None, as_json: bool) -> None:
    """Show one policy: every field, and the delay before each retry."""
    policy = _find(name)
    if as_json:
        delays = bases(policy) if seed is None else policy.delays(seed)
        write_json({**policy.to_dict(), "seed": seed, "delays": delays})
        return
    from mainstay.cli.screen.console import Screen, fields, table

    screen = Screen()
    screen.show(fields(_fields(policy)), "")
    screen.show(table(("retry", _delay_title(policy, seed)), _delay_rows(policy, seed)))


def _registry() -> PolicyRegistry:
    from mainstay import PolicyRegistry

    found = configured()
    return PolicyRegistry(found.policies, found.operations, found.default)  # type: ignore[arg-type]


def _find(name: str) -> RetryPolicy:
    registry = _registry()
    if name not in registry:
        known = ", ".join(registry.names)
        message = f"no policy is named {name!r}; there are: {known}"
        raise CommandError(message, hint="mainstay policies")
    return registry[name]


def bases(policy: RetryPolicy) -> list[float]:
    """The delays before the jitter."""
    return [policy.backoff.base(n) for n in range(1, policy.max_attempts)]


def _row(policy: RetryPolicy) -> tuple[str, ...]:
    delays = bases(policy)
    shown = ", ".join(seconds(delay) for delay in delays[:5]) + (", …" if len(delays) > 5 else "")
    return (
        policy.name,
        str(policy.max_attempts),
        backoff_text(policy.backoff),
        jitter_text(policy.jitter),
        shown or "none",
        seconds(policy.deadline),
    )


def _fields(policy: RetryPolicy) -> list[tuple[str, str]]:
    return [
        ("policy", policy.name),
        ("attempts", str(policy.max_attempts)),
        ("backoff", backoff_text(policy.backoff)),
        ("jitter", jitter_text(policy.jitter)),
        ("retried", _retried(policy)),
        ("attempt timeout", seconds(policy.attempt_timeout)),
        ("deadline", seconds(policy.deadline)),
        ("longest Retry-After", _longest_asked(policy)),
        ("a retry inside it", policy.nested),
        ("a result that stays rejected", {"return": "returned"}.get(policy.on_exhausted, "raised")),
    ]


def _longest_asked(policy: RetryPolicy) -> str:
    return seconds(policy.max_retry_after) if policy.respect_retry_after else "ignored"


def _retried(policy: RetryPolicy) -> str:
    if policy.retry_on is None:
        return "failures that are transient, throttled, timeout or overload"
    return ", ".join(str(rule) for rule in policy.to_dict()["retry_on"])


def _delay_title(policy: RetryPolicy, seed: int | None) -> str:
    if seed is not None:
        return f"delay with seed {seed}"
    return "delay" if policy.jitter.kind == "none" else "delay before jitter (exact with --seed)"


def _delay_rows(policy: RetryPolicy, seed: int | None) -> list[tuple[str, str]]:
    delays = bases(policy) if seed is None else policy.delays(seed)
    precise = f"{{:.{3 if seed is None else 6}f}} s"
    rows = [(str(n), precise.format(delay)) for n, delay in enumerate(delays[:MAX_SHOWN], start=1)]
    left = len(delays) - len(rows)
    return [*rows, ("…", f"{left} more with --json")] if left else rows


def backoff_text(backoff: Backoff) -> str:
    """A backoff in words."""
    values: dict[str, Any] = {**backoff.to_dict(), "count": len(backoff.delays)}
    return _BACKOFFS[backoff.kind].format(**values)


_BACKOFFS = {
    "constant": "constant {initial:g} s",
    "linear": "linear {initial:g} s + {step:g} s up to {max_delay:g} s",
    "exponential": "exponential {initial:g} s × {factor:g} up to {max_delay:g} s",
    "custom": "a function, up to {max_delay:g} s",
    "chain": "a chain of {count} delays up to {max_delay:g} s",
}


def jitter_text(jitter: Jitter) -> str:
    """A jitter in words."""
    if jitter.kind == "percent":
        return f"±{jitter.amount:.0%}".replace("%", " %")
    return f"up to {jitter.amount:g} s more" if jitter.kind == "additive" else jitter.kind


def seconds(value: float | None) -> str:
    """Seconds, or none."""
    return "none" if value is None else f"{value:g} s"
