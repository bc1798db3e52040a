"""promtool: MAINSTAY_TEST_PROMTOOL, then the path, then what tools/get-promtool has unpacked."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.servers.process import required


@pytest.fixture(scope="session")
def promtool() -> str:
    """The program that checks rules of Prometheus."""
    unpacked = Path(sys.prefix) / "opt" / "promtool"
    named = os.environ.get("MAINSTAY_TEST_PROMTOOL") or shutil.which("promtool")
    found = named or (str(unpacked) if unpacked.is_file() else None)
    return required(found, "promtool", "run tools/get-promtool, or install Prometheus")
