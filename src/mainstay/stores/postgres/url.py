"""The URL of a PostgreSQL store: its parts, and its form without the password."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import psycopg

from mainstay.errors import StoreError
from mainstay.stores.options import options_of

if TYPE_CHECKING:
    from typing import Any

_OURS = {"timeout": 5.0, "pool": 10}
_SECRET = ("password", "sslpassword")


class PostgresUrl:
    """A store's URL.

    Attributes:
        shown: the URL without its password.
        timeout: seconds for each operation.
        pool: the most connections.
        params: what libpq is given.
    """

    def __init__(self, url: str) -> None:
        base, _, query = url.partition("?")
        given = [(part.partition("=")[0], part) for part in query.split("&") if part]
        shown, secret = _without_password(base)
        self.shown = _joined(shown, [part for name, part in given if name not in _SECRET])
        secrets = [secret, *(part.partition("=")[2] for name, part in given if name in _SECRET)]
        self._secrets = [text for raw in secrets if raw for text in (raw, unquote(raw))]
        options = options_of(_joined("", [part for name, part in given if name in _OURS]), _OURS)
        self.timeout: float = options["timeout"]
        self.pool: int = options["pool"]
        self.params = self._parsed(
            _joined(base, [part for name, part in given if name not in _OURS])
        )

    def hide(self, text: str) -> str:
        """A text without the password."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _parsed(self, url: str) -> dict[str, Any]:
        try:
            found = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error as error:
            reason = self.hide(" ".join(str(error).split()))
            raise StoreError(
                f"{self.shown} is no URL that PostgreSQL takes: {reason}",
                hint="postgresql://user:password@host:5432/database?timeout=5&pool=10",
            ) from None
        return {"fallback_application_name": "mainstay", **found, "client_encoding": "UTF8"}


def _joined(base: str, parts: list[str]) -> str:
    return f"{base}?{'&'.join(parts)}" if parts else base


def _without_password(base: str) -> tuple[str, str]:
    """The URL without its password, and the password."""
    scheme, mark, rest = base.partition("://")
    login, at, host = rest.rpartition("@")
    user, _, password = login.partition(":")
    return f"{scheme}{mark}{user}{at}{host}", password
