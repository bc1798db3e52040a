"""A hit in one reading: the same as the long way round, or a miss that leaves it to that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.codec.outcome import Failed, Succeeded, decode_outcome, encode_outcome
from mainstay.core.idempotency.fast_replay import MISS, hit
from mainstay.core.idempotency.record import Begin, RecordState, Settle, glimpse, reduce

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS | st.binary() | st.sets(st.integers()),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner)
    ),
    max_leaves=8,
)


def ended(outcome, state=RecordState.SUCCEEDED, ttl=None):
    claim, _ = reduce(None, Begin("me", "abc", 30.0, 3), 0.0)
    done, _ = reduce(claim.value, Settle("me", 1, state, outcome, ttl), 1.0)
    return done.value


@given(VALUES)
def test_a_hit_is_the_value_that_the_long_way_finds(value):
    """With the same type and value, to the bit."""
    record = ended(encode_outcome(Succeeded(value)))
    found = hit(record, "abc", 2.0)
    expected = decode_outcome(glimpse(record, "abc", 2.0).outcome).value
    assert repr(found) == repr(expected)
    assert found == value


@pytest.mark.parametrize(
    "record",
    [
        reduce(None, Begin("me", "abc", 30.0, 3), 0.0)[0].value,
        ended(encode_outcome(Failed(ValueError("no"))), RecordState.FAILED),
        ended(encode_outcome(Failed(ValueError("not kept")))),
        ended(encode_outcome(Succeeded(1)), ttl=0.5),
        ended(b'{"v":2,"value":1}'),
        ended(b'{"v":1,"value":{"$never":1}}'),
        ended(b'{"v":1,"value":{"$tuple":7}}'),
        ended(b'{"v":"1","value":1}'),
        ended(b"null"),
        ended(b"[1]"),
        b'{"state":"succeeded"',
        b"",
    ],
    ids=lambda record: record.decode()[-40:],
)
def test_what_is_not_plain_is_left_to_the_long_way(record):
    """Claims, failures, what has expired, and whatever cannot be read."""
    assert hit(record, "abc", 2.0) is MISS


def test_another_payload_is_no_hit():
    """Whose call it was is for the claim to say."""
    assert hit(ended(encode_outcome(Succeeded(1))), "abd", 2.0) is MISS


def test_a_record_expires_when_its_time_has_come_and_not_before():
    """As everywhere: at that very moment it is over."""
    record = ended(encode_outcome(Succeeded(None)), ttl=4.0)
    assert hit(record, "abc", 4.99) is None
    assert hit(record, "abc", 5.0) is MISS
