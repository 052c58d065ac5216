"""Implements planes: how they start and end, their limits, the values that they publish, and the functions that hot
requests call. plane.pxd has the contract."""

cimport cython

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.errno cimport errno
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, strerror

from kafkacore._fast.base.assertions cimport debug_assert
from kafkacore._fast.base.lock_order cimport RANK_ADDRESSES
from kafkacore._fast.plane.addresses cimport address_entry, addresses_free
from kafkacore._fast.plane.notices cimport drop_notices
from kafkacore._fast.plane.samples cimport MAX_SAMPLE_EVERY, SampleRing, rings_free, samples_taken
from kafkacore._fast.base.atomics cimport add32, add64, fence, load32, load64, load_ptr, store32, store_ptr
from kafkacore._fast.wait.mail cimport (
    inbox_awake, inbox_close, inbox_deliver, inbox_init, inbox_may_sleep, inbox_post, silence_bell,
)
from kafkacore._fast.wait.memory cimport Frame, budget_close, budget_init, frame_release
from kafkacore._fast.wait.ring cimport (
    ring_awake, ring_eventfd, ring_free, ring_may_sleep, ring_new, ring_size,
)
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_init, mutex_lock, mutex_unlock

from kafkacore._fast.base.errors import ForkedNodeError
from kafkacore._fast.plane.addresses import pack_address

cdef extern from "<unistd.h>" nogil:
    int getpid()

cdef extern from * nogil:
    """
    #include <errno.h>
    static void kc_set_errno(int error) { errno = error; }
    """
    void set_errno "kc_set_errno"(int error)

cdef int64_t live_planes = 0   # atomic


# Life and limits

cdef void plane_hold(Plane *plane) noexcept nogil:
    add32(&plane.refs, 1)


cdef void plane_release(Plane *plane) noexcept nogil:
    if add32(&plane.refs, -1) != 0:
        return
    debug_assert(load32(&plane.connection_count) == 0, b"a plane that is freed has no connection left")
    debug_assert(load64(&plane.budget.used) == 0, b"a plane that is freed has its whole budget back")
    inbox_deliver(&plane.notices)
    drop_notices(plane)
    inbox_close(&plane.notices)
    ring_free(plane.ring)
    budget_close(&plane.budget)
    addresses_free(plane)
    rings_free(plane.samples)
    mutex_destroy(&plane.addresses_lock)
    free(plane)
    add64(&live_planes, -1)


cdef Plane *plane_new(int32_t ring_capacity, int64_t budget_bytes) noexcept nogil:
    """Creates a plane. Returns NULL and sets errno if no memory or file descriptor is left."""
    cdef Plane *plane = <Plane *> calloc(1, sizeof(Plane))
    cdef int error
    if plane == NULL:
        return NULL
    plane.refs = 1
    plane.ring = ring_new(ring_capacity)
    error = errno
    if plane.ring != NULL:
        error = -inbox_init(&plane.notices)
        if not error:
            error = -budget_init(&plane.budget, budget_bytes) or mutex_init(&plane.addresses_lock, RANK_ADDRESSES)
            if not error:
                add64(&live_planes, 1)
                return plane
            inbox_close(&plane.notices)
    ring_free(plane.ring)
    free(plane)
    set_errno(error)
    return NULL


# Requests

cdef void request_answered(Request *request) noexcept nogil:
    request.settled(request, True)


cdef void request_unblocked(Request *request) noexcept nogil:
    request.settled(request, False)


cdef void request_release_frame(Request *request) noexcept nogil:
    cdef Frame *frame = request.frame
    if frame != NULL:
        request.frame = NULL
        request.client_id = NULL
        frame_release(frame)


cdef void request_post_answer(Request *request) noexcept nogil:
    add32(&request.plane.requests_out, -1)
    inbox_post(request.inbox, &request.answered)


cdef Inbox *request_inbox(Request *request) noexcept nogil:
    return request.inbox


cdef Wheel *request_wheel(Request *request) noexcept nogil:
    return request.wheel


cdef PartitionTable *request_table(Request *request) noexcept nogil:
    return <PartitionTable *> load_ptr(<void **> &request.plane.table)


# The Python interface

def live() -> int:
    """Returns the number of existing planes."""
    return load64(&live_planes)


cdef object hot_api(Serve serve, void *state, object keep):
    cdef HotApi made = HotApi.__new__(HotApi)
    made.serve = serve
    made.state = state
    made.keep = keep
    return made


