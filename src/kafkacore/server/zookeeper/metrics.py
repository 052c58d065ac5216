"""The metrics of the controller on a node in ZooKeeper mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kafkacore.controller.zookeeper.measures import Measures
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.partitions import NO_LEADER, rows_led_by, rows_not_led_by_the_first
from kafkacore.observability.catalogue import sample
from kafkacore.observability.metrics import Buckets, Sample
from kafkacore.runtime.sampling import Distribution

_TYPE: Final = "KafkaController"


def controller_metrics(read_view: Callable[[], MetadataImage], is_active: Callable[[], bool]) -> Iterator[Sample]:
    """Yields the controller's metrics. They are all 0 on a node that is not the active controller, as in Apache Kafka.
    Any thread can call this, because the image that clients see is immutable."""
    active, image = is_active(), read_view()
    chunks = image.partition_chunks if active else ()
    offline = sum(1 for _ in rows_led_by(chunks, NO_LEADER))
    yield sample(_TYPE, "ActiveControllerCount", int(active))
    yield sample(_TYPE, "ActiveBrokerCount", len(image.brokers) if active else 0)
    yield sample(_TYPE, "GlobalTopicCount", len(image.topics_by_name) if active else 0)
    yield sample(_TYPE, "GlobalPartitionCount", image.partition_count if active else 0)
    yield sample(_TYPE, "OfflinePartitionsCount", offline)
    imbalanced = sum(1 for _ in rows_not_led_by_the_first(chunks)) if active else 0
    yield sample(_TYPE, "PreferredReplicaImbalanceCount", imbalanced)


def event_metrics(waiting: int, measures: Measures) -> Iterator[Sample]:
    """Yields the length of the controller's event queue, and how long its events took. A node that is not the active
    controller has events too. Any thread can call this."""
    yield sample("ControllerEventManager", "EventQueueSize", waiting)
    yield sample("ControllerEventManager", "EventQueueTimeMs", _buckets(measures.queue_ms))
    for name, running_ms in measures.running_ms.items():
        yield sample("ControllerStats", name, _buckets(running_ms))


def _buckets(found: Distribution) -> Buckets:
    return Buckets(found.bounds, tuple(found.counts), found.total)
