"""The middleware: real applications through httpx, and hand-made ASGI calls for the rest."""

from __future__ import annotations

import asyncio
import hashlib
import json
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route

import mainstay.runtime.clock as clock
from mainstay import Engine
from mainstay.core.base.change import Change
from mainstay.core.base.spaces import Space
from mainstay.core.codec.canonical import canonical, fingerprint
from mainstay.core.codec.outcome import Succeeded, encode_outcome
from mainstay.core.idempotency.record import Begin, RecordState, Renew, Run, Settle, reduce
from mainstay.errors import (
    PolicyError,
    StoredValueError,
    StoreUnavailable,
    UsageError,
    ValueTooLarge,
)
from mainstay.integrations.asgi import IdempotencyKeyMiddleware
from mainstay.integrations.asgi_record import SPACE
from mainstay.stores.memory import MemoryStore
from mainstay.testing import virtual_time

KEY = {"Idempotency-Key": '"k-1"'}
COUNTS = Space.KEY_COUNTS.value


def bounded(coroutine):
    """Runs it, for so long at most; under virtual time that is at once."""

    async def main():
        async with asyncio.timeout(600.0):
            return await coroutine

    return asyncio.run(main())


def caller(scope):
    """The name a request gives; a real service would have authenticated it."""
    return dict(scope["headers"]).get(b"x-user", b"ann").decode()


def guarded(app, engine=None, **options):
    """The application behind the middleware."""
    engine = Engine(sinks=[]) if engine is None else engine
    return IdempotencyKeyMiddleware(app, engine, caller=options.pop("caller", caller), **options)


class Shop:
    """A handler that counts its runs and answers as told."""

    def __init__(self, answer=None):
        self.runs = 0
        self.bodies = []
        self.answer = answer or (lambda: JSONResponse({"run": self.runs}, 201))

    async def order(self, request):
        self.runs += 1
        self.bodies.append(await request.body())
        return self.answer()

    @property
    def app(self):
        methods = ["POST", "PATCH", "PUT", "GET", "DELETE"]
        return Starlette(routes=[Route("/{rest:path}", self.order, methods=methods)])


def ask(app, *requests, **client):
    """Sends requests one after the other; the responses."""

    async def main():
        transport = httpx.ASGITransport(app=app, **client)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as session:
            return [await session.request(*args, **kwargs) for args, kwargs in requests]

    return bounded(main())


def post(path="/orders", headers=KEY, content=b"{}", method="POST", **more):
    """A request for ask()."""
    return (method, path), {"headers": {**headers, **more}, "content": content}


def problem(response):
    """The body of a problem, and its media type checked."""
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["content-length"] == str(len(response.content))
    return response.json()


# --- replay ---------------------------------------------------------------------------------------


def test_a_repeat_gets_the_first_response():
    """Status, headers and body are the same; one header says that it is a repeat."""
    shop = Shop()
    first, second = ask(guarded(shop.app), post(), post())
    assert shop.runs == 1
    assert (second.status_code, second.content) == (201, first.content)
    assert second.headers.pop("idempotency-replayed") == "true"
    assert second.headers == first.headers


def test_bytes_and_repeated_headers_come_back_as_they_were():
    """A body that is no text, and a header that is there twice."""
    body = bytes(range(256))

    def answer():
        response = Response(body, media_type="application/octet-stream")
        response.raw_headers += [(b"link", b"<a>"), (b"link", b"<b>"), (b"x-name", b"\xe9")]
        return response

    first, second = ask(guarded(Shop(answer).app), post(), post())
    assert second.content == first.content == body
    assert second.headers.raw[:-1] == first.headers.raw


def test_headers_of_one_connection_or_moment_are_not_replayed():
    """Hop-by-hop headers, what Connection names, Date, and cookies."""
    gone = {
        "connection": "x-hop, close",
        "x-hop": "1",
        "keep-alive": "timeout=5",
        "date": "Thu, 01 Jan 1970 00:00:00 GMT",
        "set-cookie": "session=secret",
    }
    shop = Shop(lambda: Response("ok", headers={**gone, "etag": "7"}))
    engine = Engine(sinks=[])
    first, second = ask(guarded(shop.app, engine), post(), post())
    assert set(gone) <= set(first.headers)
    assert not set(gone) & set(second.headers)
    assert second.headers["etag"] == "7"
    assert b"secret" not in engine.store.scan(SPACE)[0][1]


def test_cookies_are_replayed_where_that_is_asked_for():
    """Somebody's session may depend on it."""
    shop = Shop(lambda: Response("ok", headers={"set-cookie": "a=1"}))
    _, second = ask(guarded(shop.app, replay_cookies=True), post(), post())
    assert second.headers["set-cookie"] == "a=1"


class Order(BaseModel):
    amount: int


def test_a_fastapi_application_is_served_once():
    """With a model as its body, and as its own middleware."""
    app, made = FastAPI(), []

    @app.post("/orders", status_code=201)
    async def create(order: Order):
        made.append(order)
        return {"id": len(made), "amount": order.amount}

    app.add_middleware(IdempotencyKeyMiddleware, engine=Engine(sinks=[]), caller=caller)
    kind = {"Content-Type": "application/json"}
    responses = ask(app, *[post(content=b'{"amount": 5}', **kind)] * 3)
    assert [response.json() for response in responses] == [{"id": 1, "amount": 5}] * 3
    bad = ask(app, *[post(headers={"Idempotency-Key": "b"}, **kind)] * 2)
    assert [response.status_code for response in bad] == [422, 422]
    assert bad[1].headers["idempotency-replayed"] == "true"


def test_a_response_outlives_the_process(tmp_path):
    """A new engine on the same file replays what the old one recorded."""
    url = f"sqlite:///{tmp_path}/records.db"
    shop, responses = Shop(), []
    for _ in range(2):
        with Engine(url, sinks=[]) as engine:
            responses += ask(guarded(shop.app, engine), post())
    assert shop.runs == 1
    assert responses[1].content == responses[0].content
    assert responses[1].headers["idempotency-replayed"] == "true"


def test_a_response_is_replayed_for_its_time_only():
    """After that the key is free again."""
    shop = Shop()
    with virtual_time() as time:
        app = guarded(shop.app, ttl=60.0)
        ask(app, post())
        time.advance(61.0)
        (late,) = ask(app, post())
    assert late.json() == {"run": 2}


def test_a_response_to_an_inner_middleware_is_whole_too():
    """Starlette's own middleware sends each response in pieces."""

    async def pass_on(request, call_next):
        return await call_next(request)

    shop = Shop()
    app = guarded(BaseHTTPMiddleware(shop.app, pass_on))
    first, second = ask(app, post(), post())
    assert (second.content, second.headers["idempotency-replayed"]) == (first.content, "true")


def test_a_failing_background_task_changes_nothing():
    """The response was whole, and is recorded; the failure goes on to the server."""

    async def fail():
        raise RuntimeError("mail")

    shop = Shop(lambda: PlainTextResponse("ok", background=BackgroundTask(fail)))
    engine = Engine(sinks=[])
    app = guarded(shop.app, engine)
    (first,) = ask(app, post(), raise_app_exceptions=False)
    (second,) = ask(app, post())
    assert (first.text, second.text, shop.runs) == ("ok", "ok", 1)
    assert engine.records.counts()["record"] == 1


