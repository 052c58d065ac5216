"""Finds the end of a log's last segment, which is closed after a load, and opens the segment for appends again.

While the segment is closed, readers use its index files, as they do with a sealed segment. So a node with many idle
partitions needs neither open files nor memory for the partitions' indexes.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.log.segment cimport Segment

ctypedef struct SegmentEnd:
    int64_t next_offset
    int64_t unindexed_bytes          # the bytes from the last indexed batch to the end
    int64_t max_timestamp_ms         # -1 if there is none
    int64_t offset_of_max_timestamp
    int64_t first_timestamp_ms       # the greatest timestamp of the first batch; -1 if there is none
    bint times_are_whole             # the time index ends with the greatest timestamp, as after an orderly close

# Finds the end, beginning at the last index entry, which is in memory or in the files. A starting node calls this for
# every log. To save time, this function does not read the offset index of a small segment, but scans that segment from
# its start. A segment is small if it has at most `interval_bytes` bytes and at most 4096 bytes. Returns 0 or -errno.
# -EINVAL: an index is corrupt. -EILSEQ: some bytes are not a batch. May block.
cdef int segment_find_end(Segment *segment, int64_t interval_bytes, SegmentEnd *found) noexcept nogil
cdef void segment_note_end(Segment *segment, const SegmentEnd *found) noexcept nogil
# Opens the segment and reads its indexes into memory. Empties indexes whose files are corrupt. The segment stays sealed
# until the caller, under `Log.lock`, marks it as not sealed. Returns 0 or -errno. May block.
cdef int segment_wake(Segment *segment) noexcept nogil
