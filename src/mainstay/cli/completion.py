"""What a shell completes: names that the configuration has.

A shell has no place for errors: if there is no configuration, or it is broken or not trusted, there
is nothing to complete but what is built in, and nothing is printed.
"""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

from mainstay.cli.options import chosen_configuration

_WORD = re.compile(r"[\w./:@%+=,-]+")

if TYPE_CHECKING:
    import click

    from mainstay.config.settings import Settings


def policy_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The policies; also those of a file that has problems elsewhere."""
    found = _settings(ctx)
    names = [policy.name for policy in found.policies] if found is not None else []
    return _beginning(incomplete, [*names, "standard"])


def operation_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The operations that are mapped to policies; patterns are no names."""
    found = _settings(ctx)
    names = list(found.operations) if found is not None else []
    return _beginning(incomplete, [name for name in names if not set(name) & set("*?[")])


def _beginning(incomplete: str, names: list[str]) -> list[str]:
    """The names that begin so; a shell takes each as a word, so others are left out."""
    return [n for n in dict.fromkeys(names) if n.startswith(incomplete) and _WORD.fullmatch(n)]


def _settings(ctx: click.Context) -> Settings | None:
    from mainstay.config.load import load

    file, sets = chosen_configuration(ctx)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return load(file, overrides=sets).settings
        except Exception:  # a shell has no place for it
            return None
