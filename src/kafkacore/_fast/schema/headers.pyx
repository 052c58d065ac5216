"""Reads the header of a request. headers.pxd has the contract."""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.base.api_keys cimport CONTROLLED_SHUTDOWN
from kafkacore._fast.base.cursor cimport Reader, read_i16, read_i32, read_uvarint, reader_init, take

from kafkacore._fast.schema import tables

cdef enum:
    API_KEYS = 128
    NEVER = 0x7FFF

# The first flexible version of each API, by API key. -1 if no release has the API.
cdef int16_t FLEXIBLE[API_KEYS]


cdef int learn_versions() except -1:
    cdef int key
    for key in range(API_KEYS):
        FLEXIBLE[key] = -1
    # For each API, the line of the current release replaces the line of the former release. An API that the current
    # release dropped keeps the line of the former release.
    for release in (tables.FORMER, tables.CURRENT):
        for api in tables.apis(release):
            if api.key >= API_KEYS:
                raise ValueError(f"{api.message} has the API key {api.key}: raise API_KEYS in headers.pyx above it")
            FLEXIBLE[<int> api.key] = min(NEVER, <int> api.flexible)
    return 0


cdef int32_t read_request_header(const uint8_t *frame, size_t size, RequestHeader *out) noexcept nogil:
    cdef Reader r
    cdef int16_t flexible
    reader_init(&r, frame, size)
    out.request_api_key = read_i16(&r)
    out.request_api_version = read_i16(&r)
    out.correlation_id = read_i32(&r)
    out.client_id.data = NULL
    out.client_id.size = -1
    flexible = FLEXIBLE[out.request_api_key] if 0 <= out.request_api_key < API_KEYS else -1
    if r.bad or flexible < 0:
        return -1
    if out.request_api_key == CONTROLLED_SHUTDOWN and out.request_api_version == 0:
        return <int32_t> (r.pos - frame)
    # The client id is not compact even in flexible versions, so that any broker can read the header of any ApiVersions
    # (KIP-511).
    out.client_id.size = read_i16(&r)
    if out.client_id.size < -1:
        return -1
    if out.client_id.size >= 0:
        out.client_id.data = take(&r, out.client_id.size)
    if out.request_api_version >= flexible:
        skip_tags(&r)
    return -1 if r.bad else <int32_t> (r.pos - frame)


cdef void skip_tags(Reader *r) noexcept nogil:
    cdef uint32_t count = read_uvarint(r)
    cdef int64_t last = -1
    cdef uint32_t tag
    while count and not r.bad:
        tag = read_uvarint(r)
        if <int64_t> tag <= last:
            r.bad = True
        last = tag
        take(r, read_uvarint(r))
        count -= 1


def request_header(const uint8_t[::1] frame):
    """Returns `(api key, version, correlation id, client id, body offset)`, or None for a malformed header."""
    cdef RequestHeader header
    cdef int32_t body = read_request_header(&frame[0] if frame.shape[0] else NULL, frame.shape[0], &header)
    if body < 0:
        return None
    client = None if header.client_id.size < 0 else (<const char *> header.client_id.data)[:header.client_id.size]
    return header.request_api_key, header.request_api_version, header.correlation_id, client, body


learn_versions()
