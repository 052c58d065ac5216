"""What the hot APIs of a node share, as hot.pxd says."""

cimport cython

from libc.stdint cimport int32_t, uint32_t, uint8_t
from libc.string cimport memcpy

from kafkacore._fast.plane.answer cimport answer_add_memory
from kafkacore._fast.base.atomics cimport load_ptr
from kafkacore._fast.base.cursor cimport put32, write_i32, write_i8, writer_detach, writer_free
from kafkacore._fast.hot.fetch_session cimport FetchSessionCache
from kafkacore._fast.wait.park cimport WAKE_TIMEOUT, Parked, park_wake
from kafkacore._fast.plane.plane cimport NativePlane
from kafkacore._fast.log.partition_table cimport Table
from kafkacore._fast.schema.view cimport arena_alloc
from kafkacore._fast.schema.wire cimport NodeEndpoint


cdef void answer_begin(Writer *out, const Request *request, bint flexible) noexcept nogil:
    write_i32(out, 0)  # the size, known at the end
    write_i32(out, request.correlation_id)
    if flexible:
        write_i8(out, 0)  # no tagged fields


cdef bint answer_whole(Writer *out, Request *request) noexcept nogil:
    cdef size_t size = out.size
    cdef uint8_t *data
    if out.bad:
        writer_free(out)
        return False
    put32(out.data, <uint32_t> (size - 4))
    data = writer_detach(out)
    request.answer.memory = data
    return answer_add_memory(&request.answer, data, size) == 0


cdef bint copy_slice(Arena *arena, Slice *text) noexcept nogil:
    cdef uint8_t *copy
    if text.size <= 0:
        return True
    copy = <uint8_t *> arena_alloc(arena, text.size)
    if copy == NULL:
        return False
    memcpy(copy, text.data, text.size)
    text.data = copy
    return True


cdef void deadline_passed(Timer *timer) noexcept nogil:
    cdef Parked layout  # for the distance alone
    park_wake(<Parked *> (<char *> timer - (<char *> &layout.timer - <char *> &layout)), WAKE_TIMEOUT)


cdef void endpoints_begin(Array *endpoints, Arena *arena, int32_t most) noexcept nogil:
    endpoints.items = arena_alloc(arena, most * sizeof(NodeEndpoint))
    endpoints.count = 0


cdef void endpoints_add(Array *endpoints, const HotState *state, int32_t listener, int32_t node_id) noexcept nogil:
    cdef NodeEndpoint *out = <NodeEndpoint *> endpoints.items
    cdef const Endpoint *found = find_endpoint(state, listener, node_id)
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


cdef const Endpoint *find_endpoint(const HotState *state, int32_t listener, int32_t node_id) noexcept nogil:
    cdef const Endpoints *all = <const Endpoints *> load_ptr(<void *const *> &state.endpoints)
    cdef int32_t i
    if all != NULL:
        for i in range(all.count):
            if all.items[i].node_id == node_id and all.items[i].listener == listener:
                return &all.items[i]
    return NULL


@cython.no_gc  # the collector must not empty what threads use until this ends; nothing in it leads back to it
cdef class Hot:

    def __cinit__(self, FetchSessionCache sessions not None, int fetch_max_bytes=57671680):
        self.sessions = sessions
        self.state.fetch_max_bytes = fetch_max_bytes
        self.state.sessions = &sessions.cache

    def publish_endpoints(self, NativePlane plane not None, endpoints) -> None:
        """`endpoints`: (listener's number, node id, host, port, rack or None) of every broker that answers there, for
        each of the plane's listeners. The plane frees the table before once no processor can be reading it."""
        cdef EndpointTable table = EndpointTable(endpoints)
        plane.publish("endpoints", <void **> &self.state.endpoints, table.all, table)


@cython.no_gc_clear  # processors read it until the plane lets go of it
cdef class EndpointTable:
    """Owns Endpoints."""
    cdef Endpoints *all
    cdef list keep

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


def publish_table(NativePlane plane not None, Table table not None) -> None:
    """From now on the plane's Produce and Fetch find their partitions in `table`."""
    plane.publish_table(table.table, table)
