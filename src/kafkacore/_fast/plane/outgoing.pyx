"""Sends answers: memory with sendmsg, for several answers in one call, and ranges of files with sendfile."""

from libc.errno cimport EAGAIN, EPIPE, ESTALE
from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.plane.answer cimport Answer, Extent, answer_extents
from kafkacore._fast.base.assertions cimport debug_assert
from kafkacore._fast.base.atomics cimport add64, load32, store64
from kafkacore._fast.world.environment cimport Env, IoVec
from kafkacore._fast.plane.plane cimport (
    REQUEST_DONE, STAGE_BUCKETS, STAGES, ApiMetrics, Request, StageHistogram,
)
from kafkacore._fast.plane.samples cimport SAMPLE_STAGES, Sample, Sampler, sampler_keep
from kafkacore._fast.log.segment cimport file_of

cdef extern from * nogil:
    int clzll "__builtin_clzll"(unsigned long long value)

cdef enum:
    PARTS = 32                 # one sendmsg has at most this many parts

# The next position to send: a request and an extent of its answer.
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
    """Collects the memory of complete answers, from the current position up to the next file range."""
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
    """Returns whether the log was truncated after the range was found. A truncation increments the counter before it
    changes a byte. So if the counter has not changed after the send, the sent bytes are the bytes of the range that was
    found. If the counter has changed, the connection is closed, and the client never gets the rest of the answer."""
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
                return -EPIPE  # the file is shorter than the range
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
    # Only this thread writes the histogram, so no atomic addition is needed. The stores are atomic, so that readers see
    # whole words.
    store64(&histogram.buckets[bucket], histogram.buckets[bucket] + 1)
    store64(&histogram.count, histogram.count + 1)
    store64(&histogram.sum_us, histogram.sum_us + us)


cdef void stage_times(const Request *request, int64_t sent_ns, int64_t *stages_ns) noexcept nogil:
    """Computes the time of each stage. The stages are in the order of the metrics: queue, local, remote, throttle,
    response queue, send."""
    cdef int64_t remote_ns = max(request.remote_done_ns, request.local_done_ns)
    cdef int64_t sending_ns = max(request.sending_ns, remote_ns)
    stages_ns[0] = max(request.dequeued_ns - request.received_ns, 0)
    stages_ns[1] = max(request.local_done_ns - request.dequeued_ns, 0)
    stages_ns[2] = remote_ns - request.local_done_ns
    stages_ns[3] = request.mute_ms * <int64_t> 1000000
    stages_ns[4] = sending_ns - remote_ns
    stages_ns[5] = max(sent_ns - sending_ns, 0)


cdef inline int64_t time_of_stages(const Sample *sample) noexcept nogil:
    """Returns the sum of the stages without the throttle time, because the answer does not wait for that time to
    pass."""
    return (sample.stages_ns[0] + sample.stages_ns[1] + sample.stages_ns[2] + sample.stages_ns[4]
            + sample.stages_ns[5])


cdef void note_stages(ApiMetrics *metrics, Request *request, int64_t sent_ns) noexcept nogil:
    cdef int64_t stages_ns[STAGES]
    cdef int i
    stage_times(request, sent_ns, stages_ns)
    for i in range(STAGES):
        note(&metrics.stages[i], stages_ns[i])
    note(&metrics.total, sent_ns - request.received_ns)
    store64(&metrics.requests, metrics.requests + 1)
    store64(&metrics.request_bytes, metrics.request_bytes + request.frame_bytes)
    store64(&metrics.response_bytes, metrics.response_bytes + request.answer.total)


cdef void keep_sample(Sampler *sampler, Request *request, int64_t sent_ns) noexcept nogil:
    cdef Sample *sample = request.sample
    debug_assert(sample.sampled_of >= 1, b"a sample knows its rate")
    debug_assert(SAMPLE_STAGES == STAGES, b"a sample has a time for each stage")
    sample.sent_ns = sent_ns
    sample.total_ns = max(sent_ns - request.received_ns, 0)
    stage_times(request, sent_ns, sample.stages_ns)
    debug_assert(sample.total_ns == time_of_stages(sample), b"the stages of a request follow each other without a gap")
    sample.correlation_id = request.correlation_id
    sample.listener = request.listener
    sample.api_key = request.api_key
    sample.api_version = request.api_version
    if not sampler_keep(sampler, &request.plane.samples, sample):
        add64(&request.plane.samples_dropped, 1)
