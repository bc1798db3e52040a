"""`--app module:attribute`: what an application has, such as its sagas or its pipelines."""

from __future__ import annotations

import os
import sys
from typing import Any

from mainstay.cli.errors import CommandError
from mainstay.errors import MainstayError


def loaded(app: str, hint: str, kinds: tuple[type, ...]) -> Any:
    """What the attribute is; a function is called, unless it is of one of these kinds.

    Modules beside the caller are found, too.
    """
    from importlib import import_module

    module, _, attribute = app.partition(":")
    if not module or not attribute:
        raise CommandError(f"--app {app!r} names no attribute of a module", hint=hint)
    here = os.getcwd()  # noqa: PTH109  pathlib loads slowly
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
        is_made = isinstance(found, kinds)
        return found() if not is_made and callable(found) else found
    except (ImportError, AttributeError) as error:
        raise CommandError(f"--app {app!r}: {error}", hint=hint) from error
    except MainstayError:
        raise
    except Exception as error:  # of the application, not of the command
        from mainstay.core.base.printable import text_of

        reason = f"{type(error).__name__}: {text_of(error)}"
        raise CommandError(f"--app {app!r} raised {reason}", hint=hint) from error
