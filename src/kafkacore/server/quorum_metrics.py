"""The metrics of a node's part in the quorum: its replica, its controller and its metadata (KIP-595, KIP-631)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.partitions import NO_LEADER, rows_led_by, rows_not_led_by_the_first
from kafkacore.metadata.records import MetadataError
from kafkacore.metadata.registrations import BrokerRegistration
from kafkacore.network.metrics import PlaneMetrics
from kafkacore.observability.catalogue import sample
from kafkacore.observability.metrics import Buckets, Sample
from kafkacore.protocol.features import KRAFT_VERSION, METADATA_VERSION
from kafkacore.protocol.uuid import ZERO
from kafkacore.raft.roles import NOBODY, Candidate, Follower, Leader, Prospective, Role
from kafkacore.runtime.sampling import Share
from kafkacore.server.features import supported_features

if TYPE_CHECKING:
    from kafkacore.config import BrokerConfig
    from kafkacore.raft.core import Raft
    from kafkacore.runtime.loops import LoopThread
    from kafkacore.server.controller import ControllerServer
    from kafkacore.server.metadata_replica import MetadataReplica

_CONTROLLER: Final = "KafkaController"
_EVENTS: Final = "ControllerEventManager"
_RAFT: Final = "raft-metrics"
_LOADER: Final = "MetadataLoader"
_EMITTER: Final = "SnapshotEmitter"
_BROKER: Final = "broker-metadata-metrics"
_FENCED, _LEAVING, _ACTIVE = 10, 20, 30


class ControllerMetrics:
    """Is a source for a MetricRegistry. It runs on the thread that collects the metrics, so the values may belong to
    slightly different moments."""

    def __init__(self, controller: ControllerServer, fault: Callable[[], BaseException | None]) -> None:
        """Creates a source for this controller. `fault` returns the fatal error of the node, or None."""
        self._controller, self._fault = controller, fault
        self._plane = PlaneMetrics(controller.plane)
        self._idle = Share(controller.plane.loop.idle_ns(), time.monotonic_ns())
        self._counted: tuple[MetadataImage, int, int] | None = None  # image, offline and imbalanced partitions

    def __call__(self) -> Iterator[Sample]:
        controller = self._controller
        quorum, counts = controller.quorum, controller.quorum.counts
        image, replica = quorum.image, controller.replica
        yield sample(_CONTROLLER, "ActiveControllerCount", quorum.active)
        yield sample(_CONTROLLER, "LastAppliedRecordOffset", quorum.head_offset)
        yield sample(_CONTROLLER, "LastCommittedRecordOffset", image.offset)
        yield sample(_CONTROLLER, "LastAppliedRecordTimestamp", image.timestamp_ms)
        yield sample(_CONTROLLER, "LastAppliedRecordLagMs", _age_ms(image, replica))
        yield sample(_CONTROLLER, "NewActiveControllersCount", replica.raft.measures.new_leaders)
        yield sample(_CONTROLLER, "TimedOutBrokerHeartbeatCount", counts.late_heartbeats)
        yield sample(_CONTROLLER, "EventQueueOperationsStartedCount", counts.started)
        yield sample(_CONTROLLER, "EventQueueOperationsTimedOutCount", counts.timed_out)
        yield sample(_CONTROLLER, "MetadataErrorCount", int(isinstance(self._fault(), MetadataError)))
        yield sample(_CONTROLLER, "IgnoredStaticVoters", ignores_static_voters(controller.config, replica))
        for broker_id, since_ms in quorum.silences().items():
            yield sample(_CONTROLLER, "TimeSinceLastHeartbeatReceivedMs", since_ms, (("broker", str(broker_id)),))
        yield sample(_EVENTS, "EventQueueTimeMs", Buckets(*self._plane.queue_times()))
        computing = counts.computing_ms
        buckets = Buckets(computing.bounds, tuple(computing.counts), computing.total)
        yield sample(_EVENTS, "EventQueueProcessingTimeMs", buckets)
        idle = self._idle.read(controller.plane.loop.idle_ns(), time.monotonic_ns())
        yield sample(_EVENTS, "AvgIdleRatio", idle)
        yield sample("ControllerStats", "UncleanLeaderElectionsPerSec", counts.unclean_elections)
        yield sample("ControllerStats", "ElectionFromEligibleLeaderReplicasPerSec", counts.elections_from_elr)
        yield from self._of_the_cluster(image)

    def _of_the_cluster(self, image: MetadataImage) -> Iterator[Sample]:
        states = {broker_id: _state(broker) for broker_id, broker in image.brokers.items()}
        counted = list(states.values())
        yield sample(_CONTROLLER, "ActiveBrokerCount", counted.count(_ACTIVE) + counted.count(_LEAVING))
        yield sample(_CONTROLLER, "FencedBrokerCount", counted.count(_FENCED))
        yield sample(_CONTROLLER, "ControlledShutdownBrokerCount", counted.count(_LEAVING))
        for broker_id, state in states.items():
            yield sample(_CONTROLLER, "BrokerRegistrationState", state, (("broker", str(broker_id)),))
        yield sample(_CONTROLLER, "GlobalTopicCount", len(image.topics_by_name))
        yield sample(_CONTROLLER, "GlobalPartitionCount", image.partition_count)
        if self._counted is None or self._counted[0] is not image:
            chunks = image.partition_chunks
            offline = sum(1 for _ in rows_led_by(chunks, NO_LEADER))
            self._counted = image, offline, sum(1 for _ in rows_not_led_by_the_first(chunks))
        yield sample(_CONTROLLER, "OfflinePartitionsCount", self._counted[1])
        yield sample(_CONTROLLER, "PreferredReplicaImbalanceCount", self._counted[2])


def _state(broker: BrokerRegistration) -> int:
    if broker.fenced:
        return _FENCED
    return _LEAVING if broker.in_controlled_shutdown else _ACTIVE


class ReplicaMetrics:
    """Is a source for a MetricRegistry, for the raft-metrics group and the metrics of a replica's snapshots."""

    def __init__(self, replica: MetadataReplica, loop: LoopThread) -> None:
        """Creates a source for this replica. `loop` is the replica's loop."""
        self._replica, self._loop = replica, loop
        self._idle = Share(loop.idle_ns(), time.monotonic_ns())

    def __call__(self) -> Iterator[Sample]:
        if self._replica.raft.started:
            yield from _raft_metrics(self._replica)
            idle = self._idle.read(self._loop.idle_ns(), time.monotonic_ns())
            yield sample(_RAFT, "poll-idle-ratio-avg", idle)


