"""Implements segment_find.pxd: finds batches in a segment's .log (LogSegment)."""

from libc.errno cimport EAGAIN, EILSEQ
from libc.stdint cimport int64_t, uint8_t

from kafkacore._fast.log.segment cimport Segment, file_of
from kafkacore._fast.log.segment_index cimport segment_floor
from kafkacore._fast.record.record cimport BATCH_OK, BATCH_SHORT, HEADER_BYTES, BatchHeader, last_offset, parse_header
from kafkacore._fast.world.environment cimport Disk

cdef enum:
    SCAN_BYTES = 4096


cdef int segment_find(Segment *segment, int64_t offset, int64_t floor, int64_t end, bint cached,
                      Position *found) noexcept nogil:
    cdef uint8_t block[SCAN_BYTES]
    cdef const Disk *disk = segment.disk
    cdef BatchHeader header
    cdef int64_t at = floor     # the position of the batch
    cdef int64_t start = 0      # the position of the block
    cdef int64_t held = 0       # the number of bytes in the block
    cdef int64_t got
    cdef int parsed
    while at < end:
        parsed = BATCH_SHORT
        if start <= at < start + held:
            parsed = parse_header(block + (at - start), <size_t> (start + held - at), &header)
        if parsed == BATCH_SHORT:
            held = end - at if end - at < SCAN_BYTES else SCAN_BYTES
            start = at
            if cached:
                got = disk.pread_cached(disk.self, file_of(segment), block, held, at)
            else:
                got = disk.pread(disk.self, file_of(segment), block, held, at)
            if got < 0:
                return <int> got
            if cached and got < held and got < HEADER_BYTES:
                # Either some of the bytes are not in the page cache, or the file is too short. The caller repeats the
                # read in a way that may wait, to find out which of the two it is.
                return -EAGAIN
            held = got
            parsed = parse_header(block, <size_t> held, &header)
        if parsed != BATCH_OK or header.size_bytes > end - at:
            return -EILSEQ
        if last_offset(&header) >= offset:
            found.offset = header.base_offset
            found.position = at
            found.size = header.size_bytes
            return 0
        at += header.size_bytes
    return SEGMENT_END


cdef int segment_largest_timestamp(Segment *segment, int64_t *timestamp_ms, int64_t *offset) noexcept nogil:
    cdef uint8_t raw[HEADER_BYTES]
    cdef BatchHeader header
    cdef int64_t at, got
    timestamp_ms[0] = -1
    offset[0] = segment.base_offset
    if segment.time_count > 0:
        timestamp_ms[0] = segment.time_index[segment.time_count - 1].timestamp_ms
        offset[0] = segment.base_offset + segment.time_index[segment.time_count - 1].relative_offset
    at = segment_floor(segment, offset[0])
    while at < segment.size:
        got = segment.disk.pread(segment.disk.self, file_of(segment), raw, HEADER_BYTES, at)
        if got < 0:
            return <int> got
        if parse_header(raw, <size_t> got, &header) != BATCH_OK:
            return -EILSEQ
        if header.max_timestamp > timestamp_ms[0]:
            timestamp_ms[0] = header.max_timestamp
            offset[0] = last_offset(&header)
        at += header.size_bytes
    return 0
