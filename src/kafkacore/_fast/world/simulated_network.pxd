"""A transport that misbehaves as networks do: short reads and writes, sockets that pretend to be empty or full, broken
connections. A seed decides: the same calls in the same order meet the same trouble.

It wraps the real transport, so the connections of production code meet the trouble.
"""

from libc.stdint cimport int64_t, uint64_t

from kafkacore._fast.world.environment cimport Transport

ctypedef struct Trouble:
    Transport real
    uint64_t state            # state of the random numbers; atomic
    int64_t most_bytes        # the most that one read or write moves
    uint64_t again_below      # a call returns -EAGAIN when its random number is below this
    uint64_t break_below      # ... and -ECONNRESET when it is below this
    int64_t calls             # atomic
    int64_t troubled          # atomic


cdef class TroubledNetwork:
    cdef Trouble trouble
