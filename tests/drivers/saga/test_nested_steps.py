"""A retry inside a step of a saga: both levels retry, unless the step's policy states otherwise."""

import copy
import pickle
import warnings

import pytest

from mainstay import (
    Backoff,
    Engine,
    Jitter,
    NestedRetryWarning,
    RetryPolicy,
    Saga,
    SagaStep,
)

POLICY = RetryPolicy(retry_on=ConnectionError, backoff=Backoff.constant(0), jitter=Jitter.none())


def pickled(policy):
    return pickle.loads(pickle.dumps(policy))


def replaced(policy):
    return policy.replace(name="other") | RetryPolicy(deadline=60.0)


@pytest.mark.parametrize("carried", [lambda same: same, copy.deepcopy, pickled, replaced])
@pytest.mark.parametrize("is_undo", [False, True])
@pytest.mark.parametrize(
    ("own", "calls"), [({}, 6), ({"nested": "collapse"}, 3), ({"nested": "allow"}, 6)]
)
def test_a_step_that_states_collapse_does_not_repeat_what_a_retry_inside_gave_up(
    own, calls, is_undo, carried
):
    """A stated "collapse" counts, also after a copy; it equals the default, which is "allow"."""
    made = []

    @POLICY.replace(max_attempts=3)
    def leaf(*_):
        made.append(1)
        raise ConnectionError("down")

    def broken(*_):
        raise ValueError("broken")

    policy = carried(POLICY.replace(max_attempts=2, **own))
    if is_undo:
        steps = [
            SagaStep("pay", lambda: None, leaf, compensate_policy=policy),
            SagaStep("ship", broken),
        ]
    else:
        steps = [SagaStep("pay", leaf, policy=policy)]
    with warnings.catch_warnings(), Engine(sinks=[]) as engine:
        warnings.simplefilter("ignore", NestedRetryWarning)
        with pytest.raises(Exception, match=r"down|pay"):
            engine.sagas.run(Saga("order", steps))
    assert len(made) == calls


def test_a_stated_collapse_changes_neither_equality_nor_text():
    """Only what was given is remembered."""
    stated = POLICY.replace(nested="collapse")
    assert stated == POLICY
    assert hash(stated) == hash(POLICY)
    assert stated.to_dict() == POLICY.to_dict()
