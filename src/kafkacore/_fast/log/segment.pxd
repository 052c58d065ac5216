"""A segment: one .log file with its offset index, time index and transaction index (Kafka's LogSegment). This module
has the life cycle and the files of a segment. segment_index.pxd has the indexes, and segment_find.pxd finds batches.
The active segment is the last one of its log and takes the appends. Every other segment is sealed.

A segment is reference-counted. Dropping a segment unlinks its files at once; the files are closed when the last
reference is released. The indexes of the active segment are in memory. They are written to their files in blocks, at
the latest when the segment is sealed or the log is closed. After a crash, the next load rebuilds them, as Kafka does.
Readers search the index files of a sealed segment. No file is memory-mapped.

`Log.lock` guards every field of an active segment, except those commented "atomic". A sealed segment does not change,
except that its first reader opens its files.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.base.atomics cimport load32
from kafkacore._fast.world.environment cimport Disk

cdef enum:
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12
    ABORTED_ENTRY_BYTES = 34
    LAST_RELATIVE_OFFSET = 0x7FFFFFFF

# The entries of the two indexes. On disk, as in Kafka, an entry of the offset index has 8 bytes (relative offset,
# position), and an entry of the time index has 12 bytes (timestamp, relative offset), big-endian. In memory, entries
# are in host order.
ctypedef struct OffsetEntry:
    int32_t relative_offset
    int32_t position

ctypedef struct TimeEntry:
    int64_t timestamp_ms
    int32_t relative_offset

ctypedef struct Segment:
    int32_t refs          # atomic
    int32_t dropped       # atomic: 0, or a SEGMENT_ value once the files are unlinked
    int32_t cuts          # atomic: counts truncations; after one, the bytes that a reader found may have changed
    int32_t sealed        # atomic: the segment takes no more appends, and its indexes are in their files
    const Disk *disk
    int32_t file          # atomic: the open .log; -1 until it is opened
    int32_t offset_index_file  # atomic: the open .index; -1 until it is opened
    int32_t time_index_file    # atomic: the open .timeindex; -1 until it is opened
    bint entry_synced     # the file names are on disk: the directory was synced after the files were created
    # Disk blocks are reserved up to this position. Once the segment is large, this is at least `size`.
    int64_t reserved
    bint preallocated     # the file was made longer than `size`, and stays longer until the segment is sealed
    int64_t base_offset
    int64_t size          # the bytes of the .log; atomic for readers without the lock
    int64_t synced_size   # atomic: the bytes that a sync has covered
    int32_t wholly_synced  # atomic: the segment is sealed, and its indexes and the next producer snapshot are synced
    int64_t max_timestamp_ms        # the greatest timestamp so far; -1 without records
    int64_t offset_of_max_timestamp  # the last offset of the first batch that has this timestamp
    int64_t created_ms
    int64_t first_timestamp_ms      # the greatest timestamp of the first batch, for rolls by time; -1 without records
    int64_t modified_ms             # for the retention of a segment without timestamps
    int64_t jitter_ms
    int64_t bytes_since_index
    OffsetEntry *offset_index
    int32_t offset_count
    int32_t offset_capacity
    int32_t offset_written          # the number of entries in the file
    TimeEntry *time_index
    int32_t time_count
    int32_t time_capacity
    int32_t time_written
    # Only in a segment that a compaction has written: the content of .txnindex. Reads use this copy, because a
    # temporary file is renamed to .txnindex only later. Once `aborted_stale` is set, reads use the file.
    uint8_t *aborted
    int64_t aborted_bytes
    int32_t aborted_stale           # atomic
    char *path            # the directory and 20 digits, without a suffix

cdef enum:
    SEGMENT_DELETED = 1
    SEGMENT_REPLACED = 2  # a compacted segment with the same offsets has replaced it

cdef void segment_hold(Segment *segment) noexcept nogil
cdef void segment_release(Segment *segment) noexcept nogil

# Unless their comment says otherwise, the functions below can block, and return 0 or -errno.

# Creates the struct, but no files. Returns NULL if memory runs out.
cdef Segment *segment_new(const Disk *disk, const char *directory, int64_t base_offset) noexcept nogil
# Creates empty files and opens the .log for appends. `first` says that the log is new; then a .log that already has
# bytes is an error (-EEXIST). With `preallocated_bytes`, the .log has that size until the segment is sealed.
cdef int segment_create(Segment *segment, int64_t now_ms, bint first, int64_t preallocated_bytes) noexcept nogil
# Removes the files of a segment that never became part of its log.
cdef void segment_discard(Segment *segment) noexcept nogil
cdef int segment_open_log(Segment *segment) noexcept nogil  # opens the .log once; any thread may call this


cdef inline int32_t file_of(const Segment *segment) noexcept nogil:
    """Returns the handle of the .log. The field is atomic, because several readers may be opening the file at the same
    time."""
    return load32(&segment.file)


cdef void segment_close(Segment *segment) noexcept nogil  # closes the files; no other thread may use the segment now
# Opens a file of the segment. Returns a file handle, or -errno.
cdef int segment_open_part(Segment *segment, const char *suffix, int flags) noexcept nogil
# Stores `handle` in `file`. If another thread has stored a handle there before, closes `handle` instead. If `handle` is
# a negative errno, only returns it.
cdef int segment_keep_file(Segment *segment, int32_t *file, int handle) noexcept nogil
cdef int segment_truncate(Segment *segment, int64_t size) noexcept nogil  # truncates only the .log
cdef int segment_sync(Segment *segment, bint indexes) noexcept nogil  # syncs .log; with `indexes`, also the indexes
cdef int segment_sync_names(const Segment *segment) noexcept nogil  # syncs the directory if it still exists
# Unlinks the segment's files and its producer snapshot. The files are closed when the last reference is released.
cdef int segment_unlink(Segment *segment) noexcept nogil
# Like `segment_unlink`, for a segment whose `dropped` is already set.
cdef int segment_unlink_files(Segment *segment) noexcept nogil
# Unlinks one file of the segment. Returns 0 even if the file does not exist.
cdef int segment_unlink_part(Segment *segment, const char *suffix) noexcept nogil
