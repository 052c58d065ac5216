"""The offset index and the time index of a segment. They are in memory while the segment is active, and in their files
once it is sealed (segment.pxd). (In Kafka: OffsetIndex and TimeIndex for the formats, LogSegment for the rules.)
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


# --- files; all of these may block, and return 0 or -errno ---
cdef int segment_open_indexes(Segment *segment) noexcept nogil
# Returns a handle of an index file for a short use: the handle in `held`, or a new one that `segment_give_back` closes.
# `held` is the segment's field for this file. A handle in this field stays open until the segment closes its files.
cdef int segment_borrow(Segment *segment, const int32_t *held, const char *suffix) noexcept nogil
cdef void segment_give_back(Segment *segment, const int32_t *held, int file) noexcept nogil
cdef int segment_load_indexes(Segment *segment) noexcept nogil  # reads them from the files; -EINVAL if they are corrupt
cdef int segment_write_indexes(Segment *segment) noexcept nogil  # writes the entries that are only in memory
# Adds an entry for the greatest timestamp, because the time index of a closed segment ends with this entry. Call this
# under `Log.lock`, before `segment_seal`. Returns 0 or -ENOMEM.
cdef int segment_end_times(Segment *segment) noexcept nogil
cdef int segment_seal(Segment *segment) noexcept nogil  # writes the indexes; no append may follow
cdef int segment_reset_indexes(Segment *segment) noexcept nogil  # empties the indexes in memory and their files
# Empties the indexes of a closed segment, to rebuild them. Removes the .index file, which `segment_end_rebuild` creates
# again when all other indexes are complete. If the process is killed in between, the next load finds no .index file and
# rebuilds the indexes. With `durable`, this also holds after a power cut.
cdef int segment_begin_rebuild(Segment *segment, bint durable) noexcept nogil
cdef int segment_end_rebuild(Segment *segment, bint durable) noexcept nogil  # writes the indexes to their files
# Frees the memory. Call this when the files have all entries.
cdef void segment_forget_indexes(Segment *segment) noexcept nogil
# A truncation calls the next two functions after it has set `size` to the new end of the .log. `segment_cut_entries`
# removes the entries at or after `offset` from memory; call it under `Log.lock`. `segment_cut_files` removes them from
# the files; call it without the lock, because it may block.
cdef void segment_cut_entries(Segment *segment, int64_t offset) noexcept nogil
cdef int segment_cut_files(Segment *segment) noexcept nogil

# Stores the greatest timestamp and its offset in two atomic stores. A reader that found the segment sealed reads them
# without the lock, even while a truncation or the first append after a start unseals the segment.
cdef void segment_note_greatest(Segment *segment, int64_t timestamp_ms, int64_t offset) noexcept nogil

# --- the active segment, under `Log.lock` ---
# Reserves room for the index entries of one more batch. Returns 0 or -ENOMEM. Call this before the bytes are written,
# so that nothing can fail after the write.
cdef int segment_reserve(Segment *segment) noexcept nogil
# Notes that the file has a batch at `position`, and that the batch ends with `last_offset`. Updates the greatest
# timestamp, and adds the index entries that are due.
cdef void segment_note_batch(Segment *segment, int64_t position, int64_t size, int64_t last_offset,
                             int64_t max_timestamp_ms,
                             int32_t interval_bytes) noexcept nogil

# --- look-ups; with `cached`, they return -EAGAIN instead of waiting for the disk ---
# Returns a position at or before the batch that contains `offset`, from the index in memory. Call this under the lock.
cdef int64_t segment_floor(Segment *segment, int64_t offset) noexcept nogil
# Does the same with the index file of a sealed segment. Returns the position, or -errno.
cdef int64_t segment_floor_on_disk(Segment *segment, int64_t offset, bint cached) noexcept nogil
# Searches the offset index of a sealed segment for the last position at or below `position`. Returns that position, 0
# if there is none, or -errno.
cdef int64_t segment_floor_of_position(Segment *segment, int64_t position) noexcept nogil
# The two functions below find the last entry of the time index with a timestamp at or below `timestamp_ms`. If there is
# none, the result is the timestamp -1 with the base offset. The first function uses the index in memory; call it under
# the lock. The second uses the file of a sealed segment.
cdef void segment_time_floor(Segment *segment, int64_t timestamp_ms, TimeEntry *entry) noexcept nogil
cdef int segment_time_floor_on_disk(Segment *segment, int64_t timestamp_ms, TimeEntry *entry) noexcept nogil
