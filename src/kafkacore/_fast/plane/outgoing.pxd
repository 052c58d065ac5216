"""Answers' way out: everything that is complete and next in order, in as few system calls as may be; and what it
took."""

from libc.stdint cimport int64_t

from kafkacore._fast.world.environment cimport Env
from kafkacore._fast.plane.plane cimport ApiMetrics, Request

# Sends the complete answers from `first` on. 0 with `want_write` set when the socket takes no more for now; -errno
# when the connection must be closed. What is sent stays in the list: `answer_sent` tells.
cdef int send_answers(Env *env, int handle, Request *first, int64_t now_ns, bint *want_write) noexcept nogil
cdef bint answer_sent(Request *request) noexcept nogil
cdef void note_stages(ApiMetrics *metrics, Request *request, int64_t sent_ns) noexcept nogil
