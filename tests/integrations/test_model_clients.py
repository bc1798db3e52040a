"""The clients of openai and anthropic as they are, on httpx2, around a transport of ours."""

import asyncio
import importlib
import ssl
import warnings

import httpx2
import pytest

import mainstay
from mainstay import Backoff, RetryPolicy, deadline
from mainstay.integrations.httpx2 import AsyncTransport, Transport
from tests.processes import at_some_speed
from tests.servers.http_faults import Drip, HttpFaults, Silence, Status

TLS = ssl.create_default_context()
JSON = {"Content-Type": "application/json"}
EVENTS = {"Content-Type": "text/event-stream"}
DOWN = Status(503, JSON, b"{}")
THREE = RetryPolicy(attempts=3, backoff=Backoff.constant(0))


class OpenAI:
    """Completions of openai."""

    library = importlib.import_module("openai")
    path = "/chat/completions"
    whole = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "tea"}}]}'
    part = b'data: {"choices": [{"index": 0, "delta": {"content": "tea"}}]}\n\n'

    @staticmethod
    def asked(client, **options):
        messages = [{"role": "user", "content": "hi"}]
        return client.chat.completions.create(model="m", messages=messages, **options)

    @staticmethod
    def text(answer):
        return answer.choices[0].message.content


class Anthropic:
    """Messages of anthropic."""

    library = importlib.import_module("anthropic")
    path = "/v1/messages"
    whole = b'{"type": "message", "content": [{"type": "text", "text": "tea"}]}'
    part = (
        b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0,'
        b' "delta": {"type": "text_delta", "text": "tea"}}\n\n'
    )

    @staticmethod
    def asked(client, **options):
        messages = [{"role": "user", "content": "hi"}]
        return client.messages.create(model="m", max_tokens=9, messages=messages, **options)

    @staticmethod
    def text(answer):
        return answer.content[0].text


@pytest.fixture
def server():
    """A server of its own."""
    with HttpFaults() as running:
        yield running


@pytest.fixture(params=[OpenAI, Anthropic], ids=lambda model: model.__name__)
def model(request):
    """Each of the two."""
    return request.param


def client(model, server, retry=None, **options):
    """The client of a model with its own default client, around a transport of ours."""
    sends = httpx2.HTTPTransport(verify=TLS)
    http = model.library.DefaultHttpxClient(transport=Transport(retry, transport=sends, **options))
    make = getattr(model.library, model.__name__)
    return make(api_key="k", base_url=server.url, max_retries=0, http_client=http)


def async_client(model, server, retry=None):
    """The same, async."""
    sends = httpx2.AsyncHTTPTransport(verify=TLS)
    transport = AsyncTransport(retry, transport=sends)
    http = model.library.DefaultAsyncHttpxClient(transport=transport)
    make = getattr(model.library, f"Async{model.__name__}")
    return make(api_key="k", base_url=server.url, max_retries=0, http_client=http)


def test_the_policy_of_the_transport_repeats(server, model):
    """What was refused is asked again; the client sees the answer alone."""
    server.on(model.path, DOWN, Status(429, JSON, b"{}"), Status(200, JSON, model.whole))
    with client(model, server, THREE, trust=["127.0.0.1"]) as made:
        assert model.text(model.asked(made)) == "tea"
    assert [each.headers["mainstay-attempt"] for each in server.seen] == ["1", "2", "3"]

    async def main():
        async with async_client(model, server, THREE) as made:
            return model.text(await model.asked(made))

    server.on(model.path, DOWN, Status(200, JSON, model.whole))
    assert asyncio.run(main()) == "tea"
    assert server.count() == 5


@pytest.mark.parametrize("status", [500, 504])
def test_a_transport_repeats_a_lost_answer_only_with_a_key(server, model, status):
    """It sees a POST, and not that a completion only computes, which a retry around it knows."""
    server.on(model.path, Status(status, JSON, b"{}"), Status(200, JSON, model.whole))
    with client(model, server, THREE) as made:
        with pytest.raises(model.library.InternalServerError):
            model.asked(made)
        server.on(model.path, Status(status, JSON, b"{}"), Status(200, JSON, model.whole))
        keyed = model.asked(made, extra_headers={"Idempotency-Key": "order-7"})
        assert model.text(keyed) == "tea"
        assert server.count() == 3
    server.on(model.path, Status(status, JSON, b"{}"), Status(200, JSON, model.whole))
    with client(model, server) as made:
        assert model.text(THREE.call(model.asked, made)) == "tea"


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    "fault", [Silence(), Drip(every=0.03), Drip(every=0.03, after=70)],
    ids=["no answer", "slow headers", "a byte at a time"],
)  # fmt: skip
def test_the_deadline_ends_a_request_whatever_the_service_does(server, model, fault, is_async):
    """Without a policy too; the timeout of the clients is ten minutes for one read."""
    server.on(model.path, fault)

    async def main():
        async with async_client(model, server) as made:
            await model.asked(made)

    def check(seconds):
        timeouts = (model.library.APITimeoutError, httpx2.ReadTimeout)
        with deadline.within(seconds), pytest.raises(timeouts):
            if is_async:
                asyncio.run(main())
            with client(model, server) as made:
                model.asked(made)

    at_some_speed(check, 0.3, 2.0, 10.0)


def test_a_stream_is_read_by_the_caller_and_ends_at_the_deadline(server, model):
    """Attempts until it begins; then the deadline, though each event comes in time."""
    events = Status(200, EVENTS, model.part * 300)
    begun = len(events.written()) - 299 * len(model.part)
    server.on(model.path, DOWN, Drip(0.02, events, after=begun))
    got = []
    with (
        client(model, server, THREE) as made,
        deadline.within(3.0),
        pytest.raises((model.library.APITimeoutError, httpx2.ReadTimeout)),
    ):
        for event in model.asked(made, stream=True):
            assert "tea" in repr(event)
            got.append(event)
    assert 0 < len(got) < 300
    assert server.count() == 2


def test_a_retry_around_the_client_stands_back(server, model):
    """Three requests, not nine: the mark of the transport is on the response of the error."""
    server.on(model.path, DOWN)
    failed = model.library.InternalServerError
    with (
        client(model, server, THREE) as made,
        warnings.catch_warnings(),
        pytest.raises(failed) as caught,
    ):
        warnings.simplefilter("ignore", mainstay.NestedRetryWarning)
        THREE.call(model.asked, made)
    assert server.count() == 3
    assert mainstay.gave_up_headers(caught.value) == {"Mainstay-Gave-Up": "3"}


def test_anthropic_takes_no_transport_of_the_older_library():
    """It states so itself; ours is not asked."""
    older = importlib.import_module("mainstay.integrations.httpx")
    with pytest.raises(TypeError, match="httpx"):
        Anthropic.library.DefaultHttpxClient(transport=older.Transport())
