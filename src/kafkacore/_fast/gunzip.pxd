"""gzip (RFC 1952): members that follow one another, read in chunks, each with its header, checksum and size checked.

Java's GZIPInputStream leaves what follows a member and is none itself unread; here that is refused.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memmove

from kafkacore._fast.crc32c cimport crc32
from kafkacore._fast.inflate cimport (
    INFLATE_CORRUPT, INFLATE_MORE, INFLATE_OVERRUN, INFLATE_WINDOW, Inflate, inflate_end, inflate_run, inflate_start,
)

cdef enum:
    GUNZIP_CHUNK_BYTES = 131072
    # What matches reach back to, a chunk, and what its last match and the copying of it write beyond.
    GUNZIP_ROOM_BYTES = INFLATE_WINDOW + GUNZIP_CHUNK_BYTES + INFLATE_OVERRUN
    GUNZIP_CORRUPT = -1
    GZIP_HEADER_BYTES = 10
    GZIP_TRAILER_BYTES = 8
    GZIP_HEADER_CHECKSUM = 0x02  # flags
    GZIP_EXTRA = 0x04
    GZIP_NAME = 0x08
    GZIP_COMMENT = 0x10
    GZIP_RESERVED = 0xE0

cdef enum GunzipState:
    GUNZIP_BEFORE_FIRST = 0
    GUNZIP_INSIDE = 1
    GUNZIP_BETWEEN = 2

ctypedef struct Gunzip:
    Inflate reader
    int state
    uint32_t crc                 # of the member, so far
    uint32_t member_bytes        # likewise, modulo 2^32 as its trailer has it
    size_t given                 # bytes of the last chunk
    size_t reach                 # of those before and in it, what a match may go back to


cdef inline uint32_t le32(const uint8_t *p) noexcept nogil:
    return p[0] | p[1] << 8 | p[2] << 16 | <uint32_t> p[3] << 24


cdef inline const uint8_t *after_zero(const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef const uint8_t *zero = NULL
    if p != NULL:
        zero = <const uint8_t *> memchr(p, 0, end - p)
    return zero + 1 if zero != NULL else NULL


cdef inline const uint8_t *after_header(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Where the member's blocks begin; NULL when its header is none, or is cut off."""
    cdef const uint8_t *start = p
    cdef int flags, size
    if end - p < GZIP_HEADER_BYTES or p[0] != 0x1F or p[1] != 0x8B or p[2] != 8 or p[3] & GZIP_RESERVED:
        return NULL
    flags = p[3]
    p += GZIP_HEADER_BYTES
    if flags & GZIP_EXTRA:
        if end - p < 2:
            return NULL
        size = p[0] | p[1] << 8
        p += 2
        if size > end - p:
            return NULL
        p += size
    if flags & GZIP_NAME:
        p = after_zero(p, end)
    if flags & GZIP_COMMENT:
        p = after_zero(p, end)
    if flags & GZIP_HEADER_CHECKSUM and p != NULL:
        if end - p < 2 or <int> (crc32(0, start, p - start) & 0xFFFF) != (p[0] | p[1] << 8):
            return NULL
        p += 2
    return p


cdef inline const uint8_t *after_trailer(Gunzip *gunzip, const uint8_t *end) noexcept nogil:
    """Where the member ends; NULL when checksum or size are not those of what was inflated."""
    cdef const uint8_t *p = inflate_end(&gunzip.reader, end)
    if p == NULL or end - p < GZIP_TRAILER_BYTES:
        return NULL
    if le32(p) != gunzip.crc or le32(p + 4) != gunzip.member_bytes:
        return NULL
    return p + GZIP_TRAILER_BYTES


cdef inline void gunzip_begin(Gunzip *gunzip) noexcept nogil:
    gunzip.state = GUNZIP_BEFORE_FIRST
    gunzip.given = gunzip.reach = 0


cdef inline int64_t gunzip_next(
    Gunzip *gunzip, uint8_t *room, const uint8_t **source, const uint8_t *end
) noexcept nogil:
    """The next chunk, at INFLATE_WINDOW in the GUNZIP_ROOM_BYTES of `room`: its size, 0 at the end, GUNZIP_CORRUPT.

    `room` must hold what the call before left there, and `source` to `end` stay put.
    """
    cdef uint8_t *start = room + INFLATE_WINDOW
    cdef uint8_t *stop = start + GUNZIP_CHUNK_BYTES
    cdef uint8_t *out = start
    cdef uint8_t *before
    cdef const uint8_t *history = start - gunzip.reach
    cdef int status
    memmove(start - gunzip.reach, start + gunzip.given - gunzip.reach, gunzip.reach)
    while out < stop:
        if gunzip.state != GUNZIP_INSIDE:
            if gunzip.state == GUNZIP_BETWEEN and source[0] == end:
                break
            source[0] = after_header(source[0], end)
            if source[0] == NULL:
                return GUNZIP_CORRUPT
            inflate_start(&gunzip.reader, source[0], end)
            gunzip.state = GUNZIP_INSIDE
            gunzip.crc = gunzip.member_bytes = 0
            history = out
        before = out
        status = inflate_run(&gunzip.reader, &out, stop, history)
        if status == INFLATE_CORRUPT:
            return GUNZIP_CORRUPT
        gunzip.crc = crc32(gunzip.crc, before, out - before)
        gunzip.member_bytes += <uint32_t> (out - before)
        if status == INFLATE_MORE:
            break
        source[0] = after_trailer(gunzip, end)
        if source[0] == NULL:
            return GUNZIP_CORRUPT
        gunzip.state = GUNZIP_BETWEEN
    gunzip.given = out - start
    gunzip.reach = min(<size_t> (out - history), <size_t> INFLATE_WINDOW)
    return out - start
