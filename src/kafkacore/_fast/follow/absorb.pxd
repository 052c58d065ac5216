"""Applies the answers to the requests of a fetcher, which follows the partitions that one other broker leads.
followed.pxd has the contract."""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int64_t, uint8_t

from kafkacore._fast.follow.followed cimport Fetcher

# Applies an answer, which belongs to the current request. `body` is its body. Returns 0, or a fault (schema.pxd) if the
# answer cannot be read. After a fault, the driver ends the connection and calls `fetcher_failed`. Sets `error` to the
# top-level error code of the answer. If that is not 0, the next request begins a new session.
cdef int fetcher_absorb(Fetcher *f, const uint8_t *body, size_t size, int16_t *error) noexcept nogil
# These functions apply an answer in parts. `absorb_begin` reads the answer. `body` must stay valid, and no request may
# follow, until `absorb_more` has returned True. A part ends after about `most` bytes of records.
cdef int absorb_begin(Fetcher *f, const uint8_t *body, size_t size, int16_t *error) noexcept nogil
cdef bint absorb_more(Fetcher *f, int64_t most) noexcept nogil  # returns True when the whole answer has been applied
cdef void absorb_end(Fetcher *f) noexcept nogil   # gives up the rest of the answer; the body may be freed afterwards
