"""A connection from this process to another node. It sends one request at a time and reads the answer.

An `Outbound` belongs to a processor (a thread that mainly serves clients), and only the processor's thread may use it.
The code that uses the connection (its user) makes the `Outbound` the first field of a larger struct. The `Outbound`
calls its user when an answer is complete and when the connection is lost. Other code opens the socket, does the
handshake with the other node, and hands the socket over (`outbound_attach`).

All answers use the same buffer. The buffer grows as bytes arrive, and shrinks after a number of small answers. The
budget of a plane (plane.pxd) counts the buffer, even if the budget's limit is then exceeded. The connection never waits
for memory, because other nodes may be unable to free memory until this connection makes progress.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.plane.connection cimport Reactor
from kafkacore._fast.plane.driven cimport Driven
from kafkacore._fast.plane.plane cimport Plane

# The reason why a connection was lost. A value above 0 is the errno of the socket.
cdef enum:
    LOST_CLOSED = 0           # the other node closed the connection
    LOST_MALFORMED = -1       # the other node sent bytes that are not an answer
    LOST_NO_MEMORY = -2
    LOST_TIMED_OUT = -3       # only the user sets this value and LOST_ORDERED
    LOST_ORDERED = -4

cdef enum:
    OUTBOUND_LEAST_BYTES = 16384    # the smallest size of the answer's buffer
    OUTBOUND_SMALL_ANSWERS = 64     # the buffer shrinks after this many consecutive answers that fit into that size

ctypedef struct Outbound:
    Driven driven             # must be the first field
    Reactor *reactor
    Plane *plane              # holds a reference
    uint32_t interest
    Writer request            # a frame with its size prefix; empty before the first request
    size_t sent
    bint awaits               # an answer is expected
    bint is_whole             # the answer is complete, and the user has not called `outbound_done`
    bint is_doomed            # the socket has failed while the user did not read from it
    bint holds_reads          # a test has cut the link from the other node to this one
    bint holds_writes         # a test has cut the link from this node to the other one
    uint8_t *answer           # with its size prefix
    int64_t capacity
    int64_t size              # including the prefix; -1 before the prefix has arrived
    int64_t received
    int64_t most_bytes        # a larger answer counts as malformed
    int32_t small_answers     # the number of consecutive small answers so far
    void (*answered)(Outbound *out) noexcept nogil  # called when the answer is complete
    void (*lost)(Outbound *out, int why) noexcept nogil

# Initialises an `Outbound`. The user must set `driven.go_on`, `driven.shut`, `answered` and `lost`. Returns 0 or
# -ENOMEM.
cdef int outbound_init(Outbound *out, Reactor *reactor, Plane *plane, int64_t most_bytes) noexcept nogil
cdef void outbound_free(Outbound *out) noexcept nogil       # the `Outbound` must have no socket
# Takes ownership of the socket, even if the call fails. Returns 0 or -errno.
cdef int outbound_attach(Outbound *out, int handle) noexcept nogil
cdef void outbound_drop(Outbound *out) noexcept nogil       # closes the socket if there is one
# Returns a writer for the next request, without the size prefix. The writer is valid until `outbound_send`.
cdef Writer *outbound_begin(Outbound *out) noexcept nogil
cdef void outbound_send(Outbound *out) noexcept nogil       # may call `lost`
# Returns the whole answer without its size prefix. It is valid until `outbound_done`.
cdef uint8_t *outbound_answer(Outbound *out, size_t *size) noexcept nogil
cdef void outbound_done(Outbound *out) noexcept nogil
cdef void outbound_hold(Outbound *out, bint reads, bint writes) noexcept nogil  # may call `lost`
