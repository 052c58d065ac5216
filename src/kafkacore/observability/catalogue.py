"""One table of all metrics: the name of the MBean, its kind, its unit and its meaning.

Names are those that Apache Kafka 3.9 or 4.3 ships; names in the groups `kafkacore.*` are ours. The exposition's names
follow the JMX exporter's published examples for Kafka (`prometheus_name`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkacore.observability.metrics import Buckets, Kind, Sample


class Metric(NamedTuple):
    """`unit` is "-" for a number without a unit and for a state."""

    group: str
    type: str
    name: str
    kind: Kind
    unit: str
    help: str

    @property
    def mbean(self) -> str:
        return f"{self.group}:type={self.type},name={self.name}"


class UnknownMetricError(LookupError):
    """A source has reported a metric that the table does not have."""


def metric(type_: str, name: str) -> Metric:
    """Raises UnknownMetricError."""
    try:
        return metrics()[type_, name]
    except KeyError:
        raise UnknownMetricError(f"no metric has the type {type_} and the name {name}: add it to the table") from None


def sample(type_: str, name: str, value: float | Buckets, tags: tuple[tuple[str, str], ...] = ()) -> Sample:
    """A value of a metric of the table. Raises UnknownMetricError."""
    known = metric(type_, name)
    return Sample(known.group, type_, name, known.kind, value, tags)


def prometheus_name(sample: Sample) -> str:
    name = sample.name.removesuffix("PerSec").removesuffix("Percent")
    suffix = "_percent" if sample.name.endswith("Percent") else ""
    type_ = _EXPOSED_TYPES.get(sample.type, sample.type)
    text = f"{sample.group.replace('.', '_')}_{type_}_{name}{suffix}".lower()
    return "".join(character if character.isalnum() else "_" for character in text)


# The exporter's example for KRaft joins these words, although its general rule would separate them.
_EXPOSED_TYPES: Final = {"raft-metrics": "raftmetrics", "broker-metadata-metrics": "brokermetadatametrics"}

# Group and type, then a line for each name: its kind, its unit, its meaning.
_TABLE: Final = """
kafka.controller KafkaController
ActiveControllerCount gauge controllers 1 while this controller is the active one, else 0
ActiveBrokerCount gauge brokers registered brokers that are not fenced
FencedBrokerCount gauge brokers registered brokers that are fenced
ControlledShutdownBrokerCount gauge brokers registered brokers that are in controlled shutdown
BrokerRegistrationState gauge - of each broker: 10 fenced, 20 in controlled shutdown, 30 active
GlobalTopicCount gauge topics topics of the cluster
GlobalPartitionCount gauge partitions partitions of the cluster
OfflinePartitionsCount gauge partitions partitions without a leader
PreferredReplicaImbalanceCount gauge partitions partitions that are not led by their first replica
MetadataErrorCount gauge errors errors at which this controller could not apply metadata
LastAppliedRecordOffset gauge offset the last record that this controller applied, committed or not
LastAppliedRecordTimestamp gauge ms the time of the last record that this controller applied
LastAppliedRecordLagMs gauge ms the age of the last record that this controller applied
LastCommittedRecordOffset gauge offset the last record that is committed, as this controller knows
NewActiveControllersCount gauge elections the leaders of the quorum that this controller has seen begin
TimedOutBrokerHeartbeatCount gauge heartbeats heartbeats that waited for longer than half of their interval
EventQueueOperationsStartedCount gauge operations decisions that this controller has begun
EventQueueOperationsTimedOutCount gauge operations decisions that were not committed in the time of their request
TimeSinceLastHeartbeatReceivedMs gauge ms of each broker on the active controller: since its last heartbeat
IgnoredStaticVoters gauge - 1 when controller.quorum.voters is set and the voters in the log count, else 0

kafka.controller ControllerEventManager
EventQueueTimeMs histogram ms how long requests waited for the loop of the controller
EventQueueProcessingTimeMs histogram ms how long the decisions of this controller computed
AvgIdleRatio gauge share the share of time in which the controller's loop does not compute, since its start

kafka.controller ControllerStats
UncleanLeaderElectionsPerSec counter elections elections of leaders that were in neither ISR nor ELR
ElectionFromEligibleLeaderReplicasPerSec counter elections elections of leaders from the ELR (KIP-966)

