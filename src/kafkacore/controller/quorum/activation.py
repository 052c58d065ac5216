"""The records that a controller writes when it becomes active. They set the feature levels of a new cluster. They also
abort a metadata transaction (KIP-868) that the previous controller left open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafkacore.controller.quorum.decisions import MIN_IN_SYNC_REPLICAS, Settings
from kafkacore.metadata.image import BROKER, MetadataImage
from kafkacore.metadata.records import MetadataError
from kafkacore.protocol.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION, check_finalized
from kafkacore.protocol.messages import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    Message,
)
from kafkacore.storage.bootstrap import NO_LEVELS


def activation_records(image: MetadataImage, settings: Settings, bootstrap: Sequence[Message]) -> list[Message]:
    """Returns the records. `bootstrap` holds the records that `storage format` wrote to bootstrap.checkpoint. Raises
    MetadataError if the cluster is new and `bootstrap` contains no metadata.version, and for a level that this release
    does not know."""
    records: list[Message] = []
    if image.transaction is not None:
        records.append(AbortTransactionRecord(reason="Controller failover"))
        image = image.transaction.before
    if METADATA_VERSION in image.features:
        _check(image.features)
    else:
        records += _bootstrap(settings, bootstrap)
    return records


def _check(levels: Mapping[str, int]) -> None:
    try:
        check_finalized(levels)
    except ValueError as error:
        raise MetadataError(str(error)) from None


def _bootstrap(settings: Settings, bootstrap: Sequence[Message]) -> list[Message]:
    levels = bootstrap_levels(bootstrap)
    if METADATA_VERSION not in levels:
        raise MetadataError(NO_LEVELS)
    _check(levels)
    records: list[Message] = [BeginTransactionRecord(name="Bootstrap records"), *bootstrap]
    if levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
        # The eligible leader replicas depend on min.insync.replicas, so its value must be the same on every controller
        # (KIP-966).
        value = str(settings.config.min_insync_replicas)
        records.append(ConfigRecord(resource_type=BROKER, resource_name="", name=MIN_IN_SYNC_REPLICAS, value=value))
    return [*records, EndTransactionRecord()]


def bootstrap_levels(bootstrap: Sequence[Any]) -> dict[str, int]:
    return {each.name: each.feature_level for each in bootstrap if isinstance(each, FeatureLevelRecord)}
