"""Implements the I/O thread pool and the committers of a log directory. io.pxd has the contract."""

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport ENOMEM, ESHUTDOWN
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport strdup

from kafkacore._fast.base.atomics cimport (
    add32, add64, cas32, fence, load32, load64, load_ptr, store32, store_ptr, swap32,
)
from kafkacore._fast.world.agenda cimport agenda_hold, agenda_pause, agenda_release, agenda_run_for, agenda_start
from kafkacore._fast.world.environment cimport Env, Environment, disk_that_lasts
from kafkacore._fast.wait.mail cimport Mail, inbox_close, inbox_init_in, inbox_may_sleep, inbox_post
from kafkacore._fast.base.thread_priority cimport URGENT_SLICE_NS, ask_slice, lower_priority
from kafkacore._fast.base.lock_order cimport RANK_CREW
from kafkacore._fast.base.sync cimport (
    Condition, Mutex, Thread, condition_broadcast, condition_destroy, condition_init, condition_signal,
    condition_wait, condition_wait_ns, mutex_destroy, mutex_init, mutex_lock, mutex_unlock, thread_join,
    thread_start,
)

from os import strerror

cdef extern from * nogil:
    """
    #include <time.h>
    static int64_t kc_io_now_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
    }
    """
    int64_t real_now_ns "kc_io_now_ns"() noexcept

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned microseconds) noexcept

cdef enum:
    COMMITTERS = 16       # at most this many syncs run at once; the device's queue merges their flushes
    COMPANY_SHARE = 4     # a commit waits for more requests for at most 1/COMPANY_SHARE of the last commit's duration
    COMPANY_NS = 1000000  # the longest wait for more requests

cdef enum:
    IDLE = 0
    QUEUED = 1
    RUNNING = 2
    AGAIN = 3

# The threads that serve one queue. `lock` guards all fields.
ctypedef struct Crew:
    Mutex lock
    Condition work
    Thread threads[IO_MAX_THREADS]
    int started
    int limit
    int waiting           # threads without a queue entry (a job or a dirty file), including tasks that have not run yet
    int queued            # entries that no thread has taken yet
    bint stopping
    void *oldest
    void *newest
    LogDir *dir
    int nice              # the nice value of its threads
    bint urgent

ctypedef struct Pool:
    Crew jobs
    Crew commits

cdef int32_t live_directories = 0  # atomic; tests check that it returns to zero


cdef int64_t now_ns(const LogDir *dir) noexcept nogil:
    return real_now_ns() if dir.agenda == NULL else dir.agenda.now_ns


cdef int crew_init(Crew *crew, LogDir *dir, int limit) noexcept nogil:
    cdef int error = mutex_init(&crew.lock, RANK_CREW)
    if error == 0:
        error = condition_init(&crew.work)
    crew.limit = limit
    crew.dir = dir
    return -error


cdef int crew_call(Crew *crew, void *(*body)(void *) noexcept nogil) noexcept nogil:
    """Wakes a waiting thread, or starts a new thread if there is already an entry in the queue for each waiting thread.
    Call this with the lock held, before an entry is put into the queue. Returns an errno only if the crew has no thread
    at all.
    """
    cdef int error = 0
    if crew.queued >= crew.waiting and crew.started < crew.limit:
        if crew.dir.agenda != NULL:
            error = start_task(crew, body)
        else:
            error = thread_start(&crew.threads[crew.started], b"kafkacore-io", body, crew)
        if error == 0:
            crew.started += 1
            return 0
    condition_signal(&crew.work)
    return 0 if crew.started > 0 else error


cdef int start_task(Crew *crew, void *(*body)(void *) noexcept nogil) noexcept nogil:
    """Starts a task, which takes the place of a thread in a simulated world. Returns 0 or an errno."""
    cdef int error = -agenda_start(crew.dir.agenda, crew.dir.owner, work_task if body == work else commit_task, crew)
    if error == 0:
        crew.waiting += 1
    return error


