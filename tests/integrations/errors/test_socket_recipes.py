"""The code of the page on sockets, TLS and urllib, against servers that fail."""

import contextlib
import socket
import threading
from http.client import RemoteDisconnected
from urllib.error import HTTPError, URLError

import pytest

from mainstay.testing import virtual_time
from tests.integrations.errors.recipe import run_recipe
from tests.servers.http_faults import Close, HttpFaults, Reset, Status, dead_port


@pytest.fixture
def web():
    with HttpFaults() as server:
        yield server


@contextlib.contextmanager
def lines(*answers):
    """A server of one line per connection: its port, and what it was asked."""
    questions = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                for answer in answers:
                    wire, _ = listener.accept()
                    with wire:
                        questions.append(wire.makefile("rb").readline())
                        wire.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], questions
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_socket_is_asked_until_the_answer_is_whole(web):
    """An answer that breaks off, none at all, and then a line."""
    with lines(b"hal", b"", b"whole\n") as (port, questions):
        ask = run_recipe("sockets", **{'"localhost"': '"127.0.0.1"', "7000": port})["ask"]
        with virtual_time():
            assert ask(b"how") == b"whole\n"
        assert questions == [b"how\n"] * 3


@pytest.mark.filterwarnings("ignore:Implicitly cleaning up <HTTPError:ResourceWarning")
@pytest.mark.parametrize(
    ("answer", "error", "count"),
    [
        (Reset(), ConnectionResetError, 3),
        (Close(), RemoteDisconnected, 3),
        (Status(503, {"Retry-After": "1"}), HTTPError, 3),
        (Status(500), HTTPError, 3),
        (Status(404), HTTPError, 1),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_urllib(web, answer, error, count):
    """As the table of the page has it."""
    names = run_recipe("sockets", **{"http://localhost:8000": web.url})
    web.on("/orders", answer)
    with virtual_time(), pytest.raises(error) as caught:
        names["page"]("/orders")
    if isinstance(caught.value, HTTPError):
        caught.value.close()
    assert web.count() == count


@pytest.mark.filterwarnings("ignore:Implicitly cleaning up <HTTPError:ResourceWarning")
@pytest.mark.parametrize(
    ("answer", "plain"),
    [(Reset(), 1), (Close(), 1), (Status(500), 1), (Status(503), 3), (Status(429), 3)],
    ids=str,
)
def test_a_post_is_not_sent_again_once_it_may_have_been_carried_out(web, answer, plain):
    """Without its key; what the server itself refuses is sent again in any case."""
    names = run_recipe("sockets", **{"http://localhost:8000": web.url})
    keyless = {'{"Idempotency-Key": key}': "{}"}
    without = run_recipe("sockets", **{"http://localhost:8000": web.url}, **keyless)
    for recipe, count in ((names, 3), (without, plain)):
        web.clear()
        web.on("/orders/7/payment", answer)
        with virtual_time(), pytest.raises((OSError, HTTPError)) as caught:
            recipe["pay"](7, b"5", "payment-7")
        if isinstance(caught.value, HTTPError):
            caught.value.close()
        assert web.count() == count


def test_a_post_to_a_dead_port_is_tried_again():
    """Nothing was sent."""
    url = f"http://127.0.0.1:{dead_port()}"
    names = run_recipe("sockets", **{"http://localhost:8000": url})
    with virtual_time(), pytest.raises(URLError) as caught:
        names["pay"](7, b"5", "payment-7")
    assert "after 3 attempts" in caught.value.__notes__[0]
