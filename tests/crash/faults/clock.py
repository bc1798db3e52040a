"""Clocks that jump: libfaketime for processes and servers, and a relay for servers in Go.

libfaketime replaces the calls of the C library that read the wall clock; the offset is in a file,
so that it can be changed while programs run. The monotonic clock stays as it is, as it does when
an administrator or NTP sets the time. A NATS server does not use the C library; what its clients
learn of its clock is one field of an answer, and `TimeRelay` shifts that field.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import threading
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

from tests.servers.process import required

_HELP = "pip install libfaketime, or apt install libfaketime"


class Clock:
    """The wall clock of every process that has its `environment`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.offset = 0
        found = required(library(), "libfaketime", _HELP)
        copy = shutil.copy(found, folder / "libfaketime.so.1")  # where any user may read it
        copy.chmod(0o755)
        self.environment = {
            "LD_PRELOAD": str(copy),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # Otherwise waits on the monotonic clock end at once: those of Python's threads for the
            # interpreter, which then change at every turn (wolfcw/libfaketime#503).
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }
        self.set(0)

    def set(self, offset: int) -> None:
        """Sets the clock that many seconds ahead of the real one."""
        new = self._file.with_name("clock.new")
        new.write_text(f"{offset:+d}", encoding="utf-8")
        new.chmod(0o644)
        new.replace(self._file)  # nobody reads half of it
        self.offset = offset


def library() -> str | None:
    """The library of the libfaketime wheel, or of the system."""
    wheel = find_spec("libfaketime")
    places = []
    if wheel is not None and wheel.origin is not None:
        places += [Path(wheel.origin).parent / "vendor/libfaketime/src/libfaketime.so.1"]
    places += Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    return next((str(place) for place in places if place.exists()), None)


class TimeRelay:
    """Stands before a NATS server, and shifts the times in its answers by `offset` seconds.

    The time at which a message was written (`time`) is shifted by the offset of that moment.
    """

    _STAMP = re.compile(rb'(?<=(ts|me)":")\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?=((?:\.\d{1,6})?)\d*Z)')
    _BEGUN = re.compile(rb'"t(?:s|i|im|ime)?(?:"(?::(?:"[0-9T:.-]*)?)?)?$')
    """The end of what came, if it is the beginning of a time."""

    def __init__(self, port: int) -> None:
        self._offsets = [(datetime(2000, 1, 1), 0)]  # noqa: DTZ001 -- the server's are without a zone, too
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def offset(self) -> int:
        """Seconds by which the server's clock seems to be ahead of its real one."""
        return self._offsets[-1][1]

    @offset.setter
    def offset(self, seconds: int) -> None:
        self._offsets.append((datetime.now(UTC).replace(tzinfo=None), seconds))

    def close(self) -> None:
        """Accepts no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, 5.0)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            for lane in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=lane, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_shifted: bool) -> None:
        kept = b""
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if is_shifted:
                    data, kept = self._shifted(kept + data)
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()  # and the other thread closes the other

    def _shifted(self, data: bytes) -> tuple[bytes, bytes]:
        """What can be passed on, and the beginning of a time whose rest is to come."""
        begun = self._BEGUN.search(data)
        whole = len(data) if begun is None else begun.start()
        return self._STAMP.sub(self._later, data[:whole]), data[whole:]

    def _later(self, found: re.Match[bytes]) -> bytes:
        moment = datetime.fromisoformat(found[0].decode())
        exact = moment + timedelta(seconds=float(found[2] or 0))
        past = [offset for since, offset in self._offsets if since <= exact]
        moment += timedelta(seconds=self.offset if found[1] == b"ts" else past[-1])
        return moment.isoformat(timespec="seconds").encode()
