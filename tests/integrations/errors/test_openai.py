"""openai: what the real client raises is known, and repeated only where that is worth it.

The server is a local one. Its bodies are those of OpenAI's guides "Error codes" and "Rate limits"
and of the API reference (platform.openai.com/docs/guides/error-codes, .../guides/rate-limits).
"""

import asyncio
import importlib
from types import SimpleNamespace

import pytest

import mainstay
from mainstay.core.known.kind import Kind
from mainstay.core.retry.classify import Rules, classify
from mainstay.core.retry.kinds import kind_of
from mainstay.integrations.errors.openai import TABLE
from mainstay.testing import virtual_time
from tests.integrations.errors.model_server import (
    CLOSED,
    RESET,
    SILENCE,
    ModelServer,
    answer,
    free_port,
)
from tests.integrations.errors.recipe import run_recipe
from tests.processes import wait_until

openai = pytest.importorskip("openai")

SAID = answer(
    200,
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "a-model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello"},
                "finish_reason": "stop",
            }
        ],
    },
)
ASK = {"model": "a-model", "messages": [{"role": "user", "content": "hi"}]}


def failed(status, code=None, type_="invalid_request_error", **headers):
    """An error as the service writes it."""
    error = {"message": "no", "type": type_, "param": None, "code": code}
    return answer(status, {"error": error}, **headers)


@pytest.fixture(scope="module")
def server():
    """One for the module."""
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def client(server):
    """A client that repeats nothing itself."""
    with openai.OpenAI(api_key="k", base_url=server.url, max_retries=0, timeout=60) as client:
        yield client


def ask(client, **more):
    """One completion, with up to three attempts."""

    @mainstay.retry(on=mainstay.transient, attempts=3)
    def complete():
        return client.chat.completions.create(**ASK, **more).choices[0].message.content

    with virtual_time():
        return complete()


STATUSES = [
    # answer, class, kind, requests
    (failed(400, "context_length_exceeded"), "BadRequestError", Kind.PERMANENT, 1),
    (failed(400, "content_policy_violation"), "BadRequestError", Kind.PERMANENT, 1),
    (failed(400, "string_above_max_length"), "BadRequestError", Kind.PERMANENT, 1),
    (failed(400, "billing_hard_limit_reached"), "BadRequestError", Kind.PERMANENT, 1),
    (failed(401, "invalid_api_key"), "AuthenticationError", Kind.AUTH, 1),
    (failed(403, "unsupported_country_region_territory"), "PermissionDeniedError", Kind.AUTH, 1),
    (failed(404, "model_not_found"), "NotFoundError", Kind.PERMANENT, 1),
    (answer(407, "<html>"), "APIStatusError", Kind.AUTH, 1),
    (failed(408), "APIStatusError", Kind.TIMEOUT, 3),
    (answer(425, "too early"), "APIStatusError", Kind.TRANSIENT, 3),
    (failed(501), "InternalServerError", Kind.PERMANENT, 1),
    (failed(409), "ConflictError", Kind.TRANSIENT, 3),
    (failed(422), "UnprocessableEntityError", Kind.PERMANENT, 1),
    (failed(429, "rate_limit_exceeded", "tokens"), "RateLimitError", Kind.THROTTLED, 3),
    (failed(429, "slow_down"), "RateLimitError", Kind.THROTTLED, 3),
    (failed(429, "insufficient_quota", "insufficient_quota"), "RateLimitError", Kind.PERMANENT, 1),
    (failed(429, None, "insufficient_quota"), "RateLimitError", Kind.PERMANENT, 1),
    (failed(429, "billing_not_active"), "RateLimitError", Kind.PERMANENT, 1),
    (failed(429, x_should_retry="false"), "RateLimitError", Kind.PERMANENT, 1),
    (failed(401, x_should_retry="false"), "AuthenticationError", Kind.AUTH, 1),
    (failed(503, "engine_overloaded"), "InternalServerError", Kind.OVERLOAD, 3),
    (failed(500, "server_is_overloaded"), "InternalServerError", Kind.OVERLOAD, 3),
    (answer(503, "no JSON at all"), "InternalServerError", Kind.OVERLOAD, 3),
    (failed(500, None, "server_error"), "InternalServerError", Kind.TRANSIENT, 3),
    (failed(502), "InternalServerError", Kind.TRANSIENT, 3),
    (failed(504), "InternalServerError", Kind.TIMEOUT, 3),
    (answer(520, "<html>"), "InternalServerError", Kind.TRANSIENT, 3),
    (answer(521, "<html>"), "InternalServerError", Kind.TRANSIENT, 3),
    (answer(522, "<html>"), "InternalServerError", Kind.TIMEOUT, 3),
    (answer(523, "<html>"), "InternalServerError", Kind.TRANSIENT, 3),
    (answer(524, "<html>"), "InternalServerError", Kind.TIMEOUT, 3),
    (failed(529), "InternalServerError", Kind.OVERLOAD, 3),
]