@cython.no_gc  # no reference cycle contains it, and the collector must not clear fields that threads still use
cdef class HotApi:
    """Native code that serves an API without the GIL. The module with this code creates the object."""


LIMITS = (
    "max_request_bytes", "idle_ms", "slow_frame_ms", "slow_frame_bytes", "half_closed_ms", "max_connections",
    "max_connections_per_ip",
    "answers_depth", "answers_bytes", "turn_frames", "turn_bytes", "send_buffer_bytes", "receive_buffer_bytes",
    "sample_every",
)


cdef class Published:
    """Owns VersionAnswers."""
    cdef VersionAnswers answers

    def __cinit__(self, list bodies):
        cdef int i
        cdef bytes body
        self.answers.bodies = <uint8_t **> calloc(max(len(bodies), 1), sizeof(uint8_t *))
        self.answers.sizes = <int32_t *> calloc(max(len(bodies), 1), sizeof(int32_t))
        if self.answers.bodies == NULL or self.answers.sizes == NULL:
            raise MemoryError
        for i, body in enumerate(bodies):
            self.answers.bodies[i] = <uint8_t *> malloc(max(len(body), 1))
            if self.answers.bodies[i] == NULL:
                raise MemoryError
            memcpy(self.answers.bodies[i], <const char *> body, len(body))
            self.answers.sizes[i] = <int32_t> len(body)
            self.answers.count = i + 1

    def __dealloc__(self):
        cdef int i
        for i in range(self.answers.count):
            free(self.answers.bodies[i])
        free(self.answers.bodies)
        free(self.answers.sizes)


