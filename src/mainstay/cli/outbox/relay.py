"""`mainstay outbox relay`: publishes until it is stopped."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import click

from mainstay.cli.errors import CommandError
from mainstay.cli.inbox.identity import opened, store_option
from mainstay.cli.options import Seconds, configured, example, json_option
from mainstay.cli.outbox.show import outbox_option, outbox_url
from mainstay.cli.screen.output import write, write_error, write_json
from mainstay.runtime.background import detached_thread

if TYPE_CHECKING:
    from mainstay.drivers.outbox.relay import Relay


@click.command(
    "relay",
    epilog=example(
        "mainstay outbox relay --publish nats://localhost:4222 --store postgresql://app@db/shop",
        "mainstay outbox relay --publish python:shop.events:publish --drain",
    ),
)
@click.option(
    "--publish", "target", metavar="URL",
    help="The broker; by default `outbox.publish` of the configuration.",
)  # fmt: skip
@click.option("--batch", type=click.IntRange(1, 10_000), default=100, help="Messages at once.")
@click.option("--poll", type=Seconds(0.001, 3600.0), default=1.0, help="Between two looks.")
@click.option("--lease", type=Seconds(0.05, 3600.0), default=30.0, help="Of a claim.")
@click.option(
    "--after-dead", type=click.Choice(["continue", "hold"]), default="continue",
    help="What becomes of the messages of an aggregate behind a dead one.",
)  # fmt: skip
@click.option("--retention", type=Seconds(0.0, 1e9), help="Delete what was published so long ago.")
@click.option("--drain", "drains", is_flag=True, help="Publish what is due, and end.")
@store_option
@outbox_option
@json_option
def relay(
    as_json: bool,
    target: str | None,
    batch: int,
    poll: float,
    lease: float,
    after_dead: str,
    retention: float | None,
    drains: bool,
) -> None:
    """Publish what is in the outbox, until SIGTERM or Ctrl+C.

    What is being published then is finished, and the rest given back.
    """
    import sys

    target = target or configured().outbox.get("publish")
    if not target:
        raise CommandError(
            "no broker is named", hint="--publish URL, or outbox.publish in the configuration"
        )
    sys.path.insert(0, "")  # for python:module:function, as `python -m` has it
    with opened(outbox=outbox_url(), is_configured=True) as engine:
        made = engine.outbox.relay(
            target, batch=batch, poll=poll, lease=lease, after_dead=after_dead,
            retention=retention,
        )  # fmt: skip
        write_error(f"mainstay: publishing to {made.publisher.url}")
        if drains:
            made.drain()
        else:
            _run(made)
        counts = made.counts
    from msgspec.structs import asdict

    if as_json:
        write_json(asdict(counts))
    else:
        write(f"{counts.published:,} published, {counts.retried:,} retried, {counts.dead:,} dead")


def _run(made: Relay) -> None:
    """In a thread: the signal handler may only set an event. Raises what has ended the relay."""
    stop, failures = threading.Event(), list[BaseException]()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stop.set())

    def run() -> None:
        try:
            made.run()
        except BaseException as error:
            failures.append(error)
        finally:
            stop.set()

    thread = detached_thread(run, "mainstay-relay")
    thread.start()
    while not stop.wait(0.2):
        pass
    made.stop()
    thread.join()
    for failure in failures:
        raise failure
