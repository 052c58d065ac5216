"""Serves Fetch: reads each partition, waits if there are too few bytes, and answers with ranges of files.

The processor's thread never waits for a disk. If some bytes are not in the page cache, a job on the I/O pool of the log
directory first reads these bytes, so that they are in the page cache when the answer is sent.
"""

from libc.errno cimport EAGAIN
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from kafkacore._fast.base.error_codes cimport KAFKA_STORAGE_ERROR
from kafkacore._fast.base.atomics cimport add32, load32
from kafkacore._fast.base.cursor cimport Reader, reader_init
from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.hot.fetch_call cimport (
    FetchCall, Part, call_answer, call_answer_error, call_give_back, call_look_again, call_partitions,
)
from kafkacore._fast.hot.session_partitions cimport session_release
from kafkacore._fast.plane.gate cimport GATE_ERROR, Verdict
from kafkacore._fast.hot.answers cimport NONE
from kafkacore._fast.hot.endpoints cimport Endpoint, find_endpoint
from kafkacore._fast.hot.state cimport HotState, NodeState, endpoints_of, purgatory_enter, purgatory_leave
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.readers cimport changes_unwait, changes_wait
from kafkacore._fast.log.replicas cimport replicas_readable
from kafkacore._fast.log.replication_quota cimport quota_exceeded
from kafkacore._fast.wait.io cimport Job, io_submit
from kafkacore._fast.log.log cimport LOG_BLOCKED, log_dir
from kafkacore._fast.log.aborted cimport log_aborted, log_may_be_aborted
from kafkacore._fast.wait.mail cimport Mail
from kafkacore._fast.wait.memory cimport budget_park, budget_unpark
from kafkacore._fast.wait.park cimport (
    WAKE_READY, WAKE_TIMEOUT, Parked, WakeList, park_deadline_passed, park_hold, park_init, park_release, park_wake,
    wake_all,
)
from kafkacore._fast.log.partition cimport (
    READ_COMMITTED, READ_LOG_END, READ_UNCOMMITTED, WAIT_COMMITTED, WAIT_FETCH, WAIT_FOLLOWER, FollowerFetch, ReadAsked,
    partition_check_replica, partition_read, partition_release, partition_unwait, partition_view, partition_wait,
    read_asked_init,
)
from kafkacore._fast.plane.plane cimport (
    SERVED, SERVED_CLOSE, SERVED_PARKED, HotApi, Request, hot_api, request_answered, request_inbox,
    request_release_frame, request_wheel,
)
from kafkacore._fast.log.segment cimport file_of, segment_release
from kafkacore._fast.wait.timer cimport wheel_add, wheel_cancel
from kafkacore._fast.schema.view cimport Program, arena_free, arena_init, view_read
from kafkacore._fast.schema.wire cimport fetch_request_program

cdef enum:
    # The arena has enough memory for a session of 100,000 partitions. A request that needs more counts as malformed.
    CALL_ARENA_BYTES = 64 << 20
    # The kernel reads ahead at least this far, so one check of the page cache for each range of this size is enough.
    PROBE_BYTES = 128 << 10
    ANY_REPLICA_VERSION = 11  # from this version on, clients send their rack and may fetch from a follower (KIP-392)
    MOST_REPLICAS = 32            # the nearest replica is chosen among at most this many
    SMALL_BYTES = 16 << 10        # a call that keeps at most this many bytes is always allowed to wait

cdef int32_t live_calls = 0       # atomic; tests check that it returns to zero


cdef int serve_fetch(void *state, Request *request, const Verdict *verdict) noexcept nogil:
    cdef FetchCall *call = call_new(<NodeState *> state, request)
    cdef int outcome
    cdef int error
    if call == NULL:
        return SERVED_CLOSE
    outcome = call_read(call)
    if outcome != SERVED:
        park_release(&call.parked)
        return outcome
    if verdict.action == GATE_ERROR:
        call.forced_error = verdict.error
    # If clients read from the nearest replica, another replica may now be the nearest, even for an unchanged partition.
    # So the call must look at all partitions of the session.
    call.looks_at_all = call.forced_error != NONE or selects_replicas(call)
    request.state = call
    request.drop_state = drop_call
    error = call_partitions(call)
    if error < 0:
        drop_call(request)
        return SERVED_CLOSE
    if error > 0:
        return finish(call, call_answer_error(call, error))
    if selects_replicas(call):
        select_replicas(call)
    return go_on(call, False)


