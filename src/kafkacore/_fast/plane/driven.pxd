"""A `Driven` is a task that a processor performs in addition to its main task, which is to serve clients. An example is
a connection to another node. The processor calls the functions of a `Driven` when the socket of the `Driven` has
events, or after other code has called `driven_make_ready`.

Only the processor's thread may use these structs and functions. Each `Driven` is part of a larger object. The owner of
this object first calls `driven_leave` and then frees it. The owner may free the object in `go_on`, or during the
delivery of a mail, which is a message to this thread (mail.pxd). It must not free the object in `event`, because the
processor may still have to handle further socket events that point to it.
"""

from libc.stdint cimport int32_t, uint32_t, uintptr_t

ctypedef struct Driven:
    Driven *next
    Driven *previous
    Driven *next_ready
    bint is_ready
    bint has_joined
    int handle            # a socket that epoll watches; -1 if there is none
    void (*event)(Driven *driven, uint32_t events) noexcept nogil  # called when epoll reports events of the socket
    void (*go_on)(Driven *driven) noexcept nogil    # called after `driven_make_ready`
    void (*shut)(Driven *driven) noexcept nogil     # called when the processor ends

ctypedef struct DrivenList:
    Driven *first
    Driven *ready         # the list of ready tasks
    Driven **ready_end

cdef void driven_init(DrivenList *all) noexcept nogil
cdef void driven_join(DrivenList *all, Driven *driven) noexcept nogil
cdef void driven_leave(DrivenList *all, Driven *driven) noexcept nogil
# Makes `driven` ready: the next `driven_go_on` calls its `go_on`.
cdef void driven_make_ready(DrivenList *all, Driven *driven) noexcept nogil
# Calls `go_on` of each `Driven` that is ready now. A `Driven` that becomes ready meanwhile waits for the next call.
cdef void driven_go_on(DrivenList *all) noexcept nogil
cdef void driven_shut_all(DrivenList *all) noexcept nogil

# The user data of an epoll event points to a `Driven` or to a `Connection` (connection.pxd). The lowest bit is 1 for a
# `Driven`.
cdef inline void *driven_tag(Driven *driven) noexcept nogil:
    return <void *> (<uintptr_t> driven | 1)

cdef inline Driven *driven_of(void *tagged) noexcept nogil:
    """Returns the `Driven`, or NULL if the user data points to a `Connection`."""
    return <Driven *> (<uintptr_t> tagged & ~<uintptr_t> 1) if <uintptr_t> tagged & 1 else NULL
