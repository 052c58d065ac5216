"""The answers to a fetcher's requests. Contract in followed.pxd."""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int64_t, uint8_t

from kafkacore._fast.follow.followed cimport Fetcher

# Takes the body of the answer to the request under way. Returns 0, or a fault (schema.pxd) when the answer cannot be
# read: then the driver ends the connection and calls `fetcher_failed`. `error` gets the error code of the whole answer;
# if it is not 0, the next request begins a new session.
cdef int fetcher_absorb(Fetcher *f, const uint8_t *body, size_t size, int16_t *error) noexcept nogil
# The same in parts. `absorb_begin` reads the answer; `body` stays until `absorb_more` has returned True, and no request
# follows until then. A part ends after about `most` bytes of records.
cdef int absorb_begin(Fetcher *f, const uint8_t *body, size_t size, int16_t *error) noexcept nogil
cdef bint absorb_more(Fetcher *f, int64_t most) noexcept nogil  # True: the answer is taken
cdef void absorb_end(Fetcher *f) noexcept nogil   # gives up the rest of the answer; its bytes may go
