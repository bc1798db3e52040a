"""Decorators with equal arguments share one policy, and nothing else differs by it."""

import gc
import itertools
import weakref

from hypothesis import given
from hypothesis import strategies as st

from mainstay import PolicyError, RetryPolicy, retry
from mainstay.drivers.retry import _SHARED

RULES = st.sampled_from([OSError, (OSError,), [OSError], (OSError, ValueError), "OSError"])
NUMBERS = st.sampled_from([1, True, 1.0, 3, 0])
SECONDS = st.sampled_from([1, 1.0, True, 2.5, 0])
OTHERS = st.one_of(
    st.builds(lambda number: {"attempts": number}, NUMBERS),
    st.builds(lambda seconds: {"deadline": seconds, "name": "api"}, SECONDS),
)


def answer(make):
    try:
        return make()
    except PolicyError as error:
        return [(problem.field, problem.value, problem.allowed) for problem in error.problems]


@given(st.lists(RULES, min_size=1, max_size=2), st.lists(OTHERS, min_size=1, max_size=12))
def test_sharing_changes_nothing(rules, others):
    """What a decorator makes of its arguments is what a policy of its own would be."""
    kept = []
    for rule, other in itertools.product(rules, others):
        arguments = {"on": rule, **other}
        found = answer(lambda arguments=arguments: retry(**arguments)(lambda: None))
        own = answer(lambda arguments=arguments: RetryPolicy(**arguments))
        if isinstance(own, list):
            assert found == own
            continue
        kept.append(found)
        policy = found.mainstay.policy
        assert policy == own
        assert policy._explicit == own._explicit
        for field in own._explicit:  # 1 == True, and is not the same
            assert repr(getattr(policy, field)) == repr(getattr(own, field))


def test_functions_under_equal_arguments_share_their_policy():
    """A program with a thousand such functions has one policy for them."""
    one, two = (retry(on=(ConnectionError, OSError), attempts=7)(lambda: None) for _ in range(2))
    other = retry(on=(ConnectionError, OSError), attempts=8)(lambda: None)
    assert one.mainstay.policy is two.mainstay.policy
    assert one.mainstay.policy is not other.mainstay.policy


def test_a_function_of_the_user_is_never_compared():
    """Two predicates that are equal may differ: such a policy is not shared."""

    def is_busy(error):
        return False

    one, two = (retry(on=is_busy)(lambda: None) for _ in range(2))
    assert one.mainstay.policy is not two.mainstay.policy


def test_a_class_with_a_metaclass_of_its_own_is_not_compared():
    """Its metaclass may find two classes equal."""

    class Alike(type):
        def __eq__(cls, other):
            return True

        def __hash__(cls):
            return 1

    first, second = (Alike(name, (Exception,), {}) for name in ("First", "Second"))
    kept = [retry(on=each)(lambda: None) for each in (first, second)]
    assert [each.mainstay.policy.retry_on[0] is each_class for each, each_class in
            zip(kept, (first, second), strict=True)] == [True, True]  # fmt: skip


def test_a_policy_that_no_function_has_is_not_kept():
    """An exception class of a module that was unloaded does not stay because of a policy."""

    class Gone(Exception):
        pass

    reference = weakref.ref(Gone)
    decorated = retry(on=Gone, attempts=3)(lambda: None)
    assert any(Gone in key[1] for key in _SHARED)
    del decorated, Gone
    gc.collect()
    assert reference() is None
