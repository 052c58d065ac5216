"""Checks the order of native locks. lock_order.pxd has the contract.

This extension records which locks each thread holds, for all other extensions too. The functions are not inline. If
they were, each extension would have its own copy of the thread-local variable.
"""

from libc.stdio cimport fprintf, stderr

from kafkacore._fast.base.assertions cimport DEBUG, debug_assert, give_up

cdef extern from * nogil:
    """
    typedef struct { const void *lock; int rank; } kc_held;
    static __thread struct { kc_held locks[8]; int count; } kc_thread;
    """
    ctypedef struct Held "kc_held":
        const void *lock
        int rank
    Held *held_locks "kc_thread.locks"
    int held_count "kc_thread.count"

cdef extern from "Python.h" nogil:
    bint PyGILState_Check() noexcept

cdef enum:
    MOST_HELD = 8

cdef const char *NAMES[LOCK_RANKS]
NAMES[RANK_FETCH_SESSIONS] = b"FetchSessions.lock"
NAMES[RANK_FETCH_SESSION] = b"FetchSession.lock"
NAMES[RANK_LOG] = b"Log.lock"
NAMES[RANK_ACCEPTOR] = b"Acceptor.lock"
NAMES[RANK_LINKS] = b"Reactor.links_lock"
NAMES[RANK_ADDRESSES] = b"Plane.addresses_lock"
NAMES[RANK_CHANGES] = b"Changes.lock"
NAMES[RANK_QUOTA] = b"Quota.lock"
NAMES[RANK_CREW] = b"Crew.lock"
NAMES[RANK_BUDGET] = b"Budget.lock"
NAMES[RANK_RING] = b"Ring.lock"
NAMES[RANK_ISR_EDGES] = b"IsrEdges.lock"
NAMES[RANK_GROUPS] = b"StableGroups.lock"
NAMES[RANK_SIMULATED_DISK] = b"SimDisk.lock"


cdef void lock_order_enter(const void *lock, int rank) noexcept nogil:
    global held_count
    cdef int i
    if not DEBUG:
        return
    debug_assert(0 < rank < LOCK_RANKS, b"a thread locks a mutex that is not initialised or is destroyed")
    if PyGILState_Check():
        refuse(rank, b"the GIL")
    for i in range(held_count):
        if held_locks[i].rank >= rank or held_locks[i].rank >= FIRST_LEAF:
            refuse(rank, NAMES[held_locks[i].rank])
    debug_assert(held_count < MOST_HELD, b"a thread holds more locks at once than the checker can record")
    held_locks[held_count].lock = lock
    held_locks[held_count].rank = rank
    held_count += 1


cdef void lock_order_leave(const void *lock) noexcept nogil:
    global held_count
    cdef int i
    if not DEBUG:
        return
    debug_assert(lock_is_mine(lock), b"a thread unlocks a mutex that it does not hold")
    for i in range(held_count):
        if held_locks[i].lock == lock:
            held_count -= 1
            held_locks[i] = held_locks[held_count]
            return


cdef void lock_order_wait(const void *lock) noexcept nogil:
    if DEBUG:
        debug_assert(held_count == 1 and held_locks[0].lock == lock,
                     b"a thread that waits for a condition may hold only its mutex")


cdef void lock_order_pause() noexcept nogil:
    if DEBUG:
        debug_assert(held_count == 0, b"a fiber that pauses holds no lock")


cdef bint lock_is_mine(const void *lock) noexcept nogil:
    cdef int i
    for i in range(held_count):
        if held_locks[i].lock == lock:
            return True
    return False


cdef void refuse(int rank, const char *held) noexcept nogil:
    fprintf(stderr, b"lock order: a thread that holds %s takes %s\n", held, NAMES[rank])
    give_up()
