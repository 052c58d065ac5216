"""A segment: one .log file with its offset, time and transaction index (Kafka's LogSegment).

Counted; a dropped segment is unlinked at once and closed by its last holder. The active segment's indexes live in
memory and reach their files in blocks, at the latest when the segment is sealed or the log closed: whoever opens the
directory after a crash rebuilds the active segment's indexes anyway (Kafka too). Sealed indexes are read where they
lie. No file is mapped.

The log's lock covers every field of an active segment that is not said to be atomic; a sealed one does not change, but
its files are opened by the first reader.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stddef cimport size_t

from kafkacore._fast.base.atomics cimport load32
from kafkacore._fast.base.cursor cimport be32, be64
from kafkacore._fast.world.environment cimport Disk

cdef enum:
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12
    ABORTED_ENTRY_BYTES = 34
    LAST_RELATIVE_OFFSET = 0x7FFFFFFF

# Kafka's on-disk entries: 8 bytes (relative offset, position), 12 bytes (timestamp, relative offset); kept in host
# order.
ctypedef struct OffsetEntry:
    int32_t relative_offset
    int32_t position

ctypedef struct TimeEntry:
    int64_t timestamp_ms
    int32_t relative_offset

cdef inline void read_offset_entry(const uint8_t *raw, OffsetEntry *entry) noexcept nogil:
    entry.relative_offset = <int32_t> be32(raw)
    entry.position = <int32_t> be32(raw + 4)


cdef inline void read_time_entry(const uint8_t *raw, TimeEntry *entry) noexcept nogil:
    entry.timestamp_ms = <int64_t> be64(raw)
    entry.relative_offset = <int32_t> be32(raw + 8)


ctypedef struct Segment:
    int32_t refs          # atomic
    int32_t dropped       # atomic: a SEGMENT_ value; unlinked, closed by the last holder
    int32_t sealed        # atomic: no more appends, indexes are in their files
    const Disk *disk
    int32_t file          # .log; -1 until it is opened; atomic
    int32_t offset_index_file  # likewise
    int32_t time_index_file
    bint entry_synced     # its names are on disk (the directory was synced after it was made)
    int64_t reserved      # blocks are set aside up to here; at least `size` once a log has grown large
    bint preallocated     # the file is longer than `size` until it is sealed
    int64_t base_offset
    int64_t size          # bytes of .log; atomic for readers without the lock
    int64_t synced_size   # bytes that a sync has covered; atomic
    int32_t wholly_synced  # atomic: sealed, and a sync has covered its indexes and the snapshot behind it, too
    int64_t max_timestamp_ms        # largest so far, -1 when none
    int64_t offset_of_max_timestamp  # last offset of the first batch that has it
    int64_t created_ms
    int64_t first_timestamp_ms      # largest of the first batch, for time based rolls; -1 when none
    int64_t modified_ms             # of a segment without timestamps, for retention
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
    # What .txnindex holds, while the file is about to get its name; not its content any more once `aborted_stale`.
    uint8_t *aborted
    int64_t aborted_bytes
    int32_t aborted_stale           # atomic
    char *path            # without suffix: directory + 20 digits

ctypedef struct Position:
    int64_t offset        # base offset of the batch found
    int64_t position
    int64_t size          # of that batch

cdef enum:
    SEGMENT_END = 1       # no such batch: the offset lies behind the last one

cdef enum:
    SEGMENT_DELETED = 1
    SEGMENT_REPLACED = 2  # by a compacted one, which tells the same of its offsets

cdef void segment_hold(Segment *segment) noexcept nogil
cdef void segment_release(Segment *segment) noexcept nogil

# --- life; all may block and give 0 or -errno ---
# NULL: no memory
cdef Segment *segment_new(const Disk *disk, const char *directory, int64_t base_offset) noexcept nogil
# New, empty files, open for appends; `first` of its log: a .log that is there already is an error (-EEXIST).
# With `preallocated_bytes` the file has that size until it is sealed.
cdef int segment_create(Segment *segment, int64_t now_ms, bint first, int64_t preallocated_bytes) noexcept nogil
cdef int segment_open_log(Segment *segment) noexcept nogil  # once; any thread


cdef inline int32_t file_of(const Segment *segment) noexcept nogil:
    """The log's handle: several readers may be about to open it."""
    return load32(&segment.file)


