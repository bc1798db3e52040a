"""`mainstay config trust`: which configuration files are used if they are found by searching."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mainstay.cli.errors import CommandError
from mainstay.cli.exits import Exit
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import shielded, write, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.config.load import Found


@click.command(
    "trust",
    epilog=example(
        "mainstay config trust",
        "mainstay config trust --list",
        "mainstay config trust --revoke shop/mainstay.yml",
    ),
)
@click.argument("file", required=False, type=click.Path())
@click.option("--list", "lists", is_flag=True, help="Show the files that you trust.")
@click.option("--revoke", is_flag=True, help="Trust the file no longer.")
@json_option
@click.pass_context
def trust(ctx: click.Context, file: str | None, lists: bool, revoke: bool, as_json: bool) -> None:
    """Trust a configuration file that is found by searching.

    A file that names a store, a sink or a webhook, or takes values from the environment, is used
    if you name it, or if you trust its content. Without FILE it is the one that is found from here.
    """
    if lists and (revoke or file):
        raise click.UsageError("--list takes neither FILE nor --revoke")
    if lists:
        _list(as_json)
    elif revoke:
        ctx.exit(_revoke(_path(file), as_json))
    else:
        _trust(_found(file), as_json)


@contextmanager
def _using_list() -> Iterator[None]:
    """The list of trusted files may be damaged, another user's, or have no folder."""
    try:
        yield
    except ValueError as error:
        hint = "move it elsewhere, and trust again what you trust"
        raise CommandError(str(error), hint=hint) from error
    except (OSError, RuntimeError) as error:
        hint = "correct that, set XDG_STATE_HOME, or name the file with --config"
        text = f"which files are trusted can be neither read nor kept: {error}"
        raise CommandError(text, hint=hint) from error


def _trust(found: Found, as_json: bool) -> None:
    from mainstay.config.files.trust import in_short, reach, trust, why_not_safe

    tree, status = found.read.tree, found.read.status
    assert tree is not None
    assert status is not None
    if reason := why_not_safe(found.path, found.root, status):
        raise CommandError(
            f"not trusted: {reason}",
            hint="change the owner or the mode if it is yours; else name the file with --config",
        )
    names = reach(tree)
    with _using_list():
        entry = trust(found.path, tree) if names else None
    if as_json:
        write_json(
            {
                "file": str(found.path),
                "trusted": True,
                "is_needed": bool(names),
                "names": names,
                "sha256": entry and entry.sha256,
            }
        )
    elif entry is None:
        write(f"{found.path}: needs no trust: it has only policies, circuits and budgets")
    else:
        _show(found)
        write(f"{found.path}: trusted until it changes; it names {in_short(names)}")


def _show(found: Found) -> None:
    """What is trusted, as it is read, without secrets."""
    from mainstay.cli.config.as_yaml import lines
    from mainstay.config.fields import CONFIG
    from mainstay.config.show import visible

    assert found.read.tree is not None
    write("\n".join(map(shielded, lines(visible(CONFIG, found.read.tree), {}))))


def _found(file: str | None) -> Found:
    """The file that is named, or the one that is found; it is read, and must be whole."""
    from mainstay.config.files.load_file import read_file
    from mainstay.config.load import Found, search
    from mainstay.config.report import Report

    report = Report(os.environ)
    if file is None:
        found = search(report)
        if found is None:
            raise CommandError("no configuration was found", hint="mainstay config trust FILE")
    else:
        path = _path(file)
        found = Found(path, path.parent, read_file(path, file, report), 0)
    if found.read.tree is None:
        report.close()
    return found


def _path(file: str | None) -> Path:
    """The absolute path of a file; links stay as they are."""
    return Path(os.path.abspath(file)) if file is not None else _found(None).path  # noqa: PTH100  a link stays


def _revoke(path: Path, as_json: bool) -> int:
    from mainstay.config.files.trusted import revoke_trusted

    with _using_list():
        removed = revoke_trusted(os.path.realpath(path))
    if as_json:
        write_json({"file": str(path), "trusted": False, "revoked": removed})
    else:
        write(f"{path}: {'trusted no longer' if removed else 'was not trusted'}")
    return Exit.OK if removed else Exit.NEGATIVE


def _list(as_json: bool) -> None:
    from mainstay.config.files.trusted import trusted_files

    with _using_list():
        entries = trusted_files()
    rows = [(each.path, each.at, _state(each.path, each.sha256)) for each in entries]
    if as_json:
        write_json([dict(zip(("file", "since", "content"), row, strict=True)) for row in rows])
        return
    if not rows:
        write("no file is trusted")
        return
    from mainstay.cli.screen.console import Screen, table

    Screen().show(table(("file", "since", "content"), rows, left=3))


def _state(path: str, sha256: str) -> str:
    """Whether a file has still the content that was trusted."""
    from mainstay.config.files.load_file import read_file
    from mainstay.config.files.trust import digest
    from mainstay.config.report import Report

    if not Path(path).exists():
        return "missing"
    tree = read_file(Path(path), path, Report({})).tree
    return "as trusted" if tree is not None and digest(tree) == sha256 else "other"
