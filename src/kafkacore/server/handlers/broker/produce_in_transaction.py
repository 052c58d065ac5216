"""Verifies the batches of a transactional producer with the transaction coordinator before they are appended
(KIP-890)."""

from __future__ import annotations

import struct
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.server.context import BrokerContext

if TYPE_CHECKING:
    from kafkacore.server.handlers.broker.produce import Part

# The positions of fields in a batch of magic 2. The producer's fields are its id, its epoch and the base sequence.
_HEADER_BYTES: Final = 61
_MAGIC_AT: Final = 16
_ATTRIBUTES: Final = struct.Struct(">h"), 21
_PRODUCER: Final = struct.Struct(">qhi"), 43
_TRANSACTIONAL: Final = 0x10
NO_SEQUENCE: Final = -1


class Producer(NamedTuple):
    producer_id: int
    epoch: int


def producer_of(records: bytes | memoryview | None) -> tuple[Producer | None, int]:
    """Returns the producer and the base sequence of a transactional batch. The producer is None for any other batch and
    for bytes that are not a batch."""
    if records is None or len(records) < _HEADER_BYTES or records[_MAGIC_AT] != 2:
        return None, NO_SEQUENCE
    shape, at = _ATTRIBUTES
    if not shape.unpack_from(records, at)[0] & _TRANSACTIONAL:
        return None, NO_SEQUENCE
    shape, at = _PRODUCER
    producer_id, epoch, sequence = shape.unpack_from(records, at)
    return Producer(producer_id, epoch) if producer_id >= 0 else None, sequence


async def verify(
    broker: BrokerContext, call: RequestContext, transactional_id: str, parts: list[Part], checks: AsyncExitStack
) -> None:
    """Sets `producer`, `sequence` and `check` of each part that has a transactional batch. If a batch must not be
    appended, the part's answer gets an error. The checks end when the stack `checks` is closed."""
    for part in parts:
        if part.partition is not None and part.answer.error_code == ErrorCode.NONE:
            part.producer, part.sequence = producer_of(part.data.records)
    transactional = [part for part in parts if part.producer is not None]
    if len({part.producer for part in transactional}) > 1:
        for part in transactional:
            part.answer.error_code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return
    transactions = broker.transactions
    asked: dict[tuple[str, int], Part] = {}
    for part in transactional:
        assert part.partition is not None
        assert part.producer is not None
        part.check = await checks.enter_async_context(transactions.checking(part.partition, part.producer.producer_id))
        if not transactions.is_verified(part.partition, *part.producer):
            transactions.verifying(part.partition, *part.producer, part.sequence)
            asked[part.partition.topic, part.partition.index] = part
    if not asked:
        return
    producer = next(iter(asked.values())).producer
    assert producer is not None
    refused = await transactions.verify(transactional_id, *producer, list(asked), call.api_version)
    for place, (error, message) in refused.items():
        asked[place].answer.error_code = error
        asked[place].answer.error_message = message
