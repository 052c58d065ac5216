"""Lists of waiters: the blocked appends of a log and the parked requests of a partition.

`Log.lock` guards these lists. A waiter in a list holds a reference to its parked request (park.pxd). A function that
removes a waiter passes this reference on to its caller.
"""

from kafkacore._fast.wait.park cimport WAKE_BATCH, Waiter, WakeList, park_hold, park_release


cdef inline void waiter_push(Waiter **list, Waiter *waiter) noexcept nogil:
    park_hold(waiter.parked)
    waiter.next = list[0]
    waiter.back = list
    if list[0] != NULL:
        list[0].back = &waiter.next
    list[0] = waiter


cdef inline void waiter_unlink(Waiter *waiter) noexcept nogil:
    waiter.back[0] = waiter.next
    if waiter.next != NULL:
        waiter.next.back = waiter.back
    waiter.back = NULL
    waiter.next = NULL


# Moves waiters into `wakes` while `wakes` has room. Returns True if some waiters are left. In that case the caller must
# wake the requests in `wakes` and call this function again.
cdef inline bint waiters_take_all(Waiter **list, WakeList *wakes) noexcept nogil:
    cdef Waiter *waiter
    while list[0] != NULL:
        if wakes.count == WAKE_BATCH:
            return True
        waiter = list[0]
        waiter_unlink(waiter)
        wakes.items[wakes.count] = waiter.parked
        wakes.count += 1
    return False


# Like `waiters_take_all`, but moves only the waiters that `reached` satisfies: waiters with `at` <= `reached`.
cdef inline bint waiters_take(Waiter **list, long long reached, WakeList *wakes) noexcept nogil:
    cdef Waiter *waiter = list[0]
    cdef Waiter *rest
    while waiter != NULL:
        rest = waiter.next
        if waiter.at <= reached:
            if wakes.count == WAKE_BATCH:
                return True
            waiter_unlink(waiter)
            wakes.items[wakes.count] = waiter.parked
            wakes.count += 1
        waiter = rest
    return False
