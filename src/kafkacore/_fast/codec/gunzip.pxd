"""Inflates gzip (RFC 1952): a sequence of members. Checks the header, checksum and size of each member.

zlib or zlib-ng inflates the DEFLATE blocks of a member. This module reads the headers and trailers. It also computes
the checksum itself, by folding, because zlib would spend up to a fifth of its time on the checksum. If the bytes after
a member are not another member, this module rejects the body. Java's GZIPInputStream ignores such bytes. libdeflate and
ISA-L are as fast as zlib-ng, but they accept sets of Huffman codes that zlib rejects. We do not use them, because Java
consumers use zlib, and a node must not accept a batch that these consumers cannot read.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memchr

from kafkacore._fast.codec.library cimport Z_MEM_ERROR, Z_OK, Z_STREAM_END, ZStream, zlib
from kafkacore._fast.base.crc32c cimport crc32

cdef enum:
    GUNZIP_CORRUPT = -1
    GUNZIP_NO_MEMORY = -2
    GZIP_HEADER_BYTES = 10
    GZIP_TRAILER_BYTES = 8
    GZIP_HEADER_CHECKSUM = 0x02  # flags
    GZIP_EXTRA = 0x04
    GZIP_NAME = 0x08
    GZIP_COMMENT = 0x10
    GZIP_RESERVED = 0xE0
    RAW_WINDOW_BITS = -15        # DEFLATE blocks without a header or trailer

cdef enum GunzipState:
    GUNZIP_BEFORE_FIRST = 0
    GUNZIP_INSIDE = 1
    GUNZIP_BETWEEN = 2

ctypedef struct Gunzip:
    ZStream stream
    int state
    uint32_t crc                 # the checksum of the member's bytes so far
    uint32_t member_bytes        # inflated so far, modulo 2^32 as in the member's trailer


cdef inline uint32_t le32(const uint8_t *p) noexcept nogil:
    return p[0] | p[1] << 8 | p[2] << 16 | <uint32_t> p[3] << 24


cdef inline const uint8_t *after_zero(const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef const uint8_t *zero = NULL
    if p != NULL:
        zero = <const uint8_t *> memchr(p, 0, end - p)
    return zero + 1 if zero != NULL else NULL


cdef inline const uint8_t *after_header(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Returns the position of the member's first block, or NULL if the header is malformed or truncated."""
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


cdef inline const uint8_t *after_trailer(
    const uint8_t *p, const uint8_t *end, uint32_t crc, uint32_t member_bytes
) noexcept nogil:
    """Returns the end of the member, or NULL if its checksum or size does not match the inflated bytes."""
    if end - p < GZIP_TRAILER_BYTES or le32(p) != crc or le32(p + 4) != member_bytes:
        return NULL
    return p + GZIP_TRAILER_BYTES


cdef inline bint gunzip_init(Gunzip *gunzip) noexcept nogil:
    """Initialises a zeroed struct; call this once. `zlib.inflate_end` frees the memory. Returns False if no memory is
    left."""
    return zlib.inflate_init(&gunzip.stream, RAW_WINDOW_BITS) == Z_OK


cdef inline int64_t gunzip_next(
    Gunzip *gunzip, uint8_t *room, size_t size, const uint8_t **source, const uint8_t *end
) noexcept nogil:
    """Inflates the next `size` bytes, or fewer at the end. Returns the number of bytes (0 at the end), GUNZIP_CORRUPT
    or GUNZIP_NO_MEMORY."""
    cdef ZStream *stream = &gunzip.stream
    cdef uint8_t *before
    cdef int status
    stream.next_out = room
    stream.avail_out = <unsigned> size
    while stream.avail_out:
        if gunzip.state != GUNZIP_INSIDE:
            if gunzip.state == GUNZIP_BETWEEN and source[0] == end:
                break
            source[0] = after_header(source[0], end)
            if source[0] == NULL:
                return GUNZIP_CORRUPT
            zlib.inflate_reset(stream)
            gunzip.state = GUNZIP_INSIDE
            gunzip.crc = gunzip.member_bytes = 0
        before = stream.next_out
        stream.next_in = source[0]
        stream.avail_in = <unsigned> (end - source[0])
        status = zlib.inflate(stream, 0)
        source[0] = stream.next_in
        gunzip.crc = crc32(gunzip.crc, before, stream.next_out - before)
        gunzip.member_bytes += <uint32_t> (stream.next_out - before)
        if status == Z_STREAM_END:
            source[0] = after_trailer(source[0], end, gunzip.crc, gunzip.member_bytes)
            if source[0] == NULL:
                return GUNZIP_CORRUPT
            gunzip.state = GUNZIP_BETWEEN
        elif status != Z_OK:  # the member is corrupt, or the input ends inside it
            return GUNZIP_NO_MEMORY if status == Z_MEM_ERROR else GUNZIP_CORRUPT
    return size - stream.avail_out