def _raft_metrics(replica: MetadataReplica) -> Iterator[Sample]:
    driver = replica.raft
    raft, measures, now = driver.raft, driver.measures, replica.now_ms()
    role, vote = raft.role, raft.replica.term.voted
    voters = raft.voters.latest
    state = (("current-state", _role_name(raft, role)),)
    directory = (("current-vote-directory-id", str(ZERO if vote is None else vote.directory_id)),)
    yield sample(_RAFT, "current-state", 1, state)
    yield sample(_RAFT, "current-leader", raft.leader_id)
    yield sample(_RAFT, "current-vote", NOBODY if vote is None else vote.replica_id)
    yield sample(_RAFT, "current-vote-directory-id", 1, directory)
    yield sample(_RAFT, "current-epoch", raft.epoch)
    yield sample(_RAFT, "high-watermark", raft.high_watermark if raft.leader_id != NOBODY else -1)
    yield sample(_RAFT, "log-end-offset", driver.end_offset)
    yield sample(_RAFT, "log-end-epoch", raft.log.last_epoch)
    unknown = sum(not voter.endpoints for voter in voters.voters())
    yield sample(_RAFT, "number-unknown-voter-connections", unknown)
    yield sample(_RAFT, "number-of-voters", len(voters))
    if isinstance(role, Leader):
        yield sample(_RAFT, "number-of-observers", len(role.observers))
        yield sample(_RAFT, "uncommitted-voter-change", role.change is not None)
    yield sample(_RAFT, "commit-latency-avg", measures.commit_ms.average(now))
    yield sample(_RAFT, "commit-latency-max", measures.commit_ms.maximum(now))
    yield sample(_RAFT, "election-latency-avg", measures.election_ms.average(now))
    yield sample(_RAFT, "election-latency-max", measures.election_ms.maximum(now))
    yield sample(_RAFT, "fetch-records-rate", measures.fetched_records.rate(now))
    yield sample(_RAFT, "append-records-rate", measures.appended_records.rate(now))
    yield sample(_EMITTER, "LatestSnapshotGeneratedBytes", measures.snapshot_bytes)
    yield sample(_EMITTER, "LatestSnapshotGeneratedAgeMs", now - measures.snapshot_ms)
    yield sample(_LOADER, "HandleLoadSnapshotCount", measures.loaded_snapshots)
    yield sample(_LOADER, "CurrentControllerId", raft.leader_id)


