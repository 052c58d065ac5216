"""UpdateFeatures, and the finalized features in `/feature` (KIP-584)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kafkacore.controller.zookeeper import registrations
from kafkacore.controller.zookeeper.events import Priority, Request
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import UpdateFeaturesResponse
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.fenced import Write
from kafkacore.zookeeper.operations import Create, SetData
from kafkacore.zookeeper.znodes import Features, MalformedZnodeError

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

LOG: Final = logging.getLogger("kafkacore.controller")
UPGRADE, SAFE_DOWNGRADE = 1, 2
_UPGRADE_TYPES: Final = (UPGRADE, SAFE_DOWNGRADE, 3)


class UpdateFeatures(Request):
    """Handles UpdateFeaturesRequest, versions 0 and 1."""

    priority: ClassVar = Priority.TOPICS
    state: ClassVar = "UpdateFeatures"

    async def decide(self, controller: ZooKeeperController) -> Any:
        if not controller.settings.inter_broker_protocol.has_feature_versions:
            raise error_for(ErrorCode.INVALID_REQUEST, "Feature versioning system is disabled.")
        existing = controller.context.finalized_features
        target, problems = dict(existing), {}
        for update in self.request.feature_updates:
            upgrade_type = update.upgrade_type
            if self.api_version == 0:
                upgrade_type = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
            problem = self._problem(controller, update, upgrade_type, existing.get(update.feature))
            if problem is not None:
                problems[update.feature] = problem
            elif update.max_version_level < 1:
                target.pop(update.feature, None)  # a request may name a feature twice
            else:
                target[update.feature] = update.max_version_level
        failed = target != existing and not await write(controller, target)
        return UpdateFeaturesResponse(
            results=[_result(update.feature, problems, failed) for update in self.request.feature_updates]
        )

    def _problem(
        self, controller: ZooKeeperController, update: Any, upgrade_type: int, existing: int | None
    ) -> str | None:
        """Returns the reason to refuse one update, or None. The checks have the same order as in Apache Kafka 3.9."""
        level = update.max_version_level
        if not update.feature:
            return "Feature name can not be empty."
        if upgrade_type not in _UPGRADE_TYPES:
            return "Received unknown upgrade type."
        if level < 1 and upgrade_type != UPGRADE:
            return "Can not delete non-existing finalized feature." if existing is None else None
        if level < 1:
            return (
                f"Can not provide versionLevel: {level} less than 1 without setting the SAFE downgradeType in the "
                "request."
            )
        if existing is not None and (problem := _step_problem(level, existing, upgrade_type)) is not None:
            return problem
        supported = controller.settings.supported_features.get(update.feature)
        if supported is None:
            return "Could not apply finalized feature update because the provided feature is not supported."
        if not supported[0] <= level <= supported[1]:
            return (
                f"Could not apply finalized feature update because the provided versionLevel:{level} is lower than the "
                f"supported minVersion:{supported[0]}."
            )
        brokers = controller.context.brokers.values()
        if not all(registrations.fits(broker, {update.feature: level}) for broker in brokers):
            return (
                "Could not apply finalized feature update because brokers were found to have incompatible versions for "
                "the feature."
            )
        return None


def _step_problem(level: int, existing: int, upgrade_type: int) -> str | None:
    if level == existing:
        verb = "downgrade" if upgrade_type == SAFE_DOWNGRADE else "upgrade"
        return f"Can not {verb} a finalized feature from existing versionLevel:{existing} to the same value."
    if level < existing and upgrade_type != SAFE_DOWNGRADE:
        return (
            f"Can not downgrade finalized feature from existing versionLevel:{existing} to provided "
            f"versionLevel:{level} without setting the downgradeType to SAFE in the request."
        )
    if level > existing and upgrade_type != UPGRADE:
        return (
            f"When the downgradeType is set to SAFE in the request, the provided versionLevel:{level} can not be "
            f"greater than existing versionLevel:{existing}."
        )
    return None


def _result(feature: str, problems: Mapping[str, str], failed: bool) -> Any:
    code, message = ErrorCode.NONE, None
    if feature in problems:
        code, message = ErrorCode.INVALID_REQUEST, problems[feature]
    elif failed:
        code = ErrorCode.FEATURE_UPDATE_FAILED
    return UpdateFeaturesResponse.UpdatableFeatureResult(feature=feature, error_code=code, error_message=message)


async def set_up(controller: ZooKeeperController) -> None:
    """Creates or enables the znode `/feature` when a controller takes over. If `inter.broker.protocol.version` is below
    2.7-IV0, disables the znode instead (maybeSetupFeatureVersioning)."""
    enabled = controller.settings.inter_broker_protocol.has_feature_versions
    found = await controller.topics.contents([paths.FEATURE])
    known: Features | None = None
    if found:
        try:
            known = znodes.decode_features(found[paths.FEATURE])
        except MalformedZnodeError as error:
            LOG.warning("%s cannot be read, and is written anew: %s", paths.FEATURE, error)
    levels = known.levels if known is not None and known.is_enabled and enabled else {}
    controller.context.finalized_features = dict(levels)
    if known is None or known.is_enabled != enabled or (not enabled and known.levels):
        await write(controller, levels, exists=bool(found))


async def write(controller: ZooKeeperController, levels: Mapping[str, int], *, exists: bool = True) -> bool:
    """Writes the new levels to ZooKeeper and then to the context. Returns whether the write succeeded."""
    protocol, path = controller.settings.inter_broker_protocol, paths.FEATURE
    data = znodes.encode_features(
        Features(2 if protocol.since("3.3-IV0") else 1, protocol.has_feature_versions, levels)
    )
    node: Write = SetData(path, data) if exists else Create(path, data, acl=controller.settings.acl(path))
    (result,) = await controller.access.write([node], controller.context.epoch_version)
    if result.is_ok:
        controller.context.finalized_features = dict(levels)
    else:
        LOG.error("the features stay as they are: ZooKeeper answers %s", result.code.name)
    return result.is_ok
