"""`mainstay config`: checks the configuration, shows it, and prints its schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from mainstay.cli.config.init import init
from mainstay.cli.config.trust import trust
from mainstay.cli.exits import Exit
from mainstay.cli.options import (
    config_file_argument,
    config_options,
    configuration,
    example,
    json_option,
)
from mainstay.cli.screen.output import write, write_error, write_json, write_ours

if TYPE_CHECKING:
    from mainstay.config.load import Loaded


@click.group("config", invoke_without_command=True, epilog=example("mainstay config check"))
@config_options
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:  # noqa: ARG001  for what is inside
    """Write, check, show and trust the configuration."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(Exit.USAGE)


@command.command(epilog=example("mainstay config check", "mainstay config check ci.yml"))
@config_file_argument
@config_options
@json_option
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Check the configuration, and list all problems. Exits with 1 if there are any.

    A warning is what is most likely not meant, such as a misspelt exception: an engine starts all
    the same, but the exit code is 1. A note is what cannot be checked here.
    """
    from mainstay.config.doubts import doubts_of

    loaded = configuration()
    doubts = doubts_of(loaded)
    found = {
        "problems": loaded.report.problems, "warnings": doubts.warnings, "notes": doubts.notes,
    }  # fmt: skip
    is_ok = not loaded.report.problems and not doubts.warnings
    if as_json:
        listed = {sort: [each.to_dict() for each in some] for sort, some in found.items()}
        write_json({"file": loaded.file, "ok": is_ok, **listed})
    else:
        for sort, start in (("problems", ""), ("warnings", "warning: "), ("notes", "note: ")):
            for each in found[sort]:
                write(f"{start}{each}")
        if is_ok:
            write(f"{loaded.file or 'no file'}: no problems; {_counted(loaded)}")
    if not is_ok:
        ctx.exit(Exit.NEGATIVE)


@command.command(
    epilog=example("mainstay config show", "mainstay config show --set store=memory://")
)
@config_file_argument
@config_options
@json_option
@click.pass_context
def show(ctx: click.Context, as_json: bool) -> None:
    """Show the values in force and their origins, without secrets."""
    from mainstay.cli.config.as_yaml import lines
    from mainstay.config.fields import CONFIG
    from mainstay.config.show import leaves, visible

    loaded = configuration()
    problems = loaded.report.problems
    settings = visible(CONFIG, loaded.tree) if isinstance(loaded.tree.value, dict) else {}
    if as_json:
        origins = dict(leaves(CONFIG, loaded.tree))
        listed = [problem.to_dict() for problem in problems]
        write_json(
            {"file": loaded.file, "settings": settings, "origins": origins, "problems": listed}
        )
    else:
        origins = dict(leaves(CONFIG, loaded.tree))
        write("\n".join([f"# {loaded.file or 'no file'}", *lines(settings, origins)]))
        for problem in problems:
            write_error(f"problem: {problem}")
    if problems:
        ctx.exit(Exit.NEGATIVE)


@command.command(epilog=example("mainstay config schema > mainstay.schema.json"))
@json_option
def schema(as_json: bool) -> None:  # noqa: ARG001  it is JSON in any case
    """Print the JSON Schema, for editors and other checkers."""
    from mainstay.config.schema import schema as make

    write_ours(json.dumps(make(), indent=2))


command.add_command(init)
command.add_command(trust)


def _counted(loaded: Loaded) -> str:
    settings = loaded.settings
    assert settings is not None
    policies = len({policy.name for policy in settings.policies} | {"standard"})
    operations = len(settings.operations)
    return (
        f"{_many(policies, 'policy', 'policies')}, {_many(operations, 'operation', 'operations')}"
    )


def _many(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"
