"""Which store a command works on, and who it is that acts; for `inbox` and `operators`.

A secret is never an argument, since every user of the machine sees arguments. It comes from a
file, from the environment, from a hidden prompt on a terminal, or from standard input.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainstay.cli.errors import CommandError
from mainstay.cli.options import config_options, configured
from mainstay.cli.screen.output import write_error
from mainstay.cli.screen.text_file import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstay import Engine, OperatorKey
    from mainstay.drivers.inbox.credentials import Secret

F = TypeVar("F", bound="Callable[..., Any]")
VARIABLE, NEW_VARIABLE = "MAINSTAY_OPERATOR_SECRET", "MAINSTAY_NEW_SECRET"
_STORE = "mainstay.cli.store"
_PLACE = "mainstay.cli.default_place"
_LONGEST = 10_000
"""Characters of a secret that are read."""


def store_option(function: F) -> F:
    """Adds `--store`, `--config` and `--set`, for opened(); on a group for what is inside."""
    add = click.option(
        "--store", metavar="URL", callback=_remember, expose_value=False,
        help="The store, such as sqlite:///app.db; by default the configuration's or `exec`'s.",
    )  # fmt: skip
    return add(config_options(function))


def _remember(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value:
        ctx.meta[_STORE] = value
    return value


def who_options(function: F) -> F:
    """Adds the options that identify an operator: --as, --key-file, --secret-file."""
    for add in (
        click.option(
            "--secret-file", metavar="FILE",
            help="Where your secret is; - for standard input. Without it, the environment's"
            f" {VARIABLE}, or a hidden prompt.",
        ),
        click.option("--key-file", metavar="PEM", help="Your Ed25519 key, instead of a secret."),
        click.option("--as", "who", metavar="NAME", help="The operator who acts: you."),
    ):  # fmt: skip
        function = add(function)
    return function


@contextmanager
def opened(
    *,
    makes: bool = False,
    looks: bool = False,
    outbox: str | None = None,
    is_configured: bool = False,
) -> Iterator[Engine]:
    """The engine on the store; one that is not there yet is made only if that is wanted.

    If none is named, it is the user's own, where `mainstay exec` keeps things; until that exists,
    an empty one. Who only looks audits nothing. With `is_configured` it has the policies, guards
    and sinks of the configuration.
    """
    from urllib.parse import unquote

    from mainstay import Engine

    meta = click.get_current_context().meta
    named = meta.get(_STORE) or _configured_store()
    url = named or _own_store() or _store_to_be(makes=makes)
    path = unquote(url.removeprefix("sqlite:///").partition("?")[0])
    is_file = url.startswith("sqlite:///")
    if is_file and not makes and not os.path.exists(path):  # noqa: PTH110  pathlib loads slowly
        raise CommandError(f"{path}: no such file", hint="check --store")
    meta[_PLACE] = "" if named else _place_of_exec(exists=is_file)
    options: dict[str, Any] = {"sinks": [], "share": None, "audit": False if looks else None}
    if is_configured:
        options = _configured_options()
    with Engine(**{**options, "store": url, "outbox": outbox}) as engine:
        yield engine


def _configured_options() -> dict[str, Any]:
    from mainstay.cli.options import configuration
    from mainstay.engine.parts import Parts

    configured()  # raises ConfigError with all problems
    return dict(Parts(configuration()).made())


def is_store_named() -> bool:
    """Whether `--store` names the store."""
    return bool(click.get_current_context().meta.get(_STORE))


def default_place() -> str:
    """Where the opened store is, if it is the one of `mainstay exec`; nothing if one was named."""
    return str(click.get_current_context().meta.get(_PLACE, ""))


def write_default_place() -> None:
    """A line for a person, on stderr: which store was looked at, if none was named."""
    place = default_place()
    if place:
        write_error(f"mainstay: the store is {place}; --store names another")


def _place_of_exec(*, exists: bool) -> str:
    from mainstay.engine.user_store import NAME
    from mainstay.runtime.private_files import state_folder

    return f"{state_folder() / NAME}" + ("" if exists else ", which does not exist yet")


def _store_to_be(*, makes: bool) -> str:
    """The user's own store, which is made only if that is wanted; otherwise an empty one."""
    from mainstay.engine.user_store import default_store

    try:
        return default_store() if makes else "memory://"
    except RuntimeError as error:
        raise CommandError(
            f"no store is named: {error}", hint="--store sqlite:///app.db"
        ) from error


def _configured_store() -> str:
    return str(configured().store.get("url", ""))


def _own_store() -> str:
    """The user's own, where `mainstay exec` has made it."""
    from mainstay.engine.user_store import NAME, default_store
    from mainstay.runtime.private_files import state_folder

    return default_store() if (state_folder() / NAME).exists() else ""


def proof_of(
    who: str | None, key_file: str | None, secret_file: str | None
) -> Secret | OperatorKey:
    """What proves that it is them."""
    if not who:
        raise CommandError("no operator is named", hint="--as NAME, of an operator")
    if key_file:
        from mainstay import OperatorKey

        _warn_of(key_file)
        return OperatorKey(key_file)
    return secret_of(secret_file, VARIABLE, f"secret of {who}")


def warn_if_short(proof: object) -> None:
    """Warns of a secret that was right, and is shorter than a new one may be."""
    from mainstay.core.inbox.operators import SHORTEST
    from mainstay.drivers.inbox.credentials import Secret

    if isinstance(proof, Secret) and len(proof.reveal()) < SHORTEST:
        write_error(
            f"mainstay: your secret has fewer than {SHORTEST} characters;"
            " mainstay operators passwd NAME changes it"
        )


def secret_of(file: str | None, variable: str, asked: str, *, is_new: bool = False) -> Secret:
    """A secret from a file, the environment, a hidden prompt or a line of standard input."""
    from mainstay.drivers.inbox.credentials import Secret

    if file and file != "-":
        _warn_of(file)
        text = text_of(file, _LONGEST)
    elif not file and os.environ.get(variable):
        text = os.environ[variable]
    elif not file and sys.stdin is not None and sys.stdin.isatty():
        text = click.prompt(asked, hide_input=True, confirmation_prompt=is_new, err=True)
    else:
        text = "" if sys.stdin is None else sys.stdin.readline(_LONGEST)
    text = text.rstrip("\r\n")
    if not text:
        hint = f"--secret-file FILE, or {variable} in the environment"
        raise CommandError(f"no {asked} was given", hint=hint)
    return Secret(text)


def _warn_of(file: str) -> None:
    """Warns if other users may read the file of a secret."""
    if os.name == "posix" and os.stat(file).st_mode & 0o077:  # noqa: PTH116  as above
        write_error(f"mainstay: {file}: others may read it; chmod 600 {file}")