def test_hits_records_and_conflicts_are_counted():
    """Beside those of the engine's own calls."""
    engine = Engine(sinks=[])
    ask(guarded(Shop().app, engine), post(), post(), post())
    assert engine.records.counts() == {
        "hit": 2, "record": 1, "conflict": 0, "lost": 0, "unknown": 0, "expired": 0,
        "not_kept": 0,
    }  # fmt: skip


# --- which responses ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 204, 303, 400, 404, 410, 422])
def test_a_final_response_is_recorded(status):
    """What another attempt would not change."""
    shop = Shop(lambda: Response(status_code=status))
    first, second = ask(guarded(shop.app), post(), post())
    assert shop.runs == 1
    assert second.headers.raw[:-1] == first.headers.raw


@pytest.mark.parametrize("status", [401, 403, 407, 408, 409, 425, 429, 500, 502, 503, 504])
def test_a_passing_response_is_not_recorded(status):
    """A repeat may fare better, so it runs."""
    shop = Shop(lambda: PlainTextResponse("no", status))
    engine = Engine(sinks=[])
    first, _ = ask(guarded(shop.app, engine), post(), post())
    assert (first.status_code, first.text, shop.runs) == (status, "no", 2)
    assert engine.store.scan(SPACE) == []


def test_a_redirect_keeps_its_way():
    """303 See Other is how many a form answers."""
    shop = Shop(lambda: RedirectResponse("/orders/7", 303))
    _, second = ask(guarded(shop.app), post(), post())
    assert (second.status_code, second.headers["location"]) == (303, "/orders/7")


def test_an_application_that_raises_leaves_no_record():
    """Its exception goes on as it is, and a repeat runs."""

    def answer():
        if shop.runs == 1:
            raise ZeroDivisionError("planted")
        return PlainTextResponse("ok")

    shop = Shop(answer)
    app = guarded(shop.app)
    with pytest.raises(ZeroDivisionError, match="planted"):
        ask(app, post())
    (second,) = ask(app, post())
    assert (second.text, shop.runs) == ("ok", 2)


# --- refusals -------------------------------------------------------------------------------------


def test_a_missing_key_is_refused():
    """400, as the draft has it, and the application is not asked."""
    shop = Shop()
    (response,) = ask(guarded(shop.app), post(headers={}))
    assert (response.status_code, shop.runs) == (400, 0)
    assert problem(response) == {
        "type": "about:blank",
        "title": "Idempotency-Key is missing",
        "status": 400,
        "detail": "POST requests to this resource need the header Idempotency-Key: a text of your"
        " own making, the same for every attempt of one request.",
        "code": "key_missing",
    }


def test_problems_point_to_the_services_own_page():
    """The draft asks for a link to documentation."""
    (response,) = ask(guarded(Shop().app, docs="https://api.example/keys"), post(headers={}))
    assert problem(response)["type"] == "https://api.example/keys#key_missing"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "it is empty"),
        (b'""', "it is empty"),
        (b'"  "', "it is empty"),
        (b"x" * 256, "it has 256 characters; 255 are allowed"),
        (b'"' + b"x" * 256 + b'"', "it has 256 characters; 255 are allowed"),
        (b"a\x00b", "visible ASCII"),
        (b'"a\x7fb"', "visible ASCII"),
        (b"caf\xe9", "visible ASCII"),
        (b"a, b", "visible ASCII"),
        (b"a,b", "visible ASCII"),
        (b'"a', "visible ASCII"),
        (b'"a"b"', "visible ASCII"),
        (b'"a";x=1', "visible ASCII"),
        (b"a b", "visible ASCII"),
    ],
)
def test_a_malformed_key_is_refused(value, reason):
    """400 with the reason; nothing runs."""
    shop = Shop()
    sent = Call([(b"idempotency-key", value)]).run(guarded(shop.app))
    assert (sent.status, shop.runs) == (400, 0)
    body = json.loads(sent.body)
    assert body["code"] == "key_malformed"
    assert body["title"] == "Idempotency-Key is malformed"
    assert reason in body["detail"]


def test_two_keys_are_refused():
    """The draft forbids it."""
    call = Call([(b"idempotency-key", b"a"), (b"idempotency-key", b"b")])
    sent = call.run(guarded(Shop().app))
    assert (sent.status, "more than one" in sent.body.decode()) == (400, True)


def test_quoted_and_bare_are_the_same_key():
    """Most clients do not quote; the draft does."""
    shop = Shop()
    app = guarded(shop.app)
    values = ['"a\\"b"', '"a"', "a", "  a ", "8e03978e-40d5/43e8+bc93="]
    ask(app, *[post(headers={"Idempotency-Key": value}) for value in values])
    assert shop.runs == 3


@pytest.mark.parametrize(
    "other",
    [
        post(content=b"[]"),
        post(path="/refunds"),
        post(path="/orders?x=1"),
        post(method="PATCH"),
        post(**{"Content-Type": "text/plain"}),
        post(Host="admin.shop"),
        post(Host="shop:8080"),
    ],
)
def test_a_key_stands_for_one_request(other):
    """Another body, host, path, query, method or type: 422, and the record stays as it was."""
    shop = Shop()
    _, refused, repeat = ask(guarded(shop.app), post(), other, post())
    assert (refused.status_code, shop.runs) == (422, 1)
    assert problem(refused) == {
        "type": "about:blank",
        "title": "Idempotency-Key was used for another request",
        "status": 422,
        "detail": "The key stands for a request with another method, host, path, query, content"
        " type or body. Use a new key for a new request.",
        "code": "key_reused",
    }
    assert repeat.json() == {"run": 1}


def test_a_key_is_its_callers_own():
    """The same key of somebody else is another request."""
    shop = Shop()
    first, second = ask(guarded(shop.app), post(), post(**{"x-user": "bob"}))
    assert (first.json(), second.json()) == ({"run": 1}, {"run": 2})


@pytest.mark.parametrize("host", ["shop", "SHOP", "shop:80"])
def test_one_host_in_several_spellings_is_one_host(host):
    """Names have no case, and the usual port of a scheme may be left out."""
    shop = Shop()
    _, again = ask(guarded(shop.app), post(), post(Host=host))
    assert (again.status_code, shop.runs) == (201, 1)


def test_a_key_stands_for_one_mounted_application():
    """The same path under another root is another request."""
    shop, engine = Shop(), Engine(sinks=[])
    app = guarded(shop.app, engine)
    (first,) = ask(app, post(), root_path="/eu")
    other, again = (ask(app, post(), root_path=root)[0] for root in ("/us", "/eu"))
    assert (first.status_code, other.status_code, again.status_code) == (201, 422, 201)
    assert shop.runs == 1


