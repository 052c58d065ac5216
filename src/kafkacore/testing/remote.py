"""A broker in another process, which the tests of all pytest-xdist workers share."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn, Self

from kafkacore.runtime.loops import LoopThread
from kafkacore.testing.client import Client
from kafkacore.testing.logs import LogRecord

_CALL_SECONDS: Final = 60.0
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class RemoteBroker:
    """A broker in another process, with the operations that a client has: creating topics, writing and reading records.
    Faults, the clock and inspection need a broker in this process."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._loop = LoopThread("kc-testing")
        host, _, port = bootstrap.rpartition(":")
        self._client = Client.of(host, int(port))

    def create_topic(self, name: str, partitions: int = 1, *, configs: Mapping[str, object] = _NOTHING) -> str:
        """Creates a topic and returns its name. Raises KafkaError, ConnectionError."""
        self._loop.run(self._client.create_topic(name, partitions, configs), _CALL_SECONDS)
        return name

    def produce(self, topic: str, value: bytes | str | None, **options: Any) -> int:
        """Works like Broker.produce."""
        options = {"timestamp_ms": time.time_ns() // 1_000_000, **options}
        return self._loop.run(self._client.produce(topic, value, **options), _CALL_SECONDS)

    def consume(
        self, topic: str, count: int = 1, *, partition: int = 0, offset: int = 0, timeout_seconds: float = 5.0
    ) -> list[LogRecord]:
        """Works like Broker.consume."""
        work = self._client.consume(topic, partition, offset, count, timeout_seconds)
        return self._loop.run(work, timeout_seconds + _CALL_SECONDS)

    def reset(self) -> None:
        """Does nothing, because this broker has no faults."""

    def close(self) -> None:
        """Closes the connection and stops the thread. Idempotent."""
        if self._loop.loop.is_closed():
            return
        self._loop.run(self._client.close(), _CALL_SECONDS)
        self._loop.stop()

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{name}: one broker serves the whole run (--kafka-per-run), and it is not in this process; "
            "a test that needs faults, the clock or inspection must use the fixture kafka_broker"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
