"""Lets processors answer Heartbeat and SyncGroup requests that change nothing. heartbeats.pxd has the contract."""

cimport cython

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stddef cimport size_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from kafkacore._fast.base.lock_order cimport RANK_GROUPS
from kafkacore._fast.base.atomics cimport load32, load64, store32, store64
from kafkacore._fast.base.cursor cimport Reader, Writer, reader_init, writer_free, writer_init
from kafkacore._fast.base.keyed_hash cimport hash_bytes, process_hash_key
from kafkacore._fast.world.environment cimport Env
from kafkacore._fast.plane.gate cimport GATE_ERROR, Verdict
from kafkacore._fast.hot.answers cimport NONE, answer_begin, answer_whole
from kafkacore._fast.plane.plane cimport SERVED, SERVED_CLOSE, SERVED_PUNT, HotApi, Request, hot_api
from kafkacore._fast.schema.schema cimport Slice
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_init, mutex_lock, mutex_unlock
from kafkacore._fast.schema.view cimport Arena, Program, arena_free, arena_init, view_default, view_read, view_write
from kafkacore._fast.schema.wire cimport (
    HEARTBEAT_RESPONSE_FLEXIBLE, SYNC_GROUP_RESPONSE_FLEXIBLE, HeartbeatRequest, HeartbeatResponse, SyncGroupRequest,
    SyncGroupResponse, heartbeat_request_program, heartbeat_response_program, sync_group_request_program,
    sync_group_response_program,
)

cdef enum:
    # From this version on, SyncGroup requests must contain the type and name of the protocol (KIP-559).
    PROTOCOL_SINCE = 5
    MOST_TEXT_BYTES = 32767     # a protocol's type or name has at most this many bytes
    ANSWER_BYTES = 64           # enough bytes for headers and other fields
    SYNC_BYTES = ANSWER_BYTES + TOLD_BYTES + 2 * MOST_TEXT_BYTES
    ARENA_BYTES = 1024          # too small for a SyncGroup with assignments; the handler reads such a request
    NS_PER_MS = 1000000


cdef uint32_t hash_of(const Slice *text) noexcept nogil:
    return <uint32_t> hash_bytes(process_hash_key(), text.data, <size_t> max(text.size, 0))


cdef inline bint is_same(const Slice *one, const Slice *other) noexcept nogil:
    return one.size == other.size and (one.size <= 0 or memcmp(one.data, other.data, <size_t> one.size) == 0)


cdef inline bint differs(const Slice *asked, const Slice *agreed) noexcept nogil:
    """Returns whether the request and the group both have a value and the two values differ."""
    return asked.size >= 0 and agreed.size >= 0 and not is_same(asked, agreed)


# --- the member of a request ---

ctypedef struct Identity:
    const Slice *group
    const Slice *member
    const Slice *instance
    int32_t generation_id
    uint32_t group_hash
    uint32_t member_hash


cdef void identify(Identity *who, const Slice *group, int32_t generation_id, const Slice *member,
                   const Slice *instance) noexcept nogil:
    who.group = group
    who.member = member
    who.instance = instance
    who.generation_id = generation_id
    who.group_hash = hash_of(group)
    who.member_hash = hash_of(member)


cdef Beat *find_member(StableGroups *groups, const Identity *who, StableGroup **found) noexcept nogil:
    """Returns the `Beat` of a member, or NULL if no published group has this member, generation and instance id. Call
    this with the lock held."""
    cdef StableGroup *stable = groups.chains[who.group_hash % CHAINS]
    cdef uint32_t at
    cdef Beat *beat
    while stable != NULL and not (stable.hash == who.group_hash and is_same(&stable.group, who.group)):
        stable = stable.next
    found[0] = stable
    if stable == NULL or stable.generation_id != who.generation_id:
        return NULL
    at = who.member_hash & stable.mask
    while stable.places[at]:  # there are at least twice as many places as members, so some places are free
        beat = &stable.beats[stable.places[at] - 1]
        if is_same(&beat.member, who.member):
            # A request without an instance id matches any member. A request with an instance id matches only the static
            # member with this id.
            return beat if who.instance.size < 0 or is_same(&beat.instance, who.instance) else NULL
        at = (at + 1) & stable.mask
    return NULL


# --- Heartbeat ---

