"""open_publisher: which publisher a URL or a function is, and what is no publisher."""

import sys

import pytest

from mainstay.errors import MissingExtraError, UsageError
from mainstay.publishers.function import FunctionPublisher
from mainstay.publishers.open import ALSO, PUBLISHERS, open_publisher

URLS = {
    "nats://127.0.0.1:4222": "NatsPublisher",
    "tls://127.0.0.1:4222": "NatsPublisher",
    "kafka://127.0.0.1:9092": "KafkaPublisher",
    "amqp://127.0.0.1:5672/": "RabbitPublisher",
    "amqps://127.0.0.1:5671/": "RabbitPublisher",
    "redis://127.0.0.1:6379/0": "RedisStreamsPublisher",
    "rediss://127.0.0.1:6379/0": "RedisStreamsPublisher",
    "valkey://127.0.0.1:6379/0": "RedisStreamsPublisher",
    "valkeys://127.0.0.1:6379/0": "RedisStreamsPublisher",
    "https://example.org/": "HttpPublisher",
    "http://example.org:8080/": "HttpPublisher",
    "python:builtins:print": "FunctionPublisher",
}


@pytest.mark.parametrize(("url", "name"), URLS.items())
def test_a_url_opens_the_publisher_of_its_scheme(url, name):
    """Nothing is connected."""
    publisher = open_publisher(url)
    assert type(publisher).__name__ == name
    assert publisher.url == url


def test_every_scheme_is_tested():
    assert {url.partition(":")[0] for url in URLS} == PUBLISHERS.keys() | ALSO.keys()


def test_a_publisher_is_passed_on_as_it_is():
    class Mine:
        url = "mine:"

        async def publish(self, message): ...

        async def close(self): ...

        def __call__(self, message): ...

    mine = Mine()
    assert open_publisher(mine) is mine


def test_a_function_is_called_with_each_message():
    def publish(message): ...

    opened = open_publisher(publish)
    assert isinstance(opened, FunctionPublisher)
    assert opened.function is publish


def test_a_function_by_its_name(tmp_path, monkeypatch):
    """Also one inside a class, or a publisher that the module has."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop_events.py").write_text(
        "from mainstay.publishers.function import FunctionPublisher\n"
        "class Bus:\n    @staticmethod\n    def send(message): ...\n"
        "ready = FunctionPublisher(Bus.send)\n",
        encoding="utf-8",
    )
    bus = open_publisher("python:shop_events:Bus.send")
    assert bus.url == "python:shop_events:Bus.send"
    assert open_publisher("python:shop_events:ready") is sys.modules["shop_events"].ready


@pytest.mark.parametrize(
    ("target", "message", "hint"),
    [
        (
            "nat://host:4222",
            "there is no publisher for 'nat://host:4222'",
            "write nats://host:4222",
        ),
        ("host:4222", "there is no publisher", "known: nats://"),
        ("nats:host", "there is no publisher", "known: nats://"),
        ("", "there is no publisher", "known: nats://"),
        ("postgresql://me:hunter2@db/app", "there is no publisher", "that is a store"),
        ("python:shop", "names no function", "python:module:function"),
        ("python://shop:f", "names no function", "python:module:function"),
        ("python:no_such_module_here:f", "there is no module 'no_such_module_here'", "imported"),
        ("python:builtins:no_such", "the module builtins has no no_such", "python:module"),
        ("python:sys:maxsize", "int is no publisher", "a function of one message"),
        (3, "int is no publisher", "a function of one message"),
    ],
)
def test_what_is_no_publisher_is_refused_with_what_to_write(target, message, hint):
    with pytest.raises(UsageError) as caught:
        open_publisher(target)
    assert message in str(caught.value)
    assert hint in caught.value.hint
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"


def test_a_module_that_misses_another_raises_its_own_error(tmp_path, monkeypatch):
    """The module is there: that it cannot be imported is not a wrong name."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "needs_more.py").write_text("import no_such_library_here", encoding="utf-8")
    with pytest.raises(ModuleNotFoundError, match="no_such_library_here"):
        open_publisher("python:needs_more:f")


@pytest.mark.parametrize(
    ("url", "libraries", "extra"),
    [
        ("nats://h:4222", ["nats.errors"], "nats"),
        ("kafka://h:9092", ["confluent_kafka"], "kafka"),
        ("amqp://h", ["aio_pika"], "rabbitmq"),
        ("redis://h", ["redis"], "redis"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(monkeypatch, url, libraries, extra):
    home, _ = PUBLISHERS[url.partition(":")[0]]
    monkeypatch.delitem(sys.modules, home, raising=False)
    for library in libraries:
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=r"is not installed") as caught:
        open_publisher(url)
    assert caught.value.extra == extra