@pytest.mark.parametrize("path", ["/orders/a%2Fb", "/orders/a%2fb", "/orders/a%3Bb=1"])
def test_an_escape_that_separates_nothing_makes_another_request(path):
    """Servers take escapes out of the path: `/a%2Fb` is one order, `/a/b` a part of another."""
    shop = Shop()
    plain = path.replace("%2F", "/").replace("%2f", "/").replace("%3B", ";")
    first, other = ask(guarded(shop.app), post(path), post(plain))
    assert (first.status_code, other.status_code, shop.runs) == (201, 422, 1)


def test_a_path_that_is_no_utf_8_is_not_every_such_path():
    """Servers put one sign in the place of all that they cannot read."""
    shop = Shop()
    paths = ["/orders/%FF", "/orders/%FE", "/orders/%fF"]
    first, other, again = ask(guarded(shop.app), *map(post, paths))
    assert (first.status_code, other.status_code, again.status_code) == (201, 422, 201)
    assert shop.runs == 1


def test_other_escapes_are_spellings_of_one_path():
    """`%7E` is `~` (RFC 3986, 2.3)."""
    shop = Shop()
    _, again = ask(guarded(shop.app), post("/orders/%7Eann"), post("/orders/~ann"))
    assert (again.status_code, shop.runs) == (201, 1)


@pytest.mark.parametrize("rule", ["/orders", "POST /orders", "POST /eu/orders"])
def test_a_rule_holds_for_an_application_that_is_mounted(rule):
    """Its path has the root in it, as ASGI has it; a rule may leave that out."""
    shop = Shop()
    inner = Starlette(routes=[Mount("/eu", guarded(shop.app, required=[rule]))])
    refused, other = ask(inner, post("/eu/orders", headers={}), post("/eu/else", headers={}))
    assert (refused.status_code, other.status_code, shop.runs) == (400, 201, 1)


def test_headers_that_can_be_read_once_are_sent_and_replayed():
    """ASGI asks for an iterable: a generator is one."""

    async def app(scope, receive, send):
        pairs = {"location": "/orders/7", "content-length": "2"}.items()
        headers = ((name.encode(), value.encode()) for name, value in pairs)
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    first, again = ask(guarded(app), post(), post())
    assert [each.headers.get("location") for each in (first, again)] == ["/orders/7"] * 2


def test_a_length_that_no_program_reads_is_none():
    """Python refuses to read a number of more than 4,300 digits; the body counts."""
    shop = Shop()
    (answer,) = ask(guarded(shop.app), post(**{"Content-Length": "9" * 5000}))
    assert (answer.status_code, shop.runs) == (201, 1)


def recorded_before(engine):
    """A record as an earlier version left it: its fingerprint has neither host nor root."""
    digest = hashlib.sha256(b"{}").hexdigest()
    known_by = fingerprint(["POST", "/orders", "", [], digest])
    outcome = encode_outcome(Succeeded({"status": 201, "headers": [], "body": b"before"}))
    address = canonical(["ann", "http.request", "k-1"]).decode()
    begin = Begin("them", known_by, lease=30.0, max_attempts=3)
    end = Settle("them", 1, RecordState.SUCCEEDED, outcome, 86_400.0)
    for command in (begin, end):
        engine.store.transact(
            SPACE, address, lambda value, now, what=command: reduce(value, what, now)
        )


def test_what_an_earlier_version_recorded_is_replayed():
    """For its time; a request that it would have refused is refused."""
    shop, engine = Shop(), Engine(sinks=[])
    recorded_before(engine)
    again, other = ask(guarded(shop.app, engine), post(), post(content=b"[]"))
    assert (again.status_code, again.content, shop.runs) == (201, b"before", 0)
    assert other.status_code == 422


def test_a_crash_under_an_earlier_version_is_found_as_one():
    """The record it left is unknown to repeats, and not another request."""
    shop, engine = Shop(), Engine(sinks=[])
    with virtual_time() as time:
        digest = hashlib.sha256(b"{}").hexdigest()
        begin = Begin("them", fingerprint(["POST", "/orders", "", [], digest]), 30.0, 3)
        address = canonical(["ann", "http.request", "k-1"]).decode()
        engine.store.transact(SPACE, address, lambda value, now: reduce(value, begin, now))
        time.advance(31.0)
        (left,) = ask(guarded(shop.app, engine), post())
    assert problem(left)["code"] == "outcome_unknown"


@pytest.mark.parametrize("nobody", [None, "", False, 0, 0.0, b"", " ", b" ", (), [], {}])
def test_a_key_of_nobody_is_refused(nobody):
    """Without a caller keys would be everybody's."""
    shop = Shop()
    (response,) = ask(guarded(shop.app, caller=lambda _: nobody), post())
    assert (response.status_code, shop.runs) == (401, 0)
    assert problem(response)["code"] == "caller_unknown"


def test_a_caller_that_is_everybody_is_an_error():
    """`is_authenticated` is true of all: their keys would be one caller's."""
    shop = Shop()
    with pytest.raises(UsageError, match="caller= returned True"):
        ask(guarded(shop.app, caller=lambda _: True), post())
    assert shop.runs == 0


# --- how many keys --------------------------------------------------------------------------------


def keyed(number, **more):
    return post(headers={"Idempotency-Key": f'"k-{number}"'}, **more)


def test_a_caller_has_so_many_keys_at_once():
    """One too many is refused before it runs; repeats and other callers are not."""
    shop, engine = Shop(), Engine(sinks=[])
    with virtual_time() as time:
        app = guarded(shop.app, engine, max_keys=2, ttl=2400.0)
        first, _, refused, again, other = ask(
            app, keyed(1), keyed(2), keyed(3), keyed(1), keyed(3, **{"x-user": "bob"})
        )
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2500")
        assert problem(refused)["code"] == "too_many_keys"
        assert "2 keys" in problem(refused)["detail"]
        assert (again.content, other.status_code, shop.runs) == (first.content, 201, 3)
        assert (
            engine.store.read(SPACE, canonical(["ann", "http.request", "k-3"]).decode())[0] is None
        )
        time.advance(2500.0)
        assert ask(app, keyed(3))[0].status_code == 201


def test_a_request_that_leaves_no_record_has_no_key():
    """It can be repeated as often as it fails; the count holds no trace of it."""
    shop, engine = Shop(lambda: PlainTextResponse("no", 503)), Engine(sinks=[])
    app = guarded(shop.app, engine, max_keys=1)
    assert {each.status_code for each in ask(app, keyed(1), keyed(1), keyed(2))} == {503}
    assert engine.store.scan(COUNTS) == []


def test_of_many_requests_with_one_key_one_is_counted(tmp_path):
    """Those that came second take nothing from the caller."""
    shop = Shop()
    with Engine(f"sqlite:///{tmp_path}/a.db", sinks=[], audit=False) as engine:
        app = guarded(shop.app, engine, max_keys=1, on_conflict="wait")

        async def main():
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as session:
                requests = [keyed(1) for _ in range(8)]
                calls = [session.request(*args, **more) for args, more in requests]
                return [each.status_code for each in await asyncio.gather(*calls)]

        assert bounded(main()) == [201] * 8
        ((_, count),) = engine.store.scan(COUNTS)
        assert sum(number for _, number in json.loads(count)["groups"]) == 1


