"""Heartbeats that change nothing, answered by processors. Contract in heartbeats.pxd."""

cimport cython

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from kafkacore._fast.atomics cimport load64, store64
from kafkacore._fast.cursor cimport Reader, Writer, reader_init, writer_init
from kafkacore._fast.env cimport Env
from kafkacore._fast.gate cimport GATE_ERROR, Verdict
from kafkacore._fast.hot cimport NONE, answer_begin, answer_whole
from kafkacore._fast.plane cimport SERVED, SERVED_CLOSE, SERVED_PUNT, HotApi, Request, hot_api
from kafkacore._fast.schema cimport Slice
from kafkacore._fast.sync cimport mutex_destroy, mutex_init, mutex_lock, mutex_unlock
from kafkacore._fast.view cimport Arena, arena_free, arena_init, view_read, view_write
from kafkacore._fast.wire cimport (
    HeartbeatRequest, HeartbeatResponse, heartbeat_request_program, heartbeat_response_program, response_has_tags,
)

cdef enum:
    API_KEY = 12
    ANSWER_BYTES = 64
    ARENA_BYTES = 1024          # the message has no arrays
    NS_PER_MS = 1000000


cdef uint32_t hash_of(const uint8_t *data, int32_t size) noexcept nogil:
    cdef uint32_t hash = 2166136261u
    cdef int32_t i
    for i in range(size):
        hash = (hash ^ data[i]) * 16777619u
    return hash ^ (hash >> 15)


cdef inline bint is_same(const uint8_t *data, int32_t size, const Slice *asked) noexcept nogil:
    return size == asked.size and (size == 0 or memcmp(data, asked.data, <size_t> size) == 0)


# --- who is asked for ---

cdef Beat *find_member(const Roll *roll, const Slice *member, uint32_t hash) noexcept nogil:
    cdef uint32_t at = hash & roll.mask
    cdef Beat *beat
    while roll.places[at]:  # twice as many places as members: some are free
        beat = &roll.beats[roll.places[at] - 1]
        if is_same(beat.member, beat.member_size, member):
            return beat
        at = (at + 1) & roll.mask
    return NULL


cdef bint note_heartbeat(Rolls *rolls, const HeartbeatRequest *asked, int64_t now_ns) noexcept nogil:
    """False when it is the handler's to answer."""
    cdef uint32_t group_hash = hash_of(asked.group_id.data, asked.group_id.size)
    cdef uint32_t member_hash = hash_of(asked.member_id.data, asked.member_id.size)
    cdef const Slice *instance = &asked.group_instance_id
    cdef Beat *beat = NULL
    cdef Roll *roll
    mutex_lock(&rolls.lock)
    roll = rolls.chains[group_hash % CHAINS]
    while roll != NULL and not (roll.hash == group_hash and is_same(roll.group, roll.group_size, &asked.group_id)):
        roll = roll.next
    if roll != NULL and roll.generation_id == asked.generation_id:
        beat = find_member(roll, &asked.member_id, member_hash)
        # Whoever does not name its instance id is not asked for it.
        if beat != NULL and instance.size >= 0 and not is_same(
            beat.member + beat.member_size, beat.instance_size, instance
        ):
            beat = NULL
    if beat != NULL:
        store64(&beat.heard_ns, now_ns)
    mutex_unlock(&rolls.lock)
    return beat != NULL


cdef int serve_heartbeat(void *state, Request *request, const Verdict *verdict) noexcept nogil:
    cdef Reader reader
    cdef Arena arena
    cdef HeartbeatRequest asked
    cdef const Env *env = request.plane.env  # its clock, which a test may move, is not the processor's
    cdef bint is_read
    reader_init(&reader, request.frame.data + request.header_size, request.frame.size - request.header_size)
    arena_init(&arena, ARENA_BYTES)
    is_read = view_read(heartbeat_request_program(request.api_version), &reader, &asked, &arena) == 0
    arena_free(&arena)
    if not is_read:
        return SERVED_PUNT
    if verdict.action == GATE_ERROR:
        return write_answer(request, verdict.error)
    if not note_heartbeat(<Rolls *> state, &asked, env.clock.monotonic_ns(env.clock.self)):
        return SERVED_PUNT
    return write_answer(request, NONE)


cdef int write_answer(Request *request, int16_t error) noexcept nogil:
    cdef Writer out
    cdef HeartbeatResponse answer
    cdef int gaps = 0
    answer.throttle_time_ms = 0
    answer.error_code = error
    writer_init(&out, ANSWER_BYTES)
    answer_begin(&out, request, response_has_tags(API_KEY, request.api_version))
    view_write(heartbeat_response_program(request.api_version), &answer, &out, NULL, 0, &gaps)
    return SERVED if answer_whole(&out, request) else SERVED_CLOSE


# --- chains ---

cdef bint link(Rolls *rolls, Roll *roll) noexcept nogil:
    """False when the chain is full: somebody chooses ids that meet there."""
    cdef Roll **at
    cdef int length = 0
    mutex_lock(&rolls.lock)
    at = &rolls.chains[roll.hash % CHAINS]
    while at[0] != NULL and length < CHAIN_LENGTH:
        at = &at[0].next
        length += 1
    roll.published = length < CHAIN_LENGTH
    if roll.published:
        roll.next = NULL
        at[0] = roll
    mutex_unlock(&rolls.lock)
    return roll.published


