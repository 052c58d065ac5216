"""Gives each thread that validates batches its own codec context. The first call in a thread creates the context, which
is freed when the thread ends.
"""

from kafkacore._fast.codec.context cimport CodecContext, codec_context_free, codec_context_new

cdef extern from * nogil:
    """
    #include <pthread.h>
    #include <stddef.h>
    static pthread_key_t kc_codec_key;
    static pthread_once_t kc_codec_once = PTHREAD_ONCE_INIT;
    static void (*kc_codec_free)(void *);
    static void kc_codec_end(void *context) { __atomic_load_n(&kc_codec_free, __ATOMIC_RELAXED)(context); }
    static void kc_codec_make_key(void) { pthread_key_create(&kc_codec_key, kc_codec_end); }
    static inline void *kc_codec_get(void (*release)(void *)) {
        __atomic_store_n(&kc_codec_free, release, __ATOMIC_RELAXED);  /* every caller passes the same function */
        pthread_once(&kc_codec_once, kc_codec_make_key);
        return pthread_getspecific(kc_codec_key);
    }
    static inline int kc_codec_set(void *context) { return pthread_setspecific(kc_codec_key, context); }
    """
    void *codec_get "kc_codec_get"(void (*release)(void *) noexcept nogil) noexcept
    int codec_set "kc_codec_set"(void *context) noexcept


cdef inline void end_codec(void *context) noexcept nogil:
    codec_context_free(<CodecContext *> context)


cdef inline CodecContext *thread_codec() noexcept nogil:
    """Returns the codec context of the calling thread, or NULL if no memory is left."""
    cdef CodecContext *context = <CodecContext *> codec_get(end_codec)
    if context == NULL:
        context = codec_context_new()
        if context != NULL and codec_set(context) != 0:
            codec_context_free(context)
            context = NULL
    return context
