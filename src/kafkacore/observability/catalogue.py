"""The table of all metrics: each metric's MBean name, kind, unit and meaning.

The names come from Apache Kafka 3.9 or 4.3. Names in the groups `kafkacore.*` are kafkacore's own. The names in the
Prometheus exposition follow the JMX exporter's published examples for Kafka (`prometheus_name`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkacore.observability.metrics import Buckets, Kind, Sample


class Metric(NamedTuple):
    """A metric in the table. `unit` is "-" for a state and for a number without a unit."""

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
    """A source has reported a metric that is not in the table."""


def metric(type_: str, name: str) -> Metric:
    """Returns the table's entry for a metric. Raises UnknownMetricError."""
    try:
        return metrics()[type_, name]
    except KeyError:
        raise UnknownMetricError(f"no metric has the type {type_} and the name {name}: add it to the table") from None


def sample(type_: str, name: str, value: float | Buckets, tags: tuple[tuple[str, str], ...] = ()) -> Sample:
    """Returns a sample of a metric from the table. Raises UnknownMetricError."""
    known = metric(type_, name)
    return Sample(known.group, type_, name, known.kind, value, tags)


def prometheus_name(sample: Sample) -> str:
    name = sample.name.removesuffix("PerSec").removesuffix("Percent")
    suffix = "_percent" if sample.name.endswith("Percent") else ""
    type_ = _EXPOSED_TYPES.get(sample.type, sample.type)
    text = f"{sample.group.replace('.', '_')}_{type_}_{name}{suffix}".lower()
    return "".join(character if character.isalnum() else "_" for character in text)


# These words are joined, as in the exporter's example for KRaft. The exporter's general rule would separate them.
_EXPOSED_TYPES: Final = {"raft-metrics": "raftmetrics", "broker-metadata-metrics": "brokermetadatametrics"}

