"""The I/O pool and the committer: all that waits for a device (design: "What may block").

Processors and loops submit jobs; a pool thread of the log directory runs them; the end of a job is mail. Jobs are part
of an object whose number is bounded elsewhere; `io_submit` fails only when the directory is closed.

The committer of a directory collects dirty files; a round syncs each once and then tells every one of them up to where
it is synced, so that waiting acknowledgements share one fdatasync (group commit). Producers that were answered together
come back together: for a quarter of what the last sync of their file took, counted from its end, the next one waits
for as many as there were. One that was alone never waits.

Commits of different files overlap: a journalling file system and the device's queue of flushes merge them. Commits of
one file never do: of two syncs under way on one descriptor the kernel tells only one that a write failed. A write or
sync that fails takes the directory offline (`io_fail`) and is never retried.

Threads are started when there is work for one more of them, up to the limit: an idle directory has none.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.world.environment cimport Disk, Environment
from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.base.sync cimport Condition

cdef enum:
    IO_MAX_THREADS = 64

ctypedef struct Job:
    Mail done             # first: posted to `reply` after `run`, unless reply is NULL (then `run` may free the job)
    Job *next
    Inbox *reply
    void (*run)(Job *job) noexcept nogil  # on a pool thread
    int64_t submitted_ns

# A file with bytes that no sync has covered. Part of what owns the file (a partition's log).
ctypedef struct Dirty:
    Dirty *next
    int32_t state         # atomic: idle, queued, running, running with another commit asked for
    int32_t asked         # atomic: how often a commit was asked for since the last one began
    int32_t awaited       # atomic: the committer waits until `asked` has come so far; 0: for nobody
    int32_t company       # the committer's own, like the next two: who is about to ask, as the last commit tells
    int64_t ended_ns      # the last commit
    int64_t took_ns
    Condition *arrival    # under the pool's lock: of the committer that waits for company
    void *crew            # whose queue it was last put into: a log may have moved to another directory since
    # On a committer thread: sync, then publish. 0 or -errno; what is below zero takes the directory offline.
    int (*commit)(Dirty *dirty) noexcept nogil
    void (*idle)(Dirty *dirty) noexcept nogil  # the count that was taken for `io_dirty` goes back

# Counted: whoever may still submit to it or read its path after its owner is gone holds a count.
ctypedef struct LogDir:
    int32_t refs          # atomic
    char *path
    const Disk *disk
    int32_t offline       # atomic: errno that took it offline, 0 while it serves
    int32_t queued_jobs   # atomic, for metrics
    void *pool            # threads, queue and lock: io.pyx's own
    int64_t syncs         # atomic counters for metrics
    int64_t sync_ns
    Mail *on_offline      # posted once, to `on_offline_inbox`
    Inbox *on_offline_inbox

# NULL: -errno in `error`
cdef LogDir *io_open(const char *path, const Disk *disk, int threads, int *error) noexcept nogil
cdef void io_hold(LogDir *dir) noexcept nogil
cdef void io_release(LogDir *dir) noexcept nogil
# Finishes what is queued and joins the threads; the owner calls it before it gives its count back. Not on a pool
# thread.
cdef void io_close(LogDir *dir) noexcept nogil
cdef int io_submit(LogDir *dir, Job *job) noexcept nogil  # 0, or -ESHUTDOWN
# Any thread. True: queued, and `dirty.idle` gives back the caller's count later. False: merged with a commit that has
# not begun (or the directory is closed): the caller keeps its count.
cdef bint io_dirty(LogDir *dir, Dirty *dirty) noexcept nogil
cdef void io_fail(LogDir *dir, int error) noexcept nogil


cdef class LogDirectory:
    """Python's handle of a LogDir; logs keep a reference for as long as they use it."""
    cdef LogDir *dir
    cdef Inbox inbox      # hears of the failure
    cdef Mail failure
    cdef readonly Environment environment
