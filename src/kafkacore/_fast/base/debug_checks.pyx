"""Gives Python access to assertions and to the lock order. Tests cause violations through this module and check that
the process aborts.
"""

from libc.stdlib cimport calloc, free

from kafkacore._fast.base.assertions cimport (
    DEBUG as DEBUG_BUILD, Owner, debug_assert, owner_drop, owner_is_me, owner_take,
)
from kafkacore._fast.base.lock_order cimport LOCK_RANKS, RANK_FETCH_SESSION, RANK_LOG, RANK_RING, RANK_GROUPS
from kafkacore._fast.base.planted cimport PLANTED as PLANTED_BUILD
from kafkacore._fast.base.sync cimport (
    Condition, Mutex, condition_destroy, condition_init, condition_wait_ns, mutex_destroy, mutex_init, mutex_is_held,
    mutex_lock, mutex_unlock,
)

DEBUG = bool(DEBUG_BUILD)
PLANTED = bool(PLANTED_BUILD)
RANKS = {"fetch session": RANK_FETCH_SESSION, "log": RANK_LOG, "ring": RANK_RING, "groups": RANK_GROUPS}


def check(bint condition) -> None:
    with nogil:
        debug_assert(condition, b"the condition that a test gave")


cdef class OwnedData:
    """Data of the thread that called `take`."""
    cdef Owner owner

    def take(self) -> None:
        owner_take(&self.owner)

    def drop(self) -> None:
        owner_drop(&self.owner)

    def touch(self) -> None:
        debug_assert(owner_is_me(&self.owner), b"only the owner's thread may touch the data")


cdef class RankedMutex:
    """A native mutex with a rank from `RANKS`."""
    cdef Mutex *mutex

    def __cinit__(self, int rank):
        if not 0 < rank < LOCK_RANKS:
            raise ValueError(f"rank {rank} is not from 1 to {LOCK_RANKS - 1}")
        self.mutex = <Mutex *> calloc(1, sizeof(Mutex))
        if self.mutex == NULL:
            raise MemoryError
        mutex_init(self.mutex, rank)

    def __dealloc__(self):
        if self.mutex != NULL:
            mutex_destroy(self.mutex)
            free(self.mutex)

    def lock(self) -> None:
        with nogil:
            mutex_lock(self.mutex)

    def lock_with_gil(self) -> None:
        mutex_lock(self.mutex)

    def unlock(self) -> None:
        with nogil:
            mutex_unlock(self.mutex)

    def is_held(self) -> bool:
        return mutex_is_held(self.mutex)

    def wait(self, long timeout_ns) -> None:
        """Waits for a condition that no thread signals, until the timeout."""
        cdef Condition condition
        condition_init(&condition)
        with nogil:
            condition_wait_ns(&condition, self.mutex, timeout_ns)
        condition_destroy(&condition)
