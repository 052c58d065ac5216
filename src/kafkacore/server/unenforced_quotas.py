"""Client quotas (KIP-546) are stored but not enforced yet. This module logs each of them once."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from kafkacore.metadata.client_quotas import RECORD, Entity
from kafkacore.metadata.delta import MetadataDelta
from kafkacore.metadata.image import MetadataImage

LOG: Final = logging.getLogger("kafkacore.server")
_NAMED_AT_ONCE: Final = 5


class UnenforcedQuotas:
    """Logs client quotas. Belongs to the broker's loop."""

    def __init__(self) -> None:
        self._named: set[tuple[Any, ...]] = set()

    def apply(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """Warns about the quotas that are new in this image. `delta` is None if everything may have changed."""
        changed: Iterable[tuple[Any, ...]] = image.kept if delta is None else delta.kept
        added = [key for key in changed if key[0] == RECORD and key in image.kept and key not in self._named]
        if not added:
            return
        self._named = {key for key in self._named if key in image.kept} | set(added)
        named = ", ".join(f"{quota} of {_shown(entity)}" for _, entity, quota in added[:_NAMED_AT_ONCE])
        more = len(added) - _NAMED_AT_ONCE
        LOG.warning(
            "client quotas are stored but not enforced by this node: %s%s",
            named,
            f", and {more} more" if more > 0 else "",
        )


def _shown(entity: Entity) -> str:
    return " and ".join(f"{kind} {'<default>' if name is None else repr(name)}" for kind, name in entity)
