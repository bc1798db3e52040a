"""`mainstay demo`: a service that fails, some hundred calls to it, and their outcome.

Ctrl+C sets an event that the calls look at; it never disturbs the tidying up.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mainstay.cli.errors import CommandError
from mainstay.cli.exits import Exit
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import write, write_error, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.cli.demo.traffic import Traffic

PREFIX = "mainstay-demo-"


@click.command("demo", epilog=example("mainstay demo", "mainstay demo --calls 40 --seed 11 --json"))
@click.option("--calls", type=click.IntRange(1, 5000), default=300, show_default=True,
              help="The number of calls.")  # fmt: skip
@click.option("--seed", type=int, default=7, show_default=True, help="Decides what fails, and how.")
@click.option("--keep", type=click.Path(file_okay=False), metavar="FOLDER",
              help="Keep the store and the audit log in this folder.")  # fmt: skip
@json_option
@click.pass_context
def command(ctx: click.Context, calls: int, seed: int, keep: str | None, as_json: bool) -> None:
    """Watch retries at work against a service that fails.

    Starts a service on 127.0.0.1, calls it through the engine under four policies for about
    10 seconds, and shows what failed, what was retried, what that saved and what it cost. Then the
    service goes down, and circuits open and recover; two calls with one key charge an order once;
    an operator decides about another order; the audit log is verified and replayed. The same seed
    gives the same faults. Ctrl+C stops the demo; its files are removed, unless --keep is given.
    """
    from mainstay.cli.demo.summary import document
    from mainstay.cli.demo.traffic import Traffic
    from mainstay.drivers.process.interrupt import Interrupt

    with Interrupt() as stop, folder_for(keep) as folder:
        traffic = Traffic(calls, seed, folder, stop)
        if not as_json:
            _show(traffic, keep)
        elif traffic.run(lambda _: None):
            write_json({**document(traffic), "kept_in": keep})
    if stop.is_set():
        ctx.exit(128 + stop.number)
    if not as_json and keep is None:
        write(f"\nits store and audit log were in {folder}, which is removed")
    if not traffic.acts["audit"]["ok"]:
        ctx.exit(Exit.NEGATIVE)


def _show(traffic: Traffic, keep: str | None) -> None:
    from mainstay.cli.demo.summary import display_on, show
    from mainstay.cli.screen.console import Screen

    screen = Screen()
    with display_on(screen) as display:
        is_done = traffic.run(display)
    if is_done:
        show(traffic, screen, keep)
        return
    total, files = traffic.tally.total, "" if keep is None else f"; its files are in {keep}"
    write_error(
        f"interrupted after {total.ended} of {traffic.calls} calls;"
        f" {total.interrupted} under way were cancelled, the service is stopped{files}"
    )


@contextmanager
def folder_for(keep: str | None) -> Iterator[Path]:
    """The folder to keep; or a temporary one, which is removed, by `atexit` at the latest."""
    if keep is not None:
        kept = Path(keep)
        kept.mkdir(parents=True, exist_ok=True)
        if next(kept.iterdir(), None) is not None:
            raise CommandError(f"{kept} is not empty", hint="name a new folder: --keep FOLDER")
        yield kept
        return
    made = Path(tempfile.mkdtemp(prefix=PREFIX))
    atexit.register(_remove, made)
    try:
        yield made
    finally:
        _remove(made)


def _remove(folder: Path) -> None:
    """Removes it; again if a thread that ends meanwhile has put something into it."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.05)
