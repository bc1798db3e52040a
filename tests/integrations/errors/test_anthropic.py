"""anthropic: what the real client raises is known, and repeated only where that is worth it.

The server is a local one. Its bodies are those of the pages "Errors", "Rate limits" and "Streaming
messages" of the Claude API's documentation (docs.claude.com/en/api/errors, .../rate-limits).
"""

import asyncio
import importlib
from collections import Counter

import pytest

import mainstay
from mainstay.core.known.http import kind_of_status
from mainstay.core.known.kind import Kind
from mainstay.core.retry.classify import Rules, classify
from mainstay.core.retry.kinds import kind_of
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

anthropic = pytest.importorskip("anthropic")

SAID = answer(
    200,
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "a-model",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
)
ASK = {
    "model": "a-model",
    "max_tokens": 99,
    "messages": [{"role": "user", "content": "hi"}],
}


def failed(status, type_, code=None, **headers):
    """An error as the service writes it."""
    error = {"type": type_, "message": "no"}
    if code is not None:
        error["details"] = {"error_code": code}
    return answer(status, {"type": "error", "error": error, "request_id": "req_1"}, **headers)


@pytest.fixture(scope="module")
def server():
    """One for the module."""
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def client(server):
    """A client that repeats nothing itself."""
    with anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0, timeout=60) as client:
        yield client


def ask(client):
    """One message, with up to three attempts."""

    @mainstay.retry(on=mainstay.transient, attempts=3)
    def complete():
        return client.messages.create(**ASK).content[0].text

    with virtual_time():
        return complete()


REQUEST, CONFLICT = "invalid_request_error", "conflict_error"
STATUSES = [
    # answer, class, kind, requests
    (failed(400, REQUEST), "BadRequestError", Kind.PERMANENT, 1),
    (failed(400, REQUEST, "external_key_validation_timed_out"), "", Kind.TIMEOUT, 3),
    (failed(400, REQUEST, "thread_already_continued"), "", Kind.PERMANENT, 1),
    (failed(401, "authentication_error"), "AuthenticationError", Kind.AUTH, 1),
    (failed(402, "billing_error"), "APIStatusError", Kind.PERMANENT, 1),
    (failed(403, "permission_error"), "PermissionDeniedError", Kind.AUTH, 1),
    (failed(404, "not_found_error"), "NotFoundError", Kind.PERMANENT, 1),
    (answer(407, "<html>"), "APIStatusError", Kind.AUTH, 1),
    (answer(425, "too early"), "APIStatusError", Kind.TRANSIENT, 3),
    (failed(501, "api_error"), "HTTPNotImplementedError", Kind.PERMANENT, 1),
    (failed(408, REQUEST), "RequestTimeoutError", Kind.TIMEOUT, 3),
    (failed(409, CONFLICT), "ConflictError", Kind.TRANSIENT, 3),
    (failed(409, CONFLICT, "concurrent_membership_change"), "", Kind.TRANSIENT, 3),
    (failed(409, CONFLICT, "plugin_name_taken"), "", Kind.PERMANENT, 1),
    (failed(409, CONFLICT, "skill_name_taken"), "", Kind.PERMANENT, 1),
    (failed(409, CONFLICT, "skill_read_blocked_undecryptable"), "", Kind.PERMANENT, 1),
    (failed(409, CONFLICT, "slack_channel_set_up_settings_conflict"), "", Kind.PERMANENT, 1),
    (failed(413, "request_too_large"), "ContentTooLargeError", Kind.PERMANENT, 1),
    (failed(422, REQUEST), "UnprocessableEntityError", Kind.PERMANENT, 1),
    (failed(429, "rate_limit_error"), "RateLimitError", Kind.THROTTLED, 3),
    (failed(429, "rate_limit_error", "ramp_limit_exceeded"), "", Kind.THROTTLED, 3),
    (failed(429, "rate_limit_error", "enforced_spend_limit_reached"), "", Kind.PERMANENT, 1),
    (
        failed(429, "rate_limit_error", x_should_retry="false"),
        "RateLimitError",
        Kind.PERMANENT,
        1,
    ),
    (failed(500, "api_error"), "InternalServerError", Kind.TRANSIENT, 3),
    (failed(502, "api_error"), "InternalServerError", Kind.TRANSIENT, 3),
    (failed(503, "overloaded_error"), "ServiceUnavailableError", Kind.OVERLOAD, 3),
    (failed(503, "api_error", "registration_pending"), "", Kind.OVERLOAD, 3),
    (failed(504, "timeout_error"), "GatewayTimeoutError", Kind.TIMEOUT, 3),
    (failed(500, "overloaded_error"), "InternalServerError", Kind.OVERLOAD, 3),
    (failed(529, "overloaded_error"), "OverloadedError", Kind.OVERLOAD, 3),
    (failed(529, "overloaded_error", "compaction_unavailable"), "", Kind.OVERLOAD, 3),
    (answer(529, "<html>"), "OverloadedError", Kind.OVERLOAD, 3),
    (answer(503, "<html>"), "InternalServerError", Kind.OVERLOAD, 3),
    (answer(520, "<html>"), "InternalServerError", Kind.TRANSIENT, 3),
    (answer(521, "<html>"), "InternalServerError", Kind.TRANSIENT, 3),
    (answer(522, "<html>"), "InternalServerError", Kind.TIMEOUT, 3),
    (answer(523, "<html>"), "InternalServerError", Kind.TRANSIENT, 3),
    (answer(524, "<html>"), "InternalServerError", Kind.TIMEOUT, 3),
]