@pytest.mark.parametrize(
    ("given", "name", "kind", "requests"),
    STATUSES,
    ids=[f"{given[0]}-{given[1][-60:-1]}" for given, *_ in STATUSES],
)
def test_an_answer_is_judged_by_its_code_and_its_status(
    client, server, given, name, kind, requests
):
    """A failure is of the kind that the service documents, and repeated if that can help."""
    server.begin(given)
    with pytest.raises(getattr(openai, name)) as caught:
        ask(client)
    known = kind_of(caught.value)
    assert (known.kind, known.table) == (kind, "openai")
    assert len(server.requests) == requests
    is_lost = given[0] in (500, 502, 504, 520, 524) and kind in (Kind.TRANSIENT, Kind.TIMEOUT)
    assert known.is_ambiguous is (is_lost or "registration_pending" in str(given))


@pytest.mark.parametrize("given", [RESET, CLOSED, SILENCE])
def test_a_completion_whose_answer_was_lost_is_asked_for_again(client, server, given):
    """The POST changes nothing at the service; what it costs, it may cost twice."""
    server.begin(given, given, given)
    if given == SILENCE:
        client = client.with_options(timeout=0.2)
    error = openai.APITimeoutError if given == SILENCE else openai.APIConnectionError
    with pytest.raises(error) as caught:
        ask(client)
    known = kind_of(caught.value)
    assert known.kind is (Kind.TIMEOUT if given == SILENCE else Kind.TRANSIENT)
    assert (known.is_ambiguous, known.unsafe) == (True, "")
    wait_until(lambda: len(server.requests) == 3, "the requests")


def test_a_rule_that_names_what_was_lost_repeats_it(client, server):
    """A program that would rather pay twice than not at all can do so."""
    on = (openai.APITimeoutError, openai.APIConnectionError, "status:500", *mainstay.transient)

    @mainstay.retry(on=on, attempts=4)
    def complete():
        hasty = client.with_options(timeout=60 if server.requests else 0.3)
        return hasty.chat.completions.create(**ASK).choices[0].message.content

    server.begin(SILENCE, RESET, failed(500), SAID)
    with virtual_time():
        assert complete() == "hello"
    assert len(server.requests) == 4


def test_a_get_is_repeated_after_a_reset(client, server):
    """Reading changes nothing."""
    server.begin(RESET, failed(500), answer(200, {"object": "list", "data": []}))

    with virtual_time():
        found = mainstay.retry(on=mainstay.transient, attempts=3)(client.models.list)()
    assert found.data == []
    assert len(server.requests) == 3


def test_a_dead_port_is_tried_again(server):
    """Nothing was sent, so a POST can be repeated as well."""
    client = openai.OpenAI(api_key="k", base_url=f"http://127.0.0.1:{free_port()}", max_retries=0)
    tries = []

    @mainstay.retry(on=mainstay.transient, attempts=3)
    def complete():
        tries.append(1)
        client.chat.completions.create(**ASK)

    with virtual_time(), pytest.raises(openai.APIConnectionError) as caught:
        complete()
    known = kind_of(caught.value)
    assert (known.kind, known.is_ambiguous, len(tries)) == (Kind.TRANSIENT, False, 3)


