"""Implements the client of benchmarks. load_client.pxd has the contract."""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from kafkacore._fast.base.cursor cimport be16, be32, put32
from kafkacore._fast.world.environment cimport IoVec
from kafkacore._fast.base.epoll cimport (
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT, epoll_create1, epoll_ctl, epoll_event, epoll_wait,
    monotonic_ns, thread_cpu_ns,
)

cdef extern from * nogil:
    """
    #include <sys/socket.h>
    #include <sys/uio.h>
    #include <unistd.h>

    static inline int64_t kc_send_two(int handle, const struct iovec *parts, int count) {
        struct msghdr message = {0};
        message.msg_iov = (struct iovec *) parts;
        message.msg_iovlen = count;
        return sendmsg(handle, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    """
    int64_t kc_send_two(int handle, const IoVec *parts, int count)
    int64_t c_recv "recv"(int handle, void *into, size_t size, int flags)
    int c_close "close"(int file)
    int MSG_DONTWAIT
    int MSG_TRUNC
    int clzll "__builtin_clzll"(unsigned long long value)

cdef enum:
    SCRATCH = 262144
    EVENTS = 256

cdef int64_t GRACE_NS = 5000000000  # after the last request, a run waits this long for answers


cdef inline int bucket_of(int64_t ns) noexcept nogil:
    """Returns the index of the bucket for a latency. From each power of two to the next one, the histogram has
    `SUB_BUCKETS` buckets of equal width."""
    cdef int power
    if ns < SUB_BUCKETS:
        return <int> max(ns, 0)
    power = 63 - clzll(<unsigned long long> ns)
    return min((power - 5) * SUB_BUCKETS + <int> ((ns >> (power - 6)) & (SUB_BUCKETS - 1)), BUCKETS - 1)


cdef int64_t bucket_middle_ns(int bucket) noexcept nogil:
    cdef int power = bucket // SUB_BUCKETS + 5
    if bucket < SUB_BUCKETS:
        return bucket
    return ((<int64_t> SUB_BUCKETS + bucket % SUB_BUCKETS) << (power - 6)) + ((<int64_t> 1 << (power - 6)) >> 1)


cdef inline bint may_start(Run *run, Channel *channel) noexcept nogil:
    return channel.in_flight < run.depth and (run.most_requests < 0 or run.started < run.most_requests)


cdef void break_off(Run *run, Channel *channel) noexcept nogil:
    channel.broken = True
    run.broken += 1


cdef void start_request(Run *run, Channel *channel) noexcept nogil:
    memcpy(channel.head, run.requests[channel.next].data, HEAD_BYTES)
    put32(channel.head + 8, <uint32_t> (channel.sent_count & 0x7FFFFFFF))
    channel.started_ns[channel.sent_count % run.depth] = monotonic_ns()
    channel.sent = 0
    channel.in_flight += 1
    run.started += 1


cdef void send_some(Run *run, Channel *channel, bint more) noexcept nogil:
    """Sends requests until the pipeline or the socket is full. Without `more`, only finishes the current request."""
    cdef const Outbound *request
    cdef IoVec parts[2]
    cdef int64_t n
    channel.want_write = False
    while not channel.broken:
        if channel.sent < 0:
            if not more or not may_start(run, channel):
                return
            start_request(run, channel)
        request = &run.requests[channel.next]
        if channel.sent < HEAD_BYTES:
            parts[0].iov_base = channel.head + channel.sent
            parts[0].iov_len = <size_t> (HEAD_BYTES - channel.sent)
            parts[1].iov_base = <void *> (request.data + HEAD_BYTES)
            parts[1].iov_len = <size_t> (request.size - HEAD_BYTES)
            n = kc_send_two(channel.handle, parts, 2)
        else:
            parts[0].iov_base = <void *> (request.data + channel.sent)
            parts[0].iov_len = <size_t> (request.size - channel.sent)
            n = kc_send_two(channel.handle, parts, 1)
        if n < 0:
            if errno == EAGAIN:
                channel.want_write = True
            elif errno != EINTR:
                break_off(run, channel)
            return
        run.bytes_sent += n
        channel.sent += n
        if channel.sent == request.size:
            channel.sent = -1
            channel.sent_count += 1
            channel.next = (channel.next + 1) % run.request_count


cdef void end_answer(Run *run, Channel *channel) noexcept nogil:
    cdef int64_t started_ns = channel.started_ns[channel.answered_count % run.depth]
    if be32(channel.answer + 4) != <uint32_t> (channel.answered_count & 0x7FFFFFFF):
        break_off(run, channel)  # the answers arrived in the wrong order
        return
    run.buckets[bucket_of(monotonic_ns() - started_ns)] += 1
    if run.error_at >= 0 and run.error_at + 6 <= channel.head_received:
        run.errors += be16(channel.answer + 4 + run.error_at) != 0
    run.answers += 1
    channel.answered_count += 1
    channel.in_flight -= 1
    channel.head_received = 0


