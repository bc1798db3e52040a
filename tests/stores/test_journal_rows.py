"""Blocks of an audit log as rows."""

import json

from hypothesis import given
from hypothesis import strategies as st

from mainstay.stores.journal_rows import body_of, records_of

RECORDS = st.lists(st.dictionaries(st.text(max_size=5), st.integers(), max_size=2), max_size=5)


@given(records=RECORDS)
def test_the_records_of_a_block_are_one_json_array_with_its_commas_on_lines(records):
    """As SQL reads it, and as it is split again."""
    lines = [json.dumps(each).encode() for each in records]
    body = body_of(lines)
    assert body == (b"[\n" + b"\n,\n".join(lines) + b"\n]" if lines else b"[]")
    assert records_of(body) == lines
    assert json.loads(body) == records
