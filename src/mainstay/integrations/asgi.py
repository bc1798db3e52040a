"""The Idempotency-Key header of HTTP requests, as ASGI middleware: one request, one outcome.

The first request with a key runs and its response is recorded; a repeat gets that response back,
from any process that shares the store. It follows the draft of the IETF's HTTPAPI group, "The
Idempotency-Key HTTP Header Field", down to its status codes, in problem+json (RFC 9457).

A request is begun before the application receives it, and its response is recorded before the last
part goes out: a client that has received a whole response can have it again. The record is then:

| the application | the record |
| --- | --- |
| answered 2xx, 3xx or 4xx | the response, to be replayed |
| answered 5xx, 401, 403, 407, 408, 409, 425 or 429, or raised first | released: a repeat runs |
| broke off after it began to answer, or answered more than is kept | done, without a response |
| was cancelled before it began to answer, or died | left: when its lease ends, `on_crash` decides |

Here a request is begun, and run or replayed. Whose it is and which request it is, is in
asgi_identity.py; what is read and sent in asgi_messages.py; what is kept of it, and when, in
asgi_record.py; how many keys a caller may have in asgi_quota.py. No web framework is imported.
Renewing leases takes an asyncio event loop.
"""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from uuid import uuid4

import mainstay.runtime.clock as clock
from mainstay.core.base.functions import is_async
from mainstay.core.base.validate import Checker
from mainstay.core.codec.canonical import canonical, fingerprint
from mainstay.core.codec.outcome import Failed, decode_outcome
from mainstay.core.idempotency.call import Keyed
from mainstay.core.idempotency.record import Begin, Busy, Replay, Run, Unknown
from mainstay.core.inbox.items import Item
from mainstay.core.redact.redactor import REDACTOR
from mainstay.errors import StoredValueError, StoreUnavailable, UsageError
from mainstay.integrations.asgi_identity import (
    checked_caller,
    identity_of,
    known_caller,
    paths_of,
)
from mainstay.integrations.asgi_messages import (
    NEVER_REPLAYED,
    Body,
    Problem,
    abandoned,
    as_response,
    declared_length,
    hide_shortcuts,
    not_kept,
    parse_key,
    refusal,
    respond,
    unavailable,
    values_of,
)
from mainstay.integrations.asgi_quota import Quota, checked_quota
from mainstay.integrations.asgi_record import Claim, Response
from mainstay.runtime.reports.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mainstay.core.base.types import Seconds
    from mainstay.integrations.asgi_messages import App, Headers, Receive, Scope, Send
    from mainstay.integrations.asgi_record import Engine

_log = logger()

