"""A compacted segment takes the place of those that it was made from, while the log is in use (Kafka's
UnifiedLog.replaceSegments and LogLoader).

Its files are `.cleaned` while they are written. Once all of them are synced they become `.swap`: whatever starts on the
directory now goes on with the compacted segment, and before that with the former ones. The log's list follows, the
former files go, and the names lose the `.swap`, in an order in which a crash never leaves an index beside records that
it is not of, on disks that keep any of the changes of names between two syncs:

1. `.cleaned` -> `.swap`, sync of the directory
2. the list is exchanged: new readers see the compacted segment, by handles that are open; the others end with theirs
3. the former .logs go, those behind the new one's last batch each for good before the next; sync; then their indexes,
   and the transaction index that would have the name of the new one; sync
4. `.log.swap` -> `.log`; sync
5. the indexes follow; sync

No truncation, no deletion of segments and no stop of the log begins meanwhile; appends and rolls go on.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter
from kafkacore._fast.log.segment cimport Segment

ctypedef struct Swap:
    Log *log
    Segment **former      # `count` sealed segments that follow on each other
    int32_t count
    Segment *fresh        # has the first one's base offset; sealed and synced, its files open
    int64_t end_offset    # behind the last batch of `fresh`; its base offset where it has none
    int64_t truncations   # the log's when the former segments were read

# New, empty `.cleaned` files, open. 0 or -errno; may block.
cdef int swap_create(Segment *fresh) noexcept nogil
# What `fresh.aborted` holds goes to a file; then all of them to the disk, names too. 0 or -errno; may block.
cdef int swap_sync(Segment *fresh) noexcept nogil
cdef void swap_discard(Segment *fresh) noexcept nogil  # the files go; may block
# 0, and the log has a count of `fresh` of its own; LOG_BLOCKED with `blocked` queued, to be called again; -ECANCELED:
# the former segments are not the log's any more, and nothing has changed; -errno of a disk that is offline now. May
# block.
cdef int swap_in(Swap *swap, Waiter *blocked) noexcept nogil
