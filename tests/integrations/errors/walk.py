"""Every exception class that a library defines, found by importing all of its modules."""

import functools
import importlib
import inspect
import pkgutil
import warnings

REAL_NAMES = {"cimpl": "confluent_kafka.cimpl"}
"""Packages under which a library's classes go, and the module that they are in."""
_OPTIONAL = (
    ImportError, AttributeError, KeyError, RuntimeError, SystemExit, OSError, TypeError, ValueError,
)  # fmt: skip


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
        inspect.isclass(value)
        and issubclass(value, BaseException)
        and not issubclass(value, Warning)
        and any(f"{value.__module__}.".startswith(f"{package}.") for package in packages)
    )