_CRASHES = 3
"""How often a request is run again after a crash, if `on_crash` allows it at all."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5


class IdempotencyKeyMiddleware:
    """Runs a request once for each Idempotency-Key, and replays its response to repeats.

    Args:
        app: the ASGI application.
        engine: whose store keeps the records.
        caller: a function of the ASGI scope that names the authenticated caller. Keys are each
            caller's own: no caller gets a response that was meant for another. If it returns
            None, False, 0 or something empty, the request is refused with 401.
        methods: the methods concerned; others pass untouched.
        required: whether a request must have a key: True, False, a function of the scope, or rules
            such as "POST", "/orders/*" and "POST /orders/*".
        header: the name of the header.
        operation: what the requests are called in the store; applications that share a store
            and callers have one each.
        ttl: seconds for which a response is replayed; None for ever.
        lease: seconds without a renewal after which a process counts as gone.
        max_body: bytes of a request; a longer one is refused with 413.
        max_response: bytes of a response that are kept.
        max_keys: keys that one caller may have at once, of those begun within the last `ttl`
            seconds; a further one is refused with 429. None for any number.
        on_conflict: "raise" 409 while the first request is under way, or "wait" for its response.
        wait: seconds to wait at most.
        on_crash: what a repeat of a request that was left unfinished gets: "unknown", 409 and an
            item in the inbox for a person; or "retry": it runs again.
        on_store_down: "refuse" requests with 503, or "pass" them on without a record.
        replay_cookies: whether Set-Cookie is kept and replayed.
        docs: the address of your API's page on keys, for the `type` of problems.

    Example:
        >>> from mainstay import Engine
        >>> async def app(scope, receive, send): ...
        >>> app = IdempotencyKeyMiddleware(
        ...     app, Engine(), caller=lambda scope: scope["user"].display_name
        ... )
    """

    def __init__(  # noqa: PLR0913 -- one keyword for each decision that is a service's own
        self,
        app: App,
        engine: Engine,
        *,
        caller: Callable[[Scope], str | None] | None = None,
        methods: Iterable[str] = ("POST", "PATCH"),
        required: bool | Iterable[str] | Callable[[Scope], bool] = True,
        header: str = "Idempotency-Key",
        operation: str = "http.request",
        ttl: Seconds | None = 86_400.0,
        lease: Seconds = 30.0,
        max_body: int = 1_000_000,
        max_response: int = 1_000_000,
        max_keys: int | None = None,
        on_conflict: str = "raise",
        wait: Seconds = 30.0,
        on_crash: str = "unknown",
        on_store_down: str = "refuse",
        replay_cookies: bool = False,
        docs: str | None = None,
    ) -> None:
        self._app = app
        self._engine = engine
        self._caller = checked_caller(caller)
        check = Checker("IdempotencyKeyMiddleware")
        self._methods = frozenset(method.upper() for method in methods)
        self._is_required = _requirement(required, self._methods, check)
        self._header = check.name("header", header)
        self._operation = check.name("operation", operation)
        self._ttl = check.optional_seconds("ttl", ttl)
        self._lease = check.duration("lease", lease, 0.05, 86_400.0)
        self._max_body = check.count("max_body", max_body, 2**31, 0)
        self._max_response = check.count("max_response", max_response, 2**31, 0)
        self._max_keys = checked_quota(check, max_keys, self._ttl)
        self._on_conflict = check.choice("on_conflict", on_conflict, ("raise", "wait"))
        self._wait = check.seconds("wait", wait)
        self._on_crash = check.choice("on_crash", on_crash, ("unknown", "retry"))
        self._on_store_down = check.choice("on_store_down", on_store_down, ("refuse", "pass"))
        check.close()
        self._dropped = NEVER_REPLAYED if replay_cookies else NEVER_REPLAYED | {b"set-cookie"}
        self._docs = docs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection; those that are no such request pass untouched."""
        if scope["type"] != "http" or scope["method"] not in self._methods:
            await self._app(scope, receive, send)
            return
        body = Body(receive)
        try:
            key = self._key_of(scope)
            claim = None if key is None else await self._claim(scope, key, body)
            answer = None if claim is None else await self._begin(claim, scope)
        except Problem as problem:
            await problem.send(send, self._docs)
            return
        if body.has_disconnected:  # before the request was whole: there is nothing to run
            return
        if claim is None or answer is None:
            await self._app(scope, body.receive, send)
        elif isinstance(answer, Replay):
            await self._replay(claim, answer, send)
        else:
            await self._run(claim, scope, body, send)

    # --- before ----------------------------------------------------------------------------------

    def _key_of(self, scope: Scope) -> str | None:
        values = values_of(scope["headers"], self._header.lower().encode("latin-1"))
        if values:
            return parse_key(values, self._header)
        if not self._is_required(scope):
            return None
        raise Problem(
            400,
            "key_missing",
            f"{self._header} is missing",
            f"{scope['method']} requests to this resource need the header {self._header}: a text"
            " of your own making, the same for every attempt of one request.",
        )

    async def _claim(self, scope: Scope, key: str, body: Body) -> Claim | None:
        """The claim of the request; None if the client disconnected before it was whole."""
        caller = known_caller(self._caller(scope), self._header)
        digest = await body.read(declared_length(scope["headers"]), self._max_body)
        if digest is None:
            return None
        identity = identity_of(scope, digest)
        call = Keyed(
            operation=self._operation,
            key=key,
            fingerprint=fingerprint(identity),
            owner=uuid4().hex,
            lease=self._lease,
            ttl=self._ttl,
        )
        address = canonical([caller, self._operation, key]).decode()
        return Claim(self._engine, call, address, identity, self._quota_of(caller))

    def _quota_of(self, caller: Any) -> Quota | None:
        if self._max_keys is None or self._ttl is None:
            return None
        address = canonical([caller, self._operation]).decode()
        return Quota(address, self._max_keys, self._ttl, self._header)

    async def _begin(self, claim: Claim, scope: Scope) -> Run | Replay | None:
        """The record's answer: run, or replay; None to pass the request on without a record."""
        _check_loop()
        begin = Begin(
            claim.call.owner, claim.call.fingerprint, self._lease, _CRASHES, self._on_crash
        )
        try:
            answer = await claim.begin(begin)
            if isinstance(answer, Busy):
                claim.count("conflict")
                answer = await self._waited(claim, begin, answer)
            if isinstance(answer, Unknown) and answer.is_new:
                await self._escalate(claim, scope, answer)
        except StoreUnavailable as error:
            if self._on_store_down == "refuse":
                raise unavailable() from error
            reason = REDACTOR.text(str(error))
            _log.warning("a request was passed on without an idempotency record: %s", reason)
            return None
        except StoredValueError as error:
            await claim.report_damage(error)
            raise
        if isinstance(answer, Run | Replay):
            return answer
        raise refusal(answer, self._header)

    async def _waited(self, claim: Claim, begin: Begin, answer: Any) -> Any:
        """The answer once the first request has ended, if that is wanted and in time."""
        until = clock.current.monotonic() + (self._wait if self._on_conflict == "wait" else 0.0)
        pause = _FIRST_PAUSE
        while isinstance(answer, Busy) and (left := until - clock.current.monotonic()) > 0.0:
            await asyncio.sleep(min(pause, left))
            pause = min(_LONGEST_PAUSE, pause * 2)
            answer = await claim.begin(begin)
        return answer

    async def _escalate(self, claim: Claim, scope: Scope, answer: Unknown) -> None:
        claim.count("unknown")
        asked = f"{scope['method']} {scope['path']} with {self._header} {claim.call.key!r}"
        item = Item(
            kind="unknown_outcome",
            subject=claim.address,
            operation=self._operation,
            text=f"{asked}: {answer.reason}",
            attempts=answer.attempts,
            occasion=f"{answer.owner}:{answer.epoch}",
            data={"address": claim.address, "owner": answer.owner, "epoch": answer.epoch},
        )
        await self._engine.inbox.aput(item)

    # --- after -----------------------------------------------------------------------------------

    async def _replay(self, claim: Claim, answer: Replay, send: Send) -> None:
        """Sends the recorded response again, or a problem if it was too large to keep."""
        try:
            outcome: Any = decode_outcome(answer.outcome)
        except StoredValueError as error:
            await claim.report_damage(error)
            raise
        if isinstance(outcome, Failed):
            await abandoned().send(send, self._docs)
            return
        kept = as_response(outcome.value)
        headers: Headers = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in kept["headers"]]
        if kept["body"] is None:
            await not_kept(kept["status"], headers).send(send, self._docs)
            return
        headers.append((b"idempotency-replayed", b"true"))
        await respond(send, kept["status"], headers, kept["body"])

    async def _run(self, claim: Claim, scope: Scope, body: Body, send: Send) -> None:
        """Runs the application and records what becomes of it."""
        hide_shortcuts(scope)
        response = Response(claim, send, self._max_response, self._dropped)
        renewal = asyncio.create_task(claim.keep_alive())
        try:
            await self._app(scope, body.receive, response.send)
        except Exception:
            await response.broke()
            raise
        except BaseException:  # cancelled: what the application did before is unknown
            response.cut()
            raise
        else:
            await response.ended(has_disconnected=body.has_disconnected)
        finally:
            renewal.cancel()


def _requirement(required: Any, methods: frozenset[str], check: Checker) -> Callable[[Scope], bool]:
    """Whether a request must have a key, as a function of its scope."""
    if is_async(required):
        check.note("required", required, "a plain function of the scope: nothing awaits it")
    if callable(required):
        return required  # type: ignore[no-any-return]
    if isinstance(required, bool):
        return lambda _: required
    rules = [_rule(text) for text in ([required] if isinstance(required, str) else required)]
    for method, pattern in rules:
        if method not in methods and method:
            check.note("required", f"{method} {pattern}", f"of the methods {sorted(methods)}")
    return lambda scope: any(
        method in ("", scope["method"]) and fnmatchcase(path, pattern)
        for path in paths_of(scope)
        for method, pattern in rules
    )


def _rule(text: str) -> tuple[str, str]:
    """Method and pattern of "POST", "/orders/*" or "POST /orders/*"."""
    method, _, path = text.strip().rpartition(" ")
    return (method.strip().upper(), path) if path.startswith("/") else (path.upper(), "*")


def _check_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError(
            "IdempotencyKeyMiddleware runs under asyncio", hint="use an asyncio worker"
        ) from None
