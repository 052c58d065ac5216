"""A processor: one C thread with one epoll set that drives connections (connection.pxd). Processors belong to the
process.

A processor without work may spin for some tens of microseconds before it sleeps, if its recent pauses were that short.
At most one thread of the process spins at a time. When the kernel takes the core from a spinning thread, that thread
does not spin again for a while.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.plane.connection cimport Reactor
from kafkacore._fast.world.environment cimport Environment
from kafkacore._fast.base.sync cimport Thread

ctypedef struct Spin:
    int32_t held              # atomic: a thread spins now
    int64_t most_ns           # the longest spin; 0: never
    int64_t spun_ns           # atomic, for metrics

ctypedef struct Processor:
    Reactor reactor                 # first
    Thread thread
    Spin *spin
    int nice
    bint urgent               # asks for short time slices (thread_priority.pxd)
    int64_t gap_ns            # moving average of the time without work
    int64_t shy_until_ns      # does not spin before this time
    int64_t shy_ns
    int64_t looked_ns         # when it last polled its sockets while mail waited
    bint trimmed
    int64_t idle_ns           # since start; only the processor writes it, any thread reads it
    int64_t waiting_since_ns  # 0 while it works; only the processor writes it
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
