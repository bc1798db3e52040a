"""How long to wait: delay curves and jitter, as frozen values with pure functions.

`Backoff.base(n)` is the capped delay before retry n (n counts from 1). `Jitter.spread()` turns it
into the delay that is waited; the randomness comes in as u in [0, 1). The cap is applied before
the jitter, so that clients at the cap still spread; additive is capped again, and of decorrelated
the range is capped and not the delay.
"""

from __future__ import annotations

from mainstay.core.base.functions import discard
from mainstay.core.base.validate import MAX_SECONDS, Checker, in_seconds
from mainstay.core.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeGuard

    from mainstay.core.base.types import Seconds, UserValue


class Backoff(Value):
    """How the delay grows from one retry to the next.

    >>> Backoff.exponential(0.1, factor=2.0, max_delay=5.0).base(3)
    0.4
    >>> Backoff.constant(1.5).base(9)
    1.5
    """

    __slots__ = (
        "_curve", "delays", "factor", "function", "initial", "kind", "max_delay", "step", "then"
    )  # fmt: skip
    kind: str
    initial: float
    factor: float
    step: float
    max_delay: float
    function: Callable[[int], Seconds] | None
    delays: tuple[float, ...]
    then: Backoff | None
    _curve: Callable[[Backoff, int], float]

    def __init__(
        self,
        kind: str = "exponential",
        initial: Seconds = 0.1,
        *,
        factor: float = 2.0,
        step: Seconds | None = None,
        max_delay: Seconds = 60.0,
        function: Callable[[int], Seconds] | None = None,
        delays: Iterable[Seconds] = (),
        then: Backoff | None = None,
    ) -> None:
        check = Checker(f"Backoff.{kind}" if kind in tuple(_CURVES) else "Backoff")
        kind = check.choice("kind", kind, _CURVES)
        delays = _chained(check, kind, delays, then)
        if kind == "chain":
            initial, max_delay = _ends_of(delays, then, check.seconds("max_delay", max_delay))
        initial = check.seconds("initial", initial)
        factor = check.number("factor", factor, 1.0, 1000.0)
        step = initial if step is None else check.seconds("step", step)
        max_delay = check.seconds("max_delay", max_delay)
        if not check.problems and max_delay < initial:
            check.note("max_delay", max_delay, f"at least the initial delay, {initial:g}")
        if kind == "custom" and function is None:
            check.note("function", function, "a function of the retry's number")
        check.plain_function("function", function)
        check.close()
        self._fill(kind=kind, initial=initial, factor=factor, step=step, max_delay=max_delay,
                   function=function, delays=delays, then=then, _curve=_CURVES[kind])  # fmt: skip

    @classmethod
    def constant(cls, delay: Seconds) -> Backoff:
        """The same delay each time; 0 retries at once.

        >>> [Backoff.constant(0.5).base(n) for n in (1, 2, 3)]
        [0.5, 0.5, 0.5]
        """
        seconds: Any = in_seconds(delay)
        ceiling = max(60.0, seconds) if type(seconds) in (int, float) else 60.0
        return cls("constant", delay, max_delay=min(ceiling, MAX_SECONDS))

    @classmethod
    def linear(
        cls, initial: Seconds, *, step: Seconds | None = None, max_delay: Seconds = 60.0
    ) -> Backoff:
        """A delay that grows by `step` (by `initial` if no step is given).

        >>> [Backoff.linear(1.0, step=0.5).base(n) for n in (1, 2, 3)]
        [1.0, 1.5, 2.0]
        """
        return cls("linear", initial, step=step, max_delay=max_delay)

    @classmethod
    def exponential(
        cls, initial: Seconds = 0.1, *, factor: float = 2.0, max_delay: Seconds = 60.0
    ) -> Backoff:
        """A delay that is multiplied by `factor` each time, up to `max_delay`.

        >>> [Backoff.exponential(1.0, max_delay=5.0).base(n) for n in (1, 2, 3, 4)]
        [1.0, 2.0, 4.0, 5.0]
        """
        return cls("exponential", initial, factor=factor, max_delay=max_delay)

    @classmethod
    def custom(cls, function: Callable[[int], Seconds], *, max_delay: Seconds = 60.0) -> Backoff:
        """A delay of your own: `function(n)` gives the seconds before retry n.

        It must be pure, or a record of the call cannot be replayed. An answer that is no finite
        number, or below zero, counts as `max_delay`.

        >>> Backoff.custom(lambda n: n * n / 10).base(3)
        0.9
        """
        return cls("custom", 0.0, max_delay=max_delay, function=function)

    @classmethod
    def chain(cls, *delays: Seconds | Backoff) -> Backoff:
        """One delay after the other; the last one repeats, or goes on by a curve of its own.

        Each but the last is for one retry: seconds, or the first delay of a Backoff. If the last
        is a Backoff, it serves all other retries, and counts them from 1.

        >>> [Backoff.chain(0.1, 0.1, 5.0).base(n) for n in (1, 2, 3, 4)]
        [0.1, 0.1, 5.0, 5.0]
        >>> slow = Backoff.chain(0.0, 1.0, Backoff.exponential(10.0, max_delay=30.0))
        >>> [slow.base(n) for n in (1, 2, 3, 4, 5)]
        [0.0, 1.0, 10.0, 20.0, 30.0]
        """
        last = delays[-1] if delays else None
        then = last if isinstance(last, Backoff) else None
        first: tuple[Any, ...] = delays if then is None else delays[:-1]
        each = [part.base(1) if _is_curve(part) else part for part in first]
        return cls("chain", delays=each, then=then)

    def base(self, n: int) -> float:
        """The capped delay before retry n, without jitter.

        >>> Backoff.exponential(1.0, factor=3.0, max_delay=30.0).base(2)
        3.0
        """
        return self._curve(self, n)

    def part(self, n: int) -> Backoff:
        """The curve that retry n has reached: of a chain, perhaps the Backoff at its end.

        >>> slow = Backoff.exponential(10.0, max_delay=30.0)
        >>> chain = Backoff.chain(0.0, 1.0, slow)
        >>> chain.part(2) is chain, chain.part(3) is slow
        (True, True)
        """
        if self.then is None or n <= len(self.delays):
            return self
        return self.then.part(n - len(self.delays))

    def to_dict(self) -> dict[str, Any]:
        """The values as JSON can hold them; a custom function is refused by the policy.

        >>> Backoff.constant(1.0).to_dict()
        {'kind': 'constant', 'initial': 1.0, 'factor': 2.0, 'step': 1.0, 'max_delay': 60.0}
        """
        plain = {name: getattr(self, name) for name in _BACKOFF_FIELDS}
        if self.kind == "chain":
            plain["delays"] = list(self.delays)
            plain["then"] = None if self.then is None else self.then.to_dict()
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Backoff:
        """The backoff of such a mapping.

        >>> Backoff.from_dict({"kind": "constant", "initial": 2.0}).base(1)
        2.0
        """
        known = _known("Backoff", values, (*_BACKOFF_FIELDS, "delays", "then"))
        if hasattr(known.get("then"), "items"):  # not yet a Backoff
            known["then"] = cls.from_dict(known["then"])
        return cls(**known)


