"""The URL of a NATS store, and the subjects of its records in the bucket.

Any text is a key, and few characters are allowed in a name: so keys are written in base64, and
if that is too long as a hash. Nothing here connects to a server.
"""

from __future__ import annotations

import base64
import hashlib
import re
from urllib.parse import urlsplit

from mainstay.errors import StoreError
from mainstay.runtime.nats.client import NatsServers
from mainstay.stores.options import options_of

_OPTIONS = {"timeout": 5.0, "bucket": "mainstay", "replicas": 1}
_LONGEST = 512
"""Characters of an encoded key; a server takes 4,096 for a whole line of the protocol."""


class NatsUrl:
    """The parts of a URL: servers, credentials, options, and its form without secrets."""

    def __init__(self, url: str) -> None:
        servers = self.servers = NatsServers(url)
        user = servers.user and f"{servers.user}@"
        self.shown = f"{servers.scheme}://{user}{servers.hosts}"
        for host in servers.hosts.split(","):
            self._check(host)
        if urlsplit(url).path.strip("/"):
            raise StoreError(
                f"{self.shown} has a path", hint="name a bucket with ?bucket=name, or none"
            )
        options = options_of(url, _OPTIONS)
        self.timeout: float = options["timeout"]
        self.replicas: int = options["replicas"]
        self.bucket: str = options["bucket"]
        if not re.fullmatch(r"[A-Za-z0-9_-]+", self.bucket):
            raise StoreError(f"bucket = {self.bucket!r}: must be letters, digits, - and _")
        self.stream = f"KV_{self.bucket}"
        self.subjects = f"$KV.{self.bucket}."

    def _check(self, host: str) -> None:
        try:
            parts = urlsplit(f"nats://{host}")
            is_good = bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            is_good = False
        if not is_good:
            raise StoreError(f"{self.shown} names no server", hint="nats://127.0.0.1:4222")

    def subject(self, space: str, key: str = "") -> str:
        """The name of a record in the bucket; a long key is known by its hash."""
        return f"{self.subjects}s{_encoded(space, 's')}.{_encoded(key, 'k')}"

    def subjects_of(self, space: str) -> str:
        """The pattern for the records of a space."""
        return self.subject(space).rpartition(".")[0] + ".*"


def _encoded(text: str, kind: str) -> str:
    """Any text as one token of a name: base64, or where that is too long its hash."""
    data = text.encode("utf-8", "surrogatepass")
    token = base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    if len(token) > _LONGEST:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
        return "h" + digest.rstrip(b"=").decode()
    return kind + token


def decoded(token: str) -> str | None:
    """The key of such a token; None where only the record itself knows it."""
    if not token.startswith("k"):
        return None
    padded = token[1:] + "=" * (-len(token[1:]) % 4)
    return base64.urlsafe_b64decode(padded).decode("utf-8", "surrogatepass")
