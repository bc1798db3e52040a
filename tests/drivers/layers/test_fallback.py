"""A fallback answers for a call that failed, says so, and never hides what means "stop"."""

import asyncio
import concurrent.futures
import inspect
import logging

import pytest
import trio

import mainstay
from mainstay import CallCancelled, PolicyError, UsageError, WrapError
from mainstay.drivers.layers.fallback import Fallback, has_fallback
from mainstay.testing import Trace, record

STOPS = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)
DOWN = ConnectionError("down")


def failing(driver, error=DOWN):
    def function(*args, **kwargs):
        raise error

    return driver.colour(function)


def warnings_of(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


# --- answering ------------------------------------------------------------------------------------


def test_a_value_answers_in_place_of_a_failure(driver):
    """The value comes back, the very object, each time."""
    value = ["cached"]
    function = Fallback(value=value, listener=Trace())(failing(driver))
    assert driver.run(function) is value
    assert driver.run(function) is value


def test_none_is_a_value(driver):
    """Whether a value was given is not told by its truth."""
    assert driver.run(Fallback(value=None, listener=Trace())(failing(driver))) is None


def test_a_function_answers_with_the_failure_in_hand(driver):
    """It is called with the exception itself."""
    function = Fallback(function=lambda error: ("answer", error), listener=Trace())(failing(driver))
    assert driver.run(function) == ("answer", DOWN)


def test_an_async_function_is_awaited(async_driver):
    """For an async call the fallback may be async."""

    async def answer(error):
        await (trio.sleep if async_driver.name == "trio" else asyncio.sleep)(3.0)
        return "late answer"

    function = Fallback(function=answer, listener=Trace())(failing(async_driver))
    assert async_driver.run(function) == "late answer"
    assert async_driver.time.elapsed == pytest.approx(3.0)


def test_an_awaitable_value_is_returned_and_not_awaited():
    """Only what a function gives is awaited: a value comes back as it is."""

    async def main():
        future = asyncio.get_running_loop().create_future()

        @Fallback(value=future, listener=Trace())
        async def function():
            raise DOWN

        assert await function() is future

    asyncio.run(main())


def test_a_success_is_left_alone(driver, caplog):
    """Nothing is told and nothing is asked where the call succeeds."""
    trace, asked = Trace(), []
    function = Fallback(function=asked.append, listener=trace)(driver.scripted("real"))
    assert driver.run(function) == "real"
    assert (trace.events, asked, warnings_of(caplog)) == ([], [], [])


@pytest.mark.parametrize("stop", STOPS)
def test_what_means_stop_is_never_answered(driver, stop):
    """Ctrl+C, cancellations and their like pass, even without `on`."""
    trace = Trace()
    with pytest.raises(stop):
        driver.run(Fallback(value=1, listener=trace)(failing(driver, stop())))
    assert trace.events == []


@pytest.mark.parametrize(
    "error", [CallCancelled("op", 1), concurrent.futures.CancelledError("gone")], ids=repr
)
def test_a_cancellation_that_is_an_exception_passes_too(driver, error):
    """A set cancel event, and a cancelled future, mean that nobody wants an answer."""
    function = Fallback(value=1, on=Exception, listener=Trace())(failing(driver, error))
    with pytest.raises(type(error)) as caught:
        driver.run(function)
    assert caught.value is error


def test_a_cancelled_trio_scope_is_not_answered():
    """trio.Cancelled passes, and the scope catches its own."""

    @Fallback(value="wrong")
    async def function():
        await trio.sleep_forever()

    async def main():
        with trio.move_on_after(0) as scope:
            await function()
        return scope.cancelled_caught

    assert trio.run(main)


# --- on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "error", "is_answered"),
    [
        (OSError, ConnectionError(), True),
        (OSError, ValueError(), False),
        ((OSError, KeyError), KeyError(), True),
        ([OSError, KeyError], ValueError(), False),
        (lambda error: "soft" in str(error), ValueError("soft"), True),
        (lambda error: "soft" in str(error), ValueError("hard"), False),
        ((OSError, lambda error: "soft" in str(error)), ValueError("soft"), True),
        ((OSError, lambda error: "soft" in str(error)), OSError("hard"), True),
    ],
)
def test_on_says_which_failures_are_answered(driver, on, error, is_answered):
    """Classes and predicates, one or several; what none of them names passes untouched."""
    function = Fallback(value="answer", on=on, listener=Trace())(failing(driver, error))
    if is_answered:
        assert driver.run(function) == "answer"
    else:
        with pytest.raises(type(error)) as caught:
            driver.run(function)
        assert caught.value is error
        assert caught.value.__cause__ is None


def test_a_predicate_that_raises_has_not_matched(driver, caplog):
    """The call's own failure is raised, and the predicate's is reported."""

    def predicate(error):
        raise ZeroDivisionError

    with pytest.raises(ConnectionError) as caught:
        driver.run(Fallback(value=1, on=predicate)(failing(driver)))
    assert caught.value is DOWN
    assert "a predicate of a fallback raised on ConnectionError" in caplog.text


