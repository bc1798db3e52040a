"""A POST that was answered with a redirect has been carried out, whatever became of the GET."""

import asyncio
import urllib.error
import urllib.request
from functools import partial

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3

import mainstay
from mainstay.integrations.httpx import Transport
from mainstay.testing import virtual_time
from tests.servers.http_faults import Close, Raw, Reset, Status, dead_port

KEY = {"Idempotency-Key": "order-7"}


def of_httpx(library, method, url, headers):
    with library.Client(follow_redirects=True) as client:
        return client.request(method, url, headers=headers).raise_for_status()


def of_httpx_async(library, method, url, headers):
    async def main():
        async with library.AsyncClient(follow_redirects=True) as client:
            return (await client.request(method, url, headers=headers)).raise_for_status()

    return asyncio.run(main())


by_httpx, by_httpx_async = partial(of_httpx, httpx), partial(of_httpx_async, httpx)
by_httpx2, by_httpx2_async = partial(of_httpx, httpx2), partial(of_httpx_async, httpx2)


def by_requests(method, url, headers):
    requests.request(method, url, headers=headers, timeout=30).raise_for_status()


def by_aiohttp(method, url, headers):
    async def main():
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.request(method, url, headers=headers) as answer,
        ):
            return await answer.read()

    return asyncio.run(main())


def by_urllib3(method, url, headers):
    retries = urllib3.Retry(3, connect=0, read=0, status=0, other=0)
    with urllib3.PoolManager(retries=retries) as pool:
        answer = pool.request(method, url, headers=headers)
        if answer.status >= 400:
            raise urllib3.exceptions.ProtocolError(answer.status)


def by_urllib(method, url, headers):
    asked = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        error.close()  # it has the connection
        raise


CLIENTS = [
    by_httpx,
    by_httpx_async,
    by_httpx2,
    by_httpx2_async,
    by_requests,
    by_aiohttp,
    by_urllib3,
    by_urllib,
]


def failure(send, *given):
    with virtual_time(), pytest.raises(Exception) as caught:
        mainstay.retry(on=mainstay.transient, attempts=3)(send)(*given)
    return caught.value


@pytest.mark.parametrize(
    ("send", "answer"),
    [
        *((send, answer) for send in CLIENTS for answer in (Reset(), Close())),
        *((send, Status(503)) for send in CLIENTS if send is not by_urllib3),  # it returns that
    ],
)
def test_a_post_that_was_redirected_is_not_sent_again(server, send, answer):
    """The GET may be repeated; the call as a whole would be a second order."""
    url = server.on("/orders", Status(303, {"Location": "/orders/7"}))
    server.on("/orders/7", answer)
    error = failure(send, "POST", url, {})
    assert server.count("/orders", "POST") == 1
    assert "the POST without an Idempotency-Key may have been carried out" in error.__notes__[0]


@pytest.mark.parametrize("send", CLIENTS)
def test_nor_is_it_if_it_leads_to_a_dead_port(server, send):
    """Nothing was sent there, but the POST before it was."""
    away = f"http://127.0.0.1:{dead_port()}/"
    url = server.on("/orders", Status(302 if send is not by_urllib3 else 303, {"Location": away}))
    failure(send, "POST", url, {})
    assert server.count("/orders", "POST") == 1


@pytest.mark.parametrize("send", CLIENTS)
def test_with_a_key_or_as_a_get_it_is(server, send):
    """Then the whole call may be made again."""
    url = server.on("/orders", Status(303, {"Location": "/orders/7"}))
    server.on("/orders/7", Reset())
    failure(send, "POST", url, KEY)
    failure(send, "GET", url, {})
    assert (server.count("/orders", "POST"), server.count("/orders", "GET")) == (3, 3)


@pytest.mark.parametrize("send", [by_httpx, by_httpx2, by_requests, by_aiohttp, by_urllib3])
def test_a_post_that_is_still_one_is_judged_by_its_own_answer(server, send):
    """307 keeps the method: the first place has done nothing, the second refuses."""
    url = server.on("/orders", Status(307, {"Location": "/elsewhere"}))
    server.on("/elsewhere", Status(503), Status(503), Status(200))
    if send is by_urllib3:
        server.on("/elsewhere", Status(200))
    with virtual_time():
        mainstay.retry(on=mainstay.transient, attempts=3)(send)("POST", url, {})
    assert server.count("/elsewhere", "POST") == (1 if send is by_urllib3 else 3)


def read_by_httpx(method, url, headers):
    with (
        httpx.Client(follow_redirects=True) as client,
        client.stream(method, url, headers=headers) as answer,
    ):
        return answer.read()


def read_by_httpx_async(method, url, headers):
    async def main():
        async with (
            httpx.AsyncClient(follow_redirects=True) as client,
            client.stream(method, url, headers=headers) as answer,
        ):
            return [each async for each in answer.aiter_bytes()]

    return asyncio.run(main())


def read_by_httpx2(method, url, headers):
    with (
        httpx2.Client(follow_redirects=True) as client,
        client.stream(method, url, headers=headers) as answer,
    ):
        return answer.read()


def by_transport(method, url, headers):
    """Below the redirects, one of ours."""
    transport = Transport(mainstay.RetryPolicy(attempts=1))
    with httpx.Client(transport=transport, follow_redirects=True) as client:
        return client.request(method, url, headers=headers).raise_for_status()


def read_by_requests(method, url, headers):
    with requests.request(method, url, headers=headers, timeout=30, stream=True) as answer:
        return answer.content


def read_by_urllib3(method, url, headers):
    retries = urllib3.Retry(3, connect=0, read=0, status=0, other=0)
    with urllib3.PoolManager(retries=retries) as pool:
        answer = pool.request(method, url, headers=headers, preload_content=False)
        return answer.read()


READERS = [read_by_httpx, read_by_httpx_async, read_by_httpx2, read_by_requests]
HALF = Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
WHOLE = [each for each in CLIENTS if each is not by_urllib]


READ = [
    (send, status)
    for send in (*WHOLE, by_transport, *READERS)
    for status in (302, 303)
    if (send, status) != (by_urllib3, 302)  # urllib3 sends the POST again after 302
]


@pytest.mark.parametrize(("send", "status"), READ)
def test_a_body_that_breaks_off_after_a_redirect(server, send, status):
    """The redirects are over then; the answer that is read has them, or what has called it."""
    url = server.on("/orders", Status(status, {"Location": "/orders/7"}))
    server.on("/orders/7", HALF)
    failure(send, "POST", url, {})
    assert (server.count("/orders", "POST"), server.count("/orders/7", "GET")) == (1, 1)


@pytest.mark.parametrize("send", [*WHOLE, by_transport, *READERS])
def test_with_a_key_or_as_a_get_a_body_that_breaks_off_is_asked_for_again(server, send):
    """The request that the redirects began with has the key."""
    url = server.on("/orders", Status(303, {"Location": "/orders/7"}))
    server.on("/orders/7", HALF)
    failure(send, "POST", url, KEY)
    failure(send, "GET", url, {})
    assert (server.count("/orders", "POST"), server.count("/orders", "GET")) == (3, 3)


@pytest.mark.parametrize("send", [*WHOLE, by_transport, *READERS, read_by_urllib3])
def test_a_post_whose_own_answer_breaks_off_is_not_sent_again(server, send):
    """Also if its body is read when the call is over."""
    failure(send, "POST", server.on("/orders", HALF), {})
    assert server.count("/orders", "POST") == 1
