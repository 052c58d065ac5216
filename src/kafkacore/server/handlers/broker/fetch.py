"""Fetch on the handler loop, for requests that the processors do not serve. This handler uses the same native reads and
waits as the processors, but copies the records.

This handler serves a Fetch if the request log is on, if a test injects faults or records requests, and in a simulated
node. The handler creates no fetch sessions, and closes the session that a request names. A client with a session gets
one response which says that the session is unknown, as if the session had been evicted. From then on, the client lists
all its partitions in each request, until a processor serves a request of this client again (KIP-227).

A follower can read up to the log end. The first read for a follower's request records the follower's position. If the
request waits and the handler reads again, the further reads do not record the position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from kafkacore._fast.log import partition_watch as watch
from kafkacore._fast.log.partition_handle import PartitionHandle, ReadBytes
from kafkacore._fast.log.traffic_counts import count_failed, count_sent
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FetchRequest, FetchResponse
from kafkacore.runtime.slices import Work, finish
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.broker import leaders
from kafkacore.server.replica_selector import selects_by_rack

STORAGE_ERROR_SINCE: Final = 6  # since this version, clients know KAFKA_STORAGE_ERROR (KIP-112)
TOPIC_IDS_SINCE: Final = 13
ANY_REPLICA_SINCE: Final = 11  # since this version, a follower may answer a client (KIP-392)
LEADERS_SINCE: Final = 16
MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
READ_LOG_END: Final = 2
NO_SESSION: Final = 0
NO_REPLICA: Final = -1
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

AskedTopic = FetchRequest.FetchTopic
Asked = FetchRequest.FetchPartition
Topic = FetchResponse.FetchableTopicResponse
Partition = FetchResponse.PartitionData
Aborted = FetchResponse.AbortedTransaction


class Part:
    """One partition of the request, and the result of its read. `exists` says whether the partition is in the committed
    metadata."""

    __slots__ = ("asked", "end_offset", "error", "exists", "partition", "preferred", "read", "topic")

    def __init__(
        self, topic: AskedTopic, asked: Asked, partition: PartitionHandle | None, error: ErrorCode, *, exists: bool
    ) -> None:
        self.topic, self.asked = topic, asked
        self.partition, self.error = partition, error
        self.exists = exists
        self.read: ReadBytes | None = None
        self.end_offset = 0  # the log's end, just before the read
        self.preferred = NO_REPLICA  # the replica from which the client should read instead

    @property
    def fails(self) -> bool:
        """Whether the client must handle the partition's error before it continues to read."""
        return self.error != ErrorCode.NONE or (self.read is not None and self.read.diverging_end_offset >= 0)

    @property
    def answers_at_once(self) -> bool:
        """Whether the partition makes the response due immediately. A partition that does not exist must not make the
        response due. Otherwise a consumer of several topics, one of them deleted, would fetch without a pause. A read
        of an older segment makes the response due: it never includes bytes of the next segment, so waiting is useless
        (DelayedFetch, case F)."""
        moved_on = self.preferred != NO_REPLICA or (self.read is not None and self.read.in_older_segment)
        return self.exists and (self.fails or moved_on)


class Asker:
    """The sender of a Fetch: a client, or a follower with its broker id."""

    __slots__ = ("any_replica", "broker_epoch", "broker_id", "has_read", "isolation")

    def __init__(self, call: RequestContext, request: FetchRequest) -> None:
        self.broker_id = max(request.replica_id, request.replica_state.replica_id)
        self.broker_epoch = request.replica_state.replica_epoch
        self.any_replica = not self.is_follower and call.api_version >= ANY_REPLICA_SINCE
        # Native reads have further isolations, but a client must not choose one of them.
        level = READ_COMMITTED if request.isolation_level == READ_COMMITTED else READ_UNCOMMITTED
        self.isolation = READ_LOG_END if self.is_follower else level
        self.has_read = False

    @property
    def is_follower(self) -> bool:
        return self.broker_id >= 0

    @property
    def committed(self) -> bool:
        return self.isolation == READ_COMMITTED

    def read(self, partition: PartitionHandle, asked: Asked, max_bytes: int, *, min_one: bool) -> ReadBytes:
        follower = (self.broker_id, self.broker_epoch, asked.log_start_offset) if self.is_follower else None
        return partition.read(
            asked.fetch_offset, max_bytes, self.isolation, min_one, asked.current_leader_epoch,
            asked.last_fetched_epoch, self.any_replica, follower, not self.has_read,
        )  # fmt: skip


