"""Applies the answers to the requests of a fetcher, which follows the partitions that one other broker leads.
followed.pxd has the contract."""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int64_t, uint8_t

from kafkacore._fast.follow.followed cimport Fetcher

# Applies the answer to the current request. `body` is the answer's body. Returns 0, or a fault (schema.pxd) if the
# answer cannot be read. After a fault, the driver (the code that moves the fetcher's bytes) ends the connection and
# calls `fetcher_failed`. Sets `error` to the top-level error code of the answer. If that is not 0, the next request
# begins a new session.
cdef int fetcher_absorb(Fetcher *f, const uint8_t *body, size_t size, int16_t *error) noexcept nogil
# These functions apply an answer in parts. `absorb_begin` reads the answer, and each call of `absorb_more` applies a
# part with about `most` bytes of records. Until `absorb_more` has returned True, `body` must stay valid, and the driver
# may send no further request.
cdef int absorb_begin(Fetcher *f, const uint8_t *body, size_t size, int16_t *error) noexcept nogil
cdef bint absorb_more(Fetcher *f, int64_t most) noexcept nogil  # returns True when the whole answer is applied
cdef void absorb_end(Fetcher *f) noexcept nogil   # drops the rest of the answer; `body` may be freed afterwards
