"""Computes CRC-32C, and the CRC-32 of gzip and of old message formats, with the fastest implementation for this
processor.

The build contains all implementations (it passes no -march). When this module is imported, it chooses the first of
these implementations that the processor supports:
- `avx512`: four 512-bit accumulators folded by carry-less multiplication (Gopal et al., "Fast CRC Computation for
  Generic Polynomials Using PCLMULQDQ", Intel 2009). The bytes that remain after the folding are computed as in `sse42`
  or `pclmul`;
- `sse42`, `armv8`: the crc32 instruction on three independent streams, because the instruction can start in every cycle
  but takes three cycles. Shift tables combine the three sums;
- `pclmul`: four folded 128-bit accumulators, only for CRC-32, which has no instruction on x86. For CRC-32, `armv8` uses
  one stream;
- `table`: slicing by eight (Kounavis and Berry, 2005).
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t, uint64_t

cdef extern from * nogil:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #define KC_CRC_POLY 0x82f63b78u      /* Castagnoli, bits reversed */
    #define KC_CRC32_POLY 0xedb88320u    /* IEEE 802.3, bits reversed */
    #define KC_CRC_LONG 4096             /* bytes of each of the three streams */
    #define KC_CRC_SHORT 256

    typedef uint32_t (*kc_crc_fn)(uint32_t crc, const uint8_t *p, size_t n);

    static uint32_t kc_crc_slices[8][256];
    static uint32_t kc_crc32_slices[8][256];
    static uint32_t kc_crc_after_long[4][256];   /* for each byte of a sum: the sum after KC_CRC_LONG zero bytes */
    static uint32_t kc_crc_after_short[4][256];
    static uint32_t kc_crc_x2n[31];              /* x^(2^n) modulo the polynomial */

    /* a(x) * b(x) modulo the polynomial, bits reversed: x^0 is the top bit. */
    static uint32_t kc_crc_multiply(uint32_t a, uint32_t b) {
        uint32_t product = 0;
        for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
            if (a & bit) product ^= b;
            b = (b >> 1) ^ ((b & 1) ? KC_CRC_POLY : 0);
        }
        return product;
    }

    /* x^(8 * bytes): multiply a sum by this factor if `bytes` bytes follow. The order of x is 2^31 - 1 (the polynomial
       is x + 1 times a primitive one), so x^(2^31) is x again. */
    static uint32_t kc_crc_shift(uint64_t bytes) {
        uint32_t power = 0x80000000u;
        for (unsigned k = 3; bytes; bytes >>= 1, k++)
            if (bytes & 1) power = kc_crc_multiply(kc_crc_x2n[k % 31], power);
        return power;
    }

    static void kc_crc_shift_table(uint32_t table[4][256], uint32_t power) {
        for (int k = 0; k < 4; k++) {
            table[k][0] = 0;
            for (int bit = 0; bit < 8; bit++) {
                uint32_t image = kc_crc_multiply(power, 1u << (8 * k + bit));
                for (int low = 0; low < 1 << bit; low++) table[k][(1 << bit) | low] = table[k][low] ^ image;
            }
        }
    }

    static void kc_crc_make_slices(uint32_t slices[8][256], uint32_t poly) {
        for (int i = 0; i < 256; i++) {
            uint32_t crc = (uint32_t)i;
            for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) ? poly : 0);
            slices[0][i] = crc;
        }
        for (int k = 1; k < 8; k++)
            for (int i = 0; i < 256; i++) {
                uint32_t crc = slices[k - 1][i];
                slices[k][i] = (crc >> 8) ^ slices[0][crc & 0xff];
            }
    }

    static void kc_crc_make_tables(void) {
        kc_crc_make_slices(kc_crc_slices, KC_CRC_POLY);
        kc_crc_make_slices(kc_crc32_slices, KC_CRC32_POLY);
        kc_crc_x2n[0] = 0x40000000u;
        for (int n = 1; n < 31; n++) kc_crc_x2n[n] = kc_crc_multiply(kc_crc_x2n[n - 1], kc_crc_x2n[n - 1]);
        kc_crc_shift_table(kc_crc_after_long, kc_crc_shift(KC_CRC_LONG));
        kc_crc_shift_table(kc_crc_after_short, kc_crc_shift(KC_CRC_SHORT));
    }

    static inline uint32_t kc_crc_shifted(uint32_t table[4][256], uint32_t crc) {
        return table[0][crc & 0xff] ^ table[1][(crc >> 8) & 0xff] ^ table[2][(crc >> 16) & 0xff] ^ table[3][crc >> 24];
    }

    static inline uint64_t kc_crc_load(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

    static inline uint32_t kc_crc_sliced(uint32_t slices[8][256], uint32_t crc, const uint8_t *p, size_t n) {
        for (; n >= 8; n -= 8, p += 8) {
            uint64_t v = kc_crc_load(p) ^ crc;
            crc = slices[7][v & 0xff] ^ slices[6][(v >> 8) & 0xff]
                ^ slices[5][(v >> 16) & 0xff] ^ slices[4][(v >> 24) & 0xff]
                ^ slices[3][(v >> 32) & 0xff] ^ slices[2][(v >> 40) & 0xff]
                ^ slices[1][(v >> 48) & 0xff] ^ slices[0][v >> 56];
        }
        while (n--) crc = (crc >> 8) ^ slices[0][(crc ^ *p++) & 0xff];
        return crc;
    }

    static uint32_t kc_crc_table(uint32_t crc, const uint8_t *p, size_t n) {
        return kc_crc_sliced(kc_crc_slices, crc, p, n);
    }
    static uint32_t kc_crc32_table(uint32_t crc, const uint8_t *p, size_t n) {
        return kc_crc_sliced(kc_crc32_slices, crc, p, n);
    }

    /* The body of the implementations that use a crc32 instruction. KC_STEP8 and KC_STEP1 are the instruction of the
       processor. */
    #define KC_CRC_THREE_STREAMS(SIZE, AFTER)                                                   \\
        while (n >= 3 * (SIZE)) {                                                               \\
            uint64_t a = crc, b = 0, c = 0;                                                     \\
            const uint8_t *end = p + (SIZE);                                                    \\
            do {                                                                                \\
                KC_STEP8(a, kc_crc_load(p));                                                    \\
                KC_STEP8(b, kc_crc_load(p + (SIZE)));                                           \\
                KC_STEP8(c, kc_crc_load(p + 2 * (SIZE)));                                       \\
                p += 8;                                                                         \\
            } while (p < end);                                                                  \\
            crc = kc_crc_shifted(AFTER, (uint32_t)a) ^ (uint32_t)b;                             \\
            crc = kc_crc_shifted(AFTER, crc) ^ (uint32_t)c;                                     \\
            p += 2 * (SIZE);                                                                    \\
            n -= 3 * (SIZE);                                                                    \\
        }
    #define KC_CRC_BY_INSTRUCTION                                                               \\
        KC_CRC_THREE_STREAMS(KC_CRC_LONG, kc_crc_after_long)                                    \\
        KC_CRC_THREE_STREAMS(KC_CRC_SHORT, kc_crc_after_short)                                  \\
        uint64_t sum = crc;                                                                     \\
        for (; n >= 8; n -= 8, p += 8) KC_STEP8(sum, kc_crc_load(p));                           \\
        for (; n; n--, p++) KC_STEP1(sum, *p);                                                  \\
        return (uint32_t)sum;

    #if defined(__x86_64__)
    #include <cpuid.h>
    #include <immintrin.h>
    /* These are not intrinsics, because compilers disagree on the name of the feature that intrinsics need. */
    #define KC_STEP8(crc, v) __asm__("crc32q %1, %0" : "+r"(crc) : "rm"((uint64_t)(v)))
    #define KC_STEP1(crc, v) __asm__("crc32b %1, %0" : "+r"(crc) : "qm"((uint8_t)(v)))
    static uint32_t kc_crc_sse42(uint32_t crc, const uint8_t *p, size_t n) { KC_CRC_BY_INSTRUCTION }

    /* x * x^(distance) for each 128-bit lane, plus y: k holds x^(distance+31) and x^(distance-33). */
    #define KC_FOLD(x, k, y) _mm512_ternarylogic_epi64(                                         \\
        _mm512_clmulepi64_epi128((x), (k), 0x00), _mm512_clmulepi64_epi128((x), (k), 0x11), (y), 0x96)
    /* Folds all whole blocks of 64 bytes into `residue`, for `n` >= 256. The sum of `residue`, from seed 0, equals the
       sum of these blocks. Returns the number of bytes after the last whole block. The constants are for distances of
       256 and 64 bytes. */
    __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul"), always_inline))
    static inline size_t kc_crc_fold512(uint32_t crc, const uint8_t *p, size_t n, __m128i k256, __m128i k64,
                                        uint8_t residue[64]) {
        const __m512i by256 = _mm512_broadcast_i32x4(k256), by64 = _mm512_broadcast_i32x4(k64);
        __m512i a = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
        __m512i b = _mm512_loadu_si512(p + 64), c = _mm512_loadu_si512(p + 128), d = _mm512_loadu_si512(p + 192);
        for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
            a = KC_FOLD(a, by256, _mm512_loadu_si512(p));
            b = KC_FOLD(b, by256, _mm512_loadu_si512(p + 64));
            c = KC_FOLD(c, by256, _mm512_loadu_si512(p + 128));
            d = KC_FOLD(d, by256, _mm512_loadu_si512(p + 192));
        }
        b = KC_FOLD(a, by64, b);
        c = KC_FOLD(b, by64, c);
        d = KC_FOLD(c, by64, d);
        for (; n >= 64; p += 64, n -= 64) d = KC_FOLD(d, by64, _mm512_loadu_si512(p));
        _mm512_storeu_si512(residue, d);
        return n;
    }

    __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul")))
    static uint32_t kc_crc_avx512(uint32_t crc, const uint8_t *p, size_t n) {
        uint8_t residue[64];
        if (n < 256) return kc_crc_sse42(crc, p, n);
        size_t left = kc_crc_fold512(crc, p, n, _mm_set_epi64x(0xb9e02b86, 0xdcb17aa4),
                                     _mm_set_epi64x(0x9e4addf8, 0x740eef02), residue);
        uint64_t sum = 0;
        for (int i = 0; i < 64; i += 8) KC_STEP8(sum, kc_crc_load(residue + i));
        for (p += n - left, n = left; n >= 8; n -= 8, p += 8) KC_STEP8(sum, kc_crc_load(p));
        for (; n; n--, p++) KC_STEP1(sum, *p);
        return (uint32_t)sum;
    }

    /* The same folding with 128-bit registers, for short data and for processors without 512-bit registers. */
    #define KC_FOLD128(x, k, y) _mm_xor_si128((y),                                              \\
        _mm_xor_si128(_mm_clmulepi64_si128((x), (k), 0x00), _mm_clmulepi64_si128((x), (k), 0x11)))
    #define KC_LOAD128(at) _mm_loadu_si128((const __m128i *)(at))
    __attribute__((target("pclmul,sse2")))
    static uint32_t kc_crc32_pclmul(uint32_t crc, const uint8_t *p, size_t n) {
        const __m128i by64 = _mm_set_epi64x(0x1d9513d7, 0x8f352d95), by16 = _mm_set_epi64x(0xccaa009e, 0xae689191);
        uint8_t residue[16];
        if (n < 64) return kc_crc32_table(crc, p, n);
        __m128i a = _mm_xor_si128(KC_LOAD128(p), _mm_cvtsi32_si128((int)crc));
        __m128i b = KC_LOAD128(p + 16), c = KC_LOAD128(p + 32), d = KC_LOAD128(p + 48);
        for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
            a = KC_FOLD128(a, by64, KC_LOAD128(p));
            b = KC_FOLD128(b, by64, KC_LOAD128(p + 16));
            c = KC_FOLD128(c, by64, KC_LOAD128(p + 32));
            d = KC_FOLD128(d, by64, KC_LOAD128(p + 48));
        }
        b = KC_FOLD128(a, by16, b);
        c = KC_FOLD128(b, by16, c);
        d = KC_FOLD128(c, by16, d);
        for (; n >= 16; p += 16, n -= 16) d = KC_FOLD128(d, by16, KC_LOAD128(p));
        _mm_storeu_si128((__m128i *)residue, d);
        return kc_crc32_table(kc_crc32_table(0, residue, 16), p, n);
    }

    __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul")))
    static uint32_t kc_crc32_avx512(uint32_t crc, const uint8_t *p, size_t n) {
        uint8_t residue[64];
        if (n < 256) return kc_crc32_pclmul(crc, p, n);
        size_t left = kc_crc_fold512(crc, p, n, _mm_set_epi64x(0xe95c1271, 0xce3371cb),
                                     _mm_set_epi64x(0x1d9513d7, 0x8f352d95), residue);
        return kc_crc32_pclmul(kc_crc32_pclmul(0, residue, 64), p + n - left, left);
    }

    /* These functions use the cpuid instruction, because __builtin_cpu_supports needs a runtime that not every
       toolchain has. */
    static int kc_cpu_has_sse42(void) {
        unsigned a, b, c, d;
        return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2);
    }
    static int kc_cpu_has_pclmul(void) {
        unsigned a, b, c, d;
        return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_PCLMUL);
    }
    static int kc_cpu_has_avx512(void) {
        unsigned a, b, c, d, low, high;
        if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
        if (!(c & bit_SSE4_2) || !(c & bit_PCLMUL) || !(c & bit_OSXSAVE)) return 0;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        if ((low & 0xe6) != 0xe6) return 0;   /* the operating system saves every part of a 512-bit register */
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
        return (b & bit_AVX512F) && (b & bit_AVX512VL) && (c & bit_VPCLMULQDQ);
    }
    #elif defined(__aarch64__)
    #include <sys/auxv.h>
    #define KC_STEP8(crc, v) __asm__(".arch_extension crc\\n\\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"((uint64_t)(v)))
    #define KC_STEP1(crc, v) __asm__(".arch_extension crc\\n\\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)(v)))
    static uint32_t kc_crc_armv8(uint32_t crc, const uint8_t *p, size_t n) { KC_CRC_BY_INSTRUCTION }
    #define KC_STEP32(name, crc, v) __asm__(".arch_extension crc\\n\\t" name : "+r"(crc) : "r"(v))
    static uint32_t kc_crc32_armv8(uint32_t crc, const uint8_t *p, size_t n) {
        for (; n >= 8; n -= 8, p += 8) KC_STEP32("crc32x %w0, %w0, %x1", crc, kc_crc_load(p));
        for (; n; n--, p++) KC_STEP32("crc32b %w0, %w0, %w1", crc, (uint32_t)*p);
        return crc;
    }
    static int kc_cpu_has_crc(void) { return (getauxval(AT_HWCAP) & (1 << 7)) != 0; }   /* HWCAP_CRC32 */
    #endif

    /* Returns an implementation by its number (0 is the best), or NULL if this processor does not support it. */
    static kc_crc_fn kc_crc_way(int ieee, int number, const char **name) {
        switch (number) {
    #if defined(__x86_64__)
        case 0:
            *name = "avx512";
            return !kc_cpu_has_avx512() ? NULL : ieee ? kc_crc32_avx512 : kc_crc_avx512;
        case 1:
            *name = ieee ? "pclmul" : "sse42";
            return ieee ? (kc_cpu_has_pclmul() ? kc_crc32_pclmul : NULL) : kc_cpu_has_sse42() ? kc_crc_sse42 : NULL;
    #elif defined(__aarch64__)
        case 0:
            *name = "armv8";
            return !kc_cpu_has_crc() ? NULL : ieee ? kc_crc32_armv8 : kc_crc_armv8;
    #endif
        case 2:
            *name = "table";
            return ieee ? kc_crc32_table : kc_crc_table;
        default:
            return NULL;
        }
    }
    """
    ctypedef uint32_t (*CrcWay "kc_crc_fn")(uint32_t crc, const unsigned char *data, size_t size) noexcept
    CrcWay way_by_number "kc_crc_way"(bint ieee, int number, const char **name) noexcept
    void make_tables "kc_crc_make_tables"() noexcept
    uint32_t multiply "kc_crc_multiply"(uint32_t a, uint32_t b) noexcept
    uint32_t shift "kc_crc_shift"(uint64_t size) noexcept

