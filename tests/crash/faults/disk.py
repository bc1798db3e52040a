"""A small disk that can be filled: a tmpfs in a mount namespace of its own.

Only processes that are started with its prefix see it, and it is gone with the last of them. Root
needs no more than `unshare` and `nsenter` (util-linux); others need user namespaces, which some
systems forbid.
"""

from __future__ import annotations

import errno
import os
import pwd
import subprocess
from pathlib import Path

from tests.servers.process import required

_IS_ROOT = os.geteuid() == 0
_HELP = "mount namespaces: run as root, or allow user namespaces (util-linux 2.38)"


class SmallDisk:
    """A file system of some megabytes at a folder; `fill()` leaves no byte of it."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        user = [] if _IS_ROOT else ["--user", "--map-root-user"]
        mount = f"mount -t tmpfs -o size={megabytes}m,mode=1777 none '{folder}'"
        self._holder = subprocess.Popen(
            ["unshare", *user, "--mount", "sh", "-c", f"{mount} && echo ready && exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        is_ready = self._holder.stdout.readline() == b"ready\n"
        required("tmpfs" if is_ready else None, "small disk", _HELP)
        self.root = f"/proc/{self._holder.pid}/root"
        """Where other processes see the files of those that see the disk."""
        self._filler = Path(f"{self.root}{folder}/filler")

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command begins with to see the disk."""
        pid = str(self._holder.pid)
        user = () if _IS_ROOT else ("--user", "--preserve-credentials")
        return ("nsenter", "--target", pid, "--mount", *user, "--")

    @property
    def prefix_of_server(self) -> tuple[str, ...]:
        """The same for a program that refuses to be root."""
        if _IS_ROOT:
            nobody = pwd.getpwnam("nobody")
            ids = (f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups")
            return (*self.prefix, "setpriv", *ids, "--")
        return (*self.prefix, "unshare", "--user", "--map-user=1000", "--map-group=1000", "--")

    def fill(self) -> None:
        """Takes every byte that is left."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def empty(self) -> None:
        """Gives the space back."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        """Leaves it to the processes that still have it."""
        self._holder.communicate(timeout=10.0)