async def handle(broker: BrokerContext, call: RequestContext, request: FetchRequest) -> FetchResponse:
    if request.session_id != NO_SESSION:
        broker.fetch_sessions.remove(request.session_id)
    if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    parts = await finish(_parts(broker, call, request))
    asker = Asker(call, request)
    if request.rack_id and asker.any_replica and selects_by_rack(broker.config):
        await finish(_select_replicas(broker, request.rack_id, parts))
    least_bytes = min(request.min_bytes, _most_bytes(broker, request))
    some_exist = any(each.exists for each in parts)
    loop = asyncio.get_running_loop()
    deadline_ms = broker.waits.now_ms() + max(request.max_wait_ms, 0)
    while True:
        size_bytes, at_once = await loop.run_in_executor(broker.blocking, _read, broker, request, asker, parts)
        left_ms = deadline_ms - broker.waits.now_ms()
        if left_ms <= 0 or not some_exist or at_once or size_bytes >= least_bytes:
            break
        if not await broker.waits.any(list(_waits(asker, parts)), left_ms, "Fetch"):
            deadline_ms = broker.waits.now_ms()  # the time is over, so the next read is the last
    await finish(_count(broker, asker, parts))
    return await finish(_answer(broker, call, parts, asker.committed))


def _most_bytes(broker: BrokerContext, request: FetchRequest) -> int:
    """Returns the limit of the response in bytes. The first batch may be larger than the limit."""
    return min(request.max_bytes, broker.config.fetch_max_bytes)


def _parts(broker: BrokerContext, call: RequestContext, request: FetchRequest) -> Work[list[Part]]:
    by_id = call.api_version >= TOPIC_IDS_SINCE
    image, parts = broker.image, []
    named: dict[PartitionHandle, Part] = {}
    for topic in request.topics:
        known = image.topic_by_id(topic.topic_id) if by_id else image.topic(topic.topic)
        for asked in topic.partitions:
            yield
            exists = known is not None and image.partition(known, asked.partition) is not None
            partition, error = None, ErrorCode.NONE
            if by_id:
                partition = broker.replicas.by_id(topic.topic_id, asked.partition)
            else:
                partition = broker.replicas.by_name(topic.topic, asked.partition)
            if partition is None and exists:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif partition is None:
                unknown_id = by_id and known is None
                error = ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            # If the request contains a partition twice, the partition keeps its first position in the response and is
            # read with the last values, as with Apache Kafka's linked map.
            if partition is not None and partition in named:
                named[partition].asked = asked
                continue
            # While the log of a deleted topic's partition still exists on this broker, clients can read it to its end.
            parts.append(Part(topic, asked, partition, error, exists=exists or partition is not None))
            if partition is not None:
                named[partition] = parts[-1]
    return parts


def _select_replicas(broker: BrokerContext, rack: str, parts: list[Part]) -> Work[None]:
    """Redirects a client to a follower in the client's rack, unless this broker is in that rack
    (RackAwareReplicaSelector)."""
    brokers = broker.image.brokers
    near = {broker_id for broker_id, each in brokers.items() if each.rack == rack and not each.fenced}
    if broker.node_id in near:
        return
    for part in parts:
        yield
        if part.partition is not None:
            readable = part.partition.readable_replicas(part.asked.fetch_offset)
            part.preferred = next((each for each in readable if each in near), NO_REPLICA)


