"""What is known of a data set: quarantine, masking, restricted calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.change import DROP, KEEP
from mainstay.core.pipeline.dataset import Admit, Free, Hold, decode, reduce
from mainstay.errors import StoredValueError


def mask(level):
    return Admit("etl/mask", "r-1", masking=level)


def use(stage, call):
    return Admit(stage, call, is_restricted=True)


def after(*commands):
    value = None
    for command in commands:
        change, _ = reduce(value, command)
        value = value if change is KEEP else change.value
    return value


def test_quarantine_is_held_and_released():
    """Each run holds it by itself, and the same twice changes nothing."""
    value = after(Hold("etl/1", "schema"), Hold("etl/2", "license"))
    assert decode(value).held == {"etl/1": "schema", "etl/2": "license"}
    assert reduce(value, Hold("etl/1", "schema")) == (KEEP, "")
    assert reduce(value, use("etl/load", "r"))[1] == "it is in quarantine since run etl/1: schema"
    value = after(Hold("etl/1", "schema"), Hold("etl/2", "license"), Free("etl/1"))
    assert decode(value).held == {"etl/2": "license"}
    assert reduce(value, Free("etl/2"))[0] is DROP
    assert reduce(None, Free("etl/2")) == (KEEP, "")
    held = after(Hold("etl/1", "schema"), Hold("etl/2", "license"))
    assert reduce(held, Free("etl/3", is_council=True))[0] is DROP


@given(st.lists(st.integers(0, 9)))
def test_masking_never_weakens(levels):
    """Whatever the order, the level that is kept is the strongest."""
    value = after(*map(mask, levels))
    assert (0 if value is None else decode(value).masking) == max(levels, default=0)
    for level in range(10):
        assert bool(reduce(value, mask(level))[1]) == (level < max(levels, default=0))


def test_restricted_data_is_given_once():
    """A second call of a stage is refused; the same call twice is not; a release begins anew."""
    value = after(use("etl/load", "r-1.1.1.me"))
    assert reduce(value, use("etl/load", "r-1.1.1.me")) == (KEEP, "")
    again = "stage etl/load was given it before (r-1.1.1.me)"
    assert again in reduce(value, use("etl/load", "r-1.1.2.me"))[1]
    assert again in reduce(value, use("etl/load", "r-2.1.1.me"))[1]
    assert reduce(value, use("etl/check", "r-1.2.1.you"))[1] == ""
    assert reduce(value, Admit("etl/load", "r-2.1.1.me")) == (KEEP, "")
    used = use("etl/load", "r-1"), use("other/x", "r-1")
    assert decode(after(*used, Free("etl/r-1"))).used == {"etl/load": "r-1", "other/x": "r-1"}
    assert decode(after(*used, Free("etl/r-1", is_council=True))).used == {"other/x": "r-1"}


def test_a_stage_that_was_renamed_is_given_restricted_data_no_second_time():
    """In a later run of the pipeline; another pipeline has its own once."""
    value = after(use("etl/load", "r-1.1.1.me"))
    refused = reduce(value, use("etl/load_v2", "r-2.1.1.me"))
    assert refused[0] is KEEP
    assert "stage etl/load was given it before" in refused[1]
    assert reduce(value, use("other/load", "r-2.1.1.me"))[1] == ""
    assert reduce(value, use("etl2/load", "r-2.1.1.me"))[1] == ""


CALLS = st.builds(
    lambda pipeline, stage, run, attempt: use(
        f"{pipeline}/{stage}", f"{run}.{attempt}.{attempt}.me"
    ),
    st.sampled_from(["etl", "other"]),
    st.sampled_from(["load", "load_v2", "check"]),
    st.sampled_from(["r-1", "r-2", "r.3.4.5"]),
    st.integers(1, 3),
)


@given(st.lists(CALLS, max_size=12))
def test_restricted_data_is_for_one_run_of_a_pipeline(calls):
    """Whatever asks for it in whatever order: each pipeline has one run, each stage one call."""
    value, given_to = None, {}
    for call in calls:
        change, why = reduce(value, call)
        if not why:
            given_to.setdefault(call.stage, set()).add(call.call)
        value = value if change is KEEP else change.value
    assert all(len(each) == 1 for each in given_to.values())
    for pipeline in ("etl", "other"):
        used = {
            call for at, each in given_to.items() if at.startswith(f"{pipeline}/") for call in each
        }
        assert len({call.rsplit(".", 3)[0] for call in used}) <= 1
        assert bool(used) == any(call.stage.startswith(f"{pipeline}/") for call in calls)


def test_a_damaged_record():
    """It raises an error that names what it is."""
    with pytest.raises(StoredValueError, match="data set is damaged"):
        reduce(b"{", mask(1))


def test_a_stage_that_has_masked_it_masks_it():
    """Another one that does not mask is given it all the same."""
    value = after(mask(3), mask(4))
    assert decode(value).masked_by == ("etl/mask",)
    assert reduce(value, Admit("etl/load", "r-2")) == (KEEP, "")
    assert "does not mask it any more" in reduce(value, Admit("etl/mask", "r-2"))[1]
