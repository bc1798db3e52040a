"""The keys, scripts, URLs and error messages of the Redis store.

Nothing here connects to a server. What a server is sent is a flow: a generator that yields commands
and is sent the answers; protocol.py runs it.

    mainstay:{space}:key    token and value; the server drops it a week after it has expired
    mainstay:{space}        the keys of a space in order: a sorted set with equal scores
    mainstay:{space}~       the keys that expire, by the moment they do
    mainstay:{space}!key    the step that holds a record for a moment, after it lost the race often
    mainstay:spaces         the spaces there are
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from redis import exceptions as theirs

from mainstay.errors import StoreError
from mainstay.stores.package_files import read_texts
from mainstay.stores.time_left import shown

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, TypeAlias

    Flow: TypeAlias = Generator[tuple[Any, ...] | list[Any] | bytes | float, Any, Any]
    """Yields a command to send, a list of them, a record to lock, or seconds to wait."""

_THEIRS = "db username password client_name protocol socket_keepalive health_check_interval".split()
TOKEN = 12
"""Bytes of a token; lua/ has the same number."""


class Server(Protocol):
    """The attributes of a store that error messages need."""

    url: str
    timeout: float
    pool: int
    is_closed: bool


# --- names and scripts ----------------------------------------------------------------------------


class RecordKeys:
    """The keys of a record: its own, two indexes of its space, and the one of its holder."""

    __slots__ = ("key", "keys", "name", "space")

    def __init__(self, prefix: str, space: str, key: str) -> None:
        base = _base(prefix, space)
        self.space = space
        self.key = key
        self.name = encoded(key)
        self.keys = (base + b":" + self.name, base, base + b"~", base + b"!" + self.name)


@lru_cache(maxsize=256)
def _base(prefix: str, space: str) -> bytes:
    """What the keys of a space begin with: the braces put them in one slot of a cluster."""
    tag = space.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
    return encoded(f"{prefix}{{{tag or '%'}}}")  # the server ignores an empty tag


def encoded(text: str) -> bytes:
    """A name as the server keeps it; any string is one, also with half a surrogate pair."""
    return text.encode("utf-8", "surrogatepass")


def decoded(name: bytes) -> str:
    """The name again."""
    return name.decode("utf-8", "surrogatepass")


def milliseconds(expires: float | None) -> int | bytes:
    """The first whole millisecond at which it has expired; a server takes none before 1."""
    return b"" if expires is None else int(min(max(expires * 1000.0, 0.0), 2.0**52)) + 1


class _Script:
    """A script of lua/, and the hash by which the server knows it."""

    def __init__(self, name: str) -> None:
        self.text = _TEXTS[f"{name}.lua"]
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


_TEXTS = read_texts("mainstay.stores.redis", "lua")
READ, WRITE, DROP = _Script("read"), _Script("write"), _Script("drop")
RELEASE, _SWEEP = _Script("release"), _Script("sweep")


def run_script(script: _Script, keys: tuple[bytes, ...], *arguments: Any) -> Flow:
    """The answer of a script; it is sent in full if the server does not have it."""
    try:
        return (yield ("EVALSHA", script.sha, len(keys), *keys, *arguments))
    except theirs.NoScriptError:
        return (yield ("EVAL", script.text, len(keys), *keys, *arguments))


def sweep(records: list[RecordKeys]) -> Flow:
    """Removes the index entries of records of one space that are gone; how many."""
    if not records:
        return 0
    keys = [each.keys[0] for each in records]
    names = [each.name for each in records]
    return (yield from run_script(_SWEEP, (*records[0].keys[1:3], *keys), *names))


# --- addresses and messages -----------------------------------------------------------------------


def split_url(url: str) -> tuple[str, str]:
    """The URL with our options, and the one with theirs for redis-py."""
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss", "valkey", "valkeys") or not parts.hostname:
        raise StoreError(
            f"{without_secrets(url)} is no address of a Redis or Valkey server",
            hint="redis://localhost:6379/0, or rediss:// for TLS",
        )
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    passed = [(name, text) for name, text in pairs if name in _THEIRS or name.startswith("ssl_")]
    kept = [pair for pair in pairs if pair not in passed]
    scheme = parts.scheme.replace("valkey", "redis")
    address = parts._replace(scheme=scheme, query=urlencode(passed), fragment="").geturl()
    return parts._replace(query=urlencode(kept)).geturl(), address


def without_secrets(url: str) -> str:
    """The address alone: no password, and no options, which may hold one."""
    parts = urlsplit(url)
    name = f"{quote(unquote(parts.username))}@" if parts.username else ""
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=name + host, query="", fragment="").geturl()


def explained(error: Exception, store: Server, seconds: float) -> str:
    """The reason of an error, and what to do about it."""
    text = " ".join(str(error).split())[:300] or type(error).__name__
    if isinstance(error, theirs.TimeoutError):
        return f"no answer within {shown(seconds, store.timeout)} ({text})"
    found = [hint for word, hint in _HINTS.items() if word in f"{type(error).__name__} {text}"]
    return f"{text.rstrip('.')}: {found[0].format(pool=store.pool)}" if found else text


SMALLER = "keep something smaller, or raise proto-max-bulk-len in the server's configuration"
_ONE_NODE = "this is one node of a cluster; name a proxy in front of it, or a single server"
_HINTS = {
    "No connection available": "all {pool} connections were in use; raise pool=",
    "ReadOnlyError": "this is a replica; name the primary, or wait for the failover to end",
    "OutOfMemoryError": "its memory is full; raise maxmemory, or purge what has expired",
    "protected mode": "it answers only its own machine; set a password or a bind address there",
    "Authentication required": "it wants a password; redis://user:password@host",
    "Authentication": "the user or password is wrong",
    "NoPermissionError": "the user may not do this; its ACL needs +@all on the prefix's keys",
    "MovedError": _ONE_NODE,
    "AskError": _ONE_NODE,
    "MOVED ": _ONE_NODE,  # of a client before 6, which has no class for it
    "ASK ": _ONE_NODE,
    "cluster is down": "its cluster is down, or does not cover all slots",
    "CrossSlot": "the prefix must not contain braces on a cluster",
    "BusyLoadingError": "it has just started and reads its files; try again",
    "max number of clients": "raise maxclients, or use fewer connections",
    "MISCONF": "it cannot write to its disk",
    "NOREPLICAS": "too few replicas are connected to take writes (min-replicas-to-write)",
    "refused": "nothing listens there; is the server running?",
    "Connect call failed": "nothing listens there; is the server running?",
}
