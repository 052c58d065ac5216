"""`Mail` and `Inbox`: messages between threads. A mail carries no text: the receiving thread calls the mail's function
`deliver`. An inbox has many senders and one receiver. It delivers the oldest mail first, and it is never full. Each
`Mail` is part of a larger object, and other code bounds the number of these objects. So posting a mail allocates
nothing and cannot fail.

A receiver announces that it is about to sleep (`inbox_may_sleep`). It does not sleep if mail is waiting. Senders write
to the eventfd only after the announcement. So no wake-up is lost, and sending to a busy receiver needs no system call.
Any thread may post. A simulated world runs nodes on one thread, in simulated time. There, a bell of the world's
`Agenda` (agenda.pxd) takes the place of the eventfd.
"""

from libc.stdint cimport int32_t

from kafkacore._fast.world.agenda cimport Agenda

ctypedef struct Mail:
    Mail *next
    void (*deliver)(Mail *mail) noexcept nogil  # may free the object that holds the mail
    int32_t posted  # 1 from the post until the delivery


ctypedef struct Inbox:
    Mail *newest          # atomic: a stack; the receiver takes the whole stack and reverses it
    int eventfd           # in a simulated world, the number of a bell
    int32_t sleeping      # atomic
    Agenda *agenda        # holds a reference; NULL in the real world


cdef int inbox_init(Inbox *inbox) noexcept nogil  # returns 0 or -errno
cdef int inbox_init_in(Inbox *inbox, Agenda *agenda) noexcept nogil  # like `inbox_init` if `agenda` is NULL
cdef void inbox_close(Inbox *inbox) noexcept nogil
# Puts the mail into the inbox. Returns False if it is already there. In that case one delivery serves both posts.
cdef bint inbox_post(Inbox *inbox, Mail *mail) noexcept nogil
cdef int inbox_deliver(Inbox *inbox) noexcept nogil  # delivers all waiting mails; returns their number
# Announces that the receiver is about to sleep. If mail is waiting, returns False and announces nothing.
cdef bint inbox_may_sleep(Inbox *inbox) noexcept nogil
cdef void inbox_awake(Inbox *inbox) noexcept nogil  # withdraws the announcement
# Drains the eventfd. The receiver must call this whenever the eventfd is readable.
cdef void inbox_silence(Inbox *inbox) noexcept nogil
# `make_bell` returns a new eventfd or -errno. `ring_bell` writes to an eventfd, and `silence_bell` drains it. Inboxes
# and other queues, such as a ring (ring.pxd), use them.
cdef int make_bell() noexcept nogil
cdef void ring_bell(int eventfd) noexcept nogil
cdef void silence_bell(int eventfd) noexcept nogil
