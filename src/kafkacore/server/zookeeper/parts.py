"""The parts that only the handlers of a broker in ZooKeeper mode use."""

from __future__ import annotations

import asyncio
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
        # Set when the broker has heard from the controller which topics exist, or has waited long enough.
        self.knows_topics = asyncio.Event()