kafka.server raft-metrics
current-state gauge - 1, with the role of this replica as label
current-leader gauge id the leader's node id; -1 while it is not known
current-vote gauge id the node id that this replica voted for in its epoch; -1 for none
current-vote-directory-id gauge - 1, with the directory id that this replica voted for as label
current-epoch gauge epoch the epoch of the quorum
high-watermark gauge offset the end of the committed records; -1 while it is not known
log-end-offset gauge offset the end of this replica's metadata log
log-end-epoch gauge epoch the epoch of the last record in this replica's metadata log
number-unknown-voter-connections gauge voters voters whose address is not known
number-of-voters gauge voters the voters of the quorum
number-of-observers gauge replicas on the leader: the observers that fetch
uncommitted-voter-change gauge - on the leader: 1 while a change of the voters is under way, else 0
commit-latency-avg gauge ms the average time from an append by the leader to its commit, of the last minute
commit-latency-max gauge ms the longest time from an append by the leader to its commit, of the last minute
election-latency-avg gauge ms the average time to elect a leader, of the last minute
election-latency-max gauge ms the longest time to elect a leader, of the last minute
fetch-records-rate gauge 1/s the records that this replica fetched from the leader, of the last minute
append-records-rate gauge 1/s the records that this replica appended as leader, of the last minute
poll-idle-ratio-avg gauge share the share of time in which the loop of the quorum does not compute, since its start

kafka.server MetadataLoader
CurrentMetadataVersion gauge level the level of metadata.version
CurrentControllerId gauge id the active controller's node id; -1 while it is not known
HandleLoadSnapshotCount gauge snapshots the snapshots that this node has loaded since its start
FinalizedLevel gauge level the finalised level of each feature

kafka.server SnapshotEmitter
LatestSnapshotGeneratedBytes gauge bytes the size of the last snapshot of this run; 0 before the first
LatestSnapshotGeneratedAgeMs gauge ms the time since the last snapshot, or since the start

kafka.server broker-metadata-metrics
last-applied-record-offset gauge offset the last metadata record that the broker applied
last-applied-record-timestamp gauge ms the time of the last metadata record that the broker applied
last-applied-record-lag-ms gauge ms the age of the last metadata record that the broker applied
metadata-load-error-count gauge errors errors at which the broker could not read metadata
metadata-apply-error-count gauge errors errors at which the broker could not apply metadata
ignored-static-voters gauge - 1 when controller.quorum.voters is set and the voters in the log count, else 0

kafka.server node-metrics
maximum-supported-level gauge level the highest level of each feature that this node supports
minimum-supported-level gauge level the lowest level of each feature that this node supports

kafka.server KafkaServer
BrokerState gauge - the state of the broker, as Kafka numbers it; 3 is running

kafka.server ReplicaManager
PartitionCount gauge partitions replicas on this broker
LeaderCount gauge partitions partitions that this broker leads
OfflineReplicaCount gauge partitions replicas whose log has failed
UnderReplicatedPartitions gauge partitions led partitions with a replica that is not in the ISR
UnderMinIsrPartitionCount gauge partitions led partitions whose ISR is smaller than min.insync.replicas
AtMinIsrPartitionCount gauge partitions led partitions whose ISR is just as large as min.insync.replicas
ReassigningPartitions gauge partitions led partitions that a reassignment moves
IsrShrinksPerSec counter changes changes by which a replica left the ISR of a led partition
IsrExpandsPerSec counter changes changes by which a replica joined the ISR of a led partition
FailedIsrUpdatesPerSec counter changes changes of an ISR that the controller refused
ProducerIdCount gauge producers producers that the partitions on this broker know
PartitionsWithLateTransactionsCount gauge partitions led partitions with a transaction that is open for too long

kafka.cluster Partition
UnderReplicated gauge - of each partition: 1 when this broker leads it and a replica is not in the ISR, else 0
UnderMinIsr gauge - of each partition: 1 when this broker leads it and the ISR is below min.insync.replicas, else 0
AtMinIsr gauge - of each partition: 1 when this broker leads it and the ISR is just min.insync.replicas, else 0
ReplicasCount gauge replicas of each partition that this broker leads: its replicas; else 0
InSyncReplicasCount gauge replicas of each partition that this broker leads: its ISR; else 0
LastStableOffsetLag gauge records of each partition: how far the last stable offset is below the high watermark

kafka.server ReplicaFetcherManager
MaxLag gauge records the greatest lag of a replica on this broker behind its leader's high watermark
FailedPartitionsCount gauge partitions partitions that are no longer fetched, until they get a new role
DeadThreadCount gauge threads always 0: fetchers have no threads

kafka.server FetcherStats
RequestsPerSec counter requests requests of each fetcher to its leader
BytesPerSec counter bytes bytes that each fetcher appended

kafka.server LeaderReplication
byte-rate gauge bytes/s what this broker sends of throttled partitions to followers, over the window of the quota

kafka.server FetchSessionCache
NumIncrementalFetchSessions gauge sessions fetch sessions (KIP-227)
NumIncrementalFetchPartitionsCached gauge partitions partitions in fetch sessions

kafka.server group-coordinator-metrics
num-partitions gauge partitions partitions of __consumer_offsets of this broker, by state
partition-load-time-max gauge ms the longest time to load a partition of __consumer_offsets
partition-load-time-avg gauge ms the average time to load a partition of __consumer_offsets
offset-commit-count counter offsets committed offsets
offset-expiration-count counter offsets offsets that expired
offset-deletion-count counter offsets offsets that were deleted
group-completed-rebalance-count counter rebalances rebalances that were completed
group-count gauge groups groups, by protocol

