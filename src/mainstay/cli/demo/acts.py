"""What comes after the calls, act by act: the outage, the two orders."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

from mainstay.cli.demo.orders import CHARGE, Desk
from mainstay.cli.demo.outage import break_all, recover_all

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from mainstay.cli.demo.traffic import Traffic


async def go_down(traffic: Traffic, pool: ThreadPoolExecutor) -> None:
    """The service is down until every circuit is open, and then back."""
    circuits = [traffic.engine.breaker(name) for name in traffic.circuits.states]
    numbers = count(traffic.script.stuck.call + 1)  # of calls that the script says nothing of

    async def call(name: str) -> None:
        await traffic.send(name, next(numbers), pool)

    traffic.story.append("the service goes down, for everybody")
    traffic.service.is_down = True
    await break_all(circuits, call)
    traffic.story.append("the service is back")
    traffic.service.is_down = False
    await recover_all(circuits, call)


async def charge_orders(traffic: Traffic, pool: ThreadPoolExecutor) -> None:
    """One order is charged by two calls; the other one not before a person has decided."""

    def charge(call: int) -> str:
        return traffic.wire.fetch(f"/{CHARGE}?call={call}", "POST").decode()

    desk = Desk(traffic.engine, charge, traffic.stop)
    loop, script = asyncio.get_running_loop(), traffic.script
    traffic.story.append(f"{script.twice.name} is charged, by two calls with one key")
    traffic.charged = await loop.run_in_executor(pool, desk.charge_twice, script.twice)
    traffic.story.append(f"{script.stuck.name} cannot be charged: a person is asked")
    traffic.resolved = await loop.run_in_executor(pool, desk.ask_a_person, script.stuck)
