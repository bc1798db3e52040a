"""What distinguishes the calls of one function: worked out once, and used by every call.

A decorated function is called again and again, so its parameters are compiled into a binder: a
lambda with those parameters, which Python itself binds, and which returns the arguments by name.
What it cannot bind goes to `core/codec/arguments.py`, which binds more, or raises with the reason.
"""

from __future__ import annotations

from inspect import Parameter, Signature
from keyword import iskeyword
from types import FunctionType
from typing import TYPE_CHECKING

import msgspec

from mainstay.core.base.functions import is_async
from mainstay.core.base.validate import Checker
from mainstay.core.base.value import Value
from mainstay.core.codec.arguments import bound_arguments, key_text, shape_of
from mainstay.core.codec.canonical import canonical, fingerprint, named_fingerprint
from mainstay.drivers.idempotency.limits import check_max_result
from mainstay.runtime.context import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias, TypedDict

    from mainstay.core.base.types import Seconds, UserValue
    from mainstay.core.idempotency.call import Keyed
    from mainstay.drivers.call.callables import Args, Function, Kwargs
    from mainstay.drivers.call.site import Site

    Named: TypeAlias = tuple[str, str, str]
    """The key of a call, the fingerprint of its arguments, and where its record is."""

    class KeyFields(TypedDict, total=False):
        """The options of a keyed call as keywords, besides the key."""

        scope: str | None
        lease: Seconds
        ttl: Seconds | None
        on_conflict: str
        on_crash: str | None
        wait: Seconds
        metadata: Mapping[str, UserValue] | None
        store_wait: Seconds | None
        max_result: int | None
        on_lease_lost: str


class KeyOptions(Value):
    """How keyed calls of one operation are recorded.

    Args:
        key: the key itself, or a function of the call's arguments; None for the arguments.
        scope: whose keys these are; by default the tenant of the context.
        lease: seconds after which a process that does not renew its claim counts as gone.
        ttl: seconds for which an outcome is replayed; None for ever.
        on_conflict: "wait" for another call with the same key, or "raise" Conflict.
        on_crash: "retry" what a process left unfinished, or "unknown": a person must look. By
            default "retry" if the operation is declared idempotent, otherwise "unknown".
        wait: seconds to wait at most.
        metadata: what is kept beside the outcome, for readers of the record.
        store_wait: seconds to wait for an unavailable store; None for the engine's own.
        max_result: bytes of a result that are kept at most; None for the engine's own.
        on_lease_lost: "continue" if the lease runs out while the function runs, or "cancel" it.

    >>> KeyOptions(key="order-7", lease=5.0).on_conflict
    'wait'
    """

    __slots__ = (
        "key", "lease", "max_result", "metadata", "on_conflict", "on_crash", "on_lease_lost",
        "scope", "store_wait", "ttl", "wait",
    )  # fmt: skip
    key: UserValue
    scope: str | None
    lease: float
    ttl: float | None
    on_conflict: str
    on_crash: str | None
    wait: float
    metadata: str
    store_wait: float | None
    max_result: int | None
    on_lease_lost: str

    def __init__(
        self,
        *,
        key: UserValue = None,
        scope: str | None = None,
        lease: Seconds = 30.0,
        ttl: Seconds | None = 86_400.0,
        on_conflict: str = "wait",
        on_crash: str | None = None,
        wait: Seconds = 30.0,
        metadata: Mapping[str, UserValue] | None = None,
        store_wait: Seconds | None = None,
        max_result: int | None = None,
        on_lease_lost: str = "continue",
    ) -> None:
        check = Checker("the options of a keyed call")
        if is_async(key):
            check.note("key", key, "a plain function: the key is needed before anything is awaited")
        if scope is not None:
            check.name("scope", scope)
        self._fill(
            key=key,
            scope=scope,
            lease=check.duration("lease", lease, 0.05, 86_400.0),
            ttl=check.optional_seconds("ttl", ttl),
            on_conflict=check.choice("on_conflict", on_conflict, ("wait", "raise")),
            on_crash=on_crash and check.choice("on_crash", on_crash, ("retry", "unknown")),
            wait=check.seconds("wait", wait),
            metadata=canonical(dict(metadata)).decode() if metadata else "",
            store_wait=None if store_wait is None else check.seconds("store_wait", store_wait),
            max_result=check_max_result(check, max_result),
            on_lease_lost=check.choice("on_lease_lost", on_lease_lost, ("continue", "cancel")),
        )
        check.close()


def after_crash(options: KeyOptions, idempotency: str) -> str:
    """What happens to a call that a process left unfinished: as chosen, or as it is declared.

    How far it came is unknown. Only what may be repeated runs again without a person.

    >>> after_crash(KeyOptions(), "keyed"), after_crash(KeyOptions(), "idempotent")
    ('unknown', 'retry')
    """
    usual = "retry" if idempotency == "idempotent" else "unknown"
    return "unknown" if idempotency == "unsafe" else options.on_crash or usual