def test_a_count_is_shared_by_the_processes_of_a_store(valkey_url):
    """Two engines on one server, one caller."""
    shop = Shop()
    with Engine(valkey_url, sinks=[], share=None) as one, Engine(valkey_url, sinks=[]) as other:
        options = {"max_keys": 1, "operation": f"quota.{uuid4().hex}"}
        first, _ = ask(guarded(shop.app, one, **options), keyed(1), keyed(1))
        (second,) = ask(guarded(shop.app, other, **options), keyed(2))
    assert (first.status_code, second.status_code, shop.runs) == (201, 429, 1)


def test_a_count_that_cannot_be_written_is_a_store_that_is_away():
    """503 before anything runs; what cannot be taken back expires."""
    shop, engine = Shop(lambda: PlainTextResponse("no", 503)), Engine(sinks=[])
    app = guarded(shop.app, engine, max_keys=1)
    step, broken = engine.store.atransact, []

    async def atransact(space, key, decide):
        if space in broken:
            raise StoreUnavailable("memory", "write", "away")
        return await step(space, key, decide)

    engine.store.atransact = atransact
    broken.append(COUNTS)
    (refused,) = ask(app, keyed(1))
    assert (refused.json()["code"], shop.runs) == ("store_unavailable", 0)
    broken.clear()

    def answer():
        broken.append(COUNTS)
        return PlainTextResponse("no", 503)

    shop.answer = answer
    (failed,) = ask(app, keyed(1))
    assert (failed.status_code, failed.text, shop.runs) == (503, "no", 1)
    assert len(engine.store.scan(COUNTS)) == 1


def test_a_key_whose_lease_was_lost_stays_counted():
    """Its record is of who runs it now, who has not counted it again."""
    engine = Engine(sinks=[])
    address = canonical(["ann", "http.request", "k-1"]).decode()

    async def app(scope, receive, send):
        theirs = Begin("they", json.loads(engine.store.read(SPACE, address)[0])["fingerprint"],
                       30.0, 3, "retry")  # fmt: skip
        engine.store.transact(SPACE, address, lambda value, now: reduce(value, theirs, now + 60))
        await PlainTextResponse("late", 503)(scope, receive, send)

    with virtual_time():
        (late,) = ask(guarded(app, engine, max_keys=1, on_crash="retry"), keyed(1))
    assert late.status_code == 503
    assert engine.store.read(SPACE, address)[0] is not None
    assert len(engine.store.scan(COUNTS)) == 1


# --- damage ---------------------------------------------------------------------------------------


def damage_item(engine, space, address, value, app):
    """The inbox item of a request that finds a damaged record."""
    engine.store.transact(space, address, lambda _value, _now: (Change(value), None))
    with pytest.raises(StoredValueError) as caught:
        ask(app, post())
    (item,) = engine.inbox
    assert (item.kind, item.id, item.data["address"]) == (
        "corrupted_state",
        caught.value.item_id,
        address,
    )
    return item


@pytest.mark.parametrize("part", ["record", "response"])
def test_a_damaged_record_is_an_item_of_the_inbox(part):
    """A person must look: no request with this key runs, or is replayed, until then."""
    shop, engine = Shop(), Engine(sinks=[])
    app = guarded(shop.app, engine)
    ask(app, post())
    ((address, value),) = engine.store.scan(SPACE)
    kept = json.loads(value)
    kept["outcome"]["value"] = {"$bytes": "?"}
    damaged = value[:-9] if part == "record" else json.dumps(kept).encode()
    item = damage_item(engine, SPACE, address, damaged, app)
    assert item.operation == "http.request"
    assert "http.request with key 'k-1': its record is damaged" in item.text
    assert shop.runs == 1


def test_a_damaged_count_of_keys_is_an_item_of_the_inbox():
    """It is not the record of the request, which was let go again."""
    shop, engine = Shop(), Engine(sinks=[])
    address = canonical(["ann", "http.request"]).decode()
    item = damage_item(engine, COUNTS, address, b"{", guarded(shop.app, engine, max_keys=1))
    assert "the count of a caller's keys is damaged" in item.text
    assert (shop.runs, engine.store.scan(SPACE)) == (0, [])


def test_a_body_beyond_the_limit_is_refused():
    """By its declared length, before it is read, or when it has come too far."""
    shop = Shop()
    app = guarded(shop.app, max_body=10)

    async def pieces():
        yield b"x" * 6
        yield b"x" * 6

    responses = ask(app, post(content=b"x" * 11), post(content=pieces()), post(content=b"x" * 10))
    assert [response.status_code for response in responses] == [413, 413, 201]
    assert problem(responses[0]) == {
        "type": "about:blank",
        "title": "The request is too large",
        "status": 413,
        "detail": "A request with a key may have a body of at most 10 bytes.",
        "code": "body_too_large",
    }


# --- what is not concerned ------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_other_methods_pass(method):
    """They may be repeated as they are, with a key or without."""
    shop = Shop()
    ask(guarded(shop.app), post(method=method), post(method=method, headers={}))
    assert shop.runs == 2


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
def test_other_connections_pass(kind):
    """The application gets the very same scope and functions."""
    seen = []

    async def app(*args):
        seen.append(args)

    given = ({"type": kind}, object(), object())
    bounded(guarded(app)(*given))
    assert seen == [given]


@pytest.mark.parametrize(
    ("required", "refused"),
    [
        (True, ["POST /orders/7", "PATCH /orders/7", "POST /search"]),
        (False, []),
        ("PATCH", ["PATCH /orders/7"]),
        (["/orders/*"], ["POST /orders/7", "PATCH /orders/7"]),
        (["POST /orders/*", "post /search"], ["POST /orders/7", "POST /search"]),
        (lambda scope: scope["path"] == "/search", ["POST /search"]),
    ],
)
def test_which_requests_need_a_key_is_the_services_choice(required, refused):
    """By yes or no, by rules, or by a function of the scope."""
    asked = ["POST /orders/7", "PATCH /orders/7", "POST /search"]
    app = guarded(Shop().app, required=required)
    lines = [line.split() for line in asked]
    responses = ask(app, *[post(path, {}, method=method) for method, path in lines])
    codes = [response.status_code for response in responses]
    assert [line for line, code in zip(asked, codes, strict=True) if code == 400] == refused


def test_requests_without_a_key_run_each_time():
    """Where none is required."""
    shop = Shop()
    ask(guarded(shop.app, required=False), post(headers={}), post(headers={}))
    assert shop.runs == 2


# --- one at a time --------------------------------------------------------------------------------