@pytest.mark.parametrize(
    ("given", "name", "kind", "requests"),
    STATUSES,
    ids=[f"{given[0]}-{number}" for number, (given, *_) in enumerate(STATUSES)],
)
def test_an_answer_is_judged_by_its_code_its_status_and_its_type(
    client, server, given, name, kind, requests
):
    """A failure is of the kind that the service documents, and repeated if that can help."""
    server.begin(given)
    with pytest.raises(getattr(anthropic, name or "APIStatusError")) as caught:
        ask(client)
    known = kind_of(caught.value)
    assert (known.kind, known.table) == (kind, "anthropic")
    assert len(server.requests) == requests
    is_lost = given[0] in (500, 502, 504, 520, 524) and kind in (Kind.TRANSIENT, Kind.TIMEOUT)
    assert known.is_ambiguous is (is_lost or "registration_pending" in str(given))


@pytest.mark.parametrize("given", [RESET, CLOSED, SILENCE])
def test_a_message_whose_answer_was_lost_is_asked_for_again(client, server, given):
    """The POST changes nothing at the service; what it costs, it may cost twice."""
    server.begin(given, given, given)
    if given == SILENCE:
        client = client.with_options(timeout=0.2)
    error = anthropic.APITimeoutError if given == SILENCE else anthropic.APIConnectionError
    with pytest.raises(error) as caught:
        ask(client)
    known = kind_of(caught.value)
    assert known.kind is (Kind.TIMEOUT if given == SILENCE else Kind.TRANSIENT)
    assert (known.is_ambiguous, known.unsafe) == (True, "")
    wait_until(lambda: len(server.requests) == 3, "the requests")


def test_a_get_is_repeated_after_a_reset(client, server):
    """Reading changes nothing."""
    empty = {"data": [], "has_more": False, "first_id": None, "last_id": None}
    server.begin(RESET, failed(500, "api_error"), answer(200, empty))
    with virtual_time():
        assert mainstay.retry(on=mainstay.transient, attempts=3)(client.models.list)().data == []
    assert len(server.requests) == 3


def test_a_dead_port_is_tried_again():
    """Nothing was sent, so a POST can be repeated as well."""
    url, tries = f"http://127.0.0.1:{free_port()}", Counter()
    client = anthropic.Anthropic(api_key="k", base_url=url, max_retries=0)

    @mainstay.retry(on=mainstay.transient, attempts=3)
    def complete():
        tries["made"] += 1
        client.messages.create(**ASK)

    with virtual_time(), pytest.raises(anthropic.APIConnectionError) as caught:
        complete()
    known = kind_of(caught.value)
    assert (known.kind, known.is_ambiguous, tries["made"]) == (Kind.TRANSIENT, False, 3)


