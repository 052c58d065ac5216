"""A compaction copies consecutive segments of a log, the former segments, into one compacted segment. This module
replaces the former segments by the compacted one while the log is in use (Kafka's UnifiedLog.replaceSegments and
LogLoader).

While the files of the compacted segment are written, their names end in `.cleaned`. Once all of them are synced, they
are renamed to `.swap`. If the node crashes before the renaming, it uses the former segments after the crash. If it
crashes later, it uses the compacted segment. Then the list of the log's segments changes, the former files are removed,
and the files of the compacted segment lose the suffix `.swap`. If a crash interrupts these steps, the node completes
them at its next start. In this order, no index is ever next to a .log file to which it does not belong, even if the
disk keeps an arbitrary subset of the name changes between two syncs:

1. `.cleaned` -> `.swap`; sync of the directory
2. the log's list of segments is replaced: new readers use the open files of the compacted segment, and earlier readers
   keep the open files of the former segments
3. the former .log files are removed, with a sync of the directory before the removal of each file that begins after the
   compacted segment's last batch; sync; the former indexes are removed, and so is the former transaction index whose
   name the new one needs; sync
4. `.log.swap` -> `.log`; sync
5. the same for the indexes; sync

During these steps, `Log.swapping` keeps truncations, deletions of segments and a stop of the log from beginning.
Appends and rolls continue.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter
from kafkacore._fast.log.segment cimport Segment

ctypedef struct Swap:
    Log *log
    Segment **former      # `count` consecutive sealed segments
    int32_t count
    # The compacted segment, with the base offset of the first former segment; sealed and synced, its files open.
    Segment *fresh
    int64_t end_offset    # the end of the last batch of `fresh`, or the base offset of `fresh` if it has no batch
    int64_t truncations   # the value of `log.truncations` when the former segments were read

# Creates and opens new, empty `.cleaned` files. Returns 0 or -errno; may block.
cdef int swap_create(Segment *fresh) noexcept nogil
# Writes `fresh.aborted` to .txnindex.cleaned, and then syncs all files and their directory entries. Returns 0 or
# -errno; may block.
cdef int swap_sync(Segment *fresh) noexcept nogil
cdef void swap_discard(Segment *fresh) noexcept nogil  # removes the files; may block
# Replaces the former segments. May block. Returns 0 on success, and then the log holds its own reference to `fresh`.
# LOG_BLOCKED (log.pxd): the waiter `blocked` is queued; call this again when it is woken. -ECANCELED: the former
# segments no longer belong to the log, and nothing has changed. Any other -errno: either a former segment could not be
# opened, and nothing has changed, or the log directory is offline now.
cdef int swap_in(Swap *swap, Waiter *blocked) noexcept nogil
