"""Implements Kafka's four codecs with the C libraries: the framings, the limits, and one scratch block for each
context. `compression.pyx` is the Python interface.

Kafka's framings are:
- gzip: members (RFC 1952);
- snappy: snappy-java's stream (a magic number, two versions, then blocks with a big-endian length before each), or one
  raw snappy block;
- lz4: one LZ4 frame of independent blocks with a correct header checksum (KIP-57);
- zstd: frames (RFC 8878, KIP-110).
"""

import os
from importlib.machinery import EXTENSION_SUFFIXES
import sys

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t, uint16_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from kafkacore._fast.base.atomics cimport add64, load64
from kafkacore._fast.codec.library cimport (
    Z_MEM_ERROR, Z_OK, Z_STREAM_END, ZLIB_VERSION, Lz4Preferences, ZstdIn, ZstdOut, ZStream, is_missing, library_of,
    lz4, open_library, set_library_places, snappy, zlib, zstd,
)
from kafkacore._fast.base.cursor cimport Writer, be32, put32, reserve
from kafkacore._fast.codec.gunzip cimport (
    GUNZIP_BEFORE_FIRST, GUNZIP_NO_MEMORY, Gunzip, gunzip_init, gunzip_next,
)
from kafkacore._fast.codec.snappy cimport (
    SNAPPY_HASH_BITS, snappy_bound, snappy_deflate, snappy_inflate, snappy_promised,
)

cdef enum:
    # The size of a chunk: the output of one zstd step, or two of the lz4 blocks that Kafka writes.
    SCRATCH_BYTES = 131072
    SCRATCH_KEPT_BYTES = 2097152  # if a snappy block needs more than this, the next body frees the excess
    SNAPPY_BLOCK_BYTES = 32768   # the block size of snappy-java's streams
    SNAPPY_HEADER_BYTES = 16
    SNAPPY_MAX_RATIO = 22        # one element inflates 3 bytes to at most 64
    LZ4_HEADER_BYTES = 7         # magic, flags, block size, checksum
    LZ4_VERSION = 100
    # The checked bits of the flag byte: version, block independence, reserved bit, dictionary id.
    LZ4_FLAGS_ASKED = 0xE3
    LZ4_FLAGS_KAFKA = 0x60       # version 1 with independent blocks; reserved bit and dictionary id are not set
    LZ4_KAFKA_DEFAULT = 9
    LZ4_HC_LEAST = 3
    ZSTD_RESET_SESSION = 1
    ZSTD_WINDOW_LOG_MAX = 100    # the numbers of zstd's parameters
    ZSTD_COMPRESSION_LEVEL = 100
    MAX_WINDOW_LOG = 27          # 128 MiB: level 22 needs this window, and it is zstd's default limit
    ZSTD_KAFKA_DEFAULT = 3
    GZIP_WINDOW_BITS = 31        # a window of 15 bits; 16 is added to select the gzip framing
    GZIP_MEMORY_LEVEL = 8
    GZIP_LIBRARY_DEFAULT = 6     # the level that zlib uses for -1
    Z_FINISH = 4
    Z_DEFLATED = 8

cdef enum InflateState:
    ENDED = 0
    READING = 1
    BETWEEN = 2                  # a zstd frame is complete; another frame may follow
    RAW_SNAPPY = 3
    WHOLE = 4                    # the fallback put the whole body into the scratch
    FAILED = 5

cdef const char *SNAPPY_MAGIC = b"\x82SNAPPY\0"

cdef InflateLimits default_limits
default_limits.max_bytes = 128 << 20
default_limits.ratio_floor_bytes = 8 << 20
default_limits.max_ratio = 1000

cdef int64_t made_contexts = 0

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


def zlib_ng_extension():
    """Returns the path of the extension module in the package `zlib_ng`, which contains all of zlib-ng. Returns an
    empty string if the package is not installed.

    The function finds the package without importing it. An import would slow every start only for the sake of gzip.
    """
    name = "zlib_ng" + EXTENSION_SUFFIXES[0]  # built for this Python on this processor
    for directory in sys.path:
        path = os.path.join(directory, "zlib_ng", name)
        if os.path.exists(path):
            return path
    return ""


set_library_places(
    os.fsencode(os.path.join(PACKAGE, "_libs")), os.fsencode(zlib_ng_extension())
)


