"""A folder for each test of pipelines, under virtual time."""

import pytest

from mainstay.testing import virtual_time
from tests.profiles.pipelines.places import Place


@pytest.fixture
def place(tmp_path):
    with virtual_time() as clock:
        found = Place(tmp_path)
        found.clock = clock
        yield found
