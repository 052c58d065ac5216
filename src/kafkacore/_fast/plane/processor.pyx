"""Implements processors: the loop that runs a reactor, and how this loop waits for events."""

cimport cython

from libc.errno cimport errno
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from kafkacore._fast.base.assertions cimport owner_drop, owner_take
from kafkacore._fast.base.atomics cimport add64, cas32, cpu_relax, fence, load32, load64, load_ptr, store32, store64
from kafkacore._fast.plane.connection cimport (
    API_KEYS, Connection, Link, Reactor, connection_event, reactor_bury, reactor_close_all, reactor_go_on,
    reactor_swept,
)
from kafkacore._fast.base.epoll cimport (
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLLIN, epoll_create1, epoll_ctl, epoll_event, epoll_wait, monotonic_ns,
    thread_cpu_ns,
)
from kafkacore._fast.plane.driven cimport Driven, driven_go_on, driven_of, driven_shut_all
from kafkacore._fast.plane.reactor cimport reactor_close, reactor_init
from kafkacore._fast.wait.mail cimport inbox_awake, inbox_deliver, inbox_may_sleep, inbox_post, ring_bell, silence_bell
from kafkacore._fast.wait.memory cimport frames_trim
from kafkacore._fast.plane.plane cimport STAGE_BUCKETS, STAGES, ApiMetrics, NativePlane, Plane, StageHistogram
from kafkacore._fast.base.thread_priority cimport URGENT_SLICE_NS, ask_slice, lower_priority
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock, thread_join, thread_start
from kafkacore._fast.wait.timer cimport wheel_advance, wheel_next_ms

from kafkacore._fast.base.errors import ForkedNodeError

cdef extern from "<unistd.h>" nogil:
    int getpid()
    int c_close "close"(int file)

cdef enum:
    EVENTS = 256              # one epoll_wait returns at most this many events
    READY = 32                # at most this many ready connections continue in one turn
    ALL = 0x7FFFFFFF
    LOOK_NS = 100000          # the processor polls the sockets at least this often while mail keeps arriving
    GAP_CAP_NS = 1000000
    # A processor spins only if its recent pauses were shorter than this. A sleep itself costs about 40 us.
    SPIN_BELOW_NS = 200000
    SHY_LEAST_NS = 2000000
    SHY_MOST_NS = 200000000
    TRIM_AFTER_MS = 5000      # a processor that has been idle for this long frees its recycled frames

cdef int64_t live_processors = 0


def live() -> int:
    """Returns the number of running processors."""
    return live_processors


cdef bint may_spin(Processor *p, int64_t now_ns) noexcept nogil:
    if p.spin == NULL or p.spin.most_ns == 0 or p.gap_ns > SPIN_BELOW_NS or now_ns < p.shy_until_ns:
        return False
    return cas32(&p.spin.held, 0, 1)


cdef int spin_for_events(Processor *p, epoll_event *events, int64_t start_ns) noexcept nogil:
    """Spins until there is work or the time for spinning ends. Returns the number of events, or 0 if mail has arrived
    or nothing has happened."""
    cdef int64_t cpu_ns = thread_cpu_ns()
    cdef int64_t now_ns = start_ns
    cdef int count = 0
    while count == 0 and now_ns - start_ns < p.spin.most_ns:
        if load_ptr(<void **> &p.reactor.inbox.newest) != NULL:
            break
        count = epoll_wait(p.reactor.epoll, events, EVENTS, 0)
        cpu_relax()
        now_ns = monotonic_ns()
    store32(&p.spin.held, 0)
    add64(&p.spin.spun_ns, now_ns - start_ns)
    cpu_ns = thread_cpu_ns() - cpu_ns
    if cpu_ns < (now_ns - start_ns) - 20000:
        # Another thread needed this core, so this thread does not spin for a while. Each repetition doubles this time.
        p.shy_ns = min(max(p.shy_ns * 2, SHY_LEAST_NS), SHY_MOST_NS)
        p.shy_until_ns = now_ns + p.shy_ns
    elif p.shy_ns:
        p.shy_ns -= p.shy_ns // 8
    return max(count, 0)


