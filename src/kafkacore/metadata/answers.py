"""The partitions in Metadata responses, encoded from the columns of the metadata image. The encoded bytes are cached as
long as the columns do not change.

The columns are stored in chunks of rows, which never change once they are in an image. A cached answer references the
chunks from which it was made, and is valid while the image still has these chunks. The references are weak, because
most answers outlive their chunks: one changed row replaces a chunk of some thousand rows. If all brokers of a topic are
alive and reachable through the listener, one native call encodes the topic's partitions. Otherwise the caller encodes
them one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from operator import is_
from typing import Final, NamedTuple
from weakref import ref

from kafkacore._fast.schema.columns import RowCodec
from kafkacore._fast.schema.object_sink import Encoded
from kafkacore.metadata.image import MetadataImage, Topic
from kafkacore.metadata.partitions import CHUNK_ROWS, PartitionChunk
from kafkacore.metadata.registrations import BrokerRegistration

MAX_TOPICS: Final = 100_000  # when the cache has this many topics, it is emptied
MAX_WHOLE_BYTES: Final = 64 << 20  # maximum total size in bytes of the cached responses that list all topics
# A response in this version omits offline replicas. No column says which replicas are offline, so this module cannot
# encode this version.
VERSION_WITHOUT_OFFLINE_BROKERS: Final = 0

Brokers = object  # a mapping in an image, compared by identity


class _Kept(NamedTuple):
    topic: Topic
    chunks: Sequence[tuple[int, ref[PartitionChunk]]]
    brokers: Brokers
    rows: Encoded


class _Health(NamedTuple):
    chunk: ref[PartitionChunk]
    brokers: Brokers
    healthy: bool


class _Run(NamedTuple):
    """Consecutive rows of one topic in one chunk."""

    number: int
    start: int
    end: int


class PartitionAnswers:
    """The encoded partitions for the Metadata responses of one listener, in one version. Must be used on one event loop
    only."""

    def __init__(self, listener: str, version: int) -> None:
        self._listener = listener
        self._usable = version > VERSION_WITHOUT_OFFLINE_BROKERS
        self._codec = RowCodec("MetadataResponse", version, "MetadataResponsePartition")
        self._kept: dict[int, _Kept] = {}
        self._health: dict[int, _Health] = {}

    def partitions(self, image: MetadataImage, topic: Topic) -> Encoded | None:
        """Returns the encoded partitions of one topic. Returns None if a replica cannot be reached or its disk has
        failed. The caller then encodes the partitions one by one.
        """
        rows = topic.partition_rows
        if not self._usable or not rows or rows[0] < 0:
            return None
        kept = self._kept.get(rows[0])
        if kept is not None and kept.topic is topic and kept.brokers is image.brokers:
            chunks = image.partition_chunks
            if all(chunks[number] is chunk() for number, chunk in kept.chunks):
                return kept.rows
        return self._make(image, topic)

    def _make(self, image: MetadataImage, topic: Topic) -> Encoded | None:
        if min(topic.partition_rows) < 0:
            return None
        runs = list(_runs(topic.partition_rows))
        used = [(number, image.partition_chunks[number]) for number in dict.fromkeys(run.number for run in runs)]
        if not all(self._is_healthy(image, number, chunk) for number, chunk in used):
            return None
        width = used[0][1].width
        if any(chunk.width != width for _, chunk in used):
            return None
        made = self._codec.encode_array(_columns(image, runs, width))
        if len(self._kept) >= MAX_TOPICS:
            self._kept.clear()
        chunks = [(number, ref(chunk)) for number, chunk in used]
        self._kept[topic.partition_rows[0]] = _Kept(topic, chunks, image.brokers, made)
        return made

    def _is_healthy(self, image: MetadataImage, number: int, chunk: PartitionChunk) -> bool:
        known = self._health.get(number)
        if known is None or known.chunk() is not chunk or known.brokers is not image.brokers:
            healthy = _all_reached(chunk, self._reached(image))
            known = self._health[number] = _Health(ref(chunk), image.brokers, healthy)
        return known.healthy

    def _reached(self, image: MetadataImage) -> dict[int, BrokerRegistration]:
        return {
            broker_id: broker
            for broker_id, broker in image.brokers.items()
            if not broker.fenced and broker.endpoint(self._listener) is not None
        }


def _runs(rows: Sequence[int]) -> Iterator[_Run]:
    start = previous = rows[0]
    for row in rows[1:]:
        if row != previous + 1 or row % CHUNK_ROWS == 0:
            yield _Run(start // CHUNK_ROWS, start % CHUNK_ROWS, previous % CHUNK_ROWS + 1)
            start = row
        previous = row
    yield _Run(start // CHUNK_ROWS, start % CHUNK_ROWS, previous % CHUNK_ROWS + 1)


def _columns(image: MetadataImage, runs: Sequence[_Run], width: int) -> dict[str, object]:
    """Returns the columns of a topic's rows, in the order of its partitions."""
    index, leader, epoch, replicas, isr = array("i"), array("i"), array("i"), array("i"), array("i")
    for number, start, end in runs:
        chunk = image.partition_chunks[number]
        index += chunk.partition[start:end]
        leader += chunk.leader[start:end]
        epoch += chunk.leader_epoch[start:end]
        replicas += chunk.replicas[start * width : end * width]
        isr += chunk.isr[start * width : end * width]
    shape = (len(index), width)
    return {
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": epoch,
        "replica_nodes": memoryview(replicas).cast("B").cast("i", shape),
        "isr_nodes": memoryview(isr).cast("B").cast("i", shape),
    }


