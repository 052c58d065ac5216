"""A reader of many partitions (a fetch session) learns which of them have changed. So the cost of a Fetch in a fetch
session depends on the number of changed partitions, not on the size of the session.

A reader has one `Changes`, and one `Change` for each of its partitions. The partition lists the Changes that watch it
(`Partition.readers`). When a thread moves the partition's log end, high watermark, last stable offset or log start
offset, or changes its role or ISR, it marks those Changes under `Log.lock`. The reader takes the marked Changes and
looks at the partition of each. It marks a Change again if it could not finish with that partition. A mark stays until
the reader takes it, and further changes of the partition add no second mark.

`Log.lock` guards a partition's list, and the fields `in_readers`, `kind` and `at` of the Changes in that list.
`Changes.lock` guards all other fields of both structs, except those commented "atomic". A thread that holds it takes no
other lock. A thread that holds `Log.lock` may take it.

While a Change watches a partition, it holds a reference to the partition. The reference is released when the Change
leaves, or when the partition closes and dismisses all its readers. The owner of a Change calls `change_leave` before it
frees the Change.
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
    # There is something to read, or the role has changed: a waiting Fetch must look at the partition at once.
    CHANGE_READY = 2

ctypedef struct Changes:
    Mutex lock
    LinkedList marked         # Change.in_marked, in the order in which the reader looks at them
    int32_t ready_count       # how many of `marked` are CHANGE_READY
    Parked *waiting           # the Fetch to wake when a Change becomes CHANGE_READY; holds a reference
    int32_t follower_id       # atomic, like the next two fields; -1 if a client reads
    int64_t follower_epoch    # the broker epoch that the follower's last Fetch named; -1 if none
    int64_t asked_ms          # monotonic; the time of the last Fetch

ctypedef struct Change:
    ListLink in_marked        # must be the first field
    ListLink in_readers
    Changes *changes
    Log *log                  # the log of the watched partition, with a reference; NULL if it watches none
    int32_t state             # atomic: CHANGE_...
    int32_t kind              # WAIT_FETCH, WAIT_FOLLOWER or WAIT_COMMITTED
    int64_t at                # the Change becomes CHANGE_READY when the offset of this kind passes `at`
    bint has_left             # the Change will never be marked again

cdef int changes_init(Changes *changes) noexcept nogil  # returns 0 or errno
cdef void changes_close(Changes *changes) noexcept nogil

# --- for the reader, which must serialise its own calls, except calls of `changes_unwait` ---
cdef void change_init(Change *change, Changes *changes) noexcept nogil
cdef void change_mark(Change *change) noexcept nogil  # marks it CHANGE_NEWS and puts it at the end of `marked`
# Call this when a Fetch begins. Records which follower fetches and when. Wakes the Fetch that waits here, because the
# new Fetch replaces it. Returns the number of marked Changes.
cdef int32_t changes_begin(Changes *changes, int32_t follower_id, int64_t follower_epoch,
                           int64_t asked_ms) noexcept nogil
cdef int32_t changes_count(Changes *changes) noexcept nogil
cdef Change *changes_take(Changes *changes) noexcept nogil  # returns the first marked Change, or NULL if there is none
# Puts a taken Change back into `marked`. With `first`, the Change comes before all others, else after them. To put back
# several Changes with `first`, begin with the last one. `state` is CHANGE_NEWS or CHANGE_READY. CHANGE_READY wakes the
# Fetch that waits now.
cdef void changes_return(Change *change, bint first, int32_t state) noexcept nogil
# Queues `parked` for the next CHANGE_READY, and wakes the Fetch that waited here before. Returns False, and queues
# nothing, if a Change is already ready.
cdef bint changes_wait(Changes *changes, Parked *parked) noexcept nogil
cdef void changes_unwait(Changes *changes, Parked *parked) noexcept nogil  # any thread may call this
# Stops watching the partition. Returns True if `left` was set to the partition, with a reference that the caller must
# release. With `for_good`, the Change is never marked again.
cdef bint change_leave(Change *change, bint for_good, Partition **left) noexcept nogil
cdef Partition *change_watches(Change *change) noexcept nogil  # without a reference, so only for comparisons

# --- for the partition; call these with `Log.lock` held ---
cdef void readers_join(Partition *p, const ReadAsked *asked, int64_t at) noexcept nogil
# Marks the Changes of all readers that must learn of the change. For each kind, `reached` has an offset: a Change
# becomes ready if its `at` is not above this offset. Returns True if this must be called again for more waiters.
cdef bint readers_tell(Partition *p, const int64_t *reached, bint everybody, WakeList *wakes) noexcept nogil
# Makes all readers stop watching the partition and check it again. Returns how many references to the partition the
# caller must release, without the lock.
cdef int32_t readers_dismiss(Partition *p) noexcept nogil
