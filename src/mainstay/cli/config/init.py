"""`mainstay config init`: writes a configuration to begin with."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mainstay.cli.errors import CommandError
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import write, write_json


@click.command(
    "init", epilog=example("mainstay config init", "mainstay config init settings/mainstay.yml")
)
@click.argument("file", default="mainstay.yml", type=click.Path())
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@json_option
def init(file: str, force: bool, as_json: bool) -> None:
    """Write a configuration with comments, to begin with.

    FILE is mainstay.yml unless it is given; one that is there is left as it is.
    """
    from mainstay.cli.config.starter import STARTER

    path = Path(file)
    if path.suffix not in (".yml", ".yaml"):
        raise CommandError(f"{path}: it is written as YAML", hint="mainstay config init FILE.yml")
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        descriptor = os.open(path, flags, 0o644)
    except FileExistsError:
        raise CommandError(
            f"{path} is there already", hint="mainstay config check, or --force to replace it"
        ) from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as target:
        target.write(STARTER)
    if as_json:
        write_json({"file": str(path), "written": True})
    else:
        write(f"{path}: written. Change it, then: mainstay config check")
