"""Implements segment_end.pxd: finds the ends of segments (LogSegment.readNextOffset)."""

from libc.errno cimport EILSEQ, EINVAL, EIO
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.base.cursor cimport be32, be64
from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.record.record cimport BATCH_OK, HEADER_BYTES, BatchHeader, last_offset, parse_header
from kafkacore._fast.log.segment cimport (
    LAST_RELATIVE_OFFSET, OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, file_of, segment_open_log,
)
from kafkacore._fast.log.segment_index cimport (
    segment_borrow, segment_give_back, segment_load_indexes, segment_note_greatest, segment_reserve,
    segment_reset_indexes,
)

cdef enum:
    SCAN_BYTES = 4096


cdef int last_entry(Segment *segment, const int32_t *held, const char *suffix, int entry_bytes,
                    uint8_t *raw) noexcept nogil:
    """Reads the last entry of an index. Returns 1 if there is an entry, 0 if the index is empty, or -errno."""
    cdef int file = segment_borrow(segment, held, suffix)
    cdef int result = read_last_entry(segment.disk, file, entry_bytes, raw) if file >= 0 else file
    segment_give_back(segment, held, file)
    return result


cdef int read_last_entry(const Disk *disk, int file, int entry_bytes, uint8_t *raw) noexcept nogil:
    cdef int64_t size = disk.size(disk.self, file)
    cdef int64_t got
    if size <= 0:
        return <int> size
    if size % entry_bytes != 0:
        return -EINVAL
    got = disk.pread(disk.self, file, raw, entry_bytes, size - entry_bytes)
    if got != entry_bytes:
        return <int> got if got < 0 else -EIO
    return 1


cdef int64_t last_indexed(Segment *segment, int64_t interval_bytes) noexcept nogil:
    """Returns the position of the last batch in the offset index. Returns 0 if the index is empty or the segment is
    small (segment_end.pxd)."""
    cdef uint8_t raw[OFFSET_ENTRY_BYTES]
    cdef int64_t position
    cdef int found
    if segment.offset_count:
        return segment.offset_index[segment.offset_count - 1].position
    if segment.size <= min(interval_bytes, <int64_t> SCAN_BYTES):
        return 0
    found = last_entry(segment, &segment.offset_index_file, b".index", OFFSET_ENTRY_BYTES, raw)
    if found <= 0:
        return found
    position = <int32_t> be32(raw + 4)
    return position if 0 <= position < segment.size and <int32_t> be32(raw) >= 0 else -EINVAL


cdef int last_time(Segment *segment, SegmentEnd *found) noexcept nogil:
    cdef uint8_t raw[TIME_ENTRY_BYTES]
    cdef int result
    found.max_timestamp_ms = -1
    found.offset_of_max_timestamp = segment.base_offset
    if segment.time_count:
        found.max_timestamp_ms = segment.time_index[segment.time_count - 1].timestamp_ms
        found.offset_of_max_timestamp += segment.time_index[segment.time_count - 1].relative_offset
        return 0
    result = last_entry(segment, &segment.time_index_file, b".timeindex", TIME_ENTRY_BYTES, raw)
    if result <= 0:
        return result
    found.max_timestamp_ms = <int64_t> be64(raw)
    found.offset_of_max_timestamp += <int32_t> be32(raw + 8)
    return 0 if <int32_t> be32(raw + 8) >= 0 else -EINVAL


cdef int first_time(Segment *segment, SegmentEnd *found) noexcept nogil:
    cdef uint8_t raw[HEADER_BYTES]
    cdef BatchHeader header
    cdef int64_t got = segment.disk.pread(segment.disk.self, file_of(segment), raw, HEADER_BYTES, 0)
    if got < 0:
        return <int> got
    if parse_header(raw, <size_t> got, &header) != BATCH_OK:
        return -EILSEQ
    found.first_timestamp_ms = header.max_timestamp
    return 0


cdef int scan_tail(Segment *segment, int64_t position, SegmentEnd *found) noexcept nogil:
    cdef uint8_t block[SCAN_BYTES]
    cdef const Disk *disk = segment.disk
    cdef BatchHeader header
    cdef int64_t at = position
    cdef int64_t start = 0
    cdef int64_t held = 0
    found.unindexed_bytes = segment.size - position
    found.next_offset = segment.base_offset
    found.times_are_whole = True
    while at < segment.size:
        if at < start or at + HEADER_BYTES > start + held:
            start = at
            held = disk.pread(disk.self, file_of(segment), block, min(segment.size - at, <int64_t> SCAN_BYTES), at)
            if held < 0:
                return <int> held
        if parse_header(block + (at - start), <size_t> (start + held - at), &header) != BATCH_OK:
            return -EILSEQ
        if (header.size_bytes > segment.size - at or last_offset(&header) < found.next_offset
                or last_offset(&header) - segment.base_offset > LAST_RELATIVE_OFFSET):
            return -EILSEQ
        if header.max_timestamp > found.max_timestamp_ms:
            found.max_timestamp_ms = header.max_timestamp
            found.offset_of_max_timestamp = last_offset(&header)
            found.times_are_whole = False
        if at == 0:
            found.first_timestamp_ms = header.max_timestamp
        found.next_offset = last_offset(&header) + 1
        at += header.size_bytes
    return 0


cdef int segment_find_end(Segment *segment, int64_t interval_bytes, SegmentEnd *found) noexcept nogil:
    cdef int64_t position
    cdef int result = segment_open_log(segment)
    if result < 0:
        return result
    position = last_indexed(segment, interval_bytes)
    if position < 0:
        return <int> position
    result = last_time(segment, found)
    found.first_timestamp_ms = -1
    if result == 0 and position > 0:
        result = first_time(segment, found)
    return result if result < 0 else scan_tail(segment, position, found)


cdef void segment_note_end(Segment *segment, const SegmentEnd *found) noexcept nogil:
    segment.bytes_since_index = found.unindexed_bytes
    segment_note_greatest(segment, found.max_timestamp_ms, found.offset_of_max_timestamp)
    segment.first_timestamp_ms = found.first_timestamp_ms


cdef int segment_wake(Segment *segment) noexcept nogil:
    cdef SegmentEnd found
    cdef int result = segment_open_log(segment)
    if result == 0:
        result = segment_load_indexes(segment)
    if result == -EINVAL:
        result = segment_reset_indexes(segment)
    if result == 0:
        result = segment_find_end(segment, 0, &found)
    if result < 0:
        return result
    segment_note_end(segment, &found)
    return segment_reserve(segment)