cdef FetchCall *call_new(NodeState *state, Request *request) noexcept nogil:
    cdef FetchCall *call = <FetchCall *> calloc(1, sizeof(FetchCall))
    if call == NULL:
        return NULL
    park_init(&call.parked, request_inbox(request))
    call.parked.resume = resume_call
    call.parked.destroy = destroy_call
    call.parked.timer.fire = park_deadline_passed
    call.request = request
    call.state = state
    call.clock = &request.plane.env.clock
    call.now_ms = request_wheel(request).now_ms
    arena_init(&call.arena, CALL_ARENA_BYTES)
    add32(&live_calls, 1)
    return call


cdef void destroy_call(Parked *parked) noexcept nogil:
    cdef FetchCall *call = <FetchCall *> parked
    cdef int32_t i
    release_reads(call)
    if call.session != NULL:
        mutex_lock(&call.session.lock)
        call_give_back(call)
        mutex_unlock(&call.session.lock)
    for i in range(call.count):
        if call.parts[i].partition != NULL:
            partition_release(call.parts[i].partition)
    if call.session != NULL:
        session_release(call.session)
    arena_free(&call.arena)
    free(call)
    add32(&live_calls, -1)


cdef void drop_call(Request *request) noexcept nogil:
    """Releases the call, because its connection is closed. A running job holds its own reference to the call. When the
    job ends, it finds that `request` is NULL."""
    cdef FetchCall *call = <FetchCall *> request.state
    request.state = NULL
    wheel_cancel(request_wheel(request), &call.parked.timer)
    unwait_all(call)
    leave_purgatory(call)
    release_memory(call)
    call.request = NULL
    park_release(&call.parked)


cdef int call_read(FetchCall *call) noexcept nogil:
    """Parses the body and notes its sender. Returns SERVED, or SERVED_CLOSE if the body is malformed."""
    cdef const Program *program = fetch_request_program(call.request.api_version)
    cdef Reader reader
    reader_init(&reader, call.request.frame.data + call.request.header_size,
                call.request.frame.size - call.request.header_size)
    if program == NULL or view_read(program, &reader, &call.body, &call.arena) != 0:
        return SERVED_CLOSE
    call.follower_id = max(call.body.replica_id, call.body.replica_state.replica_id, -1)
    call.follower_epoch = call.body.replica_state.replica_epoch
    call.from_any_replica = call.follower_id < 0 and call.request.api_version >= ANY_REPLICA_VERSION
    call.asked_ms = monotonic_ms(call)
    return SERVED


cdef int64_t monotonic_ms(const FetchCall *call) noexcept nogil:
    return call.clock.monotonic_ns(call.clock.self) // 1000000


# --- the nearest replica (KIP-392, RackAwareReplicaSelector) ---

cdef bint selects_replicas(const FetchCall *call) noexcept nogil:
    return call.state.selects_by_rack and call.from_any_replica and call.body.rack_id.size > 0


cdef bint is_in_rack(const FetchCall *call, int32_t node_id) noexcept nogil:
    cdef const Endpoint *found = find_endpoint(endpoints_of(call.state), call.request.listener, node_id)
    return (found != NULL and found.rack_size == call.body.rack_id.size
            and memcmp(found.rack, call.body.rack_id.data, found.rack_size) == 0)


cdef void select_replicas(FetchCall *call) noexcept nogil:
    """Chooses the nearest replica of each partition. This runs only at the first read, because the request's texts and
    the table of endpoints are valid only in that turn (one pass of the processor's event loop)."""
    cdef int32_t broker_ids[MOST_REPLICAS]
    cdef Part *part
    cdef int32_t i, count, at
    if is_in_rack(call, call.state.node_id):
        return
    for i in range(call.count):
        part = &call.parts[i]
        if part.partition == NULL:
            continue
        mutex_lock(&part.partition.log.lock)
        count = replicas_readable(part.partition, part.offset, broker_ids, MOST_REPLICAS)
        mutex_unlock(&part.partition.log.lock)
        for at in range(count):
            if is_in_rack(call, broker_ids[at]):
                part.preferred = broker_ids[at]
                call.sends_elsewhere = True
                break


# --- reading ---

cdef int go_on(FetchCall *call, bint last) noexcept nogil:
    """Reads the partitions. Then answers, waits for more bytes, or lets the I/O pool read. With `last`, answers in any
    case."""
    if read_all(call, False) == LOG_BLOCKED or not all_cached(call) or may_be_aborted(call):
        return hand_over(call, last)
    if last or enough(call) or not hold_memory(call, False):
        return finish(call, call_answer(call))
    wait_for_more(call)
    return SERVED_PARKED


