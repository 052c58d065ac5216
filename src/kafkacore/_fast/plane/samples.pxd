"""Samples of requests for the sampled request log. About one of every N requests is sampled: a sample says how long
each stage of the request took.

A processor is a thread that serves connections, and a plane is a group of listeners (plane.pxd). A processor has a
sampler for each plane that it serves. The sampler chooses requests as they arrive, because a request can release its
bytes, which contain the client id, before it is answered. When the answer has been sent, the processor copies the
sample into a ring. The ring has one writer, which is its processor, and one reader at a time, which holds the GIL. The
writer and the reader never wait for each other. While the ring is full, samples are dropped and counted. A ring belongs
to its plane and is freed with it.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from kafkacore._fast.base.assertions cimport Owner

cdef enum:
    SAMPLE_SLOTS = 4096        # a power of two
    SAMPLE_CLIENT_BYTES = 48   # a longer client id is cut
    MAX_SAMPLE_EVERY = 1000000
    SAMPLE_STAGES = 6          # the same as `STAGES` in plane.pxd

ctypedef struct Sample:
    int64_t sent_ns            # when the last byte was sent, by the plane's clock
    int64_t total_ns
    int64_t stages_ns[SAMPLE_STAGES]
    int64_t dropped            # the number of samples that this ring has dropped since the previous sample
    int32_t sampled_of         # one of this many requests was sampled
    int32_t correlation_id
    int32_t listener
    int16_t api_key
    int16_t api_version
    int16_t client_id_size     # the size of `client_id`; -1 if the request has none
    bint is_cut                # whether the client id was longer than SAMPLE_CLIENT_BYTES
    uint8_t client_id[SAMPLE_CLIENT_BYTES]

ctypedef struct SampleRing:
    SampleRing *next           # the next ring of the same plane; never changes
    Owner owner                # the processor's thread, for assertions
    int64_t written            # atomic; only the processor changes it
    int64_t taken              # atomic; only the reader changes it
    int64_t dropped            # samples dropped since the last sample was written; only the processor uses it
    Sample slots[SAMPLE_SLOTS]

# Chooses requests of one plane on one processor. Only this processor uses the `Sampler`.
ctypedef struct Sampler:
    SampleRing *ring           # created for the first sample
    int32_t every              # the argument `every` when `left` was drawn
    int32_t left               # requests until the next sample
    uint64_t random

# Returns whether to sample this request. `every` is at least 1. On average, one of `every` requests is sampled.
cdef bint sampler_chooses(Sampler *sampler, int32_t every) noexcept nogil
# Returns a new sample with the rate and the client id, or NULL if no memory is left. The caller must free the sample.
cdef Sample *sample_new(int32_t every, const uint8_t *client_id, int32_t client_id_size) noexcept nogil
# Copies the sample into the sampler's ring. The first sample creates the ring and adds it to the front of the list
# `rings`. Returns False if the sample is dropped, because there is no room or no memory.
cdef bint sampler_keep(Sampler *sampler, SampleRing **rings, const Sample *sample) noexcept nogil
cdef void rings_free(SampleRing *first) noexcept nogil
# Removes and returns at most `most` samples from the rings. `NativePlane.take_samples` describes the tuples.
cdef list samples_taken(SampleRing *first, int64_t now_ns, int64_t most)