# --- telling --------------------------------------------------------------------------------------


def test_listeners_are_told(driver, caplog):
    """An event with the operation, the failure and the context; then nothing is logged."""
    trace = Trace()
    function = Fallback(value=1, listener=[trace])(failing(driver))
    with mainstay.context(tenant_id="t1", correlation_id="c1"):
        driver.run(function, "secret argument")
    (event,) = trace.events
    assert event.event_type == "fallback_used"
    assert event.operation.endswith(("function", "coloured"))
    assert (event.exception_type, event.exception_message) == ("ConnectionError", "down")
    assert (event.tenant_id, event.correlation_id) == ("t1", "c1")
    assert event.timestamp
    assert warnings_of(caplog) == []


@pytest.mark.usefixtures("logged")
def test_without_listeners_it_is_logged(driver, caplog):
    """A warning names the operation and the failure, never the arguments."""
    function = Fallback(value=1)(failing(driver))
    driver.run(function, "secret argument")
    (message,) = warnings_of(caplog)
    assert ": the fallback answered for ConnectionError" in message
    assert "secret" not in caplog.text


def test_a_recording_hears_of_it(driver):
    """`mainstay.testing.record()` is a listener too."""
    with record() as trace:
        driver.run(Fallback(value=1)(failing(driver)))
    assert trace.names == ["fallback_used"]


def test_a_listener_that_raises_changes_nothing(driver, caplog):
    """The answer is returned all the same."""

    def listener(event):
        raise ZeroDivisionError

    assert driver.run(Fallback(value=1, listener=listener)(failing(driver))) == 1
    assert "a listener raised on fallback_used" in caplog.text


# --- a fallback that fails ------------------------------------------------------------------------


def test_a_fallback_that_raises_names_what_it_was_to_answer(driver):
    """Its own error is raised, from the original, with a note; nobody is told of an answer."""

    def answer(error):
        raise KeyError("not in the cache")

    trace = Trace()
    with pytest.raises(KeyError) as caught:
        driver.run(Fallback(function=answer, listener=trace)(failing(driver)))
    assert caught.value.__cause__ is DOWN
    assert "raised by the fallback of" in caught.value.__notes__[0]
    assert trace.events == []


def test_an_async_fallback_that_raises_names_it_too(async_driver):
    """The same where it fails while it is awaited."""

    async def answer(error):
        raise KeyError("not in the cache")

    with pytest.raises(KeyError) as caught:
        async_driver.run(Fallback(function=answer)(failing(async_driver)))
    assert caught.value.__cause__ is DOWN
    assert len(caught.value.__notes__) == 1


def test_a_fallback_may_raise_the_failure_itself(driver):
    """It comes out as it came, without being its own cause."""
    error = ConnectionError("down again")

    def answer(failure):
        raise failure

    with pytest.raises(ConnectionError) as caught:
        driver.run(Fallback(function=answer)(failing(driver, error)))
    assert caught.value is error
    assert error.__cause__ is None
    assert not hasattr(error, "__notes__")


def test_a_cause_of_its_own_is_kept(driver):
    """`raise ... from` in the fallback is the author's word."""
    reason = ValueError("stale")

    def answer(error):
        raise KeyError("not in the cache") from reason

    with pytest.raises(KeyError) as caught:
        driver.run(Fallback(function=answer)(failing(driver)))
    assert caught.value.__cause__ is reason
    assert caught.value.__context__ is DOWN


def test_ctrl_c_in_a_fallback_is_ctrl_c(driver):
    """What means stop gets neither cause nor note."""

    def answer(error):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        driver.run(Fallback(function=answer)(failing(driver)))
    assert caught.value.__cause__ is None


def test_an_error_that_takes_no_note_is_raised_all_the_same(driver):
    """An exception without room for notes is not lost for one."""

    class Frozen(Exception):
        def add_note(self, note):
            raise AttributeError

    def answer(error):
        raise Frozen

    with pytest.raises(Frozen):
        driver.run(Fallback(function=answer)(failing(driver)))


# --- decorating -----------------------------------------------------------------------------------


def test_an_async_fallback_on_a_sync_function_is_refused():
    """When it is decorated, not when it fails."""

    async def answer(error):
        return 1

    with pytest.raises(WrapError, match=r"answer is async, and .*plain is not.*plain function"):

        @Fallback(function=answer)
        def plain():
            return 1


def test_a_coroutine_from_a_sync_fallback_is_refused():
    """One that cannot be seen to be async is found out when it answers."""

    async def answer(error):
        return 1

    @Fallback(function=lambda error: answer(error=error))
    def plain():
        raise DOWN

    with pytest.raises(WrapError, match="gave a coroutine") as caught:
        plain()
    assert caught.value.__cause__ is DOWN


