"""Kafka's UUIDs, and the reserved values with a special meaning."""

from kafkacore._fast.base.uuid import (
    LOST_DIRECTORY,
    METADATA_TOPIC_ID,
    MIGRATING_DIRECTORY,
    ONE,
    UNASSIGNED_DIRECTORY,
    ZERO,
    RandomUuids,
    Uuid,
)

__all__ = [
    "LOST_DIRECTORY", "METADATA_TOPIC_ID", "MIGRATING_DIRECTORY", "ONE", "UNASSIGNED_DIRECTORY", "ZERO",
    "RandomUuids", "Uuid",
]  # fmt: skip