cdef bint look_again(FetchCall *call) noexcept nogil:
    """Prepares another read of the partitions. Returns False if no memory is left."""
    release_reads(call)
    return call.session == NULL or call_look_again(call)


cdef bint hold_memory(FetchCall *call, bint must) noexcept nogil:
    """Counts the call's memory in the plane's budget, before the call is parked. The memory may have grown since the
    last time. Also releases the call's frame, which a client may have padded to a large size. Returns False if parked
    requests already hold all the memory that they may hold. In that case the caller must answer now.

    If the budget has no room, a small call is parked without being counted. Otherwise a few clients with large Fetches
    could force all other consumers to fetch again and again without waiting. The uncounted memory is at most
    SMALL_BYTES for each connection, because a connection parks only one Fetch at a time.
    """
    cdef int64_t size = sizeof(FetchCall) + <int64_t> call.arena.taken
    cdef int64_t more = size - call.held_bytes
    if more <= 0:
        return True
    if budget_park(&call.request.plane.budget, more, must):
        call.held_bytes += more
    elif size > SMALL_BYTES:
        return False
    request_release_frame(call.request)
    return True


cdef void leave_purgatory(FetchCall *call) noexcept nogil:
    if call.watched:
        purgatory_leave(&call.state.fetch_purgatory, call.watched)
        call.watched = 0


cdef void release_memory(FetchCall *call) noexcept nogil:
    if call.held_bytes:
        budget_unpark(&call.request.plane.budget, call.held_bytes)
        call.held_bytes = 0


cdef bint enough(FetchCall *call) noexcept nogil:
    """Returns whether to answer now, by the rules of ReplicaManager.fetchMessages. An unknown partition does not end
    the wait for the other partitions. If a known partition has an error, the node answers at once, because the client
    must act on the error. The node also answers a read of an older segment at once. Waiting would not enlarge this
    read, because new records go to a later segment (DelayedFetch, case F)."""
    cdef int64_t least_bytes = min(call.body.min_bytes, min(call.body.max_bytes, call.state.fetch_max_bytes))
    return (call.failed or call.sends_elsewhere or call.is_behind or call.known_count + call.settled_count == 0
            or call.is_overtaken or call.body.max_wait_ms <= 0 or call.bytes >= least_bytes)


cdef int read_all(FetchCall *call, bint slowly) noexcept nogil:
    """Reads every partition once, within the limits on bytes. Returns 0, or LOG_BLOCKED if a read must wait for the
    disk."""
    cdef int64_t room = min(call.body.max_bytes, call.state.fetch_max_bytes)
    cdef int isolation = READ_COMMITTED if call.body.isolation_level == READ_COMMITTED else READ_UNCOMMITTED
    cdef FollowerFetch follower
    cdef ReadAsked asked
    cdef WakeList wakes
    cdef Part *part
    cdef int error
    cdef int32_t i
    cdef bint over_quota = is_over_quota(call)
    release_reads(call)
    call.bytes = 0
    call.failed = call.forced_error != NONE
    call.is_behind = False
    for i in range(call.count):
        part = &call.parts[i]
        if part.partition == NULL:
            continue
        if part.preferred >= 0:
            send_elsewhere(call, part)
            continue
        if call.follower_id < 0:
            read_asked_init(&asked, part.offset, max(min(part.max_bytes, room), 0), isolation)
        else:
            read_asked_init(&asked, part.offset, max(min(part.max_bytes, room), 0), READ_LOG_END)
            follower = FollowerFetch(call.follower_id, call.follower_epoch, part.offset, part.log_start_offset,
                                     call.asked_ms)
            asked.follower = &follower
            asked.notes = not call.noted
        asked.current_epoch = part.current_leader_epoch
        asked.last_fetched_epoch = part.last_fetched_epoch
        asked.min_one = call.bytes == 0
        asked.slowly = slowly
        asked.from_any_replica = call.from_any_replica
        asked.over_quota = over_quota
        asked.counts = not part.counted
        part.counted = True
        if part.kept != NULL:
            asked.reader = &part.kept.change.in_readers
        error = partition_read(part.partition, &asked, &part.read, &part.view, &wakes)
        wake_all(&wakes)
        if error == LOG_BLOCKED:
            return LOG_BLOCKED
        part.error = error if call.forced_error == NONE else call.forced_error
        if part.error != NONE or part.view.diverging_end_offset >= 0:
            call.failed = True
        elif part.read.size > 0:
            call.bytes += part.read.size
            call.is_behind = call.is_behind or load32(&part.read.segment.sealed) != 0
            room -= part.read.size
    call.noted = True
    return 0


