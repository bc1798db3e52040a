"""What an outbox promises, from its documentation alone: which messages are published, and when."""

from dataclasses import dataclass, field

MAX_ATTEMPTS = 4


@dataclass
class Told:
    """A message that was committed."""

    id: str
    aggregate: str
    """"" for a message without an order."""
    due: float | None = None
    place: int | None = None
    """Its place in the order of its aggregate; None as long as no relay has seen that it is due."""
    claims: int = 0
    """Since it was committed or replayed."""
    is_permanent: bool = False
    """Whether a broker has refused it for good since then."""
    is_replay: bool = False
    is_discarded: bool = False
    acknowledged: int = 0


@dataclass
class Leased:
    """A message that a relay is publishing."""

    id: str
    relay: object
    until: float


@dataclass
class Model:
    """The outbox as a caller, a broker and an operator see it.

    Attributes:
        holds: whether what is behind a dead message waits for an operator.
    """

    holds: bool
    told: dict[str, Told] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    leases: dict[tuple[object, str], float] = field(default_factory=dict)
    flying: list[tuple[object, str]] = field(default_factory=list)
    last: int = 0

    def _next(self) -> int:
        self.last += 1
        return self.last

    # --- what happens -----------------------------------------------------------------------------

    def committed(self, messages, keys):
        """A transaction is committed: its messages come after all that are there."""
        for each in messages:
            each.place = None if each.due is not None else self._next()
            self.told[each.id] = each
        self.keys.update(keys)

    def seen(self, now):
        """A relay looks for what is due: that gets its place now, in the order of its times."""
        due = [e for e in self.told.values() if e.place is None and e.due <= now]
        for each in sorted(due, key=lambda each: each.due):
            each.place = self._next()

    def claimed(self, relay, ids, until):
        for each in ids:
            self.told[each].claims += 1
            self.leases[relay, each] = until

    def renewed(self, relay, ids, until):
        for each in ids:
            self.leases[relay, each] = until

    def began(self, relay, message, now, is_dead):
        """A relay begins to publish a message: whether it may."""
        own = self.told[message.id]  # nothing of a transaction that was not committed
        assert own.place is not None, f"{own.id} is not due before {own.due}, and it is {now}"
        assert not own.is_discarded, f"{own.id} was discarded"
        assert message.is_replay == own.is_replay
        assert self.leases[relay, own.id] > now, f"the lease of {own.id} is over"
        for other, other_id in self.flying:
            if other is not relay and self.is_before(self.told[other_id], own, or_same=True):
                assert self.leases[other, other_id] <= now, f"{other_id} is under way elsewhere"
        for each in self.before(own):
            assert self.is_passed(each, is_dead), f"{own.id} is published, and {each.id} is not"
        self.flying.append((relay, own.id))

    def answered(self, relay, message_id, answer):
        """The broker has answered."""
        self.flying.remove((relay, message_id))
        own = self.told[message_id]
        own.acknowledged += answer == "acknowledged"
        own.is_permanent |= answer == "permanent"

    def gone(self, relay):
        """A relay has ended, and nobody receives the answers it waits for."""
        self.flying = [each for each in self.flying if each[0] is not relay]

    def replayed(self, message_id):
        own = self.told[message_id]
        own.claims, own.is_permanent = 0, False
        if not (self.holds and own.aggregate):
            own.place, own.is_replay = self._next(), True

    def discarded(self, message_id):
        self.told[message_id].is_discarded = True

    # --- what holds -------------------------------------------------------------------------------

    def is_before(self, first, second, *, or_same=False):
        """Whether a message has to be published before another."""
        if first.id == second.id:
            return or_same
        if not first.aggregate or first.aggregate != second.aggregate or first.place is None:
            return False
        return first.place < second.place

    def before(self, own):
        return [each for each in self.told.values() if self.is_before(each, own)]

    def is_passed(self, each, is_dead):
        """Whether a message lets the later ones of its aggregate be published."""
        goes_on = is_dead(each.id) and not self.holds
        return bool(each.acknowledged or each.is_discarded or goes_on)

    def may_be_dead(self, message_id):
        own = self.told[message_id]
        return own.is_permanent or own.claims >= MAX_ATTEMPTS

    def left(self, states):
        """Holds when nothing more is to be done: each message has the end that it must have."""
        assert states.keys() == self.told.keys()
        for each in self.told.values():
            state = states[each.id]
            if each.is_discarded:
                assert state == "DISCARDED", f"{each.id}: {state}"
            elif state == "SENT":
                assert each.acknowledged, f"{each.id} is lost"
            elif state == "DEAD":
                assert self.may_be_dead(each.id), f"{each.id} is dead without a reason"
            else:
                assert state == "PENDING", f"{each.id}: {state}"
                assert self.holds, f"{each.id} is never published"
                assert any(states[e.id] == "DEAD" for e in self.before(each)), f"{each.id} waits"
