"""Sends answers: memory by sendmsg, several answers at once; ranges of files by sendfile."""

from libc.errno cimport EAGAIN, EPIPE, ESTALE
from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.plane.answer cimport Answer, Extent, answer_extents
from kafkacore._fast.base.atomics cimport load32, store64
from kafkacore._fast.world.environment cimport Env, IoVec
from kafkacore._fast.plane.plane cimport REQUEST_DONE, STAGE_BUCKETS, ApiMetrics, Request, StageHistogram
from kafkacore._fast.log.segment cimport file_of

cdef extern from * nogil:
    int clzll "__builtin_clzll"(unsigned long long value)

cdef enum:
    PARTS = 32                 # of one sendmsg

# The position of sending: a request and an extent of its answer.
ctypedef struct Place:
    Request *request
    int32_t extent
    int64_t sent


cdef bint answer_sent(Request *request) noexcept nogil:
    return request.no_answer or request.answer.next == request.answer.count


cdef inline Request *next_to_send(Request *request) noexcept nogil:
    while request != NULL and request.progress == REQUEST_DONE and answer_sent(request):
        request = request.next
    return request if request != NULL and request.progress == REQUEST_DONE else NULL


cdef int gather(Request *request, IoVec *parts, int64_t *total, bint *more) noexcept nogil:
    """Collects the memory from the position on, over complete answers, up to the next file range."""
    cdef int count = 0
    cdef int32_t i
    cdef int64_t skip
    cdef Extent *extent
    total[0] = 0
    more[0] = False
    while request != NULL:
        skip = request.answer.sent
        for i in range(request.answer.next, request.answer.count):
            extent = &answer_extents(&request.answer)[i]
            if extent.data == NULL or count == PARTS:
                more[0] = True
                return count
            parts[count].iov_base = <void *> (extent.data + skip)
            parts[count].iov_len = <size_t> (extent.size - skip)
            total[0] += extent.size - skip
            count += 1
            skip = 0
        request = next_to_send(request.next)
    return count


cdef void advance(Request *request, int64_t size) noexcept nogil:
    cdef Answer *answer
    cdef Extent *extent
    while size > 0 and request != NULL:
        answer = &request.answer
        extent = &answer_extents(answer)[answer.next]
        if size < extent.size - answer.sent:
            answer.sent += size
            return
        size -= extent.size - answer.sent
        answer.sent = 0
        answer.next += 1
        request = next_to_send(request)


cdef bint was_cut(const Extent *extent) noexcept nogil:
    """Whether a truncation came after the range was found. It counts itself before it changes a byte. So a range that
    is not cut after it was sent went out as it was found. One that is cut then ends the connection, and the reader
    never gets the bytes that make the answer complete."""
    return load32(&extent.segment.cuts) != extent.cuts


cdef int send_answers(Env *env, int handle, Request *first, int64_t now_ns, bint *want_write) noexcept nogil:
    cdef IoVec parts[PARTS]
    cdef Request *request = next_to_send(first)
    cdef Extent *extent
    cdef int64_t asked, n
    cdef int count
    cdef bint more
    want_write[0] = False
    while request != NULL:
        if request.sending_ns == 0:
            request.sending_ns = now_ns
        extent = &answer_extents(&request.answer)[request.answer.next]
        if extent.data != NULL:
            count = gather(request, parts, &asked, &more)
            n = env.transport.send(env.transport.self, handle, parts, count, more)
        else:
            asked = extent.size - request.answer.sent
            if was_cut(extent):
                return -ESTALE
            n = env.transport.send_file(env.transport.self, handle, &env.disk, file_of(extent.segment),
                                        extent.offset + request.answer.sent, <size_t> asked)
            if was_cut(extent):
                return -ESTALE
            if n == 0:
                return -EPIPE  # the file is shorter than the answer says
        if n == -EAGAIN:
            want_write[0] = True
            return 0
        if n < 0:
            return <int> n
        advance(request, n)
        request = next_to_send(request)
    return 0


cdef inline void note(StageHistogram *histogram, int64_t ns) noexcept nogil:
    cdef int64_t us = ns // 1000
    cdef int bucket
    us = max(us, 0)
    bucket = 64 - clzll(<unsigned long long> us) if us else 0
    bucket = min(bucket, STAGE_BUCKETS - 1)
    # Only this thread writes, so plain arithmetic is enough; the stores are atomic so that readers see whole words.
    store64(&histogram.buckets[bucket], histogram.buckets[bucket] + 1)
    store64(&histogram.count, histogram.count + 1)
    store64(&histogram.sum_us, histogram.sum_us + us)


cdef void note_stages(ApiMetrics *metrics, Request *request, int64_t sent_ns) noexcept nogil:
    cdef int64_t remote_ns = max(request.remote_done_ns, request.local_done_ns)
    cdef int64_t sending_ns = max(request.sending_ns, remote_ns)
    note(&metrics.stages[0], request.dequeued_ns - request.received_ns)
    note(&metrics.stages[1], request.local_done_ns - request.dequeued_ns)
    note(&metrics.stages[2], remote_ns - request.local_done_ns)
    note(&metrics.stages[3], request.mute_ms * <int64_t> 1000000)
    note(&metrics.stages[4], sending_ns - remote_ns)
    note(&metrics.stages[5], sent_ns - sending_ns)
    note(&metrics.total, sent_ns - request.received_ns)
    store64(&metrics.requests, metrics.requests + 1)
    store64(&metrics.request_bytes, metrics.request_bytes + request.frame_bytes)
    store64(&metrics.response_bytes, metrics.response_bytes + request.answer.total)