cdef void crew_enter(Crew *crew) noexcept nogil:
    """Sets the priority of the calling thread. Each thread of a crew calls this when it starts."""
    lower_priority(crew.nice)
    if crew.urgent:
        ask_slice(URGENT_SLICE_NS)


cdef void crew_stop(Crew *crew) noexcept nogil:
    cdef int i
    mutex_lock(&crew.lock)
    crew.stopping = True
    condition_broadcast(&crew.work)
    mutex_unlock(&crew.lock)
    if crew.dir.agenda != NULL:
        while crew.started > 0 and agenda_run_for(crew.dir.agenda, crew.dir.owner):
            continue
        return
    for i in range(crew.started):
        thread_join(crew.threads[i], NULL)
    crew.started = 0


cdef void crew_destroy(Crew *crew) noexcept nogil:
    condition_destroy(&crew.work)
    mutex_destroy(&crew.lock)


# --- jobs ---

cdef int take_jobs(Crew *crew, Job **first) noexcept nogil:
    """Takes the oldest job from the queue, and the jobs right after it that can run together with it. Returns the
    number of jobs. Call this with the lock held."""
    cdef Job *last = <Job *> crew.oldest
    cdef int count = 1
    first[0] = last
    while (last.run_all != NULL and last.next != NULL and last.next.run_all == last.run_all
            and count < JOBS_AT_ONCE):
        last = last.next
        count += 1
    crew.oldest = last.next
    if last.next == NULL:
        crew.newest = NULL
    last.next = NULL
    crew.queued -= count
    return count


cdef void *work(void *argument) noexcept nogil:
    cdef Crew *crew = <Crew *> argument
    crew_enter(crew)
    mutex_lock(&crew.lock)
    while True:
        while crew.oldest == NULL and not crew.stopping:
            crew.waiting += 1
            condition_wait(&crew.work, &crew.lock)
            crew.waiting -= 1
        if crew.oldest == NULL:
            break
        run_oldest_jobs(crew)
    mutex_unlock(&crew.lock)
    return NULL


cdef void run_oldest_jobs(Crew *crew) noexcept nogil:
    """Runs the oldest jobs. Call this with the lock held. The function releases the lock while the jobs run."""
    cdef Job *job
    cdef Inbox *reply
    cdef int count = take_jobs(crew, &job)
    mutex_unlock(&crew.lock)
    add32(&crew.dir.queued_jobs, -count)
    reply = job.reply
    if job.run_all != NULL:
        job.run_all(job)
    else:
        job.run(job)
    if reply != NULL:
        inbox_post(reply, &job.done)
    mutex_lock(&crew.lock)


cdef void work_task(void *argument) noexcept nogil:
    cdef Crew *crew = <Crew *> argument
    mutex_lock(&crew.lock)
    crew.waiting -= 1
    while crew.oldest != NULL:
        run_oldest_jobs(crew)
    end_task(crew)


cdef void end_task(Crew *crew) noexcept nogil:
    """Ends a task. The task calls this with the lock held. The function releases the lock."""
    crew.started -= 1
    mutex_unlock(&crew.lock)


cdef int io_submit(LogDir *dir, Job *job) noexcept nogil:
    cdef Crew *crew
    cdef int error = ESHUTDOWN
    crew = &(<Pool *> dir.pool).jobs
    job.next = NULL
    job.submitted_ns = now_ns(dir)
    mutex_lock(&crew.lock)
    if not crew.stopping:
        error = crew_call(crew, work)
        if error == 0:
            if crew.newest != NULL:
                (<Job *> crew.newest).next = job
            else:
                crew.oldest = job
            crew.newest = job
            crew.queued += 1
            add32(&dir.queued_jobs, 1)
    mutex_unlock(&crew.lock)
    return -error


# --- commits ---