def _role_name(raft: Raft, role: Role) -> str:
    if isinstance(role, Follower):
        return "follower" if raft.is_voter else "observer"
    if isinstance(role, Leader):
        return "leader"
    if isinstance(role, Candidate):
        return "candidate"
    voted = "-voted" if raft.replica.term.voted is not None else ""
    return ("prospective" if isinstance(role, Prospective) else "unattached") + voted


def metadata_metrics(
    replica: MetadataReplica, controller: ControllerServer | None, of_broker: MetadataImage | None
) -> Iterator[Sample]:
    """Yields the metrics of feature levels: the levels in the node's image, and the levels that this release
    supports."""
    image = of_broker if controller is None else controller.quorum.image
    if image is None:
        return
    kraft_version = replica.raft.kraft_version if replica.raft.started else 0
    yield sample(_LOADER, "CurrentMetadataVersion", image.features.get(METADATA_VERSION, 0))
    for name, level in {**image.features, KRAFT_VERSION: kraft_version}.items():
        yield sample(_LOADER, "FinalizedLevel", level, (("featureName", _camel(name)),))
    for name, (least, most) in supported_features().items():
        tags = (("feature-name", name.replace(".", "-")),)
        yield sample("node-metrics", "minimum-supported-level", least, tags)
        yield sample("node-metrics", "maximum-supported-level", most, tags)


def broker_metadata_metrics(
    image: MetadataImage, replica: MetadataReplica, config: BrokerConfig, fault: BaseException | None
) -> Iterator[Sample]:
    """Yields the broker-metadata-metrics group of a broker that has applied `image`."""
    yield sample(_BROKER, "last-applied-record-offset", image.offset)
    yield sample(_BROKER, "last-applied-record-timestamp", image.timestamp_ms)
    yield sample(_BROKER, "last-applied-record-lag-ms", _age_ms(image, replica))
    yield sample(_BROKER, "metadata-load-error-count", int(isinstance(fault, MetadataError)))
    yield sample(_BROKER, "metadata-apply-error-count", 0 if fault is None or isinstance(fault, MetadataError) else 1)
    yield sample(_BROKER, "ignored-static-voters", ignores_static_voters(config, replica))


def ignores_static_voters(config: BrokerConfig, replica: MetadataReplica) -> bool:
    return bool(config.controller_quorum_voters) and replica.raft.started and replica.raft.kraft_version > 0


def _age_ms(image: MetadataImage, replica: MetadataReplica) -> int:
    return max(replica.wall_ms() - image.timestamp_ms, 0)


def _camel(name: str) -> str:
    first, *rest = name.split(".")
    return first + "".join(word.capitalize() for word in rest)
