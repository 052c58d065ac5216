"""Threads that wait for partitions. Contract in sleeper.pxd."""

from libc.errno cimport EINTR, errno
from libc.stdlib cimport calloc, free
from libc.string cimport strerror

from kafkacore._fast.wait.mail cimport inbox_awake, inbox_close, inbox_deliver, inbox_init, inbox_may_sleep
from kafkacore._fast.wait.park cimport park_init

cdef extern from "<poll.h>" nogil:
    ctypedef struct PollFile "struct pollfd":
        int fd
        short events
        short revents
    short POLLIN
    int c_poll "poll"(PollFile *files, unsigned long count, int timeout_ms)


cdef void resume_sleeper(Parked *parked, int why) noexcept nogil:
    (<Sleeper *> parked).woken = why


cdef void destroy_sleeper(Parked *parked) noexcept nogil:
    inbox_close(&(<Sleeper *> parked).inbox)
    free(parked)


cdef Sleeper *sleeper_new() except NULL:
    cdef Sleeper *sleeper = <Sleeper *> calloc(1, sizeof(Sleeper))
    cdef int error
    if sleeper == NULL:
        raise MemoryError
    error = -inbox_init(&sleeper.inbox)
    if error:
        free(sleeper)
        raise OSError(error, strerror(error).decode())
    park_init(&sleeper.parked, &sleeper.inbox)
    sleeper.parked.resume = resume_sleeper
    sleeper.parked.destroy = destroy_sleeper
    sleeper.waiter.parked = &sleeper.parked
    return sleeper


cdef bint sleep_until_woken(Sleeper *sleeper, int timeout_ms) noexcept nogil:
    cdef PollFile file
    cdef int ready
    cdef bint over
    file.fd = sleeper.inbox.eventfd
    file.events = POLLIN
    while True:
        inbox_deliver(&sleeper.inbox)
        if sleeper.woken:
            sleeper.woken = 0
            return True
        if not inbox_may_sleep(&sleeper.inbox):
            continue
        ready = c_poll(&file, 1, timeout_ms)
        over = ready == 0 or (ready < 0 and errno != EINTR)
        inbox_awake(&sleeper.inbox)
        if over:
            return False
