"""For all tests: what a program is started with, and the servers there are one of per worker."""

import os
import signal
import tempfile

from tests.servers.nats import nats_url
from tests.servers.postgres import postgres_database, postgres_url
from tests.servers.valkey import valkey_url

__all__ = ["nats_url", "postgres_database", "postgres_url", "valkey_url"]

# What a test's engine could not deliver is not left in the home of whoever runs the tests.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="mainstay-tests-")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl+C, and so would every program that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
