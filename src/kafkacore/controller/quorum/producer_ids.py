"""AllocateProducerIds: allocates blocks of producer ids. A block is durable before its first id is used (KIP-730)."""

from __future__ import annotations

from typing import Any, Final

from kafkacore.controller.quorum.cluster import check_epoch
from kafkacore.controller.quorum.decisions import Decision
from kafkacore.metadata.image import MetadataImage
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import AllocateProducerIdsResponse, ProducerIdsRecord

BLOCK_SIZE: Final = 1000
_HIGHEST: Final = (1 << 63) - 1


def allocate(image: MetadataImage, request: Any) -> Decision:
    """Allocates a block. Raises STALE_BROKER_EPOCH, and UNKNOWN_SERVER_ERROR if there are no ids left."""
    check_epoch(image, request.broker_id, request.broker_epoch)
    first = 0 if image.next_producer_id is None else image.next_producer_id.next_producer_id
    if first > _HIGHEST - BLOCK_SIZE:
        raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"no producer ids are left: {first} would be the next one")
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision([record], AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE))
