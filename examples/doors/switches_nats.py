"""Sets a kill switch and asks a service to contain a host, with the names of the control plane.

NATS_URL=nats://... switches_nats.py SWITCH STATE HOST

The switch is a key of a JetStream bucket, the change is published to a stream, and a service is
asked on the subject `execution.contain`. Results by key are kept in JetStream too: the same
arguments once more change nothing. At the end the figures of each category are printed.
"""

import asyncio
import os
import sys

from mainstay.profiles.control_plane import (
    NatsClient,
    RetryCategory,
    RetryError,
    RetryManager,
    calculate_avg_attempts,
    calculate_success_rate,
)

URL = os.environ["NATS_URL"]


async def main(switch, state, host):
    manager = RetryManager(URL)
    client = NatsClient(manager, timeout=float(os.environ.get("NATS_TIMEOUT", "5")))
    key = manager.idempotency_manager.compute_idempotency_key(
        operation="kill_switch_update", additional_params={"switch": switch, "state": state}
    )
    try:
        await client.connect(URL)
        await client.create_stream("AUDIT", ["audit.>"])
        await client.kv_create("switches")
        await client.kv_put("switches", switch, state.encode(), idempotency_key=f"put-{key}")
        await client.publish("audit.append", f"{switch}={state}".encode(), idempotency_key=key)
        print(switch, (await client.kv_get("switches", switch)).decode())
        reply = await client.request(
            RetryCategory.EXECUTION_CONTAINMENT, "execution.contain", host.encode()
        )
        print(host, reply.decode())
    except RetryError as error:
        print(f"given up: {error}; the last failure: {error.__cause__!r}")
    for category in RetryCategory:
        events = manager.audit_stream.filter(retry_category=category.value)
        if (rate := calculate_success_rate(events)) is not None:
            mean = calculate_avg_attempts(events)
            print(f"{category.name}: {rate:.0%} succeeded, {mean:.1f} attempts on average")
    await client.close()
    manager.close()


asyncio.run(main(*sys.argv[1:]))
