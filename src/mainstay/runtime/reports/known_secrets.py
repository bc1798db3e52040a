"""What this process is given, so that redaction hides the secrets in it wherever else they stand.

The environment is read once, when the first text is to be shown.
"""

from __future__ import annotations

import os

from mainstay.core.redact.exact.process import PROCESS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def know_environment() -> None:
    """Takes the secrets in the environment of this process."""
    PROCESS.take("environment", _in_environment)


def know_url(url: str) -> None:
    """Takes the passwords and tokens in a URL."""

    def values() -> list[str]:
        from mainstay.core.redact.redactor import secrets_in  # loaded by then

        return secrets_in(url)

    if "://" in url:
        PROCESS.take(("url", url), values)


def know_secret(value: str) -> None:
    """Takes what was given as a secret, unless it is written like a word or a path."""

    def values() -> list[str]:
        from mainstay.core.redact.exact.rarity import is_rare

        return [value] if is_rare(value) else []

    PROCESS.take(("secret", value), values)


def _in_environment() -> Iterator[str]:
    """The values of variables with a secret name, and what is secret in URLs."""
    from mainstay.core.redact.exact.rarity import is_rare
    from mainstay.core.redact.redactor import is_secret_name, secrets_in

    for name, value in os.environ.items():
        if is_secret_name(name) and is_rare(value):
            yield value
        if "://" in value:
            yield from secrets_in(value)