cdef const InflateLimits *default_inflate_limits() noexcept nogil:
    return &default_limits


cdef bint codec_needs_gil(int codec) noexcept nogil:
    return codec != CODEC_NONE and codec != CODEC_SNAPPY and not open_library(codec)


cdef const char *codec_library(int codec, bint inflates, const char **path, const char **version) noexcept nogil:
    path[0] = version[0] = NULL
    return library_of(codec, inflates, path, version) if open_library(codec) else NULL


cdef CodecContext *codec_context_new() noexcept nogil:
    cdef CodecContext *context = <CodecContext *> calloc(1, sizeof(CodecContext))
    if context != NULL:
        add64(&made_contexts, 1)
    return context


cdef void codec_context_free(CodecContext *context) noexcept nogil:
    if context == NULL:
        return
    if context.gzip_reader != NULL:
        zlib.inflate_end(&(<Gunzip *> context.gzip_reader).stream)
        free(context.gzip_reader)
    free_gzip_writer(context)
    if context.lz4_reader != NULL:
        lz4.free_reader(context.lz4_reader)
    if context.lz4_writer != NULL:
        lz4.free_writer(context.lz4_writer)
    if context.zstd_reader != NULL:
        zstd.free_reader(context.zstd_reader)
    if context.zstd_writer != NULL:
        zstd.free_writer(context.zstd_writer)
    free(context.snappy_table)
    free(context.scratch)
    free(context)
    add64(&made_contexts, -1)


cdef void free_gzip_writer(CodecContext *context) noexcept nogil:
    if context.gzip_writer != NULL:
        zlib.deflate_end(<ZStream *> context.gzip_writer)
        free(context.gzip_writer)
        context.gzip_writer = NULL


cdef int need_scratch(CodecContext *context, size_t size) noexcept nogil:
    """Makes the scratch block at least `size` bytes large. The previous content of the block may be lost."""
    cdef uint8_t *scratch
    if context.scratch_capacity >= size:
        return CODEC_OK
    scratch = <uint8_t *> malloc(size)
    if scratch == NULL:
        return CODEC_NO_MEMORY
    free(context.scratch)
    context.scratch = scratch
    context.scratch_capacity = size
    return CODEC_OK


# --- fallback without the C libraries --------------------------------------------------------------------------------

# No exception may leave these functions, because Cython would then return 0, which is CODEC_OK.

cdef int import_failed(int codec) noexcept:
    # The import fails with OSError or ImportError if no file descriptor is free.
    return CODEC_UNAVAILABLE if is_missing(codec) else CODEC_NO_FILE


cdef int begin_fallback(CodecContext *context) noexcept with gil:
    """Inflates the whole body into the scratch with cramjam. The whole body is then one chunk."""
    cdef size_t size = context.source_end - context.source
    cdef Py_buffer view
    cdef int status
    try:
        from kafkacore._fast.codec import cramjam_library as cramjam_codec
    except MemoryError:
        return CODEC_NO_MEMORY
    except Exception:
        return import_failed(context.codec)
    try:
        body = cramjam_codec.inflate(
            context.codec, PyMemoryView_FromMemory(<char *> context.source, size, PyBUF_READ), context.limit_bytes
        )
    except MemoryError:
        return CODEC_NO_MEMORY
    except cramjam_codec.TooLargeError:
        return CODEC_TOO_LARGE
    except Exception:  # cramjam.DecompressionError, or an error of a future version
        return CODEC_CORRUPT
    try:
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    except Exception:
        return CODEC_UNAVAILABLE
    status = need_scratch(context, view.len)
    if status == CODEC_OK:
        memcpy(context.scratch, view.buf, view.len)
        context.whole_bytes = view.len
        context.state = WHOLE
    PyBuffer_Release(&view)
    return status


