"""Implements threads that wait for events in partitions. sleeper.pxd has the contract."""

from libc.errno cimport EINTR, errno
from libc.stdio cimport fprintf, stderr
from libc.stdlib cimport abort, calloc, free

from kafkacore._fast.wait.mail cimport (
    inbox_awake, inbox_close, inbox_deliver, inbox_init_in, inbox_may_sleep, inbox_silence, make_bell,
)
from kafkacore._fast.wait.park cimport park_init
from kafkacore._fast.world.agenda cimport agenda_run_for

cdef extern from "<poll.h>" nogil:
    ctypedef struct PollFile "struct pollfd":
        int fd
        short events
        short revents
    short POLLIN
    int c_poll "poll"(PollFile *files, unsigned long count, int timeout_ms)

cdef enum:
    LOOK_MS = 20  # a thread without an eventfd looks into its inbox this often


cdef void resume_sleeper(Parked *parked, int why) noexcept nogil:
    (<Sleeper *> parked).woken = why


cdef void destroy_sleeper(Parked *parked) noexcept nogil:
    inbox_close(&(<Sleeper *> parked).inbox)
    free(parked)


cdef Sleeper *sleeper_new(const LogDir *dir) except NULL:
    cdef Sleeper *sleeper = <Sleeper *> calloc(1, sizeof(Sleeper))
    if sleeper == NULL:
        raise MemoryError
    sleeper.agenda = dir.agenda
    sleeper.owner = dir.owner
    sleeper.inbox.eventfd = -1
    if dir.agenda != NULL and inbox_init_in(&sleeper.inbox, dir.agenda) < 0:
        free(sleeper)
        raise MemoryError
    park_init(&sleeper.parked, &sleeper.inbox)
    sleeper.parked.resume = resume_sleeper
    sleeper.parked.destroy = destroy_sleeper
    sleeper.waiter.parked = &sleeper.parked
    return sleeper


cdef bint pause_until_look(int *timeout_ms) noexcept nogil:
    """Sleeps until the thread should look into its inbox again. Returns False if the timeout has passed."""
    cdef int pause_ms = LOOK_MS if timeout_ms[0] < 0 else min(LOOK_MS, timeout_ms[0])
    if pause_ms == 0:
        return False
    c_poll(NULL, 0, pause_ms)
    if timeout_ms[0] > 0:
        timeout_ms[0] -= pause_ms
    return True


cdef bint sleep_until_woken(Sleeper *sleeper, int timeout_ms) noexcept nogil:
    cdef PollFile file
    cdef int ready
    cdef bint over
    file.events = POLLIN
    while True:
        inbox_deliver(&sleeper.inbox)
        if sleeper.woken:
            sleeper.woken = 0
            return True
        if sleeper.agenda != NULL:
            if not agenda_run_for(sleeper.agenda, sleeper.owner):
                if timeout_ms < 0:
                    fprintf(stderr, b"node %lld of a simulated world would wait for ever: no task is left that could "
                            b"wake it\n", <long long> sleeper.owner)
                    abort()
                return False
            continue
        if sleeper.inbox.eventfd < 0:
            sleeper.inbox.eventfd = make_bell()
        if sleeper.inbox.eventfd < 0:
            if not pause_until_look(&timeout_ms):
                return False
            continue
        if not inbox_may_sleep(&sleeper.inbox):
            continue
        file.fd = sleeper.inbox.eventfd
        ready = c_poll(&file, 1, timeout_ms)
        over = ready == 0 or (ready < 0 and errno != EINTR)
        inbox_awake(&sleeper.inbox)
        if ready > 0:
            inbox_silence(&sleeper.inbox)  # otherwise the next sleep would end at once
        if over:
            return False
