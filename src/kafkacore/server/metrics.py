"""A broker's own metrics: its state, its leaderships, and the sizes of its partitions."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kafkacore._fast.log.producer_states import producer_counts
from kafkacore.observability.catalogue import sample
from kafkacore.observability.metrics import Sample
from kafkacore.replication import replica_counts
from kafkacore.server.topic_metrics import purgatory_metrics, topic_metrics

if TYPE_CHECKING:
    from kafkacore._fast.log.partition_handle import PartitionHandle
    from kafkacore.replication.fetchers import Fetchers
    from kafkacore.replication.replica_counts import LedPartition
    from kafkacore.server.broker import BrokerServer
    from kafkacore.server.groups import Groups
    from kafkacore.storage.cleaner import LogCleaner
    from kafkacore.storage.log_manager import LogManager

_GROUPS: Final = "group-coordinator-metrics"
LATE_BUFFER_MS: Final = 5 * 60 * 1000  # a transaction is late after transaction.max.timeout.ms plus this time


def broker_metrics(broker: BrokerServer) -> Iterator[Sample]:
    """Yields the metrics of a broker, as a source for a MetricRegistry. Runs on the thread that collects the metrics,
    so the values may belong to slightly different moments."""
    state = broker.registrar.lifecycle.state
    yield sample("KafkaServer", "BrokerState", int(state))
    partitions = list(broker.replicas.hosted())
    leading = sum(partition.role == "leader" for partition in partitions)
    yield sample("ReplicaManager", "PartitionCount", len(partitions))
    yield sample("ReplicaManager", "LeaderCount", leading)
    offline = sum(partition.state == "failed" for partition in partitions)
    yield sample("ReplicaManager", "OfflineReplicaCount", offline)
    yield from _replica_metrics(broker, partitions)
    yield from fetcher_metrics(broker.fetchers)
    for partition in partitions:
        tags = (("topic", partition.topic), ("partition", str(partition.index)))
        yield sample("Log", "Size", partition.size_bytes, tags)
        yield sample("Log", "LogEndOffset", partition.end_offset, tags)
        yield sample("Log", "LogStartOffset", partition.log_start_offset, tags)
    yield from _directory_metrics(broker)
    if broker.cleaner is not None:
        yield from cleaner_metrics(broker.cleaner)
    if broker.context.groups_made is not None:
        yield from group_metrics(broker.context.groups)
    yield from topic_metrics(*broker.replicas.traffic())
    yield from purgatory_metrics(broker.hot.purgatories(), broker.context.waits.purgatories())
    yield sample("LeaderReplication", "byte-rate", broker.quotas.leader_rate)
    yield sample("FollowerReplication", "byte-rate", broker.quotas.follower_rate)
    yield sample("FetchSessionCache", "NumIncrementalFetchSessions", len(broker.context.fetch_sessions))
    cached = broker.context.fetch_sessions.partition_count
    yield sample("FetchSessionCache", "NumIncrementalFetchPartitionsCached", cached)


def fetcher_metrics(fetchers: Fetchers) -> Iterator[Sample]:
    """Yields the metrics of ReplicaFetcherManager and of its fetchers."""
    measures = fetchers.measures()
    manager = (("clientId", "Replica"),)
    yield sample("ReplicaFetcherManager", "MaxLag", max((each.most_lag for each in measures), default=0), manager)
    yield sample("ReplicaFetcherManager", "FailedPartitionsCount", sum(each.failed for each in measures), manager)
    yield sample("ReplicaFetcherManager", "DeadThreadCount", 0, manager)
    for each in measures:
        host, port = each.address or ("", -1)
        name = _client_id(each.number, each.source_id)
        tags: tuple[tuple[str, str], ...] = (("clientId", name), ("brokerHost", host), ("brokerPort", str(port)))
        yield sample("FetcherStats", "RequestsPerSec", each.requests, tags)
        yield sample("FetcherStats", "BytesPerSec", each.appended_bytes, tags)
    yield sample("ReplicaFetcherManager", "MinFetchRate", fetchers.least_rate(measures), manager)
    for partition, source_id, number in fetchers.followed():
        lag = partition.fetch_lag
        if lag >= 0:
            place = ("topic", partition.topic), ("partition", str(partition.index))
            tags = (("clientId", _client_id(number, source_id)), *place)
            yield sample("FetcherLagMetrics", "ConsumerLag", lag, tags)


def _client_id(number: int, source_id: int) -> str:
    return f"ReplicaFetcherThread-{number}-{source_id}"


def _replica_metrics(broker: BrokerServer, partitions: Sequence[PartitionHandle]) -> Iterator[Sample]:
    led = list(replica_counts.led(broker.context.image, broker.node_id, broker.replicas.min_isr_of))
    yield from partition_metrics(partitions, led)
    late_before_ms = broker.context.waits.wall_ms() - broker.config.transaction_max_timeout_ms - LATE_BUFFER_MS
    producers = [producer_counts(each) for each in partitions]
    yield sample("ReplicaManager", "ProducerIdCount", sum(known for known, _ in producers))
    late = sum(
        0 < oldest_ms < late_before_ms and each.role == "leader"
        for each, (_, oldest_ms) in zip(partitions, producers, strict=True)
    )
    yield sample("ReplicaManager", "PartitionsWithLateTransactionsCount", late)
    yield sample("ReplicaManager", "UncoordinatedElections", broker.uncoordinated.elections)
    counts = replica_counts.count(led)
    changes = broker.isr_counts
    for name, value in (
        ("UnderReplicatedPartitions", counts.under_replicated),
        ("UnderMinIsrPartitionCount", counts.under_min_isr),
        ("AtMinIsrPartitionCount", counts.at_min_isr),
        ("ReassigningPartitions", counts.reassigning),
        ("IsrShrinksPerSec", changes.shrinks),
        ("IsrExpandsPerSec", changes.expands),
        ("FailedIsrUpdatesPerSec", changes.failed),
    ):
        yield sample("ReplicaManager", name, value)


def partition_metrics(partitions: Iterable[PartitionHandle], led: Iterable[LedPartition]) -> Iterator[Sample]:
    """Yields the metrics of each partition on this broker. The metrics of a partition's replicas are 0 unless this
    broker leads the partition."""
    by_place = {(each.topic, each.partition): each for each in led}
    for partition in partitions:
        state = by_place.get((partition.topic, partition.index))
        tags = (("topic", partition.topic), ("partition", str(partition.index)))
        for name, value in (
            ("UnderReplicated", state is not None and state.is_under_replicated),
            ("UnderMinIsr", state is not None and state.is_under_min_isr),
            ("AtMinIsr", state is not None and state.is_at_min_isr),
            ("ReplicasCount", 0 if state is None else state.replicas),
            ("InSyncReplicasCount", 0 if state is None else state.in_sync),
            ("LastStableOffsetLag", max(partition.high_watermark - partition.last_stable_offset, 0)),
        ):
            yield sample("Partition", name, int(value), tags)


def group_metrics(groups: Groups) -> Iterator[Sample]:
    """Yields the metrics of the groups that this broker coordinates."""
    runtime = groups.runtime
    for state, count in runtime.states().items():
        yield sample(_GROUPS, "num-partitions", count, (("state", state.value),))
    loads = runtime.metrics
    yield sample(_GROUPS, "partition-load-time-max", loads.longest_load_ms)
    yield sample(_GROUPS, "partition-load-time-avg", loads.load_ms / max(loads.loads, 1))
    counts = groups.counts
    for name, value in (
        ("offset-commit-count", counts.offset_commits),
        ("offset-expiration-count", counts.expired_offsets),
        ("offset-deletion-count", counts.deleted_offsets),
        ("group-completed-rebalance-count", counts.completed_rebalances),
    ):
        yield sample(_GROUPS, name, value)
    states: Counter[str] = Counter()
    offsets = 0
    for shard in runtime.active():
        here, committed = shard.census()
        states.update(here)
        offsets += committed
    yield sample(_GROUPS, "group-count", states.total(), (("protocol", "classic"),))
    yield sample("GroupMetadataManager", "NumOffsets", offsets)
    yield sample("GroupMetadataManager", "NumGroups", states.total())
    for name in ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"):
        yield sample("GroupMetadataManager", f"NumGroups{name}", states[name])


def _directory_metrics(broker: BrokerServer) -> Iterator[Sample]:
    offline = {path: not serves for path, serves in broker.context.logs.directories()}
    cordoned = {path: broker.context.logs.is_cordoned(path) for path in offline}
    for what, found in (("Offline", offline), ("Cordoned", cordoned)):
        yield sample("LogManager", f"{what}LogDirectoryCount", sum(found.values()))
        for path, is_so in found.items():
            tags = (("logDirectory", path),)
            yield sample("LogManager", f"LogDirectory{what}", is_so, tags)


def recovery_metrics(manager: LogManager) -> Iterator[Sample]:
    """Yields the remaining work of a recovery (KIP-831): the logs of each directory, and the segments of each thread's
    current log."""
    for load in manager.loads:
        tags = (("dir", os.path.abspath(load.directory.path)),)
        yield sample("LogManager", "remainingLogsToRecover", load.remaining, tags)
        for number, segments in enumerate(load.segments_to_recover()):
            numbered = (*tags, ("threadNum", str(number)))
            yield sample("LogManager", "remainingSegmentsToRecover", segments, numbered)


def cleaner_metrics(cleaner: LogCleaner) -> Iterator[Sample]:
    """Yields the metrics of LogCleaner and LogCleanerManager."""
    rounds = cleaner.last_rounds()
    read_bytes = max(sum(one.read_bytes for one in rounds), 1)
    for name, value in (
        ("max-buffer-utilization-percent", int(100 * max((one.utilization for one in rounds), default=0.0))),
        ("cleaner-recopy-percent", 100 * sum(one.written_bytes for one in rounds) // read_bytes),
        ("max-clean-time-secs", int(max((one.elapsed_s for one in rounds), default=0.0))),
        ("max-compaction-delay-secs", cleaner.max_delay_ms // 1000),
        ("DeadThreadCount", cleaner.dead_threads),
    ):
        yield sample("LogCleaner", name, value)
    yield sample("LogCleanerManager", "max-dirty-percent", int(100 * cleaner.max_dirty_ratio))
    yield sample("LogCleanerManager", "time-since-last-run-ms", cleaner.since_last_check_ms)
    for path, (logs, dirty_bytes) in cleaner.uncleanable().items():
        tags = (("logDirectory", path),)
        yield sample("LogCleanerManager", "uncleanable-partitions-count", logs, tags)
        yield sample("LogCleanerManager", "uncleanable-bytes", dirty_bytes, tags)
