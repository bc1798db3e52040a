"""`--app module:attribute`: the application that has the definitions of sagas."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainstay.cli.application import loaded
from mainstay.cli.errors import CommandError
from mainstay.cli.inbox.identity import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstay import Engine, Saga

F = TypeVar("F", bound="Callable[..., Any]")
_HINT = "--app module:attribute, of an Engine, a Saga or a list of Sagas"


def app_option(function: F) -> F:
    """Adds `--app`."""
    add = click.option(
        "--app", required=True, metavar="MODULE:ATTRIBUTE",
        help="An Engine whose sagas are registered, a Saga, a list of Sagas, or a function that"
        " returns one of these.",
    )  # fmt: skip
    return add(function)


@contextmanager
def working_engine(app: str) -> Iterator[Engine]:
    """The engine of the application; or the one of --store, with the application's sagas."""
    from mainstay import Engine, Saga

    found = loaded(app, _HINT, (Engine, Saga, list, tuple))
    if isinstance(found, Engine):
        with found:
            yield found
        return
    with opened() as engine:
        engine.sagas.register(*_sagas(app, found))
        yield engine


def _sagas(app: str, found: Any) -> list[Saga]:
    from mainstay import Saga

    sagas = [found] if isinstance(found, Saga) else found
    if not isinstance(sagas, list | tuple) or not all(isinstance(each, Saga) for each in sagas):
        kind = type(found).__name__
        raise CommandError(f"--app {app!r} is a {kind}, and has no sagas", hint=_HINT)
    return list(sagas)
