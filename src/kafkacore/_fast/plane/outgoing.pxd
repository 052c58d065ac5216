"""Sends the answers that are complete and next in order, in as few system calls as possible, and records how long each
stage of their requests took.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.world.environment cimport Env
from kafkacore._fast.plane.plane cimport ApiMetrics, Request

# Sends the complete answers from `first` on. Returns 0, with `want_write` set when the socket is full, or -errno when
# the caller must close the connection. Sent answers stay in the list, where `answer_sent` recognises them.
cdef int send_answers(Env *env, int handle, Request *first, int64_t now_ns, bint *want_write) noexcept nogil
cdef bint answer_sent(Request *request) noexcept nogil
cdef void note_stages(ApiMetrics *metrics, Request *request, int64_t sent_ns) noexcept nogil
