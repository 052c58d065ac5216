"""gzip, snappy, lz4 and zstd bodies of record batches, bounded, without the GIL.

A CodecContext belongs to one thread at a time. It keeps the libraries' own contexts and one scratch block, so that
after a while it allocates nothing. To inflate, call `inflate_begin`, then `inflate_next` until it returns 0 (the end)
or a negative CodecStatus. A chunk lies in the scratch block and is valid until the next call on the same context; the
source must not move meanwhile. The first use of a codec opens its library. If the library is missing, cramjam does the
work under the GIL (see `codec_needs_gil`), so never call this while you hold a native lock.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.base.cursor cimport Writer

cdef enum CodecId:  # the ids in a batch's attributes
    CODEC_NONE = 0
    CODEC_GZIP = 1
    CODEC_SNAPPY = 2
    CODEC_LZ4 = 3
    CODEC_ZSTD = 4

cdef enum CodecStatus:
    CODEC_OK = 0
    CODEC_CORRUPT = -1          # malformed, truncated, or bytes left after the end
    CODEC_TOO_LARGE = -2        # over InflateLimits, or the Writer's limit
    CODEC_NO_MEMORY = -3
    CODEC_UNKNOWN = -4          # no such codec id, or not a level of it
    CODEC_UNAVAILABLE = -5      # neither the library nor cramjam is installed

ctypedef struct InflateLimits:
    int64_t max_bytes           # a body never inflates beyond this
    int64_t ratio_floor_bytes   # up to this much output the ratio is not limited
    int32_t max_ratio           # inflated : stored

ctypedef struct CodecContext:
    # Contexts of the libraries, made on first use.
    void *gzip_reader
    void *gzip_writer
    int gzip_writer_level
    void *lz4_reader
    void *lz4_writer
    void *zstd_reader
    void *zstd_writer
    void *snappy_table
    uint8_t *scratch            # the chunk last given
    size_t scratch_capacity
    # The body that is being inflated.
    int codec
    int state
    const uint8_t *source
    const uint8_t *source_end
    int64_t whole_bytes          # rest of a body that the fallback inflated into the scratch as a whole
    int64_t inflated_bytes
    int64_t limit_bytes

# The default limits: 128 MiB, and 1,000 : 1 above 8 MiB.
cdef const InflateLimits *default_inflate_limits() noexcept nogil

cdef CodecContext *codec_context_new() noexcept nogil   # NULL: no memory
cdef void codec_context_free(CodecContext *context) noexcept nogil

cdef int inflate_begin(
    CodecContext *context, int codec, const void *source, size_t size, const InflateLimits *limits
) noexcept nogil
cdef int64_t inflate_next(CodecContext *context, const uint8_t **chunk) noexcept nogil
# Inflates the whole body and appends it to `out`, whose limit holds too.
cdef int inflate_all(
    CodecContext *context, int codec, const void *source, size_t size, const InflateLimits *limits, Writer *out
) noexcept nogil
# `level` is Kafka's (compression.gzip.level, .lz4.level, .zstd.level); LEVEL_DEFAULT is each codec's default there.
cdef enum:
    LEVEL_DEFAULT = -2147483648
cdef int deflate_all(
    CodecContext *context, int codec, int level, const void *source, size_t size, Writer *out
) noexcept nogil
# Whether the codec's library is missing, so that cramjam does its work under the GIL.
cdef bint codec_needs_gil(int codec) noexcept nogil
# The name of the C library that inflates or deflates a codec's bodies, with its file and its version (NULL where
# unknown). NULL: the library is missing; our own code does snappy, and cramjam does the others.
cdef const char *codec_library(int codec, bint inflates, const char **path, const char **version) noexcept nogil