EVENT = 'event: error\ndata: {"type": "error", "error": {"type": "%s", "message": "m"}}\n\n'


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("overloaded_error", Kind.OVERLOAD),
        ("api_error", Kind.TRANSIENT),
        ("timeout_error", Kind.TIMEOUT),
        ("rate_limit_error", Kind.THROTTLED),
        ("invalid_request_error", Kind.PERMANENT),
        ("not_found_error", Kind.PERMANENT),
        ("request_too_large", Kind.PERMANENT),
        ("billing_error", Kind.PERMANENT),
        ("authentication_error", Kind.AUTH),
        ("permission_error", Kind.AUTH),
        ("a_type_of_tomorrow", Kind.UNKNOWN),
    ],
)
def test_an_error_inside_a_stream_is_known_by_its_type(client, server, type_, kind):
    """The status of a stream was 200 long before."""
    server.begin(answer(200, EVENT % type_))
    with pytest.raises(anthropic.APIStatusError) as caught:
        list(client.messages.create(**ASK, stream=True))
    assert caught.value.status_code == 200 or type_ != "overloaded_error"
    assert kind_of(caught.value).kind is kind


RESETS = {
    "Date": "Sun, 06 Nov 1994 08:49:27 GMT",
    "anthropic_ratelimit_requests_remaining": "0",
    "anthropic_ratelimit_requests_reset": "1994-11-06T08:49:37Z",
    "anthropic_ratelimit_input_tokens_remaining": "0",
    "anthropic_ratelimit_input_tokens_reset": "1994-11-06T08:50:00Z",
    "anthropic_ratelimit_output_tokens_remaining": "8000",
    "anthropic_ratelimit_output_tokens_reset": "1994-11-06T09:00:00Z",
}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({**RESETS, "Retry_After": "7"}, 7.0),
        ({"Retry_After": "Sun, 06 Nov 1994 08:49:37 GMT", "Date": RESETS["Date"]}, 10.0),
        ({"retry_after_ms": "250"}, 0.25),
        (RESETS, 33.0),
        ({}, None),
    ],
)
def test_a_rate_limit_is_waited_for_as_long_as_the_service_asks(client, server, headers, seconds):
    """Retry-After, retry-after-ms, and the latest reset of the limits that are used up."""
    server.begin(failed(429, "rate_limit_error", **headers))
    with pytest.raises(anthropic.RateLimitError) as caught:
        client.messages.create(**ASK)
    hint = classify(caught.value, Rules()).hint
    assert (hint and hint.seconds) == (seconds and pytest.approx(seconds))


def test_other_failures_have_no_hint_of_a_limit(client, server):
    """The headers of a limit come with every answer; they are no wait for an overload."""
    server.begin(failed(529, "overloaded_error", **RESETS))
    with pytest.raises(anthropic.OverloadedError) as caught:
        client.messages.create(**ASK)
    assert classify(caught.value, Rules()).hint is None


def test_the_clients_own_retries_multiply_ours(server):
    """Two of its own for each attempt of ours: nine requests in place of three."""
    server.begin(failed(529, "overloaded_error"))
    with (
        anthropic.Anthropic(api_key="k", base_url=server.url) as client,
        pytest.raises(anthropic.OverloadedError),
    ):
        ask(client)
    assert len(server.requests) == 9


def test_the_async_client_raises_the_same_classes(server):
    """One table for both."""
    server.begin(failed(429, "rate_limit_error"), failed(529, "overloaded_error"), SAID)

    @mainstay.retry(on=mainstay.transient, attempts=3)
    async def complete():
        url = server.url
        async with anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0) as client:
            return await client.messages.create(**ASK)

    with virtual_time():
        assert asyncio.run(complete()).id == "msg_1"
    assert len(server.requests) == 3