@pytest.mark.parametrize("on_conflict", ["raise", "wait"])
@pytest.mark.parametrize("url", ["memory://", "sqlite:///records.db"])
def test_fifty_requests_at_once_run_once(on_conflict, url, tmp_path, monkeypatch):
    """The others are told to come back, or wait for the response."""
    monkeypatch.chdir(tmp_path)
    runs = []

    async def order(request):
        runs.append(1)
        await asyncio.sleep(0.05)
        return JSONResponse({"id": 7}, 201)

    async def main(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            sent = [client.post("/", headers=KEY, content=b"{}") for _ in range(50)]
            return await asyncio.gather(*sent)

    with Engine(url, sinks=[]) as engine:
        shop = Starlette(routes=[Route("/", order, methods=["POST"])])
        responses = bounded(main(guarded(shop, engine, on_conflict=on_conflict)))
    assert len(runs) == 1
    codes = {response.status_code for response in responses}
    assert codes == ({201} if on_conflict == "wait" else {201, 409})


def started(app, *, headers=((b"idempotency-key", b"k-1"),), **options):
    """A call that has been begun in the running loop, and its task."""
    call = Call(headers, **options)
    return call, asyncio.ensure_future(call(app))


@pytest.mark.req("AG-02.internal")
def test_a_repeat_while_the_first_is_under_way_is_told_to_come_back():
    """409 with Retry-After, as the draft has it; and nothing of owners, epochs or attempts."""
    engine = Engine(sinks=[])

    async def main():
        entered, leave = asyncio.Event(), asyncio.Event()

        async def slow(scope, receive, send):
            entered.set()
            await leave.wait()
            await PlainTextResponse("done")(scope, receive, send)

        app = guarded(slow, engine)
        first, running = started(app)
        await entered.wait()
        second = await Call()(app)
        leave.set()
        await running
        return first, second

    first, second = bounded(main())
    assert (first.status, first.body) == (200, b"done")
    assert second.status == 409
    assert second.headers[b"retry-after"] == b"1"
    assert json.loads(second.body) == {
        "type": "about:blank",
        "title": "A request with this Idempotency-Key is under way",
        "status": 409,
        "detail": "Ask again with the same key for its response.",
        "code": "in_flight",
    }
    assert engine.records.counts()["conflict"] == 1


def test_waiting_ends_in_time():
    """A request that waits for another is bounded too."""

    async def main():
        async def endless(scope, receive, send):
            await asyncio.sleep(10_000)

        app = guarded(endless, on_conflict="wait", wait=5.0)
        _, running = started(app)
        await asyncio.sleep(0)
        waited = await Call()(app)
        running.cancel()
        await asyncio.wait([running])
        return waited

    with virtual_time() as time:
        assert bounded(main()).status == 409
    assert time.elapsed == pytest.approx(5.0, abs=0.01)


# --- hand-made calls ------------------------------------------------------------------------------


class Call:
    """One ASGI call by hand: what it receives is a list, what it was sent is kept."""

    def __init__(self, headers=((b"idempotency-key", b"k-1"),), messages=None, **scope):
        self.scope = {
            "type": "http", "method": "POST", "path": "/orders", "query_string": b"",
            "headers": list(headers), **scope,
        }  # fmt: skip
        body = [{"type": "http.request", "body": b"{}", "more_body": False}]
        self.messages = list(body if messages is None else messages)
        self.sent = []
        self.log = []

    async def __call__(self, app):
        await app(self.scope, self.receive, self.send)
        return self

    def run(self, app):
        return bounded(self(app))

    async def receive(self):
        if self.messages:
            return self.messages.pop(0)
        return await asyncio.Event().wait()

    async def send(self, message):
        self.sent.append(message)

    @property
    def status(self):
        return self.sent[0]["status"]

    @property
    def headers(self):
        return dict(self.sent[0]["headers"])

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent)


DISCONNECT = {"type": "http.disconnect"}


def chunk(body, *, more=True, kind="http.request"):
    """One piece of a body."""
    return {"type": kind, "body": body, "more_body": more}


def test_the_application_reads_the_body_as_it_came():
    """Piece by piece, and then whatever the client does next."""
    pieces = [chunk(b"a"), chunk(b"b"), chunk(b"c", more=False)]
    seen = []

    async def app(scope, receive, send):
        seen.extend([await receive() for _ in range(4)])
        await PlainTextResponse("ok")(scope, receive, send)

    Call(messages=[*pieces, DISCONNECT]).run(guarded(app))
    assert seen == [*pieces, DISCONNECT]


def test_pieces_with_nothing_in_them_are_left_out():
    """They say nothing, and a client could send them for ever."""
    seen = []

    async def app(scope, receive, send):
        seen.extend([await receive() for _ in range(2)])
        await PlainTextResponse("ok")(scope, receive, send)

    pieces = [chunk(b""), chunk(b"a"), chunk(b""), chunk(b"", more=False)]
    Call(messages=pieces).run(guarded(app))
    assert seen == [chunk(b"a"), chunk(b"", more=False)]


def test_a_body_that_is_declared_too_large_is_not_read():
    """A client that waits for leave to send it (Expect: 100-continue) is spared the sending."""
    call = Call([(b"idempotency-key", b"k"), (b"content-length", b"11")])
    call.run(guarded(Shop().app, max_body=10))
    assert (call.status, len(call.messages)) == (413, 1)


def test_a_client_that_leaves_before_its_request_is_whole_leaves_no_trace():
    """There is nothing to run, and nothing to record."""
    shop, engine = Shop(), Engine(sinks=[])
    call = Call(messages=[chunk(b"a"), DISCONNECT]).run(guarded(shop.app, engine))
    assert (shop.runs, call.sent, engine.store.scan(SPACE)) == (0, [], [])


def test_a_response_whose_client_has_gone_is_recorded():
    """That is what the key is for: the client comes back and gets it."""

    async def app(scope, receive, send):
        await PlainTextResponse("done")(scope, receive, send)

    class Gone(Call):
        async def send(self, message):
            raise OSError("the client has gone")

    guard = guarded(app)
    with pytest.raises(OSError, match="gone"):
        Gone().run(guard)
    back = Call().run(guard)
    assert (back.status, back.body, back.headers[b"idempotency-replayed"]) == (
        200,
        b"done",
        b"true",
    )


def test_a_response_is_recorded_before_it_is_sent():
    """A response with a length is held back until it is in the store."""
    engine, order = Engine(sinks=[]), []

    async def app(scope, receive, send):
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send(chunk(b"o", kind="http.response.body"))
        order.append("half")
        await send(chunk(b"k", kind="http.response.body", more=False))

    class Watching(Call):
        async def send(self, message):
            record = json.loads(engine.store.scan(SPACE)[0][1])
            order.append((message["type"], record["state"]))

    Watching().run(guarded(app, engine))
    assert order == [
        "half",
        ("http.response.start", "succeeded"),
        ("http.response.body", "succeeded"),
        ("http.response.body", "succeeded"),
    ]


def test_a_stream_is_not_held_up():
    """Each piece goes out before the next is made; the whole is replayed in one."""

    async def app(scope, receive, send):
        async def pieces():
            for text in (b"one ", b"two"):
                made.append(len(call.body))
                yield text

        await StreamingResponse(pieces())(scope, receive, send)

    made, call, guard = [], Call(), guarded(app)
    call.run(guard)
    assert made == [0, 4]
    again = Call().run(guard)
    assert (again.body, again.headers[b"content-length"]) == (b"one two", b"7")


