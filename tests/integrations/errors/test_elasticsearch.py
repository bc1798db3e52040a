"""Elasticsearch through its own client, against a stub with the error bodies of its REST API.

The bodies are those of "REST API: error responses" and of `_bulk` in the Elasticsearch reference.
"""

import asyncio
import socket

import elastic_transport
import elasticsearch
import elasticsearch.helpers
import pytest
from elasticsearch import Elasticsearch

import mainstay
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.testing import virtual_time
from tests.integrations.errors.service_stub import (
    CUT,
    DATE,
    HAS_REQUESTS,
    LATER,
    RESET,
    SILENCE,
    Answer,
    ServiceStub,
    dead_port,
    in_json,
    seen,
)
from tests.processes import wait_until

PRODUCT = {"x_elastic_product": "Elasticsearch"}


@pytest.fixture(scope="module")
def node():
    with ServiceStub() as stub:
        yield stub


def error(status, kind, **headers):
    cause = {"type": kind, "reason": "m"}
    body = {"error": {"root_cause": [cause], **cause}, "status": status}
    return in_json(status, body, **PRODUCT, **headers)


def client(url, timeout=60, retries=0):
    return Elasticsearch(url, max_retries=retries, request_timeout=timeout)


@pytest.mark.parametrize(
    ("status", "name", "kind", "ambiguous", "count"),
    [
        (429, "es_rejected_execution_exception", Kind.THROTTLED, False, 3),
        (429, "circuit_breaking_exception", Kind.THROTTLED, False, 3),
        (503, "cluster_block_exception", Kind.OVERLOAD, False, 3),
        (500, "exception", Kind.TRANSIENT, True, 3),
        (502, "bad_gateway", Kind.TRANSIENT, True, 3),
        (504, "timeout_exception", Kind.TIMEOUT, True, 3),
        (401, "security_exception", Kind.AUTH, False, 1),
        (403, "security_exception", Kind.AUTH, False, 1),
        (404, "index_not_found_exception", Kind.PERMANENT, False, 1),
        (409, "version_conflict_engine_exception", Kind.PERMANENT, False, 1),
        (400, "parsing_exception", Kind.PERMANENT, False, 1),
        (413, "content_too_long", Kind.PERMANENT, False, 1),
        (407, "proxy", Kind.AUTH, False, 1),
        (408, "receive_timeout", Kind.TIMEOUT, False, 3),
        (425, "too_early", Kind.TRANSIENT, False, 3),
        (501, "not_implemented", Kind.PERMANENT, False, 1),
    ],
)
def test_what_elasticsearch_answers(node, status, name, kind, ambiguous, count):
    """By the status; the client's own retries are off."""
    node.answers(error(status, name))
    es = client(node.url)
    known = kind_of(seen(lambda: es.get(index="shop", id="1")))
    assert (known.kind, known.is_ambiguous, node.count) == (kind, ambiguous, count)


@pytest.mark.parametrize(
    ("answer", "raised", "kind"),
    [
        (RESET, elastic_transport.ConnectionError, Kind.TRANSIENT),
        (SILENCE, elastic_transport.ConnectionTimeout, Kind.TIMEOUT),
        (CUT, elastic_transport.ConnectionError, Kind.TRANSIENT),
    ],
)
def test_an_answer_that_does_not_come_leaves_it_in_doubt(node, answer, raised, kind):
    """The request was sent."""
    node.answers(answer)
    es = client(node.url, timeout=0.2 if answer is SILENCE else 60)
    problem = seen(lambda: es.index(index="shop", id="1", document={}), attempts=2)
    known = kind_of(problem)
    assert isinstance(problem, raised)
    wait_until(lambda: node.count >= 2, "the requests")
    assert (known.kind, known.is_ambiguous, node.count) == (kind, True, 2)


@pytest.mark.parametrize("answer", [RESET, error(500, "exception")], ids=["reset", "500"])
@pytest.mark.parametrize(
    ("call", "count"),
    [
        (lambda es: es.index(index="shop", document={}), 1),
        (lambda es: es.update(index="shop", id="1", doc={}), 1),
        (lambda es: es.bulk(operations=[{"index": {}}, {}], index="shop"), 1),
        (lambda es: es.scroll(scroll_id="1"), 1),
        (lambda es: es.search(index="shop", query={"match_all": {}}), 3),
        (lambda es: es.count(index="shop", query={"match_all": {}}), 3),
        (lambda es: es.indices.refresh(index="shop"), 3),
        (lambda es: es.index(index="shop", id="1", document={}), 3),
        (lambda es: es.delete(index="shop", id="1"), 3),
    ],
    ids=["index", "update", "bulk", "scroll", "search", "count", "refresh", "with id", "delete"],
)
def test_a_post_that_changes_something_is_not_sent_again(node, answer, call, count):
    """Elasticsearch would make another id; what reads, and what has an id, is repeated."""
    node.answers(answer)
    es = client(node.url)
    problem = seen(lambda: call(es))
    assert node.count == count
    if count == 1:
        assert "POST without an id of your own may have been" in problem.__notes__[0]


