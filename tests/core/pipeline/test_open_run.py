"""The entry of a run that is not carried over yet: what it names, and what it keeps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.pipeline.definition import PipelineDefinition
from mainstay.core.pipeline.open_run import OpenRun, datasets_of, read, written
from tests.core.pipeline.test_definition import stage

ENTRIES = st.builds(
    OpenRun,
    st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
    st.none() | st.lists(st.text()).map(tuple),
    st.booleans(),
)


@given(ENTRIES)
def test_an_entry_is_read_as_it_was_written(entry):
    """Whatever the names of its data sets are."""
    assert read(entry.text) == entry


@pytest.mark.parametrize("text", ["", "4f", "4f ", "4f {", '4f {"datasets":7}', "4f [1]"])
def test_an_entry_of_an_earlier_version_names_no_data_sets(text):
    """Nor does one that is damaged; it stays what it is, so that it can be removed."""
    assert (read(text).datasets, read(text).text) == (None, text)


@given(ENTRIES, st.none() | st.lists(st.text()).map(tuple))
def test_what_is_at_stake_stays_so(before, datasets):
    """If one of both does not know its data sets, nobody does; what is held stays held."""
    after = written(before, "5a", datasets)
    assert (after.token, after.is_held) == ("5a", before.is_held)
    if before.datasets is None or datasets is None:
        assert after.datasets is None
    else:
        assert set(after.datasets) == {*before.datasets, *datasets}
    assert written(None, "5a", datasets) == OpenRun("5a", datasets)


def test_the_data_sets_of_a_pipeline():
    """Those of all stages and those that they share; unknown if a stage finds its own."""
    known = PipelineDefinition(
        "etl", [stage("a", datasets="d-1"), stage("b", datasets=("d-2", "d-1"))]
    )
    assert datasets_of(known, ("d-0",)) == ("d-0", "d-1", "d-2")
    found = PipelineDefinition(
        "etl", [stage("a", datasets="d-1"), stage("b", datasets=lambda _: ["d-2"])]
    )
    assert datasets_of(found, ("d-0",)) is None
