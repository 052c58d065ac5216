"""The header of a request."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.schema.wire cimport RequestHeader

# Reads the header of a request's frame. Returns the body's offset in the frame, or -1 for an unknown API or a malformed
# header (Kafka closes such a connection). ControlledShutdown 0 alone has header version 0; its client id is null.
cdef int32_t read_request_header(const uint8_t *frame, size_t size, RequestHeader *out) noexcept nogil