cdef void segment_close(Segment *segment) noexcept nogil  # its files, while nobody else has it
cdef int segment_open_indexes(Segment *segment) noexcept nogil
# A handle of an index for a moment: the one that is open, or one of its own that is closed when it is given back. What
# keeps `held` open keeps it until the segment goes.
cdef int segment_borrow(Segment *segment, const int32_t *held, const char *suffix) noexcept nogil
cdef void segment_give_back(Segment *segment, const int32_t *held, int file) noexcept nogil
cdef int segment_load_indexes(Segment *segment) noexcept nogil  # of an active segment: into memory; -EINVAL: corrupt
cdef int segment_write_indexes(Segment *segment) noexcept nogil  # what memory has and the files have not
# A closed segment's time index ends with the greatest timestamp: under the lock, before segment_seal. 0 or -ENOMEM.
cdef int segment_end_times(Segment *segment) noexcept nogil
cdef int segment_seal(Segment *segment) noexcept nogil  # last time entry, indexes written and out of memory
cdef int segment_unlink(Segment *segment) noexcept nogil  # with its producer snapshot; the last holder closes
cdef int segment_unlink_files(Segment *segment) noexcept nogil  # the same of one that is dropped already
# Its directory, while it has one. 0 or -errno.
cdef int segment_sync_names(const Segment *segment) noexcept nogil
cdef int segment_open_part(Segment *segment, const char *suffix, int flags) noexcept nogil  # a file handle, or -errno
cdef int segment_truncate(Segment *segment, int64_t size) noexcept nogil  # the .log alone
# A truncation, once `size` says where the .log ends: the entries at or behind `offset` leave memory (under the lock),
# then the files follow (without it; may block).
cdef void segment_cut_entries(Segment *segment, int64_t offset) noexcept nogil
cdef int segment_cut_files(Segment *segment) noexcept nogil
# The greatest timestamp of an active segment and the last offset of the first batch that has it
# (LogSegment.readLargestTimestamp).
cdef int segment_largest_timestamp(Segment *segment, int64_t *timestamp_ms, int64_t *offset) noexcept nogil
cdef int segment_reset_indexes(Segment *segment) noexcept nogil  # as if nothing had been appended yet
cdef void segment_forget_indexes(Segment *segment) noexcept nogil  # they are in their files and leave memory
cdef int segment_sync(Segment *segment, bint indexes) noexcept nogil

# --- under the log's lock, on the active segment ---
# Room for the index entries of one more batch; 0 or -ENOMEM. Before the bytes are written, so that nothing fails after.
cdef int segment_reserve(Segment *segment) noexcept nogil
# A batch that lies at `position` and ends with `last_offset` is in the file: maximum, and the index entries that are
# due.
cdef void segment_note_batch(Segment *segment, int64_t position, int64_t size, int64_t last_offset,
                             int64_t max_timestamp_ms,
                             int32_t interval_bytes) noexcept nogil

# --- reading; with `cached`, -EAGAIN where the device would have to be waited for ---
# The batch that holds `offset` or the first one behind it, looked for up to byte `end`: 0, SEGMENT_END, -errno; -EILSEQ
# where the bytes are no batches. `floor` is what segment_floor gave, or 0.
cdef int segment_find(Segment *segment, int64_t offset, int64_t floor, int64_t end, bint cached,
                      Position *found) noexcept nogil
# A position at or before the batch that holds `offset`, from the index in memory (under the lock) ...
cdef int64_t segment_floor(Segment *segment, int64_t offset) noexcept nogil
# ... or of a sealed segment, from the file; -errno.
cdef int64_t segment_floor_on_disk(Segment *segment, int64_t offset, bint cached) noexcept nogil
# Of a sealed segment: the greatest entry of the time index with a timestamp at or below `timestamp_ms` (-1, base offset
# where there is none); the last entry with 2^63 - 1.
cdef int segment_time_floor_on_disk(Segment *segment, int64_t timestamp_ms, TimeEntry *entry) noexcept nogil
cdef void segment_time_floor(Segment *segment, int64_t timestamp_ms, TimeEntry *entry) noexcept nogil
