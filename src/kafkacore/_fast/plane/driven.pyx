"""Keeps the `Driven` objects of a processor, and calls them in the order in which they became ready. driven.pxd has the
contract.
"""


cdef void driven_init(DrivenList *all) noexcept nogil:
    all.first = NULL
    all.ready = NULL
    all.ready_end = &all.ready


cdef void driven_join(DrivenList *all, Driven *driven) noexcept nogil:
    driven.previous = NULL
    driven.next = all.first
    if all.first != NULL:
        all.first.previous = driven
    all.first = driven
    driven.has_joined = True


cdef void driven_leave(DrivenList *all, Driven *driven) noexcept nogil:
    cdef Driven **place = &all.ready
    if not driven.has_joined:
        return
    driven.has_joined = False
    if driven.next != NULL:
        driven.next.previous = driven.previous
    if driven.previous != NULL:
        driven.previous.next = driven.next
    else:
        all.first = driven.next
    while driven.is_ready and place[0] != NULL:
        if place[0] == driven:
            place[0] = driven.next_ready
            if place[0] == NULL:
                all.ready_end = place
            driven.is_ready = False
        else:
            place = &place[0].next_ready


cdef void driven_make_ready(DrivenList *all, Driven *driven) noexcept nogil:
    if driven.is_ready or not driven.has_joined:
        return
    driven.is_ready = True
    driven.next_ready = NULL
    all.ready_end[0] = driven
    all.ready_end = &driven.next_ready


cdef void driven_go_on(DrivenList *all) noexcept nogil:
    cdef Driven **end = all.ready_end
    cdef Driven *driven
    cdef bint is_last = all.ready == NULL
    while not is_last and all.ready != NULL:
        driven = all.ready
        is_last = &driven.next_ready == end
        all.ready = driven.next_ready
        if all.ready == NULL:
            all.ready_end = &all.ready
        driven.is_ready = False
        driven.go_on(driven)


cdef void driven_shut_all(DrivenList *all) noexcept nogil:
    cdef Driven *driven = all.first
    cdef Driven *next
    while driven != NULL:
        next = driven.next
        driven.shut(driven)
        driven = next
