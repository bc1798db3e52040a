"""What a governance file allows, by the rules alone."""

import pytest

from mainstay.core.pipeline.governance import DatasetRule, GovernanceRules, check
from mainstay.errors import GovernanceBlocked, GovernanceViolation


@pytest.mark.req("PL-08")
def test_what_is_blocked():
    """Whatever the stage is cleared for."""
    with pytest.raises(GovernanceBlocked, match="d-7 is blocked"):
        check(DatasetRule(status="blocked"), "d-7", ("CARE-A",), 9)
    check(DatasetRule(status="restricted"), "d-7", (), None)


@pytest.mark.req("PL-08")
def test_the_care_labels():
    """A stage is cleared for each label, or the data set is not given to it."""
    rule = DatasetRule(care_labels=("CARE-A", "CARE-C"))
    with pytest.raises(GovernanceViolation, match="CARE label CARE-C"):
        check(rule, "d-7", ("CARE-A",), None)
    check(rule, "d-7", ("CARE-A", "CARE-C"), None)


@pytest.mark.req("PL-08")
def test_the_masking_that_is_needed():
    """A stage that masks does so strongly enough; one that does not is no matter of masking."""
    rule = DatasetRule(masking=3)
    with pytest.raises(GovernanceViolation, match="needs masking level 3"):
        check(rule, "d-7", (), 2)
    check(rule, "d-7", (), 3)
    check(rule, "d-7", (), None)


def test_a_data_set_that_is_not_listed_is_open():
    """The file names what is special."""
    assert GovernanceRules().of("d-8") == DatasetRule()
