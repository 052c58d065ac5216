"""The offset index and the time index of a segment: in memory while the segment is active, in their files once it is
sealed (formats: OffsetIndex, TimeIndex; rules: LogSegment).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.base.cursor cimport be32, be64
from kafkacore._fast.log.segment cimport OffsetEntry, Segment, TimeEntry


cdef inline void read_offset_entry(const uint8_t *raw, OffsetEntry *entry) noexcept nogil:
    entry.relative_offset = <int32_t> be32(raw)
    entry.position = <int32_t> be32(raw + 4)


cdef inline void read_time_entry(const uint8_t *raw, TimeEntry *entry) noexcept nogil:
    entry.timestamp_ms = <int64_t> be64(raw)
    entry.relative_offset = <int32_t> be32(raw + 8)


# --- files; all may block and return 0 or -errno ---
cdef int segment_open_indexes(Segment *segment) noexcept nogil
# A handle of an index for a short time: the open one, or a new one that `segment_give_back` closes. `held` is the
# segment's field for it; a handle in there stays open until the segment goes.
cdef int segment_borrow(Segment *segment, const int32_t *held, const char *suffix) noexcept nogil
cdef void segment_give_back(Segment *segment, const int32_t *held, int file) noexcept nogil
cdef int segment_load_indexes(Segment *segment) noexcept nogil  # into memory; -EINVAL: corrupt
cdef int segment_write_indexes(Segment *segment) noexcept nogil  # the entries in memory that the files lack
# Adds the greatest timestamp, with which the time index of a closed segment ends. Under the lock, before segment_seal;
# 0 or -ENOMEM.
cdef int segment_end_times(Segment *segment) noexcept nogil
cdef int segment_seal(Segment *segment) noexcept nogil  # writes the indexes; no append follows
cdef int segment_reset_indexes(Segment *segment) noexcept nogil  # as if nothing had been appended yet
cdef void segment_forget_indexes(Segment *segment) noexcept nogil  # frees the memory; the files have all entries
# For a truncation, once `size` says where the .log ends. The first removes the entries at or after `offset` from memory
# (under the lock), the second from the files (without the lock; may block).
cdef void segment_cut_entries(Segment *segment, int64_t offset) noexcept nogil
cdef int segment_cut_files(Segment *segment) noexcept nogil

# --- the active segment, under the log's lock ---
# Room for the index entries of one more batch; 0 or -ENOMEM. Call it before the bytes are written, so that nothing can
# fail after them.
cdef int segment_reserve(Segment *segment) noexcept nogil
# A batch at `position` that ends with `last_offset` is in the file: updates the greatest timestamp and adds the index
# entries that are due.
cdef void segment_note_batch(Segment *segment, int64_t position, int64_t size, int64_t last_offset,
                             int64_t max_timestamp_ms,
                             int32_t interval_bytes) noexcept nogil

# --- look-ups; with `cached` they do not wait for the device but return -EAGAIN --- A position at or before the batch
# that holds `offset`, from the index in memory (under the lock) ...
cdef int64_t segment_floor(Segment *segment, int64_t offset) noexcept nogil
# ... or of a sealed segment, from the file; -errno.
cdef int64_t segment_floor_on_disk(Segment *segment, int64_t offset, bint cached) noexcept nogil
# The last entry of the time index with a timestamp at or below `timestamp_ms`; timestamp -1 and the base offset without
# one. From memory (under the lock), or of a sealed segment from the file.
cdef void segment_time_floor(Segment *segment, int64_t timestamp_ms, TimeEntry *entry) noexcept nogil
cdef int segment_time_floor_on_disk(Segment *segment, int64_t timestamp_ms, TimeEntry *entry) noexcept nogil
