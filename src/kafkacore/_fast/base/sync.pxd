"""Locks and named threads (pthreads) for code that does not hold the GIL.

Every mutex has a rank. A thread must take its locks in the order of their ranks, and must not hold the GIL when it
takes a lock. Debug builds check both rules whenever a thread takes a lock (lock_order.pxd).
"""

from libc.stdint cimport int64_t

from kafkacore._fast.base.assertions cimport DEBUG, debug_assert
from kafkacore._fast.base.lock_order cimport (
    LOCK_RANKS, lock_is_mine, lock_order_enter, lock_order_leave, lock_order_wait,
)

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct Condition "pthread_cond_t":
        pass
    ctypedef struct Thread "pthread_t":
        pass
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attributes) noexcept
    int pthread_mutex_destroy(pthread_mutex_t *mutex) noexcept
    int pthread_mutex_lock(pthread_mutex_t *mutex) noexcept
    int pthread_mutex_unlock(pthread_mutex_t *mutex) noexcept
    int pthread_cond_wait(Condition *condition, pthread_mutex_t *mutex) noexcept
    int condition_destroy "pthread_cond_destroy"(Condition *condition) noexcept
    int condition_signal "pthread_cond_signal"(Condition *condition) noexcept
    int condition_broadcast "pthread_cond_broadcast"(Condition *condition) noexcept
    int thread_join "pthread_join"(Thread thread, void **result) noexcept

cdef extern from * nogil:
    """
    #include <pthread.h>
    #include <signal.h>
    #include <time.h>
    static inline int kc_condition_init(pthread_cond_t *condition) {
        pthread_condattr_t attributes;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        int error = pthread_cond_init(condition, &attributes);
        pthread_condattr_destroy(&attributes);
        return error;
    }
    static inline int kc_condition_wait_ns(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t timeout_ns) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        int64_t total_ns = until.tv_nsec + timeout_ns;
        until.tv_sec += total_ns / 1000000000;
        until.tv_nsec = total_ns % 1000000000;
        return pthread_cond_timedwait(condition, mutex, &until);
    }
    /* Python's main thread handles signals, so native threads block all of them. */
    static inline int kc_thread_start(pthread_t *thread, const char *name, void *(*body)(void *), void *argument) {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        int error = pthread_create(thread, NULL, body, argument);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    #ifdef __linux__
        extern int pthread_setname_np(pthread_t, const char *);
        if (!error) pthread_setname_np(*thread, name);
    #endif
        return error;
    }
    """
    int condition_init "kc_condition_init"(Condition *condition) noexcept
    int kc_condition_wait_ns(Condition *condition, pthread_mutex_t *mutex, int64_t timeout_ns) noexcept
    # Returns 0 or an errno. `name` has at most 15 bytes.
    int thread_start "kc_thread_start"(Thread *thread, const char *name, void *(*body)(void *) noexcept nogil,
                                       void *argument) noexcept

ctypedef struct Mutex:
    pthread_mutex_t inner
    int rank
    void (*check)(const void *guarded) noexcept nogil   # for debug builds, see `mutex_guards`
    const void *guarded


cdef inline int mutex_init(Mutex *mutex, int rank) noexcept nogil:
    """Initialises the mutex. Returns 0 or an errno."""
    mutex.rank = rank
    mutex.check = NULL
    return pthread_mutex_init(&mutex.inner, NULL)


cdef inline void mutex_guards(Mutex *mutex, void (*check)(const void *guarded) noexcept nogil,
                              const void *guarded) noexcept nogil:
    """Registers a check for debug builds: whenever a thread releases the mutex, it calls `check(guarded)`. `check`
    asserts the facts that must hold while the mutex is free."""
    if DEBUG:
        mutex.guarded = guarded
        mutex.check = check


cdef inline void mutex_destroy(Mutex *mutex) noexcept nogil:
    debug_assert(not lock_is_mine(mutex), b"a mutex is destroyed by the thread that holds it")
    mutex.rank = LOCK_RANKS
    pthread_mutex_destroy(&mutex.inner)


cdef inline void mutex_lock(Mutex *mutex) noexcept nogil:
    if DEBUG:
        lock_order_enter(mutex, mutex.rank)
    pthread_mutex_lock(&mutex.inner)


cdef inline void check_guarded(Mutex *mutex) noexcept nogil:
    if mutex.check != NULL:
        mutex.check(mutex.guarded)


cdef inline void mutex_unlock(Mutex *mutex) noexcept nogil:
    if DEBUG:
        check_guarded(mutex)
        lock_order_leave(mutex)
    pthread_mutex_unlock(&mutex.inner)


cdef inline bint mutex_is_held(const Mutex *mutex) noexcept nogil:
    """Returns whether the calling thread holds the mutex. Use this function only in assertions, because it always
    returns true in a release build."""
    return lock_is_mine(mutex) if DEBUG else True


cdef inline int condition_wait(Condition *condition, Mutex *mutex) noexcept nogil:
    if DEBUG:
        check_guarded(mutex)
        lock_order_wait(mutex)
    return pthread_cond_wait(condition, &mutex.inner)


cdef inline int condition_wait_ns(Condition *condition, Mutex *mutex, int64_t timeout_ns) noexcept nogil:
    if DEBUG:
        check_guarded(mutex)
        lock_order_wait(mutex)
    return kc_condition_wait_ns(condition, &mutex.inner, timeout_ns)