def _read(broker: BrokerContext, request: FetchRequest, asker: Asker, parts: list[Part]) -> tuple[int, bool]:
    """Reads at least one batch, and more batches while they fit. Returns the number of bytes, and whether a partition
    makes the response due immediately. Blocks on the disk."""
    room, total = _most_bytes(broker, request), 0
    for part in parts:
        if part.partition is None or (part.error != ErrorCode.NONE and part.read is None):
            continue
        max_bytes = max(min(part.asked.partition_max_bytes, room), 0)
        try:
            part.end_offset = part.partition.end_offset
            part.read = asker.read(part.partition, part.asked, max_bytes, min_one=total == 0)
            if part.preferred != NO_REPLICA:
                part.read = part.read._replace(records=b"", aborted=[], diverging_end_offset=-1)
            part.error = ErrorCode(part.read.error)
        except OSError:
            part.read, part.error = None, ErrorCode.KAFKA_STORAGE_ERROR
        if part.read is not None and not part.fails:
            room -= len(part.read.records)
            total += len(part.read.records)
    asker.has_read = True
    return total, any(each.answers_at_once for each in parts)


def _waits(asker: Asker, parts: list[Part]) -> Iterator[tuple[PartitionHandle, int, int]]:
    for part in parts:
        if part.partition is None or part.read is None:
            continue
        if asker.is_follower:
            kind, bound = watch.FOLLOWER, part.end_offset
        elif asker.committed:
            kind, bound = watch.COMMITTED, part.read.last_stable_offset
        else:
            kind, bound = watch.FETCH, part.read.high_watermark
        yield part.partition, kind, max(part.asked.fetch_offset, bound)


def _count(broker: BrokerContext, asker: Asker, parts: list[Part]) -> Work[None]:
    """Counts the returned bytes and the errors in the metrics of the topics."""
    for part in parts:
        yield
        partition, read = part.partition, part.read
        if partition is None:
            continue
        if read is None or part.error != ErrorCode.NONE:
            count_failed(partition, part.error)
        elif read.records and read.diverging_end_offset < 0:
            count_sent(partition, len(read.records), asker.is_follower, _is_added(broker, partition, asker.broker_id))


def _is_added(broker: BrokerContext, partition: PartitionHandle, broker_id: int) -> bool:
    if not partition.adds_replicas:
        return False
    topic = broker.image.topic(partition.topic)
    row = None if topic is None else broker.image.partition(topic, partition.index)
    return row is not None and broker_id in row.adding


def _answer(broker: BrokerContext, call: RequestContext, parts: list[Part], committed: bool) -> Work[FetchResponse]:
    response = FetchResponse()
    moved: set[int] = set()
    topic = None
    for part in parts:
        yield
        if topic is not part.topic:
            topic = part.topic
            response.responses.append(Topic(topic=topic.topic, topic_id=topic.topic_id))
        answer = _partition(part, committed)
        if part.error == ErrorCode.KAFKA_STORAGE_ERROR and call.api_version < STORAGE_ERROR_SINCE:
            # An older client would treat KAFKA_STORAGE_ERROR as a final error.
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if part.error in MOVED and part.partition is not None and call.api_version >= LEADERS_SINCE:
            leader = leaders.current_leader(broker, part.partition.topic, part.partition.index)
            answer.current_leader.leader_id, answer.current_leader.leader_epoch = leader
            moved.add(leader[0])
        response.responses[-1].partitions.append(answer)
    if moved:
        response.node_endpoints = leaders.endpoints(broker, call, moved, FetchResponse.NodeEndpoint)
    return response


def _partition(part: Part, committed: bool) -> Partition:
    answer = Partition(
        partition_index=part.asked.partition,
        error_code=part.error,
        high_watermark=-1,
        aborted_transactions=[] if committed else None,
        records=b"",
    )
    read = part.read
    if read is None or part.error != ErrorCode.NONE:
        return answer
    answer.high_watermark = read.high_watermark
    answer.last_stable_offset = read.last_stable_offset
    answer.log_start_offset = read.log_start_offset
    answer.preferred_read_replica = part.preferred
    if read.diverging_end_offset >= 0:
        answer.diverging_epoch.epoch = read.diverging_epoch
        answer.diverging_epoch.end_offset = read.diverging_end_offset
    else:
        answer.records = read.records
        if committed:
            answer.aborted_transactions = [Aborted(producer_id=by, first_offset=since) for by, since in read.aborted]
    return answer
