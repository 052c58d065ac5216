"""The I/O pool and the committer: all that waits for a device (design: "What may block").

Processors and loops submit jobs; a pool thread of the log directory runs them; the end of a job is mail. Jobs are part of
an object whose number is bounded elsewhere; `io_submit` fails only when the directory is closed.

The committer of a directory collects dirty files; a round syncs each once and then tells every one of them up to where it
is synced, so that waiting acknowledgements share one fdatasync (group commit). A write or sync that fails takes the
directory offline (`io_fail`) and is never retried.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.env cimport Disk
from kafkacore._fast.mail cimport Inbox, Mail

ctypedef struct Job:
    Mail done             # first: posted to `reply` after `run`, unless reply is NULL
    Job *next
    Inbox *reply
    void (*run)(Job *job) noexcept nogil  # on a pool thread
    int64_t submitted_ns

# A file with bytes that no sync has covered. Part of what owns the file (a partition's active segment).
ctypedef struct Dirty:
    Dirty *next
    int32_t queued        # atomic
    # On the committer's thread: sync, then publish. 0 or -errno.
    int (*commit)(Dirty *dirty) noexcept nogil

ctypedef struct LogDir:
    const char *path
    const Disk *disk
    int32_t offline       # atomic: errno that took it offline, 0 while it serves
    int32_t slow          # atomic: appends go to the pool while set
    int32_t queued_jobs   # atomic, for metrics
    void *pool            # threads, queue and lock: io.pyx's own
    int64_t syncs         # atomic counters for metrics
    int64_t sync_ns
    Mail *on_offline      # posted once, to `on_offline_inbox`
    Inbox *on_offline_inbox

cdef int io_open(LogDir *dir, const char *path, const Disk *disk, int threads) noexcept nogil  # 0 or -errno
cdef void io_close(LogDir *dir) noexcept nogil  # finishes what is queued, joins the threads
cdef int io_submit(LogDir *dir, Job *job) noexcept nogil  # 0, or -ESHUTDOWN
cdef void io_dirty(LogDir *dir, Dirty *dirty) noexcept nogil  # any thread; merges with a commit that is still queued
cdef void io_fail(LogDir *dir, int error) noexcept nogil
