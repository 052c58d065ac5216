"""An acceptor: a C thread that accepts the connections of its listeners and assigns each connection to a processor.

The acceptor pauses a listener while the listener exceeds max.connections or max.connection.creation.rate. Both the
listener and its plane (a group of listeners with common limits, see plane.pxd) can have these limits (KIP-402,
KIP-612). Meanwhile, new connections wait in the kernel's backlog. If an address exceeds max.connections.per.ip, the
acceptor closes further connections from it immediately.

A share of the process's file descriptors, the reserve, is kept for logs and checkpoints. When a new connection gets a
descriptor from the reserve, the acceptor pauses the connection's listener and logs one line. The listener continues
when a descriptor outside the reserve is free. While logs hold most of the descriptors, connections may also use the
reserve, except its last part. So a node with many logs still serves clients.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.plane.connection cimport Reactor
from kafkacore._fast.plane.plane cimport MAX_PROCESSORS, ArrivalRate, Plane
from kafkacore._fast.base.sync cimport Condition, Mutex, Thread

ctypedef struct Listener:
    Listener *next
    Plane *plane              # holds a reference
    int handle
    int32_t number
    bint paused
    bint is_short             # whether the listener is paused because the process lacks descriptors or memory
    bint leaving              # whether the listener is being removed; the acceptor's lock guards this field
    int32_t reactor_count
    Reactor *reactors[MAX_PROCESSORS]
    int32_t max_connections   # the listener's own limit, in addition to the plane's
    # Whether the plane's limits do not apply to this listener. They do not apply to the listener of
    # inter.broker.listener.name if there are other listeners (KIP-402).
    bint exempt
    ArrivalRate arrivals      # the rate of new connections at this listener

ctypedef struct Acceptor:
    Thread thread
    int epoll
    int bell                  # an eventfd; a write to it wakes the thread
    int32_t stopping          # atomic
    Mutex lock
    Condition left            # signalled when a leaving listener has been removed
    Listener *listeners       # `lock` guards this list
    int64_t accepted          # atomic
    int64_t short_until_ns    # before this time, the acceptor logs no further line about missing descriptors


cdef class NativeAcceptor:
    """Owns a running `Acceptor`."""
    cdef Acceptor acceptor
    cdef readonly object name
    cdef dict kept            # planes by listener number
    cdef int pid
    cdef bint running
    cdef int check(self) except -1
