"""Whose a request with a key is, and which request it is: its caller and its fingerprint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mainstay.core.base.functions import is_async
from mainstay.core.codec.canonical import fingerprint
from mainstay.errors import UsageError
from mainstay.integrations.asgi_messages import Problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstay.integrations.asgi_messages import Scope

_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_RESERVED = re.compile(rb"%(?:2[146-9A-CF]|3[ABD]|40)", re.IGNORECASE)
"""Escapes of what separates the parts of a path, or of a part (RFC 3986, 2.2)."""
_USUAL_PORTS = {"http": ":80", "https": ":443"}


def checked_caller(caller: Any) -> Callable[[Scope], str | None]:
    """The function that names the caller, if it can."""
    if is_async(caller):
        raise UsageError(
            "caller= is async, and nothing awaits it",
            hint="let a middleware further out put the caller into the scope",
        )
    if callable(caller):
        return caller  # type: ignore[no-any-return]
    raise UsageError(
        "caller= is missing: keys are each caller's own, so that no caller gets a response that was"
        " meant for another",
        hint='give a function of the scope: caller=lambda scope: scope["user"].display_name',
    )


def known_caller(caller: Any, header: str) -> Any:
    """The caller, if there is one: what is false or empty names nobody, and True everybody.

    >>> known_caller("ann", "Idempotency-Key")
    'ann'
    """
    if caller is True:
        raise UsageError(
            "caller= returned True: keys of all callers would be one caller's",
            hint='return who it is: caller=lambda scope: scope["user"].display_name',
        )
    if not caller or (isinstance(caller, str | bytes) and not caller.strip()):
        raise Problem(
            401,
            "caller_unknown",
            "The caller is not known",
            f"Requests with an {header} need an authenticated caller.",
        )
    return caller


def identity_of(scope: Scope, digest: str) -> list[Any]:
    """What makes a request the same one: its fingerprint is of this.

    >>> scope = {"method": "POST", "path": "/orders", "headers": [(b"host", b"Shop:80")]}
    >>> identity_of(scope, "e3b0")
    ['POST', '/orders', '', [], 'e3b0', ['shop'], '']
    """
    query = scope.get("query_string", b"").decode("latin-1")
    usual = _USUAL_PORTS.get(scope.get("scheme", "http"), "")
    kinds: list[str] = []
    hosts: list[str] = []
    for name, value in scope["headers"]:
        lower = name.lower()
        if lower == b"content-type":
            kinds.append(value.decode("latin-1"))
        elif lower == b"host":  # as RFC 9110 (4.2.3) compares hosts
            hosts.append(value.decode("latin-1").lower().removesuffix(usual))
    root = scope.get("root_path", "")
    return [scope["method"], scope["path"], query, kinds, digest, hosts, root, *_lost_in(scope)]


def paths_of(scope: Scope) -> set[str]:
    """The path of a request, with the root that the application is mounted at and without it.

    >>> sorted(paths_of({"path": "/eu/orders", "root_path": "/eu"}))
    ['/eu/orders', '/orders']
    """
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    return {path, path.removeprefix(root)} if path.startswith(f"{root}/") else {path}


def _lost_in(scope: Scope) -> list[str]:
    """The path as it was sent, if its escapes meant something: `/a%2Fb` is not `/a/b`."""
    raw = scope.get("raw_path") or b""
    if b"%" not in raw or (_RESERVED.search(raw) is None and "\ufffd" not in scope["path"]):
        return []
    path = raw.partition(b"?")[0].decode("latin-1")
    return [_ESCAPE.sub(lambda found: found[0].upper(), path)]


def earlier_fingerprint(identity: list[Any]) -> str:
    """The fingerprint that an earlier version made of the same request: without host and root.

    >>> earlier_fingerprint(["POST", "/a", "", [], "e3b0", ["shop"], ""]) == fingerprint(
    ...     ["POST", "/a", "", [], "e3b0"]
    ... )
    True
    """
    return fingerprint(identity[:5])
