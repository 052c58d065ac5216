"""Work of a processor beside the connections of its clients: something with a socket, or with turns of its own.

Everything here belongs to the thread of the reactor. A Driven is part of a larger object, whose owner frees it after
`driven_leave`; that must not happen while the events of a turn are handled, only by mail or in `go_on`.
"""

from libc.stdint cimport int32_t, uint32_t, uintptr_t

ctypedef struct Driven:
    Driven *next
    Driven *previous
    Driven *next_ready
    bint is_ready
    bint has_joined
    int handle            # watched by epoll; -1: none
    void (*event)(Driven *driven, uint32_t events) noexcept nogil
    void (*go_on)(Driven *driven) noexcept nogil    # its turn has come
    void (*shut)(Driven *driven) noexcept nogil     # the processor ends

ctypedef struct DrivenList:
    Driven *first
    Driven *ready         # those that continue in this turn or the next
    Driven **ready_end

cdef void driven_init(DrivenList *all) noexcept nogil
cdef void driven_join(DrivenList *all, Driven *driven) noexcept nogil
cdef void driven_leave(DrivenList *all, Driven *driven) noexcept nogil
cdef void driven_make_ready(DrivenList *all, Driven *driven) noexcept nogil
# Gives each that is ready now one turn. Those that become ready meanwhile wait for the next call.
cdef void driven_go_on(DrivenList *all) noexcept nogil
cdef void driven_shut_all(DrivenList *all) noexcept nogil

# The user data of an epoll set tells a Driven from a Connection by its lowest bit.
cdef inline void *driven_tag(Driven *driven) noexcept nogil:
    return <void *> (<uintptr_t> driven | 1)

cdef inline Driven *driven_of(void *tagged) noexcept nogil:
    """NULL: it is a Connection."""
    return <Driven *> (<uintptr_t> tagged & ~<uintptr_t> 1) if <uintptr_t> tagged & 1 else NULL
