"""Every exception class that a library defines, found by importing all of its modules.

Some modules of libraries change the process that imports them (handlers of the log, signals), so
tests ask for it in a process of its own: `python -m tests.integrations.errors.walk httpx`.
"""

import functools
import importlib
import importlib.util
import json
import os
import pkgutil
import subprocess
import sys
import warnings
from pathlib import Path

from mainstay.integrations.errors import table

ROOT = Path(__file__).parents[3]
REAL_NAMES = {"cimpl": "confluent_kafka.cimpl"}
"""Packages under which a library's classes go, and the module that they are in."""
_OPTIONAL = (Exception, SystemExit)
"""Django and others raise errors of their own for a library that is not installed."""


def ancestors_of(folder, library):
    """The names of all exception classes, each with those of its ancestors; kept in a folder."""
    kept = folder / f"{library}.json"
    if not kept.exists():
        command = [sys.executable, "-m", "tests.integrations.errors.walk", library]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        new = folder / f"{library}.{os.getpid()}.new"  # another worker may read it meanwhile
        new.write_text(done.stdout.splitlines()[-1], encoding="utf-8")
        new.replace(kept)
    return json.loads(kept.read_text(encoding="utf-8"))["ancestors"]


@functools.cache
def exception_classes(*packages):
    """The exception classes of packages by qualified name, warnings left out.

    A module that cannot be imported here (an optional dependency of the library) is passed over.
    """
    found = {}
    for package in packages:
        for module in _modules(package):
            for value in list(vars(module).values()):
                if _is_error(value, packages):
                    found[f"{value.__module__}.{value.__qualname__}"] = value
    return found


def main(library):
    """Print what a walk finds with the versions that are installed, which may lack a package.

    On the last line. For tools/oldest.py too, in an environment without pytest.
    """
    known = table(library)
    missing = [name for name in known.packages if not _is_there(REAL_NAMES.get(name, name))]
    classes = exception_classes(*(name for name in known.packages if name not in missing))
    if not classes:
        raise SystemExit("the library has no exceptions")
    found = {
        "classes": len(classes),
        "missing": missing,
        "unjudged": unjudged(known, classes),
        "ancestors": {
            name: [f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__[1:]]
            for name, cls in classes.items()
        },
    }
    sys.stdout.write(f"\n{json.dumps(found)}\n")


def unjudged(known, classes):
    """The classes that a table has no entry for."""
    return sorted(name for name in classes if known.entry(name) is None)


def _is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def _modules(package):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root = importlib.import_module(REAL_NAMES.get(package, package))
        yield root
        for each in pkgutil.walk_packages(getattr(root, "__path__", ()), f"{package}.", _pass):
            if ".tests" in each.name or each.name.endswith("__main__"):
                continue
            try:
                yield importlib.import_module(each.name)
            except _OPTIONAL:
                continue


def _pass(_name):
    """A package that cannot be imported is passed over."""


def _is_error(value, packages):
    return (
        issubclass(type(value), type)  # and not isinstance: a lazy object would be evaluated
        and issubclass(value, BaseException)
        and not issubclass(value, Warning)
        and any(f"{value.__module__}.".startswith(f"{package}.") for package in packages)
    )


if __name__ == "__main__":
    main(sys.argv[1])
