"""A wall clock that can be set while programs run, by libfaketime.

The offset is in a file. The monotonic clock and the uptime stay as they are, as they do when an
administrator or NTP sets the time.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

from tests.servers.process import required

_HELP = "pip install libfaketime, or apt install libfaketime"


class FakedClock:
    """The wall clock of every process that is started with its `environment`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        library = required(_library(), "libfaketime", _HELP)
        copy = Path(shutil.copy(library, folder / "libfaketime.so.1"))  # any user may read it there
        copy.chmod(0o755)
        self.environment = {
            "LD_PRELOAD": str(copy),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        self.set(0)

    def set(self, offset: int) -> None:
        """Sets the clock so many seconds ahead of the real one."""
        new = self._file.with_name("clock.new")
        new.write_text(f"{offset:+d}", encoding="utf-8")
        new.chmod(0o644)
        new.replace(self._file)  # nobody reads half of it


def _library() -> str | None:
    """The library of the libfaketime wheel, or of the system."""
    wheel = find_spec("libfaketime")
    places = list(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if wheel is not None and wheel.origin is not None:
        places.insert(0, Path(wheel.origin).parent / "vendor/libfaketime/src/libfaketime.so.1")
    return next((str(place) for place in places if place.exists()), None)
