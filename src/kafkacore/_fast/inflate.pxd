"""DEFLATE (RFC 1951) read into a bounded block, in pieces: what `gunzip.pxd` does with members of gzip.

Our own, for gzip is what a node spends most on per record and zlib reads it at half this speed; the libraries that are
as quick are not on every machine. The ways to be quick are well known (Eric Biggers' libdeflate has most of them): 56
bits loaded at once without asking, one look-up for nearly every code, slots that hold a whole symbol, matches copied
in words. What is refused is what zlib refuses.

No read passes the source: its last bytes are read from a copy with zeros behind it, and whoever consumes these is
refused. No write passes the room for more than KC_INFLATE_OVERRUN bytes.
"""

from libc.stdint cimport uint8_t

cdef extern from * nogil:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    enum {
        KC_LITLEN_BITS = 11,        /* of the first look-up; a code that is longer has a second one */
        KC_DISTANCE_BITS = 8,
        KC_PRECODE_BITS = 7,
        KC_LITLEN_SLOTS = 2342,     /* the most that any complete code needs (zlib's `enough 288 11 15`, `32 8 15`) */
        KC_DISTANCE_SLOTS = 402,
        KC_INFLATE_WINDOW = 32768,  /* the farthest that a match reaches back */
        KC_INFLATE_OVERRUN = 320,   /* room after the output: the last match, and what its copy writes beyond it */
        KC_TAIL_BYTES = 16,         /* input that a turn of the loop may load */

        KC_CODE_LITERAL = 0x8000,   /* of a slot; else a length or distance, if it is none of these */
        KC_CODE_SECOND = 0x4000,
        KC_CODE_STOP = 0x2000,      /* the end of the block (value 1), or no code at all (0) */

        KC_INFLATE_ENDED = 0, KC_INFLATE_MORE = 1, KC_INFLATE_CORRUPT = -1,
        KC_AT_HEADER = 0, KC_AT_STORED = 1, KC_AT_SYMBOLS = 2
    };

    /* A slot: bits to consume with the extra ones in 0-5, bits of the code alone in 8-11, flags, a value in 16-31. */
    typedef struct {
        const uint8_t *in;          /* the next byte to load */
        const uint8_t *in_stop;     /* the last place from which a turn may load */
        const uint8_t *in_end;
        uint64_t bits;              /* `count` of them are loaded; those above are what the next load brings again */
        unsigned count;
        int at_tail;                /* `in` goes through `tail` */
        int state;
        int last;                   /* the block is the last one */
        int fixed;                  /* the tables are those of fixed codes */
        uint32_t stored_left;
        uint8_t tail[64];           /* the source's last bytes, then zeros, so that loads never pass the source */
        uint32_t litlen[KC_LITLEN_SLOTS];
        uint32_t distance[KC_DISTANCE_SLOTS];
    } kc_inflate;

    static uint32_t kc_litlen_codes[288], kc_distance_codes[32], kc_precode_codes[19];

    static void kc_inflate_make_tables(void) {
        unsigned base = 3;
        for (int i = 0; i < 19; i++) kc_precode_codes[i] = (uint32_t)i << 16;
        for (int i = 0; i < 256; i++) kc_litlen_codes[i] = (uint32_t)i << 16 | KC_CODE_LITERAL;
        kc_litlen_codes[256] = 1u << 16 | KC_CODE_STOP;
        for (int i = 257; i < 285; i++) {
            unsigned extra = i < 265 ? 0 : (i - 261) / 4;
            kc_litlen_codes[i] = base << 16 | extra;
            base += 1u << extra;
        }
        kc_litlen_codes[285] = 258u << 16;
        kc_litlen_codes[286] = kc_litlen_codes[287] = KC_CODE_STOP;
        base = 1;
        for (int i = 0; i < 30; i++) {
            unsigned extra = i < 4 ? 0 : i / 2 - 1;
            kc_distance_codes[i] = base << 16 | extra;
            base += 1u << extra;
        }
        kc_distance_codes[30] = kc_distance_codes[31] = KC_CODE_STOP;
    }

    static inline uint64_t kc_inflate_load(const uint8_t *p) {
        uint64_t v;
        memcpy(&v, p, 8);
        return v;
    }

    static void kc_inflate_begin(kc_inflate *r, const uint8_t *p, const uint8_t *end) {
        r->in = p;
        r->in_end = end;
        r->in_stop = end - p >= KC_TAIL_BYTES ? end - KC_TAIL_BYTES : p - 1;
        r->bits = r->count = 0;
        r->at_tail = r->state = r->last = r->fixed = 0;
    }

    /* The next byte of which no bit was consumed. */
    static inline const uint8_t *kc_inflate_at(const kc_inflate *r) { return r->in - (r->count >> 3); }

    /* Goes on in the tail when the source has too few bytes left to load from; 0 when it was over already. What is
       loaded and not consumed is copied, too: a stored block goes back to it. */
    static int kc_inflate_to_tail(kc_inflate *r) {
        const uint8_t *at = kc_inflate_at(r);
        size_t left = r->in_end - at, loaded = r->in - at;
        if (r->at_tail) return 0;
        memcpy(r->tail, at, left);
        memset(r->tail + left, 0, sizeof r->tail - left);
        r->in = r->tail + loaded;
        r->in_end = r->tail + left;
        r->in_stop = r->in_end + 8;   /* beyond, more was consumed than there is */
        r->at_tail = 1;
        return 1;
    }

    /* 56 bits or more, the source's and then zeros; 0 when these are used up. */
    static int kc_inflate_refill(kc_inflate *r) {
        if (r->in > r->in_stop && !kc_inflate_to_tail(r)) return 0;
        r->bits |= kc_inflate_load(r->in) << r->count;
        r->in += (63 - r->count) >> 3;
        r->count |= 56;
        return 1;
    }

    static inline unsigned kc_inflate_take(kc_inflate *r, unsigned count) {
        unsigned value = (unsigned)r->bits & ((1u << count) - 1);
        r->bits >>= count;
        r->count -= count;
        return value;
    }

    /* The next code of `size` bits; codes are kept with their first bit lowest. */
    static inline unsigned kc_next_code(unsigned code, int size) {
        unsigned bit = 1u << (size - 1);
        while (code & bit) bit >>= 1;
        return bit ? (code & (bit - 1)) | bit : 0;
    }

    static inline uint32_t kc_slot(uint32_t code, int size) { return code + (uint32_t)(size << 8 | size); }

    /* Slots from the sizes of the codes; 0 when no such set of codes may be: over-subscribed, or incomplete but for
       none or one of one bit, where `lone` allows that (zlib's rule). */
    static int kc_inflate_table(uint32_t *table, unsigned slots, int table_bits, const uint8_t *sizes, int symbols,
                                const uint32_t *codes, int lone) {
        uint16_t count[16] = {0}, place[16], sorted[288];
        const uint16_t *next = sorted;
        unsigned code = 0, prefix = ~0u, start = 0, end = 1u << table_bits, second_bits = 0;
        int left = 1, size, most = 0;
        for (int i = 0; i < symbols; i++) count[sizes[i]]++;
        count[0] = place[1] = 0;
        for (size = 1; size < 16; size++) {
            left = 2 * left - count[size];
            if (left < 0) return 0;
            if (count[size]) most = size;
            if (size < 15) place[size + 1] = place[size] + count[size];
        }
        for (int i = 0; i < symbols; i++) if (sizes[i]) sorted[place[sizes[i]]++] = (uint16_t)i;
        if (left > 0) {
            if (!lone || most > 1) return 0;
            for (unsigned i = 0; i < end; i++)
                table[i] = most && !(i & 1) ? kc_slot(codes[sorted[0]], 1) : KC_CODE_STOP;
            return 1;
        }
        /* As far as codes of one more bit agree, they agree with those so far: the table doubles. */
        for (size = 1; size <= table_bits; size++) {
            for (int n = count[size]; n; n--, code = kc_next_code(code, size))
                table[code] = kc_slot(codes[*next++], size);
            if (size < table_bits) memcpy(table + (1u << size), table, sizeof *table << size);
        }
        for (; size <= most; size++) {
            for (int n = count[size]; n; n--, code = kc_next_code(code, size)) {
                unsigned step = 1u << (size - table_bits);
                if ((code & ((1u << table_bits) - 1)) != prefix) {
                    unsigned used = n;
                    prefix = code & ((1u << table_bits) - 1);
                    for (second_bits = size - table_bits; used < 1u << second_bits; second_bits++)
                        used = 2 * used + count[table_bits + second_bits + 1];
                    start = end;
                    end += 1u << second_bits;
                    if (end > slots) return 0;
                    table[prefix] = start << 16 | KC_CODE_SECOND | second_bits << 8 | table_bits;
                }
                for (unsigned i = code >> table_bits; i < 1u << second_bits; i += step)
                    table[start + i] = kc_slot(codes[*next], size - table_bits);
                next++;
            }
        }
        return 1;
    }

    static int kc_inflate_fixed(kc_inflate *r) {
        uint8_t sizes[288];
        if (r->fixed) return 1;
        memset(sizes, 8, 144);
        memset(sizes + 144, 9, 112);
        memset(sizes + 256, 7, 24);
        memset(sizes + 280, 8, 8);
        kc_inflate_table(r->litlen, KC_LITLEN_SLOTS, KC_LITLEN_BITS, sizes, 288, kc_litlen_codes, 0);
        memset(sizes, 5, 32);
        kc_inflate_table(r->distance, KC_DISTANCE_SLOTS, KC_DISTANCE_BITS, sizes, 32, kc_distance_codes, 0);
        return r->fixed = 1;
    }

    static int kc_inflate_dynamic(kc_inflate *r) {
        static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
        static const uint8_t least[3] = {3, 3, 11}, extra[3] = {2, 3, 7};
        uint32_t table[1 << KC_PRECODE_BITS];
        uint8_t sizes[286 + 30] = {0}, precode[19] = {0};
        int litlens, distances, total, at = 0;
        if (!kc_inflate_refill(r)) return 0;
        litlens = 257 + kc_inflate_take(r, 5);
        distances = 1 + kc_inflate_take(r, 5);
        total = litlens + distances;
        for (int i = 0, n = 4 + kc_inflate_take(r, 4); i < n; i++) {
            if (!kc_inflate_refill(r)) return 0;
            precode[order[i]] = (uint8_t)kc_inflate_take(r, 3);
        }
        if (litlens > 286 || distances > 30) return 0;
        if (!kc_inflate_table(table, 1 << KC_PRECODE_BITS, KC_PRECODE_BITS, precode, 19, kc_precode_codes, 0)) return 0;
        while (at < total) {
            uint32_t slot;
            int symbol, repeats = 1;
            uint8_t size = 0;
            if (!kc_inflate_refill(r)) return 0;
            slot = table[r->bits & ((1 << KC_PRECODE_BITS) - 1)];
            kc_inflate_take(r, slot & 63);
            symbol = slot >> 16;
            if (symbol < 16) {
                sizes[at++] = (uint8_t)symbol;
                continue;
            }
            if (symbol == 16) {
                if (at == 0) return 0;
                size = sizes[at - 1];
            }
            repeats = least[symbol - 16] + kc_inflate_take(r, extra[symbol - 16]);
            if (repeats > total - at) return 0;
            memset(sizes + at, size, repeats);
            at += repeats;
        }
        if (sizes[256] == 0) return 0;   /* the block would have no end */
        r->fixed = 0;
        return kc_inflate_table(r->litlen, KC_LITLEN_SLOTS, KC_LITLEN_BITS, sizes, litlens, kc_litlen_codes, 1)
            && kc_inflate_table(r->distance, KC_DISTANCE_SLOTS, KC_DISTANCE_BITS, sizes + litlens, distances,
                                kc_distance_codes, 1);
    }

    static int kc_inflate_header(kc_inflate *r) {
        unsigned type, size;
        if (!kc_inflate_refill(r)) return 0;
        r->last = kc_inflate_take(r, 1);
        type = kc_inflate_take(r, 2);
        r->state = KC_AT_SYMBOLS;
        if (type == 1) return kc_inflate_fixed(r);
        if (type == 2) return kc_inflate_dynamic(r);
        if (type == 3) return 0;
        kc_inflate_take(r, r->count & 7);
        if (!kc_inflate_refill(r)) return 0;
        size = kc_inflate_take(r, 16);
        if ((size ^ kc_inflate_take(r, 16)) != 0xffff) return 0;
        r->in = kc_inflate_at(r);
        r->bits = r->count = 0;
        r->stored_left = size;
        r->state = KC_AT_STORED;
        return 1;
    }

    /* Some of a stored block. */
    static int kc_inflate_stored(kc_inflate *r, uint8_t **out, uint8_t *stop) {
        size_t size = r->stored_left;
        if (r->in > r->in_end || size > (size_t)(r->in_end - r->in)) return KC_INFLATE_CORRUPT;
        if (size > (size_t)(stop - *out)) size = stop - *out;
        memcpy(*out, r->in, size);
        *out += size;
        r->in += size;
        r->stored_left -= size;
        if (r->stored_left) return KC_INFLATE_MORE;
        return KC_INFLATE_ENDED;
    }

    static inline void kc_inflate_copy(uint8_t *out, size_t distance, size_t size) {
        const uint8_t *from = out - distance, *end = out + size;
        if (distance >= 16) {   /* most are short: two moves without asking */
            memcpy(out, from, 16);
            memcpy(out + 16, from + 16, 16);
            for (out += 32, from += 32; out < end; out += 16, from += 16) memcpy(out, from, 16);
        } else if (distance == 1) {
            uint64_t same = 0x0101010101010101u * *from;
            for (; out < end; out += 8) memcpy(out, &same, 8);
        } else {   /* a move of 8 is right in its first `distance` bytes, and the next one begins after these */
            size_t step = distance < 8 ? distance : 8;
            for (; out < end; out += step, from += step) memcpy(out, from, 8);
        }
    }

    /* Symbols of a block until its end (ENDED), until `stop` is reached (MORE), or CORRUPT. A match reaches back to
       `history` at most, and after `stop` there is room for KC_INFLATE_OVERRUN bytes. A look-up is made before the
       match ahead of it is copied, so that the two overlap. */
    static int kc_inflate_symbols(kc_inflate *r, uint8_t **out_at, uint8_t *stop, const uint8_t *history) {
        const uint8_t *in = r->in, *in_stop = r->in_stop;
        uint8_t *out = *out_at, *to;
        uint64_t bits = r->bits, taken;
        unsigned count = r->count;
        uint32_t slot;
        size_t size, distance;
        int result;
    #define KC_REFILL bits |= kc_inflate_load(in) << count; in += (63 - count) >> 3; count |= 56;
    #define KC_LOOK(table, size) slot = (table)[bits & ((1 << (size)) - 1)];
    #define KC_LOOK_AGAIN(table) {                                                                  \\
            unsigned mask = (1u << (slot >> 8 & 15)) - 1;                                           \\
            KC_CONSUME                                                                              \\
            slot = (table)[(slot >> 16) + (bits & mask)];                                           \\
        }
    #define KC_CONSUME bits >>= slot & 63; count -= slot & 63;
    #define KC_LITERAL KC_CONSUME *out++ = (uint8_t)(slot >> 16);
    #define KC_VALUE ((slot >> 16) + ((taken & (((uint64_t)1 << (slot & 63)) - 1)) >> (slot >> 8 & 63)))
        for (;;) {
            if (in > in_stop) {
                r->in = in;
                r->count = count;
                result = KC_INFLATE_CORRUPT;
                if (!kc_inflate_to_tail(r)) break;
                in = r->in;
                in_stop = r->in_stop;
            }
            result = KC_INFLATE_MORE;
            if (out >= stop) break;
            KC_REFILL
            KC_LOOK(r->litlen, KC_LITLEN_BITS)
        looked:
            if (slot & KC_CODE_LITERAL) {   /* three of 11 bits, or two and then a length, fit into what is loaded */
                KC_LITERAL
                KC_LOOK(r->litlen, KC_LITLEN_BITS)
                if (slot & KC_CODE_LITERAL) {
                    KC_LITERAL
                    KC_LOOK(r->litlen, KC_LITLEN_BITS)
                    if (slot & KC_CODE_LITERAL) { KC_LITERAL continue; }
                }
            }
            if (__builtin_expect(slot & (KC_CODE_SECOND | KC_CODE_STOP), 0)) {
                if (slot & KC_CODE_SECOND) KC_LOOK_AGAIN(r->litlen)
                if (slot & KC_CODE_LITERAL) { KC_LITERAL continue; }
                result = slot >> 16 ? KC_INFLATE_ENDED : KC_INFLATE_CORRUPT;
                if (slot & KC_CODE_STOP) { KC_CONSUME break; }
            }
            taken = bits;
            KC_CONSUME
            size = KC_VALUE;
            KC_REFILL
            KC_LOOK(r->distance, KC_DISTANCE_BITS)
            result = KC_INFLATE_CORRUPT;
            if (__builtin_expect(slot & (KC_CODE_SECOND | KC_CODE_STOP), 0)) {
                if (slot & KC_CODE_SECOND) KC_LOOK_AGAIN(r->distance)
                if (slot & KC_CODE_STOP) break;
            }
            taken = bits;
            KC_CONSUME
            distance = KC_VALUE;
            if (distance > (size_t)(out - history)) break;
            to = out;
            out += size;
            if (__builtin_expect(in <= in_stop && out < stop, 1)) {
                KC_REFILL
                KC_LOOK(r->litlen, KC_LITLEN_BITS)
                kc_inflate_copy(to, distance, size);
                goto looked;
            }
            kc_inflate_copy(to, distance, size);
        }
        r->in = in;
        r->bits = bits;
        r->count = count;
        *out_at = out;
        return result;
    #undef KC_REFILL
    #undef KC_LOOK
    #undef KC_LOOK_AGAIN
    #undef KC_CONSUME
    #undef KC_LITERAL
    #undef KC_VALUE
    }

    /* Inflates to `*out` and on: ENDED with the last block, MORE once `stop` is reached, or CORRUPT. */
    static int kc_inflate_run(kc_inflate *r, uint8_t **out, uint8_t *stop, const uint8_t *history) {
        int status = KC_INFLATE_ENDED;
        while (status == KC_INFLATE_ENDED) {
            if (r->state == KC_AT_HEADER && r->last) return KC_INFLATE_ENDED;
            status = KC_INFLATE_MORE;
            if (*out >= stop) break;
            if (r->state == KC_AT_HEADER && !kc_inflate_header(r)) return KC_INFLATE_CORRUPT;
            status = r->state == KC_AT_STORED ? kc_inflate_stored(r, out, stop)
                                              : kc_inflate_symbols(r, out, stop, history);
            if (status == KC_INFLATE_ENDED) r->state = KC_AT_HEADER;
        }
        if (status == KC_INFLATE_MORE && kc_inflate_at(r) > r->in_end) return KC_INFLATE_CORRUPT;
        return status;
    }

    /* After the last block: where the source goes on, NULL when more was consumed than there is. */
    static const uint8_t *kc_inflate_end(kc_inflate *r, const uint8_t *end) {
        const uint8_t *at = kc_inflate_at(r);
        return at > r->in_end ? NULL : end - (r->in_end - at);
    }
    """
    cdef enum:
        INFLATE_WINDOW "KC_INFLATE_WINDOW"
        INFLATE_OVERRUN "KC_INFLATE_OVERRUN"
        INFLATE_ENDED "KC_INFLATE_ENDED"
        INFLATE_MORE "KC_INFLATE_MORE"
        INFLATE_CORRUPT "KC_INFLATE_CORRUPT"
    ctypedef struct Inflate "kc_inflate":
        pass
    void make_inflate_tables "kc_inflate_make_tables"() noexcept  # once, before the first body
    # `p` to `end` stay put until the last block was read.
    void inflate_start "kc_inflate_begin"(Inflate *reader, const uint8_t *p, const uint8_t *end) noexcept
    int inflate_run "kc_inflate_run"(
        Inflate *reader, uint8_t **out, uint8_t *stop, const uint8_t *history
    ) noexcept
    const uint8_t *inflate_end "kc_inflate_end"(Inflate *reader, const uint8_t *end) noexcept