cdef int64_t take_bytes(Run *run, Channel *channel, const uint8_t *data, int64_t size) noexcept nogil:
    """Takes received bytes. Returns the number of bytes that belong to the current answer. Returns 0 if the bytes are
    not an answer."""
    cdef int64_t used = 0
    cdef int64_t part
    if channel.head_received < 4:
        used = min(size, <int64_t> (4 - channel.head_received))
        memcpy(channel.answer + channel.head_received, data, used)
        channel.head_received += <int32_t> used
        if channel.head_received < 4:
            return used
        channel.left = <int32_t> be32(channel.answer)
        if channel.left < 4:
            break_off(run, channel)
            return 0
    part = min(size - used, channel.left)
    if channel.head_received < ANSWER_HEAD_BYTES and part > 0:
        memcpy(channel.answer + channel.head_received, data + used,
               min(part, <int64_t> (ANSWER_HEAD_BYTES - channel.head_received)))
        channel.head_received = <int32_t> min(<int64_t> ANSWER_HEAD_BYTES, channel.head_received + part)
    channel.left -= part
    if channel.left == 0:
        end_answer(run, channel)
    return used + part


cdef int64_t receive(Run *run, Channel *channel) noexcept nogil:
    """Reads once and returns the number of bytes. Returns 0 if no bytes have arrived or if the channel is broken."""
    cdef int64_t n, at, used
    if run.discard and channel.head_received == ANSWER_HEAD_BYTES and channel.left > 0:
        n = c_recv(channel.handle, NULL, <size_t> channel.left, MSG_DONTWAIT | MSG_TRUNC)
        if n > 0:
            run.bytes_received += n
            channel.left -= n
            if channel.left == 0:
                end_answer(run, channel)
            return n
    else:
        # Reads only the head of the answer, so that the kernel can discard the rest.
        n = c_recv(channel.handle, run.scratch, ANSWER_HEAD_BYTES - channel.head_received if run.discard else SCRATCH,
                   MSG_DONTWAIT)
    if n <= 0:
        if n == 0 or (errno != EAGAIN and errno != EINTR):
            break_off(run, channel)
        return 0
    run.bytes_received += n
    at = 0
    while at < n and not channel.broken:
        used = take_bytes(run, channel, run.scratch + at, n - at)
        if used == 0:
            break
        at += used
    return n


cdef void watch(Run *run, Channel *channel, bint writing) noexcept nogil:
    cdef epoll_event event
    event.events = EPOLLIN | (EPOLLOUT if writing else 0)
    event.data.ptr = channel
    epoll_ctl(run.epoll, EPOLL_CTL_MOD, channel.handle, &event)


cdef void step(Run *run, Channel *channel, bint more) noexcept nogil:
    cdef bint wanted = channel.want_write
    while not channel.broken and receive(run, channel) > 0:
        if run.discard or channel.in_flight < run.depth:
            send_some(run, channel, more)
    if not channel.broken:
        send_some(run, channel, more)
        if wanted != channel.want_write and not run.spin:
            watch(run, channel, channel.want_write)


cdef bint is_over(Run *run, int64_t now_ns, bint more) noexcept nogil:
    cdef int32_t i
    if more:
        return False
    if now_ns > run.deadline_ns + GRACE_NS:
        return True
    for i in range(run.channel_count):
        if not run.channels[i].broken and run.channels[i].in_flight:
            return False
    return True


cdef void go(Run *run) noexcept nogil:
    cdef epoll_event events[EVENTS]
    cdef int64_t now_ns = monotonic_ns()
    cdef bint more = True
    cdef int count
    cdef int32_t i
    run.started_ns = now_ns
    run.deadline_ns += now_ns
    for i in range(run.channel_count):
        step(run, &run.channels[i], True)
    while not is_over(run, now_ns, more) and run.broken < run.channel_count:
        if run.spin:
            for i in range(run.channel_count):
                if not run.channels[i].broken:
                    step(run, &run.channels[i], more)
        else:
            count = epoll_wait(run.epoll, events, EVENTS, 100)
            for i in range(max(count, 0)):
                if not (<Channel *> events[i].data.ptr).broken:
                    step(run, <Channel *> events[i].data.ptr, more)
        now_ns = monotonic_ns()
        if more:
            more = now_ns < run.deadline_ns and (run.most_requests < 0 or run.started < run.most_requests)
    run.ended_ns = monotonic_ns()


class LoadResult:
    """The result of a run. Times are in ns and sizes in bytes. `cpu_ns` is the CPU time of the client."""

    def __init__(self, *, requests, errors, broken, sent_bytes, received_bytes, elapsed_ns, cpu_ns, buckets) -> None:
        self.requests = requests
        self.errors = errors
        self.broken = broken
        self.sent_bytes = sent_bytes
        self.received_bytes = received_bytes
        self.elapsed_ns = elapsed_ns
        self.cpu_ns = cpu_ns
        self.buckets = buckets

    def percentile_ns(self, share: float) -> int:
        """Returns a percentile of the latency in ns. A fraction `share` (0 to 1) of all answers took at most this time.
        The result is accurate to 1.6 %."""
        rank = max(1, round(share * self.requests))
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return bucket_middle_ns(bucket)
        return 0

    def __repr__(self) -> str:
        seconds = self.elapsed_ns / 1e9
        return (
            f"LoadResult({self.requests} requests in {seconds:.3f} s, {self.errors} errors, {self.broken} broken, "
            f"p50 {self.percentile_ns(0.5) / 1000:.1f} us, p99 {self.percentile_ns(0.99) / 1000:.1f} us)"
        )