class Keying:
    """A function, the site it is called at, and how its calls are keyed.

    Args:
        site: what is retried.
        options: the KeyOptions.
        function: what is called.
        is_kept: whether many calls will come: then the function's parameters are compiled.
        place: where the record of a key is, where that is not by tenant and operation.
    """

    __slots__ = (
        "_bind", "_head", "_key", "_place", "draft", "function", "invoked", "news", "options",
        "site",
    )  # fmt: skip

    def __init__(
        self,
        site: Site,
        options: KeyOptions,
        function: Function,
        *,
        is_kept: bool = False,
        place: Callable[[str], str] | None = None,
    ) -> None:
        self._place = place
        self.site = site
        self.options = options
        self.function = self.invoked = function
        """What has the parameters; and what is called: the same, once it has been called."""
        self._key = options.key if callable(options.key) else None
        self._head = ""
        self.draft: Keyed | None = None
        """What the core gets for every call, once there was one."""
        self.news = 0
        """Calls in a row, up to now, whose keys were new."""
        self._bind: Callable[..., dict[str, object]] = _uncompiled if is_kept else _unbound

    def identify(self, args: Args, kwargs: Kwargs) -> Named:
        """The key of a call, the fingerprint of its arguments, and where its record is."""
        try:
            named = self._bind(*args, **kwargs) if kwargs else self._bind(*args)
        except TypeError:  # not called as it is declared, or nothing is compiled
            payload = fingerprint(self._arguments(args, kwargs))
        else:
            payload = named_fingerprint(named)
        if self._key is not None:
            text = key_text(self._key(*args, **kwargs) if kwargs else self._key(*args))
        else:
            text = payload if self.options.key is None else key_text(self.options.key)
        if self._place is not None:
            return text, payload, self._place(text)
        scope = self.options.scope
        if scope is None:
            scope = CONTEXT.get().tenant_id
            if scope is not None:  # one of many: nothing to keep
                return text, payload, canonical([scope, self.site.operation, text]).decode()
        if not self._head:
            self._head = canonical([scope, self.site.operation]).decode()[:-1]
        return text, payload, f"{self._head},{_encode(text).decode()}]"

    def _arguments(self, args: Args, kwargs: Kwargs) -> dict[str, object]:
        """The arguments of a call that the binder has not bound."""
        if self._bind is _uncompiled:  # with the first call: until then it may be dressed
            self._bind = binder_of(self.function) or _unbound
        return bound_arguments(self.function, args, kwargs)


ENOUGH = 16
"""New keys in a row after which the next is taken for new too, and claimed without a read."""
_encode = msgspec.json.Encoder().encode
"""Text as `canonical` has it: `key_text` has refused what has no such form."""


def binder_of(function: Function) -> Callable[..., dict[str, object]] | None:
    """A function of the same parameters that returns the arguments as `bound_arguments` has them.

    None where that needs more than Python's own binding: keywords without a parameter, a first
    parameter that is one of many, or something that is not a plain function.

    >>> def send(to, /, *rest, subject="hello"): ...
    >>> binder_of(send)("ann", "bob")
    {'to': 'ann', 'rest': ['bob'], 'subject': 'hello'}
    """
    shape = shape_of(function) if type(function) is FunctionType else None
    if shape is None or shape.more or not all(map(_is_name, shape.signature.parameters)):
        return None
    parameters = list(shape.signature.parameters.values())
    returned = parameters[1:] if shape.is_method else parameters
    if shape.rest and len(returned) < len(parameters) and parameters[0].name == shape.rest:
        return None
    pairs = [f"{each.name!r}: {_taken(each)}" for each in returned]
    declared = str(Signature([_bare(each) for each in parameters]))[1:-1]
    held = {each.name: each.default for each in parameters}
    source = f"lambda {declared}: {{{', '.join(pairs)}}}"
    return eval(source, {"held": held, "__builtins__": {}})  # type: ignore[no-any-return]  # noqa: S307 -- names only


def _is_name(name: str) -> bool:
    return name.isidentifier() and not iskeyword(name)


def _taken(parameter: Parameter) -> str:
    return f"[*{parameter.name}]" if parameter.kind is Parameter.VAR_POSITIONAL else parameter.name


def _bare(parameter: Parameter) -> Parameter:
    """Without annotations, and with the source of its default in place of it."""
    is_required = parameter.default is Parameter.empty
    default = Parameter.empty if is_required else _Source(f"held[{parameter.name!r}]")
    return parameter.replace(annotation=Parameter.empty, default=default)


class _Source:
    """A text whose repr() is that text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _unbound(*_: object, **__: object) -> dict[str, object]:
    """Stands where there is no binder."""
    raise TypeError


def _uncompiled(*_: object, **__: object) -> dict[str, object]:
    """Stands where there is none yet."""
    raise TypeError
