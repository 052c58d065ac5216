"""A compacted segment takes the place of the segments it was made from, while the log is in use (Kafka's
UnifiedLog.replaceSegments and LogLoader).

Its files are named `.cleaned` while they are written. Once all of them are synced they become `.swap`: a start before
that uses the former segments, a start after it the compacted one. Then the log's list changes, the former files go, and
the names lose the `.swap`. The order ensures that a crash never leaves an index beside records of another segment, even
on a disk that keeps any of the name changes between two syncs:

1. `.cleaned` -> `.swap`, sync of the directory
2. the list is exchanged: new readers see the compacted segment through open handles; earlier readers keep theirs
3. the former .log files go, with a sync before each one that lies behind the new segment's last batch; sync; then
   their indexes go, and the transaction index whose name the new one needs; sync
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
# Writes `fresh.aborted` to its file, then syncs all files and their names. 0 or -errno; may block.
cdef int swap_sync(Segment *fresh) noexcept nogil
cdef void swap_discard(Segment *fresh) noexcept nogil  # the files go; may block
# 0: the log holds its own count of `fresh`. LOG_BLOCKED: `blocked` is queued; call again when it is woken. -ECANCELED:
# the former segments no longer belong to the log, and nothing has changed. -errno: the disk is offline now. May block.
cdef int swap_in(Swap *swap, Waiter *blocked) noexcept nogil
