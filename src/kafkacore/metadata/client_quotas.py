"""The client quotas that result from the ClientQuotaRecords in an image (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafkacore.metadata.image import MetadataImage

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
RECORD: Final = "ClientQuotaRecord"

# Each entity is a tuple of pairs (kind, name), ordered by kind. The name None means the default, which applies to all
# entities that have no quotas of their own.
Entity = tuple[tuple[str, str | None], ...]


def entity_of(data: Iterable[Any]) -> Entity:
    """Returns the entity in the EntityData of a request or a record. If a kind occurs twice, the last entry counts."""
    return tuple(sorted({each.entity_type: each.entity_name for each in data}.items()))


def kept_key(entity: Entity, quota: str) -> tuple[str, Entity, str]:
    """Returns the key under which an image stores the record of a quota."""
    return RECORD, entity, quota


def client_quotas(image: MetadataImage) -> Mapping[Entity, Mapping[str, float]]:
    """Returns the quotas of each entity."""
    found: dict[Entity, dict[str, float]] = {}
    for key, record in image.kept.items():
        if key[0] == RECORD:
            found.setdefault(key[1], {})[record.key] = record.value
    return found


def quota_of(image: MetadataImage, entity: Entity, quota: str) -> float | None:
    record = image.kept.get(kept_key(entity, quota))
    return None if record is None else float(record.value)
