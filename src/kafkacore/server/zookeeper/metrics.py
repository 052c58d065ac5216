"""The metrics of the controller on a node in ZooKeeper mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafkacore.controller.zookeeper.counts import Counts
from kafkacore.controller.zookeeper.measures import Measures
from kafkacore.observability.catalogue import sample
from kafkacore.observability.metrics import Buckets, Sample
from kafkacore.runtime.sampling import Distribution

_TYPE: Final = "KafkaController"


def controller_metrics(gauges: Counts, *, is_active: bool) -> Iterator[Sample]:
    """Yields the controller's gauges. They are all 0 on a node that is not the active controller, as in Apache
    Kafka."""
    yield sample(_TYPE, "ActiveControllerCount", int(is_active))
    yield sample(_TYPE, "ActiveBrokerCount", gauges.active_broker)
    yield sample(_TYPE, "GlobalTopicCount", gauges.global_topic)
    yield sample(_TYPE, "GlobalPartitionCount", gauges.global_partition)
    yield sample(_TYPE, "OfflinePartitionsCount", gauges.offline_partitions)
    yield sample(_TYPE, "PreferredReplicaImbalanceCount", gauges.preferred_replica_imbalance)
    yield sample(_TYPE, "TopicsToDeleteCount", gauges.topics_to_delete)
    yield sample(_TYPE, "ReplicasToDeleteCount", gauges.replicas_to_delete)
    yield sample(_TYPE, "TopicsIneligibleToDeleteCount", gauges.topics_ineligible_to_delete)
    yield sample(_TYPE, "ReplicasIneligibleToDeleteCount", gauges.replicas_ineligible_to_delete)


def event_metrics(waiting: int, measures: Measures) -> Iterator[Sample]:
    """Yields the length of the controller's event queue, how long its events took, and what they counted. A node that
    is not the active controller has events too. Any thread can call this."""
    yield sample("ControllerEventManager", "EventQueueSize", waiting)
    yield sample("ControllerEventManager", "EventQueueTimeMs", _buckets(measures.queue_ms))
    for name, running_ms in measures.running_ms.items():
        yield sample("ControllerStats", name, _buckets(running_ms))
    yield sample("ControllerStats", "UncleanLeaderElectionsPerSec", measures.unclean_elections)


def _buckets(found: Distribution) -> Buckets:
    return Buckets(found.bounds, tuple(found.counts), found.total)
