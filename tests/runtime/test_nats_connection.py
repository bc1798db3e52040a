"""One connection to a NATS server: whoever waits for an answer learns that none will come."""

import asyncio
from urllib.parse import urlsplit

import pytest

pytest.importorskip("nats")

from mainstay.runtime.nats.connection import LostError, NatsConnection
from mainstay.stores.nats.url import NatsUrl
from mainstay.testing import FaultProxy


@pytest.fixture
def proxy(nats_url):
    parts = urlsplit(nats_url)
    with FaultProxy(parts.hostname, parts.port) as proxy:
        yield proxy


@pytest.mark.parametrize("fault", ["reset", "refuse"])
@pytest.mark.parametrize("pending", [b"", b"PING\r\n"], ids=["idle", "about to write"])
def test_a_lost_connection_ends_every_wait(nats_url, proxy, fault, pending):
    """Also if nats-py has something to write: it fails to, and then does not call back."""

    async def main():
        connection = NatsConnection(NatsUrl(f"{proxy.url(nats_url)}?timeout=3600"))
        await connection.open()
        proxy.black_hole()
        asked = asyncio.create_task(connection.ask("$JS.API.INFO"))
        while connection.client.pending_data_size or not connection._awaited:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        if pending:
            connection.client._pending.append(pending)
            connection.client._pending_data_size += len(pending)
        getattr(proxy, fault)()
        try:
            with pytest.raises(LostError):
                await asyncio.wait_for(asked, 60.0)
            assert connection.is_lost
        finally:
            await connection.close()

    asyncio.run(main())