cdef int look_at_sockets(Processor *p, epoll_event *events) noexcept nogil:
    """Polls the sockets without blocking, because mail is waiting. Returns 0 without a poll if the last poll was less
    than LOOK_NS ago."""
    cdef int64_t now_ns = monotonic_ns()
    if now_ns - p.looked_ns < LOOK_NS:
        return 0
    p.looked_ns = now_ns
    return max(epoll_wait(p.reactor.epoll, events, EVENTS, 0), 0)


cdef int wait_for_events(Processor *p, epoll_event *events) noexcept nogil:
    cdef Reactor *reactor = &p.reactor
    cdef int64_t start_ns, slept_ns, next_ms
    cdef int64_t timeout_ms = -1
    cdef int count
    if reactor.ready != NULL or reactor.driven.ready != NULL:
        return max(epoll_wait(reactor.epoll, events, EVENTS, 0), 0)
    start_ns = monotonic_ns()
    store64(&p.waiting_since_ns, start_ns)
    if may_spin(p, start_ns):
        count = spin_for_events(p, events, start_ns)
        if count or load_ptr(<void **> &reactor.inbox.newest) != NULL:
            note_gap(p, start_ns)
            return count or look_at_sockets(p, events)
    next_ms = wheel_next_ms(&reactor.wheel)
    if next_ms >= 0:
        timeout_ms = max(next_ms - reactor.clock.monotonic_ns(reactor.clock.self) // 1000000, 0)
    if not p.trimmed and (timeout_ms < 0 or timeout_ms > TRIM_AFTER_MS):
        timeout_ms = TRIM_AFTER_MS
    if not inbox_may_sleep(&reactor.inbox):
        store64(&p.waiting_since_ns, 0)
        return look_at_sockets(p, events)
    slept_ns = monotonic_ns()
    count = epoll_wait(reactor.epoll, events, EVENTS, <int> min(timeout_ms, 0x7FFFFFFF))
    inbox_awake(&reactor.inbox)
    store64(&p.wakeups, p.wakeups + 1)
    if count <= 0 and not p.trimmed and monotonic_ns() - slept_ns >= (TRIM_AFTER_MS - 10) * <int64_t> 1000000:
        frames_trim()
        p.trimmed = True
    note_gap(p, start_ns)
    return max(count, 0)


cdef void note_gap(Processor *p, int64_t start_ns) noexcept nogil:
    cdef int64_t gap_ns = monotonic_ns() - start_ns
    store64(&p.waiting_since_ns, 0)
    store64(&p.idle_ns, p.idle_ns + gap_ns)
    p.gap_ns += (min(gap_ns, GAP_CAP_NS) - p.gap_ns) // 4


cdef void turn(Processor *p, epoll_event *events, int count) noexcept nogil:
    cdef Reactor *reactor = &p.reactor
    cdef Driven *driven
    cdef int i
    store64(&reactor.turns, reactor.turns + 1)
    # The processor counts the turn before it reads published values. A publisher stores a value before it reads the
    # turn counts.
    fence()
    reactor.now_ns = reactor.clock.monotonic_ns(reactor.clock.self)
    # The wheel advances first, because the code that handles events computes deadlines from the wheel's time.
    wheel_advance(&reactor.wheel, reactor.now_ns // 1000000)
    for i in range(count):
        if events[i].data.ptr == NULL:  # the eventfd of the inbox; the code below delivers the mail
            silence_bell(reactor.inbox.eventfd)
            continue
        driven = driven_of(events[i].data.ptr)
        if driven != NULL:
            driven.event(driven, events[i].events)
        else:
            connection_event(<Connection *> events[i].data.ptr, events[i].events)
            p.trimmed = False
    inbox_deliver(&reactor.inbox)
    reactor_go_on(reactor, READY)
    driven_go_on(&reactor.driven)
    reactor_bury(reactor)
    store64(&reactor.turns, reactor.turns + 1)


cdef void *run(void *argument) noexcept nogil:
    cdef Processor *p = <Processor *> argument
    cdef epoll_event events[EVENTS]
    lower_priority(p.nice)
    if p.urgent:
        ask_slice(URGENT_SLICE_NS)
    p.gap_ns = GAP_CAP_NS
    owner_take(&p.reactor.owner)
    while not load32(&p.reactor.stopping):
        turn(p, events, wait_for_events(p, events))
    driven_shut_all(&p.reactor.driven)
    reactor_close_all(&p.reactor)
    while inbox_deliver(&p.reactor.inbox):
        reactor_close_all(&p.reactor)
    driven_go_on(&p.reactor.driven)
    reactor_go_on(&p.reactor, ALL)
    reactor_bury(&p.reactor)
    frames_trim()
    owner_drop(&p.reactor.owner)
    return NULL


cdef class SpinBudget:
    """Lets at most one thread of the process spin, for at most `most_us` before each sleep. If `most_us` is 0, no
    thread spins."""

    def __init__(self, most_us: int = 80):
        self.spin.most_ns = most_us * 1000

    @property
    def spun_ns(self) -> int:
        """The total time of all spins, in ns."""
        return load64(&self.spin.spun_ns)


@cython.no_gc  # no reference cycle contains it, and the collector must not clear fields that threads use until `stop`
cdef class NativeProcessor:
    """A processor thread. `nice` lowers its priority. With `urgent`, it runs as soon as it is woken. The constructor
    raises OSError if no thread or file descriptor is left."""

    def __cinit__(self, str name, Environment environment not None, SpinBudget spin_budget=None, int nice=0,
                  bint urgent=False):
        cdef int error
        cdef int epoll
        cdef epoll_event event
        cdef bytes thread_name = name.encode()[:15]
        self.name = name
        self.environment = environment
        self.spin_budget = spin_budget
        self.pid = getpid()
        self.processor = <Processor *> calloc(1, sizeof(Processor))
        if self.processor == NULL:
            raise MemoryError
        epoll = epoll_create1(EPOLL_CLOEXEC)
        if epoll < 0:
            raise OSError(errno, "epoll_create1")
        error = -reactor_init(&self.processor.reactor, &environment.env.clock, epoll, reactor_swept)
        if error:
            c_close(epoll)
            raise OSError(error, "a processor's inbox")
        self.processor.nice = nice
        self.processor.urgent = urgent
        if spin_budget is not None:
            self.processor.spin = &spin_budget.spin
        event.events = EPOLLIN
        event.data.ptr = NULL
        error = epoll_ctl(epoll, EPOLL_CTL_ADD, self.processor.reactor.inbox.eventfd, &event)
        self.processor.started_ns = monotonic_ns()
        if not error:
            error = thread_start(&self.processor.thread, thread_name, run, self.processor)
        if error:
            c_close(epoll)
            with nogil:
                reactor_close(&self.processor.reactor)
            raise OSError(error, "a processor's thread")
        self.running = True
        global live_processors
        live_processors += 1

    def __dealloc__(self):
        if self.processor == NULL:
            return
        if self.running and getpid() == self.pid:
            self.stop()
        free(self.processor)

    cdef int check(self) except -1:
        if getpid() != self.pid:
            raise ForkedNodeError(f"processor {self.name} belongs to process {self.pid}, not to its child {getpid()}")
        if not self.running:
            raise RuntimeError(f"processor {self.name} is stopped")
        return 0

    def stop(self) -> None:
        """Closes the connections of the processor and ends its thread. Call this after handlers have answered all
        requests."""
        if not self.running:
            return
        self.check()
        self.running = False
        store32(&self.processor.reactor.stopping, 1)
        ring_bell(self.processor.reactor.inbox.eventfd)
        with nogil:
            thread_join(self.processor.thread, NULL)
            c_close(self.processor.reactor.epoll)
            reactor_close(&self.processor.reactor)
        global live_processors
        live_processors -= 1

    def close_inherited(self) -> None:
        """In a child process after fork, closes the inherited file descriptors. Otherwise a peer would not see when the
        parent process closes the peer's connection."""
        cdef Connection *conn
        cdef Driven *driven
        if getpid() == self.pid:
            raise RuntimeError(f"processor {self.name} belongs to this process: call stop instead")
        if not self.running:
            return
        self.running = False
        conn = self.processor.reactor.first
        while conn != NULL:
            c_close(conn.handle)
            conn = conn.next
        driven = self.processor.reactor.driven.first
        while driven != NULL:
            if driven.handle >= 0:
                c_close(driven.handle)
            driven = driven.next
        c_close(self.processor.reactor.epoll)
        c_close(self.processor.reactor.inbox.eventfd)

    def serve(self, NativePlane plane not None) -> None:
        """Allows acceptors to assign connections of the plane to this processor."""
        self.check()
        plane.watch_turns(&self.processor.reactor.turns, self)

    def sweep(self) -> None:
        """Closes the idle connections of draining planes. The other connections of these planes close after their
        answers have been sent."""
        self.check()
        inbox_post(&self.processor.reactor.inbox, &self.processor.reactor.sweep)

    def look(self) -> int:
        """Wakes the processor, for example after a test has moved the processor's clock. When `turns` reaches the
        returned number, all timers that are due now have fired."""
        self.check()
        cdef int64_t turns = load64(&self.processor.reactor.turns)
        ring_bell(self.processor.reactor.inbox.eventfd)
        # The current turn may already have read the clock, so wait for the end of the next turn.
        return turns + (3 if turns & 1 else 2)

    @property
    def turns(self) -> int:
        """Twice the number of finished turns, plus one during a turn."""
        return load64(&self.processor.reactor.turns)

    @property
    def connections(self) -> int:
        return load32(&self.processor.reactor.count)

    @property
    def idle_ns(self) -> int:
        """The time that the processor has spent waiting since its start. Spinning counts as waiting."""
        cdef int64_t since_ns = load64(&self.processor.waiting_since_ns)
        return load64(&self.processor.idle_ns) + (monotonic_ns() - since_ns if since_ns else 0)

    @property
    def wakeups(self) -> int:
        return load64(&self.processor.wakeups)

    def stages(self, NativePlane plane not None) -> dict[int, dict[str, object]]:
        """Returns the metrics of the plane's requests on this processor, by API key. The metrics of an API are
        counters, and (count, sum in us, buckets) for each stage."""
        cdef dict found = {}
        cdef ApiMetrics *copies
        cdef ApiMetrics *metrics
        cdef bint seen[API_KEYS]
        cdef int key, i
        self.check()
        copies = <ApiMetrics *> calloc(API_KEYS, sizeof(ApiMetrics))
        if copies == NULL:
            raise MemoryError("no memory to copy the metrics of a processor")
        with nogil:
            copy_metrics(&self.processor.reactor, plane.plane, copies, seen)
        try:
            for key in range(API_KEYS):
                if seen[key]:
                    metrics = &copies[key]
                    found[key] = {
                        "requests": metrics.requests,
                        "request_bytes": metrics.request_bytes,
                        "response_bytes": metrics.response_bytes,
                        "stages": [histogram(&metrics.stages[i]) for i in range(STAGES)],
                        "total": histogram(&metrics.total),
                    }
        finally:
            free(copies)
        return found


cdef void copy_metrics(Reactor *reactor, Plane *plane, ApiMetrics *copies, bint *seen) noexcept nogil:
    """Copies the plane's metrics by API key. Holds the lock of the links, because the processor frees the metrics
    together with its link to the plane."""
    cdef Link *link
    cdef int64_t *source
    cdef int64_t *target
    cdef int key
    cdef size_t i
    mutex_lock(&reactor.links_lock)
    link = reactor.links
    while link != NULL and link.plane != plane:
        link = link.next
    for key in range(API_KEYS):
        source = NULL
        if link != NULL:
            source = <int64_t *> load_ptr(<void **> &link.apis[key])
        seen[key] = source != NULL
        if source != NULL:
            target = <int64_t *> &copies[key]
            for i in range(sizeof(ApiMetrics) // sizeof(int64_t)):
                target[i] = load64(&source[i])
    mutex_unlock(&reactor.links_lock)


cdef tuple histogram(StageHistogram *source):
    cdef int i
    return (
        source.count,
        source.sum_us,
        [source.buckets[i] for i in range(STAGE_BUCKETS)],
    )