@pytest.mark.parametrize("has_length", [True, False])
def test_a_response_that_is_too_large_is_sent_and_not_kept(has_length):
    """A repeat is told that the request was carried out, and where to look; it does not run."""

    def answer():
        async def pieces():
            yield b"x" * 60
            yield b"x" * 60

        headers = {"location": "/orders/7"} | ({"content-length": "120"} if has_length else {})
        return StreamingResponse(pieces(), 201, headers)

    shop = Shop(answer)
    first, second = ask(guarded(shop.app, max_response=100), post(), post())
    assert (first.status_code, len(first.content), shop.runs) == (201, 120, 1)
    assert second.status_code == 422
    assert second.headers["location"] == "/orders/7"
    assert problem(second) == {
        "type": "about:blank",
        "title": "The first request was carried out, and its response is not kept",
        "status": 422,
        "detail": "The first request with this key was answered with status 201. The response was"
        " too large to keep, or was cut off. Do not repeat the request: look at the resource.",
        "code": "response_not_kept",
        "first_status": 201,
    }


def test_a_response_that_lies_about_its_length_is_not_held_for_ever():
    """What is held back is bounded by what is kept."""

    async def app(scope, receive, send):
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send(chunk(b"x" * 11, kind="http.response.body"))
        seen.append(len(call.body))
        await send(chunk(b"x", kind="http.response.body", more=False))

    seen, call = [], Call()
    call.run(guarded(app, max_response=10))
    assert seen == [11]


def breaks_off(status):
    """An application that raises in the middle of its response, and its runs."""
    runs = []

    async def app(scope, receive, send):
        runs.append(1)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send(chunk(b"half", kind="http.response.body"))
        raise ZeroDivisionError

    return app, runs


def test_an_application_that_raises_in_its_response_is_not_run_again():
    """It had said that it was done: a repeat hears that, and that the rest is missing."""
    app, runs = breaks_off(201)
    guard = guarded(app)
    with pytest.raises(ZeroDivisionError):
        Call().run(guard)
    again = Call().run(guard)
    assert (again.status, len(runs)) == (422, 1)
    assert json.loads(again.body)["code"] == "response_not_kept"


def test_an_application_that_raises_in_an_error_is_run_again():
    """It had said that it failed."""
    app, runs = breaks_off(500)
    guard = guarded(app)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            Call().run(guard)
    assert len(runs) == 2


