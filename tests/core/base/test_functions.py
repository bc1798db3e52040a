"""What is known of a function without calling it: async or not, its parameters."""

import functools
import inspect
import types

import pytest

from mainstay.core.base.functions import (
    discard,
    is_async,
    is_awaitable,
    is_generator,
    is_read_once,
    signature_of,
    unwrapped,
)


async def fetch(item):
    """A coroutine function."""
    return item


class Asks:
    async def __call__(self):
        """Async."""

    def plain(self):
        """Not async."""


@types.coroutine
def old_style():
    """A generator that can be awaited."""
    yield


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (fetch, True),
        (functools.partial(functools.partial(fetch), 1), True),
        (Asks(), True),
        (Asks().__call__, True),
        (old_style, True),
        (Asks().plain, False),
        (Asks, False),
        (len, False),
        (lambda: fetch(1), False),
        (3, False),
    ],
)
def test_a_function_is_async_if_calling_it_gives_something_to_await(function, expected):
    """Also inside partial objects, methods and objects with `__call__`."""
    assert is_async(function) is expected


def test_only_so_many_wrappers_are_looked_through():
    """Far more than there are; a row without an end is not followed for ever."""
    wrapped = fetch
    for _ in range(20):
        wrapped = types.MethodType(wrapped, "it")
    assert unwrapped(wrapped) is fetch
    assert unwrapped(types.MethodType(wrapped, "it")) is not fetch


def test_an_object_whose_attributes_cannot_be_read_is_not_async():
    """Annotations that cannot be evaluated yet, for one."""

    class Lazy:
        def __call__(self):
            """Not async."""

        @property
        def __annotations__(self):
            raise NameError("Order")

    assert not is_async(Lazy())


@pytest.mark.parametrize("value", [True, False, None, 1, "text", [], iter(()), (x for x in ())])
def test_plain_values_are_not_awaitable(value):
    """A generator is none either."""
    assert not is_awaitable(value)


def test_what_discards_an_awaitable_leaves_no_warning():
    """A coroutine is closed, a future cancelled, and what has neither is let go."""

    class Stubborn:
        def __await__(self):
            return iter(())

        def close(self):
            raise RuntimeError("no")

    class Bare:
        def __await__(self):
            return iter(())

    coroutine = fetch(1)
    for awaitable in (coroutine, old_style(), Stubborn(), Bare()):
        assert is_awaitable(awaitable)
        discard(awaitable)
    assert inspect.getcoroutinestate(coroutine) == "CORO_CLOSED"


def test_a_signature_has_the_parameters_in_order():
    """With defaults; annotations are not needed for it."""
    assert list(signature_of(fetch).parameters) == ["item"]


def test_generators_and_what_is_read_once():
    """A call of a generator runs nothing; an iterator is gone once it was read, a list is not."""

    def rows():
        yield 1

    async def arows():
        yield 1

    assert [is_generator(each) for each in (rows, arows, functools.partial(rows), len)] == [
        True
    ] * 3 + [False]
    read_once = (rows(), arows(), iter([1]), map(str, [1]), zip([1], strict=True))
    assert all(map(is_read_once, read_once))
    assert not any(map(is_read_once, ([1], {"a": 1}, "text", b"", None, range(3), rows)))
