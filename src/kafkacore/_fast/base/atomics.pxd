"""Atomic operations on words, with acquire and release order. A `cas` operation (compare and swap) stores the value if
the word is still `expected`, and returns whether it did. Code that needs more than these operations should take a lock.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from * nogil:
    """
    #include <stdint.h>
    static inline int32_t kc_load32(const int32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void kc_store32(int32_t *p, int32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline int32_t kc_add32(int32_t *p, int32_t v) { return __atomic_add_fetch(p, v, __ATOMIC_ACQ_REL); }
    static inline int32_t kc_swap32(int32_t *p, int32_t v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); }
    static inline int kc_cas32(int32_t *p, int32_t expected, int32_t v) {
        return __atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE); }
    static inline int64_t kc_load64(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void kc_store64(int64_t *p, int64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline int64_t kc_add64(int64_t *p, int64_t v) { return __atomic_add_fetch(p, v, __ATOMIC_ACQ_REL); }
    static inline int kc_cas64(int64_t *p, int64_t expected, int64_t v) {
        return __atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE); }
    static inline void *kc_load_ptr(void *const *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void kc_store_ptr(void **p, void *v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline void *kc_swap_ptr(void **p, void *v) { return __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL); }
    static inline int kc_cas_ptr(void **p, void *expected, void *v) {
        return __atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE); }
    static inline void kc_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
    static inline void kc_cpu_relax(void) {
    #if defined(__x86_64__)
        __builtin_ia32_pause();
    #elif defined(__aarch64__)
        __asm__ volatile("yield");
    #endif
    }
    """
    int32_t load32 "kc_load32"(const int32_t *word) noexcept
    void store32 "kc_store32"(int32_t *word, int32_t value) noexcept
    int32_t add32 "kc_add32"(int32_t *word, int32_t value) noexcept  # returns the new value
    int32_t swap32 "kc_swap32"(int32_t *word, int32_t value) noexcept  # returns the old value
    bint cas32 "kc_cas32"(int32_t *word, int32_t expected, int32_t value) noexcept
    int64_t load64 "kc_load64"(const int64_t *word) noexcept
    void store64 "kc_store64"(int64_t *word, int64_t value) noexcept
    int64_t add64 "kc_add64"(int64_t *word, int64_t value) noexcept  # returns the new value
    bint cas64 "kc_cas64"(int64_t *word, int64_t expected, int64_t value) noexcept
    void *load_ptr "kc_load_ptr"(void *const *word) noexcept
    void store_ptr "kc_store_ptr"(void **word, void *value) noexcept
    void *swap_ptr "kc_swap_ptr"(void **word, void *value) noexcept  # returns the old value
    bint cas_ptr "kc_cas_ptr"(void **word, void *expected, void *value) noexcept
    void fence "kc_fence"() noexcept
    void cpu_relax "kc_cpu_relax"() noexcept
