"""UpdateFeatures: changes the feature levels that the cluster agrees to use (KIP-584, KIP-1022)."""

from __future__ import annotations

from typing import Any, Final, Protocol

from kafkacore.controller.quorum.decisions import MIN_IN_SYNC_REPLICAS, Decision, Settings, limit_records
from kafkacore.metadata.image import BROKER, MetadataImage
from kafkacore.metadata.partitions import CHUNK_ROWS, RECOVERING
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURES,
    HONOURED,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
)
from kafkacore.protocol.messages import (
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    Message,
    PartitionChangeRecord,
    UpdateFeaturesResponse,
)
from kafkacore.runtime.slices import Work

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
_RESULTS_UNTIL: Final = 1  # the last version with a result for each feature
_DOWNGRADE_ALLOWED_UNTIL: Final = 0  # the last version with a boolean instead of upgrade types
Result = UpdateFeaturesResponse.UpdatableFeatureResult


class Quorum(Protocol):
    @property
    def kraft_version(self) -> int: ...
    def members(self) -> frozenset[int]: ...
    def why_not_dynamic(self) -> str | None: ...


def update_features(
    image: MetadataImage, settings: Settings, request: Any, api_version: int, quorum: Quorum
) -> Work[Decision]:
    """Updates all features or none. If an update is refused, the response contains the first error. The decision
    contains no record for kraft.version, because the quorum writes that record itself."""
    updates, levels = {}, dict(image.features)
    for each in request.feature_updates:
        yield
        updates[each.feature], levels[each.feature] = each, each.max_version_level
    records: list[Message] = []
    try:
        for each in updates.values():
            yield
            current = quorum.kraft_version if each.feature == KRAFT_VERSION else image.features.get(each.feature, 0)
            kind = each.upgrade_type
            if api_version <= _DOWNGRADE_ALLOWED_UNTIL:
                kind = SAFE_DOWNGRADE if each.allow_downgrade else UPGRADE
            _check_level(image, settings, quorum, each.feature, each.max_version_level, current, kind)
            if each.feature == KRAFT_VERSION and each.max_version_level > current and (why := quorum.why_not_dynamic()):
                raise _refused(each.feature, each.max_version_level, why)
            if each.feature == METADATA_VERSION:
                _check_metadata_version(current, each.max_version_level, kind)
            elif each.feature == KRAFT_VERSION:
                continue
            else:
                _check_dependencies(each.feature, each.max_version_level, levels)
            records.append(FeatureLevelRecord(name=each.feature, feature_level=each.max_version_level))
    except KafkaError as error:
        problem = f"The update failed for all features since the following feature had an error: {error}"
        return Decision([], UpdateFeaturesResponse(error_code=error.code, error_message=problem))
    response = UpdateFeaturesResponse(error_message=None)
    if api_version <= _RESULTS_UNTIL:
        response.results = [Result(feature=each.feature, error_message=None) for each in updates.values()]
    enabled = levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0
    if enabled is not image.elr_enabled:
        first = _least_isr(image, settings) if enabled else (yield from _without_elr(image))
        records = [*first, *records]
        limit_records(len(records))
    return Decision([] if request.validate_only else records, response)


