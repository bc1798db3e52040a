"""Lines of JSON texts."""

import msgspec
import pytest

from mainstay.core.codec.json_lines import line_at, line_of_error, places


class Parts(msgspec.Struct):
    parts: list[msgspec.Raw]


def test_each_part_has_its_place_also_if_one_is_within_another():
    data = b'{"a": [1],\n"parts": [\n[1],\n[[1]],\n[1]]}'
    parts = msgspec.json.decode(data, type=Parts).parts
    found = list(places(data, parts, data.index(b'"parts"')))
    assert [line_at(data, place) for place in found] == [3, 4, 5]


def test_an_error_has_the_line_of_its_byte_or_the_last():
    data = b'{"parts": [\n1,\n?]}'
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(data)
    assert line_of_error(data, caught.value) == 3
    assert line_of_error(b"{\n\n}\n\n", ValueError("no place")) == 3
    data = b'{\n"parts": 7,\n"more": 8\n}'
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(data, type=Parts)
    assert line_of_error(data, caught.value) == 2
    assert line_of_error(data, ValueError("Object contains unknown field `more`")) == 3
    assert line_of_error(data, ValueError("Object missing required field `$.gone`")) == 4
