"""Batches found in the .log of a segment, by their headers. May block; 0 or -errno."""

from libc.stdint cimport int64_t

from kafkacore._fast.log.segment cimport Segment

ctypedef struct Position:
    int64_t offset        # base offset of the batch found
    int64_t position
    int64_t size          # of that batch

cdef enum:
    SEGMENT_END = 1       # no such batch: the offset lies behind the last one

# Finds the batch that holds `offset`, or the first one after it, from byte `floor` up to byte `end`. 0, SEGMENT_END or
# -errno; -EILSEQ where the bytes are no batches. With `cached` it does not wait for the device but returns -EAGAIN.
# `floor` comes from segment_floor, or is 0.
cdef int segment_find(Segment *segment, int64_t offset, int64_t floor, int64_t end, bint cached,
                      Position *found) noexcept nogil
# The greatest timestamp of an active segment and the last offset of the first batch that has it
# (LogSegment.readLargestTimestamp).
cdef int segment_largest_timestamp(Segment *segment, int64_t *timestamp_ms, int64_t *offset) noexcept nogil