def test_an_error_inside_a_stream_is_known_by_its_code(client, server):
    """The status of a stream was 200 long before."""
    event = (
        'event: error\ndata: {"error": {"message": "m", "type": "server_error", "code": %s}}\n\n'
    )
    server.begin(answer(200, event % '"server_is_overloaded"'))
    stream = client.chat.completions.create(**ASK, stream=True)
    with pytest.raises(openai.APIError) as caught:
        list(stream)
    assert type(caught.value) is openai.APIError
    assert kind_of(caught.value).kind is Kind.OVERLOAD
    server.begin(answer(200, event % "null"))
    with pytest.raises(openai.APIError) as caught:
        list(client.chat.completions.create(**ASK, stream=True))
    assert kind_of(caught.value).kind is Kind.TRANSIENT
    server.begin(answer(200, event.replace("server_error", "of_tomorrow") % "null"))
    with pytest.raises(openai.APIError) as caught:
        list(client.chat.completions.create(**ASK, stream=True))
    assert kind_of(caught.value).kind is Kind.UNKNOWN


LIMITS = {"x_ratelimit_remaining_requests": "0", "x_ratelimit_remaining_tokens": "0"}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry_After": "7"}, 7.0),
        (
            {
                "Retry_After": "Sun, 06 Nov 1994 08:49:37 GMT",
                "Date": "Sun, 06 Nov 1994 08:49:28 GMT",
            },
            9.0,
        ),
        ({"retry_after_ms": "250"}, 0.25),
        ({**LIMITS, "x_ratelimit_reset_requests": "1m2s", "x_ratelimit_reset_tokens": "9ms"}, 62.0),
        ({"x_ratelimit_remaining_tokens": "1", "x_ratelimit_reset_tokens": "6m0s"}, None),
        ({**LIMITS, "x_ratelimit_reset_requests": "soon"}, None),
    ],
)
def test_a_rate_limit_is_waited_for_as_long_as_the_service_asks(client, server, headers, seconds):
    """Retry-After, retry-after-ms, and the reset of a limit of which nothing remains."""
    server.begin(failed(429, "rate_limit_exceeded", **headers))
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(**ASK)
    hint = classify(caught.value, Rules()).hint
    assert (hint and hint.seconds) == (seconds and pytest.approx(seconds))


def test_the_wait_that_was_asked_for_is_made(client, server):
    """The next request is made after the time that the answer named, and not before."""
    server.begin(failed(429, retry_after_ms="50000"), SAID)
    policy = mainstay.RetryPolicy(retry_on=mainstay.transient)
    with virtual_time() as time:
        policy.call(client.chat.completions.create, **ASK)
    assert time.elapsed >= 50.0
    assert len(server.requests) == 2


def test_the_clients_own_retries_multiply_ours(server):
    """Two of its own for each attempt of ours: nine requests in place of three."""
    server.begin(failed(503))
    with (
        openai.OpenAI(api_key="k", base_url=server.url) as client,
        pytest.raises(openai.InternalServerError),
    ):
        ask(client)
    assert len(server.requests) == 9
    assert "3 requests" in TABLE.retries


def test_the_async_client_raises_the_same_classes(server):
    """One table for both."""
    server.begin(failed(429), failed(503), SAID)

    @mainstay.retry(on=mainstay.transient, attempts=3)
    async def complete():
        async with openai.AsyncOpenAI(api_key="k", base_url=server.url, max_retries=0) as client:
            return await client.chat.completions.create(**ASK)

    with virtual_time():
        assert asyncio.run(complete()).id == "chatcmpl-1"
    assert len(server.requests) == 3


