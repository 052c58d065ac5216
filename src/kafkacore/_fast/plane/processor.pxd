"""A processor: a C thread with an epoll set that serves connections (connection.pxd). Any number of planes (groups of
listeners, see plane.pxd) can share a processor.

A processor without work may spin for some tens of microseconds before it sleeps, if its recent pauses between two
pieces of work were short. At most one thread of the process spins at a time. If the kernel preempts a spinning thread,
this thread does not spin again for a while.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.plane.connection cimport Reactor
from kafkacore._fast.world.environment cimport Environment
from kafkacore._fast.base.sync cimport Thread

ctypedef struct Spin:
    int32_t held              # atomic: whether a thread is spinning
    int64_t most_ns           # the longest spin; 0 to never spin
    int64_t spun_ns           # atomic, for metrics

ctypedef struct Processor:
    Reactor reactor                 # must be the first field
    Thread thread
    Spin *spin
    int nice
    bint urgent               # asks the kernel for short time slices (thread_priority.pxd)
    int64_t gap_ns            # moving average of the time without work
    int64_t shy_until_ns      # the processor does not spin before this time
    int64_t shy_ns
    int64_t looked_ns         # when the processor last polled the sockets while mail (mail.pxd) was waiting
    bint trimmed
    int64_t idle_ns           # idle time since the start; only the processor writes it, any thread may read it
    int64_t waiting_since_ns  # 0 while the processor works; only the processor writes it
    int64_t started_ns
    int64_t wakeups


cdef class SpinBudget:
    cdef Spin spin


cdef class NativeProcessor:
    """Owns a running `Processor`."""
    cdef Processor *processor
    cdef readonly object name
    cdef readonly SpinBudget spin_budget
    cdef readonly Environment environment
    cdef int pid
    cdef bint running
    cdef int check(self) except -1