cdef enum:
    WAYS = 3
    RELEASE_GIL_BYTES = 65536  # above this size, releasing the GIL is worth the cost

cdef const char *way_name = NULL
cdef CrcWay chosen = NULL
cdef CrcWay chosen_ieee = NULL


cdef CrcWay best_way(bint ieee, const char **name) noexcept nogil:
    cdef int number
    cdef CrcWay way = NULL
    for number in range(WAYS):
        way = way_by_number(ieee, number, name)
        if way != NULL:
            break
    return way


make_tables()
chosen_ieee = best_way(True, &way_name)
chosen = best_way(False, &way_name)


cdef uint32_t crc32c(uint32_t seed, const void *data, size_t size) noexcept nogil:
    return ~chosen(~seed, <const unsigned char *> data, size)


cdef uint32_t crc32(uint32_t seed, const void *data, size_t size) noexcept nogil:
    return ~chosen_ieee(~seed, <const unsigned char *> data, size)


cdef uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_size_bytes) noexcept nogil:
    return multiply(shift(second_size_bytes), first) ^ second


cdef uint32_t run(CrcWay way, data, uint32_t seed) except? 1:
    cdef Py_buffer view
    cdef uint32_t crc
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len > RELEASE_GIL_BYTES:
            with nogil:
                crc = ~way(~seed, <const unsigned char *> view.buf, view.len)
        else:
            crc = ~way(~seed, <const unsigned char *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return crc


def checksum(data, seed=0):
    """Returns the CRC-32C of `data` (any contiguous buffer). `seed` is the checksum of the bytes before `data`."""
    return run(chosen, data, seed)


def combine(first, second, second_size_bytes):
    """Returns the checksum of two adjacent parts: `combine(checksum(a), checksum(b), len(b)) == checksum(a + b)`."""
    return crc32c_combine(first, second, second_size_bytes)


def implementation():
    """Returns the name of the chosen implementation: "avx512", "sse42", "armv8" or "table"."""
    return way_name.decode()


def implementations(ieee=False):
    """Returns every implementation that this processor supports, so that tests can compare them. The keys of the dict
    are names, and its values are functions `(data, seed=0)`. `ieee` selects CRC-32.
    """
    cdef const char *name = NULL
    cdef int number
    found = {}
    for number in range(WAYS):
        if way_by_number(ieee, number, &name) != NULL:
            found[name.decode()] = Way(ieee, number)
    return found


cdef class Way:
    cdef CrcWay way

    def __init__(self, bint ieee, int number):
        cdef const char *name
        self.way = way_by_number(ieee, number, &name)
        if self.way == NULL:
            raise ValueError(f"this processor has no CRC implementation {number}")

    def __call__(self, data, seed=0):
        return run(self.way, data, seed)
