"""Implements acceptors, which call accept4, enforce the limits on connections, and choose a processor for each
connection.
"""

cimport cython

from libc.errno cimport EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.stdio cimport snprintf
from libc.string cimport memcpy

from kafkacore._fast.base.atomics cimport add32, add64, load32, load64, store32
from kafkacore._fast.plane.connection cimport Connection, connection_new, connections_open
from kafkacore._fast.base.epoll cimport (
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLIN, epoll_create1, epoll_ctl, epoll_event,
    epoll_wait, monotonic_ns,
)
from kafkacore._fast.wait.mail cimport Inbox, inbox_init, inbox_post, ring_bell, silence_bell
from kafkacore._fast.plane.addresses cimport address_enter, address_leave
from kafkacore._fast.plane.notices cimport plane_notice
from kafkacore._fast.plane.plane cimport MAX_LISTENERS, ArrivalRate, NativePlane, plane_hold, plane_release
from kafkacore._fast.plane.processor cimport NativeProcessor
from kafkacore._fast.base.lock_order cimport RANK_ACCEPTOR
from kafkacore._fast.base.sync cimport (
    condition_broadcast, condition_destroy, condition_init, condition_wait, mutex_destroy, mutex_init, mutex_lock,
    mutex_unlock, thread_join, thread_start,
)

from kafkacore._fast.base.errors import ForkedNodeError

cdef extern from * nogil:
    """
    #include <fcntl.h>
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <string.h>
    #include <sys/resource.h>
    #include <sys/socket.h>
    #include <unistd.h>

    static int kc_accept(int handle, uint8_t *address, int32_t *port) {
        static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
        struct sockaddr_storage peer;
        socklen_t size = sizeof(peer);
        int taken = accept4(handle, (struct sockaddr *) &peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (taken < 0) return taken;
        if (peer.ss_family == AF_INET6) {
            memcpy(address, &((struct sockaddr_in6 *) &peer)->sin6_addr, 16);
            *port = ntohs(((struct sockaddr_in6 *) &peer)->sin6_port);
        } else {
            memcpy(address, mapped, 12);
            memcpy(address + 12, &((struct sockaddr_in *) &peer)->sin_addr, 4);
            *port = ntohs(((struct sockaddr_in *) &peer)->sin_port);
        }
        return taken;
    }
    static void kc_prepare(int handle, int send_bytes, int receive_bytes) {
        int one = 1;
        setsockopt(handle, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        setsockopt(handle, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
        if (send_bytes > 0) setsockopt(handle, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof(send_bytes));
        if (receive_bytes > 0) setsockopt(handle, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    }
    static int64_t kc_descriptor_limit(void) {
        struct rlimit limit;
        if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INT64_MAX;
        return (int64_t) limit.rlim_cur;
    }
    /* Returns the lowest free descriptor, which the next accept returns, or -1 if there is none. */
    static int kc_lowest_free(int handle) {
        int lowest = fcntl(handle, F_DUPFD_CLOEXEC, 0);
        if (lowest >= 0) close(lowest);
        return lowest;
    }
    """
    int64_t kc_descriptor_limit()
    int kc_lowest_free(int handle)
    int kc_accept(int handle, uint8_t *address, int32_t *port)
    void kc_prepare(int handle, int send_bytes, int receive_bytes)
    int c_close "close"(int file)
    int getpid()

cdef enum:
    PAUSE_MS = 10             # the interval at which the acceptor checks whether a paused listener may continue
    ACCEPTS = 64              # the acceptor accepts at most this many connections from one listener in a row
    RESERVED_SHARE = 8        # this fraction of the file descriptors (1 / N) is kept for logs and checkpoints
    MOST_RESERVED = 1024      # at most this many descriptors are reserved
    LAST_SHARE = 4            # connections never get this fraction of the reserve (1 / N)
    SHORT_LINE_NS = 60000000000   # the least time between two log lines about missing descriptors


cdef bint may_come(ArrivalRate *rate, int64_t now_ns) noexcept nogil:
    if rate.per_second <= 0:
        return True
    rate.tokens += <double> (now_ns - rate.filled_ns) * 1e-9 * <double> rate.per_second
    rate.tokens = min(rate.tokens, max(<double> rate.per_second, 1.0))
    rate.filled_ns = now_ns
    return rate.tokens >= 1.0


cdef void set_rate(ArrivalRate *rate, int64_t per_second) noexcept nogil:
    """Sets the limit of a rate. If the limit changes, the tokens of one second are available at once."""
    if rate.per_second != per_second:
        rate.per_second = per_second
        rate.tokens = <double> per_second
        rate.filled_ns = monotonic_ns()


