"""epoll(7), and the CPU time of a thread."""

from libc.stdint cimport int64_t, uint32_t

cdef extern from * nogil:
    """
    #include <sys/epoll.h>
    #include <time.h>
    #include <unistd.h>

    static inline int64_t kc_thread_cpu_ns(void) {
        struct timespec used;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
        return (int64_t) used.tv_sec * 1000000000 + used.tv_nsec;
    }
    static inline int64_t kc_monotonic_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
    }
    """
    ctypedef union epoll_data_t:
        void *ptr
    ctypedef struct epoll_event "struct epoll_event":
        uint32_t events
        epoll_data_t data
    int EPOLL_CLOEXEC
    int EPOLL_CTL_ADD
    int EPOLL_CTL_MOD
    int EPOLL_CTL_DEL
    uint32_t EPOLLIN
    uint32_t EPOLLOUT
    uint32_t EPOLLERR
    uint32_t EPOLLHUP
    uint32_t EPOLLRDHUP
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int handle, epoll_event *event)
    int epoll_wait(int epoll, epoll_event *events, int most, int timeout_ms)
    int64_t thread_cpu_ns "kc_thread_cpu_ns"()
    int64_t monotonic_ns "kc_monotonic_ns"()
