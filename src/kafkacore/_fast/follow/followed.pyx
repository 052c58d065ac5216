"""Implements followed.pxd: the partitions of a fetcher and their states."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kafkacore._fast.base.atomics cimport add32, store64
from kafkacore._fast.base.made_ids cimport is_made_id
from kafkacore._fast.follow.local cimport local_awaits_sync, local_has_failed, local_position
from kafkacore._fast.log.partition cimport partition_hold, partition_release
from kafkacore._fast.wait.mail cimport inbox_close
from kafkacore._fast.wait.park cimport Parked, park_init, park_release

cdef enum:
    LEAST_BUCKETS = 64

cdef int32_t live_followed = 0  # atomic; tests check that it returns to zero


# --- circular lists ---

cdef void link_init(Link *list) noexcept nogil:
    list.next = list.previous = list


cdef void link_remove(Link *link) noexcept nogil:
    if link.next == NULL:
        return
    link.next.previous = link.previous
    link.previous.next = link.next
    link.next = link.previous = NULL


cdef void link_add(Link *list, Link *link) noexcept nogil:
    link_remove(link)
    link.next = list
    link.previous = list.previous
    list.previous.next = link
    list.previous = link


cdef Followed *of_all(Link *link) noexcept nogil:
    cdef Followed layout  # used only to compute the offset of the field
    return <Followed *> (<char *> link - (<char *> &layout.in_all - <char *> &layout))


cdef Followed *of_changed(Link *link) noexcept nogil:
    cdef Followed layout
    return <Followed *> (<char *> link - (<char *> &layout.in_changed - <char *> &layout))


cdef Followed *of_line(Link *link) noexcept nogil:
    cdef Followed layout
    return <Followed *> (<char *> link - (<char *> &layout.in_line - <char *> &layout))


# --- the table ---

cdef uint32_t hash_of(const uint8_t *topic_id, int32_t index) noexcept nogil:
    # The keys come from the committed metadata and not from a peer, and topic ids are random. So the hash needs no
    # secret key.
    cdef uint64_t word
    memcpy(&word, topic_id + 8, 8)
    word = (word ^ <uint64_t> <uint32_t> index) * <uint64_t> 0x9E3779B97F4A7C15
    return <uint32_t> (word >> 32)


cdef uint32_t hash_of_name(const char *topic, int32_t size, int32_t index) noexcept nogil:
    cdef uint64_t word = <uint64_t> <uint32_t> index
    cdef int32_t i
    for i in range(size):
        word = (word ^ <uint8_t> topic[i]) * <uint64_t> 0x100000001B3
    return <uint32_t> ((word * <uint64_t> 0x9E3779B97F4A7C15) >> 32)


cdef uint32_t named_hash(const Followed *each) noexcept nogil:
    return hash_of_name(each.partition.topic, each.partition.topic_size, each.partition.index)


cdef Followed *fetcher_find_named(const Fetcher *f, const char *topic, int32_t size, int32_t index) noexcept nogil:
    cdef Followed *each
    if f.buckets == NULL:
        return NULL
    each = f.named_buckets[hash_of_name(topic, size, index) & f.bucket_mask]
    while each != NULL and (each.partition.index != index or each.partition.topic_size != size
                            or each.state == FOLLOW_GONE or memcmp(each.partition.topic, topic, <size_t> size) != 0):
        each = each.named_chain
    return each


cdef Followed *fetcher_find(const Fetcher *f, const uint8_t *topic_id, int32_t index) noexcept nogil:
    cdef Followed *each
    if f.buckets == NULL:
        return NULL
    each = f.buckets[hash_of(topic_id, index) & f.bucket_mask]
    while each != NULL and (each.partition.index != index or memcmp(each.partition.topic_id, topic_id, 16) != 0):
        each = each.chain
    return each


cdef bint grow(Fetcher *f) noexcept nogil:
    cdef uint32_t size = (f.bucket_mask + 1) * 2 if f.buckets != NULL else LEAST_BUCKETS
    cdef Followed **buckets
    cdef Followed **named
    cdef Followed *each
    cdef Link *link = f.all.next
    cdef uint32_t at
    if f.buckets != NULL and <uint32_t> f.count <= f.bucket_mask:
        return True
    buckets = <Followed **> calloc(size, sizeof(Followed *))
    named = <Followed **> calloc(size, sizeof(Followed *))
    if buckets == NULL or named == NULL:
        free(buckets)
        free(named)
        return False
    while link != &f.all:
        each = of_all(link)
        at = hash_of(each.partition.topic_id, each.partition.index) & (size - 1)
        each.chain = buckets[at]
        buckets[at] = each
        at = named_hash(each) & (size - 1)
        each.named_chain = named[at]
        named[at] = each
        link = link.next
    free(f.buckets)
    free(f.named_buckets)
    f.buckets = buckets
    f.named_buckets = named
    f.bucket_mask = size - 1
    return True


cdef void free_followed(Parked *parked) noexcept nogil:
    cdef Followed *each = <Followed *> parked
    free(each.kept)
    partition_release(each.partition)
    fetcher_release(each.fetcher)
    free(each)
    add32(&live_followed, -1)


cdef Followed *fetcher_add(Fetcher *f, Partition *p) noexcept nogil:
    cdef Followed *each
    cdef uint32_t at
    if not grow(f):
        return NULL
    each = <Followed *> calloc(1, sizeof(Followed))
    if each == NULL:
        return NULL
    park_init(&each.parked, f.inbox)
    each.parked.destroy = free_followed
    each.waiter.parked = &each.parked
    each.fetcher = f
    each.partition = p
    followed_lags(each, -1)
    each.state = FOLLOW_FAILED
    each.at.leader_epoch = -1
    partition_hold(p)
    add32(&f.refs, 1)
    add32(&live_followed, 1)
    at = hash_of(p.topic_id, p.index) & f.bucket_mask
    each.chain = f.buckets[at]
    f.buckets[at] = each
    at = named_hash(each) & f.bucket_mask
    each.named_chain = f.named_buckets[at]
    f.named_buckets[at] = each
    f.count += 1
    f.without_id += is_made_id(p.topic_id)
    link_add(&f.all, &each.in_all)
    return each


cdef void fetcher_forget(Followed *each) noexcept nogil:
    cdef Fetcher *f = each.fetcher
    cdef Followed **place = &f.buckets[hash_of(each.partition.topic_id, each.partition.index) & f.bucket_mask]
    while place[0] != each:
        place = &place[0].chain
    place[0] = each.chain
    place = &f.named_buckets[named_hash(each) & f.bucket_mask]
    while place[0] != each:
        place = &place[0].named_chain
    place[0] = each.named_chain
    f.count -= 1
    f.without_id -= is_made_id(each.partition.topic_id)
    link_remove(&each.in_all)
    link_remove(&each.in_changed)
    link_remove(&each.in_line)
    park_release(&each.parked)


cdef void fetcher_release(Fetcher *f) noexcept nogil:
    cdef int32_t i
    if add32(&f.refs, -1) != 0:
        return
    for i in range(f.event_count):
        partition_release(f.events[i].partition)
    if f.inbox == &f.own_inbox:
        inbox_close(&f.own_inbox)
    free(f.buckets)
    free(f.named_buckets)
    free(f)


# --- states ---

cdef inline bint is_busy(int state) noexcept nogil:
    return state == FOLLOW_BLOCKED or state == FOLLOW_CUTS or state == FOLLOW_SYNCS


cdef void followed_set(Followed *each, int state) noexcept nogil:
    """Changes the state of a partition. The next Fetch checks whether it must name the change to the leader's
    session."""
    cdef Fetcher *f = each.fetcher
    f.busy += is_busy(state) - is_busy(each.state)
    f.syncing += (state == FOLLOW_SYNCS) - (each.state == FOLLOW_SYNCS)
    each.state = state
    each.is_asked = False
    link_remove(&each.in_line)
    if state == FOLLOW_ASKS_END:
        link_add(&f.asks_end, &each.in_line)
    elif state == FOLLOW_ASKS_START:
        link_add(&f.asks_start, &each.in_line)
    followed_note_changed(each)


cdef void followed_note_changed(Followed *each) noexcept nogil:
    if each.in_changed.next == NULL:
        link_add(&each.fetcher.changed, &each.in_changed)


cdef void delay(Followed *each, int which, int64_t delay_ms) noexcept nogil:
    each.due_ms = each.fetcher.now_ms + delay_ms
    followed_set(each, FOLLOW_DELAYED)
    link_add(&each.fetcher.delayed[which], &each.in_line)


cdef void followed_delay(Followed *each) noexcept nogil:
    delay(each, DELAYS - 1, each.fetcher.limits.backoff_ms)


cdef void followed_refused(Followed *each) noexcept nogil:
    cdef int32_t which = each.refused
    if which >= DELAYS - 1:
        followed_delay(each)
        return
    each.refused += 1
    delay(each, which, min(<int64_t> SHORTEST_DELAY_MS << which, each.fetcher.limits.backoff_ms))


cdef void followed_lags(Followed *each, int64_t lag) noexcept nogil:
    each.lag = lag
    store64(&each.partition.fetch_lag, lag)


cdef void followed_go_on(Followed *each) noexcept nogil:
    local_position(each.partition, &each.at)
    if local_awaits_sync(each.partition, each.at.end_offset, &each.waiter):
        followed_set(each, FOLLOW_SYNCS)
    elif local_has_failed(each.partition):
        followed_set(each, FOLLOW_FAILED)  # the fetches of a broken log would keep the replica in the ISR
    elif each.state == FOLLOW_FETCHES:
        followed_note_changed(each)
    else:
        followed_set(each, FOLLOW_FETCHES)


cdef void followed_drop_kept(Followed *each) noexcept nogil:
    each.fetcher.kept_bytes -= <int64_t> each.kept_size
    free(each.kept)
    each.kept = NULL
    each.kept_size = 0


cdef void followed_fail(Followed *each, int kind, int64_t why) noexcept nogil:
    befell(each, kind, why, 0)
    followed_lags(each, -1)
    followed_set(each, FOLLOW_FAILED)


cdef bint followed_is_in_session(const Followed *each) noexcept nogil:
    return each.sent_in == each.fetcher.session_number


cdef void befell(Followed *each, int kind, int64_t first, int64_t second) noexcept nogil:
    cdef Fetcher *f = each.fetcher
    cdef Event *event
    if f.event_count == MOST_EVENTS:
        f.events_lost += 1
        return
    event = &f.events[f.event_count]
    f.event_count += 1
    partition_hold(each.partition)
    event.partition = each.partition
    event.kind = kind
    event.first = first
    event.second = second


def live_count():
    """Returns the number of followed partitions in this process that have not been freed."""
    return add32(&live_followed, 0)