cdef bint has_room(Listener *listener) noexcept nogil:
    cdef Plane *plane = listener.plane
    cdef int64_t now_ns
    if load32(&plane.draining) or load32(&plane.listener_connections[listener.number]) >= listener.max_connections:
        return False
    if not listener.exempt and load32(&plane.connection_count) >= load32(&plane.max_connections):
        return False
    now_ns = monotonic_ns() if listener.arrivals.per_second > 0 or plane.arrivals.per_second > 0 else 0
    return may_come(&listener.arrivals, now_ns) and (listener.exempt or may_come(&plane.arrivals, now_ns))


cdef void arm(Acceptor *a, Listener *listener, bint reading) noexcept nogil:
    cdef epoll_event event
    event.events = EPOLLIN if reading else 0
    event.data.ptr = listener
    listener.paused = not reading
    epoll_ctl(a.epoll, EPOLL_CTL_MOD, listener.handle, &event)


cdef void refuse(Listener *listener, int handle, const uint8_t *address, int32_t port, const char *why) noexcept nogil:
    add64(&listener.plane.refused_connections, 1)
    plane_notice(listener.plane, address, port, why)
    c_close(handle)


cdef void take_in(Acceptor *a, Listener *listener, int handle, const uint8_t *address, int32_t port) noexcept nogil:
    cdef Plane *plane = listener.plane
    cdef Reactor *reactor = listener.reactors[0]
    cdef Connection *conn
    cdef int32_t i
    if address_enter(plane, address) != 0:
        refuse(listener, handle, address, port, "closed: this address has max.connections.per.ip connections already")
        return
    for i in range(1, listener.reactor_count):
        if load32(&listener.reactors[i].count) < load32(&reactor.count):
            reactor = listener.reactors[i]
    conn = connection_new(reactor, plane, handle)
    if conn == NULL:
        address_leave(plane, address)
        refuse(listener, handle, address, port, "closed: no memory for another connection")
        return
    kc_prepare(handle, plane.send_buffer_bytes, plane.receive_buffer_bytes)
    conn.listener = listener.number
    memcpy(conn.address, address, 16)
    conn.port = port
    add32(&plane.connection_count, 1)
    add32(&plane.listener_connections[listener.number], 1)
    add64(&a.accepted, 1)
    listener.arrivals.tokens -= 1.0
    if not listener.exempt:
        plane.arrivals.tokens -= 1.0
    inbox_post(&reactor.inbox, &conn.arrive)


cdef inline bint connections_hold_most(int64_t limit) noexcept nogil:
    """Returns whether connections hold at least half of the file descriptors."""
    return connections_open() >= limit // 2


