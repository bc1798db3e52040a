"""The client front door: presets, the decorators, what they retry, and what became of a call."""

import asyncio
import inspect
from collections import Counter

import pytest

from mainstay import Jitter, PolicyError
from mainstay.profiles.clients import (
    CircuitBreaker,
    CircuitBreakerConfiguration,
    CircuitOpenException,
    CircuitState,
    RetryConfiguration,
    RetryDecorator,
    RetryPresets,
    RetryResult,
    with_api_retry,
    with_s3_retry,
)
from mainstay.testing import scripted, virtual_time


class Busy(Exception):
    """An error of a service that is named by its code, as botocore has it."""

    response = {"Error": {"Code": "ThrottlingException"}}  # noqa: RUF012 -- nobody changes it


@pytest.mark.req("CL-02")
@pytest.mark.parametrize(
    ("preset", "values"),
    [
        ("S3_UPLOAD", (5, 1.0, 30.0, 2.0, 1.0)),
        ("S3_DOWNLOAD", (5, 1.0, 30.0, 2.0, 1.0)),
        ("API_CALL", (3, 0.5, 10.0, 2.0, 0.5)),
    ],
)
def test_a_preset_has_the_documents_values(preset, values):
    """Attempts, first and longest delay, base, jitter."""
    config = getattr(RetryPresets, preset)
    names = ("max_attempts", "base_delay", "max_delay", "exponential_base", "jitter")
    assert tuple(getattr(config, name) for name in names) == values


@pytest.mark.req("CL-10")
@pytest.mark.parametrize(
    ("decorate", "parameters", "preset"),
    [
        (
            with_s3_retry,
            {"max_attempts": 5, "base_delay": 1.0, "max_delay": 30.0, "jitter": 1.0,
             "circuit_breaker": None},
            RetryPresets.S3_UPLOAD,
        ),
        (
            with_api_retry,
            {"max_attempts": 3, "base_delay": 0.5, "max_delay": 10.0, "jitter": 0.5,
             "respect_retry_after": True},
            RetryPresets.API_CALL,
        ),
    ],
)  # fmt: skip
def test_a_decorator_has_the_documents_parameters(decorate, parameters, preset):
    """In that order, with those defaults, which are those of its preset; others by name alone."""
    found = inspect.signature(decorate).parameters.values()
    assert {p.name: p.default for p in found if p.kind is not p.KEYWORD_ONLY} == parameters
    assert all(p.default is not p.empty for p in found)
    assert decorate().config == preset
    mine = decorate(4, 0.25, 2.0, 0.125).config
    assert (mine.max_attempts, mine.base_delay, mine.max_delay, mine.jitter) == (
        4,
        0.25,
        2.0,
        0.125,
    )


@pytest.mark.req("CL-10")
@pytest.mark.parametrize("decorate", [with_s3_retry, with_api_retry, RetryDecorator])
def test_a_decorated_function_is_retried_and_keeps_its_name(decorate):
    """Sync and async alike; three attempts, two waits of the document's delays."""
    replies = [Busy("peer"), Busy("peer"), "page"]

    @decorate()
    def fetch(url):
        """The page at a URL."""
        return plain(url)

    @decorate()
    async def afetch(url):
        return aplain(url)

    base, jitter = decorate().config.base_delay, decorate().config.jitter
    for call in (lambda: fetch("/"), lambda: asyncio.run(afetch("/"))):
        plain = aplain = scripted(*replies)
        with virtual_time() as time:
            assert call() == "page"
        assert 3 * base <= time.elapsed <= 3 * base + 2 * jitter
    assert (fetch.__name__, fetch.__doc__) == ("fetch", "The page at a URL.")


@pytest.mark.req("CL-10")
def test_an_open_circuit_makes_no_call():
    """Every attempt counts; once open, the function is not called."""
    breaker = CircuitBreaker("s3.put", CircuitBreakerConfiguration(failure_threshold=2))
    calls = []

    @with_s3_retry(max_attempts=2, circuit_breaker=breaker)
    def put():
        calls.append(1)
        raise Busy

    with virtual_time():
        with pytest.raises(Busy):
            put()
        with pytest.raises(CircuitOpenException) as caught:
            put()
    assert (len(calls), caught.value.state) == (2, CircuitState.OPEN)


class Throttled(Exception):
    """An HTTP error as clients raise it, with the headers of the response."""

    def __init__(self, status, asked):
        super().__init__(str(status))
        self.status_code = status
        self.headers = {"Retry-After": asked, "Date": "Mon, 16 Nov 2026 12:00:00 GMT"}


