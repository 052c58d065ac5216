"""The producer writes Arrow batches into topics. It is idempotent, and transactional if it has a transactional.id.

At most one request is in flight to each leader, and it contains at most one batch of each partition. This keeps the
order within a partition. A retry repeats the same batch with the same sequence number (KIP-98). Batches stay in memory
until they are acknowledged. While they take more than `MOST_QUEUED_BYTES`, `send` waits.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from kafkacore._fast.columns.record_encoder import RecordEncoder, UnknownPartition, seal
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore.client.cluster import Cluster
from kafkacore.client.connection import Disconnected
from kafkacore.client.errors import OptionError, RecordTooLarge, Unreachable
from kafkacore.client.in_flight import InFlight, OwnTime
from kafkacore.client.options import Options
from kafkacore.client.transactions import Transactions, new_producer_id
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import ProduceRequest
from kafkacore.protocol.response_errors import error_of_peer

MOST_QUEUED_BYTES: Final = 32 << 20
_BY_NAME: Final = 12  # the last version in which requests name topics
_ADDED_BEFORE: Final = 11  # the last version in which the client adds partitions to transactions (KIP-890)
_ALL_ACKS: Final = -1
_MOST_SEQUENCE: Final = 1 << 31
_MOST_BATCH_BYTES: Final = 1 << 30
_ROOM_BYTES: Final = 1 << 12  # the part of a request that is not available for batches


_Made = tuple[list[tuple[int, bytes, int]], int]


class Encoded(NamedTuple):
    """A record batch without producer ids. It can be pickled, and another process can send it."""

    topic: str
    partition: int
    data: bytes
    records: int


class _Line:
    """The unacknowledged batches of one partition, in order."""

    def __init__(self) -> None:
        self.waiting: deque[_Batch] = deque()
        self.sequence = 0  # the sequence number of the next batch
        self.not_before = 0.0
        self.failures = 0


class _Batch(NamedTuple):
    data: bytes
    records: int
    deadline: float  # a time of the producer's `OwnTime`


class Producer:
    """A producer. Use it on the client's thread, and close it. After an error, the only useful call is `abort`."""

    def __init__(self, cluster: Cluster, options: Options) -> None:
        """Raises OptionError."""
        if options["acks"] != _ALL_ACKS or not options["enable.idempotence"]:
            raise OptionError("acks must be all and enable.idempotence true: the producer is always idempotent")
        if options["transactional.id"] == "":
            raise OptionError("transactional.id is empty, but must be text")
        self._cluster = cluster
        self._options = options
        self._lines: dict[tuple[str, int], _Line] = defaultdict(_Line)
        self._time = OwnTime()
        self._in_flight: InFlight[list[tuple[str, int]]] = InFlight("Produce", self._time, self._broke)
        self._sticky: dict[str, int] = {}
        # For each batch that waits for a retry, or for a connection to a failed broker: the time from which it can be
        # sent.
        self._blocked_until: list[float] = []
        self._queued_bytes = 0
        self._ids: tuple[int, int] | None = None
        self._error: Exception | None = None
        transactional_id = options["transactional.id"]
        self._transactions = None if transactional_id is None else Transactions(cluster, options, transactional_id)
        self.sent = 0
        """The number of acknowledged records."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._drop()

    # -- records

    def send(self, topic: str | None, partition: int | None, columns: Any) -> int:
        """Encodes an Arrow record batch and queues it. Waits while the queue is full. Returns the number of records.

        Args:
            topic: for all rows; None takes the column `topic`.
            partition: for all rows; None takes the column `partition`, the key, or a sticky partition.
            columns: see RecordEncoder.

        Raises:
            RecordTooLarge, InvalidRecordError, TypeError, ValueError: none of these rows is sent.
            TopicMissing, PartitionMissing, Unreachable, KafkaError: for the same reasons as in `flush`.
        """
        return self.send_encoded(self.encode(topic, partition, columns))

    def encode(self, topic: str | None, partition: int | None, columns: Any) -> list[Encoded]:
        """Returns the record batches that `send` would queue. Pass them to `send_encoded` of any producer. Raises the
        same errors as `send`."""
        options = self._options
        codec = options["compression.type"]
        level = options[f"compression.{codec}.level"] if f"compression.{codec}.level" in options.given else None
        encoder = RecordEncoder(
            columns,
            now_ms=time.time_ns() // 1_000_000,
            codec=codec,
            level=level,
            batch_bytes=min(options["batch.size"], options["max.request.size"]),
            most_bytes=options["max.request.size"],
        )
        names = encoder.topics if topic is None else [topic]
        if names is None:
            raise ValueError("no topic is given, and the columns have no topic either: give one of them")
        found: list[Encoded] = []
        for name in names:
            if partition is not None:
                self._cluster.partition(name, partition)
            encode = partial(
                encoder.encode,
                topic=name if topic is None else None,
                partition=partition,
                sticky=self._sticky.get(name, hash((name, id(self))) & 0xFFFF),
                ignore_keys=options["partitioner.ignore.keys"],
            )
            try:
                batches, self._sticky[name] = self._with_all_partitions(name, encode)
            except OverflowError as error:
                raise RecordTooLarge(f"topic {name}: {error} (max.request.size)") from error
            found += (Encoded(name, each, data, records) for each, data, records in batches)
        return found

    def _with_all_partitions(self, topic: str, encode: Callable[[int], _Made]) -> _Made:
        """Returns the result of `encode` for the number of the topic's partitions. If a row names a partition beyond
        them, requests the metadata again: the partition may have been added since the last request."""
        count = len(self._cluster.topic(topic).partitions)
        try:
            return encode(count)
        except UnknownPartition:
            self._cluster.forget([topic])
            grown = len(self._cluster.topic(topic).partitions)
            if grown <= count:
                raise
        return encode(grown)

    def send_encoded(self, batches: Iterable[Encoded]) -> int:
        """Queues batches that `encode` has made. Returns the number of records. Raises the same errors as `flush`."""
        if self._transactions is not None and not self._transactions.is_open:
            raise ValueError("a transactional producer sends between begin and commit")
        count = 0
        for each in batches:
            deadline = self._time.now() + self._options["delivery.timeout.ms"] / 1000
            self._lines[each.topic, each.partition].waiting.append(_Batch(each.data, each.records, deadline))
            self._queued_bytes += len(each.data)
            count += each.records
            while self._queued_bytes > MOST_QUEUED_BYTES:
                self._turn()
        if count:
            self._turn(wait=False)
        return count

    def flush(self) -> None:
        """Waits until all in-sync replicas have acknowledged all queued records.

        Raises:
            Unreachable: a batch was not acknowledged within delivery.timeout.ms; it may have been written.
            RecordTooLarge: the topic allows less than a batch needs.
            KafkaError: the broker refused a batch, such as ProducerFencedError.
        """
        while self._queued_bytes:
            self._turn()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Closes the producer. If no error was raised before, flushes first."""
        if self._error is None and (self._transactions is None or not self._transactions.is_open):
            self.flush()
        self._drop()

    # -- transactions

    def begin(self) -> None:
        """Begins a transaction. The first transaction fences every other producer with this transactional.id
        (KIP-98)."""
        self._transactional().begin()
        self._ids = self._transactional().ids

    def commit(self) -> None:
        """Flushes and commits. Returns when the coordinator has decided. Raises the same errors as `flush`."""
        transactions = self._transactional()
        self.flush()
        transactions.end(commit=True)

    def abort(self) -> None:
        """Discards unsent records and aborts the transaction. After an error, this makes the producer usable again,
        unless another producer has fenced it."""
        transactions = self._transactional()
        self._await_answers()
        self._drop()
        self._error = None
        transactions.end(commit=False)
        self._lines.clear()
        transactions.renew()  # batches with an unknown outcome have used sequence numbers; a new epoch starts at 0

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise OptionError("transactional.id is not given, so the producer has no transactions")
        return self._transactions

    def _await_answers(self) -> None:
        """Waits for the responses to all requests in flight. A Produce request that arrived after the end of the
        transaction would start another transaction."""
        self._time.start()
        self._in_flight.give_up()
        while self._in_flight:
            for node in self._in_flight.wait(math.inf):
                self._in_flight.receive(node)
            self._in_flight.give_up()
        self._time.stop()

    # -- the wire

    def _drop(self) -> None:
        self._in_flight.drop()
        self._clear()

    def _clear(self) -> None:
        """Discards all queued batches."""
        for line in self._lines.values():
            line.waiting.clear()
        self._queued_bytes = 0

    def _turn(self, *, wait: bool = True) -> None:
        """Sends everything that can be sent, and handles responses. With `wait`, waits for at least one response, or
        until something can be sent. Raises the first error."""
        if self._error is not None:
            raise self._error
        self._time.start()
        try:
            self._ensure_ids()
            self._expire()
            self._send()
            self._in_flight.give_up()
            for node in self._in_flight.wait(self._pause_s() if wait else 0.0):
                self._take(node)
        except Exception as error:
            self._error = error
            if self._transactions is None:
                self._in_flight.drop()
            self._clear()  # a transaction's requests stay in flight: `abort` must wait for their responses
            raise
        finally:
            self._time.stop()

    def _ensure_ids(self) -> None:
        if self._ids is None:
            self._ids = new_producer_id(self._cluster, self._options)

    def _expire(self) -> None:
        now = self._time.now()
        for (topic, partition), line in self._lines.items():
            if line.waiting and line.waiting[0].deadline <= now:
                raise Unreachable(
                    f"{topic}-{partition}: {line.waiting[0].records} records were not acknowledged within "
                    f"delivery.timeout.ms; they may be written nevertheless"
                )

    def _send(self) -> None:
        now = time.monotonic()
        self._blocked_until.clear()
        busy = {place for places in self._in_flight.cargoes() for place in places}
        by_node: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for place, line in self._lines.items():
            if not line.waiting or place in busy:
                continue
            if line.not_before > now:
                self._blocked_until.append(line.not_before)
                continue
            leader = self._cluster.partition(*place).leader
            if leader < 0:
                self._again(place)
            elif self._cluster.usable_at(leader) > now:
                self._blocked_until.append(self._cluster.usable_at(leader))
            elif leader not in self._in_flight:
                by_node[leader].append(place)
        for node, places in by_node.items():
            self._send_to(node, places)

    def _send_to(self, node: int, places: list[tuple[str, int]]) -> None:
        chosen: dict[str, list[Any]] = defaultdict(list)
        room = self._options["max.request.size"] - _ROOM_BYTES
        taken: list[tuple[str, int]] = []
        for place in places:
            batch = self._lines[place].waiting[0]
            if taken and len(batch.data) > room:
                continue
            room -= len(batch.data)
            taken.append(place)
        try:
            if self._transactions is not None:
                self._transactions.add(taken)
            connection = self._cluster.connection(node)
            version = connection.version(ApiKey.PRODUCE, _BY_NAME if self._transactions is None else _ADDED_BEFORE)
            for topic, partition in taken:
                chosen[topic].append(
                    ProduceRequest.PartitionProduceData(index=partition, records=self._sealed(topic, partition))
                )
            request = ProduceRequest(
                transactional_id=None if self._transactions is None else self._options["transactional.id"],
                acks=_ALL_ACKS,
                timeout_ms=self._options["request.timeout.ms"],
                topic_data=[ProduceRequest.TopicProduceData(name=each, partition_data=chosen[each]) for each in chosen],
            )
            timeout_s = self._options["request.timeout.ms"] / 1000
            self._in_flight.send(node, connection, request, version, timeout_s, taken)
        except (Disconnected, TimeoutError) as error:
            self._broke(node, error, taken)

    def _sealed(self, topic: str, partition: int) -> bytes:
        line = self._lines[topic, partition]
        assert self._ids is not None
        return seal(line.waiting[0].data, *self._ids, line.sequence, self._transactions is not None)

    def _broke(self, node: int, error: Exception, places: list[tuple[str, int]]) -> None:
        self._cluster.broke(node, error)
        for place in places:
            self._again(place)

    def _again(self, place: tuple[str, int]) -> None:
        """Schedules a retry: after a backoff, `_turn` sends the first batch of the partition again, to its leader at
        that time."""
        line = self._lines[place]
        line.failures += 1
        line.not_before = time.monotonic() + self._cluster.retry.seconds(line.failures)
        self._blocked_until.append(line.not_before)
        self._cluster.forget([place[0]])

    def _pause_s(self) -> float:
        """Returns the seconds until the first batch expires or can be sent."""
        own, now = self._time.now(), time.monotonic()
        times = [line.waiting[0].deadline - own for line in self._lines.values() if line.waiting]
        return min([*times, *(each - now for each in self._blocked_until)], default=0.0)

    def _take(self, node: int) -> None:
        received = self._in_flight.receive(node)
        if received is None:
            return
        request, response = received
        unanswered = set(request.cargo)
        for topic in response.responses:
            for told in topic.partition_responses:
                place = topic.name, told.index
                if place in unanswered:
                    unanswered.discard(place)
                    self._judge(place, told)
        for place in unanswered:
            self._again(place)

    def _judge(self, place: tuple[str, int], told: Any) -> None:
        code = error_of_peer(told.error_code)
        line = self._lines[place]
        if code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            words = f"{place[0]}-{place[1]}: {told.error_message or code.message}"
            if code == ErrorCode.MESSAGE_TOO_LARGE:
                if line.waiting[0].records == 1:
                    raise RecordTooLarge(f"{words}: raise the topic's max.message.bytes")
                self._split(line)
                return
            if not code.retriable:
                raise error_for(code, words)
            self._cluster.note(words)
            self._again(place)
            return
        batch = line.waiting.popleft()
        line.sequence = (line.sequence + batch.records) % _MOST_SEQUENCE
        line.failures = 0
        self._queued_bytes -= len(batch.data)
        self.sent += batch.records

    def _split(self, line: _Line) -> None:
        """Splits the first batch in half, because the topic refused it as too large. The batch was not written, so its
        sequence number can be used again."""
        batch = line.waiting.popleft()
        (whole,) = Batches(batch.data)
        records = list(whole)
        for part in (records[len(records) // 2 :], records[: len(records) // 2]):
            builder = RecordBatchBuilder(codec=whole.codec_name or "none", limit_bytes=_MOST_BATCH_BYTES)
            for each in part:
                builder.append(each.timestamp, each.key, each.value, each.headers)
            data = bytes(builder.build())
            line.waiting.appendleft(_Batch(data, len(part), batch.deadline))
            self._queued_bytes += len(data)
        self._queued_bytes -= len(batch.data)
