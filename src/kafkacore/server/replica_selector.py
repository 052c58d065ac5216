"""replica.selector.class: decides whether consumers read from a replica in their own rack (KIP-392)."""

from __future__ import annotations

from typing import Final

from kafkacore.config import BrokerConfig

_RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def selects_by_rack(config: BrokerConfig) -> bool:
    """Returns whether the configured selector chooses replicas by rack. Other selectors are Java classes, which this
    broker cannot run. If one of them is configured, the leader serves all consumers."""
    return config.replica_selector_class == _RACK_AWARE
