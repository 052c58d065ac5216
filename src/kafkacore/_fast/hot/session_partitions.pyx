"""Implements the partitions of a fetch session. session_partitions.pxd has the contract."""

from libc.stddef cimport size_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kafkacore._fast.base.assertions cimport debug_assert
from kafkacore._fast.base.atomics cimport add32, add64, load32
from kafkacore._fast.base.keyed_hash cimport hash_word_and_bytes
from kafkacore._fast.base.links cimport list_append, list_remove
from kafkacore._fast.base.lock_order cimport RANK_FETCH_SESSION
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_guards, mutex_init
from kafkacore._fast.log.partition cimport partition_release
from kafkacore._fast.log.readers cimport (
    change_init, change_leave, change_mark, change_watches, changes_close, changes_init, changes_return, changes_take,
)

cdef enum:
    LEAST_BUCKETS = 8

cdef int32_t live_sessions = 0  # atomic; tests check that it returns to zero


cdef int32_t sessions_alive() noexcept nogil:
    return load32(&live_sessions)


cdef void check_session(const void *guarded) noexcept nogil:
    """Checks a session in debug builds. Checks only the first partitions, because a session may have a hundred
    thousand."""
    cdef const FetchSession *session = <const FetchSession *> guarded
    cdef const ListLink *link = session.order.first
    cdef int32_t count = session.order.count
    cdef int32_t seen = 0
    debug_assert((link == NULL) == (count == 0) and (session.order.last == NULL) == (count == 0),
                 b"an empty session has neither a first nor a last partition")
    debug_assert(link == NULL or link.previous == NULL, b"nothing comes before the first partition")
    debug_assert(session.order.last == NULL or session.order.last.next == NULL,
                 b"nothing comes after the last partition")
    while link != NULL and seen < 32:
        seen += 1
        debug_assert(link.next == NULL or link.next.previous == link,
                     b"the partitions of a session are linked in both directions")
        link = link.next
    debug_assert(seen <= count, b"a session counts its partitions")
    debug_assert(link != NULL or seen == count, b"a session counts its partitions")


cdef FetchSession *session_create(const uint64_t *hash_key, bint uses_topic_ids) noexcept nogil:
    cdef FetchSession *session = <FetchSession *> calloc(1, sizeof(FetchSession))
    if session == NULL:
        return NULL
    session.buckets = <SessionPartition **> calloc(LEAST_BUCKETS, sizeof(SessionPartition *))
    if session.buckets == NULL:
        free(session)
        return NULL
    session.bucket_mask = LEAST_BUCKETS - 1
    session.bytes = sizeof(FetchSession) + LEAST_BUCKETS * sizeof(SessionPartition *)
    session.hash_key[0] = hash_key[0]
    session.hash_key[1] = hash_key[1]
    session.refs = 1
    session.epoch = 1
    session.uses_topic_ids = uses_topic_ids
    session.asker.follower_id = -1
    mutex_init(&session.lock, RANK_FETCH_SESSION)
    mutex_guards(&session.lock, check_session, session)
    changes_init(&session.changes)
    add32(&live_sessions, 1)
    return session


cdef void session_release(FetchSession *session) noexcept nogil:
    cdef ListLink *link
    cdef SessionPartition *partition
    if add32(&session.refs, -1) != 0:
        return
    link = session.order.first
    while link != NULL:
        partition = session_of_order(link)
        link = link.next
        leave(partition, True)
        session_partition_release(partition)
    free(session.buckets)
    changes_close(&session.changes)
    mutex_destroy(&session.lock)
    free(session)
    add32(&live_sessions, -1)


# --- one partition ---

cdef SessionPartition *session_of_order(ListLink *link) noexcept nogil:
    cdef SessionPartition layout  # only for the offset of the field
    return <SessionPartition *> (<char *> link - (<char *> &layout.in_order - <char *> &layout))


cdef void session_partition_release(SessionPartition *partition) noexcept nogil:
    if add32(&partition.refs, -1) == 0:
        free(partition)


cdef void leave(SessionPartition *partition, bint for_good) noexcept nogil:
    cdef Partition *left
    if change_leave(&partition.change, for_good, &left):
        partition_release(left)


cdef void session_watch_only(SessionPartition *partition, const Partition *p) noexcept nogil:
    cdef const Partition *watched = change_watches(&partition.change)
    if watched != NULL and watched != p:
        leave(partition, False)


cdef void session_return(SessionPartition *partition, bint first, int32_t state) noexcept nogil:
    changes_return(&partition.change, first, state)
    session_partition_release(partition)


# --- the table and the order; the caller must hold the session's lock ---

cdef uint64_t session_key_hash(const uint64_t *hash_key, const uint8_t *key, int32_t size,
                               int32_t index) noexcept nogil:
    return hash_word_and_bytes(hash_key, <uint32_t> index, key, <size_t> size)