cdef bint note_heartbeat(StableGroups *groups, const HeartbeatRequest *asked, int64_t now_ns) noexcept nogil:
    """Notes a heartbeat. Returns False if the handler must answer."""
    cdef Identity who
    cdef StableGroup *stable
    cdef Beat *beat
    identify(&who, &asked.group_id, asked.generation_id, &asked.member_id, &asked.group_instance_id)
    mutex_lock(&groups.lock)
    beat = find_member(groups, &who, &stable)
    if beat != NULL:
        store64(&beat.heard_ns, now_ns)
    mutex_unlock(&groups.lock)
    return beat != NULL


cdef int serve_heartbeat(void *state, Request *request, const Verdict *verdict) noexcept nogil:
    cdef HeartbeatRequest asked
    cdef HeartbeatResponse answer
    # Uses the plane's clock and not the processor's, because a test may move the plane's clock.
    cdef const Env *env = request.plane.env
    cdef Writer out
    cdef int gaps = 0
    if not read_request(heartbeat_request_program(request.api_version), request, &asked):
        return SERVED_PUNT
    answer.throttle_time_ms = 0
    answer.error_code = NONE
    if verdict.action == GATE_ERROR:
        answer.error_code = verdict.error
    elif not note_heartbeat(<StableGroups *> state, &asked, env.clock.monotonic_ns(env.clock.self)):
        return SERVED_PUNT
    writer_init(&out, ANSWER_BYTES)
    answer_begin(&out, request, request.api_version >= HEARTBEAT_RESPONSE_FLEXIBLE)
    view_write(heartbeat_response_program(request.api_version), &answer, &out, NULL, 0, &gaps)
    return SERVED if answer_whole(&out, request) else SERVED_CLOSE


cdef bint read_request(const Program *program, const Request *request, void *asked) noexcept nogil:
    """Reads the body of a request. Returns False if the handler must read the request."""
    cdef Reader reader
    cdef Arena arena
    cdef bint is_read
    reader_init(&reader, request.frame.data + request.header_size, request.frame.size - request.header_size)
    arena_init(&arena, ARENA_BYTES)
    is_read = view_read(program, &reader, asked, &arena) == 0
    arena_free(&arena)  # only arrays are in the arena, and nothing reads them from now on
    return is_read


# --- SyncGroup ---

cdef bint write_assignment(StableGroups *groups, const SyncGroupRequest *asked, int16_t version,
                           Writer *out) noexcept nogil:
    """Writes the body of the response. Returns False if the handler must answer. Ignores assignments that a group
    leader sends, because the group is already stable."""
    cdef Identity who
    cdef SyncGroupResponse answer
    cdef StableGroup *stable
    cdef Beat *beat
    cdef int gaps = 0
    if version >= PROTOCOL_SINCE and (asked.protocol_type.size < 0 or asked.protocol_name.size < 0):
        return False
    identify(&who, &asked.group_id, asked.generation_id, &asked.member_id, &asked.group_instance_id)
    mutex_lock(&groups.lock)
    beat = find_member(groups, &who, &stable)
    if beat != NULL and (
        beat.assignment.size > TOLD_BYTES or differs(&asked.protocol_type, &stable.protocol_type)
        or differs(&asked.protocol_name, &stable.protocol_name)
    ):
        beat = NULL
    if beat != NULL:
        answer.throttle_time_ms = 0
        answer.error_code = NONE
        answer.protocol_type = stable.protocol_type
        answer.protocol_name = stable.protocol_name
        answer.assignment = beat.assignment
        view_write(sync_group_response_program(version), &answer, out, NULL, 0, &gaps)
        store32(&beat.synced, 1)
    mutex_unlock(&groups.lock)
    return beat != NULL


cdef int serve_sync_group(void *state, Request *request, const Verdict *verdict) noexcept nogil:
    cdef SyncGroupRequest asked
    cdef SyncGroupResponse refused
    cdef Writer out
    cdef int gaps = 0
    if not read_request(sync_group_request_program(request.api_version), request, &asked):
        return SERVED_PUNT
    writer_init(&out, SYNC_BYTES)
    answer_begin(&out, request, request.api_version >= SYNC_GROUP_RESPONSE_FLEXIBLE)
    if verdict.action == GATE_ERROR:
        view_default(sync_group_response_program(request.api_version), &refused)
        refused.error_code = verdict.error
        view_write(sync_group_response_program(request.api_version), &refused, &out, NULL, 0, &gaps)
    elif not write_assignment(<StableGroups *> state, &asked, request.api_version, &out):
        writer_free(&out)
        return SERVED_PUNT
    return SERVED if answer_whole(&out, request) else SERVED_CLOSE


