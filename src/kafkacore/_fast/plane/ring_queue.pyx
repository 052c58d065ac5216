"""Pushes requests onto the ring. ring_queue.pxd has the contract."""

from libc.stdint cimport uint32_t

from kafkacore._fast.base.atomics cimport add32
from kafkacore._fast.plane.connection cimport STALL_RING, Link, enqueue, make_ready
from kafkacore._fast.plane.plane cimport REQUEST_OUT, REQUEST_WAITING
from kafkacore._fast.wait.ring cimport ring_push


cdef bint hand_over(Connection *conn, Request *request) noexcept nogil:
    cdef Link *link = conn.link
    if link.oldest == NULL:
        enqueue(conn, request, REQUEST_OUT)
        add32(&conn.plane.requests_out, 1)
        # After the push, the handler owns the request. The processor keeps only the fields `next` and `progress`.
        if ring_push(conn.plane.ring, request, &link.waiter):
            return True
        add32(&conn.plane.requests_out, -1)
        unqueue_last(conn, request)
    conn.stall |= STALL_RING
    conn.next_for_ring = NULL
    if link.newest == NULL:
        link.oldest = conn
    else:
        link.newest.next_for_ring = conn
    link.newest = conn
    return False


cdef void unqueue_last(Connection *conn, Request *request) noexcept nogil:
    """Undoes the last `enqueue`."""
    cdef Request *before = conn.first
    request.progress = REQUEST_WAITING
    conn.waiting = request
    conn.queued -= 1
    conn.unanswered -= 1
    if before == request:
        conn.first = NULL
        conn.last = NULL
        return
    while before.next != request:
        before = before.next
    before.next = NULL
    conn.last = before


cdef void room_on_ring(Mail *mail) noexcept nogil:
    """Lets the waiting connections push their requests in order, because the ring has room again. If a connection finds
    the ring full again, it stays first in the queue."""
    cdef Link *link = <Link *> mail
    cdef Connection *conn = link.oldest
    cdef Connection *next
    link.oldest = NULL
    link.newest = NULL
    while conn != NULL:
        next = conn.next_for_ring
        conn.stall &= ~<uint32_t> STALL_RING
        if conn.waiting != NULL and hand_over(conn, conn.waiting):
            make_ready(conn)
        conn = next


cdef void leave_ring_queue(Connection *conn) noexcept nogil:
    cdef Link *link = conn.link
    cdef Connection **at = &link.oldest
    cdef Connection *before = NULL
    while at[0] != conn:
        before = at[0]
        at = &before.next_for_ring
    at[0] = conn.next_for_ring
    if link.newest == conn:
        link.newest = before
    conn.stall &= ~<uint32_t> STALL_RING
