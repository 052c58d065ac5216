"""Batches of a transactional producer and of its coordinator (KIP-98). Tests append them as a follower does."""

import struct

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory

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


def write_aborted_log(environment, root):
    """Writes the log t-0 of a follower, in three segments. A transaction of producer 7 was aborted in each of the first
    two, at the offsets 0 and 3. Another transaction is open from offset 6 on. The log ends at 8."""
    batches = [
        records(0, 7), marker(2, 7, ABORT), records(3, 7, sequence=2), marker(5, 7, ABORT), records(6, 7, sequence=4),
    ]  # fmt: skip
    settings = LogSettings(segment_bytes=len(batches[0]) + len(batches[1]))
    handle = PartitionHandle(LogDirectory(environment, str(root)), "t", 0, Uuid.random(), settings)
    handle.become_follower(2, 0)
    for batch in batches:
        assert handle.append_replicated(batch, 0).error == 0
    handle.shut()
