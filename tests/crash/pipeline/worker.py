"""A process that runs or resumes a pipeline and kills itself at a boundary, for this folder.

`python -m tests.crash.pipeline.worker` waits for jobs on its input, one JSON object a line, and
forks a child for each. Boundaries are before and after each write of the store, each replacement of
a ledger file, and each call of a stage.
"""

# ruff: noqa: T201 -- it answers on its output

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from mainstay import Engine
from mainstay.drivers.pipeline import ledger_files
from mainstay.profiles.pipelines import Pipeline, SchemaValidationError, Stage
from mainstay.stores.postgres.store import PostgresStore
from mainstay.stores.sqlite.store import SqliteStore
from tests.crash.saga_worker import Boundaries

LEASE = 1.0


def pipeline_of(
    engine: Engine,
    job: dict[str, Any],
    called: Any,
    name: str = "etl",
    *,
    is_repaired: bool = False,
) -> Pipeline:
    """Two stages, of which the second finds that the schema is violated, until it is repaired.

    In the scenario "wide" a third one runs beside them, and ends after the halt is written.

    The names are those of the trial: several share a database.
    """
    folder, trial = Path(job["folder"]), job["trial"]

    def poll() -> str:
        called("poll")
        return "rows"

    def check() -> str:
        called("check")
        if not is_repaired:
            raise SchemaValidationError("row 7 has no id")
        return "checked"

    def side(ctx: Any) -> str:
        called("side")
        ended = time.monotonic() + 10.0
        while time.monotonic() < ended and not is_repaired:
            view = pipeline.get(ctx.run_id)
            if view is None or view.halted_at:
                break
            time.sleep(0.002)
        return "beside"

    is_wide = job["scenario"] == "wide"
    stages = [
        Stage("poll", poll, idempotency="idempotent"),
        Stage("check", check, after="poll", idempotency="idempotent", datasets=f"d-{trial}"),
    ]
    if is_wide:
        stages.append(Stage("side", side, idempotency="idempotent"))
    pipeline = Pipeline(
        f"{name}-{trial}",
        stages,
        engine=engine,
        ledgers=folder / "ledgers",
        telemetry=folder / "telemetry.json",
        lease=LEASE,
        max_parallel=2 if is_wide else 1,
    )
    return pipeline


def open_engine(job: dict[str, Any]) -> Engine:
    """The store of a trial, with nothing in the background."""
    url = job["url"].format(folder=job["folder"])
    return Engine(url, sinks=[], audit=False, purge=None, share=None)


def work(job: dict[str, Any]) -> None:
    """One process: runs the pipeline once, or resumes it."""
    folder = Path(job["folder"])
    boundaries = Boundaries(job["crash_at"], folder / "counted")
    store: Any = SqliteStore if job["url"].startswith("sqlite") else PostgresStore
    for name in ("transact", "transact_many"):
        setattr(store, name, boundaries.around(getattr(store, name)))
    ledger_files.replace_file = boundaries.around(ledger_files.replace_file)

    def called(name: str) -> None:
        boundaries.pass_by()
        with (folder / "calls").open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
        boundaries.pass_by()

    is_resumed = job["scenario"] == "resumes"
    with open_engine(job) as engine, suppress(SchemaValidationError):
        pipeline = pipeline_of(engine, job, called, is_repaired=is_resumed)
        if is_resumed:
            pipeline.resume("r-1", by="ann")
        else:
            pipeline.run(run_id="r-1")
    boundaries.keep()


def main() -> None:
    """Forks a child for each job, waits for it, and prints how it ended."""
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                os.dup2(2, 1)
                work(json.loads(line))
            except BaseException:
                traceback.print_exc()
                os._exit(70)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
