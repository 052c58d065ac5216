"""AllocateProducerIds: blocks of producer ids from `/latest_producer_id_block` (KIP-730).

Below inter.broker.protocol.version 3.0 every broker changes the znode itself, so each write is conditional on the
version of the znode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kafkacore.controller.zookeeper.events import Priority, Request
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import AllocateProducerIdsResponse
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.fenced import Write
from kafkacore.zookeeper.operations import Acl, Code, Create, GetData, SetData, ZooKeeperError
from kafkacore.zookeeper.znodes import MalformedZnodeError, ProducerIdBlock

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

BLOCK_SIZE: Final = 1000
MAX_ATTEMPTS: Final = 16
_HIGHEST: Final = (1 << 63) - 1


class AllocateProducerIds(Request):
    """Handles AllocateProducerIdsRequest, version 0."""

    priority: ClassVar = Priority.LEADERSHIP
    state: ClassVar = "Idle"  # Kafka has no state for this event

    async def decide(self, controller: ZooKeeperController) -> Any:
        broker = controller.context.brokers.get(self.request.broker_id)
        if broker is None:
            return AllocateProducerIdsResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
        if broker.epoch != self.request.broker_epoch:
            return AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        for _ in range(MAX_ATTEMPTS):
            (found,) = await controller.access.read([GetData(paths.PRODUCER_ID_BLOCK)])
            block, version = next_block(broker.broker_id, found.value if found.is_ok else None)
            write = block_write(block, version, controller.settings.acl)
            (result,) = await controller.access.write([write], controller.context.epoch_version)
            if result.is_ok:
                return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=BLOCK_SIZE)
            if result.code not in (Code.BAD_VERSION, Code.NODE_EXISTS):
                raise ZooKeeperError(result.code, paths.PRODUCER_ID_BLOCK)
        raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "other nodes keep changing the block of producer ids")


def next_block(broker_id: int, found: Any) -> tuple[ProducerIdBlock, int | None]:
    """Returns the block after the latest block, and the version of the znode that holds the latest block. The version
    is None if there is no znode."""
    if found is None:
        return ProducerIdBlock(broker_id, 0, BLOCK_SIZE - 1), None
    data, stat = found
    if not data:  # a broker has created the znode, but no block has been allocated yet
        return ProducerIdBlock(broker_id, 0, BLOCK_SIZE - 1), stat.version
    try:
        latest = znodes.decode_producer_id_block(data)
    except MalformedZnodeError as error:
        raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"{paths.PRODUCER_ID_BLOCK} cannot be read: {error}") from error
    if latest.last > _HIGHEST - BLOCK_SIZE:
        raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"all producer ids are in use, up to {latest.last}")
    return ProducerIdBlock(broker_id, latest.last + 1, latest.last + BLOCK_SIZE), stat.version


def block_write(block: ProducerIdBlock, version: int | None, acl: Callable[[str], Sequence[Acl]]) -> Write:
    data, path = znodes.encode_producer_id_block(block), paths.PRODUCER_ID_BLOCK
    if version is None:
        return Create(path, data, acl=acl(path))
    return SetData(path, data, version)
