"""ApiVersions without Python. Clients send it first on every connection and it must not wait, so the processor answers
it from bytes that the plane publishes.
"""

from kafkacore._fast.plane.plane cimport Request


# True: request.answer is filled with the published bytes, or, for a version that is not served, with error 35 in a body
# of version 0 (KIP-511). False: the handler answers; it also refuses invalid software names (INVALID_REQUEST).
cdef bint answer_versions(Request *request) noexcept nogil
