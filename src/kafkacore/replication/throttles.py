"""The replication quotas of leaders and followers, and the replicas that these quotas throttle (KIP-73, Kafka's
ReplicationQuotaManager).

The leader's quota limits the bytes of throttled partitions that this broker sends to replicas outside the ISR. The
follower's quota limits the bytes of throttled partitions that this broker fetches until it has caught up. The rates are
dynamic broker settings. The topic configurations select the throttled partitions, and native code reads that selection
from bits in each partition (`PartitionHandle.throttled`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kafkacore._fast.log.replication_quota import BY_FOLLOWER, BY_LEADER, ReplicationQuota
from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig, TopicConfig
from kafkacore.config.addresses import parse_replica

_ALL: Final = "*"
_SECOND_MS: Final = 1000
_MS_NS: Final = 1_000_000


class Quotas:
    """The quotas of one broker. Native code uses this object until the broker's listeners are closed."""

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        self._environment = environment
        sample_ms = config.replication_quota_window_size_seconds * _SECOND_MS
        self.leader = ReplicationQuota(config.replication_quota_window_num, sample_ms)
        self.follower = ReplicationQuota(config.replication_quota_window_num, sample_ms)
        self.take(config)

    def take(self, config: BrokerConfig) -> None:
        """Applies the rates of the configuration. Call this when the broker's configuration may have changed at run
        time."""
        self.leader.bytes_per_second = config.leader_replication_throttled_rate
        self.follower.bytes_per_second = config.follower_replication_throttled_rate

    @property
    def leader_rate(self) -> float:
        """Bytes per second of throttled partitions that this broker sends to followers. Can be called on any thread."""
        return self._rate(self.leader)

    @property
    def follower_rate(self) -> float:
        """Bytes per second of throttled partitions that this broker fetches. Can be called on any thread."""
        return self._rate(self.follower)

    def _rate(self, quota: ReplicationQuota) -> float:
        return quota.rate(self._environment.monotonic_ns() // _MS_NS)


class Throttled(NamedTuple):
    """The partitions of a topic that are throttled on this broker. None stands for all partitions."""

    as_leader: frozenset[int] | None = frozenset()
    as_follower: frozenset[int] | None = frozenset()

    def bits(self, index: int) -> int:
        """Returns the bits for `PartitionHandle.throttled`."""
        by_leader = BY_LEADER if self.as_leader is None or index in self.as_leader else 0
        return by_leader | (BY_FOLLOWER if self.as_follower is None or index in self.as_follower else 0)


NOTHING: Final = Throttled()


def throttled(config: TopicConfig, node_id: int) -> Throttled:
    leaders, followers = config.leader_replication_throttled_replicas, config.follower_replication_throttled_replicas
    if not leaders and not followers:
        return NOTHING
    return Throttled(_partitions(leaders, node_id), _partitions(followers, node_id))


def _partitions(replicas: Sequence[str], node_id: int) -> frozenset[int] | None:
    """Returns the throttled partitions according to `replicas`, or None for all of them. `replicas` is `*`, or a list
    of partition:broker pairs. The validation of these settings allows empty entries.
    """
    if _ALL in replicas:
        return None
    pairs = map(parse_replica, replicas)
    return frozenset(pair[0] for pair in pairs if pair is not None and pair[1] == node_id)
