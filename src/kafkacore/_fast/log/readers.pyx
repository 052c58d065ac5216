"""Implements readers.pxd: readers of many partitions."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from kafkacore._fast.base.atomics cimport add32, load32, load64, store32, store64, swap32
from kafkacore._fast.base.links cimport list_append, list_insert, list_remove
from kafkacore._fast.base.lock_order cimport RANK_CHANGES
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_init, mutex_lock, mutex_unlock
from kafkacore._fast.log.partition cimport (
    READ_COMMITTED, READ_LOG_END, WAIT_COMMITTED, WAIT_FETCH, WAIT_FOLLOWER, Follower, Told,
)
from kafkacore._fast.log.replicas cimport replicas_find
from kafkacore._fast.wait.park cimport WAKE_BATCH, WAKE_READY, park_hold, park_release, park_wake

cdef enum:
    NEWS_END = 1
    NEWS_HIGH_WATERMARK = 2
    NEWS_STABLE = 4
    NEWS_START = 8
    NEWS_ROLE = 16


cdef int changes_init(Changes *changes) noexcept nogil:
    memset(changes, 0, sizeof(Changes))
    changes.follower_id = -1
    changes.follower_epoch = -1
    return mutex_init(&changes.lock, RANK_CHANGES)


cdef void changes_close(Changes *changes) noexcept nogil:
    mutex_destroy(&changes.lock)


# --- the reader ---

cdef void change_init(Change *change, Changes *changes) noexcept nogil:
    memset(change, 0, sizeof(Change))
    change.changes = changes


cdef inline Change *of_readers(ListLink *link) noexcept nogil:
    cdef Change layout  # used only to compute the offset of the field
    return <Change *> (<char *> link - (<char *> &layout.in_readers - <char *> &layout))


cdef void change_mark(Change *change) noexcept nogil:
    mutex_lock(&change.changes.lock)
    if change.state == CHANGE_NONE and not change.has_left:
        store32(&change.state, CHANGE_NEWS)
        list_append(&change.changes.marked, &change.in_marked)
    mutex_unlock(&change.changes.lock)


cdef int32_t changes_begin(Changes *changes, int32_t follower_id, int64_t follower_epoch,
                           int64_t asked_ms) noexcept nogil:
    store32(&changes.follower_id, follower_id)
    store64(&changes.follower_epoch, follower_epoch)
    store64(&changes.asked_ms, asked_ms)
    mutex_lock(&changes.lock)
    if changes.waiting != NULL:
        park_wake(changes.waiting, WAKE_READY)
    mutex_unlock(&changes.lock)
    return changes_count(changes)


cdef int32_t changes_count(Changes *changes) noexcept nogil:
    cdef int32_t count
    mutex_lock(&changes.lock)
    count = changes.marked.count
    mutex_unlock(&changes.lock)
    return count


cdef Change *changes_take(Changes *changes) noexcept nogil:
    cdef Change *change
    mutex_lock(&changes.lock)
    change = <Change *> changes.marked.first
    if change != NULL:
        take_mark(change)
    mutex_unlock(&changes.lock)
    return change


cdef void changes_return(Change *change, bint first, int32_t state) noexcept nogil:
    cdef Changes *changes = change.changes
    mutex_lock(&changes.lock)
    if change.state == CHANGE_NONE and not change.has_left:
        store32(&change.state, state)
        list_insert(&changes.marked, &change.in_marked, changes.marked.first if first else NULL)
        changes.ready_count += state == CHANGE_READY
    if state == CHANGE_READY and changes.waiting != NULL:
        park_wake(changes.waiting, WAKE_READY)  # the Fetch calls changes_unwait when it runs
    mutex_unlock(&changes.lock)


cdef bint changes_wait(Changes *changes, Parked *parked) noexcept nogil:
    cdef Parked *before = NULL
    cdef bint waits
    mutex_lock(&changes.lock)
    waits = changes.ready_count == 0
    if waits:
        before = changes.waiting
        park_hold(parked)
        changes.waiting = parked
    mutex_unlock(&changes.lock)
    if before != NULL:
        park_wake(before, WAKE_READY)
        park_release(before)
    return waits


cdef void changes_unwait(Changes *changes, Parked *parked) noexcept nogil:
    cdef bint was_waiting
    mutex_lock(&changes.lock)
    was_waiting = changes.waiting == parked
    if was_waiting:
        changes.waiting = NULL
    mutex_unlock(&changes.lock)
    if was_waiting:
        park_release(parked)


cdef Partition *change_watches(Change *change) noexcept nogil:
    cdef Partition *p
    mutex_lock(&change.changes.lock)
    p = <Partition *> change.log
    mutex_unlock(&change.changes.lock)
    return p


cdef bint change_leave(Change *change, bint for_good, Partition **left) noexcept nogil:
    cdef Partition *p
    mutex_lock(&change.changes.lock)
    p = <Partition *> change.log
    if p != NULL:
        # This thread takes its own reference, because another thread may dismiss the `Change` and release the reference
        # of the `Change` before this thread has the partition's lock.
        add32(&p.refs, 1)
    if for_good:
        change.has_left = True
        take_mark(change)
    mutex_unlock(&change.changes.lock)
    left[0] = p
    if p == NULL:
        return False
    mutex_lock(&p.log.lock)
    if stop_watching(p, change, False):
        add32(&p.refs, -1)  # the count cannot become 0, because the caller holds the other reference
    mutex_unlock(&p.log.lock)
    return True


cdef void take_mark(Change *change) noexcept nogil:
    """Removes the mark. Call this with `Changes.lock` held."""
    if change.state == CHANGE_NONE:
        return
    list_remove(&change.changes.marked, &change.in_marked)
    change.changes.ready_count -= change.state == CHANGE_READY
    # A thread that changes the partition holds the partition's lock, and ignores a `Change` that is already marked. The
    # reader takes the same lock next, when it reads the partition. So the reader sees what that thread has changed.
    swap32(&change.state, CHANGE_NONE)


# --- the partition; call with its lock held ---

cdef bint stop_watching(Partition *p, Change *change, bint marks) noexcept nogil:
    """Ends the watch. If this returns True, the caller now owns the reference to the partition that the `Change` held.
    """
    cdef bint watched
    mutex_lock(&change.changes.lock)
    watched = change.log == &p.log
    if watched:
        list_remove(&p.readers, &change.in_readers)
        change.log = NULL
    if marks and not change.has_left and change.state == CHANGE_NONE:
        store32(&change.state, CHANGE_NEWS)
        list_append(&change.changes.marked, &change.in_marked)
    mutex_unlock(&change.changes.lock)
    return watched


cdef void note_told(Partition *p) noexcept nogil:
    p.told = Told(p.log.end_offset, p.high_watermark, p.last_stable_offset, p.log.log_start_offset)
    p.role_changed = False


cdef int32_t kind_of(const ReadAsked *asked) noexcept nogil:
    if asked.isolation == READ_LOG_END:
        return WAIT_FOLLOWER
    return WAIT_COMMITTED if asked.isolation == READ_COMMITTED else WAIT_FETCH


cdef void readers_join(Partition *p, const ReadAsked *asked, int64_t at) noexcept nogil:
    cdef Change *change = of_readers(asked.reader)
    if p.readers.first == NULL:
        note_told(p)
    mutex_lock(&change.changes.lock)
    if change.log == NULL and not change.has_left:
        add32(&p.refs, 1)
        change.log = &p.log
        list_append(&p.readers, &change.in_readers)
    take_mark(change)  # the read that joins here sees all changes so far, including those by the Fetch itself
    mutex_unlock(&change.changes.lock)
    change.kind = kind_of(asked)
    change.at = at


cdef int news_of(const Partition *p) noexcept nogil:
    cdef int news = NEWS_ROLE if p.role_changed else 0
    if p.told.end_offset != p.log.end_offset:
        news |= NEWS_END
    if p.told.high_watermark != p.high_watermark:
        news |= NEWS_HIGH_WATERMARK
    if p.told.last_stable_offset != p.last_stable_offset:
        news |= NEWS_STABLE
    if p.told.log_start_offset != p.log.log_start_offset:
        news |= NEWS_START
    return news


cdef int of_interest(int kind) noexcept nogil:
    """Returns which changes of a partition the response to this kind of reader must report."""
    cdef int news = NEWS_HIGH_WATERMARK | NEWS_START | NEWS_ROLE
    if kind == WAIT_FOLLOWER:
        return news | NEWS_END
    return news | NEWS_STABLE if kind == WAIT_COMMITTED else news


cdef void note_idle_fetches(Partition *p, const Changes *changes) noexcept nogil:
    """Notes the Fetches that the follower has sent since the partition last changed. These Fetches did not visit the
    partition, because it had not changed. If the follower had all records before these Fetches, it still had all
    records at the last of these Fetches. Now the partition changes, so this function must update the follower's state
    before other code reads this state."""
    cdef Follower *follower = replicas_find(p, load32(&changes.follower_id))
    cdef int64_t asked_ms = load64(&changes.asked_ms)
    if follower == NULL or follower.broker_epoch != load64(&changes.follower_epoch):
        return
    if follower.end_offset >= p.told.end_offset and follower.end_offset >= 0 and asked_ms > follower.fetched_ms:
        follower.caught_up_ms = max(follower.caught_up_ms, asked_ms)
        follower.fetched_ms = asked_ms
        follower.leader_end_offset = max(follower.leader_end_offset, p.told.end_offset)


cdef bint mark(Change *change, int32_t state, WakeList *wakes) noexcept nogil:
    """Marks a `Change`. Returns False if a Fetch must be woken but the list of wake-ups is full."""
    cdef Changes *changes = change.changes
    cdef bint fits = True
    mutex_lock(&changes.lock)
    if change.has_left:
        # The owner of the `Change` is waiting for the log's lock. The owner then ends the watch and frees the `Change`.
        # If this function marked the `Change` now, the freed `Change` would stay in the list.
        mutex_unlock(&changes.lock)
        return True
    if state == CHANGE_READY and changes.waiting != NULL:
        fits = wakes.count < WAKE_BATCH
        if fits:
            wakes.items[wakes.count] = changes.waiting
            wakes.count += 1
            changes.waiting = NULL
    if fits and change.state < state:
        if change.state == CHANGE_NONE:
            list_append(&changes.marked, &change.in_marked)
        changes.ready_count += state == CHANGE_READY
        store32(&change.state, state)
    mutex_unlock(&changes.lock)
    return fits


cdef bint readers_tell(Partition *p, const int64_t *reached, bint everybody, WakeList *wakes) noexcept nogil:
    cdef int news = news_of(p)
    cdef ListLink *link = p.readers.first
    cdef Change *change
    cdef int32_t state
    cdef bint more = False
    while link != NULL:
        change = of_readers(link)
        link = link.next
        state = CHANGE_NEWS if news & of_interest(change.kind) else CHANGE_NONE
        if everybody or reached[change.kind] >= change.at:
            state = CHANGE_READY
        if load32(&change.state) >= state:
            continue
        if change.kind == WAIT_FOLLOWER and load32(&change.state) == CHANGE_NONE:
            note_idle_fetches(p, change.changes)
        more = not mark(change, state, wakes) or more
    note_told(p)
    return more


cdef int32_t readers_dismiss(Partition *p) noexcept nogil:
    cdef int32_t counts = 0
    while p.readers.first != NULL:
        counts += stop_watching(p, of_readers(p.readers.first), True)
    return counts
