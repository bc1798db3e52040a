"""The entry of a run that is not carried over yet: who wrote it, and which data sets are at stake.

The record of a run is the truth. If it is damaged, the entry is what is left: it names the data
sets that the run may hold in quarantine. Entries of earlier versions are the text of their writer
alone.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainstay.core.base.change import ready

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.core.pipeline.definition import PipelineDefinition


class OpenRun(Struct, frozen=True, omit_defaults=True, gc=False):
    """An entry.

    >>> OpenRun("4f", ("d-7",)).text
    '4f {"datasets":["d-7"]}'
    >>> read(OpenRun("4f", ("d-7",)).text) == OpenRun("4f", ("d-7",)), read("4f").datasets
    (True, None)
    """

    token: str = ""
    """The text of its writer."""
    datasets: tuple[str, ...] | None = None
    """The data sets that the run may touch; None if they are known only while it runs."""
    is_held: bool = False
    """Whether they are held because the record of the run is damaged."""

    @property
    def text(self) -> str:
        """As the store has it: the token, and behind it what else there is."""
        rest = msgspec.json.encode(replace(self, token="")).decode()
        return self.token if rest == "{}" else f"{self.token} {rest}"


def written(before: OpenRun | None, token: str, datasets: tuple[str, ...] | None = ()) -> OpenRun:
    """An entry in the place of one before: what was at stake stays so.

    >>> written(OpenRun("4f", ("d-7",), is_held=True), "5a").text
    '5a {"datasets":["d-7"],"is_held":true}'
    """
    if before is None:
        return OpenRun(token, datasets)
    is_known = before.datasets is not None and datasets is not None
    joined = _joined(before.datasets or (), datasets or ()) if is_known else None
    return replace(before, token=token, datasets=joined)


def read(text: str) -> OpenRun:
    """The entry of such a text; one that cannot be read names no data sets."""
    token, _, rest = text.partition(" ")
    try:
        return replace(msgspec.json.decode(rest, type=OpenRun), token=token)
    except ValueError:  # of an earlier version, or damaged
        return OpenRun(text)


def datasets_of(definition: PipelineDefinition, common: Iterable[str]) -> tuple[str, ...] | None:
    """The data sets of every stage; None if a stage names its own only while it runs."""
    found = tuple(common)
    for stage in definition.stages:
        if callable(stage.datasets):
            return None
        found = _joined(found, stage.datasets)
    return found


def _joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*first, *second]))


ready(OpenRun)
