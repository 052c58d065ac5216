"""Creates and frees a reactor, and its `Link` to each plane that it serves."""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from kafkacore._fast.base.lock_order cimport RANK_LINKS
from kafkacore._fast.base.assertions cimport debug_assert
from kafkacore._fast.base.atomics cimport load32
from kafkacore._fast.plane.connection cimport SCRATCH_BYTES
from kafkacore._fast.plane.driven cimport driven_init
from kafkacore._fast.wait.mail cimport inbox_close, inbox_init
from kafkacore._fast.plane.plane cimport API_KEYS, Request, plane_hold, plane_release
from kafkacore._fast.wait.ring cimport ring_forget
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_init, mutex_lock, mutex_unlock
from kafkacore._fast.wait.timer cimport wheel_init


cdef int reactor_init(
    Reactor *reactor, const Clock *clock, int epoll, void (*sweep)(Mail *mail) noexcept nogil
) noexcept nogil:
    cdef int error
    memset(reactor, 0, sizeof(Reactor))
    reactor.clock = clock
    reactor.epoll = epoll
    reactor.ready_end = &reactor.ready
    driven_init(&reactor.driven)
    reactor.sweep.deliver = sweep
    reactor.now_ns = clock.monotonic_ns(clock.self)
    wheel_init(&reactor.wheel, reactor.now_ns // 1000000)
    reactor.scratch = <uint8_t *> malloc(SCRATCH_BYTES)
    if reactor.scratch == NULL:
        return -ENOMEM
    error = mutex_init(&reactor.links_lock, RANK_LINKS)
    if error:
        free(reactor.scratch)
        return -error
    error = inbox_init(&reactor.inbox)
    if error:
        mutex_destroy(&reactor.links_lock)
        free(reactor.scratch)
    return error


cdef void reactor_close(Reactor *reactor) noexcept nogil:
    cdef Request *request
    cdef Link *link
    debug_assert(
        reactor.first == NULL and reactor.closed == NULL and reactor.ready == NULL and load32(&reactor.count) == 0,
        b"a processor that ends has no connection left")
    while reactor.spare != NULL:
        request = reactor.spare
        reactor.spare = request.next
        free(request)
    while reactor.links != NULL:
        link = reactor.links
        reactor.links = link.next
        ring_forget(link.plane.ring, &link.waiter)
        drop_link(link)
    inbox_close(&reactor.inbox)
    mutex_destroy(&reactor.links_lock)
    free(reactor.scratch)


cdef void reactor_drop_links(Reactor *reactor) noexcept nogil:
    cdef Link **at = &reactor.links
    cdef Link *link
    mutex_lock(&reactor.links_lock)
    while at[0] != NULL:
        link = at[0]
        if link.connections == 0 and load32(&link.plane.draining):
            ring_forget(link.plane.ring, &link.waiter)
            if load32(&link.waiter.mail.posted) == 0:  # otherwise the next sweep drops the link
                at[0] = link.next
                drop_link(link)
                continue
        at = &link.next
    mutex_unlock(&reactor.links_lock)


cdef void drop_link(Link *link) noexcept nogil:
    cdef int i
    for i in range(API_KEYS):
        free(link.apis[i])
    plane_release(link.plane)
    free(link)


cdef Link *reactor_link(Reactor *reactor, Plane *plane, void (*room)(Mail *mail) noexcept nogil) noexcept nogil:
    cdef Link *link = reactor.links
    while link != NULL and link.plane != plane:
        link = link.next
    if link == NULL:
        link = <Link *> calloc(1, sizeof(Link))
        if link == NULL:
            return NULL
        link.waiter.mail.deliver = room
        link.waiter.inbox = &reactor.inbox
        link.reactor = reactor
        link.plane = plane
        plane_hold(plane)
        mutex_lock(&reactor.links_lock)
        link.next = reactor.links
        reactor.links = link
        mutex_unlock(&reactor.links_lock)
    return link
