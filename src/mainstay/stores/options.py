"""The options of a store's URL: `?timeout=5&pool=10`, each with a type and a default."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from mainstay.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def options_of(url: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a URL, with defaults for the others; refuses an unknown option.

    >>> options_of("sqlite:///a.db?timeout=2", {"timeout": 5.0})
    {'timeout': 2.0}
    """
    given = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        known = ", ".join(defaults)
        raise StoreError(f"{unknown[0]} is no option of this store", hint=f"known: {known}")
    return {name: _typed(name, given.get(name), default) for name, default in defaults.items()}


def without_secrets(reason: str) -> str:
    """An error text of a server or its client, without secrets.

    >>> without_secrets("cannot reach redis://:hunter2@db")
    'cannot reach redis://:[redacted]@db'
    """
    from mainstay.core.redact.redactor import REDACTOR

    return REDACTOR.text(reason)


def _typed(name: str, text: str | None, default: Any) -> Any:
    if text is None or isinstance(default, str):
        return default if text is None else text
    try:
        value = type(default)(text)
    except ValueError:
        value = -1
    if not 0 < value < 1_000_000:
        kind = "a whole number" if isinstance(default, int) else "a number"
        text = without_secrets(text)
        raise StoreError(f"{name} = {text!r}: must be {kind} above 0")
    return value
