"""Batches of a transactional producer and of its coordinator (KIP-98). Tests append them as a follower does."""

import struct

from kafkacore._fast.record.batch import RecordBatchBuilder

ABORT, COMMIT = 0, 1


def records(base_offset, producer_id, count=2, timestamp_ms=1_700_000_000_000, sequence=0, value_bytes=100):
    builder = RecordBatchBuilder(
        base_offset=base_offset, partition_leader_epoch=0, producer_id=producer_id, producer_epoch=0,
        base_sequence=sequence, transactional=True,
    )  # fmt: skip
    for _ in range(count):
        builder.append(timestamp_ms, None, b"v" * value_bytes)
    return bytes(builder.build())


def marker(base_offset, producer_id, kind, timestamp_ms=1_700_000_000_000):
    builder = RecordBatchBuilder(
        base_offset=base_offset, partition_leader_epoch=0, producer_id=producer_id, producer_epoch=0,
        transactional=True, control=True,
    )  # fmt: skip
    builder.append(timestamp_ms, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 7))
    return bytes(builder.build())
