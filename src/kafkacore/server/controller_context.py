"""The parts of a controller that its handlers can use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkacore.config import BrokerConfig
from kafkacore.controller.quorum.controller import QuorumController
from kafkacore.metadata.image import MetadataImage
from kafkacore.protocol.apis import ApiRange
from kafkacore.protocol.features import KRAFT_VERSION
from kafkacore.raft.driver import RaftDriver
from kafkacore.server.dispatch import Dispatcher
from kafkacore.server.features import supported_features


class ControllerContext:
    """The parts of a controller for its handlers. Belongs to the controller plane's loop."""

    def __init__(self, node_id: int, cluster_id: str, quorum: QuorumController, raft: RaftDriver) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.quorum = quorum
        self.raft = raft
        self.dispatcher: Dispatcher
        self.api_ranges: Sequence[ApiRange] = ()
        self.values_in_effect: Mapping[str, str] = {}

    @property
    def config(self) -> BrokerConfig:
        """The configuration, including changes made at run time."""
        return self.quorum.config

    @property
    def image(self) -> MetadataImage:
        return self.quorum.image

    def topic_overrides(self, name: str) -> Mapping[str, str] | None:
        image = self.image
        return None if image.topic(name) is None else image.topic_overrides(name)

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        return supported_features()

    @property
    def finalized_features(self) -> Mapping[str, int]:
        return {**self.quorum.image.features, KRAFT_VERSION: self.raft.kraft_version}

    @property
    def finalized_epoch(self) -> int:
        return self.quorum.image.offset
