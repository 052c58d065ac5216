"""Sends the answers that are complete and next in order, with as few system calls as possible. Also records how long
each stage of a request took.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.world.environment cimport Env
from kafkacore._fast.plane.plane cimport ApiMetrics, Request
from kafkacore._fast.plane.samples cimport Sampler

# Sends the complete answers from `first` on. Returns 0, and sets `want_write` if the socket is full. Returns -errno if
# the caller must close the connection. The requests whose answers have been sent stay in the list, and `answer_sent`
# returns True for them.
cdef int send_answers(Env *env, int handle, Request *first, int64_t now_ns, bint *want_write) noexcept nogil
cdef bint answer_sent(Request *request) noexcept nogil
cdef void note_stages(ApiMetrics *metrics, Request *request, int64_t sent_ns) noexcept nogil
# Completes the request's sample (samples.pxd), and puts it into the sampler's ring.
cdef void keep_sample(Sampler *sampler, Request *request, int64_t sent_ns) noexcept nogil
