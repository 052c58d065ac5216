"""The I/O thread pool and the committer threads of a log directory. Only these threads wait for a device.

Processors (the threads that serve connections) and event loops submit jobs. A pool thread runs a job, and a mail (a
message to another thread, see mail.pxd) reports that the job has ended. Each `Job` is part of a larger object, and
other code bounds the number of these objects. So the queue needs no limit, and `io_submit` fails only if the directory
is closed.

A committer takes dirty files (files with unsynced bytes) from a queue. A commit syncs a file once and then publishes
the synced offset, so all requests that wait for an acknowledgement share one fdatasync (group commit). Producers whose
responses were sent together usually send their next requests together. So before the next commit of a file begins, the
committer waits until as many requests have asked for this commit as for the last one. The wait ends at the latest when
a quarter of the last commit's duration, or 1 ms, has passed since the end of that commit. The request of a single
producer never waits for others.

Commits of different files may overlap. A journalling file system merges them, and so does the device's queue of
flushes. Commits of one file never overlap: if two syncs ran on one file descriptor, the kernel would report a failed
write to only one of them. If a write or a sync fails, the directory goes offline (`io_fail`). A failed write or sync is
never retried.

The pool starts another thread when all threads are busy, up to a limit. A directory that was never used has no threads.
A simulated world runs nodes on one thread, in simulated time. There, tasks of the world's `Agenda` (agenda.pxd) take
the place of the threads. The tasks take jobs and dirty files from the same queues, and end when the queue is empty.
Simulated time passes while a task performs an operation of the simulated disk.
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
    Mail done  # must be the first field; posted to `reply` after `run`. If `reply` is NULL, `run` may free the job
    Job *next
    Inbox *reply
    void (*run)(Job *job) noexcept nogil  # runs on a pool thread
    # NULL, or a function that the pool calls instead of `run`. Its argument is a list of jobs, linked by `next`: this
    # job, and the jobs with the same `run_all` that were queued right after it. The list has at most JOBS_AT_ONCE jobs.
    # One sync can serve all jobs of the list. `reply` must be NULL.
    void (*run_all)(Job *first) noexcept nogil
    int64_t submitted_ns

# A file with bytes that no sync has covered yet. This struct is embedded in the owner of the file (a partition's log).
ctypedef struct Dirty:
    Dirty *next
    int32_t state         # atomic: IDLE, QUEUED, RUNNING, or AGAIN (running, and another commit is requested)
    int32_t asked         # atomic: commits requested since the last commit began
    int32_t awaited       # atomic: the committer waits until `asked` reaches this number; 0 if it does not wait
    # Only the committer uses these three fields: the number of requests that it expects for the next commit, the time
    # at which the last commit ended, and the duration of that commit.
    int32_t company
    int64_t ended_ns
    int64_t took_ns
    Condition *arrival    # set while a committer waits for more requests; the pool's lock guards this field
    void *crew  # the committers whose queue last got the file; the log may be in another directory now
    # Runs on a committer thread. Syncs the file, then publishes the synced offset. Returns 0 or -errno. An error takes
    # the directory offline.
    int (*commit)(Dirty *dirty) noexcept nogil
    void (*idle)(Dirty *dirty) noexcept nogil  # releases the reference that `io_dirty` took over

# A log directory: its path and its threads. A `LogDir` is reference-counted, and a `LogDirectory` owns it. Code that
# can outlive the `LogDirectory` holds its own reference.
ctypedef struct LogDir:
    int32_t refs          # atomic
    char *path
    const Disk *disk
    Agenda *agenda        # the agenda of the simulated world, with a reference; NULL in the real world
    int64_t owner
    void *keeper          # in a simulated world, a Python reference to the `Environment`, which owns `disk`
    int32_t offline       # atomic: the errno that took the directory offline; 0 while it is online
    int32_t queued_jobs   # atomic, for metrics
    void *pool            # threads, queue and lock; private to io.pyx
    int64_t syncs         # atomic counters for metrics
    int64_t sync_ns
    # Atomic: the inbox of the thread that writes checkpoints of recovery points; NULL if there is no such thread. A
    # truncation that waits for a checkpoint posts a mail to this inbox.
    Inbox *cuts
    void *first_cut       # list of the truncations whose mail was delivered; only the thread of `cuts` uses it
    Mail *on_offline      # posted once, to `on_offline_inbox`
    Inbox *on_offline_inbox

# Returns NULL and stores -errno in `error` if it fails.
cdef LogDir *io_open(const char *path, const Env *env, int threads, int *error) noexcept nogil
cdef void io_hold(LogDir *dir) noexcept nogil
cdef void io_release(LogDir *dir) noexcept nogil
# Finishes the queued jobs and joins the threads. The owner must call this function before it releases its reference.
# Never call it on a pool thread.
cdef void io_close(LogDir *dir) noexcept nogil
cdef int io_submit(LogDir *dir, Job *job) noexcept nogil  # returns 0 or -errno (-ESHUTDOWN if closed)
# Requests a commit of the file. Any thread may call this function. Returns True if it has queued the file. In that case
# `dirty.idle` later releases the caller's reference. Returns False if the directory is closed, or if a requested commit
# of the file has not begun yet. Such a commit serves both requests. If the result is False, the caller keeps its
# reference.
cdef bint io_dirty(LogDir *dir, Dirty *dirty) noexcept nogil
cdef void io_fail(LogDir *dir, int error) noexcept nogil
cdef void io_pause(int64_t ns) noexcept nogil  # sleeps in a job or a commit, by the clock of its world


cdef class LogDirectory:
    """Owns a `LogDir` for Python. Each log also holds a reference to the `LogDir`, so the `LogDir` can outlive this
    object."""
    cdef LogDir *dir
    cdef Inbox inbox      # receives `failure`
    cdef Mail failure
    cdef readonly Environment environment
