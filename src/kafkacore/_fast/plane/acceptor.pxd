"""An acceptor: one C thread that accepts the connections of its listeners and gives each to a processor.

A listener pauses while it is over max.connections or max.connection.creation.rate, its own or its plane's (KIP-402,
KIP-612); new connections wait in the system's backlog. A connection from an address over max.connections.per.ip is
closed at once.

A share of the process's file descriptors, the reserve, is kept for logs and checkpoints. When an acceptor gets a
descriptor from the reserve, it pauses its listener, logs one line, and continues when a lower descriptor is free. While
logs hold most of the descriptors, connections may use all but the last part of the reserve, so that a node with many
logs still serves clients.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.plane.connection cimport Reactor
from kafkacore._fast.plane.plane cimport MAX_PROCESSORS, ArrivalRate, Plane
from kafkacore._fast.base.sync cimport Condition, Mutex, Thread

ctypedef struct Listener:
    Listener *next
    Plane *plane              # counted
    int handle
    int32_t number
    bint paused
    bint is_short             # paused until the process has descriptors or memory again
    bint leaving              # the acceptor's lock guards it
    int32_t reactor_count
    Reactor *reactors[MAX_PROCESSORS]
    int32_t max_connections   # the listener's own limit, beside the plane's
    bint exempt               # free of the plane's limits: inter.broker.listener.name beside others (KIP-402)
    ArrivalRate arrivals      # the listener's own rate

ctypedef struct Acceptor:
    Thread thread
    int epoll
    int bell                  # an eventfd
    int32_t stopping          # atomic
    Mutex lock
    Condition left            # a leaving listener is removed
    Listener *listeners       # `lock` guards them
    int64_t accepted          # atomic
    int64_t short_until_ns    # until then it logs no further line about missing descriptors


cdef class NativeAcceptor:
    """Owns a running Acceptor."""
    cdef Acceptor acceptor
    cdef readonly object name
    cdef dict kept            # planes by listener number
    cdef int pid
    cdef bint running
    cdef int check(self) except -1
