"""`mainstay demo`: a service that fails, some hundred calls to it, and what came of them.

    script.py   which call meets which fault: a function of the seed
    service.py  the service, on 127.0.0.1
    wire.py     two small HTTP clients, async and sync
    traffic.py  the engine, its policies, and the calls
    tally.py    counts the engine's events
    display.py  what is shown meanwhile
    summary.py  what is shown at the end

Only the standard library is used for HTTP; the failures are classified by what their exceptions
carry, as those of any client would be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstay.cli.options import example, json_option
from mainstay.cli.output import write_error, write_json

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
@json_option
def command(calls: int, seed: int, as_json: bool) -> None:
    """Watch retries at work against a service that fails.

    Starts a service on 127.0.0.1, calls it through the engine under four policies for about
    10 seconds, and says what failed, what was retried, what it saved and what it cost. The same
    seed gives the same faults. Ctrl+C stops it.
    """
    from mainstay.cli.demo.summary import document
    from mainstay.cli.demo.traffic import Traffic

    traffic = Traffic(calls, seed)
    if as_json:
        traffic.run(lambda _: None)
        write_json(document(traffic))
    else:
        _show(traffic)


def _show(traffic: Traffic) -> None:
    from mainstay.cli.demo.display import display_on
    from mainstay.cli.demo.summary import show
    from mainstay.cli.screen import Screen

    screen = Screen()
    try:
        with display_on(screen) as display:
            traffic.run(display)
    except KeyboardInterrupt:
        write_error(_farewell(traffic))
        raise
    show(traffic, screen)


def _farewell(traffic: Traffic) -> str:
    total = traffic.tally.total
    return (
        f"interrupted after {total.ended} of {traffic.calls} calls;"
        f" {total.interrupted} under way were cancelled, the service is stopped"
    )
