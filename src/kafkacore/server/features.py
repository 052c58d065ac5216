"""The feature levels that this release supports, as registrations and ApiVersions carry them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kafkacore.protocol.features import FEATURES


@cache
def supported_features() -> Mapping[str, tuple[int, int]]:
    """Lowest and highest level by name."""
    return {name: (feature.lowest, feature.highest) for name, feature in FEATURES.items()}