@cython.no_gc  # no reference cycle contains it, and the collector must not clear fields that threads still use
cdef class NativePlane:
    """The native plane of one listener group.

    `limits` can have any of the keys in `LIMITS`. The values are bytes, ms or counts. plane.pxd lists the corresponding
    keys of server.properties.
    """

    def __cinit__(self, name: str, Environment environment not None, *, int32_t ring_capacity,
                  int64_t memory_bytes, **limits):
        self.name = name
        self.environment = environment
        self.pid = getpid()
        self.published = {}
        self.retired = []
        self.processors = []
        self.plane = plane_new(ring_capacity, memory_bytes)
        if self.plane == NULL:
            raise OSError(errno, f"plane {name}: no ring of {ring_capacity} requests: {strerror(errno).decode()}")
        self.plane.env = &environment.env
        for key in range(API_KEYS):
            self.plane.apis[key].highest = -1
        self.plane.max_request_bytes = 104857600
        self.plane.idle_ms = 600000
        self.plane.slow_frame_ms = 30000
        self.plane.slow_frame_bytes = 30 << 10
        self.plane.half_closed_ms = 10000
        self.plane.max_connections = 0x7FFFFFFF
        self.plane.max_connections_per_ip = 0x7FFFFFFF
        self.plane.answers_depth = 64
        self.plane.answers_bytes = 8 << 20
        self.plane.turn_frames = 16
        self.plane.turn_bytes = 1 << 20
        self.plane.send_buffer_bytes = -1
        self.plane.receive_buffer_bytes = -1
        self.configure(limits)

    def __dealloc__(self):
        if self.plane != NULL:
            plane_release(self.plane)

    cdef int check(self) except -1:
        if getpid() != self.pid:
            raise ForkedNodeError(f"plane {self.name} belongs to process {self.pid}, not to its child {getpid()}")
        return 0

    # Publishing

    cdef int watch_turns(self, const int64_t *turns, object processor) except -1:
        self.check()
        if self.turn_count == MAX_PROCESSORS:
            raise ValueError(f"plane {self.name}: at most {MAX_PROCESSORS} processors serve one plane")
        self.turns[self.turn_count] = turns
        self.turn_count += 1
        self.processors.append(processor)
        return 0

    cdef int publish(self, str field, void **place, void *what, object owner) except -1:
        self.check()
        old = self.published.get(field)
        store_ptr(place, what)
        # Stores the value before reading the turn counts. A processor counts its turn before it reads published values.
        fence()
        self.published[field] = owner
        if old is not None:
            self.retired.append((old, [load64(self.turns[i]) for i in range(self.turn_count)]))
        self.collect()
        return 0

    cdef int publish_table(self, PartitionTable *table, object owner) except -1:
        return self.publish("table", <void **> &self.plane.table, table, owner)

    def publish_gate(self, GatePolicy policy) -> None:
        """Publishes the gate. Each processor uses the gate from its next turn on. With None, processors serve all hot
        requests."""
        self.publish("gate", <void **> &self.plane.gate, policy.gate if policy is not None else NULL, policy)

    def publish_api_versions(self, bodies) -> None:
        """Publishes the bodies of the ApiVersions answers. The index of each body is the version of the request. With
        None, ApiVersions requests go to the handler."""
        cdef Published owner = None
        if bodies is not None:
            owner = Published(list(bodies))
        self.publish("versions", <void **> &self.plane.versions, &owner.answers if owner is not None else NULL, owner)

    def collect(self) -> int:
        """Frees the replaced values that no processor can still be reading. Returns the number of replaced values that
        are left."""
        left = []
        for owner, turns in self.retired:
            if any(turn & 1 and load64(self.turns[i]) == turn for i, turn in enumerate(turns)):
                left.append((owner, turns))
        self.retired = left
        return len(left)

    # Configuration

    def set_connection_limits(self, int32_t most, int32_t most_per_ip) -> None:
        """Sets max.connections and max.connections.per.ip. Both can change while the plane serves requests
        (KIP-612)."""
        self.check()
        store32(&self.plane.max_connections, most)
        store32(&self.plane.max_connections_per_ip, most_per_ip)

    def sample_requests(self, int32_t every) -> None:
        """Records the times of one request out of `every` requests, for `take_samples`. If `every` is 0, records
        nothing. This may change while the plane serves requests."""
        self.check()
        if not 0 <= every <= MAX_SAMPLE_EVERY:
            raise ValueError(f"plane {self.name}: one request of 1 to {MAX_SAMPLE_EVERY} can be sampled, not {every}")
        store32(&self.plane.sample_every, every)

    cdef int configure(self, dict limits) except -1:
        """Sets limits. Call this before any processor reads them."""
        cdef Plane *p = self.plane
        for name in limits:
            if name not in LIMITS:
                raise TypeError(f"plane {self.name}: unknown limit {name}; the limits are {', '.join(LIMITS)}")
        p.max_request_bytes = limits.get("max_request_bytes", p.max_request_bytes)
        p.idle_ms = limits.get("idle_ms", p.idle_ms)
        p.slow_frame_ms = limits.get("slow_frame_ms", p.slow_frame_ms)
        p.slow_frame_bytes = limits.get("slow_frame_bytes", p.slow_frame_bytes)
        p.half_closed_ms = limits.get("half_closed_ms", p.half_closed_ms)
        p.max_connections = limits.get("max_connections", p.max_connections)
        p.max_connections_per_ip = limits.get("max_connections_per_ip", p.max_connections_per_ip)
        p.answers_depth = limits.get("answers_depth", p.answers_depth)
        p.answers_bytes = limits.get("answers_bytes", p.answers_bytes)
        p.turn_frames = limits.get("turn_frames", p.turn_frames)
        p.turn_bytes = limits.get("turn_bytes", p.turn_bytes)
        p.send_buffer_bytes = limits.get("send_buffer_bytes", p.send_buffer_bytes)
        p.receive_buffer_bytes = limits.get("receive_buffer_bytes", p.receive_buffer_bytes)
        self.sample_requests(limits.get("sample_every", 0))
        if p.budget.limit < p.max_request_bytes:
            raise ValueError(
                f"plane {self.name}: queued.max.request.bytes ({p.budget.limit}) must be at least "
                f"socket.request.max.bytes ({p.max_request_bytes})"
            )
        if p.answers_depth < 1 or p.turn_frames < 1:
            raise ValueError(f"plane {self.name}: answers_depth and turn_frames are at least 1")
        return 0

    def set_apis(self, apis) -> None:
        """Sets the served APIs, each as (key, lowest version, highest version, first flexible version). Call it only
        before the plane listens."""
        self.check()
        for key, lowest, highest, flexible_from in apis:
            if not 0 <= key < API_KEYS:
                raise ValueError(f"plane {self.name}: API key {key} is not below {API_KEYS}")
            self.plane.apis[key].lowest = lowest
            self.plane.apis[key].highest = highest
            self.plane.apis[key].flexible_from = flexible_from

    def install(self, int key, HotApi api not None) -> None:
        """Lets the processors serve an API. This can be called while the plane serves requests, but only once for each
        API."""
        self.check()
        if not 0 <= key < HOT_APIS:
            raise ValueError(f"plane {self.name}: API key {key} cannot be hot, only those below {HOT_APIS}")
        if f"hot {key}" in self.published:
            raise ValueError(f"plane {self.name}: API key {key} has a hot handler already")
        self.published[f"hot {key}"] = api
        self.plane.hot_state[key] = api.state
        store_ptr(<void **> &self.plane.hot[key], <void *> api.serve)

    def limit_address(self, host: str, int32_t limit) -> None:
        """Sets an override of max.connections.per.ip for one IP address."""
        self.check()
        cdef bytes address = pack_address(host)
        cdef const uint8_t *key = <const uint8_t *> <const char *> address
        cdef AddressCount *entry
        with nogil:
            mutex_lock(&self.plane.addresses_lock)
            entry = address_entry(self.plane, key)
            if entry != NULL:
                entry.limit = limit
            mutex_unlock(&self.plane.addresses_lock)
        if entry == NULL:
            raise MemoryError

    def start_draining(self, bint force=False) -> None:
        """Refuses new connections. Open connections close after their answers have been sent. With `force`, they close
        as soon as their processors sweep."""
        self.check()
        store32(&self.plane.draining, DRAIN_AT_ONCE if force else DRAIN_ANSWERED)

    # The ring

    def fileno(self) -> int:
        """Returns a descriptor. After `may_sleep` has returned True, the descriptor becomes readable when the ring has
        requests."""
        return ring_eventfd(self.plane.ring)

    def may_sleep(self) -> bool:
        return ring_may_sleep(self.plane.ring)

    def awake(self) -> None:
        """Resets the wake-up of the ring. Call this when `fileno` is readable."""
        ring_awake(self.plane.ring)
        silence_bell(ring_eventfd(self.plane.ring))

    # Observation

    def notices_fileno(self) -> int:
        return self.plane.notices.eventfd

    def take_notices(self) -> list[str]:
        """Removes and returns the pending lines for the application log. After that, `notices_fileno` signals the next
        line."""
        self.check()
        cdef Mail *mail
        cdef list lines = []
        inbox_awake(&self.plane.notices)
        silence_bell(self.plane.notices.eventfd)
        while True:
            inbox_deliver(&self.plane.notices)
            if inbox_may_sleep(&self.plane.notices):
                break
        mail = self.plane.notices_taken
        while mail != NULL:
            lines.append((<bytes> (<Notice *> mail).text).decode("utf-8", "replace"))
            mail = mail.next
        drop_notices(self.plane)
        lines.reverse()
        return lines

    def take_samples(self, int64_t most) -> list[tuple]:
        """Removes and returns at most `most` samples of requests. The samples of each processor are in order. A sample
        is a tuple: the time since the answer was sent, API key, version, correlation id, client id, number of the
        listener, the sampling rate N (on average, one of N requests is sampled), the number of samples dropped since
        the previous sample, the total time, and the times of the six stages. Times are in ns."""
        self.check()
        cdef int64_t now_ns = self.plane.env.clock.monotonic_ns(self.plane.env.clock.self)
        return samples_taken(<SampleRing *> load_ptr(<void **> &self.plane.samples), now_ns, most)

    def drop_samples(self, int64_t count) -> None:
        """Counts samples that were taken but could not be written to the log."""
        add64(&self.plane.samples_dropped, count)

    @property
    def draining(self) -> bool:
        return load32(&self.plane.draining) != 0

    def counters(self) -> dict[str, int]:
        """Returns the values of gauges and counters by name."""
        return {
            "request_queue_size": ring_size(self.plane.ring),
            "response_queue_size": load64(&self.plane.responses_queued),
            "connections": load32(&self.plane.connection_count),
            "requests_out": load32(&self.plane.requests_out),
            "memory_used_bytes": load64(&self.plane.budget.used),
            "memory_parked_bytes": load64(&self.plane.budget.parked),
            "memory_waiting": load32(&self.plane.budget.waiting),
            "expired_connections_killed": load64(&self.plane.expired_connections_killed),
            "refused_connections": load64(&self.plane.refused_connections),
            "malformed_frames": load64(&self.plane.malformed_frames),
            "notices_dropped": load64(&self.plane.notices_dropped),
            "samples_dropped": load64(&self.plane.samples_dropped),
        }
