"""The metrics of topics (BrokerTopicMetrics), and of operations that wait for topics (DelayedOperationPurgatory)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kafkacore.observability.catalogue import sample
from kafkacore.observability.metrics import Sample

if TYPE_CHECKING:
    from kafkacore._fast.log.traffic_counts import TrafficCounts
    from kafkacore.replication.traffic import TopicTraffic

_TYPE: Final = "BrokerTopicMetrics"
# Maps each metric to a field of TrafficCounts. Like Apache Kafka, this broker shows these metrics for a topic only
# while it leads one of the topic's partitions (KAFKA-8392).
_OF_LEADERS: Final = {
    "MessagesInPerSec": "messages_in",
    "BytesInPerSec": "bytes_in",
    "BytesRejectedPerSec": "bytes_rejected",
    "FailedProduceRequestsPerSec": "failed_produces",
    "TotalProduceRequestsPerSec": "produces",
    "ProduceMessageConversionsPerSec": "conversions",
}
_OF_REPLICAS: Final = {
    "BytesOutPerSec": "bytes_out",
    "FailedFetchRequestsPerSec": "failed_fetches",
    "TotalFetchRequestsPerSec": "fetches",
}
_OF_ALL_TOPICS: Final = {
    "ReplicationBytesInPerSec": "replication_in",
    "ReplicationBytesOutPerSec": "replication_out",
    "ReassignmentBytesInPerSec": "reassignment_in",
    "ReassignmentBytesOutPerSec": "reassignment_out",
    "NoKeyCompactedTopicRecordsPerSec": "no_key",
    "InvalidMagicNumberRecordsPerSec": "bad_magic",
    "InvalidMessageCrcRecordsPerSec": "bad_checksum",
    "InvalidOffsetOrSequenceRecordsPerSec": "bad_offsets",
}
_OPERATIONS: Final = ("Produce", "Fetch", "DeleteRecords")


def topic_metrics(total: TrafficCounts, topics: Iterable[TopicTraffic]) -> Iterator[Sample]:
    """Yields the metrics of all topics together, without a tag, and of each topic. As in Apache Kafka, a topic has a
    metric only after the counted event has occurred once."""
    for name, field in (_OF_LEADERS | _OF_REPLICAS | _OF_ALL_TOPICS).items():
        yield sample(_TYPE, name, getattr(total, field))
    for each in topics:
        tags = (("topic", each.topic),)
        for name, field in (_OF_LEADERS | _OF_REPLICAS if each.leads else _OF_REPLICAS).items():
            if counted := getattr(each.counts, field):
                yield sample(_TYPE, name, counted, tags)


def purgatory_metrics(*sources: Mapping[str, tuple[int, int]]) -> Iterator[Sample]:
    """Yields the metrics of waiting operations. Each of `sources` maps the name of an operation to two numbers: the
    waiting operations, and the partitions that they watch. The sources are the processors and the handler loop."""
    operations: Counter[str] = Counter()
    watched: Counter[str] = Counter()
    for source in sources:
        for name, (count, partitions) in source.items():
            operations[name] += count
            watched[name] += partitions
    for name in _OPERATIONS:
        tags = (("delayedOperation", name),)
        yield sample("DelayedOperationPurgatory", "NumDelayedOperations", operations[name], tags)
        yield sample("DelayedOperationPurgatory", "PurgatorySize", watched[name], tags)
