"""`Reader` and `Writer`: cursors that read values from bytes and write values to bytes.

A `Reader` consists of a position, an end and the flag `bad`. A read past the end returns zero and sets `bad`, which
then stays set. The caller checks `bad` once, at the end of a message. Before the reader uses a length that it has read,
it compares the length with the number of bytes that remain.

A `Writer` owns a block that grows up to `limit` bytes. A write that does not fit sets `bad` and writes nothing. The
caller checks `bad` once, at the end. Integers are big-endian. Varints have protobuf's format: unsigned in messages
(KIP-482), zig-zag in records.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint16_t kc_be16(const void *p) { uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
    static inline uint32_t kc_be32(const void *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
    static inline uint64_t kc_be64(const void *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
    static inline void kc_put16(void *p, uint16_t v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); }
    static inline void kc_put32(void *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
    static inline void kc_put64(void *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }
    """
    uint16_t be16 "kc_be16"(const void *p) noexcept
    uint32_t be32 "kc_be32"(const void *p) noexcept
    uint64_t be64 "kc_be64"(const void *p) noexcept
    void put16 "kc_put16"(void *p, uint16_t v) noexcept
    void put32 "kc_put32"(void *p, uint32_t v) noexcept
    void put64 "kc_put64"(void *p, uint64_t v) noexcept


ctypedef struct Reader:
    const uint8_t *pos
    const uint8_t *end
    bint bad


cdef inline void reader_init(Reader *r, const void *data, size_t size) noexcept nogil:
    r.pos = <const uint8_t *> data
    r.end = r.pos + size
    r.bad = False


cdef inline size_t remaining(const Reader *r) noexcept nogil:
    return <size_t> (r.end - r.pos)


cdef inline const uint8_t *take(Reader *r, int64_t size) noexcept nogil:
    """Returns a pointer to the next `size` bytes and moves past them. If fewer bytes are left, returns NULL, sets `bad`
    and empties the reader."""
    cdef const uint8_t *at = r.pos
    if size < 0 or size > r.end - r.pos:
        r.bad = True
        r.pos = r.end
        return NULL
    r.pos += size
    return at


cdef inline int8_t read_i8(Reader *r) noexcept nogil:
    cdef const uint8_t *p = take(r, 1)
    return <int8_t> p[0] if p != NULL else 0


cdef inline int16_t read_i16(Reader *r) noexcept nogil:
    cdef const uint8_t *p = take(r, 2)
    return <int16_t> be16(p) if p != NULL else 0


cdef inline int32_t read_i32(Reader *r) noexcept nogil:
    cdef const uint8_t *p = take(r, 4)
    return <int32_t> be32(p) if p != NULL else 0


cdef inline int64_t read_i64(Reader *r) noexcept nogil:
    cdef const uint8_t *p = take(r, 8)
    return <int64_t> be64(p) if p != NULL else 0


cdef inline uint64_t read_uvarlong(Reader *r) noexcept nogil:
    """Reads at most ten bytes. An eleventh byte, or bits beyond 64, set `bad` (Kafka: "varint is too long")."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while True:
        if r.pos == r.end or shift > 63:
            r.bad = True
            r.pos = r.end
            return 0
        byte = r.pos[0]
        r.pos += 1
        if shift == 63 and byte > 1:
            r.bad = True
            r.pos = r.end
            return 0
        value |= <uint64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7


cdef inline uint32_t read_uvarint(Reader *r) noexcept nogil:
    """Reads at most five bytes; the value must fit into 32 bits."""
    cdef const uint8_t *start = r.pos
    cdef uint64_t value
    if r.pos < r.end and r.pos[0] < 0x80:
        r.pos += 1
        return start[0]
    value = read_uvarlong(r)
    if value > 0xFFFFFFFFu or r.pos - start > 5:
        r.bad = True
        r.pos = r.end
        return 0
    return <uint32_t> value


cdef inline int32_t read_varint(Reader *r) noexcept nogil:
    cdef uint32_t raw = read_uvarint(r)
    return <int32_t> ((raw >> 1) ^ (~(raw & 1) + 1))


cdef inline int64_t read_varlong(Reader *r) noexcept nogil:
    cdef uint64_t raw = read_uvarlong(r)
    return <int64_t> ((raw >> 1) ^ (~(raw & 1) + 1))


ctypedef struct Writer:
    uint8_t *data       # owned; NULL until the first write
    size_t size
    size_t capacity
    size_t limit        # a write beyond this size sets `bad`
    bint bad


cdef inline void writer_init(Writer *w, size_t limit) noexcept nogil:
    w.data = NULL
    w.size = 0
    w.capacity = 0
    w.limit = limit
    w.bad = False


cdef inline void writer_free(Writer *w) noexcept nogil:
    free(w.data)
    w.data = NULL
    w.size = w.capacity = 0


cdef inline uint8_t *writer_detach(Writer *w) noexcept nogil:
    """Returns the writer's block. The caller must free the block."""
    cdef uint8_t *data = w.data
    w.data = NULL
    w.size = w.capacity = 0
    return data