def test_an_error_of_a_version_without_types_is_read_from_its_body():
    """The first versions had the body alone; raised here as they did."""
    error = anthropic.APIStatusError.__new__(anthropic.APIStatusError)
    error.body = {"type": "error", "error": {"type": "overloaded_error"}}
    assert kind_of(error).kind is Kind.OVERLOAD
    error.body = "no JSON"
    assert kind_of(error).kind is Kind.UNKNOWN


def test_middleware_that_asks_to_repeat_is_judged_by_its_cause():
    """`RetryableError` is raised by the program; what it wraps is more precise."""
    error = anthropic.RetryableError("again")
    assert kind_of(error).kind is Kind.TRANSIENT
    error.__cause__ = TimeoutError()
    assert kind_of(error).kind is Kind.TIMEOUT


def test_credentials_that_cannot_be_had_are_an_authentication_failure(tmp_path):
    """The file of the token is missing; nothing was sent."""
    from anthropic.lib.credentials import IdentityTokenFile

    with pytest.raises(anthropic.IdentityTokenFileError) as caught:
        IdentityTokenFile(str(tmp_path / "none"))()
    assert kind_of(caught.value).kind is Kind.AUTH


@pytest.mark.parametrize(
    ("status", "kind"), [(503, Kind.OVERLOAD), (401, Kind.AUTH), (None, Kind.AUTH)]
)
def test_an_exchange_of_tokens_is_judged_by_its_status(status, kind):
    """Made here as the client does it."""
    from anthropic.lib.credentials._workload import WorkloadIdentityError

    assert kind_of(WorkloadIdentityError("no", status_code=status)).kind is kind


def test_an_answer_that_is_no_answer_is_final(client, server):
    """The next one would be the same."""
    server.begin(answer(200, {"data": 7}))
    strict = client.with_options(_extra_kwargs={"_strict_response_validation": True})
    with pytest.raises(anthropic.APIResponseValidationError) as caught:
        strict.models.list()
    assert kind_of(caught.value).kind is Kind.PERMANENT


def test_the_recipe_runs(server, monkeypatch):
    """The code of the page makes a call through a busy service."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    server.begin(
        failed(429, "rate_limit_error", retry_after_ms="5"), failed(529, "overloaded_error"), SAID
    )
    assert run_recipe("anthropic")["text"] == "hello"
    assert len(server.requests) == 3


def test_what_changes_something_at_the_service_is_not_asked_for_again(client, server):
    """A batch may have been created before the answer was lost."""
    server.begin(RESET, RESET)

    @mainstay.retry(on=mainstay.transient, attempts=2)
    def begin_batch():
        client.messages.batches.create(requests=[])

    with virtual_time(), pytest.raises(anthropic.APIConnectionError) as caught:
        begin_batch()
    assert kind_of(caught.value).unsafe == "POST without an Idempotency-Key"
    assert len(server.requests) == 1


def exchanging(url, token="t"):
    """Exchanges a token of the workload for one of the service."""
    workload = importlib.import_module("anthropic.lib.credentials._workload")
    credentials = workload.WorkloadIdentityCredentials(
        identity_token_provider=lambda: token, federation_rule_id="r", organization_id="o"
    )
    credentials.bind_base_url(url)
    with credentials, pytest.raises(workload.WorkloadIdentityError) as caught:
        credentials()
    return kind_of(caught.value)


@pytest.mark.parametrize("status", [401, 403, 407, 408, 425, 429, 500, 502, 503, 504, 418, 501])
def test_a_token_that_is_not_exchanged_is_judged_by_the_status(server, status):
    """The service answers the exchange with an error."""
    server.begin(answer(status, {"error": "no"}))
    assert exchanging(server.url).kind is kind_of_status(status)
    assert len(server.requests) == 1


def test_a_token_that_is_not_sent():
    """Nothing listens, or it is no token."""
    assert exchanging(f"http://127.0.0.1:{free_port()}").kind is Kind.TRANSIENT
    assert exchanging("http://127.0.0.1:1", "x" * 100_000).kind is Kind.AUTH
