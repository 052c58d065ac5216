"""Inflates and deflates raw snappy blocks on machines without libsnappy. A plain Debian system does not have libsnappy.
The Python package cramjam also handles snappy, but its calls hold the GIL.

The file `format_description.txt` of google/snappy describes the format: a varint with the inflated size, then literals
and copies. A copy has 1 to 64 bytes.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t

cdef extern from * nogil:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    enum { KC_SNAPPY_HASH_BITS = 14, KC_SNAPPY_FRAGMENT = 65536 };

    /* Returns the inflated size that a block declares, or -1 if the varint is malformed. Sets `*at` to the byte after
       the varint. */
    static int64_t kc_snappy_promised(const uint8_t **at, const uint8_t *end) {
        uint64_t size = 0;
        for (int shift = 0; shift < 35 && *at < end; shift += 7) {
            uint8_t byte = *(*at)++;
            size |= (uint64_t)(byte & 0x7f) << shift;
            if (byte < 0x80) return size > 0xffffffffu ? -1 : (int64_t)size;
        }
        return -1;
    }

    /* Copies `size` bytes (at most 64) to `out`. The source begins `distance` bytes before `out`. If source and target
       overlap, the copy repeats these `distance` bytes. */
    static inline void kc_snappy_copy(uint8_t *out, size_t distance, size_t size, const uint8_t *limit) {
        const uint8_t *from = out - distance;
        if (distance >= 16 && limit - out >= 64) {
            memcpy(out, from, 16);
            if (size > 16) {
                memcpy(out + 16, from + 16, 16);
                if (size > 32) {
                    memcpy(out + 32, from + 32, 16);
                    memcpy(out + 48, from + 48, 16);
                }
            }
        } else if (distance >= 8 && (size_t)(limit - out) >= size + 8) {
            for (size_t i = 0; i < size; i += 8) memcpy(out + i, from + i, 8);
        } else {
            for (size_t i = 0; i < size; i++) out[i] = from[i];
        }
    }

    /* Inflates the elements that follow the size. Returns 0 if they use up the input and fill exactly [out, limit),
       else -1. */
    static int kc_snappy_inflate(const uint8_t *p, const uint8_t *end, uint8_t *out, uint8_t *limit) {
        uint8_t *const start = out;
        while (p < end) {
            uint8_t tag = *p++;
            size_t size, distance, extra;
            if ((tag & 3) == 0) {
                size = (tag >> 2) + 1;
                if (size <= 16 && end - p >= 16 && limit - out >= 16) {  /* copy most literals inline */
                    memcpy(out, p, 16);
                    p += size;
                    out += size;
                    continue;
                }
                if (size > 60) {
                    extra = size - 60;
                    if ((size_t)(end - p) < extra) return -1;
                    size = 0;
                    for (size_t i = 0; i < extra; i++) size |= (size_t)p[i] << (8 * i);
                    size += 1;
                    p += extra;
                }
                if (size > (size_t)(end - p) || size > (size_t)(limit - out)) return -1;
                memcpy(out, p, size);
                p += size;
                out += size;
                continue;
            }
            if ((tag & 3) == 1) {
                if (end - p < 1) return -1;
                size = ((tag >> 2) & 7) + 4;
                distance = ((size_t)(tag >> 5) << 8) | p[0];
                p += 1;
            } else {
                extra = (tag & 3) == 2 ? 2 : 4;
                if ((size_t)(end - p) < extra) return -1;
                size = (tag >> 2) + 1;
                distance = p[0] | (size_t)p[1] << 8;
                if (extra == 4) distance |= (size_t)p[2] << 16 | (size_t)p[3] << 24;
                p += extra;
            }
            if (distance == 0 || distance > (size_t)(out - start) || size > (size_t)(limit - out)) return -1;
            kc_snappy_copy(out, distance, size, limit);
            out += size;
        }
        return out == limit ? 0 : -1;
    }

    static size_t kc_snappy_bound(size_t size) { return 32 + size + size / 6; }

    static uint8_t *kc_snappy_literal(uint8_t *out, const uint8_t *from, size_t size) {
        if (size == 0) return out;
        if (size <= 60) {
            *out++ = (uint8_t)((size - 1) << 2);
        } else if (size <= 256) {
            *out++ = 60 << 2;
            *out++ = (uint8_t)(size - 1);
        } else {  /* a fragment is at most 64 KiB */
            *out++ = 61 << 2;
            *out++ = (uint8_t)(size - 1);
            *out++ = (uint8_t)((size - 1) >> 8);
        }
        memcpy(out, from, size);
        return out + size;
    }

    static uint8_t *kc_snappy_back(uint8_t *out, size_t distance, size_t size) {
        while (size > 0) {  /* a copy with a two-byte distance has 1 to 64 bytes */
            size_t part = size > 64 ? 64 : size;
            *out++ = (uint8_t)((part - 1) << 2 | 2);
            *out++ = (uint8_t)distance;
            *out++ = (uint8_t)(distance >> 8);
            size -= part;
        }
        return out;
    }

    static inline uint32_t kc_snappy_load32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }

    /* Deflates one fragment of at most 64 KiB. Finds matches greedily, with a hash table of positions. */
    static uint8_t *kc_snappy_fragment(const uint8_t *start, size_t size, uint8_t *out, uint16_t *table) {
        const uint8_t *p = start, *literal = start, *end = start + size;
        unsigned misses = 32;  /* the step grows after each 32 misses, so incompressible data costs little time */
        memset(table, 0, sizeof(uint16_t) << KC_SNAPPY_HASH_BITS);
        if (size >= 8) p++;  /* position 0 means an empty slot, and a match needs bytes before it */
        while (end - p >= 8) {
            uint32_t now = kc_snappy_load32(p);
            uint16_t *slot = &table[(now * 0x1e35a7bdu) >> (32 - KC_SNAPPY_HASH_BITS)];
            const uint8_t *match = start + *slot;
            *slot = (uint16_t)(p - start);
            if (kc_snappy_load32(match) != now) { p += misses++ >> 5; continue; }
            const uint8_t *at = p + 4, *back = match + 4;
            while (at < end && *at == *back) { at++; back++; }
            out = kc_snappy_literal(out, literal, (size_t)(p - literal));
            out = kc_snappy_back(out, (size_t)(p - match), (size_t)(at - p));
            literal = p = at;
            misses = 32;
        }
        return kc_snappy_literal(out, literal, (size_t)(end - literal));
    }

    /* Writes a whole block to `out`, which has room for kc_snappy_bound(size) bytes. Returns the size of the block.
       `table` has 2^14 entries. */
    static size_t kc_snappy_deflate(const uint8_t *data, size_t size, uint8_t *out, uint16_t *table) {
        uint8_t *const start = out;
        size_t left = size;
        while (left >= 0x80) { *out++ = (uint8_t)(left | 0x80); left >>= 7; }
        *out++ = (uint8_t)left;
        while (size > 0) {
            size_t part = size > KC_SNAPPY_FRAGMENT ? KC_SNAPPY_FRAGMENT : size;
            out = kc_snappy_fragment(data, part, out, table);
            data += part;
            size -= part;
        }
        return (size_t)(out - start);
    }
    """
    enum:
        SNAPPY_HASH_BITS "KC_SNAPPY_HASH_BITS"
    int64_t snappy_promised "kc_snappy_promised"(const uint8_t **at, const uint8_t *end) noexcept
    int snappy_inflate "kc_snappy_inflate"(const uint8_t *p, const uint8_t *end, uint8_t *out, uint8_t *limit) noexcept
    size_t snappy_bound "kc_snappy_bound"(size_t size) noexcept
    size_t snappy_deflate "kc_snappy_deflate"(const uint8_t *data, size_t size, uint8_t *out, uint16_t *table) noexcept