def test_a_timeout_of_connecting_is_not_ambiguous():
    """The client raises one class for all timeouts; what it wraps is more precise.

    Raised here as the client does it: no local server refuses a connection in silence.
    """
    error = openai.APITimeoutError(request=None)
    error.__cause__ = pytest.importorskip("httpx2").ConnectTimeout("late")
    assert (kind_of(error).kind, kind_of(error).is_ambiguous) == (Kind.TIMEOUT, False)
    error.__cause__ = None
    assert kind_of(error).is_ambiguous


def test_an_exception_of_another_shape_is_unknown():
    """A subclass that sets nothing is no failure of ours."""
    assert kind_of(openai.APIStatusError.__new__(openai.APIStatusError)).kind is Kind.UNKNOWN
    assert classify(openai.RateLimitError.__new__(openai.RateLimitError), Rules()).hint is None
    blank = openai.APIStatusError.__new__(openai.APIStatusError)
    blank.response = SimpleNamespace(headers=None)
    assert classify(blank, Rules()).hint is None


def finished(reason):
    """A completion that ended for some reason."""
    status, text, headers = SAID
    return status, text.replace('"stop"', f'"{reason}"'), headers


def test_what_the_client_refuses_itself_is_final(server, client, monkeypatch, tmp_path):
    """No key, an interface of before, an answer that is no answer, a message of a stranger."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    raised = []

    def expect(error, function, *arguments, **options):
        with pytest.raises(error) as caught:
            function(*arguments, **options)
        raised.append(kind_of(caught.value).kind)

    expect(openai.OpenAIError, openai.OpenAI)
    expect(openai.OpenAIError, openai.ChatCompletion.create)
    for reason in ("length", "content_filter"):
        server.begin(finished(reason))
        expect(openai.OpenAIError, client.chat.completions.parse, **ASK)
    server.begin(answer(200, {"object": 7, "data": "none"}))
    strict = client.with_options(_extra_kwargs={"_strict_response_validation": True})
    expect(openai.APIResponseValidationError, strict.models.list)
    sent = {"webhook-id": "1", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
    verify = client.webhooks.verify_signature
    expect(ValueError, verify, "{}", sent, secret="whsec_AAAA")
    token = openai.auth.k8s_service_account_token_provider(str(tmp_path / "none"))
    expect(openai.OpenAIError, token["get_token"])
    assert raised == [Kind.PERMANENT] * len(raised)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("openai.WebSocketConnectionClosedError", Kind.TRANSIENT),
        ("openai.WebSocketQueueFullError", Kind.OVERLOAD),
        ("openai._response.StreamAlreadyConsumed", Kind.PERMANENT),
        ("openai.lib.browser.BrowserError", Kind.PERMANENT),
        ("openai.lib.computer.ComputerUseError", Kind.UNKNOWN),
    ],
)
def test_what_no_server_here_brings_about_is_known_as_well(name, kind):
    """Made here, without what the client puts into it."""
    module, _, attribute = name.rpartition(".")
    cls = getattr(importlib.import_module(module), attribute)
    assert kind_of(cls.__new__(cls)).kind is kind


def test_the_recipe_runs(server, monkeypatch):
    """The code of the page makes a call through a busy service."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    server.begin(failed(429, retry_after_ms="5"), failed(503), SAID)
    assert run_recipe("openai")["text"] == "hello"
    assert len(server.requests) == 3


def test_what_changes_something_at_the_service_is_not_asked_for_again(client, server):
    """A batch may have been created before the answer was lost."""
    server.begin(RESET, RESET)

    @mainstay.retry(on=mainstay.transient, attempts=2)
    def begin_batch():
        client.batches.create(completion_window="24h", endpoint="/v1/embeddings", input_file_id="f")

    with virtual_time(), pytest.raises(openai.APIConnectionError) as caught:
        begin_batch()
    assert kind_of(caught.value).unsafe == "POST without an Idempotency-Key"
    assert len(server.requests) == 1