cdef inline const uint8_t *name_of(const SessionPartition *partition) noexcept nogil:
    return <const uint8_t *> (partition + 1)


cdef const uint8_t *session_key(const SessionPartition *partition, bint by_id) noexcept nogil:
    if by_id:
        return partition.topic_id
    return name_of(partition)


cdef SessionPartition **partition_place(FetchSession *session, const uint8_t *topic_id, const uint8_t *topic,
                                        int32_t topic_size, int32_t index) noexcept nogil:
    cdef bint by_id = session.uses_topic_ids
    cdef const uint8_t *key = topic_id if by_id else topic
    cdef int32_t size = 16 if by_id else topic_size
    cdef uint64_t found = session_key_hash(session.hash_key, key, size, index)
    cdef SessionPartition **place = &session.buckets[found & session.bucket_mask]
    cdef const SessionPartition *at
    while place[0] != NULL:
        at = place[0]
        if at.index == index and (by_id or at.topic_size == size) and (
                memcmp(session_key(at, by_id), key, size) == 0):
            return place
        place = &place[0].chain
    return place


cdef SessionPartition *session_find(FetchSession *session, const uint8_t *topic_id, const uint8_t *topic,
                                    int32_t topic_size, int32_t index) noexcept nogil:
    return partition_place(session, topic_id, topic, topic_size, index)[0]


cdef bint grow(FetchSession *session) noexcept nogil:
    cdef uint32_t mask = (session.bucket_mask + 1) * 4 - 1
    cdef SessionPartition **buckets = <SessionPartition **> calloc(mask + 1, sizeof(SessionPartition *))
    cdef ListLink *link = session.order.first
    cdef SessionPartition *partition
    cdef SessionPartition **bucket
    cdef int32_t size
    if buckets == NULL:
        return False
    while link != NULL:
        partition = session_of_order(link)
        size = 16 if session.uses_topic_ids else partition.topic_size
        bucket = &buckets[session_key_hash(session.hash_key, session_key(partition, session.uses_topic_ids), size,
                                           partition.index) & mask]
        partition.chain = bucket[0]
        bucket[0] = partition
        link = link.next
    free(session.buckets)
    add64(&session.bytes, <int64_t> (mask - session.bucket_mask) * <int64_t> sizeof(SessionPartition *))
    session.buckets = buckets
    session.bucket_mask = mask
    return True


cdef SessionPartition *session_put(FetchSession *session, const uint8_t *topic_id, const uint8_t *topic,
                                   int32_t topic_size, int32_t index) noexcept nogil:
    cdef SessionPartition **place = partition_place(session, topic_id, topic, topic_size, index)
    cdef SessionPartition *partition = place[0]
    if partition != NULL:
        return partition
    if <uint32_t> session.order.count > session.bucket_mask * 2:
        grow(session)  # if no memory is left, only the hash chains become longer
        place = partition_place(session, topic_id, topic, topic_size, index)
    if session.uses_topic_ids:
        topic_size = 0
    partition = <SessionPartition *> calloc(1, sizeof(SessionPartition) + topic_size)
    if partition == NULL:
        return NULL
    change_init(&partition.change, &session.changes)
    partition.refs = 1
    if topic_id != NULL:
        memcpy(partition.topic_id, topic_id, 16)
    if topic_size:
        memcpy(<uint8_t *> (partition + 1), topic, topic_size)
    partition.topic_size = topic_size
    partition.index = index
    partition.high_watermark = -1
    partition.log_start_offset = -1
    place[0] = partition
    list_append(&session.order, &partition.in_order)
    add64(&session.bytes, <int64_t> sizeof(SessionPartition) + topic_size)
    change_mark(&partition.change)
    return partition


cdef void session_drop(FetchSession *session, SessionPartition *partition) noexcept nogil:
    cdef SessionPartition **place = partition_place(session, partition.topic_id, name_of(partition),
                                                    partition.topic_size, partition.index)
    place[0] = partition.chain
    list_remove(&session.order, &partition.in_order)
    add64(&session.bytes, -(<int64_t> sizeof(SessionPartition) + partition.topic_size))
    partition.is_dropped = True
    leave(partition, True)
    session_partition_release(partition)


cdef void session_move_last(FetchSession *session, SessionPartition *partition) noexcept nogil:
    list_remove(&session.order, &partition.in_order)
    list_append(&session.order, &partition.in_order)


cdef void session_mark_all(FetchSession *session) noexcept nogil:
    cdef ListLink *link = session.order.first
    while link != NULL:
        change_mark(&session_of_order(link).change)
        link = link.next


cdef SessionPartition *session_take(FetchSession *session) noexcept nogil:
    cdef SessionPartition *partition = <SessionPartition *> changes_take(&session.changes)
    if partition != NULL:
        add32(&partition.refs, 1)
    return partition
