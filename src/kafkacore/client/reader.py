"""Reads ranges of partitions. While the reader decodes earlier responses, one Fetch to each leader is in flight.

A reader needs memory for one response of each broker (fetch.max.bytes), and for the rows that do not fill an Arrow
batch yet (at most 64 MiB or one batch). It sends the next Fetch only when the caller requests more batches.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkacore._fast.base.errors import CorruptBatchError
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.columns.record_columns import ArrowRows, RecordColumns
from kafkacore.client.cluster import Cluster
from kafkacore.client.connection import Disconnected
from kafkacore.client.errors import (
    ClientError,
    OffsetOutOfRange,
    PartitionMissing,
    TopicMissing,
    TopicRecreated,
    Unreachable,
)
from kafkacore.client.fetching import BY_NAME, Asked
from kafkacore.client.in_flight import InFlight, OwnTime
from kafkacore.client.positions import ISOLATION, list_offsets
from kafkacore.client.types import EARLIEST, LATEST, Range, Topic
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.response_errors import error_of_peer

_HELD_BYTES: Final = 64 << 20
_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)  # fmt: skip
# After these errors the reader looks up the leader or the topic again. Kafka's consumer also retries after
# UNKNOWN_SERVER_ERROR.
_LOOK_AGAIN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT,
    }
)  # fmt: skip


class ReadLimits(NamedTuple):
    """The size limits of an Arrow batch."""

    max_rows: int = 10_000
    max_bytes: int = 16 << 20


class _Part:
    """The state of a range that is being read."""

    def __init__(self, wanted: Range, columns: RecordColumns, now: float) -> None:
        self.wanted = wanted
        self.columns = columns
        self.position = wanted.start
        self.topic_id: Uuid | None = wanted.topic_id
        self.leader = -1
        self.leader_epoch = -1
        self.replica = -1  # the closer replica that the leader has named for reads (KIP-392), or -1
        self.failures = 0
        self.not_before = 0.0
        self.progress_at = now  # a time of the reader's `OwnTime`
        self.missing: ClientError | None = None  # set while the metadata lacks the topic or the partition
        self.missing_since = now
        self.seen = "the leader has not answered"

    @property
    def place(self) -> str:
        return f"{self.wanted.topic}-{self.wanted.partition}"

    @property
    def done(self) -> bool:
        return self.position >= self.wanted.end

    @property
    def node(self) -> int:
        return self.replica if self.replica >= 0 else self.leader

    @property
    def stuck_since(self) -> float:
        return self.progress_at if self.missing is None else self.missing_since

    def take_leader(self, topics: Mapping[str, Topic]) -> None:
        """Takes the leader from metadata. Raises TopicMissing, TopicRecreated and PartitionMissing."""
        wanted = self.wanted
        topic = topics.get(wanted.topic)
        if topic is None:
            raise TopicMissing(wanted.topic)
        if self.topic_id is not None and topic.id is not None and topic.id != self.topic_id:
            raise TopicRecreated(wanted.topic, self.topic_id, topic.id)
        if wanted.partition not in topic.partitions:
            raise PartitionMissing(wanted.topic, wanted.partition, len(topic.partitions))
        self.topic_id = topic.id
        self.leader, self.leader_epoch = topic.partitions[wanted.partition]
        self.missing = None

    def look_again(self, wait_s: float) -> None:
        """Makes the reader look up the leader before the next Fetch."""
        self.leader = self.replica = -1
        self.failures += 1
        self.not_before = time.monotonic() + wait_s


class Reader:
    """One call of `Client.read`, whose docstring explains `on_lost`. Use a reader on one thread, and iterate over it
    once."""

    def __init__(
        self,
        cluster: Cluster,
        ranges: Sequence[Range],
        columns: Sequence[str],
        isolation_level: str,
        limits: ReadLimits,
        on_lost: Callable[[ClientError], None] | None,
    ) -> None:
        self._cluster = cluster
        self._options = cluster.options
        self._isolation = isolation_level
        self._on_lost = on_lost
        self._columns = columns
        self._limits = limits
        self._time = OwnTime()
        self._in_flight: InFlight[dict[tuple[str, int], _Part]] = InFlight("Fetch", self._time, self._broke)
        self._not_begun: dict[tuple[str, int], deque[Range]] = defaultdict(deque)
        self._parts: dict[tuple[str, int], _Part] = {}
        self._patience_s = self._options["default.api.timeout.ms"] / 1000
        for each in ranges:
            if each.start < 0 or each.end < each.start:
                raise ValueError(f"{each.topic}-{each.partition}: {each.start} to {each.end} is not a range of offsets")
            if each.end > each.start:
                self._not_begun[each.topic, each.partition].append(each)
        for key in self._not_begun:
            self._begin(key)

    def __iter__(self) -> Iterator[ArrowRows]:
        self._time.start()
        try:
            for rows in self._read():
                self._time.stop()
                yield rows
                self._time.start()
        finally:
            self._in_flight.drop()  # otherwise a later read would receive the responses

    def _read(self) -> Iterator[ArrowRows]:
        while self._parts:
            self._route()
            self._send()
            self._in_flight.give_up()
            for node in self._in_flight.wait(self._pause_s()):
                yield from self._take(node)
            for part in list(self._parts.values()):
                if self._time.now() - part.stuck_since > self._patience_s:
                    self._give_up(part)
                    yield from self._rows([part])

    def _begin(self, key: tuple[str, int]) -> None:
        """Starts the next range of a partition. The ranges of a partition are read one after the other, because a Fetch
        can contain a partition only once."""
        wanted = self._not_begun[key].popleft()
        columns = RecordColumns(
            self._columns,
            wanted.topic,
            wanted.partition,
            # A decoder reserves room for the rows of a whole Arrow batch, which many small ranges do not need.
            min(self._limits.max_rows, wanted.end - wanted.start),
            self._limits.max_bytes,
            check_crcs=self._options["check.crcs"],
        )
        self._parts[key] = _Part(wanted, columns, self._time.now())

    # -- routing

    def _route(self) -> None:
        """Finds the leaders of the partitions that need one."""
        now = time.monotonic()
        homeless = [part for part in self._parts.values() if part.leader < 0 and part.not_before <= now]
        if not homeless:
            return
        names = {part.wanted.topic for part in homeless}
        if any(part.failures for part in homeless):
            self._cluster.forget(names)
        topics = self._cluster.look(names, now + self._patience_s)
        for part in homeless:
            self._find_leader(part, topics)

    def _find_leader(self, part: _Part, topics: Mapping[str, Topic]) -> None:
        """Takes the part's leader from `topics`. If the topic or the partition is missing, or the topic has another id,
        looks again later: the broker that answered may not know it yet, or may be cut off from the controllers."""
        try:
            part.take_leader(topics)
            part.seen = "the partition has no leader" if part.leader < 0 else part.seen
        except (TopicMissing, TopicRecreated, PartitionMissing) as error:
            if part.missing is None:
                part.missing_since = self._time.now()
            part.missing = error
        if part.leader < 0:
            part.look_again(self._cluster.retry.seconds(part.failures + 1))

    # -- requests

    def _send(self) -> None:
        now = time.monotonic()
        by_node: dict[int, dict[tuple[str, int], _Part]] = defaultdict(dict)
        for key, part in self._parts.items():
            if part.node >= 0 and part.not_before <= now and not part.done:
                by_node[part.node][key] = part
        for node, parts in by_node.items():
            if node not in self._in_flight and self._cluster.usable_at(node) <= now:
                self._send_to(node, parts)

    def _send_to(self, node: int, parts: dict[tuple[str, int], _Part]) -> None:
        try:
            connection = self._cluster.connection(node)
            by_id = all(part.topic_id is not None for part in parts.values())
            version = connection.version(ApiKey.FETCH, None if by_id else BY_NAME)
            by_id = by_id and version > BY_NAME
            asked = (
                Asked(each.wanted.topic, each.topic_id, each.wanted.partition, each.position, each.leader_epoch)
                for each in parts.values()
            )
            request = connection.fetch_session.request(asked, by_id, ISOLATION[self._isolation], self._options)
            timeout_s = (self._options["request.timeout.ms"] + self._options["fetch.max.wait.ms"]) / 1000
            self._in_flight.send(node, connection, request, version, timeout_s, parts)
        except (Disconnected, TimeoutError) as error:
            self._broke(node, error, parts)

    def _broke(self, node: int, error: Exception, parts: dict[tuple[str, int], _Part]) -> None:
        self._cluster.broke(node, error)
        for part in parts.values():
            part.seen = str(error)
            part.look_again(self._cluster.retry.seconds(part.failures + 1))

    def _pause_s(self) -> float:
        """Returns the seconds until a partition without a request in flight can be fetched."""
        fetched = {key for parts in self._in_flight.cargoes() for key in parts}
        times = [
            max(part.not_before, self._cluster.usable_at(part.node) if part.node >= 0 else 0.0)
            for key, part in self._parts.items()
            # A part whose broker already has a request in flight waits for the next request.
            if part.node not in self._in_flight and key not in fetched
        ]
        return min(times, default=math.inf) - time.monotonic()

    # -- answers

    def _take(self, node: int) -> Iterator[ArrowRows]:
        received = self._in_flight.receive(node)
        if received is None:
            return
        request, response = received
        session = request.connection.fetch_session
        if response.error_code:
            session.reset()
            if response.error_code not in _SESSION_ERRORS and not error_of_peer(response.error_code).retriable:
                raise error_for(error_of_peer(response.error_code))
            for part in request.cargo.values():
                part.not_before = time.monotonic() + self._cluster.retry.seconds(1)
            return
        session.answered(response.session_id)
        fed = list(self._parts_of(response, request.cargo))
        for part in fed:
            # Without a session, the broker serves partitions in the order of the request, and the first ones may fill
            # every response. So a partition that got records goes to the end.
            key = part.wanted.topic, part.wanted.partition
            self._parts[key] = self._parts.pop(key)
        self._send()  # so that the broker works on the next response while this one is decoded
        yield from self._rows(fed)

    def _parts_of(self, response: Any, parts: dict[tuple[str, int], _Part]) -> Iterator[_Part]:
        """Passes the response's data to each partition. Yields the parts that got records or reached their end."""
        names = {part.topic_id: part.wanted.topic for part in parts.values()}
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id)
            for told in topic.partitions:
                part = parts.get((name, told.partition_index)) if name else None
                if part is None or self._parts.get((part.wanted.topic, part.wanted.partition)) is not part:
                    continue
                if self._judge(part, told):
                    yield part

    def _judge(self, part: _Part, told: Any) -> bool:
        """Handles one partition of a response. Returns whether its part got records or reached its end."""
        if told.error_code:
            self._failed(part, told)
            return part.done
        if told.preferred_read_replica >= 0 and told.preferred_read_replica != part.replica:
            part.replica = told.preferred_read_replica
        part.seen = f"the log starts at {told.log_start_offset}, and can be read up to {self._readable(told)}"
        records = told.records
        if not records:
            return False
        aborted = None
        if self._isolation == "read_committed":
            aborted = [(each.producer_id, each.first_offset) for each in told.aborted_transactions or ()]
        position = part.columns.feed(records, part.position, part.wanted.end, aborted)
        if position <= part.position:
            raise CorruptBatchError(
                f"{part.place}: the broker answered {len(records)} bytes for offset {part.position}, and no "
                f"whole batch that reaches it"
            )
        part.position = position
        part.failures = 0
        part.progress_at = self._time.now()
        return True

    def _readable(self, told: Any) -> int:
        end: int = told.last_stable_offset if self._isolation == "read_committed" else told.high_watermark
        return end

    def _failed(self, part: _Part, told: Any) -> None:
        code = error_of_peer(told.error_code)
        part.seen = code.message
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if part.replica >= 0:
                part.replica = -1  # a follower may lag behind the leader, so read from the leader
                return
            self._out_of_range(part)
        elif code in _LOOK_AGAIN:
            part.look_again(self._cluster.retry.seconds(part.failures + 1))
        else:
            raise error_for(code, f"{part.place} from offset {part.position}: {code.message}")

    def _out_of_range(self, part: _Part) -> None:
        """Requests the bounds of the log. If the offset is within them, for example after a change of leaders, repeats
        the Fetch."""
        bounds = self._bounds(part)
        if bounds is None or bounds[0] <= part.position <= bounds[1]:
            part.look_again(self._cluster.retry.seconds(part.failures + 1))
        else:
            self._outside(part, *bounds)

    def _give_up(self, part: _Part) -> None:
        """Ends a range for which no record has come in time. If the log ends here, the range's other records are lost,
        for example in an unclean election. The reader has not noticed this before, because a leader answers a Fetch at
        the end of its log without an error."""
        wanted, key = part.wanted, (part.wanted.topic, part.wanted.partition)
        if part.missing is not None:  # so the partition's other ranges with this topic id are lost, too
            self._not_begun[key] = deque(each for each in self._not_begun[key] if each.topic_id != wanted.topic_id)
            self._lost(part, part.missing, wanted.end)
            return
        bounds = self._bounds(part) if part.leader >= 0 else None
        if bounds is None or part.position < bounds[1]:
            raise Unreachable(
                f"{part.place}: no record came from offset {part.position} for {self._patience_s:g} s, and the "
                f"range ends at {wanted.end}: {part.seen}"
            )
        self._outside(part, *bounds)

    def _bounds(self, part: _Part) -> tuple[int, int] | None:
        """Returns the first offset of the log and its high watermark. Returns None if no leader answers."""
        key = part.wanted.topic, part.wanted.partition
        limit = self._cluster.request_deadline(self._cluster.deadline())
        try:
            start, end = (
                list_offsets(self._cluster, {key: bound}, "read_uncommitted", limit)[key].offset
                for bound in (EARLIEST, LATEST)
            )
        except (Unreachable, TopicMissing, PartitionMissing) as error:
            part.seen = str(error)
            return None
        return start, end

    def _outside(self, part: _Part, start: int, end: int) -> None:
        """Handles a position outside the log, which extends from `start` to `end`. Reports the missing records as lost,
        and continues after them."""
        wanted = part.wanted
        error = OffsetOutOfRange(wanted.topic, wanted.partition, part.position, wanted.end, start, end)
        self._lost(part, error, min(start, wanted.end) if part.position < start else wanted.end)

    def _lost(self, part: _Part, error: ClientError, position: int) -> None:
        """Passes the error to `on_lost`, and continues at `position`. Without `on_lost`, raises the error."""
        if self._on_lost is None:
            raise error
        self._on_lost(error)
        part.position = position
        part.progress_at = self._time.now()

    def _rows(self, fed: list[_Part]) -> Iterator[ArrowRows]:
        for part in fed:
            while (rows := part.columns.take()) is not None:
                yield rows
            if part.done:
                key = part.wanted.topic, part.wanted.partition
                del self._parts[key]
                if self._not_begun[key]:
                    self._begin(key)
                while (rows := part.columns.take(last=True)) is not None:
                    yield rows
        held = sum(part.columns.held_bytes for part in self._parts.values())
        for part in sorted(self._parts.values(), key=lambda each: -each.columns.held_bytes):
            if held <= _HELD_BYTES:
                break
            held -= part.columns.held_bytes
            while (rows := part.columns.take(last=True)) is not None:
                yield rows
