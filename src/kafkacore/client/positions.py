"""Looks up offsets of partitions: the first, the last, and the first at or after a time (ListOffsets)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from kafkacore.client.cluster import Cluster
from kafkacore.client.connection import Disconnected
from kafkacore.client.types import Offset
from kafkacore.protocol.errors import error_for
from kafkacore.protocol.messages import ListOffsetsRequest
from kafkacore.protocol.response_errors import error_of_peer

ISOLATION: Final = {"read_uncommitted": 0, "read_committed": 1}
Place = tuple[str, int]


def list_offsets(
    cluster: Cluster, wanted: Mapping[Place, int], isolation_level: str, limit: float
) -> dict[Place, Offset]:
    """Sends one request to each leader. Repeats unanswered requests until `limit`. Raises the same errors as
    `Client.offsets`."""
    found: dict[Place, Offset] = {}
    failures = 0
    while len(found) < len(wanted):
        by_leader: dict[int, list[Place]] = defaultdict(list)
        for place in wanted:
            if place not in found:
                by_leader[cluster.partition(*place, limit).leader].append(place)
        for leader, places in by_leader.items():
            _ask(cluster, leader, {place: wanted[place] for place in places}, isolation_level, limit, found)
        left = [place for place in wanted if place not in found]
        if left:
            failures += 1
            cluster.forget({topic for topic, _ in left})
            cluster.pause(failures, limit)
    return {place: found[place] for place in wanted}


def _ask(
    cluster: Cluster, leader: int, wanted: dict[Place, int], isolation_level: str, limit: float,
    found: dict[Place, Offset],
) -> None:  # fmt: skip
    if leader < 0:
        cluster.note(f"{', '.join(f'{topic}-{partition}' for topic, partition in wanted)} has no leader")
        return
    topics: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = defaultdict(list)
    for (topic, partition), timestamp in wanted.items():
        epoch = cluster.partition(topic, partition, limit).leader_epoch
        topics[topic].append(
            ListOffsetsRequest.ListOffsetsPartition(
                partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp
            )
        )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=ISOLATION[isolation_level],
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
        timeout_ms=max(int((limit - time.monotonic()) * 1000), 1),
    )
    try:
        response = cluster.ask(leader, request, limit)
    except (Disconnected, TimeoutError) as error:
        cluster.broke(leader, error)
        return
    for topic in response.topics:
        for told in topic.partitions:
            if told.error_code and not error_of_peer(told.error_code).retriable:
                raise error_for(
                    error_of_peer(told.error_code),
                    f"{topic.name}-{told.partition_index}: {error_of_peer(told.error_code).message}",
                )
            if told.error_code:
                cluster.note(f"{topic.name}-{told.partition_index}: {error_of_peer(told.error_code).message}")
            else:
                found[topic.name, told.partition_index] = Offset(told.offset, told.timestamp, told.leader_epoch)
