"""The pytest plugin, used by somebody else's test suite."""

import subprocess
import sys
import textwrap

import pytest

SUITE = """
    import asyncio, time
    import pytest
    from mainstay import Backoff, RetryPolicy
    from mainstay.testing import scripted, scripted_async

    policy = RetryPolicy(retry_on=OSError, backoff=Backoff.constant(3600), max_attempts=3)

    def test_virtual_time(virtual_time):
        assert policy.call(scripted(OSError, "ok")) == "ok"
        assert 3000 < virtual_time.elapsed < 4000
        asyncio.run(policy.acall(scripted_async(OSError, "ok")))
        assert 6000 < virtual_time.elapsed < 8000

    def test_no_retry(no_retry):
        assert policy.run(scripted(OSError, "ok")).attempts == 1

    def test_trace(retry_trace, virtual_time):
        policy.call(scripted(OSError, "ok"))
        retry_trace.assert_succeeded(attempts=2)

    def test_nothing_is_on_by_itself():
        from mainstay.runtime import clock
        assert type(clock.current).__name__ == "SystemClock"
        quick = policy.replace(backoff=Backoff.constant(0))
        assert quick.run(scripted(OSError, "ok")).attempts == 2
"""


def run(folder, *arguments, ini=""):
    (folder / "test_theirs.py").write_text(textwrap.dedent(SUITE))
    (folder / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_fixtures_serve_a_strangers_suite(tmp_path):
    """virtual_time, no_retry and retry_trace are there as soon as mainstay is installed."""
    assert "4 passed" in run(tmp_path, "-W", "error")


@pytest.mark.parametrize("how", ["option", "ini"])
def test_retries_can_be_turned_off_for_a_whole_run(tmp_path, how):
    """--mainstay-no-retry, or mainstay_no_retry in the configuration: one attempt each."""
    if how == "option":
        output = run(tmp_path, "--mainstay-no-retry")
    else:
        output = run(tmp_path, ini="mainstay_no_retry = true")
    assert "3 failed, 1 passed" in output
    assert "test_no_retry" not in output


def test_the_option_is_in_pytests_help(tmp_path):
    """`pytest --help` says what it does."""
    assert "--mainstay-no-retry" in run(tmp_path, "--help")
