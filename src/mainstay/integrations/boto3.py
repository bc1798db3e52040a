"""boto3 and botocore: clients whose calls end at the deadline, and are repeated by one side alone.

`attach(client, policy)` has every operation of a client called under the policy, and turns the
retries of botocore off. Without a policy the retry is that of the function around the call.

The deadline reaches the socket through the connections of botocore's pools: before each read and
write they look at what is left (integrations/urllib3.py). A transfer of s3transfer works in threads
of its own, which have no deadline: `TransferConfig(use_threads=False)` has it in the caller's.

botocore has no public place for either. Its private names that are used here have been the same for
years, and the tests use the newest version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import botocore.awsrequest  # type: ignore[import-untyped]  # botocore has no types
from urllib3.exceptions import ConnectTimeoutError
from urllib3.util.timeout import Timeout

import mainstay.runtime.clock as clock
from mainstay import deadline
from mainstay.core.base.deadline import NEVER
from mainstay.core.known.http import ONCE
from mainstay.integrations.http_exchange import limited
from mainstay.integrations.http_headers import Outgoing
from mainstay.integrations.urllib3 import Timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeVar

    from mainstay.integrations.http_headers import Calls, Operations

    C = TypeVar("C")


def attach(
    client: C,
    retry: Calls | Operations | None = None,
    *,
    operation: str = "boto3",
    own_retries: bool = False,
) -> C:
    """Has the calls of a client end at the deadline, and repeated by `retry` instead of botocore.

    Args:
        client: of boto3 or botocore; one of a resource is `resource.meta.client`.
        retry: a RetryPolicy, an Engine, or an operation of one; None if the function around the
            call has the retry.
        operation: the operation of the engine.
        own_retries: leaves botocore's retries on. The two multiply, which is warned of once.

    Returns:
        The client.

    Example:
        >>> import boto3, mainstay
        >>> s3 = boto3.client("s3", region_name="eu-west-1")
        >>> attach(s3, mainstay.RetryPolicy(attempts=3)) is s3
        True
    """
    made: Any = client
    outgoing = Outgoing(retry, (), operation)
    _bound(made._endpoint.http_session)  # noqa: SLF001 -- see above
    if own_retries:
        inside = made.meta.config.retries.get("total_max_attempts", 1) - 1
        outgoing.warn_of_retries("botocore", inside, "leave out own_retries")
    else:
        _turn_retries_off(made)
    if outgoing.calls is not None:
        send = made._make_api_call  # noqa: SLF001 -- see above
        made._make_api_call = _Calls(send, outgoing.calls, made.meta.service_model)  # noqa: SLF001 -- see above
    return client


def _turn_retries_off(client: Any) -> None:
    """Removes botocore's handler; others stay: S3's follows a bucket to its region."""
    service = client.meta.service_model.service_id.hyphenize()
    client.meta.events.unregister(f"needs-retry.{service}", unique_id=f"retry-config-{service}")


class _Calls:
    """Stands for the method of a client by which all of its operations are called."""

    __slots__ = ("_calls", "_send", "_service")

    def __init__(self, send: Callable[..., Any], calls: Calls, service: Any) -> None:
        self._send = send
        self._calls = calls
        self._service = service

    def __call__(self, operation_name: str, parameters: Mapping[str, Any]) -> Any:
        tokens = self._service.operation_model(operation_name).idempotent_members
        return self._calls.call(_Call(self._send, operation_name, parameters, tokens))


class _Call:
    """One operation, in one or more attempts: a body that was read begins where it began.

    botocore writes into the parameters: it makes a file of bytes, and encodes what is not encoded.
    So each attempt has a copy of them. The tokens that botocore adds are those of the first one.
    """

    __slots__ = ("__qualname__", "_bodies", "_name", "_parameters", "_send", "_tokens")

    def __init__(
        self,
        send: Callable[..., Any],
        name: str,
        parameters: Mapping[str, Any],
        tokens: Iterable[str],
    ) -> None:
        self._send = send
        self._name = name
        self._parameters = dict(parameters)
        self._tokens = tokens
        files = [each for each in parameters.values() if hasattr(each, "read")]
        self._bodies = [(each, _position(each)) for each in files]
        self.__qualname__ = name  # what notes and events call it

    def __call__(self) -> Any:
        for body, position in self._bodies:
            if position is not None:
                body.seek(position)
        parameters = _copied(self._parameters)
        try:
            return self._send(self._name, parameters)
        except Exception as error:
            if any(position is None for _, position in self._bodies):
                setattr(error, ONCE, f"{self._name} whose body cannot be read again")
            raise
        finally:
            for name in self._tokens:
                if name in parameters:
                    self._parameters[name] = parameters[name]


def _copied(value: Any) -> Any:
    """The dictionaries and lists of parameters anew; what is in them stays the same."""
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return value


def _position(file: Any) -> int | None:
    """Where a file is; None if it cannot be set back.

    A part of a file that s3transfer uploads can be set back, but has no `seekable`.
    """
    try:
        can_seek = file.seekable() if hasattr(file, "seekable") else callable(file.seek)
        return int(file.tell()) if can_seek else None
    except (AttributeError, OSError):
        return None


# --- the deadline of a request --------------------------------------------------------------------


def _bound(session: Any) -> None:
    """Has the connections of a session of botocore's end at the deadline."""
    session._pool_classes_by_scheme.update(http=_Pool, https=_TlsPool)  # noqa: SLF001 -- see above
    session.close()  # connections that there are were made by the pools of before


class _Connection(Timed, botocore.awsrequest.AWSHTTPConnection):  # type: ignore[misc]  # untyped
    pass


class _TlsConnection(Timed, botocore.awsrequest.AWSHTTPSConnection):  # type: ignore[misc]  # untyped
    pass


class _Ending:
    """What both sorts of pool have."""

    timeout: Any

    def urlopen(self, method: str, url: str, **options: Any) -> Any:
        """As urllib3's, with what is left of the deadline as the timeouts."""
        end = deadline.moment()
        if end != NEVER:
            if end <= clock.current.monotonic():
                raise ConnectTimeoutError(self, "no time is left before the deadline")
            options["timeout"] = _timeout(options.get("timeout") or self.timeout, end)
            options["headers"] = _without_expect(options["headers"])
        return super().urlopen(method, url, **options)  # type: ignore[misc]  # of urllib3's pool


class _Pool(_Ending, botocore.awsrequest.AWSHTTPConnectionPool):  # type: ignore[misc]  # untyped
    ConnectionCls = _Connection


class _TlsPool(_Ending, botocore.awsrequest.AWSHTTPSConnectionPool):  # type: ignore[misc]  # untyped
    ConnectionCls = _TlsConnection


def _timeout(given: Timeout, end: float) -> Timeout:
    connect, read = given.connect_timeout, given.read_timeout
    seconds = (each if isinstance(each, int | float) else None for each in (connect, read))
    connecting, reading = (limited(each, end) for each in seconds)
    return Timeout(connect=connecting, read=reading)


def _without_expect(headers: Mapping[str, Any]) -> dict[str, Any]:
    """For `Expect: 100-continue` botocore waits a second, whatever is left; it is not signed."""
    return {name: value for name, value in headers.items() if name.lower() != "expect"}