cdef int deflate_fallback(int codec, int level, const uint8_t *source, size_t size, Writer *out) noexcept with gil:
    cdef Py_buffer view
    cdef int status
    try:
        from kafkacore._fast.codec import cramjam_library as cramjam_codec
    except MemoryError:
        return CODEC_NO_MEMORY
    except Exception:
        return import_failed(codec)
    if codec == CODEC_LZ4:
        level = lz4_level(level)
    elif level == LEVEL_DEFAULT or level == -1:
        level = ZSTD_KAFKA_DEFAULT if codec == CODEC_ZSTD else GZIP_LIBRARY_DEFAULT
    try:
        packed = cramjam_codec.deflate(codec, level, PyMemoryView_FromMemory(<char *> source, size, PyBUF_READ))
    except MemoryError:
        return CODEC_NO_MEMORY
    except Exception:  # a level that the installed cramjam does not support
        return CODEC_UNKNOWN
    try:
        PyObject_GetBuffer(packed, &view, PyBUF_SIMPLE)
    except Exception:
        return CODEC_UNAVAILABLE
    status = append(out, view.buf, view.len)
    PyBuffer_Release(&view)
    return status


# --- inflating -----------------------------------------------------------------------------------------------------

cdef int begin_gzip(CodecContext *context) noexcept nogil:
    cdef Gunzip *gunzip = <Gunzip *> context.gzip_reader
    if gunzip == NULL:
        gunzip = <Gunzip *> calloc(1, sizeof(Gunzip))
        if gunzip == NULL or not gunzip_init(gunzip):
            free(gunzip)
            return CODEC_NO_MEMORY
        context.gzip_reader = gunzip
    gunzip.state = GUNZIP_BEFORE_FIRST
    context.state = READING
    return CODEC_OK


cdef inline bint kafka_reads_lz4(const uint8_t *source, size_t size) noexcept nogil:
    """Returns whether Kafka's consumers can read this LZ4 frame. Consumers need independent blocks and no dictionary,
    but liblz4 accepts other frames too."""
    return size >= LZ4_HEADER_BYTES and source[4] & LZ4_FLAGS_ASKED == LZ4_FLAGS_KAFKA


cdef int begin_lz4(CodecContext *context) noexcept nogil:
    if context.lz4_reader == NULL:
        if lz4.is_error(lz4.new_reader(&context.lz4_reader, LZ4_VERSION)):
            context.lz4_reader = NULL
            return CODEC_NO_MEMORY
    else:
        lz4.reset_reader(context.lz4_reader)
    context.state = READING
    return CODEC_OK


cdef int begin_zstd(CodecContext *context) noexcept nogil:
    if context.zstd_reader == NULL:
        context.zstd_reader = zstd.new_reader()
        if context.zstd_reader == NULL:
            return CODEC_NO_MEMORY
        zstd.set_reader(context.zstd_reader, ZSTD_WINDOW_LOG_MAX, MAX_WINDOW_LOG)
    else:
        zstd.reset_reader(context.zstd_reader, ZSTD_RESET_SESSION)
    context.state = READING
    return CODEC_OK


cdef int begin_snappy(CodecContext *context) noexcept nogil:
    """Begins to inflate snappy-java's stream. A body without the magic number of that stream is one raw block, as in
    snappy-java."""
    if (
        context.source_end - context.source >= SNAPPY_HEADER_BYTES
        and memcmp(context.source, SNAPPY_MAGIC, 8) == 0
    ):
        context.source += SNAPPY_HEADER_BYTES
        context.state = READING
    else:
        context.state = RAW_SNAPPY
    return CODEC_OK


cdef int inflate_begin(
    CodecContext *context, int codec, const void *source, size_t size, const InflateLimits *limits
) noexcept nogil:
    cdef int64_t by_ratio = <int64_t> size * limits.max_ratio
    context.state = FAILED  # until a body can be read
    if codec < CODEC_GZIP or codec > CODEC_ZSTD:
        return CODEC_UNKNOWN
    context.codec = codec
    context.source = <const uint8_t *> source
    context.source_end = context.source + size
    context.inflated_bytes = 0
    context.limit_bytes = min(limits.max_bytes, max(by_ratio, limits.ratio_floor_bytes))
    if context.scratch_capacity > SCRATCH_KEPT_BYTES:
        free(context.scratch)
        context.scratch = NULL
        context.scratch_capacity = 0
    if need_scratch(context, SCRATCH_BYTES) != CODEC_OK:
        return CODEC_NO_MEMORY
    if codec == CODEC_SNAPPY:
        return begin_snappy(context)
    if codec == CODEC_LZ4 and not kafka_reads_lz4(context.source, size):
        return CODEC_CORRUPT
    if not open_library(codec):
        return begin_fallback(context)
    if codec == CODEC_GZIP:
        return begin_gzip(context)
    if codec == CODEC_LZ4:
        return begin_lz4(context)
    return begin_zstd(context)