cdef inline int64_t free_for_connections(int64_t limit, bint they_hold_most) noexcept nogil:
    """Returns the limit for connections: each of their descriptors must be below this number. The kernel always returns
    the lowest free descriptor. So if it returns this number or a higher one, all descriptors below the number are in
    use."""
    cdef int64_t reserved = min(limit // RESERVED_SHARE, <int64_t> MOST_RESERVED)
    return limit - (reserved if they_hold_most else reserved // LAST_SHARE)


def descriptors_for_connections(int64_t limit) -> int:
    """Returns the number of file descriptors, out of `limit` (RLIMIT_NOFILE), that connections may use if they hold at
    least half of the descriptors."""
    return free_for_connections(limit, True)


cdef void run_short(Acceptor *a, Listener *listener, const char *why) noexcept nogil:
    """Pauses the listener until `let_go` finds a free descriptor again. Meanwhile, new connections wait in the kernel's
    backlog."""
    cdef int64_t now_ns = monotonic_ns()
    cdef char text[232]
    arm(a, listener, False)
    listener.is_short = True
    if now_ns >= a.short_until_ns:
        a.short_until_ns = now_ns + SHORT_LINE_NS
        snprintf(text, sizeof(text),
                 "%s; new connections wait until some are closed. The limit is %lld open files: raise it (ulimit -n)",
                 why, <long long> kc_descriptor_limit())
        plane_notice(listener.plane, NULL, 0, text)


cdef bint leave_the_rest(Acceptor *a, Listener *listener, int handle) noexcept nogil:
    """Checks the descriptor `handle` of a new connection. If the remaining descriptors are reserved for logs, pauses
    the listener and returns True."""
    cdef int64_t limit = kc_descriptor_limit()
    cdef bint they_hold_most = connections_hold_most(limit)
    cdef long long held = connections_open()
    cdef char text[160]
    if handle < free_for_connections(limit, they_hold_most):
        return False
    if they_hold_most:
        snprintf(text, sizeof(text), "connections hold %lld file descriptors, and the rest are kept for logs", held)
    else:
        snprintf(text, sizeof(text), "logs and other files hold about %lld file descriptors, connections only %lld",
                 handle + 1 - held, held)
    run_short(a, listener, text)
    return True


cdef void accept_some(Acceptor *a, Listener *listener) noexcept nogil:
    cdef uint8_t address[16]
    cdef char text[160]
    cdef int32_t port = 0
    cdef int handle, error
    cdef int _
    for _ in range(ACCEPTS):
        if not has_room(listener):
            arm(a, listener, False)
            return
        handle = kc_accept(listener.handle, address, &port)
        if handle >= 0:
            take_in(a, listener, handle, address, port)
            if leave_the_rest(a, listener, handle):
                return
            continue
        error = errno
        if error == EMFILE or error == ENFILE or error == ENOBUFS or error == ENOMEM:
            snprintf(text, sizeof(text), "accept4 failed with errno %d while connections hold %lld file descriptors",
                     error, <long long> connections_open())
            run_short(a, listener, text)
            return
        if error == EAGAIN:
            return
        # After ECONNABORTED and similar errors this connection is gone, but the next one in the backlog may be fine.


cdef bint may_go_on(Listener *listener) noexcept nogil:
    cdef int64_t limit
    cdef int lowest
    if listener.is_short:
        limit = kc_descriptor_limit()
        lowest = kc_lowest_free(listener.handle)
        listener.is_short = lowest < 0 or lowest >= free_for_connections(limit, connections_hold_most(limit))
    return not listener.is_short and has_room(listener)


cdef bint let_go(Acceptor *a) noexcept nogil:
    """Drops the listeners that are being removed, and lets paused listeners continue if they may. Call this with the
    lock held. Returns True if any listener is still paused."""
    cdef Listener **at = &a.listeners
    cdef Listener *listener
    cdef bint paused = False
    while at[0] != NULL:
        listener = at[0]
        if listener.leaving:
            at[0] = listener.next
            epoll_ctl(a.epoll, EPOLL_CTL_DEL, listener.handle, NULL)
            plane_release(listener.plane)
            free(listener)
            condition_broadcast(&a.left)
            continue
        if listener.paused and may_go_on(listener):
            arm(a, listener, True)
        paused |= listener.paused
        at = &listener.next
    return paused


cdef void *run(void *argument) noexcept nogil:
    cdef Acceptor *a = <Acceptor *> argument
    cdef epoll_event events[16]
    cdef bint paused = False
    cdef int count, i
    while not load32(&a.stopping):
        count = epoll_wait(a.epoll, events, 16, PAUSE_MS if paused else -1)
        mutex_lock(&a.lock)
        for i in range(max(count, 0)):
            if events[i].data.ptr == NULL:
                silence_bell(a.bell)
            else:
                accept_some(a, <Listener *> events[i].data.ptr)
        paused = let_go(a)
        mutex_unlock(&a.lock)
    return NULL


@cython.no_gc  # no reference cycle contains it, and the collector must not clear fields that threads use until `stop`
cdef class NativeAcceptor:
    """An acceptor thread. The constructor raises OSError if the system cannot create a thread or a descriptor."""

    def __cinit__(self, str name):
        cdef Inbox bell
        cdef epoll_event event
        cdef bytes thread_name = name.encode()[:15]
        cdef int error
        self.name = name
        self.pid = getpid()
        self.kept = {}
        error = -inbox_init(&bell)
        if error:
            raise OSError(error, "eventfd")
        self.acceptor.bell = bell.eventfd
        self.acceptor.epoll = epoll_create1(EPOLL_CLOEXEC)
        mutex_init(&self.acceptor.lock, RANK_ACCEPTOR)
        condition_init(&self.acceptor.left)
        event.events = EPOLLIN
        event.data.ptr = NULL
        error = 0
        if self.acceptor.epoll < 0 or epoll_ctl(self.acceptor.epoll, EPOLL_CTL_ADD, bell.eventfd, &event) != 0:
            error = errno
        if not error:
            error = thread_start(&self.acceptor.thread, thread_name, run, &self.acceptor)
        if error:
            c_close(bell.eventfd)
            raise OSError(error, "an acceptor's thread")
        self.running = True

    def __dealloc__(self):
        if self.running and getpid() == self.pid:
            self.stop()

    cdef int check(self) except -1:
        if getpid() != self.pid:
            raise ForkedNodeError(f"acceptor {self.name} belongs to process {self.pid}, not to its child {getpid()}")
        if not self.running:
            raise RuntimeError(f"acceptor {self.name} is stopped")
        return 0

    def stop(self) -> None:
        """Ends the thread. The owners of the listening sockets must close the sockets."""
        cdef Listener *listener
        if not self.running:
            return
        self.check()
        self.running = False
        store32(&self.acceptor.stopping, 1)
        ring_bell(self.acceptor.bell)
        with nogil:
            thread_join(self.acceptor.thread, NULL)
        while self.acceptor.listeners != NULL:
            listener = self.acceptor.listeners
            self.acceptor.listeners = listener.next
            plane_release(listener.plane)
            free(listener)
        self.kept.clear()
        c_close(self.acceptor.epoll)
        c_close(self.acceptor.bell)
        condition_destroy(&self.acceptor.left)
        mutex_destroy(&self.acceptor.lock)

    def add(self, NativePlane plane not None, int handle, int32_t number, int32_t most=0x7FFFFFFF,
            int64_t per_second=0, bint exempt=False) -> None:
        """Accepts connections on `handle`, a non-blocking listening socket that must stay open until `remove`. `number`
        identifies the listener within its plane. `most` limits the listener's connections, and `per_second` limits its
        rate of new connections (0 for no limit). The plane's limits do not apply to an `exempt` listener.
        """
        cdef Listener *listener
        cdef NativeProcessor processor
        cdef epoll_event event
        cdef int failed
        self.check()
        if plane.turn_count == 0:
            raise ValueError(f"plane {plane.name} has no processor")
        if not 0 <= number < MAX_LISTENERS:
            raise ValueError(f"plane {plane.name} has at most {MAX_LISTENERS} listeners")
        listener = <Listener *> calloc(1, sizeof(Listener))
        if listener == NULL:
            raise MemoryError
        listener.plane = plane.plane
        listener.handle = handle
        listener.number = number
        listener.exempt = exempt
        listener.max_connections = most
        set_rate(&listener.arrivals, per_second)
        for processor in plane.processors:
            listener.reactors[listener.reactor_count] = &processor.processor.reactor
            listener.reactor_count += 1
        plane_hold(plane.plane)
        with nogil:
            mutex_lock(&self.acceptor.lock)
            listener.next = self.acceptor.listeners
            self.acceptor.listeners = listener
            event.events = EPOLLIN
            event.data.ptr = listener
            failed = epoll_ctl(self.acceptor.epoll, EPOLL_CTL_ADD, handle, &event)
            if failed:
                self.acceptor.listeners = listener.next
            mutex_unlock(&self.acceptor.lock)
        if failed:
            plane_release(plane.plane)
            free(listener)
            raise OSError(errno, "epoll_ctl")
        self.kept[plane, number] = plane

    def remove(self, NativePlane plane not None, int32_t number) -> None:
        """Removes a listener. Returns when the acceptor no longer uses the socket."""
        cdef Plane *target = plane.plane
        self.check()
        with nogil:
            mutex_lock(&self.acceptor.lock)
            mark_leaving(&self.acceptor, target, number)
            ring_bell(self.acceptor.bell)
            while find_listener(&self.acceptor, target, number) != NULL:
                condition_wait(&self.acceptor.left, &self.acceptor.lock)
            mutex_unlock(&self.acceptor.lock)
        self.kept.pop((plane, number), None)

    def limit(self, NativePlane plane not None, int32_t number, int32_t most, int64_t per_second) -> None:
        """Sets max.connections and max.connection.creation.rate (0 for no limit) of a listener. It may be called at any
        time."""
        cdef Listener *listener
        self.check()
        with nogil:
            mutex_lock(&self.acceptor.lock)
            listener = find_listener(&self.acceptor, plane.plane, number)
            if listener != NULL:
                listener.max_connections = most
                set_rate(&listener.arrivals, per_second)
            mutex_unlock(&self.acceptor.lock)

    def limit_plane(self, NativePlane plane not None, int64_t per_second) -> None:
        """Sets max.connection.creation.rate of a plane, for all its listeners together. All listeners of the plane must
        belong to this acceptor."""
        self.check()
        with nogil:
            mutex_lock(&self.acceptor.lock)
            set_rate(&plane.plane.arrivals, per_second)
            mutex_unlock(&self.acceptor.lock)

    @property
    def accepted(self) -> int:
        return load64(&self.acceptor.accepted)


cdef Listener *find_listener(Acceptor *a, Plane *plane, int32_t number) noexcept nogil:
    cdef Listener *listener = a.listeners
    while listener != NULL and (listener.plane != plane or listener.number != number):
        listener = listener.next
    return listener


cdef void mark_leaving(Acceptor *a, Plane *plane, int32_t number) noexcept nogil:
    cdef Listener *listener = find_listener(a, plane, number)
    if listener != NULL:
        listener.leaving = True