cdef class Load:
    """Opens `connections` connections, with up to `depth` unanswered requests on each. Raises OSError if a connection
    fails.

    With `spin`, the client never sleeps and so occupies a core. A latency then contains only the time of the server and
    the network. With `discard`, the kernel discards each answer after its first 512 bytes.
    """

    cdef Run run_state
    cdef list sockets
    cdef readonly int depth

    def __init__(self, str host, int port, int connections=1, int depth=1, *, bint spin=False, bint discard=False,
                 float connect_timeout_seconds=10.0):
        import socket

        cdef int i
        cdef epoll_event event
        cdef Run *run = &self.run_state
        if connections < 1 or depth < 1:
            raise ValueError("at least one connection and a depth of one")
        self.sockets = []
        self.depth = depth
        run.epoll = epoll_create1(EPOLL_CLOEXEC)
        run.channels = <Channel *> calloc(connections, sizeof(Channel))
        run.scratch = <uint8_t *> malloc(SCRATCH)
        if run.epoll < 0 or run.channels == NULL or run.scratch == NULL:
            raise MemoryError
        run.depth = depth
        run.spin = spin
        run.discard = discard
        for i in range(connections):
            made = socket.create_connection((host, port), connect_timeout_seconds)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setblocking(False)
            self.sockets.append(made)
            run.channels[i].started_ns = <int64_t *> calloc(depth, sizeof(int64_t))
            if run.channels[i].started_ns == NULL:
                raise MemoryError
            run.channels[i].handle = made.fileno()
            run.channels[i].sent = -1
            run.channel_count += 1
            event.events = EPOLLIN
            event.data.ptr = &run.channels[i]
            if epoll_ctl(run.epoll, EPOLL_CTL_ADD, run.channels[i].handle, &event) != 0:
                raise OSError(errno, "epoll_ctl")

    def __dealloc__(self):
        cdef int i
        for i in range(self.run_state.channel_count):
            free(self.run_state.channels[i].started_ns)
        free(self.run_state.channels)
        free(self.run_state.scratch)
        if self.run_state.epoll > 0:
            c_close(self.run_state.epoll)

    def close(self) -> None:
        for made in self.sockets:
            made.close()
        for i in range(self.run_state.channel_count):
            self.run_state.channels[i].broken = True

    def run(self, requests, *, seconds: float = 3600.0, count: int = -1, error_at: int = -1) -> LoadResult:
        """Sends `requests` in a cycle, until `seconds` have passed or `count` requests have been sent. Each request is
        a whole frame with its size prefix. The client replaces the correlation id. Each connection begins with a
        different request. If an answer does not have the correlation id of its request, the connection counts as
        broken. `error_at` is the position of an int16 error code in each answer, counted from the end of the size
        prefix. An answer whose error code is not 0 counts as an error. `run` can be called again."""
        cdef Run *run = &self.run_state
        cdef list kept = [bytes(request) for request in requests]
        cdef Outbound *outbound
        cdef int64_t cpu_ns
        cdef int64_t i
        if not kept or min(len(request) for request in kept) <= HEAD_BYTES:
            raise ValueError("requests are whole frames of more than 12 bytes")
        outbound = <Outbound *> malloc(len(kept) * sizeof(Outbound))
        if outbound == NULL:
            raise MemoryError
        for i in range(len(kept)):
            outbound[i].data = <const uint8_t *> <const char *> kept[i]
            outbound[i].size = len(kept[i])
        run.requests = outbound
        run.request_count = len(kept)
        run.most_requests = count
        run.deadline_ns = <int64_t> (seconds * 1e9)
        run.error_at = error_at
        run.started = run.answers = run.errors = run.broken = run.bytes_sent = run.bytes_received = 0
        memset(run.buckets, 0, sizeof(run.buckets))
        for i in range(run.channel_count):
            run.channels[i].next = i * run.request_count // run.channel_count
            run.broken += run.channels[i].broken
        cpu_ns = thread_cpu_ns()
        with nogil:
            go(run)
        cpu_ns = thread_cpu_ns() - cpu_ns
        free(outbound)
        return LoadResult(
            requests=run.answers,
            errors=run.errors,
            broken=run.broken,
            sent_bytes=run.bytes_sent,
            received_bytes=run.bytes_received,
            elapsed_ns=run.ended_ns - run.started_ns,
            cpu_ns=cpu_ns,
            buckets={b: run.buckets[b] for b in range(BUCKETS) if run.buckets[b]},
        )
