"""The endpoints (host and port) of the cluster's brokers, for the leader hints in answers to Produce and Fetch
(KIP-951).

A table of endpoints is immutable. The node publishes a new table when a broker joins, leaves, is fenced or changes its
address. The plane (plane.pxd) frees the old table when no processor (a thread that serves connections) can still be
reading it.
"""

from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.schema.schema cimport Array
from kafkacore._fast.schema.view cimport Arena

# The endpoint at which a broker serves the clients of one of the plane's listeners.
ctypedef struct Endpoint:
    int32_t listener
    int32_t node_id
    int32_t port
    const uint8_t *host
    int32_t host_size
    const uint8_t *rack                  # NULL if the broker has no rack
    int32_t rack_size

ctypedef struct Endpoints:
    int32_t count
    Endpoint items[1]                    # `count` entries

# Begins an answer's list of endpoints, with room for `most` of them. The list stays empty if the arena is full.
cdef void endpoints_begin(Array *endpoints, Arena *arena, int32_t most) noexcept nogil
# Adds the endpoint that a node has for a listener. Does nothing if the answer already has this endpoint or if `all`
# does not contain it. `all` may be NULL.
cdef void endpoints_add(Array *endpoints, const Endpoints *all, int32_t listener, int32_t node_id) noexcept nogil
# Returns the endpoint, or NULL if `all` does not contain it. `all` may be NULL.
cdef const Endpoint *find_endpoint(const Endpoints *all, int32_t listener, int32_t node_id) noexcept nogil


cdef class EndpointTable:
    """Owns an `Endpoints`."""
    cdef Endpoints *all
    cdef list keep
