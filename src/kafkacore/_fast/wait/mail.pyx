"""Implements inboxes with a lock-free stack and an eventfd. The receiver takes the whole stack and reverses it. The
eventfd wakes the receiver."""

from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

from kafkacore._fast.world.agenda cimport (
    Agenda, agenda_hold, agenda_release, bell_free, bell_new, bell_ring, bell_silence,
)
from kafkacore._fast.base.atomics cimport add64, cas32, cas_ptr, fence, load32, load64, load_ptr, store32, swap_ptr

cdef extern from "<sys/eventfd.h>" nogil:
    int c_eventfd "eventfd"(unsigned int start, int flags)
    int EFD_CLOEXEC
    int EFD_NONBLOCK

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int file)
    int64_t c_read "read"(int file, void *into, size_t size)
    int64_t c_write "write"(int file, const void *data, size_t size)


cdef int inbox_init(Inbox *inbox) noexcept nogil:
    return inbox_init_in(inbox, NULL)


cdef int inbox_init_in(Inbox *inbox, Agenda *agenda) noexcept nogil:
    inbox.newest = NULL
    inbox.sleeping = 0
    inbox.agenda = agenda
    if agenda != NULL:
        inbox.eventfd = bell_new(agenda)
        if inbox.eventfd < 0:
            return inbox.eventfd
        agenda_hold(agenda)
        return 0
    inbox.eventfd = make_bell()
    return 0 if inbox.eventfd >= 0 else inbox.eventfd


cdef void inbox_close(Inbox *inbox) noexcept nogil:
    if inbox.eventfd >= 0 and inbox.agenda != NULL:
        bell_free(inbox.agenda, inbox.eventfd)
        agenda_release(inbox.agenda)
    elif inbox.eventfd >= 0:
        c_close(inbox.eventfd)
    inbox.eventfd = -1


cdef void wake(Inbox *inbox) noexcept nogil:
    if inbox.agenda != NULL:
        bell_ring(inbox.agenda, inbox.eventfd)
    else:
        ring_bell(inbox.eventfd)


cdef void inbox_silence(Inbox *inbox) noexcept nogil:
    if inbox.agenda != NULL:
        bell_silence(inbox.agenda, inbox.eventfd)
    else:
        silence_bell(inbox.eventfd)


cdef int make_bell() noexcept nogil:
    cdef int eventfd = c_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    return eventfd if eventfd >= 0 else -errno


cdef void ring_bell(int eventfd) noexcept nogil:
    cdef uint64_t one = 1
    # EAGAIN needs no retry: the eventfd's counter is full, so the receiver is awake or about to wake up.
    while c_write(eventfd, &one, sizeof(one)) < 0 and errno == EINTR:
        pass


cdef void silence_bell(int eventfd) noexcept nogil:
    cdef uint64_t count
    while c_read(eventfd, &count, sizeof(count)) < 0 and errno == EINTR:
        pass


cdef bint inbox_post(Inbox *inbox, Mail *mail) noexcept nogil:
    cdef void *newest
    if not cas32(&mail.posted, 0, 1):
        return False
    while True:
        newest = load_ptr(<void **> &inbox.newest)
        mail.next = <Mail *> newest
        if cas_ptr(<void **> &inbox.newest, newest, mail):
            break
    # The sender pushes before it reads `sleeping`. The receiver sets `sleeping` before it reads the stack.
    fence()
    if load32(&inbox.sleeping) and cas32(&inbox.sleeping, 1, 0):
        wake(inbox)
    return True


cdef int inbox_deliver(Inbox *inbox) noexcept nogil:
    cdef Mail *mail
    cdef Mail *next
    cdef Mail *ordered = NULL
    cdef int count = 0
    if load_ptr(<void **> &inbox.newest) == NULL:
        return 0
    mail = <Mail *> swap_ptr(<void **> &inbox.newest, NULL)
    while mail != NULL:
        next = mail.next
        mail.next = ordered
        ordered = mail
        mail = next
    while ordered != NULL:
        mail = ordered
        ordered = mail.next
        # `posted` is cleared before the delivery, because the delivery may free the mail. From now on, a post puts the
        # mail into the inbox again.
        store32(&mail.posted, 0)
        mail.deliver(mail)
        count += 1
    return count


cdef bint inbox_may_sleep(Inbox *inbox) noexcept nogil:
    store32(&inbox.sleeping, 1)
    fence()
    if load_ptr(<void **> &inbox.newest) == NULL:
        return True
    inbox_awake(inbox)
    return False


cdef void inbox_awake(Inbox *inbox) noexcept nogil:
    # A sender that saw `sleeping` writes to the eventfd now or soon. A late write only ends the next sleep early.
    store32(&inbox.sleeping, 0)


# For tests: numbered mails from several threads.

ctypedef struct Letter:
    Mail mail
    Mailbox *owner
    int64_t number

ctypedef struct Mailbox:
    Inbox inbox
    int64_t *delivered
    int64_t count
    int64_t capacity


cdef void letter_deliver(Mail *mail) noexcept nogil:
    cdef Letter *letter = <Letter *> mail
    cdef Mailbox *box = letter.owner
    if box.count < box.capacity:
        box.delivered[box.count] = letter.number
        box.count += 1
    free(letter)
    add64(&live_letters, -1)


cdef int64_t live_letters = 0


def live() -> int:
    """Returns the number of mails that have been posted but not delivered."""
    return load64(&live_letters)


cdef class PyInbox:
    """An inbox whose mails are numbers. Any thread may call `post`, which runs without the GIL."""

    cdef Mailbox box

    def __cinit__(self, int64_t capacity=1 << 16):
        cdef int error = inbox_init(&self.box.inbox)
        if error:
            raise OSError(-error, "eventfd")
        self.box.capacity = capacity
        self.box.delivered = <int64_t *> malloc(capacity * sizeof(int64_t))
        if self.box.delivered == NULL:
            raise MemoryError

    def __dealloc__(self):
        inbox_deliver(&self.box.inbox)
        inbox_close(&self.box.inbox)
        free(self.box.delivered)

    def post(self, int64_t first, int64_t count=1) -> None:
        """Posts `count` mails, numbered from `first`."""
        cdef Letter *letter
        cdef int64_t done = 0
        with nogil:
            while done < count:
                letter = <Letter *> malloc(sizeof(Letter))
                if letter == NULL:
                    break
                add64(&live_letters, 1)
                letter.mail.posted = 0
                letter.mail.deliver = letter_deliver
                letter.owner = &self.box
                letter.number = first + done
                inbox_post(&self.box.inbox, &letter.mail)
                done += 1
        if done < count:
            raise MemoryError

    def deliver(self) -> list[int]:
        """Delivers the waiting mails, and returns their numbers in order."""
        self.box.count = 0
        with nogil:
            inbox_deliver(&self.box.inbox)
        return [self.box.delivered[i] for i in range(self.box.count)]

    def may_sleep(self) -> bool:
        return inbox_may_sleep(&self.box.inbox)

    def awake(self) -> None:
        inbox_awake(&self.box.inbox)
        silence_bell(self.box.inbox.eventfd)

    def fileno(self) -> int:
        return self.box.inbox.eventfd
