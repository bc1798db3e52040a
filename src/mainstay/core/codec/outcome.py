"""Recorded outcomes: a result or an exception as JSON, and back with the same type and value.

A record has a version, `v`, and a `value` or what `failed`. encode.py writes values, decode.py
reads them, exceptions.py does both for exceptions. Whatever a store returns, reading it gives an
outcome or raises StoredValueError, and runs nothing that the record names.
"""

from __future__ import annotations

import msgspec

from mainstay.core.base.change import damage
from mainstay.core.base.value import Value
from mainstay.core.codec.decode import read
from mainstay.core.codec.encode import FREE, is_native, recorded
from mainstay.core.codec.exceptions import read_failure, record_failure, shortened_failure
from mainstay.core.codec.visitor import MAX_DEPTH
from mainstay.errors import StoredValueError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from mainstay.core.base.types import Json, UserValue
    from mainstay.core.codec.exceptions import FailureRecord

    class _OutcomeRecord(TypedDict, total=False):
        v: int
        value: Json
        failed: FailureRecord


VERSION = 1


class Succeeded(Value):
    """A call that returned.

    >>> Succeeded(None)
    Succeeded(value=None)
    """

    __slots__ = ("value",)
    value: UserValue

    def __init__(self, value: object) -> None:
        self._fill(value=value)


class Failed(Value):
    """A call that raised.

    >>> Failed(ValueError("no such order"))
    Failed(exception=ValueError('no such order'))
    """

    __slots__ = ("exception",)
    exception: Exception

    def __init__(self, exception: Exception) -> None:
        self._fill(exception=exception)


Outcome = Succeeded | Failed


def encode_outcome(outcome: Outcome) -> bytes:
    """An outcome as JSON.

    >>> encode_outcome(Succeeded({"id": 7, "tags": ("a", "b")}))
    b'{"v":1,"value":{"id":7,"tags":{"$tuple":["a","b"]}}}'
    """
    if isinstance(outcome, Failed):
        return _encode({"v": VERSION, "failed": record_failure(outcome.exception)})
    return encode_value(outcome.value)


def encode_shortened_failure(exception: Exception) -> bytes:
    """The outcome of a call that raised what is too large: its class, and the start of its text.

    It comes back as a StoredFailure.

    >>> len(encode_shortened_failure(ValueError("x" * 1_000_000))) < 3000
    True
    """
    return _encode({"v": VERSION, "failed": shortened_failure(exception)})


def encode_value(value: object) -> bytes:
    """The outcome of a call that returned this value, as JSON.

    >>> encode_value(500) == encode_outcome(Succeeded(500))
    True
    """
    if type(value) in FREE or is_native(value, MAX_DEPTH):
        try:
            return _encode({"v": VERSION, "value": value})
        except UnicodeEncodeError:  # a lone surrogate, which the recorder writes apart
            pass
    return _encode({"v": VERSION, "value": recorded(value)})


def decode_outcome(data: bytes) -> Outcome:
    """The outcome of such a text.

    >>> decode_outcome(encode_outcome(Succeeded({1, 2})))
    Succeeded(value={1, 2})
    >>> decode_outcome(encode_outcome(Failed(KeyError("x"))))
    Failed(exception=KeyError('x'))
    """
    try:
        return _outcome(_decode(data))
    except StoredValueError:
        raise
    except Exception as error:  # of whatever shape: it comes from outside
        raise damage(f"a recorded outcome cannot be read: {error}") from error


def _outcome(record: _OutcomeRecord) -> Outcome:
    if record["v"] != VERSION:
        raise StoredValueError(f"a recorded outcome has version {record['v']}, not {VERSION}")
    if "value" in record:
        return Succeeded(read(record["value"]))
    return Failed(read_failure(record["failed"]))


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
