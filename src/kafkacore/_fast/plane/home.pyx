"""Homes: what of a processor its connections share, and the planes that it serves."""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from kafkacore._fast.base.atomics cimport load32
from kafkacore._fast.plane.connection cimport SCRATCH_BYTES
from kafkacore._fast.wait.mail cimport inbox_close, inbox_init
from kafkacore._fast.plane.plane cimport API_KEYS, Request, plane_hold, plane_release
from kafkacore._fast.wait.ring cimport ring_forget
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_init, mutex_lock, mutex_unlock
from kafkacore._fast.wait.timer cimport wheel_init


cdef int home_init(Home *home, const Clock *clock, int epoll, void (*sweep)(Mail *mail) noexcept nogil) noexcept nogil:
    cdef int error
    memset(home, 0, sizeof(Home))
    home.clock = clock
    home.epoll = epoll
    home.ready_end = &home.ready
    home.sweep.deliver = sweep
    home.now_ns = clock.monotonic_ns(clock.self)
    wheel_init(&home.wheel, home.now_ns // 1000000)
    home.scratch = <uint8_t *> malloc(SCRATCH_BYTES)
    if home.scratch == NULL:
        return -ENOMEM
    error = mutex_init(&home.links_lock, NULL)
    if error:
        free(home.scratch)
        return -error
    error = inbox_init(&home.inbox)
    if error:
        mutex_destroy(&home.links_lock)
        free(home.scratch)
    return error


cdef void home_close(Home *home) noexcept nogil:
    cdef Request *request
    cdef Link *link
    while home.spare != NULL:
        request = home.spare
        home.spare = request.next
        free(request)
    while home.links != NULL:
        link = home.links
        home.links = link.next
        ring_forget(link.plane.ring, &link.waiter)
        drop_link(link)
    inbox_close(&home.inbox)
    mutex_destroy(&home.links_lock)
    free(home.scratch)


cdef void home_drop_links(Home *home) noexcept nogil:
    cdef Link **at = &home.links
    cdef Link *link
    mutex_lock(&home.links_lock)
    while at[0] != NULL:
        link = at[0]
        if link.connections == 0 and load32(&link.plane.draining):
            ring_forget(link.plane.ring, &link.waiter)
            if load32(&link.waiter.mail.posted) == 0:  # else the next sweep
                at[0] = link.next
                drop_link(link)
                continue
        at = &link.next
    mutex_unlock(&home.links_lock)


cdef void drop_link(Link *link) noexcept nogil:
    cdef int i
    for i in range(API_KEYS):
        free(link.apis[i])
    plane_release(link.plane)
    free(link)


cdef Link *home_link(Home *home, Plane *plane, void (*room)(Mail *mail) noexcept nogil) noexcept nogil:
    cdef Link *link = home.links
    while link != NULL and link.plane != plane:
        link = link.next
    if link == NULL:
        link = <Link *> calloc(1, sizeof(Link))
        if link == NULL:
            return NULL
        link.waiter.mail.deliver = room
        link.waiter.inbox = &home.inbox
        link.home = home
        link.plane = plane
        plane_hold(plane)
        mutex_lock(&home.links_lock)
        link.next = home.links
        home.links = link
        mutex_unlock(&home.links_lock)
    return link
