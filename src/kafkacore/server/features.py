"""The feature levels that this release supports, in the form that registrations and ApiVersions use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kafkacore.protocol.features import FEATURES


@cache
def supported_features() -> Mapping[str, tuple[int, int]]:
    """Returns the lowest and highest level of each feature, by name."""
    return {name: (feature.lowest, feature.highest) for name, feature in FEATURES.items()}