cdef int64_t next_lz4(CodecContext *context) noexcept nogil:
    cdef size_t taken, given, hint
    cdef size_t filled = 0
    while filled < SCRATCH_BYTES:
        taken = context.source_end - context.source
        given = SCRATCH_BYTES - filled
        hint = lz4.read(context.lz4_reader, context.scratch + filled, &given, context.source, &taken, NULL)
        if lz4.is_error(hint):
            return CODEC_CORRUPT
        context.source += taken
        filled += given
        if hint == 0:
            context.state = ENDED
            return <int64_t> filled if context.source == context.source_end else CODEC_CORRUPT
        if taken == 0 and given == 0:
            return CODEC_CORRUPT  # the frame continues after the end of the body
    return <int64_t> filled


cdef int64_t next_zstd(CodecContext *context) noexcept nogil:
    cdef ZstdIn source
    cdef ZstdOut out
    cdef size_t hint, before
    source.src = context.source
    source.size = context.source_end - context.source
    source.pos = 0
    out.dst = context.scratch
    out.size = SCRATCH_BYTES
    out.pos = 0
    while out.pos < out.size:
        if source.pos == source.size and context.state == BETWEEN:
            context.state = ENDED
            break
        before = source.pos + out.pos
        hint = zstd.read(context.zstd_reader, &out, &source)
        if zstd.is_error(hint):
            return CODEC_CORRUPT
        context.state = READING if hint else BETWEEN
        if hint and source.pos + out.pos == before:
            return CODEC_CORRUPT
    context.source += source.pos
    return <int64_t> out.pos


cdef int64_t snappy_block(CodecContext *context, const uint8_t *block, size_t size) noexcept nogil:
    """Inflates one raw block into the scratch. Compares the block's declared size with the limit first."""
    cdef const uint8_t *at = block
    cdef const uint8_t *end = block + size
    cdef int64_t promised = snappy_promised(&at, end)
    cdef size_t written
    if promised < 0 or promised > <int64_t> size * SNAPPY_MAX_RATIO:
        return CODEC_CORRUPT
    if promised > context.limit_bytes - context.inflated_bytes:
        return CODEC_TOO_LARGE
    if need_scratch(context, promised) != CODEC_OK:
        return CODEC_NO_MEMORY
    if not open_library(CODEC_SNAPPY):
        return promised if snappy_inflate(at, end, context.scratch, context.scratch + promised) == 0 else CODEC_CORRUPT
    written = context.scratch_capacity
    if snappy.uncompress(<const char *> block, size, <char *> context.scratch, &written) != 0:
        return CODEC_CORRUPT
    return promised if <int64_t> written == promised else CODEC_CORRUPT


cdef int64_t next_snappy(CodecContext *context) noexcept nogil:
    cdef int64_t given
    cdef size_t size
    if context.state == RAW_SNAPPY:
        context.state = ENDED
        return snappy_block(context, context.source, context.source_end - context.source)
    while context.source < context.source_end:
        if context.source_end - context.source < 4:
            return CODEC_CORRUPT
        size = be32(context.source)
        if context.source_end - context.source >= SNAPPY_HEADER_BYTES and memcmp(context.source, SNAPPY_MAGIC, 8) == 0:
            context.source += SNAPPY_HEADER_BYTES  # another stream follows the previous one
            continue
        context.source += 4
        if size > <size_t> (context.source_end - context.source):
            return CODEC_CORRUPT
        given = snappy_block(context, context.source, size)
        context.source += size
        if given != 0:
            return given
    context.state = ENDED
    return 0


cdef int64_t inflate_next(CodecContext *context, const uint8_t **chunk) noexcept nogil:
    cdef int64_t given
    if context.state == ENDED:
        return 0
    if context.state == FAILED:
        return CODEC_CORRUPT
    if context.state == WHOLE:
        context.state = ENDED
        given = context.whole_bytes
    elif context.codec == CODEC_GZIP:
        given = gunzip_next(
            <Gunzip *> context.gzip_reader, context.scratch, SCRATCH_BYTES, &context.source, context.source_end
        )
        if given < 0:
            given = CODEC_NO_MEMORY if given == GUNZIP_NO_MEMORY else CODEC_CORRUPT
    elif context.codec == CODEC_LZ4:
        given = next_lz4(context)
    elif context.codec == CODEC_ZSTD:
        given = next_zstd(context)
    else:
        given = next_snappy(context)
    if given > context.limit_bytes - context.inflated_bytes:
        given = CODEC_TOO_LARGE
    if given < 0:
        context.state = FAILED
        return given
    context.inflated_bytes += given
    chunk[0] = context.scratch
    return given


