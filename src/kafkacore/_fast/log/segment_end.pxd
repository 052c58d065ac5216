"""Finds the end of a segment that was closed, and opens it for appends again.

Until the segment is opened, readers use its index files, as they do with a sealed segment. So a node with many idle
partitions needs neither open files nor memory for their indexes.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.log.segment cimport Segment

ctypedef struct SegmentEnd:
    int64_t next_offset
    int64_t unindexed_bytes          # the bytes since the start of the batch to which the last index entry points
    int64_t max_timestamp_ms         # -1 if there is none
    int64_t offset_of_max_timestamp
    int64_t first_timestamp_ms       # the greatest timestamp of the first batch; -1 if there is none
    bint times_are_whole             # the time index ends with the greatest timestamp, as in a closed segment

# Finds the end, beginning at the last index entry, which is in memory or in the files. When the node starts, it calls
# this for every log. To save time, this does not read the offset index of a segment whose size is at most the index
# interval, and treats the index as empty. Returns 0 or -errno. -EINVAL: an index is corrupt. -EILSEQ: some bytes are
# not a batch. May block.
cdef int segment_find_end(Segment *segment, int64_t interval_bytes, SegmentEnd *found) noexcept nogil
cdef void segment_note_end(Segment *segment, const SegmentEnd *found) noexcept nogil
# Opens the last segment, which a load left closed, and reads its indexes into memory. An index whose file has no
# entries is empty. The segment stays sealed until the caller, under the lock, marks it as not sealed. Returns 0 or
# -errno. May block.
cdef int segment_wake(Segment *segment) noexcept nogil
