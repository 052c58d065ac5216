"""Locks and threads without the GIL: pthread's, with names. Lock order is in CONTRIBUTING."""

from libc.stdint cimport int64_t

cdef extern from "<pthread.h>" nogil:
    ctypedef struct Mutex "pthread_mutex_t":
        pass
    ctypedef struct Condition "pthread_cond_t":
        pass
    ctypedef struct Thread "pthread_t":
        pass
    int mutex_init "pthread_mutex_init"(Mutex *mutex, void *attributes) noexcept
    int mutex_destroy "pthread_mutex_destroy"(Mutex *mutex) noexcept
    int mutex_lock "pthread_mutex_lock"(Mutex *mutex) noexcept
    int mutex_try_lock "pthread_mutex_trylock"(Mutex *mutex) noexcept
    int mutex_unlock "pthread_mutex_unlock"(Mutex *mutex) noexcept
    int condition_destroy "pthread_cond_destroy"(Condition *condition) noexcept
    int condition_wait "pthread_cond_wait"(Condition *condition, Mutex *mutex) noexcept
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
    /* Signals belong to Python's main thread: native threads block them all. */
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
    int condition_wait_ns "kc_condition_wait_ns"(Condition *condition, Mutex *mutex, int64_t timeout_ns) noexcept
    # 0 or errno. `name` is at most 15 bytes.
    int thread_start "kc_thread_start"(Thread *thread, const char *name, void *(*body)(void *) noexcept nogil,
                                       void *argument) noexcept
