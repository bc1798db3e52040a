"""`python -m tests.crash.brokers [--trials N] [--only nats:killed]`; 1 after a violation."""

# ruff: noqa: T201 -- a command prints

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash.brokers.places import PLACES
from tests.crash.brokers.trial import run_trial
from tests.servers.databases import postgres_place, sqlite_place
from tests.servers.postgres import start_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.crash.brokers.places import BrokerPlace
    from tests.crash.brokers.trial import Outcome


def main() -> int:
    """Every fault of every broker on both databases, then as many at random as are left."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.brokers", description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--only", default="", help="a broker, or broker:fault")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    for noisy in ("aiormq", "mainstay.kafka"):
        logging.getLogger(noisy).addHandler(logging.NullHandler())
        logging.getLogger(noisy).propagate = False
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    print(f"brokers under a relay, seed {seed}")
    wanted, _, fault = options.only.partition(":")
    names = [name for name in PLACES if wanted in ("", name)]
    each = max(1, options.trials // max(1, len(names)))
    chance, failed, began = random.Random(seed), 0, time.monotonic()
    with _folder() as folder:
        database = start_postgres()
        try:
            for name in names:
                failed += _campaign(name, fault, each, chance, folder, database.url)
        finally:
            database.kill()
    print(f"{failed} violations in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def _campaign(
    name: str, fault: str, trials: int, chance: random.Random, folder: Path, database: str
) -> int:
    """The trials with one broker; the number of those with a violation."""
    home = folder / name
    home.mkdir()
    broker, sums, failed = PLACES[name](home), Counter[str](), 0
    plans = [[each] for each in broker.faults if fault in ("", each)] * 2
    plans = plans[:trials]
    while len(plans) < trials:
        plans.append(chance.choices(plans[0] if fault else broker.faults, k=3))
    try:
        for number, faults in enumerate(plans):
            outcome = _trial(broker, faults, chance.getrandbits(32), number, home, database)
            sums.update(
                trials=1, faults=len(faults), committed=outcome.committed,
                duplicates=outcome.duplicates, retried=outcome.retried,
            )  # fmt: skip
            if outcome.problems:
                failed += 1
                print(f"  {name} {', '.join(faults)}: {'; '.join(outcome.problems)}")
    finally:
        broker.close()
    print(f"  {name:<10}", "  ".join(f"{what} {sum_}" for what, sum_ in sums.items()), flush=True)
    return failed


def _trial(
    broker: BrokerPlace, faults: list[str], seed: int, number: int, home: Path, database: str
) -> Outcome:
    place = postgres_place(database)
    if number % 2:
        folder = home / f"trial-{number}"
        folder.mkdir()
        place = sqlite_place(folder)
    return run_trial(broker, place, faults, seed)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="brokers-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
