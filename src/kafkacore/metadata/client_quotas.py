"""Client quotas in an image (KIP-546): the sum of its ClientQuotaRecords."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafkacore.metadata.image import MetadataImage

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
RECORD: Final = "ClientQuotaRecord"

# Kinds and names, in the order of the kinds. The name None stands for the default of all entities without quotas of
# their own.
Entity = tuple[tuple[str, str | None], ...]


def entity_of(data: Iterable[Any]) -> Entity:
    """The entity in the EntityData of a request or a record. The last of two entries of one kind counts."""
    return tuple(sorted({each.entity_type: each.entity_name for each in data}.items()))


def kept_key(entity: Entity, quota: str) -> tuple[str, Entity, str]:
    """The key of a quota's record in an image."""
    return RECORD, entity, quota


def client_quotas(image: MetadataImage) -> Mapping[Entity, Mapping[str, float]]:
    """Quotas by entity."""
    found: dict[Entity, dict[str, float]] = {}
    for key, record in image.kept.items():
        if key[0] == RECORD:
            found.setdefault(key[1], {})[record.key] = record.value
    return found


def quota_of(image: MetadataImage, entity: Entity, quota: str) -> float | None:
    record = image.kept.get(kept_key(entity, quota))
    return None if record is None else float(record.value)