# The group and the type come first. Then there is a line for each name, with its kind, unit and meaning.
_TABLE: Final = """
kafka.controller KafkaController
ActiveControllerCount gauge controllers 1 while this controller is the active one, else 0
ActiveBrokerCount gauge brokers registered brokers that are not fenced
FencedBrokerCount gauge brokers registered brokers that are fenced
ControlledShutdownBrokerCount gauge brokers registered brokers that are in controlled shutdown
BrokerRegistrationState gauge - for each broker: 10 if it is fenced, 20 in controlled shutdown, 30 if it is active
GlobalTopicCount gauge topics topics in the cluster
GlobalPartitionCount gauge partitions partitions in the cluster
OfflinePartitionsCount gauge partitions partitions without a leader
PreferredReplicaImbalanceCount gauge partitions partitions that are not led by their first replica
TopicsToDeleteCount gauge topics in ZooKeeper mode: topics that will be deleted
ReplicasToDeleteCount gauge replicas in ZooKeeper mode: replicas of those topics that still have their data
TopicsIneligibleToDeleteCount gauge topics in ZooKeeper mode: topics whose deletion waits
ReplicasIneligibleToDeleteCount gauge replicas in ZooKeeper mode: replicas that cannot be deleted now
ControllerState gauge - in ZooKeeper mode: the kind of event that the controller now runs, a number as in Apache Kafka
MetadataErrorCount gauge errors errors at which this controller could not apply metadata
LastAppliedRecordOffset gauge offset the offset of the last record that this controller applied, committed or not
LastAppliedRecordTimestamp gauge ms the time of the last record that this controller applied
LastAppliedRecordLagMs gauge ms the age of the last record that this controller applied
LastCommittedRecordOffset gauge offset the offset of the last committed record that this controller knows
NewActiveControllersCount gauge elections changes of the quorum leader that this controller has seen
TimedOutBrokerHeartbeatCount gauge heartbeats heartbeats that waited for longer than half of their interval
EventQueueOperationsStartedCount gauge operations decisions that this controller has started
EventQueueOperationsTimedOutCount gauge operations decisions that were not committed before their request timed out
TimeSinceLastHeartbeatReceivedMs gauge ms on the active controller, for each broker: the time since its last heartbeat
IgnoredStaticVoters gauge - 1 if controller.quorum.voters is set but ignored, because the log holds the voters, else 0

kafka.controller ControllerEventManager
EventQueueSize gauge events in ZooKeeper mode: events that wait for the controller
EventQueueTimeMs histogram ms how long requests or events waited for the controller
EventQueueProcessingTimeMs histogram ms how long this controller computed its decisions
AvgIdleRatio gauge share the share of time since the last reading in which the controller's loop is idle

kafka.controller ControllerStats
ControllerChangeRateAndTimeMs histogram ms in ZooKeeper mode: time for elections of the controller
LeaderElectionRateAndTimeMs histogram ms in ZooKeeper mode: time to handle brokers that join or fail
TopicChangeRateAndTimeMs histogram ms in ZooKeeper mode: time for new topics
TopicDeletionRateAndTimeMs histogram ms in ZooKeeper mode: time for deletions of topics
PartitionReassignmentRateAndTimeMs histogram ms in ZooKeeper mode: time for reassignments
AutoLeaderBalanceRateAndTimeMs histogram ms in ZooKeeper mode: time for checks of the leader balance
ManualLeaderBalanceRateAndTimeMs histogram ms in ZooKeeper mode: time for requested elections
ControlledShutdownRateAndTimeMs histogram ms in ZooKeeper mode: time for controlled shutdowns
IsrChangeRateAndTimeMs histogram ms in ZooKeeper mode: time for changes of ISRs
LeaderAndIsrResponseReceivedRateAndTimeMs histogram ms in ZooKeeper mode: time for answers to LeaderAndIsr
LogDirChangeRateAndTimeMs histogram ms in ZooKeeper mode: time for failed log directories
UncleanLeaderElectionEnableRateAndTimeMs histogram ms in ZooKeeper mode: time for unclean elections
ListPartitionReassignmentRateAndTimeMs histogram ms in ZooKeeper mode: time for lists of reassignments
UpdateFeaturesRateAndTimeMs histogram ms in ZooKeeper mode: time for changes of features
UncleanLeaderElectionsPerSec counter elections elections of leaders from outside the ISR and the ELR
ElectionFromEligibleLeaderReplicasPerSec counter elections elections of leaders from the ELR (KIP-966)

kafka.controller ControllerChannelManager
TotalQueueSize gauge requests in ZooKeeper mode: the sum of QueueSize
QueueSize gauge requests in ZooKeeper mode: requests that the controller has not yet sent to each broker
RequestRateAndQueueTimeMs histogram ms in ZooKeeper mode: how long requests of the controller to each broker waited

kafkacore.controller ControllerChannelManager
ChangeToAnswerTimeMs histogram ms in ZooKeeper mode: time from a change until a broker answers a request about it

kafka.server raft-metrics
current-state gauge - always 1; the label is the role of this replica
current-leader gauge id the leader's node id; -1 while it is unknown
current-vote gauge id the node id for which this replica voted in its epoch; -1 if it has not voted
current-vote-directory-id gauge - always 1; the label is the directory id for which this replica voted
current-epoch gauge epoch the epoch of the quorum
high-watermark gauge offset the offset after the last committed record; -1 while it is unknown
log-end-offset gauge offset the offset after the last record of this replica's metadata log
log-end-epoch gauge epoch the epoch of the last record in this replica's metadata log
number-unknown-voter-connections gauge voters voters with an unknown address
number-of-voters gauge voters the voters of the quorum
number-of-observers gauge replicas on the leader: the number of observers that fetch
uncommitted-voter-change gauge - on the leader: 1 while a change of the voters is in progress, else 0
commit-latency-avg gauge ms the average time from an append by the leader to its commit in the last minute
commit-latency-max gauge ms the longest time from an append by the leader to its commit in the last minute
election-latency-avg gauge ms the average time to elect a leader in the last minute
election-latency-max gauge ms the longest time to elect a leader in the last minute
fetch-records-rate gauge 1/s the records that this replica fetched from the leader in the last minute
append-records-rate gauge 1/s the records that this replica appended as leader in the last minute
poll-idle-ratio-avg gauge share the share of time since the last reading in which the quorum's loop is idle

kafka.server MetadataLoader
CurrentMetadataVersion gauge level the level of metadata.version
CurrentControllerId gauge id the active controller's node id; -1 while it is unknown
HandleLoadSnapshotCount gauge snapshots the snapshots that this node has loaded since its start
FinalizedLevel gauge level the finalised level of each feature

kafka.server SnapshotEmitter
LatestSnapshotGeneratedBytes gauge bytes the size of the last snapshot of this run; 0 before the first
LatestSnapshotGeneratedAgeMs gauge ms the time since the last snapshot, or since the start

kafka.server broker-metadata-metrics
last-applied-record-offset gauge offset the offset of the last metadata record that the broker applied
last-applied-record-timestamp gauge ms the time of the batch with the last metadata record that the broker applied
last-applied-record-lag-ms gauge ms the age of the batch with the last metadata record that the broker applied
metadata-load-error-count gauge errors errors at which the broker could not read metadata
metadata-apply-error-count gauge errors errors at which the broker could not apply metadata
ignored-static-voters gauge - 1 if controller.quorum.voters is set but ignored, because the log holds the voters, else 0

kafka.server node-metrics
maximum-supported-level gauge level the highest level of each feature that this node supports
minimum-supported-level gauge level the lowest level of each feature that this node supports

kafka.server KafkaServer
BrokerState gauge - the state of the broker by Kafka's number; 3 means running

kafka.server ReplicaManager
PartitionCount gauge partitions replicas on this broker
LeaderCount gauge partitions partitions that this broker leads
OfflineReplicaCount gauge partitions replicas whose log has failed
UnderReplicatedPartitions gauge partitions led partitions with a replica that is not in the ISR
UnderMinIsrPartitionCount gauge partitions led partitions whose ISR is smaller than min.insync.replicas
AtMinIsrPartitionCount gauge partitions led partitions whose ISR has exactly min.insync.replicas members
ReassigningPartitions gauge partitions led partitions that a reassignment moves
IsrShrinksPerSec counter changes changes that removed a replica from the ISR of a led partition
IsrExpandsPerSec counter changes changes that added a replica to the ISR of a led partition
FailedIsrUpdatesPerSec counter changes changes of an ISR that the controller refused
ProducerIdCount gauge producers producers that are known to the partitions on this broker
PartitionsWithLateTransactionsCount gauge partitions led partitions with a transaction that is open for too long

kafka.cluster Partition
UnderReplicated gauge - for each partition: 1 if this broker leads it and a replica is not in the ISR, else 0
UnderMinIsr gauge - for each partition: 1 if this broker leads it and the ISR is below min.insync.replicas, else 0
AtMinIsr gauge - for each partition: 1 if this broker leads it and the ISR is as small as min.insync.replicas, else 0
ReplicasCount gauge replicas for each partition: the number of its replicas if this broker leads it, else 0
InSyncReplicasCount gauge replicas for each partition: the size of its ISR if this broker leads it, else 0
LastStableOffsetLag gauge records for each partition: the distance from the last stable offset to the high watermark

kafka.server BrokerTopicMetrics
MessagesInPerSec counter records records appended to led partitions, for each topic, and without a label for all topics
BytesInPerSec counter bytes bytes of batches that were appended to led partitions, as producers sent them
BytesOutPerSec counter bytes bytes of batches that were sent to clients
BytesRejectedPerSec counter bytes bytes that were refused because a batch was too large
TotalProduceRequestsPerSec counter requests appends to partitions, including those of this broker's coordinators
FailedProduceRequestsPerSec counter requests appends that failed with an error that clients do not expect
TotalFetchRequestsPerSec counter requests partitions that Fetches have read; a session reads only changed partitions
FailedFetchRequestsPerSec counter requests reads that failed with an error that clients do not expect
ProduceMessageConversionsPerSec counter records records of batches that were recompressed with another codec
ReplicationBytesInPerSec counter bytes bytes that this broker's followers fetched
ReplicationBytesOutPerSec counter bytes bytes that were sent to followers
ReassignmentBytesInPerSec counter bytes bytes that this broker fetched for replicas that a reassignment adds to it
ReassignmentBytesOutPerSec counter bytes bytes that were sent to replicas that a reassignment adds
NoKeyCompactedTopicRecordsPerSec counter batches batches refused because a record of a compacted topic has no key
InvalidMagicNumberRecordsPerSec counter batches batches that were refused because of their format version
InvalidMessageCrcRecordsPerSec counter batches batches that were refused because of their checksum
InvalidOffsetOrSequenceRecordsPerSec counter batches batches that were refused because of their offsets or sequence

kafka.server DelayedOperationPurgatory
NumDelayedOperations gauge operations requests of each kind that wait for partitions
PurgatorySize gauge partitions partitions that requests of each kind wait for, once for each such request

kafka.server ReplicaFetcherManager
MinFetchRate gauge requests/s the number of requests per second of the slowest fetcher in the last minute
MaxLag gauge records the greatest lag of a replica on this broker behind its leader's high watermark
FailedPartitionsCount gauge partitions partitions that are no longer fetched, until they get a new role
DeadThreadCount gauge threads always 0: fetchers have no threads

kafka.server FetcherStats
RequestsPerSec counter requests requests of each fetcher to its leader
BytesPerSec counter bytes bytes that each fetcher appended

kafka.server FetcherLagMetrics
ConsumerLag gauge records for each followed partition: how far the end of its log is below its leader's high watermark

kafka.server LeaderReplication
byte-rate gauge bytes/s the rate at which this broker sends throttled partitions to followers, over the quota window

kafka.server FollowerReplication
byte-rate gauge bytes/s the rate at which this broker fetches throttled partitions, over the quota window

kafka.server FetchSessionCache
NumIncrementalFetchSessions gauge sessions fetch sessions (KIP-227)
NumIncrementalFetchPartitionsCached gauge partitions partitions in fetch sessions

kafka.server group-coordinator-metrics
num-partitions gauge partitions partitions of __consumer_offsets on this broker, by state
partition-load-time-max gauge ms the longest time to load a partition of __consumer_offsets
partition-load-time-avg gauge ms the average time to load a partition of __consumer_offsets
offset-commit-count counter offsets committed offsets
offset-expiration-count counter offsets offsets that expired
offset-deletion-count counter offsets offsets that were deleted
group-completed-rebalance-count counter rebalances rebalances that were completed
group-count gauge groups groups, by protocol

kafka.server KafkaRequestHandlerPool
RequestHandlerAvgIdlePercent gauge share how much of the time since the last reading the handlers' loop was idle
ControlPlaneRequestHandlerAvgIdlePercent gauge share like RequestHandlerAvgIdlePercent, for the control plane

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
LogEndOffset gauge offset the offset after the last record of each log
LogStartOffset gauge offset the log start offset of each log

kafka.log LogManager
OfflineLogDirectoryCount gauge directories log directories that have failed
LogDirectoryOffline gauge - for each log directory: 1 if it has failed, else 0
CordonedLogDirectoryCount gauge directories log directories that get no new logs
LogDirectoryCordoned gauge - for each log directory: 1 if it gets no new logs, else 0
remainingLogsToRecover gauge logs in each directory: logs that the starting node has not yet recovered (KIP-831)
remainingSegmentsToRecover gauge segments segments that each recovery thread still has to recover (KIP-831)

kafka.log LogCleaner
max-buffer-utilization-percent gauge percent how full the fullest offset map was in the cleaners' last rounds
cleaner-recopy-percent gauge percent bytes written in the cleaners' last rounds, as a share of the bytes read
max-clean-time-secs gauge s the longest of the cleaners' last rounds
max-compaction-delay-secs gauge s how long the compaction of the most overdue log is overdue
DeadThreadCount gauge threads cleaners that have ended with an error

kafka.log LogCleanerManager
max-dirty-percent gauge percent the share of uncompacted bytes in the dirtiest log
time-since-last-run-ms gauge ms the time since the cleaners last checked for work
uncleanable-partitions-count gauge partitions in each directory: logs that cannot be compacted
uncleanable-bytes gauge bytes in each directory: dirty bytes of the logs that cannot be compacted

kafka.server SessionExpireListener
SessionState gauge - in ZooKeeper mode: always 1; the label is the state of the session with ZooKeeper
ZooKeeperSyncConnectsPerSec counter connections in ZooKeeper mode: connections that a ZooKeeper server has accepted
ZooKeeperDisconnectsPerSec counter connections in ZooKeeper mode: connections to ZooKeeper that broke
ZooKeeperExpiresPerSec counter sessions in ZooKeeper mode: sessions that ZooKeeper has ended
ZooKeeperAuthFailuresPerSec counter sessions in ZooKeeper mode: sessions whose authentication ZooKeeper has refused

kafka.server ZooKeeperClientMetrics
ZooKeeperRequestLatencyMs histogram ms in ZooKeeper mode: time from a request to ZooKeeper until its answer

kafka.network RequestChannel
RequestQueueSize gauge requests requests that wait for the handlers
ResponseQueueSize gauge responses responses that wait for the processors
ControlPlaneRequestQueueSize gauge requests like RequestQueueSize, for the control plane
ControlPlaneResponseQueueSize gauge responses like ResponseQueueSize, for the control plane

kafka.network SocketServer
NetworkProcessorAvgIdlePercent gauge share the share of time in which the processors are idle
ExpiredConnectionsKilledCount gauge connections connections that were closed because they did not authenticate again
MemoryPoolUsed gauge bytes the used part of the plane's memory for requests
MemoryPoolAvailable gauge bytes the free part of the plane's memory for requests
ControlPlaneNetworkProcessorAvgIdlePercent gauge share like NetworkProcessorAvgIdlePercent, for the control plane
ControlPlaneExpiredConnectionsKilledCount gauge connections like ExpiredConnectionsKilledCount, for the control plane
ControlPlaneMemoryPoolUsed gauge bytes like MemoryPoolUsed, for the control plane
ControlPlaneMemoryPoolAvailable gauge bytes like MemoryPoolAvailable, for the control plane

kafkacore.server ReplicaManager
UncoordinatedElections counter elections how often this broker began to lead a partition that it cannot coordinate

kafkacore.network SocketServer
ConnectionCount gauge connections open connections
Refused counter connections connections that a limit refused
MalformedFrames counter connections connections that were closed because they sent malformed data
SampledRequestsDropped counter requests sampled requests that are missing from the sampled request log
ControlPlaneConnectionCount gauge connections like ConnectionCount, for the control plane
ControlPlaneRefused counter connections like Refused, for the control plane
ControlPlaneMalformedFrames counter connections like MalformedFrames, for the control plane
ControlPlaneSampledRequestsDropped counter requests like SampledRequestsDropped, for the control plane

kafka.network RequestMetrics
RequestsPerSec counter requests answered requests of each API
RequestBytes counter bytes bytes of requests of each API
ResponseBytes counter bytes bytes of responses of each API
RequestQueueTimeMs histogram ms how long requests waited for the handlers
LocalTimeMs histogram ms how long handlers worked on requests
RemoteTimeMs histogram ms how long requests waited for a commit, for replicas or for records
ThrottleTimeMs histogram ms how long a quota held responses back
ResponseQueueTimeMs histogram ms how long responses waited for a processor
ResponseSendTimeMs histogram ms how long it took to send responses
TotalTimeMs histogram ms the whole time from the arrival of a request to the end of its response
"""


@functools.cache
def metrics() -> dict[tuple[str, str], Metric]:
    """Returns the table, by type and name. The table is parsed at the first scrape, so that the node starts faster."""
    return {(each.type, each.name): each for each in _rows()}


def _rows() -> Iterator[Metric]:
    for block in _TABLE.strip().split("\n\n"):
        head, *lines = block.splitlines()
        group, type_ = head.split()
        for line in lines:
            name, kind, unit, meaning = line.split(" ", 3)
            yield Metric(group, type_, name, Kind(kind), unit, meaning)
