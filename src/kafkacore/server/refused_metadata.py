"""Detects clusters that this broker must not serve."""

from __future__ import annotations

from typing import Final

from kafkacore.config import BrokerConfig
from kafkacore.metadata.delta import MetadataDelta
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.records import MetadataError

_ACL: Final = "AccessControlEntryRecord"


def check_served(config: BrokerConfig, image: MetadataImage, delta: MetadataDelta | None = None) -> None:
    """Raises MetadataError for features that this release does not know, and for ACLs, which this release does not
    enforce. `delta` contains the changes since the last check."""
    if delta is None or delta.features:
        image.check_features()
    if config.ignore_acls or (delta is not None and not delta.kept):
        return
    count = sum(key[0] == _ACL for key in image.kept)
    if count:
        raise MetadataError(
            f"the cluster has {count} ACL(s), but this node does not enforce them: every client could do everything "
            "here. Remove them with kafka-acls, or set ignore.acls=true"
        )
