"""Intrusive lists: each link is part of the listed object. Adding and removing take constant time and allocate nothing.

A link is in at most one list. The lock that guards a list also guards its links. `first` and `last` are NULL in an
empty list, so zeroed memory is an empty list. A link does not record whether it is in a list; the listed object must
record this.
"""

from libc.stdint cimport int32_t

ctypedef struct ListLink:
    ListLink *next
    ListLink *previous

ctypedef struct LinkedList:
    ListLink *first
    ListLink *last
    int32_t count


cdef inline void list_insert(LinkedList *list, ListLink *link, ListLink *before) noexcept nogil:
    """Inserts `link` in front of `before`, or at the end of the list if `before` is NULL."""
    cdef ListLink *previous = before.previous if before != NULL else list.last
    link.next = before
    link.previous = previous
    if previous != NULL:
        previous.next = link
    else:
        list.first = link
    if before != NULL:
        before.previous = link
    else:
        list.last = link
    list.count += 1


cdef inline void list_append(LinkedList *list, ListLink *link) noexcept nogil:
    list_insert(list, link, NULL)


cdef inline void list_remove(LinkedList *list, ListLink *link) noexcept nogil:
    if link.previous != NULL:
        link.previous.next = link.next
    else:
        list.first = link.next
    if link.next != NULL:
        link.next.previous = link.previous
    else:
        list.last = link.previous
    link.next = link.previous = NULL
    list.count -= 1
