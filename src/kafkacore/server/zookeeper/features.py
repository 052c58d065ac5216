"""Reads the finalized features from `/feature` in ZooKeeper mode, and watches that znode (KIP-584, Kafka's
FinalizedFeatureChangeListener). This module runs on the controllers' loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from kafkacore.metadata.records import MetadataError
from kafkacore.server.zookeeper.session import BrokerSession
from kafkacore.server.zookeeper.znode_watch import RETRY_S, ZnodeWatch
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import Code, Exists, GetData

LOG: Final = logging.getLogger("kafkacore.server")
NO_EPOCH: Final = -1


class FeatureWatch(ZnodeWatch):
    """Follows the finalized features. After each read, passes their levels and their epoch to `apply`. The epoch is the
    version of the znode, or NO_EPOCH if the znode does not exist or is disabled.

    `supported` maps the name of a feature to its lowest and highest supported level. The watch also calls `on_fault` if
    the cluster has finalized a level that is not supported.
    """

    def __init__(
        self,
        session: BrokerSession,
        supported: Mapping[str, tuple[int, int]],
        apply: Callable[[Mapping[str, int], int], None],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        super().__init__(session, paths.FEATURE, on_fault)
        self._supported = supported
        self._apply = apply

    async def _read_all(self) -> None:
        # `Exists` sets the watch even if the znode does not exist. The watch is set first, so that no change is missed.
        watched, found = await self._session.sure([Exists(paths.FEATURE, watch=True), GetData(paths.FEATURE)])
        for code in (watched.code, found.code):
            if code not in (Code.OK, Code.NO_NODE):
                LOG.warning("%s: %s; the broker reads it again in %.0f s", paths.FEATURE, code.name, RETRY_S)
                self._read_later()
                return
        levels: Mapping[str, int] = {}
        epoch = NO_EPOCH
        if found.is_ok:
            data, stat = found.value
            try:
                features = znodes.decode_features(data)
            except znodes.MalformedZnodeError as error:
                LOG.warning("%s cannot be read, so the broker has no finalized features: %s", paths.FEATURE, error)
            else:
                if features.is_enabled:
                    levels, epoch = features.levels, stat.version
        if refused := [f"{name}={level}" for name, level in levels.items() if not self._supports(name, level)]:
            self._on_fault(
                MetadataError(
                    f"{paths.FEATURE} has finalized features that this node does not support: {', '.join(refused)}. "
                    "Disable them with kafka-features, and start the node again"
                )
            )
            return
        self._apply(levels, epoch)

    def _supports(self, name: str, level: int) -> bool:
        least, most = self._supported.get(name, (0, 0))
        return least <= level <= most
