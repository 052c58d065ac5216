"""An acceptor: one C thread that takes new connections of its listeners and hands each to a processor.

A listener that is over max.connections or max.connection.creation.rate, its own or those of its plane (KIP-402,
KIP-612), is not read until there is room (newcomers wait in the system's backlog); an address over
max.connections.per.ip is closed at once.

A share of the process' file descriptors stays free for logs and checkpoints: an acceptor that was given one of the last
pauses its listener, says so in one logged line, and goes on when a lower one is free again.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.plane.connection cimport Home
from kafkacore._fast.plane.plane cimport MAX_PROCESSORS, ArrivalRate, Plane
from kafkacore._fast.base.sync cimport Condition, Mutex, Thread

ctypedef struct Listener:
    Listener *next
    Plane *plane              # counted
    int handle
    int32_t number
    bint paused
    bint is_short             # of descriptors or memory: paused until there are some
    bint leaving              # covered by the acceptor's lock
    int32_t home_count
    Home *homes[MAX_PROCESSORS]
    int32_t max_connections   # its own, beside the plane's
    bint exempt               # from the plane's: inter.broker.listener.name where there are others (KIP-402)
    ArrivalRate arrivals      # its own, likewise

ctypedef struct Acceptor:
    Thread thread
    int epoll
    int bell                  # an eventfd
    int32_t stopping          # atomic
    Mutex lock
    Condition left            # a leaving listener is out
    Listener *listeners       # covered by `lock`
    int64_t accepted          # atomic
    int64_t short_until_ns    # no second line about missing descriptors before


cdef class NativeAcceptor:
    """Owns a running Acceptor."""
    cdef Acceptor acceptor
    cdef readonly object name
    cdef dict kept            # planes by listener number
    cdef int pid
    cdef bint running
    cdef int check(self) except -1
