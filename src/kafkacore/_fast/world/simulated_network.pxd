"""A transport (`Transport` in environment.pxd) that misbehaves as networks do. It shortens reads and writes, pretends
that sockets are empty or full, and breaks connections. The seed determines the failures: the same calls in the same
order fail in the same way.

The simulated transport wraps the real one, so production code sees these failures on its own connections.
"""

from libc.stdint cimport int64_t, uint64_t

from kafkacore._fast.world.environment cimport Transport

ctypedef struct Trouble:
    Transport real
    uint64_t state            # state of the random numbers; atomic
    int64_t most_bytes        # one read or write moves at most this many bytes
    uint64_t again_below      # a call returns -EAGAIN if its second random number is below this
    uint64_t break_below      # a call returns -ECONNRESET if its first random number is below this
    int64_t calls             # the number of calls; atomic
    int64_t troubled          # the number of calls that failed on purpose; atomic


cdef class TroubledNetwork:
    cdef Trouble trouble
