"""A connection that this process made to another node. It sends one request at a time and reads its answer.

It belongs to a processor, whose thread alone touches it. Its user owns it as the first field of a larger struct and
gets a call when an answer is whole, and when the connection is lost. Somebody else makes the socket, greets the other
node, and hands the socket over (`outbound_attach`).

The answer's buffer is reused. It grows as bytes arrive and shrinks after some small answers. The plane's budget counts
it beyond its bound and never lets it wait: other nodes may wait for this connection's progress before they free memory.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.plane.connection cimport Reactor
from kafkacore._fast.plane.driven cimport Driven
from kafkacore._fast.plane.plane cimport Plane

# Why a connection is lost; above 0: the errno of the socket.
cdef enum:
    LOST_CLOSED = 0           # the other node closed it
    LOST_MALFORMED = -1       # it sent bytes that are not an answer
    LOST_NO_MEMORY = -2
    LOST_TIMED_OUT = -3       # for the user of the connection, like the next one
    LOST_ORDERED = -4

cdef enum:
    OUTBOUND_LEAST_BYTES = 16384    # of the answer's buffer
    OUTBOUND_SMALL_ANSWERS = 64     # after so many answers that fit in the least buffer, it shrinks

ctypedef struct Outbound:
    Driven driven             # first
    Reactor *reactor
    Plane *plane              # counted
    uint32_t interest
    Writer request            # a frame with its size; empty: no request was sent yet
    size_t sent
    bint awaits               # an answer has to come
    bint is_whole             # it is here; the user has not called `outbound_done`
    bint is_doomed            # the socket has failed meanwhile
    bint holds_reads          # a test has cut the link in this direction
    bint holds_writes
    uint8_t *answer           # with its size prefix
    int64_t capacity
    int64_t size              # with the prefix; -1: the prefix is not here yet
    int64_t received
    int64_t most_bytes        # a larger answer is malformed
    int32_t small_answers     # in a row
    void (*answered)(Outbound *out) noexcept nogil  # the answer is whole
    void (*lost)(Outbound *out, int why) noexcept nogil

# The user sets `driven.go_on`, `driven.shut`, `answered` and `lost`. 0 or -ENOMEM.
cdef int outbound_init(Outbound *out, Reactor *reactor, Plane *plane, int64_t most_bytes) noexcept nogil
cdef void outbound_free(Outbound *out) noexcept nogil       # it has no socket
# Takes the socket over, also when it fails: 0 or -errno.
cdef int outbound_attach(Outbound *out, int handle) noexcept nogil
cdef void outbound_drop(Outbound *out) noexcept nogil       # closes the socket; no-op without one
# A writer for the next request's frame, after its size. It is empty until `outbound_send`.
cdef Writer *outbound_begin(Outbound *out) noexcept nogil
cdef void outbound_send(Outbound *out) noexcept nogil       # may call `lost`
# The whole answer without its size prefix; until `outbound_done`.
cdef uint8_t *outbound_answer(Outbound *out, size_t *size) noexcept nogil
cdef void outbound_done(Outbound *out) noexcept nogil
cdef void outbound_hold(Outbound *out, bint reads, bint writes) noexcept nogil  # may call `lost`
