"""Consul through py-consul, against a stub with the answers of Consul's HTTP API.

The texts are those of "HTTP API structure" and "Traffic rate limiting" in Consul's documentation;
an error of Consul is plain text.
"""

import consul
import consul.exceptions
import pytest

from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from tests.integrations.errors.service_stub import (
    HAS_REQUESTS,
    RESET,
    SILENCE,
    Answer,
    ServiceStub,
    dead_port,
    seen,
)
from tests.processes import wait_until


@pytest.fixture(scope="module")
def agent():
    with ServiceStub() as stub:
        yield stub


def client(port, timeout=60):
    return consul.Consul(host="127.0.0.1", port=port, connections_timeout=timeout)


@pytest.mark.parametrize(
    ("status", "message", "kind", "ambiguous", "count"),
    [
        (429, "rate limit exceeded", Kind.THROTTLED, False, 3),
        (503, "rate limit exceeded, try again later", Kind.OVERLOAD, False, 3),
        (500, "internal error", Kind.TRANSIENT, True, 3),
        (500, "No cluster leader", Kind.TRANSIENT, False, 3),
        (500, "rpc error making call: No cluster leader", Kind.TRANSIENT, False, 3),
        (401, "ACL support disabled", Kind.AUTH, False, 1),
        (403, "Permission denied: token with AccessorID 'x' lacks", Kind.AUTH, False, 1),
        (400, "Bad request", Kind.PERMANENT, False, 1),
        (407, "proxy", Kind.AUTH, False, 1),
        (408, "late", Kind.TIMEOUT, False, 3),
        (425, "early", Kind.TRANSIENT, False, 3),
        (502, "gateway", Kind.TRANSIENT, True, 3),
        (504, "gateway", Kind.TIMEOUT, True, 3),
        (501, "never", Kind.PERMANENT, False, 1),
        (405, "method not allowed", Kind.PERMANENT, False, 1),
    ],
)
def test_what_consul_answers(agent, status, message, kind, ambiguous, count):
    """The message begins with the status; there is nothing else to go by."""
    agent.answers(Answer(status, message.encode(), {"Content-Type": "text/plain"}))
    known = kind_of(seen(lambda: client(agent.port).kv.put("shop", "x")))
    assert (known.kind, known.is_ambiguous, agent.count) == (kind, ambiguous, count)


def test_what_is_not_there(agent):
    """To renew a session that is gone is an error; a key that is not there is None."""
    agent.answers(Answer(404, b"", {"X-Consul-Index": "1"}))
    assert client(agent.port).kv.get("shop")[1] is None
    problem = seen(lambda: client(agent.port).session.renew("gone"))
    assert isinstance(problem, consul.exceptions.NotFound)
    assert kind_of(problem).kind is Kind.PERMANENT


def test_an_answer_that_cannot_be_read_is_unknown(agent):
    """A proxy's page instead of JSON."""
    agent.answers(Answer(200, b"<html>", {"X-Consul-Index": "1"}))
    problem = seen(lambda: client(agent.port).kv.get("shop"))
    assert (kind_of(problem).kind, agent.count) == (Kind.UNKNOWN, 1)


@pytest.mark.skipif(not HAS_REQUESTS, reason="the table of requests judges a lost connection")
@pytest.mark.parametrize(("answer", "kind"), [(RESET, Kind.TRANSIENT), (SILENCE, Kind.TIMEOUT)])
def test_an_answer_that_does_not_come_leaves_it_in_doubt(agent, answer, kind):
    """The errors of requests are handed on; a PUT of a key may be repeated."""
    agent.answers(answer)
    timeout = 0.2 if answer is SILENCE else 60
    known = kind_of(seen(lambda: client(agent.port, timeout).kv.put("shop", "x"), attempts=2))
    wait_until(lambda: agent.count >= 2, "the requests")
    assert (known.kind, known.is_ambiguous, agent.count) == (kind, True, 2)


@pytest.mark.skipif(not HAS_REQUESTS, reason="the table of requests judges a lost connection")
def test_a_dead_port_is_tried_again():
    """Nothing was sent, so nothing is in doubt."""
    tries, port = [], dead_port()
    known = kind_of(seen(lambda: (tries.append(1), client(port).kv.get("shop"))))
    assert (known.kind, known.is_ambiguous, len(tries)) == (Kind.TRANSIENT, False, 3)


def test_a_timeout_of_older_clients_is_ambiguous():
    """No client of this version raises it; those of an event loop did."""
    known = kind_of(consul.exceptions.Timeout())
    assert (known.kind, known.is_ambiguous) == (Kind.TIMEOUT, True)
