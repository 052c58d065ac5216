"""Features and their levels (KIP-584), as in Apache Kafka 4.3. A cluster uses one finalised level of each feature.

`metadata.version` decides in which version each metadata record is written. This module knows the levels from 3.9-IV0
to 4.3-IV0. A kafkacore node can be formatted with 3.9-IV0 or a later level.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"


class MetadataVersion(NamedTuple):
    """One level of metadata.version. Levels are compared by their numbers."""

    level: int
    name: str  # such as "4.0-IV1"
    # Whether this level has other records than the previous level, so that a downgrade below this level loses metadata.
    changes_records: bool

    @property
    def release(self) -> str:
        """The release, such as `"4.0"` for the level `"4.0-IV1"`."""
        return self.name.partition("-")[0]

    @property
    def elr_supported(self) -> bool:
        """Returns whether records can contain eligible leader replicas (KIP-966)."""
        return self.level >= 23

    @property
    def cordoned_log_dirs_supported(self) -> bool:
        return self.level >= 30

    @property
    def fetch_version(self) -> int:
        """The version of Fetch that followers send."""
        return 18 if self.level >= 27 else 17

    @property
    def list_offsets_version(self) -> int:
        """The version of ListOffsets that followers send."""
        if self.level >= 29:
            return 11
        return 10 if self.level >= 25 else 9

    def record_version(self, record: str) -> int:
        """Returns the version in which a metadata record, such as `"PartitionRecord"`, is written.

        A BrokerRegistrationChangeRecord is an exception. It is written in the lowest version that can contain its
        content: 0 for fencing, 1 for a controlled shutdown, 2 for log directories, 3 for cordoned log directories.
        """
        if record in ("PartitionRecord", "PartitionChangeRecord"):
            return 2 if self.elr_supported else 1
        if record == "RegisterBrokerRecord":
            return 4 if self.cordoned_log_dirs_supported else 3
        return 0


METADATA_VERSIONS: Final = (
    MetadataVersion(21, "3.9-IV0", False),  # ListOffsets 9 (KIP-1005)
    MetadataVersion(22, "4.0-IV0", False),  # group.version 1 by default (KIP-848)
    MetadataVersion(23, "4.0-IV1", True),  # eligible leader replicas in the records (KIP-966)
    MetadataVersion(24, "4.0-IV2", False),  # transaction.version 2 by default (KIP-890)
    MetadataVersion(25, "4.0-IV3", False),  # ListOffsets 10 (KIP-1075)
    MetadataVersion(26, "4.1-IV0", False),  # eligible leader replicas by default
    MetadataVersion(27, "4.1-IV1", False),  # Fetch 18 (KIP-1166)
    MetadataVersion(28, "4.2-IV0", False),  # share.version 1 by default (KIP-932)
    MetadataVersion(29, "4.2-IV1", False),  # streams.version 1 by default (KIP-1071)
    MetadataVersion(30, "4.3-IV0", True),  # cordoned log directories
)
MINIMUM_METADATA_VERSION: Final = METADATA_VERSIONS[0]
LATEST_METADATA_VERSION: Final = METADATA_VERSIONS[-1]


class Feature(NamedTuple):
    """A feature and its levels. `since[n]` is the metadata.version from which on `lowest + n` is the default level."""

    name: str
    lowest: int
    highest: int
    since: tuple[int, ...]
    needs: Mapping[int, Mapping[str, int]]  # level -> the levels of other features that this level requires

    def default_level(self, metadata_version: MetadataVersion) -> int:
        """Returns the feature's level in a cluster formatted at `metadata_version`."""
        reached = [level for level, since in enumerate(self.since, self.lowest) if since <= metadata_version.level]
        return max(reached, default=self.lowest)


