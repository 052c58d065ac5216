"""SipHash-1-3, the hash for every hash table whose keys a client can choose (Aumasson, Bernstein, "SipHash: a fast
short-input PRF"). The key of the hash is secret, so clients cannot craft table keys that share a bucket.

Each process draws a random key when this module is imported. No code visits the entries of a table in the order of
their hashes. So a simulated run replays exactly, whatever the key is.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from * nogil:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #define KC_ROTATE(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
    #define KC_SIP_ROUND(v) do { \\
        v[0] += v[1]; v[1] = KC_ROTATE(v[1], 13) ^ v[0]; v[0] = KC_ROTATE(v[0], 32); \\
        v[2] += v[3]; v[3] = KC_ROTATE(v[3], 16) ^ v[2]; \\
        v[0] += v[3]; v[3] = KC_ROTATE(v[3], 21) ^ v[0]; \\
        v[2] += v[1]; v[1] = KC_ROTATE(v[1], 17) ^ v[2]; v[2] = KC_ROTATE(v[2], 32); } while (0)

    static inline void kc_sip_begin(uint64_t v[4], const uint64_t key[2]) {
        v[0] = 0x736f6d6570736575ULL ^ key[0];
        v[1] = 0x646f72616e646f6dULL ^ key[1];
        v[2] = 0x6c7967656e657261ULL ^ key[0];
        v[3] = 0x7465646279746573ULL ^ key[1];
    }
    static inline void kc_sip_word(uint64_t v[4], uint64_t word) {
        v[3] ^= word; KC_SIP_ROUND(v); v[0] ^= word;
    }
    /* Hashes the data in words of 8 bytes. The last word contains the remaining bytes and the low byte of `size`. */
    static inline void kc_sip_data(uint64_t v[4], const uint8_t *data, size_t left, size_t size) {
        uint64_t word;
        for (; left >= 8; data += 8, left -= 8) {
            memcpy(&word, data, 8);
            kc_sip_word(v, word);
        }
        word = 0;
        if (left) memcpy(&word, data, left);
        kc_sip_word(v, word | (uint64_t) size << 56);
    }
    static inline uint64_t kc_sip_end(uint64_t v[4]) {
        KC_SIP_ROUND(v); KC_SIP_ROUND(v); KC_SIP_ROUND(v);
        return v[0] ^ v[1] ^ v[2] ^ v[3];
    }
    static inline uint64_t kc_hash_bytes(const uint64_t key[2], const uint8_t *data, size_t size) {
        uint64_t v[4];
        kc_sip_begin(v, key);
        kc_sip_data(v, data, size, size);
        v[2] ^= 0xff;
        return kc_sip_end(v);
    }
    static inline uint64_t kc_hash_word_and_bytes(const uint64_t key[2], uint64_t word, const uint8_t *data,
                                                  size_t size) {
        uint64_t v[4];
        kc_sip_begin(v, key);
        kc_sip_word(v, word);
        kc_sip_data(v, data, size, size + 8);
        v[2] ^= 0xff;
        return kc_sip_end(v);
    }
    static inline uint64_t kc_hash_word(const uint64_t key[2], uint64_t word) {
        return kc_hash_word_and_bytes(key, word, NULL, 0);
    }
    static inline void kc_hash_128(const uint64_t key[2], const uint8_t *data, size_t size, uint64_t *low,
                                   uint64_t *high) {
        uint64_t v[4];
        kc_sip_begin(v, key);
        v[1] ^= 0xee;
        kc_sip_data(v, data, size, size);
        v[2] ^= 0xee;
        *low = kc_sip_end(v);
        v[1] ^= 0xdd;
        *high = kc_sip_end(v);
    }
    """
    uint64_t hash_bytes "kc_hash_bytes"(const uint64_t *key, const uint8_t *data, size_t size) noexcept
    # Both functions hash the eight bytes of `word`. The second one appends `data` to these bytes.
    uint64_t hash_word "kc_hash_word"(const uint64_t *key, uint64_t word) noexcept
    uint64_t hash_word_and_bytes "kc_hash_word_and_bytes"(const uint64_t *key, uint64_t word, const uint8_t *data,
                                                          size_t size) noexcept
    void hash_128 "kc_hash_128"(const uint64_t *key, const uint8_t *data, size_t size, uint64_t *low,
                                uint64_t *high) noexcept

cdef const uint64_t *process_hash_key() noexcept nogil  # two words
