"""ApiVersions, which opens every connection and must wait for nobody: answered from bytes that the plane publishes."""

from kafkacore._fast.plane.plane cimport Request

cdef enum:
    API_VERSIONS = 18

# True when request.answer is filled: from the published bytes, or with error 35 in a version 0 body where the version
# is not served (KIP-511). False: the handler's, which also refuses strange software names (INVALID_REQUEST).
cdef bint answer_versions(Request *request) noexcept nogil
