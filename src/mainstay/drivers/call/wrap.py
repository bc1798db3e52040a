"""Wrapping: a function under a site's policy, with its signature, its name and its handle.

What is called is generated (templates.py); here it is dressed as the function, and gets `mainstay`
beside it: its policy, its statistics, itself under another policy.
"""

from __future__ import annotations

from types import FunctionType

from mainstay.core.base.attributes import attribute
from mainstay.core.base.functions import is_async
from mainstay.core.retry.policy import Policy
from mainstay.drivers.call.callables import (
    SYNC_HINT,
    check_decoratable,
    first_checked,
    name_of,
    refuse_async_functions,
)
from mainstay.drivers.call.templates import CALL, Signature, function_of, signature_of
from mainstay.errors import PolicyError, Problem, WrapError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from mainstay.core.base.types import UserValue
    from mainstay.core.retry.policy_fields import PolicyFields
    from mainstay.drivers.call.callables import Function
    from mainstay.drivers.call.result import RetryStatistics
    from mainstay.drivers.call.site import Site
    from mainstay.ports import Sink

    Layer = Callable[[UserValue], UserValue]
    Around = tuple[tuple[Layer, ...], Function, Site]

_BY_POSITION = "given by position: with_policy(policy)"
REDACT = "__mainstay_redact__"
"""Set on a function of an engine with a Redactor of its own, for the layers around it."""


def wrap(function: UserValue, site: Site) -> UserValue:
    """The function under a site's policy; methods of every sort are wrapped inside out."""
    if isinstance(function, classmethod | staticmethod):
        return type(function)(wrap(function.__func__, site))
    if isinstance(function, property):
        raise WrapError("a property is not called", hint="put the decorator below @property")
    check_decoratable(function)
    if not site.operation:
        site.become(name_of(function))
    signature, awaits = signature_of(function), is_async(function)
    wrapper = _make(function, site, awaits, signature)
    if not awaits:
        _check_first_result(wrapper, function)
    made = _dress(wrapper, function, signature)
    if type(site.policy) is not Policy:  # which a circuit has that decorates by itself
        made.mainstay = Decoration(function, site)
    else:
        note_layer(made, function, lambda other: wrap(other, site))
    if site.redact is not None:
        setattr(made, REDACT, site.redact)
    return made


def note_layer(made: Function, function: Function, layer: Layer) -> None:
    """Notes what a layer of ours has put around a decorated function: with_policy does it again."""
    handle = getattr(function, "mainstay", None)
    if isinstance(handle, Decoration) and handle.is_of(function):
        made.mainstay = handle.inside(layer, function)  # type: ignore[attr-defined]


def _check_first_result(wrapper: FunctionType, function: Function) -> None:
    """Looks at the first result, without a cost for the others: what is called is in a cell."""
    cells = wrapper.__closure__ or ()
    cell = cells[wrapper.__code__.co_freevars.index("ms_function")]

    def settle(own: Function) -> None:
        cell.cell_contents = own

    cell.cell_contents = first_checked(function, settle)


class Decoration:
    """What is known of a decorated function: `fetch.mainstay`.

    >>> from mainstay import RetryPolicy
    >>> @RetryPolicy(name="api", max_attempts=4)
    ... def fetch():
    ...     return "page"
    >>> fetch.mainstay.policy.name
    'api'
    >>> once = fetch.mainstay.with_policy(max_attempts=1)
    >>> once(), once.mainstay.policy.max_attempts
    ('page', 1)
    """

    __slots__ = ("_function", "_outer", "_site")

    def __init__(self, function: Function, site: Site, outer: Around | None = None) -> None:
        self._function = function
        self._site = site
        self._outer = outer
        """The layers around it, which the function under another policy has, too; what the last
        of them was put around; and the site of the calls, which a fallback changes."""

    @property
    def policy(self) -> Policy:
        """The policy of the function."""
        return self._site.policy

    @property
    def statistics(self) -> RetryStatistics:
        """What its failing calls came to, counted from the first look on."""
        from mainstay.drivers.call.result import RetryStatistics  # few look

        site = self._site if self._outer is None else self._outer[2]
        for listener in site.listeners:
            if isinstance(listener, RetryStatistics):
                return listener
        counted = RetryStatistics()
        site.listen(counted)
        return counted

    def with_policy(
        self, policy: Policy | None = None, /, **fields: Unpack[PolicyFields]
    ) -> UserValue:
        """The same function under another policy, or this one with some fields changed.

        It has the listeners, guards and fallback of this one, and statistics of its own. What
        decorators of others have put around this one it does not have.
        """
        if "policy" in fields:
            problem = Problem("policy", dict(fields)["policy"], _BY_POSITION)
            raise PolicyError("with_policy", [problem])
        if policy is not None and not isinstance(policy, Policy):
            problem = Problem("policy", policy, "a RetryPolicy; its fields need their keywords")
            raise PolicyError("with_policy", [problem])
        chosen = (self._site.policy if policy is None else policy).replace(**fields)
        if self._site.idempotency == "unsafe" and chosen.max_attempts > 1:
            allowed = '1 for an unsafe operation; declare it "idempotent" or "keyed" to retry it'
            raise PolicyError(
                "with_policy", [Problem("max_attempts", chosen.max_attempts, allowed)]
            )
        made = wrap(self._function, self._site.under(chosen, self._given()))
        for layer in self._outer[0] if self._outer is not None else ():
            made = layer(made)
        return made

    def _given(self) -> tuple[Sink, ...]:
        """The listeners without the statistics."""
        from mainstay.drivers.call.result import RetryStatistics

        listeners = self._site.listeners
        return tuple(each for each in listeners if not isinstance(each, RetryStatistics))

    def inside(self, layer: Layer, function: Function) -> Decoration:
        """The same with another layer, which was put around that function."""
        before = () if self._outer is None else self._outer[0]
        own: Decoration = getattr(function, "mainstay", self)
        site = own._site if own._outer is None else own._outer[2]
        return Decoration(self._function, self._site, ((*before, layer), function, site))

    def is_of(self, function: Function) -> bool:
        """Whether that function is meant, and not another that has copied the attribute.

        `functools.wraps` copies it: what such a wrapper adds is unknown here.
        """
        below = self._function if self._outer is None else self._outer[1]
        return getattr(function, "__wrapped__", None) is below

    def __repr__(self) -> str:
        return f"<{self._site.operation} under {self._site.policy.name!r}>"


