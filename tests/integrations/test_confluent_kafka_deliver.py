"""One record on Kafka: delivered, refused, or given up in time."""

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from mainstay import PolicyError, deadline
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.integrations.confluent_kafka import deliver
from tests.servers.kafka import MockCluster


@pytest.fixture(scope="module")
def cluster():
    with MockCluster() as made:
        made.topic("users")
        yield made


def producer(address, **options):
    return Producer({"bootstrap.servers": address, "log_level": 0, **options})


@pytest.mark.req("EF-07.kafka")
def test_a_record_that_is_acknowledged_is_returned(cluster):
    """With its offset; key and headers are those of `produce`."""
    made = producer(cluster.bootstrap)
    offsets = [
        deliver(made, "users", b"{}", timeout=60.0, key=b"u-1", headers={"a": b"1"}).offset()
        for _ in range(2)
    ]
    assert offsets[1] == offsets[0] + 1


@pytest.mark.req("EF-07.kafka")
def test_a_record_that_nobody_acknowledges_is_given_up(cluster):
    """At the timeout, or at the deadline if that is nearer; its delivery is in doubt."""
    made = producer("127.0.0.1:9")
    with pytest.raises(KafkaException, match=r"within 0\.2 s") as late:
        deliver(made, "users", b"{}", timeout=0.2)
    assert late.value.args[0].code() == KafkaError._MSG_TIMED_OUT
    known = kind_of(late.value)
    assert (known.kind, known.is_ambiguous) == (Kind.TIMEOUT, True)
    with deadline.within(0.1), pytest.raises(KafkaException, match="within 0"):
        deliver(made, "users", b"{}", timeout=600.0)
    made.purge()


@pytest.mark.req("EF-07.kafka")
def test_a_record_that_the_broker_refuses_is_not_waited_for(cluster):
    """The error is the broker's."""
    made = producer(cluster.bootstrap, retries=0)
    cluster.fail("Produce", KafkaError.INVALID_REQUIRED_ACKS)
    with pytest.raises(KafkaException) as refused:
        deliver(made, "users", b"{}", timeout=600.0)
    assert refused.value.args[0].code() == KafkaError.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("timeout", [0, -1.0, None, "soon"])
def test_a_wrong_timeout_is_refused(cluster, timeout):
    """Before anything is produced."""
    with pytest.raises(PolicyError, match="timeout"):
        deliver(producer(cluster.bootstrap), "users", b"{}", timeout=timeout)
