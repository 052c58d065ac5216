"""Finds the end of a segment that was closed, and opens it for appends again.

Until then readers use its index files, like those of a sealed segment. So a node with many quiet partitions keeps
neither open files nor indexes in memory for them.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.log.segment cimport Segment

ctypedef struct SegmentEnd:
    int64_t next_offset
    int64_t unindexed_bytes          # since the batch of the last index entry began
    int64_t max_timestamp_ms         # -1 when none
    int64_t offset_of_max_timestamp
    int64_t first_timestamp_ms       # largest of the first batch; -1 when none
    bint times_are_whole             # the time index ends with the greatest timestamp, as a closed segment's does

# Finds the end from the last index entry on, in memory or in the files. It does not read the offset index of a segment
# that is no longer than the index interval, but takes it as empty: a start calls this for every log. 0; -EINVAL: an
# index is corrupt; -EILSEQ: the bytes are no batches; -errno. May block.
cdef int segment_find_end(Segment *segment, int64_t interval_bytes, SegmentEnd *found) noexcept nogil
cdef void segment_note_end(Segment *segment, const SegmentEnd *found) noexcept nogil
# Opens a last segment that was left on disk, with its indexes in memory (empty ones, where the files hold none); it
# stays sealed until the caller says otherwise, under the lock. 0 or -errno. May block.
cdef int segment_wake(Segment *segment) noexcept nogil