def caller(site: Site, *, awaits: bool, reports: bool) -> Function:
    """A function of (function, args, kwargs) that makes one call of anything under the site.

    If it reports, it answers with a RetryResult.
    """
    return _make(None, site, awaits, CALL, reports=reports)  # type: ignore[no-any-return]


def _make(
    function: Function | None,
    site: Site,
    awaits: bool,
    signature: Signature,
    *,
    reports: bool = False,
) -> UserValue:
    if not awaits:
        refuse_async_functions(site.policy, SYNC_HINT)
    gate = site.gate
    held = {
        "ms_function": function,
        "ms_site": site,
        "ms_now": gate.cell if gate else None,
        "ms_count": gate.tally.count if gate and gate.counts_calls else None,
        "ms_slow": gate.slow_after if gate else None,
        "ms_limit": site.policy.first_limit,
    }
    path = path_of(site, awaits, reports)
    if awaits and function is None and not reports:
        path = (*path, "explained")  # the verb has no frame in which it could be
    return function_of(path, signature, held)


def path_of(site: Site, awaits: bool, reports: bool = False) -> tuple[str, ...]:
    """Which template serves, and which lines of it: only what is configured is paid for."""
    policy, gate = site.policy, site.gate
    if site.is_plain and not (site.is_clocked or site.reports_successes or reports):
        return _ASYNC_FIRST if awaits else _FIRST  # as most are
    limited = policy.first_limit is not None
    by_thread = policy.timeout_by == "thread" and limited and not awaits
    colour = "async_" if awaits else ""
    judged = policy.retry_if_result is not None or (gate is not None and gate.judges_results)
    emitted, refuses = site.reports_successes, policy.nested == "refuse"
    if judged or by_thread or refuses or (emitted and not _emits_at_once(site)):
        return (f"{colour}whole", *(("reported",) if reports else ()))
    slow = gate is not None and gate.slow_after is not None
    asked = {
        "clocked": limited or slow or site.is_clocked or reports or emitted,
        "counted": gate is not None and gate.counts_calls,
        "gated": gate is not None,
        "kept": (limited and awaits) or gate is not None or reports or emitted,
        "limited": limited,
        "reported": reports,
        "slow": slow,
        "emitted": emitted,
    }
    return (f"{colour}first", *(name for name, wanted in asked.items() if wanted))


_FIRST, _ASYNC_FIRST = ("first",), ("async_first",)


def _emits_at_once(site: Site) -> bool:
    """Whether the success of a first attempt is an event that needs no flow."""
    return bool(site.operation) and site.is_plain and not site.pressures and not site.follows


def _dress(wrapper: UserValue, function: UserValue, signature: Signature) -> UserValue:
    """Makes the wrapper look like the function, as functools.update_wrapper does."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__", "__type_params__"):
        value = getattr(function, name, None)
        if value is not None:
            setattr(wrapper, name, value)
    if signature.is_own:
        wrapper.__defaults__ = function.__defaults__
        wrapper.__kwdefaults__ = function.__kwdefaults__
    annotate = getattr(function, "__annotate__", None)
    if annotate is not None:  # since Python 3.14: evaluated by who reads the annotations, not here
        wrapper.__annotate__ = annotate
    elif annotations := attribute(function, "__annotations__"):
        wrapper.__annotations__ = annotations
    wrapper.__dict__.update(getattr(function, "__dict__", ()))
    wrapper.__wrapped__ = function
    return wrapper
