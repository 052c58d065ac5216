"""Reads the files next to a segment for Python: offset index, time index, transaction index and producer snapshot."""

import array

from libc.errno cimport EINVAL
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.base.cursor cimport Reader
from kafkacore._fast.log.producers cimport Producer, producers_begin_read, producers_read_one
from kafkacore._fast.log.segment cimport (
    ABORTED_ENTRY_BYTES, OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetEntry, TimeEntry,
)
from kafkacore._fast.log.segment_index cimport read_offset_entry, read_time_entry
from kafkacore._fast.log.txn_index cimport AbortedTransaction, txn_index_entry

OFFSET_ENTRY_SIZE = OFFSET_ENTRY_BYTES
TIME_ENTRY_SIZE = TIME_ENTRY_BYTES
ABORTED_ENTRY_SIZE = ABORTED_ENTRY_BYTES


def offset_entries(const uint8_t[::1] data not None, int64_t base_offset):
    """Returns `(offsets, positions)` of the complete entries."""
    cdef int64_t count = data.shape[0] // OFFSET_ENTRY_BYTES
    cdef int64_t[::1] offsets, positions
    cdef OffsetEntry entry
    cdef int64_t i
    first, second = array.array("q", bytes(8 * count)), array.array("q", bytes(8 * count))
    if count:
        offsets, positions = first, second
        for i in range(count):
            read_offset_entry(&data[i * OFFSET_ENTRY_BYTES], &entry)
            offsets[i] = base_offset + entry.relative_offset
            positions[i] = entry.position
    return first, second


def time_entries(const uint8_t[::1] data not None, int64_t base_offset):
    """Returns `(timestamps, offsets)` of the complete entries."""
    cdef int64_t count = data.shape[0] // TIME_ENTRY_BYTES
    cdef int64_t[::1] timestamps, offsets
    cdef TimeEntry entry
    cdef int64_t i
    first, second = array.array("q", bytes(8 * count)), array.array("q", bytes(8 * count))
    if count:
        timestamps, offsets = first, second
        for i in range(count):
            read_time_entry(&data[i * TIME_ENTRY_BYTES], &entry)
            timestamps[i] = entry.timestamp_ms
            offsets[i] = base_offset + entry.relative_offset
    return first, second


def aborted_transactions(const uint8_t[::1] data not None):
    """Returns `(producer id, first offset, last offset, last stable offset)` for each complete entry. Raises ValueError
    if an entry has an unknown version."""
    cdef AbortedTransaction entry
    cdef int64_t i
    found = []
    for i in range(data.shape[0] // ABORTED_ENTRY_BYTES):
        if txn_index_entry(&data[i * ABORTED_ENTRY_BYTES], &entry) == -EINVAL:
            raise ValueError(f"the entry at byte {i * ABORTED_ENTRY_BYTES} has a version other than 0")
        found.append((entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset))
    return found


def producer_entries(const uint8_t[::1] data not None):
    """Returns the entry of each producer in a snapshot, as index_files.pyi describes. Raises ValueError."""
    cdef Reader reader
    cdef Producer producer
    cdef int32_t _left, count
    count = -EINVAL if data.shape[0] == 0 else producers_begin_read(&data[0], data.shape[0], &reader)
    if count < 0:
        raise ValueError("not a producer snapshot of version 1, or its checksum or length is wrong")
    found = []
    for _left in range(count):
        producers_read_one(&reader, &producer)
        batch = None
        if producer.batch_count:
            last = producer.batches[0]
            batch = (last.first_sequence, last.last_sequence, last.first_offset, last.last_offset, last.timestamp_ms)
        found.append((producer.producer_id, producer.producer_epoch, producer.coordinator_epoch,
                      producer.transaction_first_offset, producer.last_timestamp_ms, batch))
    return found
