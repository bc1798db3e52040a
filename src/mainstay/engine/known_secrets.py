"""Secrets that a configuration has: they are hidden wherever else they stand, in any notation.

A value is one if its key or the variable that it comes from has a secret name; and so is what the
rules of redaction find in it, such as the password of a URL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.config.tree import Template
from mainstay.core.redact.exact.process import PROCESS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mainstay.config.load import Loaded
    from mainstay.config.tree import Node

_DECLARED = ("redaction", "secrets")
"""Where secrets are declared: those count whatever they look like."""


def know_configured(loaded: Loaded) -> None:
    """Takes the secrets of a configuration with what its variables hold."""
    texts = tuple(dict.fromkeys(_texts(loaded.tree, loaded.report.env, ())))
    PROCESS.take(("configuration", texts), lambda: _secrets(texts))


def _texts(node: Node, env: Mapping[str, str], path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The texts that may be secret or have one, each with the name that decides."""
    value = node.value
    if type(value) is dict:
        for key, child in value.items():
            yield from _texts(child, env, (*path, str(key)))
    elif type(value) is list:
        for child in value:
            yield from _texts(child, env, path)
    elif type(value) is Template:
        if all(name in env for name in value.names):
            yield from ((name, env[name]) for name in value.names)
            yield _name(path), value.filled(env)
    elif isinstance(node.text or value, str):
        yield _name(path), str(node.text or value)


def _name(path: tuple[str, ...]) -> str:
    return "" if path == _DECLARED else "".join(path[-1:])


def _secrets(texts: tuple[tuple[str, str], ...]) -> Iterator[str]:
    from mainstay.core.redact.exact.rarity import is_rare
    from mainstay.core.redact.redactor import is_secret_name, secrets_in

    for name, text in texts:
        if not name or (is_secret_name(name) and is_rare(text)):
            yield text
        yield from secrets_in(text)