cdef int inflate_all(
    CodecContext *context, int codec, const void *source, size_t size, const InflateLimits *limits, Writer *out
) noexcept nogil:
    cdef const uint8_t *chunk = NULL
    cdef int64_t given
    cdef int status = inflate_begin(context, codec, source, size, limits)
    while status == CODEC_OK:
        given = inflate_next(context, &chunk)
        if given <= 0:
            return <int> given
        status = append(out, chunk, given)
    return status


cdef int append(Writer *out, const void *data, size_t size) noexcept nogil:
    cdef uint8_t *room = reserve(out, size)
    if room == NULL:
        return CODEC_TOO_LARGE if size > out.limit - out.size else CODEC_NO_MEMORY
    memcpy(room, data, size)
    return CODEC_OK


# --- deflating -----------------------------------------------------------------------------------------------------
# Each function reserves room for the longest output of its codec. Then it sets out.size to the size that it has
# written.

cdef int deflate_gzip(CodecContext *context, int level, const uint8_t *source, size_t size, Writer *out) noexcept nogil:
    cdef ZStream *stream = <ZStream *> context.gzip_writer
    cdef size_t start = out.size
    cdef size_t bound
    cdef int status
    if level == LEVEL_DEFAULT:
        level = -1
    if stream != NULL and context.gzip_writer_level != level:
        free_gzip_writer(context)
        stream = NULL
    if stream == NULL:
        stream = <ZStream *> calloc(1, sizeof(ZStream))
        if stream == NULL:
            return CODEC_NO_MEMORY
        status = zlib.deflate_init(
            stream, level, Z_DEFLATED, GZIP_WINDOW_BITS, GZIP_MEMORY_LEVEL, 0, ZLIB_VERSION, sizeof(ZStream)
        )
        if status != Z_OK:
            free(stream)
            return CODEC_NO_MEMORY if status == Z_MEM_ERROR else CODEC_UNKNOWN
        context.gzip_writer = stream
        context.gzip_writer_level = level
    else:
        zlib.deflate_reset(stream)
    bound = zlib.deflate_bound(stream, size)
    stream.next_out = reserve(out, bound)
    if stream.next_out == NULL:
        return CODEC_TOO_LARGE
    stream.avail_out = <unsigned> bound
    stream.next_in = source
    stream.avail_in = <unsigned> size
    if zlib.deflate(stream, Z_FINISH) != Z_STREAM_END:
        return CODEC_NO_MEMORY
    out.size = start + bound - stream.avail_out
    return CODEC_OK


cdef inline int lz4_level(int level) noexcept nogil:
    """Returns the level for liblz4. Kafka's default level selects the fast compressor of liblz4. Any other level
    selects its high-compression mode."""
    return 0 if level == LEVEL_DEFAULT or level == LZ4_KAFKA_DEFAULT else max(level, LZ4_HC_LEAST)


cdef int deflate_lz4(CodecContext *context, int level, const uint8_t *source, size_t size, Writer *out) noexcept nogil:
    cdef Lz4Preferences preferences
    cdef size_t start = out.size
    cdef size_t bound, written, step
    cdef uint8_t *room
    memset(&preferences, 0, sizeof(preferences))
    preferences.block_size_id = 4  # 64 KiB
    preferences.block_mode = 1     # independent
    preferences.auto_flush = 1
    preferences.level = lz4_level(level)
    if context.lz4_writer == NULL and lz4.is_error(lz4.new_writer(&context.lz4_writer, LZ4_VERSION)):
        context.lz4_writer = NULL
        return CODEC_NO_MEMORY
    bound = lz4.bound(size, &preferences)
    room = reserve(out, bound)
    if room == NULL:
        return CODEC_TOO_LARGE
    written = lz4.begin(context.lz4_writer, room, bound, &preferences)
    if lz4.is_error(written):
        return CODEC_NO_MEMORY
    step = lz4.update(context.lz4_writer, room + written, bound - written, source, size, NULL)
    if lz4.is_error(step):
        return CODEC_NO_MEMORY
    written += step
    step = lz4.end(context.lz4_writer, room + written, bound - written, NULL)
    if lz4.is_error(step):
        return CODEC_NO_MEMORY
    out.size = start + written + step
    return CODEC_OK


