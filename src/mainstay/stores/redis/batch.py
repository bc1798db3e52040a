"""Many steps on a Redis server, their commands in pipelines.

Each step is the flow of a single one. All flows go on together: what each asks for next is sent in
one pipeline. A flow that has to wait, because its record was written by others more than once, is
left to a step of its own, and so is a second step on one record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis import exceptions as theirs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from mainstay.ports import Step
    from mainstay.stores.redis.keys import Flow


def many(steps: Sequence[Step], begin: Callable[..., Flow], answers: list[Any]) -> Flow:
    """Puts the answers into their places; returns the numbers of the steps that are left."""
    firsts: dict[tuple[str, str], int] = {}
    for number, (space, key, _) in enumerate(steps):
        firsts.setdefault((space, key), number)
    left = set(range(len(steps))) - set(firsts.values())
    going = [_Going(number, begin(*steps[number])) for number in firsts.values()]
    while going := [each for each in going if each.command is not None]:
        replies = yield [each.command for each in going]
        for each, reply in zip(going, replies, strict=True):
            each.go_on(reply)
            if each.has_ended:
                answers[each.number] = each.answer
            elif each.command is None:
                left.add(each.number)
    return sorted(left)


class _Going:
    """A flow under way: its next command, or its answer."""

    __slots__ = ("_flow", "answer", "command", "has_ended", "number")

    def __init__(self, number: int, flow: Flow) -> None:
        self.number = number
        self.answer: Any = None
        self.command: tuple[Any, ...] | None = None
        self.has_ended = False
        self._flow = flow
        self.go_on(None)

    def go_on(self, reply: Any) -> None:
        """Lets the flow go on to its next command, to its end, or to a wait."""
        self.command, is_error = None, isinstance(reply, theirs.RedisError)
        try:
            ask = self._flow.throw(reply) if is_error else self._flow.send(reply)
            while not isinstance(ask, tuple):
                if isinstance(ask, float) and ask:
                    self._flow.close()
                    return
                ask = self._flow.send(None)  # no lock: another writer of the record wins, or we
            self.command = ask
        except StopIteration as end:
            self.answer, self.has_ended = end.value, True
        except Exception as error:
            self.answer, self.has_ended = error, True
