"""Ports of loopback for a server that binds one later, or for nobody.

The system gives ports above 32,767 to sockets that ask for none in particular, of any test that
runs at the same time. One of those is not chosen: another socket could have it before the server
that it is for, or while that is restarted.
"""

import random
import socket
from collections.abc import Sequence

_FOR_SERVERS = range(12_000, 32_000)
_FOR_NOBODY = range(10_000, 12_000)
_CHANCE = random.SystemRandom()
"""Not the generator of the tests, which some of them seed: workers would choose the same port."""


def free_port() -> int:
    """A port that nobody has just now, for a server."""
    return _chosen(_FOR_SERVERS)


def dead_port() -> int:
    """A port where nobody listens, and no server of a test will."""
    return _chosen(_FOR_NOBODY)


def _chosen(ports: Sequence[int]) -> int:
    while True:
        port = _CHANCE.choice(ports)
        with socket.socket() as probe:
            if not _is_taken(probe, port):
                return port


def _is_taken(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        return True
    return False
