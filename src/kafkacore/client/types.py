"""The arguments and results of a client's methods."""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkacore._fast.base.uuid import Uuid

LATEST: Final = -1
EARLIEST: Final = -2


class Partition(NamedTuple):
    """A partition. `leader` is the leader's node id, or -1 if there is no leader. The leader epoch is -1 if the cluster
    does not report it."""

    leader: int
    leader_epoch: int


class Topic(NamedTuple):
    """A topic. `id` is None if the cluster is too old to have topic ids. `is_internal` is true for Kafka's own topics,
    such as __consumer_offsets."""

    name: str
    id: Uuid | None
    partitions: dict[int, Partition]
    is_internal: bool = False


class Offset(NamedTuple):
    """A result of `Client.offsets`. `offset` is -1 if there is no record at or after the timestamp. The timestamp (ms)
    and the leader epoch are -1 if the cluster does not report them."""

    offset: int
    timestamp: int
    leader_epoch: int


class Range(NamedTuple):
    """The records with start <= offset < end. If `topic_id` is given but the topic has another id, a read raises
    TopicRecreated."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: Uuid | None = None