cdef void unlink(Rolls *rolls, Roll *roll) noexcept nogil:
    cdef Roll **at
    mutex_lock(&rolls.lock)
    if roll.published:
        roll.published = False
        at = &rolls.chains[roll.hash % CHAINS]
        while at[0] != roll:
            at = &at[0].next
        at[0] = roll.next
    mutex_unlock(&rolls.lock)


cdef void index_members(Roll *roll) noexcept nogil:
    cdef uint32_t at
    cdef int32_t i
    for i in range(roll.count):
        at = hash_of(roll.beats[i].member, roll.beats[i].member_size) & roll.mask
        while roll.places[at]:
            at = (at + 1) & roll.mask
        roll.places[at] = i + 1


# --- the owner's side ---

@cython.no_gc  # the collector must not empty what threads use until this ends; nothing in it leads back to it
cdef class HeartbeatRolls:
    """All rolls of one broker, whose processors answer by them what they can."""

    def __cinit__(self, Environment environment not None):
        self.environment = environment
        if mutex_init(&self.rolls.lock, NULL) != 0:
            raise MemoryError

    def __dealloc__(self):
        mutex_destroy(&self.rolls.lock)

    def api(self) -> HotApi:
        """Heartbeat, to be installed in a plane of the same environment."""
        return hot_api(serve_heartbeat, &self.rolls, self)

    def publish(self, group_id: str, int32_t generation_id, members) -> HeartbeatRoll:
        """From now on heartbeats of these are answered, until the roll is withdrawn or forgotten. `members`: (id,
        instance id or None) of each, no id twice. There is no other roll of the group."""
        cdef HeartbeatRoll made = HeartbeatRoll.__new__(HeartbeatRoll)
        made.home = self
        made.fill(group_id.encode(), generation_id, list(members))
        with nogil:
            index_members(&made.roll)
            link(&self.rolls, &made.roll)
        return made

    def note(self, group_id: str, int32_t generation_id, member_id: str, instance_id: str | None = None) -> bool:
        """What a processor does with such a heartbeat, without one: False when it is the handler's."""
        cdef bytes group = group_id.encode(), member = member_id.encode(), instance = (instance_id or "").encode()
        cdef HeartbeatRequest asked
        asked.generation_id = generation_id
        asked.group_id.data = <const uint8_t *> <const char *> group
        asked.group_id.size = <int32_t> len(group)
        asked.member_id.data = <const uint8_t *> <const char *> member
        asked.member_id.size = <int32_t> len(member)
        asked.group_instance_id.data = <const uint8_t *> <const char *> instance
        asked.group_instance_id.size = NO_INSTANCE if instance_id is None else <int32_t> len(instance)
        cdef int64_t now_ns = self.environment.monotonic_ns()
        cdef bint noted
        with nogil:
            noted = note_heartbeat(&self.rolls, &asked, now_ns)
        return noted


@cython.no_gc  # likewise
cdef class HeartbeatRoll:
    """The members of one group in one generation."""

    def __dealloc__(self):
        if self.home is not None:
            unlink(&self.home.rolls, &self.roll)
        free(self.roll.places)
        free(self.roll.beats)
        free(self.roll.text)

    cdef int fill(self, bytes group_id, int32_t generation_id, list members) except -1:
        cdef Roll *roll = &self.roll
        cdef Beat *beat
        cdef bytes member, instance, text
        cdef uint8_t *at
        cdef list texts = [group_id]
        roll.beats = <Beat *> calloc(max(len(members), 1), sizeof(Beat))
        roll.mask = 1
        while roll.mask < 2 * <uint32_t> len(members):
            roll.mask = 2 * roll.mask + 1
        roll.places = <int32_t *> calloc(roll.mask + 1, sizeof(int32_t))
        if roll.beats == NULL or roll.places == NULL:
            raise MemoryError
        for member_id, instance_id in members:
            beat = &roll.beats[roll.count]
            roll.count += 1
            member = member_id.encode()
            texts.append(member)
            beat.member_size = <int32_t> len(member)
            beat.instance_size = NO_INSTANCE
            if instance_id is not None:
                instance = instance_id.encode()
                texts.append(instance)
                beat.instance_size = <int32_t> len(instance)
        text = b"".join(texts)
        roll.text = <uint8_t *> malloc(max(len(text), 1))
        if roll.text == NULL:
            raise MemoryError
        memcpy(roll.text, <const char *> text, len(text))
        roll.group = roll.text
        roll.group_size = <int32_t> len(group_id)
        roll.hash = hash_of(roll.group, roll.group_size)
        roll.generation_id = generation_id
        at = roll.text + roll.group_size
        for i in range(roll.count):
            beat = &roll.beats[i]
            beat.member = at
            at += beat.member_size + max(beat.instance_size, 0)
        return 0

    def withdraw(self) -> None:
        """Heartbeats go to the handler from now on. What was heard remains."""
        with nogil:
            unlink(&self.home.rolls, &self.roll)

    def silence_ms(self, int32_t place) -> int | None:
        """How long the member that was at this place in the list has not been heard of; None: never by this roll."""
        cdef int64_t heard_ns
        if not 0 <= place < self.roll.count:
            raise IndexError(place)
        heard_ns = load64(&self.roll.beats[place].heard_ns)
        if heard_ns == 0:
            return None
        return max(self.home.environment.monotonic_ns() - heard_ns, 0) // NS_PER_MS