cdef bint is_over_quota(FetchCall *call) noexcept nogil:
    return (call.follower_id >= 0 and call.state.leader_quota != NULL
            and quota_exceeded(call.state.leader_quota, monotonic_ms(call)))


cdef void send_elsewhere(FetchCall *call, Part *part) noexcept nogil:
    """Refers the client to another replica. The answer contains the offsets of this node's replica, but no records."""
    cdef int error = partition_check_replica(part.partition, part.current_leader_epoch)
    part.error = error if call.forced_error == NONE else call.forced_error
    partition_view(part.partition, &part.view)
    if part.error != NONE:
        part.preferred = -1
        part.view.high_watermark = part.view.last_stable_offset = part.view.log_start_offset = -1
        call.failed = True


cdef void release_reads(FetchCall *call) noexcept nogil:
    cdef Part *part
    cdef int32_t i
    for i in range(call.count):
        part = &call.parts[i]
        if part.read.segment != NULL:
            segment_release(part.read.segment)
            part.read.segment = NULL
        part.read.size = 0
        free(part.aborted)
        part.aborted = NULL
        part.aborted_count = 0


cdef bint may_be_aborted(FetchCall *call) noexcept nogil:
    """Returns whether the client reads with READ_COMMITTED and a part that was read may have aborted transactions. The
    lists of these transactions are only in files, so a job on the I/O pool must read them."""
    cdef int32_t i
    if call.body.isolation_level == READ_COMMITTED:
        for i in range(call.count):
            if call.parts[i].read.size > 0 and log_may_be_aborted(&call.parts[i].partition.log, call.parts[i].offset):
                return True
    return False


cdef bint all_cached(FetchCall *call) noexcept nogil:
    cdef Part *part
    cdef int32_t i
    for i in range(call.count):
        part = &call.parts[i]
        if part.read.size > 0 and not part.read.cached and not range_cached(part):
            return False
    return True


cdef bint range_cached(const Part *part) noexcept nogil:
    cdef const Disk *disk = part.read.segment.disk
    cdef int64_t at = part.read.position
    cdef int64_t last = part.read.position + part.read.size - 1
    cdef uint8_t byte
    while at < last:
        if disk.pread_cached(disk.self, file_of(part.read.segment), &byte, 1, at) == -EAGAIN:
            return False
        at += PROBE_BYTES
    return disk.pread_cached(disk.self, file_of(part.read.segment), &byte, 1, last) != -EAGAIN


# --- reading that waits for the disk ---

cdef int hand_over(FetchCall *call, bint last) noexcept nogil:
    cdef int32_t i
    hold_memory(call, True)
    call.job.run = run_slowly
    call.job.done.deliver = slow_read_done
    call.job.reply = call.parked.inbox
    call.waits_no_more = last
    call.reading = True
    for i in range(call.count):
        if call.parts[i].partition != NULL:
            park_hold(&call.parked)
            if io_submit(log_dir(&call.parts[i].partition.log), &call.job) == 0:
                return SERVED_PARKED
            park_release(&call.parked)
    call.reading = False
    fail_all(call)  # every directory is closed, because the node is stopping
    return finish(call, call_answer(call))


cdef void run_slowly(Job *job) noexcept nogil:
    """Reads the partitions again on a pool thread, where a read is allowed to wait for the disk. Reads every byte, so
    that the bytes are in the page cache when they are sent."""
    cdef FetchCall *call = call_of_job(job)
    cdef int32_t i
    read_all(call, True)
    for i in range(call.count):
        if call.parts[i].read.size > 0 and not call.parts[i].read.cached:
            warm(&call.parts[i])
        if call.parts[i].read.size > 0 and call.body.isolation_level == READ_COMMITTED:
            look_up_aborted(call, &call.parts[i])


cdef void warm(const Part *part) noexcept nogil:
    cdef const Disk *disk = part.read.segment.disk
    cdef uint8_t scratch[16384]
    cdef int64_t at = part.read.position
    cdef int64_t end = part.read.position + part.read.size
    cdef int64_t size
    disk.want(disk.self, file_of(part.read.segment), at, part.read.size)
    while at < end:
        size = min(<int64_t> sizeof(scratch), end - at)
        if disk.pread(disk.self, file_of(part.read.segment), scratch, <size_t> size, at) <= 0:
            return  # the send will get the same error and close the connection
        at += sizeof(scratch)


