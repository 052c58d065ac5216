"""A transport that misbehaves as networks do: reads and writes that come to a few bytes, sockets that claim to be
empty or full, connections that break. By a seed: the same calls in the same order meet the same trouble.

It stands before the real one, so that it is the very connections that serve production which meet it.
"""

from libc.stdint cimport int64_t, uint64_t

from kafkacore._fast.world.environment cimport Transport

ctypedef struct Trouble:
    Transport real
    uint64_t state            # atomic; of the random numbers
    int64_t most_bytes        # of one read or write
    uint64_t again_below      # a call answers -EAGAIN when its random number is below
    uint64_t break_below      # likewise -ECONNRESET
    int64_t calls             # atomic
    int64_t troubled          # atomic


cdef class TroubledNetwork:
    cdef Trouble trouble
