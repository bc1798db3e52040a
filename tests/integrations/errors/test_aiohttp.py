"""aiohttp against a server that fails."""

import aiohttp

from tests.integrations.errors.http_contract import PATIENT, HttpContract


class TestAiohttp(HttpContract):
    library, base, status_error = "aiohttp", aiohttp.ClientError, aiohttp.ClientResponseError
    shows_request = False
    each_get = 2

    @staticmethod
    async def send(method, url, headers, timeout=PATIENT):  # noqa: ASYNC109 -- the client's own
        limits = aiohttp.ClientTimeout(sock_connect=timeout, sock_read=timeout)
        async with (
            aiohttp.ClientSession(timeout=limits, raise_for_status=True) as session,
            session.request(method, url, headers=headers) as answer,
        ):
            return await answer.read()
