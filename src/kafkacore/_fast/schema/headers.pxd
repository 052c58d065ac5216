"""Reads the header of a request."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.schema.wire cimport RequestHeader

# Reads the header from `frame`, the bytes of a request. Returns the body's offset in the frame. Returns -1 if the API
# is unknown or the header is malformed. For both errors Kafka closes the connection. Only ControlledShutdown 0 has
# header version 0, which has no client id. For this request, `client_id` is null.
cdef int32_t read_request_header(const uint8_t *frame, size_t size, RequestHeader *out) noexcept nogil
