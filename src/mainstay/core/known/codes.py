"""The error codes of a service that an exception carries; rules may name them."""

from __future__ import annotations

from mainstay.core.base.attributes import attribute, signals_of
from mainstay.core.known.http import status_of
from mainstay.core.known.resolve import codes_by_table

RECORDED_CODES = "ms_codes"
"""Where an exception that stands for a recorded one has its codes."""
_NAMES = ("code", "error_code", "sqlstate", "pgcode")


def codes_of(exception: BaseException) -> tuple[str, ...]:
    """The service's own error codes: botocore's Error.Code, an SQLSTATE, `.code`, gRPC's code().

    An HTTP status counts as one.

    >>> error = RuntimeError()
    >>> error.code = "ThrottlingException"
    >>> codes_of(error)
    ('ThrottlingException',)
    """
    recorded = exception.__dict__.get(RECORDED_CODES)
    if recorded is not None:
        return (*recorded, str(status_of(exception)))
    found = codes_by_table(exception)
    if not found:  # a table has all that there are, and other names may be deprecated ones
        for name in _NAMES:
            found += _code_texts(attribute(exception, name))
    status = status_of(exception)
    if status is not None:
        found += (str(status),)
    signals = signals_of(exception)
    response = attribute(exception, "response") if signals is None else signals.get("response")
    if isinstance(response, dict) and isinstance(response.get("Error"), dict):
        found += _code_texts(response["Error"].get("Code"))
    return tuple(dict.fromkeys(found))


def _code_texts(code: object) -> tuple[str, ...]:
    if type(code) is str:
        return (code,)
    if callable(code):  # grpc.RpcError.code()
        try:
            code = code()
        except Exception:
            return ()
    if isinstance(code, str):
        return (code,)
    if type(code) is int:
        return (str(code),)
    name = attribute(code, "name")
    return (name,) if isinstance(name, str) else ()
