"""Queues lines for the application log. notices.pxd has the contract."""

from libc.stdint cimport int32_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc

from kafkacore._fast.base.atomics cimport add32, add64, load32
from kafkacore._fast.plane.addresses cimport format_peer
from kafkacore._fast.plane.plane cimport NOTICES, Notice
from kafkacore._fast.wait.mail cimport Mail, inbox_post


cdef void deliver_notice(Mail *mail) noexcept nogil:
    cdef Plane *plane = (<Notice *> mail).plane
    mail.next = plane.notices_taken
    plane.notices_taken = mail


cdef void drop_notices(Plane *plane) noexcept nogil:
    cdef Mail *mail
    while plane.notices_taken != NULL:
        mail = plane.notices_taken
        plane.notices_taken = mail.next
        add32(&plane.notices_waiting, -1)
        free(mail)


cdef void plane_notice(Plane *plane, const uint8_t *address, int32_t port, const char *what) noexcept nogil:
    cdef Notice *notice
    cdef char peer[80]
    peer[0] = 0
    if load32(&plane.notices_waiting) >= NOTICES:
        add64(&plane.notices_dropped, 1)
        return
    notice = <Notice *> malloc(sizeof(Notice))
    if notice == NULL:
        add64(&plane.notices_dropped, 1)
        return
    if address != NULL:
        format_peer(peer, 80, address, port)
    snprintf(notice.text, sizeof(notice.text), "%s%s%s", peer, ": " if address != NULL else "", what)
    notice.plane = plane
    notice.mail.posted = 0
    notice.mail.deliver = deliver_notice
    add32(&plane.notices_waiting, 1)
    inbox_post(&plane.notices, &notice.mail)
