"""A processor: one C thread with one epoll set that drives connections (connection.pxd). Processors belong to the
process.

A processor that ran out of work may spin for some tens of microseconds before it sleeps, when work came that fast
lately; at most one thread of the process does so at a time, and none for a while after the kernel took the core away
meanwhile.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.plane.connection cimport Home
from kafkacore._fast.world.environment cimport Environment
from kafkacore._fast.base.sync cimport Thread

ctypedef struct Spin:
    int32_t held              # atomic: some thread spins
    int64_t most_ns           # how long; 0: never
    int64_t spun_ns           # atomic, for metrics

ctypedef struct Processor:
    Home home                 # first
    Thread thread
    Spin *spin
    int nice
    bint urgent               # short slices (priority.pxd)
    int64_t gap_ns            # how long work stayed out lately, a moving average
    int64_t shy_until_ns      # no spinning before
    int64_t shy_ns
    int64_t looked_ns         # when it looked at its sockets while mail waited
    bint trimmed
    int64_t idle_ns           # since start; the processor alone writes, anybody reads
    int64_t waiting_since_ns  # 0 while it works; likewise
    int64_t started_ns
    int64_t wakeups


cdef class SpinBudget:
    cdef Spin spin


cdef class NativeProcessor:
    """Owns a running Processor."""
    cdef Processor *processor
    cdef readonly object name
    cdef readonly SpinBudget spin_budget
    cdef readonly Environment environment
    cdef int pid
    cdef bint running
    cdef int check(self) except -1
