"""The I/O pool and the committer of a log directory: everything that waits for a device.

Processors and loops submit jobs, a pool thread runs them, and mail reports their end. Each Job is part of an object
whose number is bounded elsewhere; `io_submit` fails only when the directory is closed.

The committer collects dirty files. A round syncs each file once and then publishes its synced offset, so that waiting
acknowledgements share one fdatasync (group commit). Producers that were answered together send again together.
Therefore the next commit of their file waits until as many requests as last time have asked for it, but at most for a
quarter of the last sync's duration, counted from its end. The request of a single producer never waits for others.

Commits of different files overlap: a journalling file system and the device's queue of flushes merge them. Commits of
one file never overlap: when two syncs run on one descriptor, the kernel reports a failed write to only one of them. A
write or sync that fails takes the directory offline (`io_fail`) and is never retried.

The pool starts a thread when there is work for one more, up to the limit. An idle directory has no threads. In a
simulated world its threads are tasks of the world's agenda: they take jobs and dirty files from the same queues, let
time pass where the simulated disk does, and end when their queue is empty.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.world.agenda cimport Agenda
from kafkacore._fast.world.environment cimport Disk, Env, Environment
from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.base.sync cimport Condition

cdef enum:
    IO_MAX_THREADS = 64
    JOBS_AT_ONCE = 64

ctypedef struct Job:
    Mail done             # first: posted to `reply` after `run`; with a NULL reply `run` may free the job
    Job *next
    Inbox *reply
    void (*run)(Job *job) noexcept nogil  # on a pool thread
    # NULL, or in place of `run`: the job and those queued right behind it with the same `run_all`, linked by `next`, at
    # most JOBS_AT_ONCE. They share what one sync can do for all. `reply` is NULL.
    void (*run_all)(Job *first) noexcept nogil
    int64_t submitted_ns

# A file with bytes that no sync has covered. Part of the file's owner (a partition's log).
ctypedef struct Dirty:
    Dirty *next
    int32_t state         # atomic: idle, queued, running, or running with another commit requested
    int32_t asked         # atomic: commits requested since the last one began
    int32_t awaited       # atomic: the committer waits until `asked` reaches it; 0: does not wait
    int32_t company       # only the committer's, like the next two: requests that the last commit lets it expect
    int64_t ended_ns      # end of the last commit
    int64_t took_ns
    Condition *arrival    # the committer that waits for more requests; the pool's lock guards it
    void *crew            # the pool whose queue it was last put into; the log may have moved to another directory since
    # On a committer thread: syncs, then publishes. 0 or -errno; an error takes the directory offline.
    int (*commit)(Dirty *dirty) noexcept nogil
    void (*idle)(Dirty *dirty) noexcept nogil  # releases the reference that `io_dirty` took over

# Counted: every user that may submit to it or read its path after its owner is gone holds a reference.
ctypedef struct LogDir:
    int32_t refs          # atomic
    char *path
    const Disk *disk
    Agenda *agenda        # of its simulated world, counted; NULL: the real world
    int64_t owner
    void *keeper          # in a simulated world the Environment, which owns `disk` and the clock; a Python reference
    int32_t offline       # atomic: errno that took it offline, 0 while it serves
    int32_t queued_jobs   # atomic, for metrics
    void *pool            # threads, queue and lock; private to io.pyx
    int64_t syncs         # atomic counters for metrics
    int64_t sync_ns
    Inbox *cuts           # atomic: where truncations wait for a checkpoint of recovery points; NULL: nobody writes one
    void *first_cut       # delivered; of the thread that delivers `cuts`
    Mail *on_offline      # posted once, to `on_offline_inbox`
    Inbox *on_offline_inbox

# NULL with -errno in `error`
cdef LogDir *io_open(const char *path, const Env *env, int threads, int *error) noexcept nogil
cdef void io_hold(LogDir *dir) noexcept nogil
cdef void io_release(LogDir *dir) noexcept nogil
# Finishes queued jobs and joins the threads. The owner calls it before it releases its reference; never on a pool
# thread.
cdef void io_close(LogDir *dir) noexcept nogil
cdef int io_submit(LogDir *dir, Job *job) noexcept nogil  # 0, or -ESHUTDOWN
# Any thread. True: queued; `dirty.idle` later releases the caller's reference. False: merged with a commit that has not
# begun, or the directory is closed; the caller keeps its reference.
cdef bint io_dirty(LogDir *dir, Dirty *dirty) noexcept nogil
cdef void io_fail(LogDir *dir, int error) noexcept nogil
cdef void io_pause(int64_t ns) noexcept nogil  # for a job or a commit; waits by the clock of its world


cdef class LogDirectory:
    """Python's handle of a LogDir; logs keep a reference for as long as they use it."""
    cdef LogDir *dir
    cdef Inbox inbox      # receives `failure`
    cdef Mail failure
    cdef readonly Environment environment
