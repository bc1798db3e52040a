"""Which tests with a requirement have passed in this run: a file for tools/trace.py.

It is written to the path that TRACE_REPORT names, at the end of the run, by the process that all
reports come together in; of a test, its worst outcome counts: failed, then skipped, then passed.
An expected failure counts as skipped, for it shows nothing.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

VARIABLE = "TRACE_REPORT"
"""Not MAINSTAY_...: such a variable is read as configuration by what the tests start."""
WORST = ("passed", "skipped", "failed")
_PROPERTY = "req"


def pytest_itemcollected(item):
    """Puts the ids on the test's reports, which workers send on as they are."""
    ids = [each for mark in item.iter_markers("req") for each in mark.args]
    if ids:
        item.user_properties.append((_PROPERTY, ids))


def pytest_configure(config):
    """Takes the variable out of the environment: programs that a test starts have nothing of it."""
    path = os.environ.pop(VARIABLE, "")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Ran(Path(path)), "trace-report")


class Ran:
    """Keeps the outcome of each test that has a requirement."""

    def __init__(self, path):
        self.path = path.absolute()  # a test may change the working directory
        self.path.unlink(missing_ok=True)  # a run that is cut off leaves no report of another
        self.tests = {}

    def pytest_runtest_logreport(self, report):
        ids = [
            each for name, value in report.user_properties if name == _PROPERTY for each in value
        ]
        if not ids or (outcome := outcome_of(report)) is None:
            return
        known = self.tests.setdefault(report.nodeid, {"outcome": outcome, "req": ids})
        known["outcome"] = max(known["outcome"], outcome, key=WORST.index)

    def pytest_sessionfinish(self, session):
        arguments = list(session.config.invocation_params.args)
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        document = {"ended": ended, "arguments": arguments, "tests": self.tests}
        self.path.write_text(json.dumps(document, indent=1), encoding="utf-8")


def outcome_of(report):
    """What a report of one phase shows; None for a set-up or tear-down without event."""
    if report.outcome == "passed" and hasattr(report, "wasxfail"):
        return "skipped"
    return report.outcome if report.outcome != "passed" or report.when == "call" else None