cdef void push_dirty(Crew *crew, Dirty *dirty) noexcept nogil:
    dirty.next = NULL
    store_ptr(&dirty.crew, crew)
    if crew.newest != NULL:
        (<Dirty *> crew.newest).next = dirty
    else:
        crew.oldest = dirty
    crew.newest = dirty
    crew.queued += 1


cdef int64_t company_wait_ns(int32_t asked, int32_t company, int64_t since_ns, int64_t took_ns) noexcept nogil:
    """Returns how long a commit with `asked` requests may wait for more requests. The last commit had `company`
    requests, ended `since_ns` ago and took `took_ns`. The producers of the last commit usually send their next request
    at once, so a short wait is enough for them. A longer wait for slower producers would gain nothing."""
    if asked >= company:
        return 0
    return max(min(took_ns // COMPANY_SHARE, COMPANY_NS) - since_ns, 0)


cdef void await_company(Crew *crew, Dirty *dirty, Condition *arrival) noexcept nogil:
    """Waits for more requests before a commit. Call this with the lock held. The function releases the lock while it
    waits."""
    cdef int64_t wait_ns
    dirty.arrival = arrival
    store32(&dirty.awaited, dirty.company)
    while not crew.stopping:
        # The committer stores `awaited` before it reads `asked`. A requester stores `asked` before it reads `awaited`.
        fence()
        wait_ns = company_wait_ns(load32(&dirty.asked), dirty.company, real_now_ns() - dirty.ended_ns, dirty.took_ns)
        if wait_ns == 0:
            break
        condition_wait_ns(arrival, &crew.lock, wait_ns)
    store32(&dirty.awaited, 0)
    dirty.arrival = NULL


cdef void run_commit(LogDir *dir, Dirty *dirty) noexcept nogil:
    cdef int32_t asked
    cdef int64_t began_ns = now_ns(dir)
    cdef int result
    asked = swap32(&dirty.asked, 0)
    store32(&dirty.state, RUNNING)
    result = dirty.commit(dirty)
    dirty.ended_ns = now_ns(dir)
    dirty.took_ns = dirty.ended_ns - began_ns
    dirty.company = asked + load32(&dirty.asked)
    add64(&dir.sync_ns, dirty.took_ns)
    add64(&dir.syncs, 1)
    if result < 0:
        io_fail(dir, -result)


cdef void *commit(void *argument) noexcept nogil:
    cdef Crew *crew = <Crew *> argument
    cdef Condition arrival
    condition_init(&arrival)
    crew_enter(crew)
    mutex_lock(&crew.lock)
    while True:
        while crew.oldest == NULL and not crew.stopping:
            crew.waiting += 1
            condition_wait(&crew.work, &crew.lock)
            crew.waiting -= 1
        if crew.oldest == NULL:
            break
        commit_oldest(crew, &arrival)
    mutex_unlock(&crew.lock)
    condition_destroy(&arrival)
    return NULL


cdef void commit_oldest(Crew *crew, Condition *arrival) noexcept nogil:
    """Commits the oldest dirty file. Call this with the lock held. The function releases the lock during the commit.
    Without `arrival`, the commit does not wait for more requests."""
    cdef Dirty *dirty = <Dirty *> crew.oldest
    crew.oldest = dirty.next
    if dirty.next == NULL:
        crew.newest = NULL
    crew.queued -= 1
    if arrival != NULL:
        await_company(crew, dirty, arrival)
    mutex_unlock(&crew.lock)
    run_commit(crew.dir, dirty)
    if cas32(&dirty.state, RUNNING, IDLE):
        dirty.idle(dirty)
        mutex_lock(&crew.lock)
    else:  # bytes were written during this sync: queue the file again, and keep its reference
        mutex_lock(&crew.lock)
        store32(&dirty.state, QUEUED)
        push_dirty(crew, dirty)


cdef void commit_task(void *argument) noexcept nogil:
    cdef Crew *crew = <Crew *> argument
    mutex_lock(&crew.lock)
    crew.waiting -= 1
    while crew.oldest != NULL:
        commit_oldest(crew, NULL)
    end_task(crew)


cdef bint ask(Dirty *dirty) noexcept nogil:
    """Merges the request with a commit that has not begun. Returns False if there is no such commit."""
    cdef int32_t state
    while True:
        state = load32(&dirty.state)
        if state == QUEUED or state == AGAIN:
            return True
        if state == RUNNING:
            if cas32(&dirty.state, RUNNING, AGAIN):
                return True
        elif cas32(&dirty.state, IDLE, QUEUED):
            return False


cdef void arrive(Dirty *dirty) noexcept nogil:
    """Counts a request. If it is the last request that a committer waits for, wakes the committer."""
    cdef int32_t asked = add32(&dirty.asked, 1)
    cdef Crew *crew
    fence()
    if asked != load32(&dirty.awaited):
        return
    crew = <Crew *> load_ptr(&dirty.crew)
    mutex_lock(&crew.lock)
    if dirty.arrival != NULL:
        condition_signal(dirty.arrival)
    mutex_unlock(&crew.lock)


cdef bint io_dirty(LogDir *dir, Dirty *dirty) noexcept nogil:
    cdef Crew *crew = &(<Pool *> dir.pool).commits
    cdef bint queued = False
    if ask(dirty):
        arrive(dirty)
        return False
    add32(&dirty.asked, 1)
    mutex_lock(&crew.lock)
    if not crew.stopping and crew_call(crew, commit) == 0:
        push_dirty(crew, dirty)
        queued = True
    mutex_unlock(&crew.lock)
    if not queued:
        store32(&dirty.state, IDLE)
    return queued


# --- life ---

cdef LogDir *io_open(const char *path, const Env *env, int threads, int *error) noexcept nogil:
    cdef LogDir *dir = <LogDir *> calloc(1, sizeof(LogDir))
    cdef Pool *pool = <Pool *> calloc(1, sizeof(Pool))
    error[0] = -ENOMEM
    if dir != NULL and pool != NULL:
        dir.path = strdup(path)
    if dir == NULL or dir.path == NULL:
        free(dir)
        free(pool)
        return NULL
    dir.refs = 1
    dir.disk = disk_that_lasts(&env.disk)
    dir.agenda = env.agenda
    dir.owner = env.owner
    error[0] = crew_init(&pool.jobs, dir, threads if 1 <= threads <= IO_MAX_THREADS else IO_MAX_THREADS)
    if error[0] == 0:
        error[0] = crew_init(&pool.commits, dir, COMMITTERS)
    if error[0] != 0:
        free(dir.path)
        free(dir)
        free(pool)
        return NULL
    dir.pool = pool
    agenda_hold(dir.agenda)
    add32(&live_directories, 1)
    return dir


cdef void io_hold(LogDir *dir) noexcept nogil:
    add32(&dir.refs, 1)


cdef void io_release(LogDir *dir) noexcept nogil:
    cdef Pool *pool
    if dir == NULL or add32(&dir.refs, -1) != 0:
        return
    pool = <Pool *> dir.pool
    crew_destroy(&pool.jobs)
    crew_destroy(&pool.commits)
    free(pool)
    agenda_release(dir.agenda)
    if dir.keeper != NULL:
        let_go(dir.keeper)
    free(dir.path)
    free(dir)
    add32(&live_directories, -1)


cdef void let_go(void *keeper) noexcept nogil:
    """Releases the reference to the Environment. A `LogDir` needs its own reference, because a log of a stopped node
    may still use the environment's disk after every `LogDirectory` of the node has been freed."""
    with gil:
        Py_DECREF(<object> keeper)


cdef void io_close(LogDir *dir) noexcept nogil:
    cdef Pool *pool = <Pool *> dir.pool
    # Jobs stop first, because jobs may make files dirty. Commits never submit jobs.
    crew_stop(&pool.jobs)
    crew_stop(&pool.commits)


cdef void io_fail(LogDir *dir, int error) noexcept nogil:
    if cas32(&dir.offline, 0, error if error > 0 else 5) and dir.on_offline != NULL:
        inbox_post(dir.on_offline_inbox, dir.on_offline)


cdef void io_pause(int64_t ns) noexcept nogil:
    if not agenda_pause(ns):
        usleep(<unsigned> (ns // 1000))


cdef void hear_of_failure(Mail *mail) noexcept nogil:
    """Does nothing. The posted mail has already made the eventfd readable, and `offline_errno` has the reason."""


@cython.no_gc  # a `LogDirectory` is part of no reference cycle, and its environment must outlive the threads
cdef class LogDirectory:
    """An entry of `log.dirs`: its path, the threads that wait for its device, and whether it is online.

    `threads` is the largest number of threads in the pool (num.recovery.threads.per.data.dir or more). `nice` lowers
    the priority of its jobs (codec work, slow reads), but not of commits. With `urgent`, its threads run as soon as
    they are woken. Raises OSError.
    """

    def __cinit__(self, Environment environment not None, path, int threads=8, *, int nice=0,
                  bint urgent=False):
        cdef bytes encoded = path.encode() if isinstance(path, str) else bytes(path)
        cdef int error = 0
        if not 1 <= threads <= IO_MAX_THREADS:
            raise ValueError(f"a log directory has 1 to {IO_MAX_THREADS} threads, not {threads}")
        self.environment = environment
        self.inbox.eventfd = -1
        self.dir = io_open(encoded, &environment.env, threads, &error)
        if self.dir == NULL:
            raise OSError(-error, strerror(-error), path)
        if self.dir.agenda != NULL:
            Py_INCREF(environment)
            self.dir.keeper = <void *> environment
        error = inbox_init_in(&self.inbox, environment.env.agenda)
        if error < 0:
            raise OSError(-error, strerror(-error), path)
        (<Pool *> self.dir.pool).jobs.nice = nice
        (<Pool *> self.dir.pool).jobs.urgent = urgent
        (<Pool *> self.dir.pool).commits.urgent = urgent
        inbox_may_sleep(&self.inbox)
        self.failure.deliver = hear_of_failure
        self.dir.on_offline_inbox = &self.inbox
        self.dir.on_offline = &self.failure

    def __dealloc__(self):
        if self.dir != NULL:
            with nogil:
                io_close(self.dir)
                self.dir.on_offline = NULL
                io_release(self.dir)
        if self.inbox.eventfd >= 0:
            inbox_close(&self.inbox)

    def close(self):
        """Finishes the queued jobs and ends the threads. Later jobs are refused. A second call has no effect."""
        with nogil:
            io_close(self.dir)

    @property
    def path(self):
        return self.dir.path.decode()

    @property
    def offline_errno(self):
        """The errno of the error that took the directory offline; 0 while it is online."""
        return load32(&self.dir.offline)

    def fileno(self):
        """Returns a file descriptor that becomes readable when the directory goes offline."""
        return self.inbox.eventfd

    @property
    def queued_jobs(self):
        return load32(&self.dir.queued_jobs)

    @property
    def syncs(self):
        """The number of commits, and the total time that they took, in ns."""
        return load64(&self.dir.syncs), load64(&self.dir.sync_ns)

    def fail(self, int error):
        """Takes the directory offline, as an I/O error does."""
        io_fail(self.dir, error)


def company_wait(int asked, int company, int64_t since_ns, int64_t took_ns):
    """Returns how long, in ns, a commit waits for more requests before it begins."""
    return company_wait_ns(asked, company, since_ns, took_ns)


def live_count():
    """Returns the number of open log directories in this process."""
    return load32(&live_directories)
