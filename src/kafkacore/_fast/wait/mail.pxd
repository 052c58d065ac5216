"""Mail and Inbox: messages between threads. Many senders, one receiver, first in first out, never full: each Mail is
part of an object whose number is bounded elsewhere, so a post cannot fail and allocates nothing.

A receiver announces that it is about to sleep (`inbox_may_sleep`). Senders write the eventfd only then: no wake-up is
lost, and a busy receiver costs its senders no system call. Any thread may post; `deliver` runs on the receiver's
thread. In a simulated world a bell of its agenda takes the place of the eventfd.
"""

from libc.stdint cimport int32_t

from kafkacore._fast.world.agenda cimport Agenda

ctypedef struct Mail:
    Mail *next
    void (*deliver)(Mail *mail) noexcept nogil  # may free the object that holds the mail
    int32_t posted  # 1 from post to delivery


ctypedef struct Inbox:
    Mail *newest          # atomic: a stack; the receiver takes all of it and reverses it
    int eventfd           # or the number of a bell
    int32_t sleeping      # atomic
    Agenda *agenda        # counted; NULL: the real world


cdef int inbox_init(Inbox *inbox) noexcept nogil  # 0 or -errno
cdef int inbox_init_in(Inbox *inbox, Agenda *agenda) noexcept nogil  # as `inbox_init` where `agenda` is NULL
cdef void inbox_close(Inbox *inbox) noexcept nogil
# False when this mail waits already; it is delivered once for both posts.
cdef bint inbox_post(Inbox *inbox, Mail *mail) noexcept nogil
cdef int inbox_deliver(Inbox *inbox) noexcept nogil  # delivers all waiting mail; returns how many
cdef bint inbox_may_sleep(Inbox *inbox) noexcept nogil  # announces sleep; False, and not announced, when mail waits
cdef void inbox_awake(Inbox *inbox) noexcept nogil  # withdraws the announcement
# Drains the eventfd; the receiver calls this whenever the eventfd is readable.
cdef void inbox_silence(Inbox *inbox) noexcept nogil
# Writes and drains the eventfd of a ring or a thread.
cdef void ring_bell(int eventfd) noexcept nogil
cdef void silence_bell(int eventfd) noexcept nogil
