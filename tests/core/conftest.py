"""For the whole folder: warnings anew."""

import pytest

from mainstay.drivers.call import call as answers


@pytest.fixture(autouse=True)
def _nothing_was_warned_of():
    """Some tests run whole calls, and a warning is given once per process."""
    answers._warned.clear()
