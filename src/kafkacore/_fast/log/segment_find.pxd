"""Finds batches in the .log of a segment, by their headers. The functions may block. They return 0 or -errno."""

from libc.stdint cimport int64_t

from kafkacore._fast.log.segment cimport Segment

ctypedef struct Position:
    int64_t offset        # the base offset of the batch that was found
    int64_t position
    int64_t size          # the size of that batch

cdef enum:
    SEGMENT_END = 1       # the offset is after the last batch

# Finds the batch that contains `offset`, or the first batch after it. Searches from byte `floor` up to byte `end`.
# `floor` comes from `segment_floor` (segment_index.pxd), or is 0. Returns 0, SEGMENT_END or -errno; -EILSEQ if some
# bytes are not a batch. With `cached`, returns -EAGAIN instead of waiting for the disk.
cdef int segment_find(Segment *segment, int64_t offset, int64_t floor, int64_t end, bint cached,
                      Position *found) noexcept nogil
# Finds the greatest timestamp of an active segment, and the last offset of the first batch that has it
# (LogSegment.readLargestTimestamp).
cdef int segment_largest_timestamp(Segment *segment, int64_t *timestamp_ms, int64_t *offset) noexcept nogil
