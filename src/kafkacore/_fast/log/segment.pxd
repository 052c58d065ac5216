"""A segment: one .log file with its offset, time and transaction index (Kafka's LogSegment). This module holds its life
and its files; segment_index has the indexes, segment_find finds batches.

A segment is counted. A drop unlinks its files at once; its last holder closes them. The indexes of the active segment
live in memory and reach their files in blocks, at the latest when the segment is sealed or the log closes: after a
crash the next load rebuilds them anyway, as Kafka does. Readers search the indexes of a sealed segment in its files. No
file is mapped.

The log's lock guards every field of an active segment that is not atomic. A sealed segment does not change, but its
first reader opens its files.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.base.atomics cimport load32
from kafkacore._fast.world.environment cimport Disk

cdef enum:
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12
    ABORTED_ENTRY_BYTES = 34
    LAST_RELATIVE_OFFSET = 0x7FFFFFFF

# Kafka's entries on disk have 8 bytes (relative offset, position) and 12 bytes (timestamp, relative offset),
# big-endian. Memory holds them in host order.
ctypedef struct OffsetEntry:
    int32_t relative_offset
    int32_t position

ctypedef struct TimeEntry:
    int64_t timestamp_ms
    int32_t relative_offset

ctypedef struct Segment:
    int32_t refs          # atomic
    int32_t dropped       # atomic: a SEGMENT_ value; the files are unlinked, the last holder closes them
    int32_t cuts          # atomic: counts truncations. The bytes that a reader found may be others afterwards
    int32_t sealed        # atomic: no more appends, and the indexes are in their files
    const Disk *disk
    int32_t file          # of the .log; atomic; -1 until it is opened
    int32_t offset_index_file  # likewise
    int32_t time_index_file    # likewise
    bint entry_synced     # its names are on disk: the directory was synced after the files were made
    int64_t reserved      # disk blocks are reserved up to here; at least `size` once a log has grown large
    bint preallocated     # the file is longer than `size` until the segment is sealed
    int64_t base_offset
    int64_t size          # bytes of the .log; atomic for readers without the lock
    int64_t synced_size   # bytes that a sync has covered; atomic
    int32_t wholly_synced  # atomic: sealed, and syncs have covered its indexes and the producer snapshot behind it
    int64_t max_timestamp_ms        # the greatest so far; -1 without records
    int64_t offset_of_max_timestamp  # last offset of the first batch that has it
    int64_t created_ms
    int64_t first_timestamp_ms      # the greatest of the first batch, for rolls by time; -1 without records
    int64_t modified_ms             # for the retention of a segment without timestamps
    int64_t jitter_ms
    int64_t bytes_since_index
    OffsetEntry *offset_index
    int32_t offset_count
    int32_t offset_capacity
    int32_t offset_written          # entries that are in the file
    TimeEntry *time_index
    int32_t time_count
    int32_t time_capacity
    int32_t time_written
    # The content of .txnindex until its temporary file gets that name; out of date once `aborted_stale` is set.
    uint8_t *aborted
    int64_t aborted_bytes
    int32_t aborted_stale           # atomic
    char *path            # directory and 20 digits, without a suffix

cdef enum:
    SEGMENT_DELETED = 1
    SEGMENT_REPLACED = 2  # a compacted segment with the same offsets has replaced it

cdef void segment_hold(Segment *segment) noexcept nogil
cdef void segment_release(Segment *segment) noexcept nogil

# All of the following may block; they return 0 or -errno.
cdef Segment *segment_new(const Disk *disk, const char *directory, int64_t base_offset) noexcept nogil  # or NULL
# Makes empty files and opens the .log for appends. With `first` the log is new, and a .log with bytes in it is an
# error (-EEXIST). With `preallocated_bytes` the file has that size until the segment is sealed.
cdef int segment_create(Segment *segment, int64_t now_ms, bint first, int64_t preallocated_bytes) noexcept nogil
# Removes the files of a segment that never became part of its log.
cdef void segment_discard(Segment *segment) noexcept nogil
cdef int segment_open_log(Segment *segment) noexcept nogil  # once; any thread


cdef inline int32_t file_of(const Segment *segment) noexcept nogil:
    """The handle of the .log; several readers may be opening it."""
    return load32(&segment.file)


cdef void segment_close(Segment *segment) noexcept nogil  # its files, while nobody else holds it
cdef int segment_open_part(Segment *segment, const char *suffix, int flags) noexcept nogil  # a file handle, or -errno
# Stores a handle in `file` unless another thread was first; then the handle is closed. Passes -errno through.
cdef int segment_keep_file(Segment *segment, int32_t *file, int handle) noexcept nogil
cdef int segment_truncate(Segment *segment, int64_t size) noexcept nogil  # the .log alone
cdef int segment_sync(Segment *segment, bint indexes) noexcept nogil
cdef int segment_sync_names(const Segment *segment) noexcept nogil  # its directory, if that still exists
cdef int segment_unlink(Segment *segment) noexcept nogil  # with its producer snapshot; the last holder closes
cdef int segment_unlink_files(Segment *segment) noexcept nogil  # the same for a segment that is already marked dropped
cdef int segment_unlink_part(Segment *segment, const char *suffix) noexcept nogil  # 0 if there is no such file
