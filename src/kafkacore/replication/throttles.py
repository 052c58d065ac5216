"""The replication quota of a leader, and the replicas that it throttles (KIP-73, Kafka's ReplicationQuotaManager).

The quota bounds what this broker sends of throttled partitions to replicas outside their ISR. The rate is a dynamic
setting of a broker. The partitions come from the topics' configurations; native code finds them as bits of each
partition (`PartitionHandle.throttled`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kafkacore._fast.log.replication_quota import BY_LEADER, ReplicationQuota
from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig, TopicConfig

_ALL: Final = "*"
_SECOND_MS: Final = 1000
_MS_NS: Final = 1_000_000


class Quotas:
    """The quotas of one broker. Native code keeps using them until its planes are closed."""

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        self._environment = environment
        sample_ms = config.replication_quota_window_size_seconds * _SECOND_MS
        self.leader = ReplicationQuota(config.replication_quota_window_num, sample_ms)
        self.take(config)

    def take(self, config: BrokerConfig) -> None:
        """The broker's configuration has changed at run time, perhaps."""
        self.leader.bytes_per_second = config.leader_replication_throttled_rate

    @property
    def leader_rate(self) -> float:
        """Bytes per second of throttled partitions that this broker sends to followers. Any thread may ask."""
        return self.leader.rate(self._environment.monotonic_ns() // _MS_NS)


class Throttled(NamedTuple):
    """The partitions of a topic whose replica on this broker is throttled; None stands for all of them."""

    as_leader: frozenset[int] | None = frozenset()

    def bits(self, index: int) -> int:
        """For `PartitionHandle.throttled`."""
        return BY_LEADER if self.as_leader is None or index in self.as_leader else 0


NOTHING: Final = Throttled()


def throttled(config: TopicConfig, node_id: int) -> Throttled:
    leaders = config.leader_replication_throttled_replicas
    return Throttled(_partitions(leaders, node_id)) if leaders else NOTHING


def _partitions(replicas: Sequence[str], node_id: int) -> frozenset[int] | None:
    """`replicas`: `*`, or entries of partition and broker. The validation of the keys lets empty entries pass."""
    entries = [each.strip() for each in replicas]
    if _ALL in entries:
        return None
    pairs = [each.split(":") for each in entries if each]
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == node_id)
