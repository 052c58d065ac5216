"""Opens zlib, zlib-ng, liblz4, libzstd and libsnappy at run time. Fills one table of functions for each codec.

If zlib-ng is installed, it decompresses gzip. Otherwise zlib does. Only zlib compresses gzip.

The build needs neither headers nor libraries, so it needs no -dev package. A node loads the library of a codec when it
first uses the codec. The signatures of the functions have not changed since zlib 1.2, zlib-ng 2.0, LZ4 1.8, zstd 1.4
and snappy 1.1.

If KAFKACORE_CODEC_LIBS names a directory, this module searches for libraries only in that directory. Otherwise it
searches the package's `_libs` directory, then the paths of the dynamic loader. For zlib-ng it first tries the extension
of the Python package `zlib_ng`, which contains all of zlib-ng.
"""

from libc.stdint cimport uint8_t, uint64_t

cdef enum:                       # status codes of zlib
    Z_OK = 0
    Z_STREAM_END = 1
    Z_MEM_ERROR = -4

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <dlfcn.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <unistd.h>
    #include <pthread.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>

    #define KC_ZLIB_VERSION "1.2.11"  /* zlib compares only the first digit */
    typedef struct {
        const uint8_t *next_in; unsigned avail_in; unsigned long total_in;
        uint8_t *next_out; unsigned avail_out; unsigned long total_out;
        const char *msg; void *state; void *zalloc; void *zfree; void *opaque;
        int data_type; unsigned long adler; unsigned long reserved;
    } kc_z_stream;
    typedef struct { const void *src; size_t size; size_t pos; } kc_zstd_in;
    typedef struct { void *dst; size_t size; size_t pos; } kc_zstd_out;
    typedef struct {
        int block_size_id, block_mode, content_checksum, frame_type;
        unsigned long long content_size; unsigned dict_id; int block_checksum;
        int level; unsigned auto_flush, favor_dec_speed, reserved[3];
    } kc_lz4_preferences;

    typedef struct {
        int (*inflate_init)(kc_z_stream *, int window_bits);
        int (*inflate)(kc_z_stream *, int flush);
        int (*inflate_reset)(kc_z_stream *);
        int (*inflate_end)(kc_z_stream *);
        int (*deflate_init)(kc_z_stream *, int, int, int, int, int, const char *version, int struct_size);
        int (*deflate)(kc_z_stream *, int flush);
        int (*deflate_reset)(kc_z_stream *);
        int (*deflate_end)(kc_z_stream *);
        unsigned long (*deflate_bound)(kc_z_stream *, unsigned long);
    } kc_zlib_t;
    typedef struct {
        unsigned (*is_error)(size_t);
        size_t (*new_reader)(void **, unsigned version);
        size_t (*free_reader)(void *);
        void (*reset_reader)(void *);
        size_t (*read)(void *, void *dst, size_t *dst_size, const void *src, size_t *src_size, const void *options);
        size_t (*new_writer)(void **, unsigned version);
        size_t (*free_writer)(void *);
        size_t (*begin)(void *, void *dst, size_t capacity, const kc_lz4_preferences *);
        size_t (*update)(void *, void *dst, size_t capacity, const void *src, size_t size, const void *options);
        size_t (*end)(void *, void *dst, size_t capacity, const void *options);
        size_t (*bound)(size_t, const kc_lz4_preferences *);
    } kc_lz4_t;
    typedef struct {
        unsigned (*is_error)(size_t);
        void *(*new_reader)(void);
        size_t (*free_reader)(void *);
        size_t (*reset_reader)(void *, int directive);
        size_t (*set_reader)(void *, int parameter, int value);
        size_t (*read)(void *, kc_zstd_out *, kc_zstd_in *);
        void *(*new_writer)(void);
        size_t (*free_writer)(void *);
        size_t (*set_writer)(void *, int parameter, int value);
        size_t (*write)(void *, void *dst, size_t capacity, const void *src, size_t size);
        size_t (*bound)(size_t);
    } kc_zstd_t;
    typedef struct {
        int (*uncompress)(const char *, size_t, char *, size_t *);
        int (*compress)(const char *, size_t, char *, size_t *);
        size_t (*bound)(size_t);
    } kc_snappy_t;


    static kc_zlib_t kc_zlib;
    static kc_lz4_t kc_lz4;
    static kc_zstd_t kc_zstd;
    static kc_snappy_t kc_snappy;
    static char kc_package_libs[4096], kc_zlib_ng_extension[4096];
    static pthread_mutex_t kc_codec_opening = PTHREAD_MUTEX_INITIALIZER;
    static int kc_codec_state[5];  /* the library of each codec id: 0 if not tried, 1 if open, 2 if missing */

    static void *kc_codec_dlopen(const char *soname) {
        const char *only = getenv("KAFKACORE_CODEC_LIBS");
        const char *directory = only != NULL ? only : kc_package_libs;
        char path[4096];
        void *library = NULL;
        if (directory[0] && snprintf(path, sizeof path, "%s/%s", directory, soname) < (int)sizeof path)
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        return library != NULL || only != NULL ? library : dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    }

    /* Looks up `count` functions by their names. Fills `table` with all of them, or changes nothing and returns 0. */
    static int kc_codec_take(void *library, const char *const *names, void *table, int count) {
        void *found[16];
        if (library == NULL) return 0;
        for (int i = 0; i < count; i++)
            if ((found[i] = dlsym(library, names[i])) == NULL) { dlclose(library); return 0; }
        memcpy(table, found, count * sizeof(void *));
        return 1;
    }
    static int kc_codec_resolve(const char *soname, const char *const *names, void *table, int count) {
        return kc_codec_take(kc_codec_dlopen(soname), names, table, count);
    }

    /* The caller passes its version and its struct size. inflateInit2_ compares them with the values of the library. */
    static int (*kc_inflate_init_)(kc_z_stream *, int, const char *, int);
    static int kc_inflate_init(kc_z_stream *stream, int window_bits) {
        return kc_inflate_init_(stream, window_bits, KC_ZLIB_VERSION, sizeof *stream);
    }

    /* Fills the table with zlib's functions. If zlib-ng is installed, its inflate functions replace zlib's: they reject
       the same bodies and need half the time. Up to the checksum, zlib-ng's stream struct has the same layout as
       zlib's. The checksum has a different width, but no code here reads it. */
    static int kc_codec_resolve_zlib(void) {
        static const char *const whole[] = {"inflateInit2_", "inflate", "inflateReset", "inflateEnd", "deflateInit2_",
            "deflate", "deflateReset", "deflateEnd", "deflateBound"};
        static const char *const reader[] = {"zng_inflateInit2", "zng_inflate", "zng_inflateReset", "zng_inflateEnd"};
        if (!kc_codec_resolve("libz.so.1", whole, &kc_zlib, 9)) return 0;
        kc_inflate_init_ = (int (*)(kc_z_stream *, int, const char *, int))(void *)kc_zlib.inflate_init;
        kc_zlib.inflate_init = kc_inflate_init;
        if (getenv("KAFKACORE_CODEC_LIBS") != NULL || !kc_zlib_ng_extension[0] ||
            !kc_codec_take(dlopen(kc_zlib_ng_extension, RTLD_LAZY | RTLD_LOCAL), reader, &kc_zlib, 4))
            kc_codec_resolve("libz-ng.so.2", reader, &kc_zlib, 4);
        return 1;
    }

    static int kc_codec_resolve_id(int codec) {
        static const char *const snappy[] = {"snappy_uncompress", "snappy_compress", "snappy_max_compressed_length"};
        static const char *const lz4[] = {"LZ4F_isError", "LZ4F_createDecompressionContext",
            "LZ4F_freeDecompressionContext", "LZ4F_resetDecompressionContext", "LZ4F_decompress",
            "LZ4F_createCompressionContext", "LZ4F_freeCompressionContext", "LZ4F_compressBegin", "LZ4F_compressUpdate",
            "LZ4F_compressEnd", "LZ4F_compressFrameBound"};
        static const char *const zstd[] = {"ZSTD_isError", "ZSTD_createDCtx", "ZSTD_freeDCtx", "ZSTD_DCtx_reset",
            "ZSTD_DCtx_setParameter", "ZSTD_decompressStream", "ZSTD_createCCtx", "ZSTD_freeCCtx",
            "ZSTD_CCtx_setParameter", "ZSTD_compress2", "ZSTD_compressBound"};
        switch (codec) {
        case 1: return kc_codec_resolve_zlib();
        case 2: return kc_codec_resolve("libsnappy.so.1", snappy, &kc_snappy, 3);
        case 3: return kc_codec_resolve("liblz4.so.1", lz4, &kc_lz4, 11);
        case 4: return kc_codec_resolve("libzstd.so.1", zstd, &kc_zstd, 11);
        default: return 0;
        }
    }

    /* Returns whether the process has no free file descriptor. In that case a library that could not be opened may
       still be installed. */
    static int kc_codec_lacks_descriptor(void) {
        int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (file < 0) return errno == EMFILE || errno == ENFILE;
        close(file);
        return 0;
    }

    /* Returns whether the codec's functions are available. The first call opens the library. */
    static int kc_codec_open(int codec) {
        int state;
        if (codec < 1 || codec > 4) return 0;
        state = __atomic_load_n(&kc_codec_state[codec], __ATOMIC_ACQUIRE);
        if (state == 0) {
            pthread_mutex_lock(&kc_codec_opening);
            state = kc_codec_state[codec];
            if (state == 0) {
                state = kc_codec_resolve_id(codec) ? 1 : 2;
                if (state == 2 && kc_codec_lacks_descriptor()) state = 0;  /* the next call tries again */
                __atomic_store_n(&kc_codec_state[codec], state, __ATOMIC_RELEASE);
            }
            pthread_mutex_unlock(&kc_codec_opening);
        }
        return state == 1;
    }
    /* Returns whether a call of kc_codec_open has found that the codec's library is not installed. */
    static int kc_codec_is_missing(int codec) {
        return __atomic_load_n(&kc_codec_state[codec], __ATOMIC_ACQUIRE) == 2;
    }
    /* Sets `path` to the file that contains `function`, and `version` to the version that the file's function `symbol`
       reports. Each is NULL if unknown. The strings belong to the libraries, which are never closed. */
    static void kc_codec_origin(void *function, const char *symbol, const char **path, const char **version) {
        Dl_info info;
        void *library, *report;
        *path = *version = NULL;
        if (!dladdr(function, &info) || info.dli_fname == NULL) return;
        *path = info.dli_fname;
        library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (library == NULL) return;
        report = symbol != NULL ? dlsym(library, symbol) : NULL;
        if (report != NULL) *version = ((const char *(*)(void))report)();
        dlclose(library);
    }
    /* Returns the name of the library that serves an open codec. Sets `path` and `version` to its file and version. */
    static const char *kc_codec_library(int codec, int inflates, const char **path, const char **version) {
        switch (codec) {
        case 1:
            if (inflates && kc_zlib.inflate_init != kc_inflate_init) {
                kc_codec_origin((void *)kc_zlib.inflate, "zlibng_version", path, version);
                return "zlib-ng";
            }
            kc_codec_origin((void *)kc_zlib.deflate, "zlibVersion", path, version);
            return "zlib";
        case 2:
            kc_codec_origin((void *)kc_snappy.compress, NULL, path, version);  /* snappy reports no version */
            return "libsnappy";
        case 3:
            kc_codec_origin((void *)kc_lz4.begin, "LZ4_versionString", path, version);
            return "liblz4";
        default:
            kc_codec_origin((void *)kc_zstd.write, "ZSTD_versionString", path, version);
            return "libzstd";
        }
    }
    static void kc_codec_set_places(const char *package_libs, const char *zlib_ng_extension) {
        snprintf(kc_package_libs, sizeof kc_package_libs, "%s", package_libs);
        snprintf(kc_zlib_ng_extension, sizeof kc_zlib_ng_extension, "%s", zlib_ng_extension);
    }
    """
    ctypedef struct ZStream "kc_z_stream":
        const uint8_t *next_in
        unsigned avail_in
        uint8_t *next_out
        unsigned avail_out
    ctypedef struct ZstdIn "kc_zstd_in":
        const void *src
        size_t size
        size_t pos
    ctypedef struct ZstdOut "kc_zstd_out":
        void *dst
        size_t size
        size_t pos
    ctypedef struct Lz4Preferences "kc_lz4_preferences":
        int block_size_id
        int block_mode
        int level
        unsigned auto_flush
    ctypedef struct Zlib "kc_zlib_t":
        int (*inflate_init)(ZStream *stream, int window_bits) noexcept nogil
        int (*inflate)(ZStream *stream, int flush) noexcept nogil
        int (*inflate_reset)(ZStream *stream) noexcept nogil
        int (*inflate_end)(ZStream *stream) noexcept nogil
        int (*deflate_init)(
            ZStream *stream, int level, int method, int window_bits, int memory_level, int strategy,
            const char *version, int struct_size
        ) noexcept nogil
        int (*deflate)(ZStream *stream, int flush) noexcept nogil
        int (*deflate_reset)(ZStream *stream) noexcept nogil
        int (*deflate_end)(ZStream *stream) noexcept nogil
        unsigned long (*deflate_bound)(ZStream *stream, unsigned long size) noexcept nogil
    ctypedef struct Lz4 "kc_lz4_t":
        unsigned (*is_error)(size_t status) noexcept nogil
        size_t (*new_reader)(void **reader, unsigned version) noexcept nogil
        size_t (*free_reader)(void *reader) noexcept nogil
        void (*reset_reader)(void *reader) noexcept nogil
        size_t (*read)(
            void *reader, void *dst, size_t *dst_size, const void *src, size_t *src_size, const void *options
        ) noexcept nogil
        size_t (*new_writer)(void **writer, unsigned version) noexcept nogil
        size_t (*free_writer)(void *writer) noexcept nogil
        size_t (*begin)(void *writer, void *dst, size_t capacity, const Lz4Preferences *preferences) noexcept nogil
        size_t (*update)(
            void *writer, void *dst, size_t capacity, const void *src, size_t size, const void *options
        ) noexcept nogil
        size_t (*end)(void *writer, void *dst, size_t capacity, const void *options) noexcept nogil
        size_t (*bound)(size_t size, const Lz4Preferences *preferences) noexcept nogil
    ctypedef struct Zstd "kc_zstd_t":
        unsigned (*is_error)(size_t status) noexcept nogil
        void *(*new_reader)() noexcept nogil
        size_t (*free_reader)(void *reader) noexcept nogil
        size_t (*reset_reader)(void *reader, int directive) noexcept nogil
        size_t (*set_reader)(void *reader, int parameter, int value) noexcept nogil
        size_t (*read)(void *reader, ZstdOut *out, ZstdIn *source) noexcept nogil
        void *(*new_writer)() noexcept nogil
        size_t (*free_writer)(void *writer) noexcept nogil
        size_t (*set_writer)(void *writer, int parameter, int value) noexcept nogil
        size_t (*write)(void *writer, void *dst, size_t capacity, const void *src, size_t size) noexcept nogil
        size_t (*bound)(size_t size) noexcept nogil
    ctypedef struct Snappy "kc_snappy_t":
        int (*uncompress)(const char *src, size_t size, char *dst, size_t *dst_size) noexcept nogil
        int (*compress)(const char *src, size_t size, char *dst, size_t *dst_size) noexcept nogil
        size_t (*bound)(size_t size) noexcept nogil
    const char *ZLIB_VERSION "KC_ZLIB_VERSION"
    Zlib zlib "kc_zlib"
    Lz4 lz4 "kc_lz4"
    Zstd zstd "kc_zstd"
    Snappy snappy "kc_snappy"
    bint open_library "kc_codec_open"(int codec) noexcept
    bint is_missing "kc_codec_is_missing"(int codec) noexcept
    void set_library_places "kc_codec_set_places"(const char *package_libs, const char *zlib_ng_extension) noexcept
    const char *library_of "kc_codec_library"(int codec, bint inflates, const char **path,
                                              const char **version) noexcept