def test_an_application_that_stops_in_its_response_is_not_run_again():
    """As a stream does whose client has gone; what it sent goes out."""

    async def app(scope, receive, send):
        headers = [(b"content-length", b"9")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send(chunk(b"half", kind="http.response.body"))

    guard = guarded(app)
    assert Call().run(guard).body == b"half"
    assert Call().run(guard).status == 422


def test_an_application_that_answers_nothing_leaves_no_record():
    """The server makes it a 500, and a repeat runs."""
    engine, runs = Engine(sinks=[]), []

    async def app(scope, receive, send):
        runs.append(1)

    guard = guarded(app, engine)
    Call().run(guard)
    Call().run(guard)
    assert (len(runs), engine.store.scan(SPACE)) == (2, [])


def test_ways_past_the_body_are_hidden():
    """A file sent by its path would be a response that nobody can replay."""
    seen = []

    async def app(scope, receive, send):
        seen.append(dict(scope["extensions"]))
        await send({"type": "http.response.debug", "info": {}})
        await PlainTextResponse("ok")(scope, receive, send)

    ways = {"http.response.pathsend": {}, "http.response.trailers": {}, "tls": {"version": 1}}
    call = Call(extensions=ways).run(guarded(app))
    assert seen == [{"tls": {"version": 1}}]
    assert [message["type"].split(".")[-1] for message in call.sent] == ["debug", "start", "body"]


# --- crashes, leases and stores -------------------------------------------------------------------


def cancelled(engine, app, **options):
    """Runs the application behind the middleware and cancels it when it says so."""

    async def main():
        ready = asyncio.Event()
        guard = guarded(app(ready), engine, **options)
        _, running = started(guard)
        await ready.wait()
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        await settled()
        return guard

    return bounded(main())


async def settled():
    """Lets steps beside a request end; nothing else of it may be left."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, left = await asyncio.wait(others, timeout=60)
        assert not left


def works(ready):
    """An application that is cancelled before it answers."""

    async def app(scope, receive, send):
        ready.set()
        await asyncio.Event().wait()

    return app


@pytest.mark.parametrize(
    ("action", "evidence", "status", "told"),
    [
        ("mark_done", '{"id": 7}', 200, {"id": 7}),
        ("mark_done", '{"status": 1, "headers": 2, "body": "x"}', 200, None),
        ("abandon", "", 409, None),
    ],
)
def test_what_a_person_says_of_a_request_is_what_repeats_get(action, evidence, status, told):
    """The outcome as JSON, or that it was given up; the application does not run."""
    with virtual_time() as time, Engine(sinks=[]) as engine:
        guard = cancelled(engine, works, lease=30.0)
        time.advance(31.0)
        assert Call().run(guard).status == 409
        (item,) = engine.inbox
        engine.operators.add("ann", secret="correct horse")
        done = engine.inbox.act(
            item.id, action, by="ann", proof="correct horse", why="seen", evidence=evidence
        )
        assert done.won
        answer = Call().run(guard)
    assert answer.status == status
    if action == "abandon":
        assert json.loads(answer.body)["code"] == "abandoned"
    else:
        assert json.loads(answer.body) == (told or json.loads(evidence))


def test_a_request_that_is_cancelled_is_not_run_again():
    """Nobody knows what it did: a person is asked, and repeats are told so."""
    with virtual_time() as time, Engine(sinks=[]) as engine:
        guard = cancelled(engine, works, lease=30.0)
        assert Call().run(guard).status == 409
        time.advance(31.0)
        answers = [Call().run(guard) for _ in range(2)]
        items = list(engine.inbox)
        assert engine.records.counts()["unknown"] == 1
    for answer in answers:
        assert answer.status == 409
        assert b"retry-after" not in answer.headers
        assert json.loads(answer.body) == {
            "type": "about:blank",
            "title": "The outcome of the first request is not known",
            "status": 409,
            "detail": "The first request with this key was cut off; it may or may not have been"
            " carried out. It was not repeated: a person has been asked to look.",
            "code": "outcome_unknown",
        }
    assert [item.text for item in items] == [
        "POST /orders with Idempotency-Key 'k-1': the process that ran it is gone"
    ]


def test_a_request_that_was_cut_off_runs_again_where_that_is_wanted():
    """Once its lease has ended."""
    runs = []

    def once(ready):
        async def app(scope, receive, send):
            runs.append(1)
            if len(runs) == 1:
                ready.set()
                await asyncio.Event().wait()
            await PlainTextResponse("ok")(scope, receive, send)

        return app

    with virtual_time() as time, Engine(sinks=[]) as engine:
        guard = cancelled(engine, once, on_crash="retry")
        time.advance(31.0)
        assert Call().run(guard).body == b"ok"
    assert len(runs) == 2


def test_a_response_that_is_cancelled_is_done():
    """The application had begun to say so."""

    def streams(ready):
        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send(chunk(b"half", kind="http.response.body"))
            ready.set()
            await asyncio.Event().wait()

        return app

    guard = cancelled(Engine(sinks=[]), streams)
    assert json.loads(Call().run(guard).body)["code"] == "response_not_kept"


def test_an_application_that_stops_for_a_client_that_has_gone_is_like_a_crash():
    """It did something, and says nothing."""

    async def app(scope, receive, send):
        while (await receive())["type"] != "http.disconnect":
            pass

    with virtual_time() as time, Engine(sinks=[]) as engine:
        guard = guarded(app, engine)
        Call(messages=[chunk(b"{}", more=False), DISCONNECT]).run(guard)
        time.advance(31.0)
        assert json.loads(Call().run(guard).body)["code"] == "outcome_unknown"


def test_a_request_that_is_cancelled_before_it_begins_leaves_no_record():
    """The store may have taken the claim: it is given back."""

    class Slow(MemoryStore):
        is_slow = True

        async def atransact(self, space, key, decide):
            reply = self.transact(space, key, decide)
            if self.is_slow:
                self.is_slow = False
                taken.set()
                await asyncio.Event().wait()
            return reply

    async def main():
        _, running = started(guarded(shop.app, engine))
        await taken.wait()
        assert engine.store.scan(SPACE) != []
        running.cancel()
        await asyncio.wait([running])
        await settled()

    taken = asyncio.Event()
    shop, engine = Shop(), Engine(Slow(), sinks=[])
    bounded(main())
    assert (shop.runs, engine.store.scan(SPACE)) == (0, [])


def test_a_slow_request_keeps_its_lease():
    """For as long as it runs, at ten times its lease; and nothing runs on after it."""

    async def main():
        async def slow(scope, receive, send):
            await asyncio.sleep(300.0)
            await PlainTextResponse("done")(scope, receive, send)

        guard = guarded(slow, lease=30.0)
        first, running = started(guard)
        await asyncio.sleep(299.0)
        second = await Call()(guard)
        await running
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return first, second

    with virtual_time():
        first, second = bounded(main())
    assert (first.body, json.loads(second.body)["code"]) == (b"done", "in_flight")


class Flaky(MemoryStore):
    """A store that is away while `is_away`, and can lose the replies of steps that it takes."""

    def __init__(self):
        super().__init__()
        self.is_away = False
        self.loses_reply = False

    def _check(self):
        if self.is_away:
            raise StoreUnavailable(self.url, "write", "planted")

    async def atransact(self, space, key, decide):
        self._check()
        reply = await super().atransact(space, key, decide)
        if self.loses_reply:
            self.loses_reply = False
            raise StoreUnavailable(self.url, "write", "reply lost")
        return reply

    async def aread(self, space, key):
        self._check()
        return await super().aread(space, key)


def test_a_lease_that_was_lost_sends_its_response_and_records_nothing(caplog):
    """Somebody else has the key: a late response never overwrites theirs."""
    store = MemoryStore()
    engine = Engine(store, sinks=[])

    async def app(scope, receive, send):
        ((address, value),) = store.scan(SPACE)
        theirs = Begin("they", json.loads(value)["fingerprint"], 30.0, 3)
        reply = store.transact(SPACE, address, lambda value, now: reduce(value, theirs, now + 60))
        renew = Renew("they", reply.epoch, 30.0)
        store.transact(SPACE, address, lambda value, now: reduce(value, renew, now))
        await asyncio.sleep(20.0)  # long enough for a renewal, which finds the lease lost
        await PlainTextResponse("late")(scope, receive, send)

    with virtual_time():
        guard = guarded(app, engine)
        assert Call().run(guard).body == b"late"
        assert json.loads(Call().run(guard).body)["code"] == "in_flight"
    assert "lease of key 'k-1' was lost" in caplog.text
    assert engine.records.counts()["lost"] == 1


class LateStore(MemoryStore):
    """A store whose next answers to claims come late; `meanwhile` is done before each."""

    def __init__(self, late, passes, seconds=31.0, meanwhile=lambda store, address: None):
        super().__init__()
        self.late, self.claims, self._seconds = late, 0, seconds
        self._passes, self._meanwhile = passes, meanwhile

    async def atransact(self, space, key, decide):
        reply = await super().atransact(space, key, decide)
        if space == SPACE and isinstance(reply, Run):
            self.claims += 1
            if self.late:
                self.late -= 1
                getattr(clock.current, self._passes)(self._seconds)
                self._meanwhile(self, key)
        return reply


@pytest.fixture(params=["advance", "suspend"])
def passes(request):
    """How the time of a lease goes by: a store that is slow, and a machine that sleeps."""
    return request.param


def test_a_claim_that_is_answered_after_its_lease_is_made_again(passes):
    """The application runs once, with a lease that has just begun; the key is counted once."""
    store, left = LateStore(1, passes), []

    async def app(scope, receive, send):
        ((_, value),) = store.scan(SPACE)
        left.append(json.loads(value)["lease_until"] - clock.current.wall())
        await PlainTextResponse("done")(scope, receive, send)

    with virtual_time():
        guard = guarded(app, Engine(store, sinks=[]), lease=30.0, max_keys=1)
        (first, again) = ask(guard, keyed(1), keyed(1))
    assert (first.text, again.text, again.headers["idempotency-replayed"]) == (
        "done",
        "done",
        "true",
    )
    assert (left, store.claims) == ([30.0], 2)


def lease_left(store):
    """The seconds that the store still gives a request."""
    ((_, value),) = store.scan(SPACE)
    return json.loads(value)["lease_until"] - clock.current.wall()


def test_a_lease_whose_claim_took_long_is_renewed_in_time(passes):
    """Its thirds count from when it was sent, not from when it was answered."""
    store, left = LateStore(1, passes, 25.0), []

    async def app(scope, receive, send):
        for _ in range(12):
            left.append(lease_left(store))
            await asyncio.sleep(1.0)
        await PlainTextResponse("done")(scope, receive, send)

    with virtual_time():
        guard = guarded(app, Engine(store, sinks=[]), lease=30.0)
        (response,) = ask(guard, keyed(1))
    assert (response.text, store.claims) == ("done", 1)
    assert left[0] == 5.0
    assert min(left[1:]) > 15.0


def test_a_lease_that_ran_out_while_the_machine_slept_is_renewed_when_it_wakes():
    """Not when a third of it would be over in time awake."""
    store, left = MemoryStore(), []

    async def app(scope, receive, send):
        await asyncio.sleep(5.0)
        clock.current.suspend(3600.0)
        left.append(lease_left(store))
        await asyncio.sleep(1.5)
        left.append(lease_left(store))
        await PlainTextResponse("done")(scope, receive, send)

    with virtual_time():
        guard = guarded(app, Engine(store, sinks=[]), lease=30.0)
        (response,) = ask(guard, keyed(1))
    assert response.text == "done"
    assert (left[0] < 0.0, left[1] > 28.0) == (True, True)


def test_a_key_that_was_taken_before_the_answer_to_its_claim_is_left_to_the_other(passes):
    """The application is not asked a second time; the repeat after it gets the other's response."""
    ran = []

    def taken(store, address):
        theirs = Begin("they", json.loads(store.read(SPACE, address)[0])["fingerprint"],
                       300.0, 3, "retry")  # fmt: skip
        store.transact(SPACE, address, lambda value, now: reduce(value, theirs, now))

    async def app(scope, receive, send):
        ran.append(1)

    with virtual_time():
        store = LateStore(1, passes, meanwhile=taken)
        guard = guarded(app, Engine(store, sinks=[]), lease=30.0, on_crash="retry")
        (response,) = ask(guard, post())
    assert (response.status_code, problem(response)["code"], ran) == (409, "in_flight", [])


@pytest.mark.parametrize(("on_store_down", "status"), [("refuse", 503), ("pass", 201)])
def test_a_store_whose_answers_outlast_the_lease_is_one_that_is_away(passes, on_store_down, status):
    """Nothing runs under a claim that may be another's, and none is left: a later request runs."""
    shop, store = Shop(), LateStore(9, passes)
    with virtual_time():
        guard = guarded(
            shop.app, Engine(store, sinks=[]), lease=30.0, on_store_down=on_store_down, max_keys=1
        )  # fmt: skip
        (response,) = ask(guard, post())
        assert (response.status_code, store.claims) == (status, 3)
        assert store.scan(SPACE) == []
        store.late = 0
        runs = shop.runs
        assert ask(guard, post())[0].status_code == 201
    assert shop.runs == runs + 1


def test_a_store_that_is_away_refuses_requests():
    """503 with Retry-After; the application is not asked."""
    shop, store = Shop(), Flaky()
    store.is_away = True
    guard = guarded(shop.app, Engine(store, sinks=[]))
    (response,) = ask(guard, post())
    assert (response.status_code, response.headers["retry-after"], shop.runs) == (503, "1", 0)
    assert problem(response) == {
        "type": "about:blank",
        "title": "Idempotency records cannot be reached",
        "status": 503,
        "detail": "The request was not carried out. Send it again with the same key.",
        "code": "store_unavailable",
    }
    store.is_away = False
    assert ask(guard, post())[0].status_code == 201


def test_a_store_that_is_away_can_be_done_without(caplog):
    """For services that would rather do something twice than not at all; the log says so."""
    shop, store = Shop(), Flaky()
    store.is_away = True
    guard = guarded(shop.app, Engine(store, sinks=[]), on_store_down="pass")
    first, second = ask(guard, post(content=b"abc"), post(content=b"abc"))
    assert (first.json(), second.json(), shop.bodies) == ({"run": 1}, {"run": 2}, [b"abc"] * 2)
    assert "passed on without an idempotency record" in caplog.text


def test_a_claim_whose_reply_was_lost_is_given_back():
    """The request was refused, so its repeat must run."""
    shop, store = Shop(), Flaky()
    store.loses_reply = True
    guard = guarded(shop.app, Engine(store, sinks=[]))

    async def main():
        refused = await Call()(guard)
        await settled()
        return refused

    assert bounded(main()).status == 503
    assert store.scan(SPACE) == []
    assert (Call().run(guard).status, shop.runs) == (201, 1)


def test_a_store_that_goes_away_in_the_middle_gets_the_response_later(caplog):
    """The client has its response at once, and its repeat the recorded one."""
    store = Flaky()

    async def app(scope, receive, send):
        store.is_away = True
        await PlainTextResponse("done")(scope, receive, send)

    async def main():
        guard = guarded(app, Engine(store, sinks=[]))
        first = await Call()(guard)
        await asyncio.sleep(5.0)
        store.is_away = False
        await settled()
        return first, await Call()(guard)

    with virtual_time():
        first, second = bounded(main())
    assert "written later" in caplog.text
    assert first.body == second.body == b"done"
    assert second.headers[b"idempotency-replayed"] == b"true"


def test_a_renewal_that_fails_is_tried_again():
    """A store may be away for a moment within a lease."""
    store = Flaky()

    async def main():
        async def slow(scope, receive, send):
            store.is_away = True
            await asyncio.sleep(12.0)
            store.is_away = False
            await asyncio.sleep(30.0)
            await PlainTextResponse("done")(scope, receive, send)

        guard = guarded(slow, Engine(store, sinks=[]), lease=30.0)
        _, running = started(guard)
        await asyncio.sleep(40.0)
        second = await Call()(guard)
        await running
        return second

    with virtual_time():
        assert json.loads(bounded(main()).body)["code"] == "in_flight"


# --- setting up -----------------------------------------------------------------------------------


def test_a_caller_must_be_named():
    """The error says why, and shows how."""
    with pytest.raises(UsageError, match=r"caller=lambda scope: scope\[\"user\"\]"):
        IdempotencyKeyMiddleware(Shop().app, Engine(sinks=[]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease": 0},
        {"ttl": -1},
        {"max_body": -1},
        {"max_response": "1"},
        {"on_conflict": "run"},
        {"on_crash": "ignore"},
        {"on_store_down": "hope"},
        {"wait": -1},
        {"header": ""},
        {"operation": ""},
        {"max_keys": 0},
        {"max_keys": 5, "ttl": None},
        {"required": ["PUT"]},
        {"required": asyncio.sleep},
    ],
)
def test_options_that_cannot_be_right_are_refused(wrong):
    """When the application is built, with the name of the option."""
    with pytest.raises(PolicyError, match=next(iter(wrong))):
        guarded(Shop().app, **wrong)


def test_an_async_function_for_the_caller_is_refused():
    """Nothing awaits it: every caller would be another coroutine."""

    async def caller(scope):
        return "ann"

    with pytest.raises(UsageError, match="caller= is async"):
        IdempotencyKeyMiddleware(Shop().app, Engine(sinks=[]), caller=caller)


def test_it_says_that_it_needs_asyncio():
    """Leases are renewed by a task; another event loop is refused before anything runs."""
    import trio

    shop = Shop()
    with pytest.raises(UsageError, match="asyncio"):
        trio.run(Call(), guarded(shop.app))
    assert shop.runs == 0


# --- responses that the store does not take -------------------------------------------------------


class Refusing(MemoryStore):
    """A store that takes a thousand bytes at most."""

    def transact(self, space, key, decide):
        def limited(value, now):
            change, answer = decide(value, now)
            if change.value is not None and len(change.value) > 1000:
                raise ValueTooLarge("memory://", len(change.value), 1000)
            return change, answer

        return super().transact(space, key, limited)


def test_a_response_that_the_store_refuses_is_settled_without_its_body():
    """It goes out; a repeat gets the status and the way on, and does not run."""
    shop = Shop(lambda: Response(b"x" * 2000, 201, {"location": "/orders/7", "x-long": "y" * 900}))
    with Engine(Refusing(), sinks=[]) as engine:
        first, second = ask(guarded(shop.app, engine=engine), post(), post())
        assert engine.records.counts()["not_kept"] == 1
    assert (first.status_code, len(first.content), shop.runs) == (201, 2000, 1)
    assert (second.status_code, second.headers["location"]) == (422, "/orders/7")
    assert problem(second)["code"] == "response_not_kept"
