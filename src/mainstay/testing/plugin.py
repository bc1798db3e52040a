"""The pytest plugin: fixtures for everything in mainstay.testing, and a switch for a whole run.

`--mainstay-no-retry` on the command line, or `mainstay_no_retry = true` in the configuration,
makes every call of the run one attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.testing.time import VirtualTime
    from mainstay.testing.traces import Trace


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the switch that turns retries off."""
    help_text = "every call under a mainstay policy makes one attempt"
    parser.getgroup("mainstay").addoption(
        "--mainstay-no-retry", action="store_true", help=help_text
    )
    parser.addini("mainstay_no_retry", type="bool", default=False, help=help_text)


@pytest.fixture(autouse=True)
def _mainstay_no_retry(request: pytest.FixtureRequest) -> Iterator[None]:
    config = request.config
    if not (config.getoption("mainstay_no_retry") or config.getini("mainstay_no_retry")):
        yield
        return
    from mainstay.testing.switches import no_retry

    with no_retry():
        yield


@pytest.fixture
def virtual_time() -> Iterator[VirtualTime]:
    """Waits end at once; the fixture is the clock."""
    from mainstay.testing.time import virtual_time as start

    with start() as virtual:
        yield virtual


@pytest.fixture
def no_retry() -> Iterator[None]:
    """Every call makes one attempt."""
    from mainstay.testing.switches import no_retry as switch

    with switch():
        yield


@pytest.fixture
def retry_trace() -> Iterator[Trace]:
    """Receives the events of every call in the test that fails at least once."""
    from mainstay.testing.traces import record

    with record() as trace:
        yield trace