@pytest.mark.req("CL-11")
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("asked", ["7", "Mon, 16 Nov 2026 12:00:07 GMT"])
@pytest.mark.parametrize("respect", [True, False])
def test_a_retry_after_is_respected_or_not(status, asked, respect):
    """In seconds and as a date; if it is not, the wait is that of the backoff."""
    call = with_api_retry(jitter=0.0, respect_retry_after=respect).call
    with virtual_time() as time:
        assert call(scripted(Throttled(status, asked), "page")) == "page"
    assert time.sleeps == [7.0 if respect else 0.5]


@pytest.mark.req("CL-11")
@pytest.mark.parametrize(("respect", "attempts"), [(True, 1), (False, 3)])
def test_a_retry_after_that_is_too_long_ends_the_call_if_it_is_respected(respect, attempts):
    """An hour is not waited for; if it is ignored, the attempts are made."""
    decorator = with_api_retry(respect_retry_after=respect)
    with virtual_time():
        result = decorator.run(scripted(*[Throttled(429, "3600")] * 3))
    assert (result.success, result.attempts) == (False, attempts)


@pytest.mark.req("CL-09")
def test_a_result_shows_what_became_of_a_call():
    """The document's fields, by place and by name, and its two questions."""
    names = list(inspect.signature(RetryResult).parameters)
    assert names[:4] == ["success", "attempts", "last_exception", "total_time_ms"]
    assert RetryResult(success=True, attempts=1).succeeded_on_first_attempt
    assert RetryResult(False, 3).failed_after_retries
    assert (RetryResult(True, 2).last_exception, RetryResult(True, 2).total_time_ms) == (None, 0.0)
    decorator = RetryDecorator(RetryConfiguration(max_attempts=2, jitter=0.0))
    down = Busy("down")

    async def answer():
        return "page"

    with virtual_time():
        recovered = decorator.run(scripted(down, "page"))
        failed = decorator.run(scripted(down, down))
        first = asyncio.run(decorator.arun(answer))
    assert (recovered.success, recovered.attempts, recovered.value) == (True, 2, "page")
    assert recovered.total_time_ms >= 1000.0
    assert not recovered.succeeded_on_first_attempt
    assert (failed.success, failed.last_exception, failed.failed_after_retries) == (
        False, down, True,
    )  # fmt: skip
    assert first.succeeded_on_first_attempt


@pytest.mark.req("CL-09")
def test_attempts_are_counted_by_the_name_of_the_function():
    """Also of calls that succeed at once; a refused call makes none."""
    counter = Counter(elsewhere=10)
    breaker = CircuitBreaker("api", CircuitBreakerConfiguration(failure_threshold=9))
    decorator = RetryDecorator(RetryPresets.API_CALL, breaker, counter)
    name = f"{test_attempts_are_counted_by_the_name_of_the_function.__name__}.fetch"
    assert decorator.attempt_counter is counter
    replies = scripted(Busy(), "page", "page", *[Busy()] * 3)

    @decorator
    def fetch():
        return replies()

    @decorator
    def never():
        raise AssertionError

    with virtual_time():
        assert [fetch(), fetch()] == ["page", "page"]
        with pytest.raises(Busy):
            fetch()
        breaker.force_open()
        with pytest.raises(CircuitOpenException):
            never()
    assert counter == {"elsewhere": 10, name: 2 + 1 + 3}
    assert RetryDecorator().attempt_counter == Counter()


@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (
            lambda: RetryDecorator(
                config={"max_attempts": 3}, circuit_breaker="s3", attempt_counter=3,
                respect_retry_after=None,
            ),
            ["config", "circuit_breaker", "respect_retry_after", "attempt_counter"],
        ),
        (
            lambda: with_s3_retry(0, -1, -2, "x", circuit_breaker="s3"),
            ["max_attempts", "base_delay", "max_delay", "jitter", "circuit_breaker"],
        ),
        (
            lambda: with_api_retry(max_attempts=0, jitter=-1, respect_retry_after="no"),
            ["max_attempts", "jitter", "respect_retry_after"],
        ),
    ],
)  # fmt: skip
def test_every_wrong_argument_is_named_at_once(make, fields):
    """One error with all problems, under the document's names."""
    with pytest.raises(PolicyError) as caught:
        make()
    assert [problem.field for problem in caught.value.problems] == fields


def test_the_jitter_is_added_to_the_delay():
    """As seconds, and capped with it."""
    policy = with_s3_retry(jitter=2.0)(len).mainstay.policy
    assert policy.jitter == Jitter.additive(2.0)
