"""A Driven is work that a processor does in addition to serving clients, for example a connection to another node. A
Driven may have a socket, and the processor can call it in each turn (one pass of the processor's event loop).

Only the thread of the reactor may use these structs and functions. A Driven is part of a larger object, whose owner
frees the object after `driven_leave`. The owner may free it only during the delivery of a mail or in `go_on`, never
while the processor handles the socket events of a turn.
"""

from libc.stdint cimport int32_t, uint32_t, uintptr_t

ctypedef struct Driven:
    Driven *next
    Driven *previous
    Driven *next_ready
    bint is_ready
    bint has_joined
    int handle            # a socket that epoll watches; -1 for none
    void (*event)(Driven *driven, uint32_t events) noexcept nogil
    void (*go_on)(Driven *driven) noexcept nogil    # called for a turn of the Driven
    void (*shut)(Driven *driven) noexcept nogil     # called when the processor ends

ctypedef struct DrivenList:
    Driven *first
    Driven *ready         # the Drivens that continue in this turn or the next
    Driven **ready_end

cdef void driven_init(DrivenList *all) noexcept nogil
cdef void driven_join(DrivenList *all, Driven *driven) noexcept nogil
cdef void driven_leave(DrivenList *all, Driven *driven) noexcept nogil
cdef void driven_make_ready(DrivenList *all, Driven *driven) noexcept nogil
# Gives one turn to each Driven that is ready now. A Driven that becomes ready during this call waits for the next call.
cdef void driven_go_on(DrivenList *all) noexcept nogil
cdef void driven_shut_all(DrivenList *all) noexcept nogil

# In the user data of an epoll set, the lowest bit distinguishes a Driven from a Connection.
cdef inline void *driven_tag(Driven *driven) noexcept nogil:
    return <void *> (<uintptr_t> driven | 1)

cdef inline Driven *driven_of(void *tagged) noexcept nogil:
    """Returns the Driven, or NULL if the user data belongs to a Connection."""
    return <Driven *> (<uintptr_t> tagged & ~<uintptr_t> 1) if <uintptr_t> tagged & 1 else NULL