@pytest.mark.parametrize("between", [lambda f: f, mainstay.retry(on=OSError)], ids=["", "retry"])
def test_two_fallbacks_on_one_function_are_refused(driver, between):
    """Also where another decorator stands between them."""
    once = between(Fallback(value=1)(failing(driver)))
    assert has_fallback(once)
    with pytest.raises(UsageError, match=r"has a fallback already.*outermost"):
        Fallback(value=2)(once)
    with pytest.raises(UsageError, match="has a fallback already"):
        Fallback(value=2)(staticmethod(once))


def test_one_fallback_serves_many_functions(driver):
    """The object holds nothing of a function."""
    fallback = Fallback(value=1, listener=Trace())
    first, second = fallback(failing(driver)), fallback(failing(driver))
    assert driver.run(first) == driver.run(second) == 1


def test_it_answers_after_the_last_retry(driver):
    """Around a retry it is asked once, for the failure the retry ends with."""
    trace = Trace()
    function = driver.scripted(OSError("1"), OSError("2"), OSError("3"))
    inner = mainstay.retry(on=OSError, attempts=3)(function)
    assert driver.run(Fallback(value="answer", listener=trace)(inner)) == "answer"
    assert len(function.script.calls) == 3
    assert [event.exception_message for event in trace.events] == ["3"]


def test_what_a_listener_calls_keeps_its_retries():
    """A listener runs beside the attempts of the retry around it."""
    made = []

    @mainstay.retry(on=OSError, attempts=2, backoff=mainstay.Backoff.constant(0))
    def report(event=None):
        made.append(event)
        raise OSError

    @mainstay.retry(on=OSError, attempts=5)
    @Fallback(value=1, listener=report)
    def function():
        raise DOWN

    assert function() == 1
    assert len(made) == 2


def test_signature_name_and_documentation_are_kept():
    """Tools see the function as it was."""

    @Fallback(value=1)
    def function(a: int, /, b: str = "x", *, c: float = 1.0) -> int:
        """Documented."""
        return a

    @Fallback(value=1)
    async def coloured(a: int) -> int:
        return a

    assert str(inspect.signature(function)) == "(a: int, /, b: str = 'x', *, c: float = 1.0) -> int"
    assert function.__name__ == "function"
    assert function.__doc__ == "Documented."
    assert function(7, c=2.0) == 7
    assert inspect.iscoroutinefunction(coloured)
    assert not inspect.iscoroutinefunction(function)


def test_methods_of_every_sort_can_be_decorated():
    """Also where the decorator stands above @classmethod or @staticmethod."""
    fallback = Fallback(function=lambda error: error.args, listener=Trace())

    class Service:
        @fallback
        def method(self, x):
            raise KeyError("method", x)

        @fallback
        @classmethod
        def outside(cls, x):
            raise KeyError(cls.__name__, x)

        @classmethod
        @fallback
        def inside(cls, x):
            raise KeyError(cls.__name__, x)

        @fallback
        @staticmethod
        def static(x):
            raise KeyError("static", x)

    assert Service().method(1) == ("method", 1)
    assert Service.outside(2) == ("Service", 2)
    assert Service.inside(3) == ("Service", 3)
    assert Service.static(4) == Service().static(4) == ("static", 4)


def generator():
    yield 1


async def async_generator():
    yield 1


@pytest.mark.parametrize(
    "wrong", [generator, async_generator, property(len), 7, Trace], ids=lambda w: type(w).__name__
)
def test_what_cannot_be_decorated_is_refused(wrong):
    """Generator functions, properties, classes and what cannot be called."""
    with pytest.raises(WrapError):
        Fallback(value=1)(wrong)


# --- wrong values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({}, ["value, function"]),
        ({"value": 1, "function": print}, ["value, function"]),
        ({"value": len}, ["value"]),
        ({"value": lambda error: 1}, ["value"]),
        ({"function": 7}, ["function"]),
        ({"function": None}, ["function"]),
        ({"function": ValueError}, ["function"]),
        ({"value": 1, "on": KeyboardInterrupt}, ["on"]),
        ({"value": 1, "on": BaseException}, ["on"]),
        ({"value": 1, "on": ()}, ["on"]),
        ({"value": 1, "on": "OSError"}, ["on"]),
        ({"value": 1, "on": (OSError, 7, int)}, ["on", "on"]),
        ({"value": 1, "listener": 7}, ["listener"]),
        ({"on": 7, "listener": [print, 8]}, ["value, function", "on", "listener"]),
    ],
)
def test_every_wrong_value_is_named_at_once(arguments, fields):
    """Neither or both of value and function, and whatever else is wrong, in one error."""
    with pytest.raises(PolicyError) as caught:
        Fallback(**arguments)
    assert [problem.field for problem in caught.value.problems] == fields


def test_a_repr_says_what_answers():
    """The value, or the name of the function."""
    assert repr(Fallback(value=[])) == "Fallback(value=[])"
    assert repr(Fallback(function=failing)) == "Fallback(function=failing)"
