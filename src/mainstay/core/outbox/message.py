"""A message of the outbox as a publisher receives it, without the bookkeeping of the relay."""

from __future__ import annotations

from msgspec import Struct


class Message(Struct, frozen=True, kw_only=True):
    """What is published: the payload as bytes, and the attributes of CloudEvents 1.0.

    `id` is the same in every attempt and after a replay: a broker or a consumer that has seen it
    may drop the message.

    >>> message = Message(id="8d0f", topic="user.created.v1", payload=b"{}", aggregate_id="u-1")
    >>> message.attributes["type"], message.attributes["subject"]
    ('user.created.v1', 'u-1')
    """

    id: str
    topic: str
    payload: bytes
    content_type: str = "application/json"
    aggregate_type: str = ""
    aggregate_id: str = ""
    """Messages of one aggregate are published in the order of their commits; "" for none."""
    source: str = "mainstay"
    type: str = ""
    """The type of CloudEvents; by default the topic."""
    subject: str = ""
    """The subject of CloudEvents; by default the id of the aggregate."""
    time: str = ""
    """When it was added, as RFC 3339."""
    dataschema: str = ""
    extensions: dict[str, str] = {}
    """Further attributes: names of lower-case letters and digits."""
    attempt: int = 1
    """The attempt that this is: information only."""
    is_replay: bool = False
    """Whether an operator has replayed it: it is out of order then."""

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of CloudEvents, without those that are empty.

        >>> sorted(Message(id="8d0f", topic="t", payload=b"").attributes)
        ['datacontenttype', 'id', 'source', 'specversion', 'type']
        """
        found = {
            "specversion": "1.0",
            "id": self.id,
            "source": self.source,
            "type": self.type or self.topic,
            "subject": self.subject or self.aggregate_id,
            "time": self.time,
            "datacontenttype": self.content_type,
            "dataschema": self.dataschema,
            **self.extensions,
        }
        return {name: value for name, value in found.items() if value}

    @property
    def ordering_key(self) -> str | None:
        """What the order is kept for: type and id of the aggregate; None if there is none.

        >>> Message(id="8d0f", topic="t", payload=b"").ordering_key is None
        True
        """
        return f"{self.aggregate_type}\0{self.aggregate_id}" if self.aggregate_id else None