# --- chains ---

cdef bint link(StableGroups *groups, StableGroup *stable) noexcept nogil:
    """Adds a group to its hash chain. Returns False if the chain is full."""
    cdef StableGroup **at
    cdef int length = 0
    mutex_lock(&groups.lock)
    at = &groups.chains[stable.hash % CHAINS]
    while at[0] != NULL and length < CHAIN_LENGTH:
        at = &at[0].next
        length += 1
    stable.published = length < CHAIN_LENGTH
    if stable.published:
        stable.next = NULL
        at[0] = stable
    mutex_unlock(&groups.lock)
    return stable.published


cdef void unlink(StableGroups *groups, StableGroup *stable) noexcept nogil:
    cdef StableGroup **at
    mutex_lock(&groups.lock)
    if stable.published:
        stable.published = False
        at = &groups.chains[stable.hash % CHAINS]
        while at[0] != stable:
            at = &at[0].next
        at[0] = stable.next
    mutex_unlock(&groups.lock)


cdef void index_members(StableGroup *stable) noexcept nogil:
    cdef uint32_t at
    cdef int32_t i
    for i in range(stable.count):
        at = hash_of(&stable.beats[i].member) & stable.mask
        while stable.places[at]:
            at = (at + 1) & stable.mask
        stable.places[at] = i + 1


# --- the coordinator's side ---

cdef Slice slice_of(bytes text):
    cdef Slice found
    found.data = NULL if text is None else <const uint8_t *> <const char *> text
    found.size = -1 if text is None else <int32_t> len(text)
    return found


cdef bytes encoded(str text):
    return None if text is None else text.encode()


