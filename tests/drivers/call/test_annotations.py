"""Annotations of a decorated function: kept, and evaluated by nobody but who reads them."""

import asyncio
import inspect
import sys
import textwrap
import typing

import pytest

import mainstay
from mainstay import Bulkhead, CircuitBreaker, Engine, Fallback, Hedge, RetryPolicy

POLICY = RetryPolicy(name="standard", retry_on=OSError)
ENGINE = Engine(policies=[POLICY])
DECORATORS = {
    "retry": mainstay.retry(on=OSError),
    "policy": POLICY,
    "breaker": CircuitBreaker("b"),
    "fallback": Fallback(value=None, on=OSError),
    "hedge": Hedge(60.0),
    "bulkhead": Bulkhead("b", 4),
    "idempotent": ENGINE.idempotent(key=lambda *args: args[-1]),
    "idempotent by its arguments": ENGINE.idempotent(operation="by arguments"),
}
SOURCE = """
def charge(order: Order, *, amount: "Amount" = None) -> Receipt:
    return order

async def acharge(order: Order, *, amount: "Amount" = None) -> Receipt:
    return order

class Shop:
    @decorate
    def charge(self, order: Order) -> "Receipt":
        return order
"""


def defined(decorate):
    """A module whose annotations name classes that it does not have (yet)."""
    names = {"__name__": "shop", "decorate": decorate}
    exec(compile(textwrap.dedent(SOURCE), "shop.py", "exec", dont_inherit=True), names)
    return names


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated at once")
@pytest.mark.parametrize("way", DECORATORS)
def test_a_name_that_only_type_checkers_import_is_not_evaluated(way):
    """Neither when the function is decorated nor when it is called."""
    names = defined(DECORATORS[way])
    decorated, acharge = DECORATORS[way](names["charge"]), DECORATORS[way](names["acharge"])
    assert decorated("o-1") == "o-1"
    assert asyncio.run(acharge("o-1")) == "o-1"
    assert names["Shop"]().charge("o-2") == "o-2"
    with pytest.raises(NameError):
        inspect.signature(decorated)
    names.update(Order=str, Amount=int, Receipt=str)
    expected = {"order": str, "amount": int, "return": str}
    assert typing.get_type_hints(decorated) == expected
    assert typing.get_type_hints(names["Shop"].charge) == {"order": str, "return": str}
    assert decorated.__annotations__ == {"order": str, "amount": "Amount", "return": str}


@pytest.mark.parametrize("way", DECORATORS)
def test_annotations_and_type_hints_are_those_of_the_function(way):
    """As text and as classes; `inspect.signature` shows them."""

    def charge(order: str, *, amount: "int" = 0) -> "str":
        return order

    decorated = DECORATORS[way](charge)
    assert decorated.__annotations__ == charge.__annotations__
    assert typing.get_type_hints(decorated) == {"order": str, "amount": int, "return": str}
    assert inspect.signature(decorated) == inspect.signature(charge)


class Lazy:
    """A callable whose annotations cannot be evaluated yet, as those of a function of 3.14."""

    __name__ = __qualname__ = "lazy"

    def __call__(self, order):
        return order

    @property
    def __annotations__(self):
        raise NameError("Order")


@pytest.mark.parametrize("way", ["retry", "policy", "breaker"])
def test_annotations_that_cannot_be_evaluated_do_not_stop_a_decorator(way):
    """On every Python: they are not ours to judge."""
    assert DECORATORS[way](Lazy())("o-1") == "o-1"


@pytest.mark.parametrize("way", ["retry", "policy", "breaker"])
def test_what_evaluates_the_annotations_is_carried_over(way):
    """`__annotate__` of Python 3.14: called by who reads the annotations, with a format."""

    class Annotated(Lazy):
        def __annotate__(self, form, /):
            return {"order": form}

    decorated = DECORATORS[way](Annotated())
    assert decorated.__annotate__(3) == {"order": 3}
