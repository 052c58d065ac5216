"""Reads the registrations of brokers in `/brokers/ids`, and checks whether a broker supports the finalized features."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from kafkacore.controller.zookeeper.access import Access
from kafkacore.controller.zookeeper.surroundings import LiveBroker
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import Code, GetData, Operation, ZooKeeperError
from kafkacore.zookeeper.znodes import MalformedZnodeError

LOG: Final = logging.getLogger("kafkacore.controller")


class Registrations:
    """Reads the registrations of many brokers at once, and watches their znodes."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def read(self, broker_ids: Sequence[int]) -> dict[int, LiveBroker]:
        """Returns the registered brokers. A broker whose znode cannot be read counts as not registered."""
        operations: list[Operation] = [GetData(paths.broker(broker_id), watch=True) for broker_id in broker_ids]
        found = {}
        for broker_id, result in zip(broker_ids, await self._access.read(operations), strict=True):
            if result.code is Code.NO_NODE:
                continue
            if not result.is_ok:
                raise ZooKeeperError(result.code, paths.broker(broker_id))
            data, stat = result.value
            try:
                registration = znodes.decode_broker(broker_id, data)
            except MalformedZnodeError as error:
                LOG.warning("broker %d is ignored, because its registration cannot be read: %s", broker_id, error)
                continue
            found[broker_id] = LiveBroker(broker_id, stat.czxid, registration)
        return found


def broker_ids(names: Sequence[str]) -> list[int]:
    """Returns the broker ids among the children of `/brokers/ids`. Leaves out ids above 2^31 - 1, which requests to
    brokers cannot contain."""
    return sorted(
        int(name) for name in names
        if name.isascii() and name.isdigit() and len(name) <= 10 and int(name) <= znodes.INT32[1]
    )  # fmt: skip


def fits(broker: LiveBroker, finalized: Mapping[str, int]) -> bool:
    """Returns whether the broker supports every finalized feature (KIP-584)."""
    features = broker.registration.features
    return all(name in features and level <= features[name][1] for name, level in finalized.items())