cdef inline uint8_t *reserve(Writer *w, size_t size) noexcept nogil:
    """Reserves `size` more bytes, which count as written. If they do not fit, returns NULL and sets `bad`."""
    cdef size_t capacity
    cdef uint8_t *data
    if size > w.capacity - w.size:
        if w.bad or size > w.limit - w.size:
            w.bad = True
            return NULL
        capacity = w.capacity * 2 if w.capacity else 256
        if capacity < w.size + size:
            capacity = w.size + size
        if capacity > w.limit:
            capacity = w.limit
        data = <uint8_t *> realloc(w.data, capacity)
        if data == NULL:
            w.bad = True
            return NULL
        w.data = data
        w.capacity = capacity
    data = w.data + w.size
    w.size += size
    return data


cdef inline void write_i8(Writer *w, int8_t value) noexcept nogil:
    cdef uint8_t *p = reserve(w, 1)
    if p != NULL:
        p[0] = <uint8_t> value


cdef inline void write_i16(Writer *w, int16_t value) noexcept nogil:
    cdef uint8_t *p = reserve(w, 2)
    if p != NULL:
        put16(p, <uint16_t> value)


cdef inline void write_i32(Writer *w, int32_t value) noexcept nogil:
    cdef uint8_t *p = reserve(w, 4)
    if p != NULL:
        put32(p, <uint32_t> value)


cdef inline void write_i64(Writer *w, int64_t value) noexcept nogil:
    cdef uint8_t *p = reserve(w, 8)
    if p != NULL:
        put64(p, <uint64_t> value)


cdef inline void write_raw(Writer *w, const void *data, size_t size) noexcept nogil:
    cdef uint8_t *p = reserve(w, size)
    if p != NULL and size:
        memcpy(p, data, size)


cdef inline int uvarlong_size(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t *put_uvarlong(uint8_t *p, uint64_t value) noexcept nogil:
    """Writes to `p`, where at least ten bytes must be free. Returns the position after the varint."""
    while value >= 0x80:
        p[0] = <uint8_t> (value | 0x80)
        value >>= 7
        p += 1
    p[0] = <uint8_t> value
    return p + 1


cdef inline void write_uvarlong(Writer *w, uint64_t value) noexcept nogil:
    cdef uint8_t *p = reserve(w, uvarlong_size(value))
    if p != NULL:
        put_uvarlong(p, value)


cdef inline void write_uvarint(Writer *w, uint32_t value) noexcept nogil:
    write_uvarlong(w, value)


cdef inline uint32_t zigzag32(int32_t value) noexcept nogil:
    return (<uint32_t> value << 1) ^ <uint32_t> (value >> 31)


cdef inline uint64_t zigzag64(int64_t value) noexcept nogil:
    return (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)


cdef inline void write_varint(Writer *w, int32_t value) noexcept nogil:
    write_uvarlong(w, zigzag32(value))


cdef inline void write_varlong(Writer *w, int64_t value) noexcept nogil:
    write_uvarlong(w, zigzag64(value))
