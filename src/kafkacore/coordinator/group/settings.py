"""The settings of a group coordinator, taken from the node's configuration."""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkacore.config import BrokerConfig

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000  # a constant, because Kafka has no configuration key for it
_MS_OF_A_MINUTE: Final = 60_000


class GroupSettings(NamedTuple):
    """The settings of a coordinator. The defaults are Kafka's."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2_147_483_647
    initial_rebalance_delay_ms: int = 3_000
    new_member_join_timeout_ms: int = NEW_MEMBER_JOIN_TIMEOUT_MS
    metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * _MS_OF_A_MINUTE
    offsets_retention_check_interval_ms: int = 600_000


def group_settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        max_size=config.group_max_size,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * _MS_OF_A_MINUTE,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
    )