class Jitter(Value):
    """How a delay is spread, so that clients which failed together do not return together.

    >>> Jitter.percent(0.10).spread(10.0, u=0.0, previous=0.0, backoff=Backoff())
    9.0
    """

    __slots__ = ("_share", "amount", "kind")
    kind: str
    amount: float
    _share: tuple[float, float] | None

    def __init__(self, kind: str = "percent", amount: Seconds = 0.0) -> None:
        check = Checker(f"Jitter.{kind}" if kind in tuple(_JITTERS) else "Jitter")
        kind = check.choice("kind", kind, _JITTERS)
        if kind == "percent":
            amount = check.number("amount", amount, 0.0, 1.0)
        else:
            amount = check.seconds("amount", amount)
        check.close()
        share = (1.0 - amount, 2.0 * amount) if kind == "percent" else _JITTERS[kind]
        self._fill(kind=kind, amount=amount, _share=share)

    @classmethod
    def none(cls) -> Jitter:
        """No jitter: the delay as it is.

        >>> Jitter.none().spread(4.0, u=0.7, previous=0.0, backoff=Backoff())
        4.0
        """
        return cls("none")

    @classmethod
    def percent(cls, share: float) -> Jitter:
        """Plus or minus a share of the delay: 0.1 is ±10 %.

        >>> Jitter.percent(0.5).spread(4.0, u=0.5, previous=0.0, backoff=Backoff())
        4.0
        """
        return cls("percent", share)

    @classmethod
    def additive(cls, seconds: Seconds) -> Jitter:
        """Up to `seconds` more, never past the backoff's `max_delay`.

        >>> Jitter.additive(1.0).spread(4.0, u=0.5, previous=0.0, backoff=Backoff())
        4.5
        """
        return cls("additive", seconds)

    @classmethod
    def full(cls) -> Jitter:
        """Anything between nothing and the delay.

        >>> Jitter.full().spread(4.0, u=0.25, previous=0.0, backoff=Backoff())
        1.0
        """
        return cls("full")

    @classmethod
    def equal(cls) -> Jitter:
        """Half the delay, and anything up to the other half.

        >>> Jitter.equal().spread(4.0, u=0.5, previous=0.0, backoff=Backoff())
        3.0
        """
        return cls("equal")

    @classmethod
    def decorrelated(cls) -> Jitter:
        """Between the initial delay and three times the one before, or `max_delay` if that is less.

        A delay before that was shorter than the initial one counts as the initial one.

        >>> Jitter.decorrelated().spread(9.9, u=0.5, previous=1.0, backoff=Backoff.constant(1.0))
        2.0
        """
        return cls("decorrelated")

    def spread(self, delay: float, u: float, previous: float, backoff: Backoff) -> float:
        """The delay to wait, given a base delay and u in [0, 1).

        `backoff` is the curve that the delay is of; of a chain, its `part`.

        >>> Jitter.full().spread(2.0, u=0.5, previous=0.0, backoff=Backoff())
        1.0
        """
        if self._share is not None:
            low, span = self.ramp(delay)
            return low + span * u
        if self.kind == "additive":
            return min(delay + u * self.amount, backoff.max_delay)
        initial = delay if backoff.kind == "chain" else backoff.base(1)
        longest = min(backoff.max_delay, 3.0 * max(previous, initial))
        return initial + u * (max(longest, initial) - initial)

    def on_top(self, asked: float, u: float, longest: float) -> float:
        """What is added to a wait that the other side asked for, so that clients spread.

        Up to the share of `percent`, the seconds of `additive`, half as much again for `equal`, as
        much again for `full` and `decorrelated`; and never more than `longest`.

        >>> Jitter.percent(0.1).on_top(10.0, u=0.5, longest=60.0)
        0.5
        """
        reach = self.amount if self.kind == "additive" else asked * self._above
        return u * min(reach, longest)

    @property
    def _above(self) -> float:
        return self.amount if self.kind == "percent" else _ABOVE[self.kind]

    def ramp(self, delay: float) -> tuple[float, float]:
        """Where a jitter that takes a share of the delay begins, and how far it reaches.

        >>> Jitter.percent(0.25).ramp(4.0)
        (3.0, 2.0)
        """
        low, span = self._share or (0.0, 0.0)
        return delay * low, delay * span

    @property
    def is_share(self) -> bool:
        """Whether the delay that is waited is a share of the base delay, whatever came before."""
        return self._share is not None

    def to_dict(self) -> dict[str, Any]:
        """The values as JSON can hold them.

        >>> Jitter.full().to_dict()
        {'kind': 'full', 'amount': 0.0}
        """
        return {name: getattr(self, name) for name in _JITTER_FIELDS}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Jitter:
        """The jitter of such a mapping.

        >>> Jitter.from_dict({"kind": "percent", "amount": 0.1}) == Jitter.percent(0.1)
        True
        """
        return cls(**_known("Jitter", values, _JITTER_FIELDS))


