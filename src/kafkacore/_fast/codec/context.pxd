"""Inflates and deflates gzip, snappy, lz4 and zstd bodies of record batches, within limits and without the GIL.

A `CodecContext` belongs to one thread at a time. It keeps the libraries' own contexts and one scratch block. Once these
exist, it allocates nothing. To inflate a body, call `inflate_begin`, and then `inflate_next` until it returns 0 (the
end) or a negative `CodecStatus`. Each call returns one chunk of the output. The chunk is in the scratch block, and is
valid until the next call on the same context. The compressed bytes must not move until the last chunk has been read.
The first use of a codec opens its library. If the library is missing, the Python package cramjam does the work, and the
call takes the GIL (see `codec_needs_gil`). So never call these functions while you hold a native lock.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.base.cursor cimport Writer

cdef enum CodecId:  # codec ids in the attributes of a batch
    CODEC_NONE = 0
    CODEC_GZIP = 1
    CODEC_SNAPPY = 2
    CODEC_LZ4 = 3
    CODEC_ZSTD = 4

cdef enum CodecStatus:
    CODEC_OK = 0
    CODEC_CORRUPT = -1          # the body is malformed or truncated, or bytes follow its end
    CODEC_TOO_LARGE = -2        # the output exceeds the `InflateLimits` or the limit of the `Writer`
    CODEC_NO_MEMORY = -3
    CODEC_UNKNOWN = -4          # the codec id does not exist, or the codec does not have this level
    CODEC_UNAVAILABLE = -5      # neither the C library nor cramjam is installed, or cramjam fails
    CODEC_NO_FILE = -6          # no file descriptor is free to open the C library; a later call tries again

ctypedef struct InflateLimits:
    int64_t max_bytes           # a body never inflates beyond this size
    int64_t ratio_floor_bytes   # up to this inflated size, the ratio is not limited
    int32_t max_ratio           # inflated size : stored size

ctypedef struct CodecContext:
    # The contexts of the libraries, created on first use.
    void *gzip_reader
    void *gzip_writer
    int gzip_writer_level
    void *lz4_reader
    void *lz4_writer
    void *zstd_reader
    void *zstd_writer
    void *snappy_table
    uint8_t *scratch            # the last chunk that was returned
    size_t scratch_capacity
    # The body that is being inflated.
    int codec
    int state
    const uint8_t *source
    const uint8_t *source_end
    int64_t whole_bytes  # the bytes from cramjam in `scratch` that `inflate_next` has not returned yet
    int64_t inflated_bytes
    int64_t limit_bytes

# The default limits are 128 MiB and, above 8 MiB, a ratio of 1,000 : 1.
cdef const InflateLimits *default_inflate_limits() noexcept nogil

cdef CodecContext *codec_context_new() noexcept nogil   # returns NULL if no memory is left
cdef void codec_context_free(CodecContext *context) noexcept nogil

cdef int inflate_begin(
    CodecContext *context, int codec, const void *source, size_t size, const InflateLimits *limits
) noexcept nogil
cdef int64_t inflate_next(CodecContext *context, const uint8_t **chunk) noexcept nogil
# Inflates the whole body and appends it to `out`. `out.limit` applies too.
cdef int inflate_all(
    CodecContext *context, int codec, const void *source, size_t size, const InflateLimits *limits, Writer *out
) noexcept nogil
# `level` is the value of compression.gzip.level, compression.lz4.level or compression.zstd.level. LEVEL_DEFAULT selects
# the default of that key.
cdef enum:
    LEVEL_DEFAULT = -2147483648
cdef int deflate_all(
    CodecContext *context, int codec, int level, const void *source, size_t size, Writer *out
) noexcept nogil
# Returns whether the codec's library is missing. In that case cramjam does the work under the GIL.
cdef bint codec_needs_gil(int codec) noexcept nogil
# Returns the name of the C library that inflates or deflates a codec's bodies. Sets `path` and `version` to the
# library's file and version, or to NULL if unknown. Returns NULL if the library is missing. In that case our own code
# does snappy, and cramjam does the other codecs.
cdef const char *codec_library(int codec, bint inflates, const char **path, const char **version) noexcept nogil