def _all_reached(chunk: PartitionChunk, reached: dict[int, BrokerRegistration]) -> bool:
    """Returns whether all leaders and replicas in a chunk are alive and all their directories work. Unused rows have no
    replicas, so they do not affect the result.
    """
    leaders = {leader for leader, topic in zip(chunk.leader, chunk.topic, strict=True) if topic >= 0}
    if not leaders <= reached.keys():
        return False
    directories = bytes(chunk.directories)
    replicas = {
        (replica, directories[16 * index : 16 * index + 16])
        for index, replica in enumerate(chunk.replicas)
        if replica >= 0
    }
    for replica, directory in replicas:
        broker = reached.get(replica)
        if broker is None or not broker.has_online_directory(directory):  # type: ignore[arg-type]
            return False
    return True


class _Whole(NamedTuple):
    topic_chunks: Sequence[object]
    partition_chunks: Sequence[object]
    brokers: Brokers
    body: bytes

    def is_about(self, image: MetadataImage) -> bool:
        return (
            self.brokers is image.brokers
            and _same(self.topic_chunks, image.topic_chunks)
            and _same(self.partition_chunks, image.partition_chunks)
        )


class WholeAnswers:
    """Caches responses that list all topics. A key contains all inputs of a response besides the image, such as
    listener and version.
    """

    def __init__(self) -> None:
        self._kept: dict[object, _Whole] = {}

    def get(self, key: object, image: MetadataImage) -> bytes | None:
        """Returns the cached response, or None if anything that it contains has changed."""
        kept = self._kept.get(key)
        return kept.body if kept is not None and kept.is_about(image) else None

    def put(self, key: object, image: MetadataImage, body: bytes) -> None:
        # Drop outdated responses, because they keep the chunks of their images in memory.
        self._kept = {other: kept for other, kept in self._kept.items() if other != key and kept.is_about(image)}
        if sum(len(each.body) for each in self._kept.values()) + len(body) > MAX_WHOLE_BYTES:
            self._kept.clear()
        if len(body) <= MAX_WHOLE_BYTES:
            self._kept[key] = _Whole(image.topic_chunks, image.partition_chunks, image.brokers, body)


def _same(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))
