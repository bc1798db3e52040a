"""The loops a careful person writes without a library: what failing calls are compared with.

Same work as everyone: is this exception one to retry, is there an attempt left, an exponential
delay with its cap and ±10 % of jitter, a sleep. No `*args`: the loop is written for one function.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from bench.peers import Colour, Decorator, Function, Plan


def handwritten(plan: Plan, colour: Colour) -> Decorator:
    """The plan as a loop around one call of the function."""
    attempts, initial, factor, most = plan.attempts, plan.initial, plan.factor, plan.max_delay
    jitter, retryable = plan.jitter, (plan.on,)

    def decorate(function: Function) -> Function:
        def call(a: Any, b: Any) -> Any:
            for attempt in range(1, attempts + 1):
                try:
                    return function(a, b)
                except Exception as error:
                    if not isinstance(error, retryable) or attempt == attempts:
                        raise
                    delay = min(initial * factor ** (attempt - 1), most)
                    time.sleep(delay * (1 + jitter * (2 * random.random() - 1)))
            raise AssertionError("the loop returns or raises")

        async def acall(a: Any, b: Any) -> Any:
            for attempt in range(1, attempts + 1):
                try:
                    return await function(a, b)
                except Exception as error:
                    if not isinstance(error, retryable) or attempt == attempts:
                        raise
                    delay = min(initial * factor ** (attempt - 1), most)
                    await asyncio.sleep(delay * (1 + jitter * (2 * random.random() - 1)))
            raise AssertionError("the loop returns or raises")

        return call if colour == "sync" else acall

    return decorate
