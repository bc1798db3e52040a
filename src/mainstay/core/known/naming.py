"""How a rule names a failure: by its class, an ancestor, an error code or an HTTP status."""

from __future__ import annotations

from mainstay.core.known.codes import codes_of
from mainstay.core.known.http import status_of
from mainstay.core.known.kind import Kind, qualified_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeGuard

STATUS = "status:"
"""How a rule names an HTTP status: "status:404"."""


def show_rule(rule: object) -> str:
    """A rule as people write it.

    >>> show_rule(ConnectionError), show_rule("SlowDown"), show_rule(Kind.AUTH)
    ('ConnectionError', "'SlowDown'", 'auth')
    """
    if isinstance(rule, Kind):
        return rule.value
    if isinstance(rule, str):
        return repr(rule)
    return getattr(rule, "__qualname__", None) or repr(rule)


def is_name(rule: object) -> TypeGuard[str]:
    """Whether a rule is a name, and not a kind, which is a text as well."""
    return isinstance(rule, str) and not isinstance(rule, Kind)


def names_class(rule: str, cls: type) -> bool:
    """Whether a name is that of this very class."""
    return rule in (cls.__name__, cls.__qualname__, qualified_name(cls))


def names_ancestor(rule: str, cls: type) -> bool:
    """Whether a name is that of the class or of one it derives from."""
    return any(names_class(rule, base) for base in cls.__mro__)


def names_code(rule: str, exception: BaseException) -> bool:
    """Whether a name is that of what a failure carries: its status, or an error code."""
    if rule.startswith(STATUS):
        return rule[len(STATUS) :] == str(status_of(exception))
    return rule in codes_of(exception)


def is_of_class(rule: object, exception: BaseException) -> bool:
    """Whether a rule matches by the class, and not by what the failure carries.

    A class with the name of the error code names the code: botocore makes one for each.
    """
    if not isinstance(rule, type) and not is_name(rule):
        return False
    name = rule.__name__ if isinstance(rule, type) else rule
    if name.rpartition(".")[2] in codes_of(exception):
        return False
    return isinstance(rule, type) or names_ancestor(rule, type(exception))


def names_itself(rule: object, exception: BaseException, *, by_code: bool) -> bool:
    """Whether a rule that matches names this very class, code or kind, and not just a base.

    A class is not named if a status or a code decided (`by_code`): other instances of it differ.
    """
    cls = type(exception)
    if by_code and is_of_class(rule, exception):
        return False
    if isinstance(rule, Kind) or rule is cls:
        return True
    if isinstance(rule, str):
        return names_class(rule, cls) or not names_ancestor(rule, cls)
    # A class that was loaded anew, or stands in for a recorded one.
    return isinstance(rule, type) and qualified_name(rule) == qualified_name(cls)
