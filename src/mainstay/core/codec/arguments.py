"""What distinguishes a call from another: its arguments by name, and a key as text.

How a value becomes bytes is `canonical`'s business; which key a call has, its caller's.
"""

from __future__ import annotations

import inspect
import weakref
from contextlib import suppress
from enum import Enum
from functools import partial
from types import MethodType

from mainstay.core.base.functions import signature_of
from mainstay.core.codec.canonical import canonical, fingerprint
from mainstay.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mainstay.core.base.types import UserValue

MAX_KEY = 512
"""Characters of a key: what fits every store's index, and a header."""


def bound_arguments(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    skip_self: bool = True,
) -> dict[str, object]:
    """Every argument of a call by its name, defaults included; without `self` and `cls`.

    `*args` is a list. What `**kwargs` took stands under its own names, or, if such a name is a
    parameter's, in a dict under `"**kwargs"`. A builtin that has no signature is bound by position.

    >>> def send(to, /, *rest, subject="hello", **more): ...
    >>> bound_arguments(send, ("ann", "bob"), {"copy": True, "to": 1})
    {'to': 'ann', 'rest': ['bob'], 'subject': 'hello', 'copy': True, '**more': {'to': 1}}
    """
    while isinstance(function, partial):  # its signature would hide what it holds
        args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
        function = function.func
    is_bound = isinstance(function, MethodType)
    if isinstance(function, MethodType):  # a new object at each access: nothing to cache by
        args, function = (function.__self__, *args), function.__func__
    shape = shape_of(function)
    if shape is None:
        return _by_position(args[1:] if is_bound and skip_self else args, kwargs)
    if shape.names is not None and not kwargs and len(args) == len(shape.names):
        named: dict[str, UserValue] = dict(zip(shape.names, args, strict=True))
    else:
        bound = shape.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        named = dict(bound.arguments)
    if skip_self and (is_bound or shape.is_method):
        _drop_first(named, shape)
    if shape.rest:
        named[shape.rest] = list(named[shape.rest])
    return _merged(named, named.pop(shape.more), shape.more) if shape.more else named


class Shape:
    """What is known of a function's parameters."""

    __slots__ = ("is_method", "more", "names", "rest", "signature")

    def __init__(self, function: Callable[..., object], signature: inspect.Signature) -> None:
        by_kind = {p.kind: name for name, p in signature.parameters.items()}
        self.signature = signature
        self.rest = by_kind.get(inspect.Parameter.VAR_POSITIONAL, "")
        self.more = by_kind.get(inspect.Parameter.VAR_KEYWORD, "")
        is_plain = by_kind.keys() <= _BY_POSITION
        self.names = tuple(signature.parameters) if is_plain else None
        """The parameters, if a call that gives all of them by position needs no binding."""
        first = next(iter(signature.parameters), "")
        self.is_method = first in ("self", "cls") and _is_in_class(function)


_BY_POSITION = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}


def _is_in_class(function: object) -> bool:
    """Whether its name is of a class: `Shop.buy` is, `main.<locals>.buy` is not."""
    owner = str(getattr(function, "__qualname__", "")).rpartition(".")[0]
    return bool(owner) and not owner.endswith("<locals>")


_shapes: weakref.WeakKeyDictionary[Callable[..., object], Shape | None] = (
    weakref.WeakKeyDictionary()
)


def shape_of(function: Callable[..., object]) -> Shape | None:
    """What is known of a function's parameters; None for a builtin without a signature."""
    try:
        return _shapes[function]
    except (KeyError, TypeError):  # not seen yet, or something that cannot be a weak key
        shape = _new_shape(function)
    with suppress(TypeError):
        _shapes[function] = shape
    return shape


def _new_shape(function: Callable[..., object]) -> Shape | None:
    try:
        return Shape(function, signature_of(function))
    except ValueError:  # a builtin without a signature
        return None


def _drop_first(named: dict[str, object], shape: Shape) -> None:
    """Without what the first parameter took: for `def f(*args)` the first of them."""
    first = next(iter(named))
    if first == shape.rest:
        named[first] = named[first][1:]  # type: ignore[index]
    else:
        del named[first]


def _by_position(args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    return _merged({str(n): value for n, value in enumerate(args)}, kwargs, "kwargs")


def _merged(
    named: dict[str, object], more: Mapping[str, UserValue], name: str
) -> dict[str, object]:
    apart = f"**{name}"
    clashing = {key: value for key, value in more.items() if key in named or key == apart}
    named.update((key, value) for key, value in more.items() if key not in clashing)
    return {**named, apart: clashing} if clashing else named


# --- keys -----------------------------------------------------------------------------------------


def key_text(key: object) -> str:
    """The text of what a key function returned: text as it is, anything else in canonical form.

    So 7 and "7" are one key. A long canonical form is replaced by its fingerprint; long text is
    refused, since a reader of a key expects the one that was given.

    >>> key_text("order-7"), key_text(7), key_text(("eu", 7))
    ('order-7', '7', '["eu",7]')
    >>> key_text(" ")
    Traceback (most recent call last):
    mainstay.errors.UsageError: a key cannot be blank. return what identifies this call
    """
    if (
        type(key) is str
        and key.isascii()
        and key.isprintable()
        and key.strip()
        and (len(key) <= MAX_KEY)
    ):  # as most are: no closer look is needed
        return key
    for is_wrong, word in _NO_KEYS:
        if is_wrong(key):
            raise UsageError(f"a key cannot be {word}", hint="return what identifies this call")
    if isinstance(key, str) and not isinstance(key, Enum):
        return _checked_text(str.__str__(key))
    text = canonical(key).decode()
    return text if len(text) <= MAX_KEY else fingerprint(key)


def _is_empty(key: object) -> bool:
    return isinstance(key, _SIZED) and not isinstance(key, Enum) and len(key) == 0


def _is_blank(key: object) -> bool:
    return isinstance(key, str) and not isinstance(key, Enum) and not str.strip(key)


_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
_NO_KEYS: tuple[tuple[Callable[[object], bool], str], ...] = (
    (lambda key: key is None, "None"),
    (lambda key: key is True, "True"),
    (lambda key: key is False, "False"),
    (_is_empty, "empty"),
    (_is_blank, "blank"),
)


def _checked_text(key: str) -> str:
    if len(key) > MAX_KEY:
        raise UsageError(
            f"a key of {len(key)} characters is too long: {MAX_KEY} at most",
            hint="hash it: hashlib.sha256(key.encode()).hexdigest()",
        )
    if "\0" in key:  # PostgreSQL's text has no place for it
        raise UsageError("a key cannot hold a NUL character", hint="leave it out, or hash the key")
    canonical(key)  # refuses lone surrogates
    return key
