"""Implements parked requests. Any thread can wake a request by mail, and the owner's thread resumes it. park.pxd has
the contract.
"""

from libc.stdint cimport int32_t

from kafkacore._fast.base.atomics cimport add32, cas32, load32, swap32
from kafkacore._fast.wait.mail cimport Mail, inbox_post


cdef void deliver_parked(Mail *mail) noexcept nogil:
    cdef Parked *parked = <Parked *> mail
    cdef int why = swap32(&parked.why, 0)
    if why:
        parked.resume(parked, why)
    park_release(parked)


cdef void park_init(Parked *parked, Inbox *inbox) noexcept nogil:
    parked.mail.next = NULL
    parked.mail.deliver = deliver_parked
    parked.mail.posted = 0
    parked.timer.back = NULL
    parked.inbox = inbox
    parked.refs = 1
    parked.why = 0


cdef void park_hold(Parked *parked) noexcept nogil:
    add32(&parked.refs, 1)


cdef void park_release(Parked *parked) noexcept nogil:
    if add32(&parked.refs, -1) == 0:
        parked.destroy(parked)


cdef void park_wake(Parked *parked, int why) noexcept nogil:
    cdef int32_t before
    while True:
        before = load32(&parked.why)
        if before & why == why or cas32(&parked.why, before, before | why):
            break
    # Takes the mail's reference first, because the mail may already be delivered when the post returns.
    park_hold(parked)
    if not inbox_post(parked.inbox, &parked.mail):
        park_release(parked)


cdef void park_deadline_passed(Timer *timer) noexcept nogil:
    cdef Parked layout  # used only to compute the offset of the field
    park_wake(<Parked *> (<char *> timer - (<char *> &layout.timer - <char *> &layout)), WAKE_TIMEOUT)


cdef void wake_all(WakeList *wakes) noexcept nogil:
    cdef int i
    for i in range(wakes.count):
        park_wake(wakes.items[i], wakes.why)
        park_release(wakes.items[i])
    wakes.count = 0
