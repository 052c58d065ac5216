"""A reader of many partitions (a fetch session) learns which of them have changed. So the cost of a Fetch in a fetch
session depends on the number of changed partitions, not on the size of the session.

A reader has a `Changes`, which is the list of its changed partitions. For each of its partitions, it also has a
`Change`, which watches the partition. The partition lists every `Change` that watches it (`Partition.readers`). When
a thread moves the log end, the high watermark, the last stable offset or the log start offset of the partition, or
changes the role or the ISR of the partition, it marks each `Change` in this list under `Log.lock`: it puts the
`Change` into `Changes.marked`. The reader takes each marked `Change` and looks at its partition. If the reader
cannot finish with the partition, it marks the `Change` again. A mark stays until the reader takes it. Further changes
of the partition set no second mark.

`Log.lock` guards a partition's list, and the fields `in_readers`, `kind` and `at` of each `Change` in that list.
`Changes.lock` guards all other fields of both structs, except those commented "atomic". A thread that holds
`Changes.lock` takes no other lock. A thread that holds `Log.lock` may take `Changes.lock`.

A `Change` holds a reference to the partition that it watches. The reference is released when the reader stops watching
the partition (`change_leave`), or when the partition closes and dismisses all its readers. The owner of a `Change`
calls `change_leave` before it frees the `Change`.
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
    LinkedList marked         # linked through `Change.in_marked`; the reader looks at the partitions in this order
    int32_t ready_count       # the number of items of `marked` that are CHANGE_READY
    Parked *waiting           # the waiting Fetch (park.pxd), with a reference; CHANGE_READY wakes it
    int32_t follower_id       # atomic, like the next two fields; -1 if a client reads
    int64_t follower_epoch    # the broker epoch in the follower's last Fetch; -1 if there was none
    int64_t asked_ms          # monotonic; the time of the last Fetch

ctypedef struct Change:
    ListLink in_marked        # must be the first field
    ListLink in_readers
    Changes *changes
    Log *log                  # the log of the watched partition, with a reference; NULL if no partition is watched
    int32_t state             # atomic: CHANGE_...
    int32_t kind              # the awaited offset: WAIT_FETCH, WAIT_FOLLOWER or WAIT_COMMITTED (partition.pxd)
    int64_t at                # `state` becomes CHANGE_READY when the awaited offset passes `at`
    bint has_left             # the reader has stopped watching for good

cdef int changes_init(Changes *changes) noexcept nogil  # returns 0 or errno
cdef void changes_close(Changes *changes) noexcept nogil

# --- for the reader, which must serialise its own calls, except calls of `changes_unwait` ---
cdef void change_init(Change *change, Changes *changes) noexcept nogil
cdef void change_mark(Change *change) noexcept nogil  # sets CHANGE_NEWS and puts `change` at the end of `marked`
# Call this when a Fetch begins. Notes which follower fetches, and when. Wakes the Fetch in `waiting`, because the new
# Fetch replaces it. Returns the number of items of `marked`.
cdef int32_t changes_begin(Changes *changes, int32_t follower_id, int64_t follower_epoch,
                           int64_t asked_ms) noexcept nogil
cdef int32_t changes_count(Changes *changes) noexcept nogil
cdef Change *changes_take(Changes *changes) noexcept nogil  # removes and returns the first item of `marked`, or NULL
# Puts an item that `changes_take` returned into `marked` again. With `first`, the item comes before all other items,
# otherwise after them. To put back several items with `first`, begin with the last one. `state` is CHANGE_NEWS or
# CHANGE_READY. CHANGE_READY wakes the Fetch in `waiting`.
cdef void changes_return(Change *change, bint first, int32_t state) noexcept nogil
# Sets `waiting` to `parked`, and wakes the Fetch that was there before. If an item is already CHANGE_READY, returns
# False and changes nothing.
cdef bint changes_wait(Changes *changes, Parked *parked) noexcept nogil
cdef void changes_unwait(Changes *changes, Parked *parked) noexcept nogil  # any thread may call it
# Stops watching the partition. Returns True if `left` was set to the partition, with a reference that the caller must
# release. With `for_good`, `change` is never marked again.
cdef bint change_leave(Change *change, bint for_good, Partition **left) noexcept nogil
cdef Partition *change_watches(Change *change) noexcept nogil  # without a reference, so only for comparisons

# --- for the partition; call these with `Log.lock` held ---
cdef void readers_join(Partition *p, const ReadAsked *asked, int64_t at) noexcept nogil
# Marks the `Change` of each reader that must learn of the partition's change. `reached` has an offset for each kind. A
# `Change` becomes CHANGE_READY if its `at` is not above the offset for its `kind`. Returns True if `wakes` is full and
# this must be called again.
cdef bint readers_tell(Partition *p, const int64_t *reached, bint everybody, WakeList *wakes) noexcept nogil
# Makes all readers stop watching the partition, after one more look at it. Returns the number of references to the
# partition that the caller must release, without the lock.
cdef int32_t readers_dismiss(Partition *p) noexcept nogil