def _refused(name: str, level: int, why: str) -> KafkaError:
    return error_for(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {why}")


def _check_level(
    image: MetadataImage, settings: Settings, quorum: Quorum, name: str, level: int, current: int, kind: int
) -> None:
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refused(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _refused(name, level, "A feature version cannot be less than 0.")
    problem = _unsupported(image, settings, quorum, name, level)
    if problem is None and level < current and kind == UPGRADE:
        problem = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if problem is None and level > current and kind != UPGRADE:
        problem = "Can't downgrade to a newer version."
    if problem is None and name == KRAFT_VERSION and level < current:
        problem = "Can't downgrade the version of this feature."
    if problem is None and level > current and name not in HONOURED:
        problem = (
            "kafkacore does not implement this feature yet, so clients must not rely on it. Raise the other features "
            "by name, for example with --feature metadata.version=LEVEL."
        )
    if problem is not None:
        raise _refused(name, level, problem)


def _unsupported(image: MetadataImage, settings: Settings, quorum: Quorum, name: str, level: int) -> str | None:
    """Returns the reason why the cluster cannot use this level, or None if every node supports it. A node that does not
    know the feature supports level 0, which means off.

    No request removes the registration of a controller. So only controllers that belong to the quorum count. In Apache
    Kafka 4.3 a removed controller of an older release prevents every later upgrade.
    """
    feature = FEATURES.get(name)
    own = (0, 0) if feature is None else (feature.lowest, feature.highest)
    nodes = [(f"Local controller {settings.config.node_id}", own)]
    nodes += [(f"Broker {key}", _range(each, name)) for key, each in sorted(image.brokers.items())]
    there = quorum.members() - {settings.config.node_id}
    others = [(key, each) for key, each in sorted(image.controllers.items()) if key in there]
    nodes += [(f"Controller {key}", _range(each, name)) for key, each in others]
    for who, (lowest, highest) in nodes:
        if (lowest, highest) == (0, 0) and level > 0:
            return f"{who} does not support this feature."
        if not lowest <= level <= highest:
            return f"{who} only supports versions {lowest}-{highest}"
    return None


def _range(node: Any, name: str) -> tuple[int, int]:
    found: tuple[int, int] = node.features.get(name, (0, 0))
    return found


def _check_metadata_version(current: int, level: int, kind: int) -> None:
    if level >= current:
        return
    changes = any(version.changes_records for version in METADATA_VERSIONS if level < version.level <= current)
    if changes:
        why = (
            "Unsafe metadata downgrade is not supported in this version."
            if kind == UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
        problem = f"Unsupported metadata.version downgrade from {current} to {level}. {why}"
        raise error_for(ErrorCode.INVALID_UPDATE_VERSION, problem)


def _check_dependencies(name: str, level: int, levels: dict[str, int]) -> None:
    feature = FEATURES.get(name)
    if feature is None:
        # An unknown feature is refused even at level 0.
        raise _refused(name, level, f"Feature {name} not found.")
    for other, needed in feature.needs.get(level, {}).items():
        if levels.get(other, 0) < needed:
            why = f"{name} {level} needs {other} {needed} or later, not {levels.get(other, 0)}."
            raise _refused(name, level, why)


def _without_elr(image: MetadataImage) -> Work[list[Message]]:
    """Returns the records that replace all ELRs before the feature is turned off. Afterwards nobody updates an ELR.

    Without the feature, an ISR keeps its last member. If an ISR stayed empty, only an unclean election could give the
    partition a leader. So an empty ISR gets the last known leader, or another replica of the ELR if the last known
    leader is not eligible. If the ELR is empty too, the last known leader will lead as recovering. Apache Kafka 4.3
    leaves the ISRs and ELRs as they are.
    """
    records: list[Message] = []
    found = False
    for number, chunk in enumerate(image.partition_chunks):
        for index, rare in chunk.rare.items():
            yield
            if not rare.elr and not rare.last_known_elr:
                continue
            found = True
            row = image.partition_at(number * CHUNK_ROWS + index)
            last = [each for each in row.last_known_elr if each in (row.elr or row.replicas)]
            if row.isr or not (last or row.elr):
                continue
            change = PartitionChangeRecord(topic_id=image.topic_at(row.topic_row).topic_id)
            change.partition_id, change.isr = row.partition, (last or list(row.elr))[:1]
            if not row.elr and row.recovery_state != RECOVERING:
                change.leader_recovery_state = RECOVERING
            records.append(change)
    return [*records, ClearElrRecord(topic_name="")] if found else []


def _least_isr(image: MetadataImage, settings: Settings) -> list[Message]:
    """Returns the records that ELR requires: min.insync.replicas must be the same on every controller, and no broker
    may have its own value (KIP-966)."""
    records: list[Message] = []
    if MIN_IN_SYNC_REPLICAS not in image.config(BROKER, ""):
        value = str(
            settings.config.static.get(MIN_IN_SYNC_REPLICAS, settings.config.keys[MIN_IN_SYNC_REPLICAS].default)
        )
        records.append(ConfigRecord(resource_type=BROKER, resource_name="", name=MIN_IN_SYNC_REPLICAS, value=value))
    for (kind, name), values in sorted(image.configs.items(), key=lambda item: item[0]):
        if kind == BROKER and name and MIN_IN_SYNC_REPLICAS in values:
            records.append(
                ConfigRecord(resource_type=BROKER, resource_name=name, name=MIN_IN_SYNC_REPLICAS, value=None)
            )
    return records
