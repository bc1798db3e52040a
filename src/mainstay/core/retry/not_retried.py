"""The note on a failure that is final at once: which rule of the policy decided that.

The classification has the text, so a type that is settled has it ready.
"""

from __future__ import annotations

from mainstay.core.base.attributes import add_note, attribute
from mainstay.core.known.kind import Kind, qualified_name, transient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_OURS = "mainstay: "
_FINAL = "mainstay: not retried: "
_MOST = 8
"""Rules that a note lists."""
_KINDS = ", ".join(kind.value for kind in transient)


def note_for(exception: BaseException, why: str) -> str:
    """The note, from the reason that is given; empty if there is none.

    >>> note_for(KeyError(), "is not named by on=OSError")
    'mainstay: not retried: KeyError is not named by on=OSError'
    """
    return f"{_FINAL}{_named(type(exception))} {why}" if why else ""


def after_retries(note: str) -> str:
    """What the note has, for the note of a call that gave up after more than one attempt.

    >>> after_retries("mainstay: not retried: KeyError is not named by on=OSError")
    'KeyError is not named by on=OSError'
    """
    return note.removeprefix(_FINAL)


def not_named(rules: Iterable[object], kind: Kind, reason: str) -> str:
    """Why a failure is final that no rule of `on` matches; its kind, if a rule could be that."""
    rules = tuple(rules)
    if any(isinstance(rule, Kind) for rule in rules):
        return f"is {kind.value} ({reason}), which on={_listed(rules)} does not name"
    return f"is not named by on={_listed(rules)}"


def not_covered(rules: Iterable[object]) -> str:
    """Why an authentication failure is final that a rule of `on` covers without naming it."""
    return f"is an authentication failure, and on={_listed(rules)} does not name it"


def excluded(rule: object) -> str:
    """Why a failure is final that a rule of `never_retry_on` matches."""
    return f"matches never_retry_on={_shown(rule)}"


def by_kind(kind: Kind, reason: str) -> str:
    """Why a failure is final under a policy without `on`."""
    return f"is {kind.value} ({reason}); a policy without on= retries what is {_KINDS}"


def of_code(reason: str, rules: Iterable[object]) -> str:
    """Why a failure is final whose class a rule of `on` names, but not its status or code."""
    return f"is permanent ({reason}), and on={_listed(rules)} does not name that"


def may_be_applied(request: str, *, by_code: bool = False) -> str:
    """Why an ambiguous failure of a request is final, though it is of a kind that is retried."""
    named = "its status or error code" if by_code else "this very class"
    is_header = "-" in request.rpartition(" ")[2]
    advice = "send that header, or" if is_header else "give the call one, and"
    return f"is ambiguous: the {request} may have been carried out; {advice} name {named} in on="


def cannot_be_sent(request: str) -> str:
    """Why a failure is final though it is of a kind that is retried: the body is spent."""
    return f"is of a {request}; give the client the bytes, or a file that can be sought"


OUT_OF_MEMORY = "is never retried: the process is out of memory"


def in_group(note: str) -> str:
    """Why a group is final, by the note for one of its members."""
    return f"has a member that is {note.removeprefix(_OURS)}" if note else ""


def leave(note: str, exception: BaseException) -> None:
    """Puts the note on the exception; a note of ours that is there stays, since it came first."""
    notes = attribute(exception, "__notes__") if exception.__dict__ else None
    if isinstance(notes, list) and any(str(each).startswith(_OURS) for each in notes):
        return
    add_note(exception, note)


def _listed(rules: Iterable[object]) -> str:
    rules = tuple(rules)
    if rules == transient:
        return "mainstay.transient"
    names = [_shown(rule) for rule in rules]
    if len(names) == 1:
        return names[0]
    more = [f"and {len(names) - _MOST} more"] if len(names) > _MOST else []
    return f"({', '.join(names[:_MOST] + more)})"


def _shown(rule: object) -> str:
    if isinstance(rule, Kind):
        return f"Kind.{rule.name}"
    if isinstance(rule, type):
        return _named(rule)
    return repr(rule) if isinstance(rule, str) else getattr(rule, "__qualname__", "a function")


def _named(cls: type) -> str:
    return cls.__name__ if cls.__module__ == "builtins" else qualified_name(cls)
