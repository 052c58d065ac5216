"""Chooses requests at random, and passes samples from a processor to Python without a lock. samples.pxd has the
contract.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kafkacore._fast.base.assertions cimport debug_assert, owner_is_me, owner_take
from kafkacore._fast.base.atomics cimport cas_ptr, load64, load_ptr, store64

cdef enum:
    CONTINUATION_MASK = 0xC0   # in UTF-8, a byte after the first byte of a character is 10xxxxxx
    CONTINUATION = 0x80


cdef inline uint64_t next_random(Sampler *sampler) noexcept nogil:
    """Returns the next number of xorshift64*. A client that predicts these numbers gains nothing, so they need not be
    secret."""
    cdef uint64_t x = sampler.random
    if x == 0:
        x = <uint64_t> sampler | 1
    x ^= x >> 12
    x ^= x << 25
    x ^= x >> 27
    sampler.random = x
    return (x * <uint64_t> 0x2545F4914F6CDD1D) >> 32


cdef bint sampler_chooses(Sampler *sampler, int32_t every) noexcept nogil:
    """Returns whether to sample this request. The distance to the next sample is random, from 1 to 2 * every - 1, so
    its mean is `every`. With a fixed distance, a client that repeats its requests with the same period would be sampled
    always or never."""
    debug_assert(every >= 1, b"requests are sampled at a rate of 1 in 1 or more")
    if sampler.every != every:
        sampler.every = every
        sampler.left = gap(sampler)
    debug_assert(1 <= sampler.left <= 2 * <int64_t> every - 1, b"the next sample is less than two rates away")
    sampler.left -= 1
    if sampler.left > 0:
        return False
    sampler.left = gap(sampler)
    return True


cdef inline int32_t gap(Sampler *sampler) noexcept nogil:
    return <int32_t> (1 + next_random(sampler) % (2 * <uint64_t> sampler.every - 1))


cdef Sample *sample_new(int32_t every, const uint8_t *client_id, int32_t client_id_size) noexcept nogil:
    cdef Sample *sample = <Sample *> calloc(1, sizeof(Sample))
    cdef int32_t size = min(client_id_size, SAMPLE_CLIENT_BYTES)
    if sample == NULL:
        return NULL
    sample.sampled_of = every
    sample.client_id_size = -1
    if client_id == NULL:
        return sample
    sample.is_cut = size < client_id_size
    while sample.is_cut and size > 0 and client_id[size] & CONTINUATION_MASK == CONTINUATION:
        size -= 1  # do not cut within a character
    memcpy(sample.client_id, client_id, size)
    sample.client_id_size = <int16_t> size
    return sample


cdef SampleRing *ring_added(SampleRing **rings) noexcept nogil:
    """Creates a ring and adds it to the list. Several processors may do this at the same time."""
    cdef SampleRing *ring = <SampleRing *> calloc(1, sizeof(SampleRing))
    if ring == NULL:
        return NULL
    owner_take(&ring.owner)
    while True:
        ring.next = <SampleRing *> load_ptr(<void **> rings)
        if cas_ptr(<void **> rings, ring.next, ring):
            return ring


cdef bint sampler_keep(Sampler *sampler, SampleRing **rings, const Sample *sample) noexcept nogil:
    cdef SampleRing *ring = sampler.ring
    cdef Sample *slot
    cdef int64_t held
    if ring == NULL:
        ring = sampler.ring = ring_added(rings)
        if ring == NULL:
            return False
    debug_assert(owner_is_me(&ring.owner), b"only its processor writes to a ring of samples")
    held = ring.written - load64(&ring.taken)
    debug_assert(0 <= held <= SAMPLE_SLOTS, b"a ring of samples holds no more than it has slots")
    if held == SAMPLE_SLOTS:
        ring.dropped += 1
        return False
    slot = &ring.slots[ring.written & (SAMPLE_SLOTS - 1)]
    slot[0] = sample[0]
    slot.dropped = ring.dropped
    ring.dropped = 0
    store64(&ring.written, ring.written + 1)
    return True


cdef void rings_free(SampleRing *first) noexcept nogil:
    cdef SampleRing *next
    while first != NULL:
        next = first.next
        free(first)
        first = next


cdef list samples_taken(SampleRing *first, int64_t now_ns, int64_t most):
    cdef list found = []
    cdef SampleRing *ring = first
    cdef int64_t at, end
    while ring != NULL:
        at = ring.taken
        end = min(load64(&ring.written), at + most - len(found))
        debug_assert(at <= end, b"no sample is taken twice")
        try:
            while at < end:
                found.append(fields_of(&ring.slots[at & (SAMPLE_SLOTS - 1)], now_ns))
                at += 1
        finally:
            store64(&ring.taken, at)
        ring = ring.next
    return found


cdef tuple fields_of(const Sample *sample, int64_t now_ns):
    cdef object client_id = None
    if sample.client_id_size >= 0:
        client_id = (<const char *> sample.client_id)[:sample.client_id_size].decode("utf-8", "replace")
        if sample.is_cut:
            client_id += "..."
    return (
        now_ns - sample.sent_ns, sample.api_key, sample.api_version, sample.correlation_id, client_id, sample.listener,
        sample.sampled_of, sample.dropped, sample.total_ns, sample.stages_ns[0], sample.stages_ns[1],
        sample.stages_ns[2], sample.stages_ns[3], sample.stages_ns[4], sample.stages_ns[5],
    )
