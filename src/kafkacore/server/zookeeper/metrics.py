"""The metrics that only a node in ZooKeeper mode has: its controller, and its session with ZooKeeper. Any thread can
call these functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafkacore.controller.zookeeper.counts import Counts
from kafkacore.controller.zookeeper.measures import STATES, Measures
from kafkacore.controller.zookeeper.senders import Senders
from kafkacore.observability.catalogue import sample
from kafkacore.observability.metrics import Buckets, Sample
from kafkacore.runtime.sampling import Distribution
from kafkacore.zookeeper.client import ZooKeeperClient

_TYPE: Final = "KafkaController"
_CHANNELS: Final = "ControllerChannelManager"
_SESSION: Final = "SessionExpireListener"


def controller_metrics(gauges: Counts, state: str, *, is_active: bool) -> Iterator[Sample]:
    """Yields the controller's gauges. On a node that is not the active controller, all gauges except the controller's
    state are 0, as in Apache Kafka."""
    yield sample(_TYPE, "ActiveControllerCount", int(is_active))
    yield sample(_TYPE, "ControllerState", STATES.index(state))
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
    """Yields the length of the controller's event queue, and the durations and counts of its events. A node that is not
    the active controller has events too."""
    yield sample("ControllerEventManager", "EventQueueSize", waiting)
    yield sample("ControllerEventManager", "EventQueueTimeMs", _buckets(measures.queue_ms))
    for name, running_ms in measures.running_ms.items():
        yield sample("ControllerStats", name, _buckets(running_ms))
    yield sample("ControllerStats", "UncleanLeaderElectionsPerSec", measures.unclean_elections)


def channel_metrics(senders: Senders, measures: Measures) -> Iterator[Sample]:
    """Yields the number of requests that wait for brokers, and the durations of requests. Only the active controller
    has a queue for each broker."""
    every = senders.all()
    yield sample(_CHANNELS, "TotalQueueSize", sum(each.queued for each in every))
    for each in every:
        tags = (("broker-id", str(each.broker.broker_id)),)
        yield sample(_CHANNELS, "QueueSize", each.queued, tags)
        yield sample(_CHANNELS, "RequestRateAndQueueTimeMs", _buckets(each.queue_ms), tags)
    yield sample(_CHANNELS, "ChangeToAnswerTimeMs", _buckets(measures.answered_ms))


def session_metrics(client: ZooKeeperClient) -> Iterator[Sample]:
    """Yields the state of the node's session with ZooKeeper, and what the node has seen in all its sessions."""
    measures = client.measures
    yield sample(_SESSION, "SessionState", 1, (("state", client.state.name),))
    yield sample(_SESSION, "ZooKeeperSyncConnectsPerSec", measures.connects)
    yield sample(_SESSION, "ZooKeeperDisconnectsPerSec", measures.disconnects)
    yield sample(_SESSION, "ZooKeeperExpiresPerSec", measures.expired)
    yield sample(_SESSION, "ZooKeeperAuthFailuresPerSec", measures.refused)
    yield sample("ZooKeeperClientMetrics", "ZooKeeperRequestLatencyMs", _buckets(measures.latency_ms))


def _buckets(found: Distribution) -> Buckets:
    return Buckets(found.bounds, tuple(found.counts), found.total)
