"""Readers of many partitions hear which of them changed, so that a Fetch of a session costs what changed.

A reader has one `Changes`, and one `Change` for each of its partitions. The partition lists the Changes that watch it
(`Partition.readers`). The thread that moves its end, high watermark, last stable offset or log start, or changes its
role or its ISR, marks them under `Log.lock`. The reader takes what is marked, looks at each partition, and keeps the
Change of one that it has not settled. A mark stays until it is taken, and a partition is marked once
however often it changes.

`Log.lock` guards a partition's list, and `in_readers`, `kind` and `at` of the Changes in it. `Changes.lock` is a leaf,
which partitions take under `Log.lock`. It guards everything else that is not marked atomic. A Change that watches a
partition has a count of it until it leaves, or until the partition dismisses all its readers: when it closes. The owner
of a Change calls `change_leave` before it frees the Change.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.links cimport LinkedList, ListLink
from kafkacore._fast.base.sync cimport Mutex
from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.partition cimport Partition, ReadAsked
from kafkacore._fast.wait.park cimport Parked, WakeList

cdef enum:
    CHANGE_NONE = 0           # not marked
    CHANGE_NEWS = 1           # the next answer may have to name the partition
    CHANGE_READY = 2          # there is something to read, or the role is another: a waiting Fetch looks at once

ctypedef struct Changes:
    Mutex lock
    LinkedList marked         # Change.in_marked, in the order in which they are to be looked at
    int32_t ready_count       # of them CHANGE_READY
    Parked *waiting           # counted: the Fetch that is woken when one becomes CHANGE_READY
    int32_t follower_id       # atomic, like the next two; -1: a client
    int64_t follower_epoch    # the broker epoch that its last Fetch named; -1: none
    int64_t asked_ms          # monotonic: its last Fetch

ctypedef struct Change:
    ListLink in_marked        # first
    ListLink in_readers
    Changes *changes
    Log *log                  # of the partition that it watches, counted; NULL: it watches none
    int32_t state             # atomic: CHANGE_...
    int32_t kind              # WAIT_FETCH, WAIT_FOLLOWER or WAIT_COMMITTED
    int64_t at                # CHANGE_READY when that offset is passed
    bint has_left             # for good

cdef int changes_init(Changes *changes) noexcept nogil  # 0 or errno
cdef void changes_close(Changes *changes) noexcept nogil

# --- the reader; it serialises its own calls, but for `changes_unwait` ---
cdef void change_init(Change *change, Changes *changes) noexcept nogil
cdef void change_mark(Change *change) noexcept nogil  # CHANGE_NEWS; goes behind those that are marked already
# A Fetch begins: notes who asks and when, and wakes the Fetch that waits here: it is overtaken. Returns how many
# Changes are marked.
cdef int32_t changes_begin(Changes *changes, int32_t follower_id, int64_t follower_epoch,
                           int64_t asked_ms) noexcept nogil
cdef int32_t changes_count(Changes *changes) noexcept nogil
cdef Change *changes_take(Changes *changes) noexcept nogil  # the first; NULL: none is marked
# Marks one that was taken again: before all others (call it for the last one first), or behind them. `state`:
# CHANGE_NEWS, or CHANGE_READY, which wakes the Fetch that waits now.
cdef void changes_return(Change *change, bint first, int32_t state) noexcept nogil
# Queues `parked` for the next CHANGE_READY, and wakes the Fetch that waited here before. False: there is one already.
cdef bint changes_wait(Changes *changes, Parked *parked) noexcept nogil
cdef void changes_unwait(Changes *changes, Parked *parked) noexcept nogil  # any thread
# Stops watching; True: with the count of `left`, for the caller to release. With `for_good` it is never marked again.
cdef bint change_leave(Change *change, bint for_good, Partition **left) noexcept nogil
cdef Partition *change_watches(Change *change) noexcept nogil  # not counted: to compare

# --- the partition; under `Log.lock` ---
cdef void readers_join(Partition *p, const ReadAsked *asked, int64_t at) noexcept nogil
# Marks who has news. `reached`: by kind, what a READY partition has passed. True: call again for more wakes.
cdef bint readers_tell(Partition *p, const int64_t *reached, bint everybody, WakeList *wakes) noexcept nogil
# All readers stop watching, and look again. Returns the counts for the caller to release without the lock.
cdef int32_t readers_dismiss(Partition *p) noexcept nogil
