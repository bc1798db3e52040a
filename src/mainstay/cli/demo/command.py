"""`mainstay demo`: a service that fails, some hundred calls to it, and what came of them.

    script.py   which call meets which fault: a function of the seed
    service.py  the service, on 127.0.0.1
    wire.py     two small HTTP clients, async and sync
    traffic.py  the engine, its policies, the calls, and the acts after them:
    tally.py    counts the engine's events
    place.py    the folder for store and audit log, which is removed
    interrupt.py  Ctrl+C, once
    outage.py     circuits that open and recover
    orders.py     a charge that is called twice, and one that needs a person
    proof.py      the audit log, verified and replayed
    display.py  what is shown meanwhile
    summary.py  what is shown at the end, and
    epilogue.py   the part of it that is about the acts

Only the standard library is used for HTTP; the failures are classified by what their exceptions
carry, as those of any client would be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstay.cli.exits import Exit
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import write, write_error, write_json

if TYPE_CHECKING:
    from mainstay.cli.demo.traffic import Traffic

MAX_CALLS = 5000


@click.command("demo", epilog=example("mainstay demo", "mainstay demo --calls 40 --seed 11 --json"))
@click.option(
    "--calls",
    type=click.IntRange(1, MAX_CALLS),
    default=300,
    show_default=True,
    help="How many calls to make.",
)
@click.option("--seed", type=int, default=7, show_default=True, help="Decides what fails, and how.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Keep the store and the audit log there.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, calls: int, seed: int, keep: str | None, as_json: bool) -> None:
    """Watch retries at work against a service that fails.

    Starts a service on 127.0.0.1, calls it through the engine under four policies for about
    10 seconds, and says what failed, what was retried, what it saved and what it cost. Then the
    service goes down and circuits open and recover, an order is charged by two calls with one key,
    another one needs a person, and the audit log is verified and replayed. The same seed gives the
    same faults. Ctrl+C stops it; nothing is left of it, unless --keep says where.
    """
    from mainstay.cli.demo.place import place
    from mainstay.cli.demo.summary import document
    from mainstay.cli.demo.traffic import Traffic

    with place(keep) as folder:
        traffic = Traffic(calls, seed, folder)
        if as_json:
            traffic.run(lambda _: None)
            write_json({**document(traffic), "kept_in": keep})
        else:
            _show(traffic, keep)
    if not as_json and keep is None:
        write(f"\nits store and audit log were in {folder}, which is removed")
    if traffic.proof is None or not traffic.proof.ok:
        ctx.exit(Exit.NEGATIVE)


def _show(traffic: Traffic, keep: str | None) -> None:
    from mainstay.cli.demo.display import display_on
    from mainstay.cli.demo.epilogue import whereabouts
    from mainstay.cli.demo.summary import show
    from mainstay.cli.screen.console import Screen

    screen = Screen()
    try:
        with display_on(screen) as display:
            traffic.run(display)
    except KeyboardInterrupt:
        write_error(_farewell(traffic, keep))
        raise
    show(traffic, screen)
    if keep is not None:
        screen.show("", f"its store and audit log are kept in {keep}", whereabouts(traffic))


def _farewell(traffic: Traffic, keep: str | None) -> str:
    total = traffic.tally.total
    files = "" if keep is None else f"; its files are in {keep}"
    return (
        f"interrupted after {total.ended} of {traffic.calls} calls;"
        f" {total.interrupted} under way were cancelled, the service is stopped{files}"
    )
