"""The parts that only the handlers of a broker in ZooKeeper mode use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacore.server.zookeeper.control_requests import ControlRequests

if TYPE_CHECKING:
    from kafkacore.server.zookeeper.controller import LocalController


class ZooKeeperParts:
    def __init__(self, requests: ControlRequests, controller: LocalController) -> None:
        self.requests = requests
        self.controller = controller
        self.finalized_features: Mapping[str, int] = {}  # as in the znode `/feature`
        self.knows_topics = requests.knows_topics
