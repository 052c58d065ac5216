"""Assertions that only debug builds contain (`KAFKACORE_DEBUG=1`, and every sanitizer build).

An assertion states a fact on which the surrounding code relies. Bad input must never make an assertion fail: code that
reads input returns an error instead. A failed assertion prints its file, line, text and the native stack, and aborts
the process.
"""

cdef extern from * nogil:
    """
    #ifdef KAFKACORE_DEBUG
    #define KC_DEBUG 1
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    #ifdef __GLIBC__
    #include <execinfo.h>
    #endif
    __attribute__((noreturn, noinline, cold, unused))
    static void kc_give_up(void) {
    #ifdef __GLIBC__
        void *stack[48];
        backtrace_symbols_fd(stack, backtrace(stack, 48), STDERR_FILENO);
    #endif
        abort();
    }
    __attribute__((noreturn, noinline, cold, unused))
    static void kc_assertion_failed(const char *file, int line, const char *text) {
        fprintf(stderr, "%s:%d: assertion failed: %s\\n", file, line, text);
        kc_give_up();
    }
    #define kc_debug_assert(condition, text) \\
        ((condition) ? (void) 0 : kc_assertion_failed(__FILE__, __LINE__, text))
    typedef struct { pthread_t thread; int taken; } kc_owner;
    static inline void kc_owner_take(kc_owner *owner) {
        owner->thread = pthread_self();
        __atomic_store_n(&owner->taken, 1, __ATOMIC_RELEASE);
    }
    static inline void kc_owner_drop(kc_owner *owner) { __atomic_store_n(&owner->taken, 0, __ATOMIC_RELEASE); }
    static inline int kc_owner_is_me(kc_owner *owner) {
        return !__atomic_load_n(&owner->taken, __ATOMIC_ACQUIRE) || pthread_equal(owner->thread, pthread_self());
    }
    #else
    #define KC_DEBUG 0
    #define kc_give_up() ((void) 0)
    #define kc_debug_assert(condition, text) ((void) 0)
    typedef struct { char nothing; } kc_owner;
    #define kc_owner_take(owner) ((void) 0)
    #define kc_owner_drop(owner) ((void) 0)
    #define kc_owner_is_me(owner) 1
    #endif
    """
    const bint DEBUG "KC_DEBUG"   # a constant in C, so that a release build drops `if DEBUG:` blocks
    void debug_assert "kc_debug_assert"(bint condition, const char *text) noexcept
    # Prints the native stack and aborts the process; does nothing in a release build.
    void give_up "kc_give_up"() noexcept

    # Names the only thread that may access some data: the thread that called `owner_take`. Before that call, and
    # after `owner_drop`, any thread may access the data.
    ctypedef struct Owner "kc_owner":
        pass
    void owner_take "kc_owner_take"(Owner *owner) noexcept
    void owner_drop "kc_owner_drop"(Owner *owner) noexcept
    bint owner_is_me "kc_owner_is_me"(Owner *owner) noexcept
