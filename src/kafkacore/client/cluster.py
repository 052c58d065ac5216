"""A client's view of the cluster: brokers, topics with their leaders, and connections."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Collection, Iterable
from typing import Any, Final

from kafkacore._fast.base.uuid import Uuid
from kafkacore.client.connection import Connection, Disconnected
from kafkacore.client.errors import PartitionMissing, TopicMissing, Unreachable
from kafkacore.client.options import Options, addresses
from kafkacore.client.types import Partition, Topic
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import MetadataRequest
from kafkacore.protocol.response_errors import error_of_peer

_NO_ID: Final = Uuid()
_BROKEN: Final = (Disconnected, TimeoutError)
# How many times the client requests a missing topic. Some brokers may not know a topic that was just created.
_LOOKS: Final = 4
_RETRIED_OF_TOPICS: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE})


class Backoff:
    """Kafka's exponential backoff. The wait doubles with each failure, up to `most_ms`, and has a random jitter of 20
    %."""

    def __init__(self, base_ms: int, most_ms: int) -> None:
        self._base_ms, self._most_ms = base_ms, most_ms
        self._random = random.SystemRandom()

    def seconds(self, failures: int) -> float:
        """Returns the wait, in seconds, after this number of failures, counted from 1."""
        wait = self._base_ms * float(1 << min(max(failures - 1, 0), 30)) * self._random.uniform(0.8, 1.2)
        return min(wait, self._most_ms) / 1000


class Cluster:
    """The connections and metadata of a cluster. The methods raise Unreachable if no broker answers within
    default.api.timeout.ms."""

    def __init__(self, servers: str, options: Options) -> None:
        """Does not connect yet. Raises OptionError."""
        self.options = options
        self.retry = Backoff(options["retry.backoff.ms"], options["retry.backoff.max.ms"])
        self._reconnect = Backoff(options["reconnect.backoff.ms"], options["reconnect.backoff.max.ms"])
        self._bootstrap = addresses(servers)
        self._nodes: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], Connection] = {}
        # Maps each address to the number of consecutive failures, and the time of the next attempt.
        self._failures: dict[tuple[str, int], tuple[int, float]] = {}
        # Some brokers learn of changes late or not at all. This is the time of each broker's last outdated answer.
        self._outdated_at: dict[tuple[str, int] | None, float] = {}
        self._asked_last: tuple[str, int] | None = None  # the address that `ask_any` used last
        self._topics: dict[str, Topic] = {}
        self._learned_at: dict[str, float] = {}
        self._last_error = ""

    # -- time

    def deadline(self) -> float:
        """Returns the deadline of a call that starts now."""
        return time.monotonic() + float(self.options["default.api.timeout.ms"]) / 1000

    def request_deadline(self, limit: float) -> float:
        """Returns the deadline for the answer to a request that is sent now."""
        return min(limit, time.monotonic() + float(self.options["request.timeout.ms"]) / 1000)

    def pause(self, failures: int, limit: float) -> None:
        """Waits before the next attempt. Raises Unreachable if the deadline has passed."""
        left = limit - time.monotonic()
        if left <= 0:
            raise Unreachable(f"the cluster did not answer in time: {self._last_error or 'no broker could be reached'}")
        time.sleep(min(self.retry.seconds(failures), left))

    def note(self, problem: object) -> None:
        """Stores the last problem for the message of Unreachable."""
        self._last_error = str(problem)

    # -- brokers

    def connection(self, node: int) -> Connection:
        """Returns the connection to a broker, and opens it if necessary. Raises Disconnected if this fails, or during
        the backoff after a broken connection."""
        address = self._nodes.get(node)
        if address is None:
            raise Disconnected(f"the cluster has no broker {node}")
        return self._connect(address)

    def add_node(self, node: int, host: str, port: int) -> None:
        """Adds a broker from a response."""
        self._nodes[node] = (host, port)

    def usable_at(self, node: int) -> float:
        """Returns the time from which the client may connect to a broker again."""
        return self._failures.get(self._nodes.get(node, ("", 0)), (0, 0.0))[1]

    def broke(self, node: int, problem: Exception) -> None:
        """Handles a broken connection to a broker. The next connection waits for the backoff."""
        self.note(problem)
        address = self._nodes.get(node)
        if address is not None:
            self._failed(address)

    def ask(self, node: int, request: Any, limit: float, highest: int | None = None) -> Any:
        """Sends a request to a broker and returns its response. Raises Disconnected, TimeoutError and KafkaError."""
        return self._ask(self.connection(node), request, limit, highest)

    def ask_any(self, request: Any, limit: float, highest: int | None = None) -> Any:
        """Sends a request to brokers until one answers, and returns its response. Raises Unreachable and KafkaError."""
        failures = 0
        while True:
            for address in self._known():
                if self._failures.get(address, (0, 0.0))[1] > time.monotonic():
                    continue
                self._asked_last = address
                try:
                    return self._ask(self._connect(address), request, limit, highest)
                except _BROKEN as error:
                    self.note(error)
                    self._failed(address)
                    if time.monotonic() >= limit:
                        break
            failures += 1
            self.pause(failures, limit)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _known(self) -> list[tuple[str, int]]:
        """Returns the addresses of all brokers. Brokers that failed come last. Before them come brokers that gave
        outdated answers, in the order of these answers. Among equals, brokers with a connection come first."""
        known = dict.fromkeys((*self._nodes.values(), *self._bootstrap))

        def rank(each: tuple[str, int]) -> tuple[bool, float, bool]:
            return each in self._failures, self._outdated_at.get(each, 0.0), each not in self._connections

        return sorted(known, key=rank)

    def _connect(self, address: tuple[str, int]) -> Connection:
        found = self._connections.get(address)
        if found is not None and found.is_open:
            return found
        self._connections.pop(address, None)
        if self._failures.get(address, (0, 0.0))[1] > time.monotonic():
            raise Disconnected(f"{address[0]}:{address[1]} failed a moment ago and is not tried again yet")
        try:
            made = Connection(*address, self.options)
        except _BROKEN as error:
            self.note(error)
            self._failed(address)
            if isinstance(error, Disconnected):
                raise
            raise Disconnected(str(error)) from error
        self._failures.pop(address, None)
        self._connections[address] = made
        return made

    def _failed(self, address: tuple[str, int]) -> None:
        if (connection := self._connections.pop(address, None)) is not None:
            connection.close()
        failures, until = self._failures.get(address, (0, 0.0))
        if until <= time.monotonic():
            self._failures[address] = failures + 1, time.monotonic() + self._reconnect.seconds(failures + 1)

    def _ask(self, connection: Connection, request: Any, limit: float, highest: int | None) -> Any:
        version = connection.version(request.API_KEY, highest)
        return connection.ask(request, version, self.request_deadline(limit))

    # -- topics

    def topics(self, names: Iterable[str] | None, limit: float | None = None) -> dict[str, Topic]:
        """Requests fresh metadata of the topics. Raises TopicMissing, Unreachable, and KafkaError, for example if
        authorization is refused."""
        wanted = None if names is None else list(dict.fromkeys(names))
        if wanted == []:
            return {}
        limit = self.deadline() if limit is None else limit
        for look in range(1, _LOOKS + 1):
            found, missing = self._learn(wanted, limit)
            if not missing:
                return found
            self._doubt()
            if look < _LOOKS:
                self.pause(look, limit)
        raise TopicMissing(missing[0])

    def topic(self, name: str, limit: float | None = None) -> Topic:
        """Returns the cached metadata of a topic, or requests it if it is older than metadata.max.age.ms."""
        return self._cached(name) or self.topics([name], limit)[name]

    def look(self, names: Collection[str], limit: float) -> dict[str, Topic]:
        """Returns the cached metadata of topics, or requests it once. Leaves out topics that the answer lacks."""
        found = {name: topic for name in names if (topic := self._cached(name)) is not None}
        if unknown := [name for name in names if name not in found]:
            found |= self._learn(unknown, limit)[0]
        return found

    def partition(self, name: str, partition: int, limit: float | None = None) -> Partition:
        """Returns the metadata of a partition. Requests it again while the partition is missing: it may have been added
        since the last request, and some brokers may not know it yet. Raises PartitionMissing, and the same errors as
        `topics`."""
        limit = self.deadline() if limit is None else limit
        topic = self.topic(name, limit)
        for look in range(_LOOKS):
            if partition in topic.partitions:
                return topic.partitions[partition]
            self._doubt()
            if look:
                self.pause(look, limit)
            topic = self.topics([name], limit)[name]
        if partition not in topic.partitions:
            raise PartitionMissing(name, partition, len(topic.partitions))
        return topic.partitions[partition]

    def forget(self, names: Collection[str]) -> None:
        """Drops the cached metadata of these topics, because it did not lead to an answer. The next call requests it
        again, from another broker if possible."""
        self._doubt()
        for name in names:
            self._learned_at.pop(name, None)
            self._topics.pop(name, None)

    def _cached(self, name: str) -> Topic | None:
        age_s = time.monotonic() - self._learned_at.get(name, -math.inf)
        return self._topics[name] if age_s * 1000 < self.options["metadata.max.age.ms"] else None

    def _doubt(self) -> None:
        """Makes the next request for metadata go to another broker if possible."""
        self._outdated_at[self._asked_last] = time.monotonic()

    def _learn(self, names: list[str] | None, limit: float) -> tuple[dict[str, Topic], list[str]]:
        """Returns the topics that were found, and the names of missing topics."""
        topics = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = self.ask_any(request, limit)
        self._nodes = {each.node_id: (each.host, each.port) for each in response.brokers} or self._nodes
        live = set(self._nodes.values()) | set(self._bootstrap)
        for address in self._connections.keys() - live:
            self._connections.pop(address).close()
        found, missing = {}, []
        for told in response.topics:
            if told.error_code in _RETRIED_OF_TOPICS:
                missing.append(told.name)
            elif told.error_code:
                error = error_of_peer(told.error_code)
                raise error_for(error, f"topic {told.name}: {error.message}")
            else:
                found[told.name] = self._keep(told)
        if names is not None:
            missing += [name for name in names if name not in found and name not in missing]
        return found, ([] if names is None else missing)

    def _keep(self, told: Any) -> Topic:
        partitions = {
            each.partition_index: Partition(each.leader_id, each.leader_epoch)
            for each in sorted(told.partitions, key=lambda each: each.partition_index)
        }
        topic = Topic(told.name, None if told.topic_id == _NO_ID else told.topic_id, partitions, told.is_internal)
        self._topics[told.name] = topic
        self._learned_at[told.name] = time.monotonic()
        return topic
