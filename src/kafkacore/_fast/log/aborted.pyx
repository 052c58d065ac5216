"""Implements aborted.pxd: collects the aborted transactions in a range that was read."""

from libc.errno cimport ENOMEM, ESTALE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kafkacore._fast.base.atomics cimport add32, load32, load64
from kafkacore._fast.log.log cimport SegmentList, segments_release
from kafkacore._fast.record.record cimport BATCH_OK, HEADER_BYTES, BatchHeader, last_offset, parse_header
from kafkacore._fast.log.segment cimport SEGMENT_DELETED, Segment, file_of
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.txn_index cimport txn_index_read

ctypedef struct Found:
    AbortedTransaction *items
    int64_t count


cdef bint log_may_be_aborted(Log *log, int64_t offset) noexcept nogil:
    return load64(&log.last_aborted_offset) >= offset


cdef int64_t end_of_range(const ReadResult *found) noexcept nogil:
    """Returns the offset after the last batch that is at least partly in the range, or -errno. Reads the header of each
    batch."""
    cdef Segment *segment = found.segment
    cdef uint8_t raw[HEADER_BYTES]
    cdef BatchHeader header
    cdef int64_t at = found.position
    cdef int64_t offset = found.first_offset
    cdef int64_t got
    while at < found.position + found.size:
        got = segment.disk.pread(segment.disk.self, file_of(segment), raw, HEADER_BYTES, at)
        if got < 0:
            return got
        if parse_header(raw, <size_t> got, &header) != BATCH_OK:
            break  # a truncation removed this batch during the loop, so the range ends before it
        offset = last_offset(&header) + 1
        at += header.size_bytes
    return offset


cdef int64_t collect(Segment *segment, int64_t offset, int64_t end, Found *found) noexcept nogil:
    """Adds to `found` the segment's aborted transactions that overlap the offsets from `offset` up to `end`
    (exclusive). Returns 1 if no later segment can add a transaction, else 0, or -errno."""
    cdef AbortedTransaction *entries
    cdef AbortedTransaction *grown
    cdef int64_t complete = 0
    cdef int64_t i
    cdef int64_t count = txn_index_read(segment, &entries)
    if count <= 0:
        return count
    grown = <AbortedTransaction *> realloc(found.items, (found.count + count) * sizeof(AbortedTransaction))
    if grown == NULL:
        free(entries)
        return -ENOMEM
    found.items = grown
    for i in range(count):
        if entries[i].last_offset >= offset and entries[i].first_offset < end:
            memcpy(&grown[found.count], &entries[i], sizeof(AbortedTransaction))
            found.count += 1
        # If the last stable offset of an entry is at or above `end`, every transaction that started before `end` had
        # ended when the entry was written. So no later segment can have another aborted transaction that started before
        # `end`. There is one exception. When Apache Kafka copies several markers at once, it records the last stable
        # offset after the last of these markers, although the same producer may have begun another transaction between
        # two of them. So no offset of the range may follow the marker either.
        if entries[i].last_stable_offset >= end and entries[i].last_offset + 1 >= end:
            complete = 1
            break
    free(entries)
    return complete


cdef int64_t collect_all(Log *log, SegmentList *list, int64_t offset, int64_t end, const ReadResult *found,
                         Found *all) noexcept nogil:
    cdef int64_t result = 0
    cdef int32_t i
    for i in range(list.count):
        # The index of a segment lists the transactions whose marker is in that segment. A marker is in the segment of
        # its transaction's records or in a later one.
        if list.items[i].base_offset > load64(&log.last_aborted_offset) or result != 0:
            break
        if i + 1 == list.count or list.items[i + 1].base_offset > found.segment.base_offset:
            result = collect(list.items[i], offset, end, all)
    return result


cdef bint is_deleted(const Log *log, const Segment *segment) noexcept nogil:
    """Returns whether the segment has been deleted. Call this with the log's lock held."""
    return load32(&segment.dropped) == SEGMENT_DELETED or log.segments == NULL or (
        log.segments.items[0].base_offset > segment.base_offset)


cdef int64_t log_aborted(Log *log, int64_t offset, const ReadResult *found, AbortedTransaction **into) noexcept nogil:
    cdef SegmentList *list
    cdef Found all
    cdef int64_t end, cuts
    cdef int64_t result = 0
    cdef bint same = False
    cdef bint deleted = False
    into[0] = NULL
    if found.size == 0 or not log_may_be_aborted(log, offset):
        return 0
    end = end_of_range(found)
    if end < 0:
        return end
    all.items = NULL
    while not same and not deleted and result >= 0:
        mutex_lock(&log.lock)
        cuts = log.cuts
        list = log.segments
        if list != NULL:
            add32(&list.refs, 1)
        mutex_unlock(&log.lock)
        all.count = 0
        result = collect_all(log, list, offset, end, found, &all) if list != NULL else 0
        segments_release(list)
        mutex_lock(&log.lock)
        same = log.cuts == cuts  # if the counts differ, an index may have been removed before this thread read it
        deleted = is_deleted(log, found.segment)
        mutex_unlock(&log.lock)
    if result >= 0 and deleted:
        result = -ESTALE  # without the deleted transaction index, aborted records would look committed
    if result < 0:
        free(all.items)
        return result
    into[0] = all.items
    return all.count
