"""For the whole folder: Hypothesis sets no time limit, since machines are shared; warnings anew."""

import pytest
from hypothesis import settings

from mainstay.drivers.call import call as answers

settings.register_profile("core", deadline=None)
settings.load_profile("core")


@pytest.fixture(autouse=True)
def _nothing_was_warned_of():
    """Some tests run whole calls, and a warning is given once per process."""
    answers._warned.clear()
