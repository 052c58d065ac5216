"""Answers ApiVersions without Python. Clients send ApiVersions first on every connection, so this request must not wait
for the handler loop in Python. The processor (the native thread that serves the connection) answers with bytes that the
plane (plane.pxd) has published.
"""

from kafkacore._fast.plane.plane cimport Request


# Fills `request.answer` with the published bytes and returns True. If the node does not serve the version, the answer
# has error 35 in a body of version 0 (KIP-511). Returns False if the handler must answer. The handler also rejects
# invalid software names (INVALID_REQUEST).
cdef bint answer_versions(Request *request) noexcept nogil
