"""Reads and writes varints with plain pointers, for loops in which a `Reader` (cursor.pxd) would be too slow.
`get_varint` and `get_varlong` return the position after the varint. They return NULL if the varint is truncated, is
longer than 5 bytes (`get_varint`) or 10 bytes (`get_varlong`), or has bits beyond 32 or 64. If `p` is NULL, they return
NULL. So the caller can check once after several calls.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from * nogil:
    """
    #include <stddef.h>
    #include <stdint.h>

    static const uint8_t *kc_uvarint_slow(const uint8_t *p, const uint8_t *end, int last_shift, uint8_t last_max,
                                          uint64_t *value) {
        uint64_t sum = 0;
        for (int shift = 0; p < end && shift <= last_shift; shift += 7) {
            uint8_t byte = *p++;
            if (shift == last_shift && byte > last_max) return NULL;
            sum |= (uint64_t)(byte & 0x7f) << shift;
            if (byte < 0x80) { *value = sum; return p; }
        }
        return NULL;
    }
    static inline const uint8_t *kc_get_varint(const uint8_t *p, const uint8_t *end, int32_t *value) {
        uint64_t raw = 0;
        if (__builtin_expect(p == NULL, 0)) return NULL;
        if (__builtin_expect(end - p >= 2, 1)) {
            if (p[0] < 0x80) { raw = *p++; goto have; }
            if (p[1] < 0x80) { raw = (p[0] & 0x7f) | (uint32_t)p[1] << 7; p += 2; goto have; }
        }
        p = kc_uvarint_slow(p, end, 28, 0x0f, &raw);
    have:
        *value = (int32_t)((uint32_t)raw >> 1) ^ -(int32_t)(raw & 1);
        return p;
    }
    static inline const uint8_t *kc_get_varlong(const uint8_t *p, const uint8_t *end, int64_t *value) {
        uint64_t raw = 0;
        if (__builtin_expect(p == NULL, 0)) return NULL;
        if (__builtin_expect(end - p >= 2, 1)) {
            if (p[0] < 0x80) { raw = *p++; goto have; }
            if (p[1] < 0x80) { raw = (p[0] & 0x7f) | (uint32_t)p[1] << 7; p += 2; goto have; }
        }
        p = kc_uvarint_slow(p, end, 63, 0x01, &raw);
    have:
        *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
        return p;
    }
    /* Returns the size of an unsigned varint in bytes: one byte for every seven bits, rounded up. */
    static inline int kc_uvarint_size(uint64_t value) { return ((63 - __builtin_clzll(value | 1)) * 9 + 73) >> 6; }
    static inline uint8_t *kc_put_uvarint(uint8_t *p, uint64_t value) {
        while (value >= 0x80) { *p++ = (uint8_t)(value | 0x80); value >>= 7; }
        *p++ = (uint8_t)value;
        return p;
    }
    """
    const uint8_t *get_varint "kc_get_varint"(const uint8_t *p, const uint8_t *end, int32_t *value) noexcept
    const uint8_t *get_varlong "kc_get_varlong"(const uint8_t *p, const uint8_t *end, int64_t *value) noexcept
    int uvarint_size "kc_uvarint_size"(uint64_t value) noexcept
    uint8_t *put_uvarint "kc_put_uvarint"(uint8_t *p, uint64_t value) noexcept  # the caller must provide enough room
