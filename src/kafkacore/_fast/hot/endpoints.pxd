"""Where the brokers of the cluster listen, for the leader hints of Produce and Fetch (KIP-951).

A table is immutable. The node publishes a new one when a broker joins, leaves, is fenced or moves; the plane frees the
old one when no processor can be reading it.
"""

from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.schema.schema cimport Array
from kafkacore._fast.schema.view cimport Arena

# Where one broker serves the clients of one of the plane's listeners.
ctypedef struct Endpoint:
    int32_t listener
    int32_t node_id
    int32_t port
    const uint8_t *host
    int32_t host_size
    const uint8_t *rack                  # NULL when it has no rack
    int32_t rack_size

ctypedef struct Endpoints:
    int32_t count
    Endpoint items[1]                    # `count` entries

# Begins an answer's list of endpoints, with room for `most`; it stays empty when the arena is full.
cdef void endpoints_begin(Array *endpoints, Arena *arena, int32_t most) noexcept nogil
# Adds the endpoint of a node for a listener, unless the answer has it already or `all` (may be NULL) does not contain
# it.
cdef void endpoints_add(Array *endpoints, const Endpoints *all, int32_t listener, int32_t node_id) noexcept nogil
# NULL when `all` (may be NULL) does not contain it.
cdef const Endpoint *find_endpoint(const Endpoints *all, int32_t listener, int32_t node_id) noexcept nogil


cdef class EndpointTable:
    """Owns Endpoints."""
    cdef Endpoints *all
    cdef list keep
