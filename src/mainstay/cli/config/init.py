"""`mainstay config init`: writes a configuration to begin with."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import click

from mainstay.cli.errors import CommandError
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import write, write_json
from mainstay.runtime.private_files import is_link
from mainstay.runtime.replace_file import replace_file


@click.command(
    "init", epilog=example("mainstay config init", "mainstay config init settings/mainstay.yml")
)
@click.argument("file", default="mainstay.yml", type=click.Path())
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@json_option
def init(file: str, force: bool, as_json: bool) -> None:
    """Write a configuration with comments, to begin with.

    FILE is mainstay.yml unless it is given; one that is there is left as it is. With --force
    a regular file is replaced, whole; a link or a pipe is refused.
    """
    from mainstay.cli.config.starter import STARTER

    path = Path(file)
    if path.suffix not in (".yml", ".yaml"):
        raise CommandError(f"{path}: it is written as YAML", hint="mainstay config init FILE.yml")
    data = STARTER.encode()
    if force:
        _replace(path, data)
    else:
        _create(path, data)
    if as_json:
        write_json({"file": str(path), "written": True})
    else:
        write(f"{path}: written. Change it, then: mainstay config check")


def _create(path: Path, data: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise CommandError(
            f"{path} is there already", hint="mainstay config check, or --force to replace it"
        ) from None
    with os.fdopen(descriptor, "wb") as target:
        target.write(data)


def _replace(path: Path, data: bytes) -> None:
    """Puts the file in place of a regular one, or where none is; nothing else is touched.

    A link is not replaced: it is somebody's decision where the configuration is. A repository can
    put one there, too, so it is not followed either. What comes after the look is replaced.
    """
    with suppress(FileNotFoundError):
        found = path.lstat()
        if is_link(found):
            raise CommandError(
                f"{path} is a link: what it leads to is not overwritten",
                hint="remove it, or name the file that is to be written",
            )
        if not stat.S_ISREG(found.st_mode):
            raise CommandError(f"{path} is no regular file", hint="remove it, or name a new file")
    replace_file(path, data, follows=False)