kafka.server KafkaRequestHandlerPool
RequestHandlerAvgIdlePercent gauge share the share of time in which the handlers' loop does not compute, since its start
ControlPlaneRequestHandlerAvgIdlePercent gauge share the same, of the control plane

kafka.coordinator.group GroupMetadataManager
NumOffsets gauge offsets committed offsets
NumGroups gauge groups groups
NumGroupsPreparingRebalance gauge groups groups that wait for their members to join
NumGroupsCompletingRebalance gauge groups groups that wait for their assignment
NumGroupsStable gauge groups groups whose members have their assignment
NumGroupsDead gauge groups groups that are being deleted
NumGroupsEmpty gauge groups groups without members

kafka.log Log
Size gauge bytes the size of each log
LogEndOffset gauge offset the end of each log
LogStartOffset gauge offset the start of each log

kafka.log LogManager
OfflineLogDirectoryCount gauge directories log directories that have failed
LogDirectoryOffline gauge - of each log directory: 1 when it has failed, else 0
CordonedLogDirectoryCount gauge directories log directories that get no new logs
LogDirectoryCordoned gauge - of each log directory: 1 when it gets no new logs, else 0
remainingLogsToRecover gauge logs logs of each directory that the start has still to recover (KIP-831)
remainingSegmentsToRecover gauge segments segments that each thread of the start has still to recover (KIP-831)

kafka.log LogCleaner
max-buffer-utilization-percent gauge percent the fullest offset map of the cleaners' last rounds
cleaner-recopy-percent gauge percent what the cleaners wrote, of what they read, in their last rounds
max-clean-time-secs gauge s the longest of the cleaners' last rounds
max-compaction-delay-secs gauge s how long the oldest log that must be compacted is overdue
DeadThreadCount gauge threads cleaners that have ended with an error

kafka.log LogCleanerManager
max-dirty-percent gauge percent the dirtiest log that the cleaners look after
time-since-last-run-ms gauge ms the time since the cleaners last looked for work
uncleanable-partitions-count gauge partitions logs of each directory that cannot be compacted
uncleanable-bytes gauge bytes bytes of each directory that cannot be compacted

kafka.network RequestChannel
RequestQueueSize gauge requests requests that wait for the handlers
ResponseQueueSize gauge responses answers that wait for the processors
ControlPlaneRequestQueueSize gauge requests the same as RequestQueueSize, of the control plane
ControlPlaneResponseQueueSize gauge responses the same as ResponseQueueSize, of the control plane

kafka.network SocketServer
NetworkProcessorAvgIdlePercent gauge share the share of time in which the processors wait
ExpiredConnectionsKilledCount gauge connections connections that were closed because they did not authenticate again
MemoryPoolUsed gauge bytes the plane's memory for requests that is in use
MemoryPoolAvailable gauge bytes the plane's memory for requests that is free
ControlPlaneNetworkProcessorAvgIdlePercent gauge share the same, of the control plane
ControlPlaneExpiredConnectionsKilledCount gauge connections the same, of the control plane
ControlPlaneMemoryPoolUsed gauge bytes the same, of the control plane
ControlPlaneMemoryPoolAvailable gauge bytes the same, of the control plane

kafkacore.network SocketServer
ConnectionCount gauge connections open connections
Refused counter connections connections that a limit refused
MalformedFrames counter connections connections that were closed because of what they sent
ControlPlaneConnectionCount gauge connections the same as ConnectionCount, of the control plane
ControlPlaneRefused counter connections the same as Refused, of the control plane
ControlPlaneMalformedFrames counter connections the same as MalformedFrames, of the control plane

kafka.network RequestMetrics
RequestsPerSec counter requests requests of each API that were answered
RequestBytes counter bytes bytes of requests of each API
ResponseBytes counter bytes bytes of answers of each API
RequestQueueTimeMs histogram ms how long requests waited for the handlers
LocalTimeMs histogram ms how long requests were worked on
RemoteTimeMs histogram ms how long requests waited for others: a commit, replicas, records
ThrottleTimeMs histogram ms how long answers were held back by a quota
ResponseQueueTimeMs histogram ms how long answers waited for a processor
ResponseSendTimeMs histogram ms how long answers were being sent
TotalTimeMs histogram ms the whole time from a request to its answer
"""


@functools.cache
def metrics() -> dict[tuple[str, str], Metric]:
    """The table, by type and name. The first scrape parses it, so a start need not."""
    return {(each.type, each.name): each for each in _rows()}


def _rows() -> Iterator[Metric]:
    for block in _TABLE.strip().split("\n\n"):
        head, *lines = block.splitlines()
        group, type_ = head.split()
        for line in lines:
            name, kind, unit, meaning = line.split(" ", 3)
            yield Metric(group, type_, name, Kind(kind), unit, meaning)