cdef int deflate_zstd(CodecContext *context, int level, const uint8_t *source, size_t size, Writer *out) noexcept nogil:
    cdef size_t start = out.size
    cdef size_t bound = zstd.bound(size)
    cdef size_t written
    cdef uint8_t *room = reserve(out, bound)
    if room == NULL:
        return CODEC_TOO_LARGE
    if context.zstd_writer == NULL:
        context.zstd_writer = zstd.new_writer()
        if context.zstd_writer == NULL:
            return CODEC_NO_MEMORY
    if level == LEVEL_DEFAULT:
        level = ZSTD_KAFKA_DEFAULT
    if zstd.is_error(zstd.set_writer(context.zstd_writer, ZSTD_COMPRESSION_LEVEL, level)):
        return CODEC_UNKNOWN
    written = zstd.write(context.zstd_writer, room, bound, source, size)
    if zstd.is_error(written):
        return CODEC_NO_MEMORY
    out.size = start + written
    return CODEC_OK


cdef int deflate_snappy(CodecContext *context, const uint8_t *source, size_t size, Writer *out) noexcept nogil:
    """Writes snappy-java's stream: the magic number, the version, the lowest version that can read the stream, then
    blocks of 32 KiB."""
    cdef uint8_t *room = reserve(out, SNAPPY_HEADER_BYTES)
    cdef size_t part, start, written
    if room == NULL:
        return CODEC_TOO_LARGE
    memcpy(room, SNAPPY_MAGIC, 8)
    put32(room + 8, 1)
    put32(room + 12, 1)
    if context.snappy_table == NULL:
        context.snappy_table = malloc(sizeof(uint16_t) << SNAPPY_HASH_BITS)
        if context.snappy_table == NULL:
            return CODEC_NO_MEMORY
    while size:
        part = min(size, <size_t> SNAPPY_BLOCK_BYTES)
        start = out.size
        room = reserve(out, 4 + snappy_bound(part))
        if room == NULL:
            return CODEC_TOO_LARGE
        written = snappy_bound(part)
        if not open_library(CODEC_SNAPPY):
            written = snappy_deflate(source, part, room + 4, <uint16_t *> context.snappy_table)
        elif snappy.compress(<const char *> source, part, <char *> room + 4, &written) != 0:
            return CODEC_NO_MEMORY
        put32(room, written)
        out.size = start + 4 + written
        source += part
        size -= part
    return CODEC_OK


cdef bint kafka_has_level(int codec, int level) noexcept nogil:
    """Returns whether `level` is in the range of compression.gzip.level, .lz4.level or .zstd.level. Snappy has no
    level."""
    if level == LEVEL_DEFAULT:
        return True
    if codec == CODEC_GZIP:
        return level == -1 or 1 <= level <= 9
    if codec == CODEC_LZ4:
        return 1 <= level <= 17
    return -131072 <= level <= 22


cdef int deflate_all(
    CodecContext *context, int codec, int level, const void *source, size_t size, Writer *out
) noexcept nogil:
    cdef const uint8_t *data = <const uint8_t *> source
    if size > 0x7FFFFFFF:
        return CODEC_TOO_LARGE
    if codec == CODEC_SNAPPY:
        return deflate_snappy(context, data, size, out)
    if codec < CODEC_GZIP or codec > CODEC_ZSTD or not kafka_has_level(codec, level):
        return CODEC_UNKNOWN
    if not open_library(codec):
        return deflate_fallback(codec, level, data, size, out)
    if codec == CODEC_GZIP:
        return deflate_gzip(context, level, data, size, out)
    if codec == CODEC_LZ4:
        return deflate_lz4(context, level, data, size, out)
    return deflate_zstd(context, level, data, size, out)


def live_contexts():
    """Returns the number of codec contexts that have not been freed yet."""
    return load64(&made_contexts)
