"""Writes numbers and characters to a `Writer`. text.pxd has the contract."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kafkacore._fast.base.cursor cimport Writer, reserve, write_raw, writer_free, writer_init

cdef enum:
    NUMBER_BYTES = 20
    LEAST_LEAD = 0xC2        # the lowest first byte of a two-byte character; C0 and C1 would encode ASCII
    LAST_LEAD = 0xF4
    MAX_BYTES = 0x7FFFFFFF
    ESCAPE_BYTES = 6         # the longest output for one byte: a control character in JSON
    STEP_BYTES = 4096

cdef uint64_t HIGH_BITS = 0x8080808080808080
cdef const char *HEX = b"0123456789abcdef"


cdef void put_unsigned(Writer *out, uint64_t value) noexcept nogil:
    cdef char digits[NUMBER_BYTES]
    cdef int at = NUMBER_BYTES
    while True:
        at -= 1
        digits[at] = <char> (48 + value % 10)
        value //= 10
        if value == 0:
            break
    write_raw(out, digits + at, NUMBER_BYTES - at)


cdef void put_number(Writer *out, int64_t value) noexcept nogil:
    if value < 0:
        write_raw(out, b"-", 1)
        put_unsigned(out, <uint64_t> 0 - <uint64_t> value)
    else:
        put_unsigned(out, <uint64_t> value)


cdef inline bint is_second(uint8_t lead, uint8_t byte) noexcept nogil:
    """Returns whether `byte` can follow `lead` in valid UTF-8. This excludes overlong encodings and characters beyond
    U+10FFFF."""
    if lead == 0xE0:
        return 0xA0 <= byte <= 0xBF
    if lead == 0xF0:
        return 0x90 <= byte <= 0xBF
    if lead == LAST_LEAD:
        return 0x80 <= byte <= 0x8F
    return 0x80 <= byte <= 0xBF


cdef int character_size(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Returns the size of the multi-byte character at `p`. If the bytes at `p` are invalid, returns their number,
    negated."""
    cdef int size = 4 if p[0] >= 0xF0 else 3 if p[0] >= 0xE0 else 2
    cdef int at = 2
    if p[0] < LEAST_LEAD or p[0] > LAST_LEAD or p + 1 == end or not is_second(p[0], p[1]):
        return -1
    while at < size:
        if p + at == end or p[at] & 0xC0 != 0x80:
            return -at
        at += 1
    # Java's decoder replaces an encoded surrogate (3 bytes) by one U+FFFD. Other decoders replace each of the three
    # bytes.
    return -size if p[0] == 0xED and p[1] >= 0xA0 else size


cdef inline bint is_plain(uint8_t byte, bint escaped) noexcept nogil:
    return not escaped or (byte >= 32 and byte != b'"' and byte != b"\\")


cdef inline uint8_t *put_escape(uint8_t *q, uint8_t byte) noexcept nogil:
    if byte >= 32:
        q[0] = b"\\"
        q[1] = byte
        return q + 2
    memcpy(q, b"\\u00", 4)
    q[4] = HEX[byte >> 4]
    q[5] = HEX[byte & 15]
    return q + ESCAPE_BYTES


cdef inline uint8_t *put_character(uint8_t *q, const uint8_t **p, const uint8_t *end) noexcept nogil:
    """Writes the multi-byte character at `p`, or U+FFFD if the bytes there are invalid. Moves `p` past these bytes."""
    cdef int size = character_size(p[0], end)
    if size < 0:
        memcpy(q, b"\xef\xbf\xbd", 3)
        p[0] -= size
        return q + 3
    memcpy(q, p[0], size)
    p[0] += size
    return q + size


cdef void put_text(Writer *out, const uint8_t *data, int32_t size, bint escaped) noexcept nogil:
    cdef const uint8_t *p = data
    cdef const uint8_t *end = data + size
    cdef const uint8_t *stop
    cdef uint8_t *q
    cdef uint64_t eight
    while p < end:
        stop = end if end - p < STEP_BYTES else p + STEP_BYTES
        # Reserves the longest possible output for these bytes. The code below gives the unused part back. The last
        # character may extend beyond `stop`.
        q = reserve(out, (stop - p) * ESCAPE_BYTES + 4)
        if q == NULL:
            return
        while p < stop:
            if not escaped and stop - p >= 8:
                memcpy(&eight, p, 8)
                if eight & HIGH_BITS == 0:
                    memcpy(q, &eight, 8)
                    p += 8
                    q += 8
                    continue
            if p[0] >= 0x80:
                q = put_character(q, &p, end)
            elif is_plain(p[0], escaped):
                q[0] = p[0]
                p += 1
                q += 1
            else:
                q = put_escape(q, p[0])
                p += 1
        out.size = q - out.data


def replaced(const uint8_t[::1] data not None, *, bint escaped=False):
    """Returns the text that `put_text` writes for these bytes."""
    cdef Writer out
    writer_init(&out, MAX_BYTES)
    if data.shape[0] > MAX_BYTES // ESCAPE_BYTES - 1:
        raise ValueError(f"{data.shape[0]} bytes are too many")
    if data.shape[0]:
        with nogil:
            put_text(&out, &data[0], <int32_t> data.shape[0], escaped)
    try:
        if out.bad:
            raise MemoryError
        return PyBytes_FromStringAndSize(<const char *> out.data, out.size) if out.size else b""
    finally:
        writer_free(&out)