def _is_curve(part: object) -> TypeGuard[Backoff]:
    """Whether it is a Backoff whose first delay is known."""
    return isinstance(part, Backoff) and part.kind != "custom"


def _chained(check: Checker, kind: str, delays: UserValue, then: UserValue) -> tuple[float, ...]:
    """The delays of a chain; only a chain has any."""
    if not isinstance(delays, list | tuple):
        check.note("delays", delays, "a list of seconds")
        return ()
    found = tuple(check.seconds("delays", each) for each in delays)
    if kind != "chain" and (found or then is not None):
        check.note("delays", found or then, "left out: only a chain has delays of its own")
    elif kind == "chain" and not found and then is None:
        check.note("delays", found, "at least one delay")
    if then is not None and not _is_curve(then):
        check.note("then", then, "a Backoff without a function of yours")
    return found


def _ends_of(delays: tuple[float, ...], then: UserValue, longest: float) -> tuple[float, float]:
    """The first delay of a chain, and the longest there can be with jitter.

    What repeats at the end is a constant delay, and has the room above it that one has: capped at
    itself, each client would wait exactly that long.
    """
    rest = then if _is_curve(then) else None
    if rest is None:
        return (delays or (0.0,))[0], max(*delays, longest, 0.0)
    return (*delays, rest.base(1))[0], max(*delays, rest.max_delay, 0.0)