@cython.no_gc  # no reference cycle contains it, and the collector must not clear fields that threads still use
cdef class PublishedGroups:
    """The published groups of one broker. The broker's processors answer the members of these groups."""

    def __cinit__(self, Environment environment not None):
        self.environment = environment
        if mutex_init(&self.groups.lock, RANK_GROUPS) != 0:
            raise MemoryError

    def __dealloc__(self):
        mutex_destroy(&self.groups.lock)

    def api(self) -> HotApi:
        """Returns the `HotApi` of Heartbeat, for a plane of the same environment."""
        return hot_api(serve_heartbeat, &self.groups, self)

    def sync_group_api(self) -> HotApi:
        """Returns the `HotApi` of SyncGroup, for a plane of the same environment."""
        return hot_api(serve_sync_group, &self.groups, self)

    def publish(
        self, group_id: str, int32_t generation_id, members, protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> PublishedGroup:
        """Publishes a group. Processors answer the Heartbeat and SyncGroup requests of its members until the
        PublishedGroup is withdrawn or freed. Each of `members` is (member id, instance id or None, assignment). The
        member ids must be distinct. The caller must not publish two groups with the same group id at once."""
        cdef PublishedGroup made = PublishedGroup.__new__(PublishedGroup)
        cdef list texts = [group_id.encode(), encoded(protocol_type), encoded(protocol_name)]
        cdef list assignments = []
        for member_id, instance_id, assignment in members:
            texts.append(member_id.encode())
            texts.append(encoded(instance_id))
            assignments.append(assignment)
        made.owner = self
        made.fill(texts, generation_id, assignments)
        with nogil:
            index_members(&made.stable)
            link(&self.groups, &made.stable)
        return made

    def note(self, group_id: str, int32_t generation_id, member_id: str, instance_id: str | None = None) -> bool:
        """Handles a Heartbeat as a processor does. Returns False if the handler must answer."""
        cdef bytes group = group_id.encode(), member = member_id.encode(), instance = encoded(instance_id)
        cdef HeartbeatRequest asked
        asked.generation_id = generation_id
        asked.group_id = slice_of(group)
        asked.member_id = slice_of(member)
        asked.group_instance_id = slice_of(instance)
        cdef int64_t now_ns = self.environment.monotonic_ns()
        cdef bint noted
        with nogil:
            noted = note_heartbeat(&self.groups, &asked, now_ns)
        return noted

    def sync_group(self, bytes body not None, int16_t version) -> bytes | None:
        """Handles a SyncGroup as a processor does. Returns the body of the response, or None if the handler must
        answer."""
        cdef const Program *program = sync_group_request_program(version)
        cdef SyncGroupRequest asked
        cdef Reader reader
        cdef Arena arena
        cdef Writer out
        cdef bint is_written
        if program == NULL:
            return None
        writer_init(&out, SYNC_BYTES)
        reader_init(&reader, <const char *> body, <size_t> len(body))
        arena_init(&arena, ARENA_BYTES)
        try:
            if view_read(program, &reader, &asked, &arena) != 0:
                return None
            with nogil:
                is_written = write_assignment(&self.groups, &asked, version, &out)
            if not is_written:
                return None
            if out.bad:
                raise MemoryError
            return (<const char *> out.data)[:out.size]
        finally:
            arena_free(&arena)
            writer_free(&out)


@cython.no_gc  # as for PublishedGroups
cdef class PublishedGroup:
    """The members of one published group in one generation."""

    def __dealloc__(self):
        if self.owner is not None:
            with nogil:
                unlink(&self.owner.groups, &self.stable)
        free(self.stable.places)
        free(self.stable.beats)
        free(self.stable.text)

    cdef int fill(self, list texts, int32_t generation_id, list assignments) except -1:
        """Copies `texts`, which has the texts of the group first, and then two texts for each member. Keeps references
        to the assignments."""
        cdef StableGroup *stable = &self.stable
        cdef Py_ssize_t size = 0
        cdef uint8_t *at
        cdef int32_t i
        cdef bytes text
        for text in texts:
            size += 0 if text is None else len(text)
        stable.mask = 1
        while stable.mask < 2 * <uint32_t> len(assignments):
            stable.mask = 2 * stable.mask + 1
        stable.beats = <Beat *> calloc(max(len(assignments), 1), sizeof(Beat))
        stable.places = <int32_t *> calloc(stable.mask + 1, sizeof(int32_t))
        stable.text = <uint8_t *> malloc(max(size, 1))
        if stable.beats == NULL or stable.places == NULL or stable.text == NULL:
            raise MemoryError
        stable.generation_id = generation_id
        stable.count = <int32_t> len(assignments)
        self.assignments = assignments
        at = copied(stable.text, texts[0], &stable.group)
        at = copied(at, texts[1], &stable.protocol_type)
        at = copied(at, texts[2], &stable.protocol_name)
        for i in range(stable.count):
            at = copied(at, texts[3 + 2 * i], &stable.beats[i].member)
            at = copied(at, texts[4 + 2 * i], &stable.beats[i].instance)
            stable.beats[i].assignment = slice_of(<bytes?> assignments[i])
        stable.hash = hash_of(&stable.group)
        return 0

    def withdraw(self) -> None:
        """Withdraws the group. From now on, all requests of its members go to the handler. The recorded times and
        deliveries remain readable."""
        with nogil:
            unlink(&self.owner.groups, &self.stable)

    def silence_ms(self, int32_t place) -> int | None:
        """Returns the milliseconds since the last heartbeat of a member, or None if it has sent none since the group
        was published. `place` is the index of the member in `members`."""
        cdef int64_t heard_ns
        self.check(place)
        heard_ns = load64(&self.stable.beats[place].heard_ns)
        if heard_ns == 0:
            return None
        return max(self.owner.environment.monotonic_ns() - heard_ns, 0) // NS_PER_MS

    def is_synced(self, int32_t place) -> bool:
        """Returns whether a processor has sent this member its assignment."""
        self.check(place)
        return load32(&self.stable.beats[place].synced) != 0

    cdef int check(self, int32_t place) except -1:
        if not 0 <= place < self.stable.count:
            raise IndexError(place)
        return 0


cdef uint8_t *copied(uint8_t *at, bytes text, Slice *into) except NULL:
    """Copies a text to `at`. Returns the position after the text."""
    into.data = at
    into.size = -1 if text is None else <int32_t> len(text)
    if text is not None:
        memcpy(at, <const char *> text, len(text))
    return at + max(into.size, 0)