def test_a_post_of_the_async_client_is_not_sent_again(node):
    """It is another module of the client that sends it."""
    node.answers(RESET)

    async def main():
        async with elasticsearch.AsyncElasticsearch(node.url, max_retries=0) as es:
            await es.index(index="shop", document={})

    seen(lambda: asyncio.run(main()))
    assert node.count == 1


def test_a_dead_port_is_tried_again():
    """Nothing was sent, so nothing is in doubt."""
    tries, es = [], client(f"http://127.0.0.1:{dead_port()}")
    known = kind_of(seen(lambda: (tries.append(1), es.info())))
    assert (known.kind, known.is_ambiguous, len(tries)) == (Kind.TRANSIENT, False, 3)


@pytest.mark.parametrize("headers", [{"retry_after": "7"}, {"retry_after": LATER, "date": DATE}])
def test_the_wait_that_the_node_asks_for_is_kept(node, headers):
    """The headers are in `meta`, where the table reads them."""
    node.answers(error(429, "es_rejected_execution_exception", **headers))
    es = client(node.url)
    problem = seen(es.info, attempts=2)
    assert mainstay.RetryPolicy().classification(problem).retry_after == 7.0
    assert problem.waits[0] >= 7.0


def test_a_server_that_is_no_elasticsearch_is_final(node):
    """The client refuses an answer without the header of the product."""
    node.answers(in_json(200, {}))
    problem = seen(client(node.url).info)
    assert isinstance(problem, elasticsearch.UnsupportedProductError)
    assert (kind_of(problem).kind, node.count) == (Kind.PERMANENT, 1)


@pytest.mark.parametrize(
    ("statuses", "kind", "count"),
    [((429, 429), Kind.THROTTLED, 3), ((429, 400), Kind.PERMANENT, 1)],
)
def test_a_bulk_request_is_as_bad_as_its_worst_document(node, statuses, kind, count):
    """Documents that were refused for the rate are worth sending again, one that is wrong is not.

    Some were written, so the whole is ambiguous.
    """
    items = [{"index": {"_id": str(n), "status": s, "error": {}}} for n, s in enumerate(statuses)]
    node.answers(in_json(200, {"errors": True, "items": items}, **PRODUCT))
    es = client(node.url)
    actions = [{"_index": "shop", "_id": str(n)} for n in range(2)]
    problem = seen(lambda: elasticsearch.helpers.bulk(es, actions))
    assert isinstance(problem, elasticsearch.helpers.BulkIndexError)
    assert (kind_of(problem).kind, node.count) == (kind, count)


def test_a_body_that_is_not_json_is_final(node):
    """It would be the same the next time, and the request was carried out."""
    headers = {"X-Elastic-Product": "Elasticsearch", "Content-Type": "application/json"}
    node.answers(Answer(200, b"<html>", headers))
    known = kind_of(seen(client(node.url).info))
    assert (known.kind, known.is_ambiguous, node.count) == (Kind.PERMANENT, True, 1)


def test_a_rule_that_names_the_class_names_its_status(node):
    """A document that is about to be written is waited for."""
    node.answers(error(404, "index_not_found_exception"))
    es = client(node.url)
    with virtual_time(), pytest.raises(elasticsearch.NotFoundError):
        mainstay.retry(on=elasticsearch.NotFoundError, attempts=3)(es.info)()
    assert node.count == 3


def test_retries_of_the_client_multiply_and_make_a_lost_write_ambiguous(node):
    """Three attempts of ours with two more of the client's; the first of them may have written."""
    node.answers(RESET)
    es = client(node.url, retries=2)
    problem = seen(lambda: es.index(index="shop", id="1", document={}))
    assert (kind_of(problem).is_ambiguous, node.count) == (True, 9)


@pytest.mark.skipif(not HAS_REQUESTS, reason="the table of urllib3 judges the name lookup")
def test_a_name_that_no_host_has_is_final(monkeypatch):
    """The resolver decides; it is asked by the real client, and its answer is scripted."""

    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    known = kind_of(seen(lambda: client("http://shop.invalid:9200").info()))
    assert (known.kind, known.is_ambiguous) == (Kind.PERMANENT, False)
