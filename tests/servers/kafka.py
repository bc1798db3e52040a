"""The mock cluster of librdkafka on loopback, for tests: brokers that fail on command.

It is part of librdkafka (rdkafka_mock.h), which the wheel of confluent-kafka brings along, and it
speaks Kafka's protocol over TCP: every client can use it.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka

if TYPE_CHECKING:
    from typing import Self

API_KEYS = {
    "Produce": 0, "Fetch": 1, "ListOffsets": 2, "Metadata": 3, "OffsetCommit": 8, "OffsetFetch": 9,
    "FindCoordinator": 10, "JoinGroup": 11, "Heartbeat": 12, "SaslHandshake": 17, "ApiVersions": 18,
    "InitProducerId": 22, "AddPartitionsToTxn": 24, "EndTxn": 26,
}  # fmt: skip
_PRODUCER = 0


class MockCluster:
    """`bootstrap`, what it answers with, and how many requests of each kind it has had."""

    def __init__(self, brokers: int = 1) -> None:
        self._lib = lib = _library()
        problem = ctypes.create_string_buffer(512)
        self._client = lib.rd_kafka_new(_PRODUCER, lib.rd_kafka_conf_new(), problem, 512)
        assert self._client, problem.value.decode()
        self._cluster = lib.rd_kafka_mock_cluster_new(self._client, brokers)
        self.bootstrap: str = lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        lib.rd_kafka_mock_start_request_tracking(self._cluster)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lib.rd_kafka_mock_cluster_destroy(self._cluster)
        self._lib.rd_kafka_destroy(self._client)

    @property
    def port(self) -> int:
        """Of the first broker."""
        return int(self.bootstrap.partition(",")[0].rpartition(":")[2])

    def topic(self, name: str) -> None:
        """Creates a topic with one partition."""
        self._lib.rd_kafka_mock_topic_create(self._cluster, name.encode(), 1, 1)

    def topic_error(self, name: str, code: int) -> None:
        """What the metadata of a topic has as its error; 0 ends that."""
        self._lib.rd_kafka_mock_topic_set_error(self._cluster, name.encode(), code)

    def fail(self, request: str, *codes: int) -> None:
        """The next requests of a kind are answered with these errors, one after the other."""
        key = API_KEYS[request]
        self._lib.rd_kafka_mock_clear_request_errors(self._cluster, key)
        array = (ctypes.c_int * len(codes))(*codes)
        self._lib.rd_kafka_mock_push_request_errors_array(
            self._cluster, key, ctypes.c_size_t(len(codes)), array
        )

    def requests(self, request: str) -> int:
        """How many of a kind came since the last `forget()`."""
        count = ctypes.c_size_t()
        found = self._lib.rd_kafka_mock_get_requests(self._cluster, ctypes.byref(count))
        keys = [self._lib.rd_kafka_mock_request_api_key(found[at]) for at in range(count.value)]
        self._lib.rd_kafka_mock_request_destroy_array(found, count)
        return keys.count(API_KEYS[request])

    def forget(self) -> None:
        """Counts from zero."""
        self._lib.rd_kafka_mock_clear_requests(self._cluster)

    def down(self) -> None:
        """The first broker ends its connections and refuses new ones."""
        self._lib.rd_kafka_mock_broker_set_down(self._cluster, 1)

    def up(self) -> None:
        """The first broker accepts connections."""
        self._lib.rd_kafka_mock_broker_set_up(self._cluster, 1)

    def join_at_once(self) -> None:
        """A group does not wait for more members when its first one joins."""
        self._lib.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)

    def slow(self, seconds: float) -> None:
        """How long the first broker takes for each answer."""
        self._lib.rd_kafka_mock_broker_set_rtt(self._cluster, 1, int(seconds * 1000))


def _library() -> ctypes.CDLL:
    """The library that is loaded already; a wheel keeps it beside the package."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    (path,) = folder.glob("librdkafka-*.so*")
    lib = ctypes.CDLL(str(path))
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    for name, result, *arguments in [
        ("rd_kafka_conf_new", pointer),
        ("rd_kafka_new", pointer, ctypes.c_int, pointer, text, size),
        ("rd_kafka_destroy", None, pointer),
        ("rd_kafka_mock_cluster_new", pointer, pointer, ctypes.c_int),
        ("rd_kafka_mock_cluster_destroy", None, pointer),
        ("rd_kafka_mock_cluster_bootstraps", text, pointer),
        ("rd_kafka_mock_topic_create", ctypes.c_int, pointer, text, ctypes.c_int, ctypes.c_int),
        ("rd_kafka_mock_topic_set_error", None, pointer, text, ctypes.c_int),
        ("rd_kafka_mock_clear_request_errors", None, pointer, ctypes.c_int16),
        ("rd_kafka_mock_push_request_errors_array", None, pointer, ctypes.c_int16, size, pointer),
        ("rd_kafka_mock_start_request_tracking", None, pointer),
        ("rd_kafka_mock_get_requests", ctypes.POINTER(pointer), pointer, ctypes.POINTER(size)),
        ("rd_kafka_mock_request_api_key", ctypes.c_int16, pointer),
        ("rd_kafka_mock_request_destroy_array", None, ctypes.POINTER(pointer), size),
        ("rd_kafka_mock_clear_requests", None, pointer),
        ("rd_kafka_mock_broker_set_down", ctypes.c_int, pointer, ctypes.c_int32),
        ("rd_kafka_mock_broker_set_up", ctypes.c_int, pointer, ctypes.c_int32),
        ("rd_kafka_mock_group_initial_rebalance_delay_ms", None, pointer, ctypes.c_int32),
        ("rd_kafka_mock_broker_set_rtt", ctypes.c_int, pointer, ctypes.c_int32, ctypes.c_int),
    ]:  # fmt: skip
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib
