"""Allocates blocks of producer ids if inter.broker.protocol.version is below 3.0. Every broker takes its own blocks
from `/latest_producer_id_block`. If several brokers do so at once, the version of the znode lets only one of them
succeed (Kafka's ZkProducerIdManager)."""

from __future__ import annotations

from typing import Final

from kafkacore.controller.zookeeper.producer_ids import BLOCK_SIZE, MAX_ATTEMPTS, block_write, next_block
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.server.producer_ids import ProducerIdBlock
from kafkacore.server.zookeeper.session import BrokerSession
from kafkacore.zookeeper import paths
from kafkacore.zookeeper.operations import Code, GetData

# If the connection breaks, the broker does not know whether the block was allocated, so it takes the next block.
_AGAIN: Final = (Code.BAD_VERSION, Code.NODE_EXISTS, Code.CONNECTION_LOSS)


async def allocate(session: BrokerSession) -> ProducerIdBlock:
    """Allocates the next block. Runs on the session's loop. Raises KafkaError."""
    for _ in range(MAX_ATTEMPTS):
        [found] = await session.sure([GetData(paths.PRODUCER_ID_BLOCK)])
        if found.code not in (Code.OK, Code.NO_NODE):
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{paths.PRODUCER_ID_BLOCK}: {found.code.name}")
        block, version = next_block(session.broker_id, found.value if found.is_ok else None)
        [written] = await session.client.submit([block_write(block, version, session.acl)])
        if written.is_ok:
            return ProducerIdBlock(block.first, BLOCK_SIZE)
        if written.code not in _AGAIN:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{paths.PRODUCER_ID_BLOCK}: {written.code.name}")
    raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "other nodes keep changing the block of producer ids")
