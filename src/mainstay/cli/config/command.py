"""`mainstay config`: checks the configuration, shows it, and prints its schema."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import click

from mainstay.cli.exits import Exit
from mainstay.cli.options import config_options, configuration, example, json_option
from mainstay.cli.screen.output import write, write_error, write_json, write_ours

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mainstay.config.load import Loaded

WIDTH = 48
"""The column from which the origin of a value is shown."""


@click.group("config", invoke_without_command=True, epilog=example("mainstay config check"))
@config_options
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:  # noqa: ARG001  for what is inside
    """Check the configuration, show it, or print its schema."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(Exit.USAGE)


@command.command(epilog=example("mainstay config check", "mainstay config check --config ci.yml"))
@config_options
@json_option
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Check the configuration, and list all problems. Exits with 1 if there are any."""
    loaded = configuration()
    problems = loaded.report.problems
    if as_json:
        listed = [problem.to_dict() for problem in problems]
        write_json({"file": loaded.file, "ok": not problems, "problems": listed})
    elif problems:
        write("\n".join(str(problem) for problem in problems))
    else:
        write(f"{loaded.file or 'no file'}: no problems; {_counted(loaded)}")
    if problems:
        ctx.exit(Exit.NEGATIVE)


@command.command(
    epilog=example("mainstay config show", "mainstay config show --set store=memory://")
)
@config_options
@json_option
@click.pass_context
def show(ctx: click.Context, as_json: bool) -> None:
    """Show the values in force and their origins, without secrets."""
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
        write("\n".join([f"# {loaded.file or 'no file'}", *_lines(settings, origins)]))
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


def _lines(
    values: dict[str, Any], origins: dict[str, str], path: tuple[str, ...] = ()
) -> Iterator[str]:
    """The values as YAML, each with its origin as a comment."""
    from mainstay.config.tree import joined

    for key, value in values.items():
        where = (*path, key)
        head = "  " * len(path) + f"{_word(key)}:"
        if isinstance(value, dict) and value:
            yield head
            yield from _lines(value, origins, where)
            continue
        line = f"{head} {_flow(value)}".rstrip()
        origin = origins.get(joined(where), "")
        yield f"{line.ljust(WIDTH)}  # {origin}" if origin else line


def _word(text: str) -> str:
    """A text as YAML takes it: plain if it cannot be anything else."""
    from mainstay.config.tree import scalar

    is_plain = re.fullmatch(r"[A-Za-z0-9_$/][A-Za-z0-9_./:@${}()+-]*", text)
    if is_plain and scalar(text) == text and not text.endswith(":"):
        return text
    return json.dumps(text, ensure_ascii=False)


def _item(value: Any) -> str:
    is_simple = isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_.]*", value)
    return _word(value) if is_simple else json.dumps(value, ensure_ascii=False)


def _flow(value: Any) -> str:
    if isinstance(value, str):
        return _word(value)
    if isinstance(value, list):
        return f"[{', '.join(_item(each) for each in value)}]"
    return json.dumps(value, ensure_ascii=False)