cdef void look_up_aborted(FetchCall *call, Part *part) noexcept nogil:
    part.aborted_count = log_aborted(&part.partition.log, part.offset, &part.read, &part.aborted)
    if part.aborted_count < 0:  # aborted records must not look like committed ones
        part.aborted_count = 0
        part.error = KAFKA_STORAGE_ERROR
        segment_release(part.read.segment)
        part.read.segment = NULL
        part.read.size = 0
        call.failed = True


cdef void slow_read_done(Mail *mail) noexcept nogil:
    cdef FetchCall *call = call_of_job(<Job *> mail)
    cdef Request *request = call.request
    cdef int outcome = SERVED_PARKED
    call.reading = False
    if request != NULL:
        if call.waits_no_more or enough(call):
            outcome = finish(call, call_answer(call))
        else:
            wait_for_more(call)
        if outcome == SERVED:
            request_answered(request)
    park_release(&call.parked)


cdef FetchCall *call_of_job(Job *job) noexcept nogil:
    cdef FetchCall layout  # only for the offset of the field
    return <FetchCall *> (<char *> job - (<char *> &layout.job - <char *> &layout))


cdef void fail_all(FetchCall *call) noexcept nogil:
    cdef int32_t i
    release_reads(call)
    for i in range(call.count):
        call.parts[i].error = KAFKA_STORAGE_ERROR


# --- waiting ---

cdef void wait_for_more(FetchCall *call) noexcept nogil:
    """Parks the call until a partition changes or its time is over. If a partition has changed since it was read, the
    call reads again in the next turn. If it read again at once, it could use the thread as long as producers append."""
    cdef bint waits
    release_reads(call)
    if call.session != NULL:
        waits = changes_wait(&call.session.changes, &call.parked)
    else:
        waits = queue_waiters(call)
    if not waits:
        park_wake(&call.parked, WAKE_READY)
    if call.parked.timer.back == NULL:
        wheel_add(request_wheel(call.request), &call.parked.timer, call.now_ms + call.body.max_wait_ms)
    if not call.watched:
        call.watched = call.known_count + call.settled_count
        purgatory_enter(&call.state.fetch_purgatory, call.watched)


cdef bint queue_waiters(FetchCall *call) noexcept nogil:
    """Queues a waiter on every known partition. If a partition has changed since it was read, queues no waiter at
    all."""
    cdef Part *part
    cdef bint committed = call.body.isolation_level == READ_COMMITTED
    cdef int kind = WAIT_COMMITTED if committed else WAIT_FETCH
    cdef int64_t bound
    cdef int32_t i
    if call.follower_id >= 0:
        kind = WAIT_FOLLOWER
    for i in range(call.count):
        part = &call.parts[i]
        if part.partition == NULL or part.view.is_held_back:
            continue  # a throttled partition is left to a later Fetch
        bound = part.view.last_stable_offset if committed else part.view.high_watermark
        if kind == WAIT_FOLLOWER:
            bound = part.view.end_offset
        part.waiter.parked = &call.parked
        part.waiter.kind = kind
        part.waiter.at = max(part.offset, bound)
        if not partition_wait(part.partition, &part.waiter):
            unwait_all(call)
            return False
    return True


cdef void unwait_all(FetchCall *call) noexcept nogil:
    cdef int32_t i
    if call.session != NULL:
        changes_unwait(&call.session.changes, &call.parked)
        return
    for i in range(call.count):
        if call.parts[i].partition != NULL:
            partition_unwait(call.parts[i].partition, &call.parts[i].waiter)


cdef void resume_call(Parked *parked, int why) noexcept nogil:
    cdef FetchCall *call = <FetchCall *> parked
    cdef Request *request = call.request
    if request == NULL:
        return
    if call.reading:  # the job owns the parts, and the call answers when the job has ended
        call.waits_no_more |= why & WAKE_TIMEOUT != 0
        return
    unwait_all(call)
    if not look_again(call):
        finish(call, False)
        request_answered(request)
    elif go_on(call, (why & WAKE_TIMEOUT) != 0) == SERVED:
        request_answered(request)


cdef int finish(FetchCall *call, bint answered) noexcept nogil:
    cdef Request *request = call.request
    wheel_cancel(request_wheel(request), &call.parked.timer)
    request.state = NULL
    request.drop_state = NULL
    if not answered:
        request.close_after = True
        request.no_answer = True
    leave_purgatory(call)
    release_memory(call)
    call.request = NULL
    park_release(&call.parked)
    return SERVED


# --- Python interface ---

def api(HotState hot not None) -> HotApi:
    """Returns the `HotApi` of Fetch."""
    return hot_api(serve_fetch, &hot.state, hot)


def live() -> int:
    """Returns the number of unanswered Fetch calls in this process."""
    return load32(&live_calls)
