"""Implements endpoint tables and leader hints. endpoints.pxd has the contract."""

cimport cython

from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.schema.view cimport arena_alloc
from kafkacore._fast.schema.wire cimport NodeEndpoint


cdef void endpoints_begin(Array *endpoints, Arena *arena, int32_t most) noexcept nogil:
    endpoints.items = arena_alloc(arena, most * sizeof(NodeEndpoint))
    endpoints.count = 0


cdef void endpoints_add(Array *endpoints, const Endpoints *all, int32_t listener, int32_t node_id) noexcept nogil:
    cdef NodeEndpoint *out = <NodeEndpoint *> endpoints.items
    cdef const Endpoint *found = find_endpoint(all, listener, node_id)
    cdef int32_t i
    if found == NULL or out == NULL:
        return
    for i in range(endpoints.count):
        if out[i].node_id == node_id:
            return
    out = &out[endpoints.count]
    endpoints.count += 1
    out.node_id = node_id
    out.port = found.port
    out.host.data = found.host
    out.host.size = found.host_size
    out.rack.data = found.rack
    out.rack.size = found.rack_size


cdef const Endpoint *find_endpoint(const Endpoints *all, int32_t listener, int32_t node_id) noexcept nogil:
    cdef int32_t i
    if all != NULL:
        for i in range(all.count):
            if all.items[i].node_id == node_id and all.items[i].listener == listener:
                return &all.items[i]
    return NULL


@cython.no_gc_clear  # processors read the table until the plane releases it
cdef class EndpointTable:
    """An immutable table of endpoints. Each of `endpoints` is a tuple (number of the listener, node id, host, port,
    rack or None)."""

    def __cinit__(self, endpoints):
        cdef bytearray memory = bytearray(sizeof(Endpoints) + len(endpoints) * sizeof(Endpoint))
        cdef Endpoints *all = <Endpoints *> <char *> memory
        cdef const uint8_t *text
        cdef bytes host, rack
        cdef int32_t i
        self.keep = [memory]
        for i, (listener, node_id, host_name, port, rack_name) in enumerate(endpoints):
            host = host_name.encode()
            self.keep.append(host)
            text = host
            all.items[i].listener = listener
            all.items[i].node_id = node_id
            all.items[i].port = port
            all.items[i].host = text
            all.items[i].host_size = <int32_t> len(host)
            all.items[i].rack = NULL
            all.items[i].rack_size = -1
            if rack_name is not None:
                rack = rack_name.encode()
                self.keep.append(rack)
                text = rack
                all.items[i].rack = text
                all.items[i].rack_size = <int32_t> len(rack)
        all.count = <int32_t> len(endpoints)
        self.all = all