_ALWAYS: Final = 0
FEATURES: Final = {
    feature.name: feature
    for feature in (
        Feature(METADATA_VERSION, MINIMUM_METADATA_VERSION.level, LATEST_METADATA_VERSION.level,
                tuple(version.level for version in METADATA_VERSIONS), {}),
        # The level of kraft.version does not depend on metadata.version, but on the kind of quorum: it is 1 if the
        # metadata log holds the voters (KIP-853), and otherwise 0.
        Feature(KRAFT_VERSION, 0, 1, (_ALWAYS,), {}),
        Feature(TRANSACTION_VERSION, 0, 2, (_ALWAYS, 24, 24), {}),
        Feature(GROUP_VERSION, 0, 1, (_ALWAYS, 22), {}),
        Feature(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 1, (_ALWAYS, 26), {1: {METADATA_VERSION: 23}}),
        Feature(SHARE_VERSION, 0, 1, (_ALWAYS, 28), {}),
        Feature(STREAMS_VERSION, 0, 1, (_ALWAYS, 29), {}),
    )
}  # fmt: skip


# The features that a kafkacore node implements. A node keeps other features that an Apache Kafka node has finalised,
# but does not finalise them itself, because clients would then rely on a feature that no node serves.
HONOURED: Final = frozenset({METADATA_VERSION, KRAFT_VERSION, ELIGIBLE_LEADER_REPLICAS_VERSION})


def metadata_version(level: int) -> MetadataVersion:
    """Returns the metadata.version with this feature level. Raises ValueError, whose message lists the known levels."""
    for version in METADATA_VERSIONS:
        if version.level == level:
            return version
    raise ValueError(f"metadata.version {level} is not known; {_known()}")


def parse_metadata_version(text: str) -> MetadataVersion:
    """Returns the metadata.version with a name such as `"4.0-IV1"`. For a release (`"4.0"`, `"4.0.1"`), returns the
    latest level of the release. Raises ValueError."""
    release = ".".join(text.split(".")[:2])
    for version in reversed(METADATA_VERSIONS):
        if release in (version.name, version.release):
            return version
    raise ValueError(f"metadata.version {text!r} is not known; {_known()}")


def default_levels(version: MetadataVersion) -> dict[str, int]:
    """Returns the default level of every feature, including features at level 0, for a cluster that Apache Kafka
    formats at `version`."""
    return {name: feature.default_level(version) for name, feature in FEATURES.items()} | {
        METADATA_VERSION: version.level
    }


def honoured_levels(version: MetadataVersion) -> dict[str, int]:
    """Returns the level of every feature for a cluster that kafkacore formats at `version`. A feature that kafkacore
    does not implement stays at its lowest level."""
    defaults = default_levels(version)
    return {name: level if name in HONOURED else FEATURES[name].lowest for name, level in defaults.items()}


def validate_levels(levels: Mapping[str, int]) -> None:
    """Raises ValueError for an unknown feature, for a level outside the feature's range, and for a level whose
    dependencies are not met."""
    for name, level in levels.items():
        feature = FEATURES.get(name)
        if feature is None:
            raise ValueError(f"feature {name!r} is not known; the features are {', '.join(sorted(FEATURES))}")
        if not feature.lowest <= level <= feature.highest:
            raise ValueError(f"{name} {level} is not supported; levels {feature.lowest} to {feature.highest} are")
        for other, needed in feature.needs.get(level, {}).items():
            if levels.get(other, 0) < needed:
                raise ValueError(f"{name} {level} needs {other} {needed} or later, not {levels.get(other, 0)}")


def check_finalized(levels: Mapping[str, int]) -> None:
    """Checks that this release knows the finalised features of a cluster. Raises ValueError, which names the feature
    and the remedy."""
    for name, level in levels.items():
        feature = FEATURES.get(name)
        if feature is None:
            raise ValueError(f"{name} {level} is finalised, but this release does not know it: run a release that does")
        if level < feature.lowest:
            raise ValueError(
                f"{name} {level} is finalised, and {_known()} known here: raise it with Apache Kafka first "
                f"(kafka-features upgrade --release-version {MINIMUM_METADATA_VERSION.release})"
            )
        if level > feature.highest:
            known = _known() if name == METADATA_VERSION else f"{feature.lowest} to {feature.highest} are"
            raise ValueError(
                f"{name} {level} is finalised, but only {known} known here: run a release that knows this level"
            )


def _known() -> str:
    return (
        f"{MINIMUM_METADATA_VERSION.name} ({MINIMUM_METADATA_VERSION.level}) to "
        f"{LATEST_METADATA_VERSION.name} ({LATEST_METADATA_VERSION.level}) are"
    )
