"""Adapters: one configuration, told to each library in its own words.

Every adapter takes a Plan and a colour and gives a decorator. The plan is the same for all:
three attempts, exponential backoff with jitter, one exception class. Jitter is each library's
own kind, set so that the longest first delay is the plan's. What a library cannot say raises
Lacks, with the words for the table; a library that is not installed raises ModuleNotFoundError.
Logging on a retry is switched off where it is on by default, since nobody listens to anyone.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from bench.measure import Lacks

Colour = Literal["sync", "async"]
Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
Adapter = Callable[["Plan", Colour], Decorator]


@dataclass(frozen=True, slots=True)
class Plan:
    """What every contender is asked to do."""

    attempts: int = 3
    initial: float = 0.1
    factor: float = 2.0
    max_delay: float = 5.0
    jitter: float = 0.1
    on: type[Exception] = ConnectionError
    deadline: float | None = None
    attempt_timeout: float | None = None
    failures: int = 0  # per call, for the one library that cannot count its attempts

    @property
    def shortest(self) -> float:
        """The first delay with all of its jitter taken off."""
        return self.initial * (1 - self.jitter)

    @property
    def longest(self) -> float:
        """The first delay with all of its jitter added."""
        return self.initial * (1 + self.jitter)


def mainstay(plan: Plan, colour: Colour) -> Decorator:
    """The policy itself is the decorator."""
    policy: Decorator = mainstay_policy(plan)
    return policy


def mainstay_policy(plan: Plan) -> Any:
    """The plan as a mainstay policy."""
    from mainstay import Backoff, Jitter, RetryPolicy

    backoff = Backoff.exponential(plan.initial, factor=plan.factor, max_delay=plan.max_delay)
    return RetryPolicy(
        name="bench",
        max_attempts=plan.attempts,
        backoff=backoff if plan.initial else Backoff.constant(0.0),
        jitter=Jitter.percent(plan.jitter),
        retry_on=(plan.on,),
        attempt_timeout=plan.attempt_timeout,
        deadline=plan.deadline,
    )


def _tenacity(plan: Plan, colour: Colour) -> Decorator:
    import tenacity

    if plan.attempt_timeout is not None:
        raise Lacks("no attempt timeout")
    stop: Any = tenacity.stop_after_attempt(plan.attempts)
    if plan.deadline is not None:
        stop |= tenacity.stop_after_delay(plan.deadline)
    return tenacity.retry(
        stop=stop,
        wait=tenacity.wait_exponential_jitter(
            initial=plan.shortest,
            max=plan.max_delay,
            exp_base=plan.factor,
            jitter=plan.longest - plan.shortest,
        ),
        retry=tenacity.retry_if_exception_type(plan.on),
        reraise=True,
    )


def _stamina(plan: Plan, colour: Colour) -> Decorator:
    import stamina

    if plan.attempt_timeout is not None:
        raise Lacks("no attempt timeout")
    stamina.instrumentation.set_on_retry_hooks([])
    return stamina.retry(
        on=plan.on,
        attempts=plan.attempts,
        timeout=plan.deadline,
        wait_initial=plan.shortest,
        wait_max=plan.max_delay,
        wait_jitter=plan.longest - plan.shortest,
        wait_exp_base=plan.factor,
    )


def _backoff(plan: Plan, colour: Colour) -> Decorator:
    import backoff

    if plan.attempt_timeout is not None:
        raise Lacks("no attempt timeout")
    return backoff.on_exception(
        backoff.expo,
        plan.on,
        max_tries=plan.attempts,
        max_time=plan.deadline,
        jitter=backoff.full_jitter,
        logger=None,
        base=plan.factor,
        factor=plan.longest,
        max_value=plan.max_delay,
    )


def _hyx(plan: Plan, colour: Colour) -> Decorator:
    from hyx.retry import retry
    from hyx.retry.backoffs import expo
    from hyx.retry.jitters import equal

    if colour == "sync":
        raise Lacks("async only")
    if plan.deadline is not None:
        raise Lacks("no deadline")
    retried = retry(
        on=plan.on,
        attempts=plan.attempts - 1,  # hyx counts retries
        backoff=expo(
            min_delay_secs=plan.longest,
            base=plan.factor,
            max_delay_secs=plan.max_delay,
            jitter=equal,
        ),
    )
    if plan.attempt_timeout is None:
        return retried
    from hyx.timeout import timeout

    timed = timeout(plan.attempt_timeout)  # decorates only inside a running loop
    return lambda function: retried(timed(function))


def _redress(plan: Plan, colour: Colour) -> Decorator:
    import redress

    return redress.retry(
        strategy=redress.equal_jitter(plan.longest / 2, plan.max_delay),  # its exponent starts at 1
        max_attempts=plan.attempts,
        deadline_s=60.0 if plan.deadline is None else plan.deadline,  # it always has one
        attempt_timeout_s=plan.attempt_timeout,
    )


def _pyresilience(plan: Plan, colour: Colour) -> Decorator:
    import pyresilience

    timeout = None
    if plan.attempt_timeout is not None:
        timeout = pyresilience.TimeoutConfig(plan.attempt_timeout, per_attempt=True)
    elif plan.deadline is not None:
        timeout = pyresilience.TimeoutConfig(plan.deadline, per_attempt=False)
    return pyresilience.resilient(
        timeout=timeout,
        retry=pyresilience.RetryConfig(
            max_attempts=plan.attempts,
            delay=plan.longest,
            backoff_factor=plan.factor,
            max_delay=plan.max_delay,
            jitter=True,
            retry_on=(plan.on,),
        ),
    )


def _resilient_circuit(plan: Plan, colour: Colour) -> Decorator:
    from resilient_circuit import ExponentialDelay, RetryWithBackoffPolicy

    if plan.deadline is not None or plan.attempt_timeout is not None:
        raise Lacks("no deadline or timeout")
    return RetryWithBackoffPolicy(
        backoff=ExponentialDelay(
            min_delay=timedelta(seconds=plan.initial),
            max_delay=timedelta(seconds=plan.max_delay),
            factor=int(plan.factor),
            jitter=plan.jitter,
        ),
        max_retries=plan.attempts - 1,
        should_handle=lambda error: isinstance(error, plan.on),
    )


def _google_api_core(plan: Plan, colour: Colour) -> Decorator:
    from google.api_core import retry, retry_async

    if plan.attempt_timeout is not None:
        raise Lacks("no attempt timeout")
    predicate = retry.if_exception_type(plan.on)
    if plan.failures >= plan.attempts:  # it has no attempt limit: the predicate counts instead
        goes_on = itertools.cycle([True] * (plan.attempts - 1) + [False])
        predicate = lambda error: isinstance(error, plan.on) and next(goes_on)  # noqa: E731
    kind = retry.Retry if colour == "sync" else retry_async.AsyncRetry
    return kind(
        predicate=predicate,
        initial=plan.longest,
        maximum=plan.max_delay,
        multiplier=plan.factor,
        timeout=plan.deadline,
    )


def tenaz(plan: Plan, colour: Colour) -> Decorator:
    """A retry of one file; its factor is two, and its jitter the whole delay."""
    import tenaz

    if plan.attempt_timeout is not None:
        raise Lacks("no attempt timeout")
    decorate: Decorator = tenaz.retry(
        max_attempts=plan.attempts,
        backoff=plan.longest,
        max_delay=plan.max_delay,
        retry_on=plan.on,
        total_timeout=plan.deadline or 0.0,
    )
    return decorate


PEERS: dict[str, Adapter] = {
    "tenacity": _tenacity,
    "stamina": _stamina,
    "backoff": _backoff,
    "hyx": _hyx,
    "redress": _redress,
    "pyresilience": _pyresilience,
    "resilient-circuit": _resilient_circuit,
    "google-api-core": _google_api_core,
}

EVERYONE: dict[str, Adapter] = {"mainstay": mainstay, **PEERS}


# Where a library has imported the function itself: module, name, whether it is asyncio's.
OWN_NAMES = (
    ("resilient_circuit.retry", "sleep", False),
    ("resilient_circuit.retry", "asyncio_sleep", True),
)


@contextlib.contextmanager
def no_sleep(sleeps: list[float] | None = None) -> Iterator[None]:
    """Stub the sleep of every library here; the delays asked for are added to `sleeps`."""
    sleep, asleep = (_sleep, _asleep) if sleeps is None else _counting(sleeps)
    with contextlib.ExitStack() as stack:
        for module, name, is_async in OWN_NAMES:
            with contextlib.suppress(ImportError):
                _patch(stack, importlib.import_module(module), name, asleep if is_async else sleep)
        _patch(stack, time, "sleep", sleep)
        _patch(stack, asyncio, "sleep", asleep)
        yield


def _sleep(delay: float) -> None:
    pass


async def _asleep(delay: float) -> None:
    pass


def _counting(sleeps: list[float]) -> tuple[Function, Function]:
    async def asleep(delay: float) -> None:
        sleeps.append(delay)

    return sleeps.append, asleep


def _patch(stack: contextlib.ExitStack, module: Any, name: str, value: object) -> None:
    stack.callback(setattr, module, name, getattr(module, name))
    setattr(module, name, value)