def _known(
    subject: str, values: Mapping[str, UserValue], fields: tuple[str, ...]
) -> dict[str, UserValue]:
    """The values, if every key is a field."""
    check = Checker(subject)
    for key in values:
        if key not in fields:
            check.note(str(key), values[key], "left out; known: " + ", ".join(fields))
    check.close()
    return dict(values)


_BACKOFF_FIELDS = ("kind", "initial", "factor", "step", "max_delay")
_JITTER_FIELDS = ("kind", "amount")


def _constant(b: Backoff, _n: int) -> float:
    return b.initial


def _linear(b: Backoff, n: int) -> float:
    return min(b.initial + (n - 1) * b.step, b.max_delay)


def _exponential(b: Backoff, n: int) -> float:
    try:
        delay = b.initial * b.factor ** (n - 1)
        return min(delay, b.max_delay)
    except OverflowError:  # 2.0 ** 1024 is past what a float holds
        return b.max_delay if b.initial else 0.0


def _custom(b: Backoff, n: int) -> float:
    assert b.function is not None
    delay: Any = in_seconds(b.function(n))
    is_a_delay = type(delay) in (int, float) and 0 <= delay <= b.max_delay
    return float(delay) if is_a_delay else b.max_delay


def _chain(b: Backoff, n: int) -> float:
    if n <= len(b.delays):
        return b.delays[n - 1]
    return b.delays[-1] if b.then is None else b.then.base(n - len(b.delays))


_CURVES: dict[str, Callable[[Backoff, int], float]] = {
    "constant": _constant,
    "linear": _linear,
    "exponential": _exponential,
    "custom": _custom,
    "chain": _chain,
}


_JITTERS: dict[str, tuple[float, float] | None] = {
    "none": (1.0, 0.0),
    "percent": (1.0, 0.0),  # its own: from 1 - share, over twice the share
    "additive": None,
    "full": (0.0, 1.0),
    "equal": (0.5, 0.5),
    "decorrelated": None,
}
"""Where the share of the delay begins, and how far it reaches; None if it is no share of it."""

_ABOVE = {"none": 0.0, "full": 1.0, "equal": 0.5, "decorrelated": 1.0}
"""How far a jitter goes above a delay that may not be shortened, as a share of it."""


def wait_of(answer: UserValue) -> float | None:
    """What `wait_from` returned, as seconds; None leaves the wait to the policy."""
    seconds: Any = in_seconds(answer)
    if answer is None or (type(seconds) in (int, float) and 0.0 <= seconds <= MAX_SECONDS):
        return None if answer is None else float(seconds)
    discard(answer)  # it may be a coroutine, which nothing awaits
    raise ValueError(f"wait_from returned {answer!r}, which is no number of seconds")
