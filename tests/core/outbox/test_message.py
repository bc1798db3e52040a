from mainstay.core.outbox.message import Message


def test_attributes_are_those_of_cloudevents_without_empty_ones():
    message = Message(
        id="8d0f",
        topic="user.created.v1",
        payload=b"{}",
        aggregate_type="User",
        aggregate_id="u-1",
        time="2026-01-02T03:04:05Z",
        extensions={"traceparent": "00-ab-cd-01"},
    )
    assert message.attributes == {
        "specversion": "1.0",
        "id": "8d0f",
        "source": "mainstay",
        "type": "user.created.v1",
        "subject": "u-1",
        "time": "2026-01-02T03:04:05Z",
        "datacontenttype": "application/json",
        "traceparent": "00-ab-cd-01",
    }


def test_the_order_is_kept_per_type_and_id_of_an_aggregate():
    plain = Message(id="1", topic="t", payload=b"")
    user = Message(id="2", topic="t", payload=b"", aggregate_type="User", aggregate_id="7")
    order = Message(id="3", topic="t", payload=b"", aggregate_type="Order", aggregate_id="7")
    assert plain.ordering_key is None
    assert user.ordering_key != order.ordering_key
