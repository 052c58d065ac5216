"""A broker's own metrics: its state, its leaderships, the bytes of its partitions."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkacore.observability.metrics import Kind, Sample

if TYPE_CHECKING:
    from kafkacore.server.broker import BrokerServer
    from kafkacore.server.groups import Groups
    from kafkacore.storage.cleaner import LogCleaner
    from kafkacore.storage.log_manager import LogManager

_SERVER: Final = "kafka.server"
_LOG: Final = "kafka.log"
_COORDINATOR: Final = "kafka.coordinator.group"
_GROUPS: Final = "group-coordinator-metrics"


def broker_metrics(broker: BrokerServer) -> Iterator[Sample]:
    """A source for a MetricRegistry. It runs on the thread that scrapes, so each value is read at its own moment."""
    state = broker.registrar.lifecycle.state
    yield Sample(_SERVER, "KafkaServer", "BrokerState", Kind.GAUGE, int(state))
    partitions = list(broker.replicas.hosted())
    leading = sum(partition.role == "leader" for partition in partitions)
    yield Sample(_SERVER, "ReplicaManager", "PartitionCount", Kind.GAUGE, len(partitions))
    yield Sample(_SERVER, "ReplicaManager", "LeaderCount", Kind.GAUGE, leading)
    offline = sum(partition.state == "failed" for partition in partitions)
    yield Sample(_SERVER, "ReplicaManager", "OfflineReplicaCount", Kind.GAUGE, offline)
    for partition in partitions:
        tags = (("topic", partition.topic), ("partition", str(partition.index)))
        yield Sample(_LOG, "Log", "Size", Kind.GAUGE, partition.size_bytes, tags)
        yield Sample(_LOG, "Log", "LogEndOffset", Kind.GAUGE, partition.end_offset, tags)
        yield Sample(_LOG, "Log", "LogStartOffset", Kind.GAUGE, partition.log_start_offset, tags)
    yield from _directory_metrics(broker)
    if broker.cleaner is not None:
        yield from cleaner_metrics(broker.cleaner)
    if broker.context.groups_made is not None:
        yield from group_metrics(broker.context.groups)
    image = broker.context.image
    yield Sample(_SERVER, "broker-metadata-metrics", "last-applied-record-offset", Kind.GAUGE, image.offset)
    yield Sample(
        _SERVER, "FetchSessionCache", "NumIncrementalFetchSessions", Kind.GAUGE, len(broker.context.fetch_sessions)
    )
    yield Sample(
        _SERVER,
        "FetchSessionCache",
        "NumIncrementalFetchPartitionsCached",
        Kind.GAUGE,
        broker.context.fetch_sessions.partition_count,
    )


def group_metrics(groups: Groups) -> Iterator[Sample]:
    """Metrics of the groups that this broker coordinates."""
    runtime = groups.runtime
    for state, count in runtime.states().items():
        yield Sample(_SERVER, _GROUPS, "num-partitions", Kind.GAUGE, count, (("state", state.value),))
    loads = runtime.metrics
    yield Sample(_SERVER, _GROUPS, "partition-load-time-max", Kind.GAUGE, loads.longest_load_ms)
    yield Sample(_SERVER, _GROUPS, "partition-load-time-avg", Kind.GAUGE, loads.load_ms / max(loads.loads, 1))
    counts = groups.counts
    for name, value in (
        ("offset-commit-count", counts.offset_commits),
        ("offset-expiration-count", counts.expired_offsets),
        ("offset-deletion-count", counts.deleted_offsets),
        ("group-completed-rebalance-count", counts.completed_rebalances),
    ):
        yield Sample(_SERVER, _GROUPS, name, Kind.COUNTER, value)
    states: Counter[str] = Counter()
    offsets = 0
    for shard in runtime.active():
        here, committed = shard.census()
        states.update(here)
        offsets += committed
    yield Sample(_SERVER, _GROUPS, "group-count", Kind.GAUGE, states.total(), (("protocol", "classic"),))
    yield Sample(_COORDINATOR, "GroupMetadataManager", "NumOffsets", Kind.GAUGE, offsets)
    yield Sample(_COORDINATOR, "GroupMetadataManager", "NumGroups", Kind.GAUGE, states.total())
    for name in ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"):
        yield Sample(_COORDINATOR, "GroupMetadataManager", f"NumGroups{name}", Kind.GAUGE, states[name])


def _directory_metrics(broker: BrokerServer) -> Iterator[Sample]:
    directories = broker.context.logs.by_directory()
    offline = {path: not serves for path, serves, _ in directories}
    cordoned = {path: broker.context.logs.is_cordoned(path) for path in offline}
    for what, found in (("Offline", offline), ("Cordoned", cordoned)):
        yield Sample(_LOG, "LogManager", f"{what}LogDirectoryCount", Kind.GAUGE, sum(found.values()))
        for path, is_so in found.items():
            tags = (("logDirectory", path),)
            yield Sample(_LOG, "LogManager", f"LogDirectory{what}", Kind.GAUGE, is_so, tags)


def recovery_metrics(manager: LogManager) -> Iterator[Sample]:
    """The rest that a start must recover (KIP-831): the logs of each directory, and the segments of the log that each
    recovering thread is at."""
    for load in manager.loads:
        tags = (("dir", os.path.abspath(load.directory.path)),)
        yield Sample(_LOG, "LogManager", "remainingLogsToRecover", Kind.GAUGE, load.remaining, tags)
        for number, segments in enumerate(load.segments_to_recover()):
            numbered = (*tags, ("threadNum", str(number)))
            yield Sample(_LOG, "LogManager", "remainingSegmentsToRecover", Kind.GAUGE, segments, numbered)


def cleaner_metrics(cleaner: LogCleaner) -> Iterator[Sample]:
    """The metrics of LogCleaner and LogCleanerManager."""
    rounds = cleaner.last_rounds()
    read_bytes = max(sum(one.read_bytes for one in rounds), 1)
    for name, value in (
        ("max-buffer-utilization-percent", int(100 * max((one.utilization for one in rounds), default=0.0))),
        ("cleaner-recopy-percent", 100 * sum(one.written_bytes for one in rounds) // read_bytes),
        ("max-clean-time-secs", int(max((one.elapsed_s for one in rounds), default=0.0))),
        ("max-compaction-delay-secs", cleaner.max_delay_ms // 1000),
        ("DeadThreadCount", cleaner.dead_threads),
    ):
        yield Sample(_LOG, "LogCleaner", name, Kind.GAUGE, value)
    yield Sample(_LOG, "LogCleanerManager", "max-dirty-percent", Kind.GAUGE, int(100 * cleaner.max_dirty_ratio))
    yield Sample(_LOG, "LogCleanerManager", "time-since-last-run-ms", Kind.GAUGE, cleaner.since_last_check_ms)
    for path, (logs, dirty_bytes) in cleaner.uncleanable().items():
        tags = (("logDirectory", path),)
        yield Sample(_LOG, "LogCleanerManager", "uncleanable-partitions-count", Kind.GAUGE, logs, tags)
        yield Sample(_LOG, "LogCleanerManager", "uncleanable-bytes", Kind.GAUGE, dirty_bytes, tags)
