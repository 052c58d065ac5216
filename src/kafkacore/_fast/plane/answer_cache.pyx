"""A cache of answers. When a handler has answered a request, the processors send the same answer to equal requests,
until the state behind the answer changes.

The table of answers is immutable and is replaced as a whole, like everything that a plane publishes (plane.pxd).
Requests are equal if they have the same listener, version and body. The processor sends the handler's answer with the
correlation id of the current request.
"""

cimport cython

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from kafkacore._fast.plane.answer cimport answer_add_memory
from kafkacore._fast.base.atomics cimport load_ptr
from kafkacore._fast.base.cursor cimport put32
from kafkacore._fast.base.keyed_hash cimport hash_word_and_bytes, process_hash_key
from kafkacore._fast.plane.gate cimport GATE_ERROR, Verdict
from kafkacore._fast.plane.plane cimport SERVED, SERVED_PUNT, HotApi, NativePlane, Request, hot_api

cdef enum:
    ASKED_BYTES = 4096          # longer requests are not cached
    LEAST_ANSWER_BYTES = 4      # a correlation id

ctypedef struct Entry:
    const uint8_t *asked        # the request; NULL if this slot of the table is free
    int32_t asked_size
    int32_t listener
    int16_t version
    const uint8_t *answer       # header and body
    int64_t answer_size

ctypedef struct Prepared:
    uint32_t mask
    Entry *places


cdef Entry *find(const Prepared *prepared, int32_t listener, int16_t version, const uint8_t *asked,
                 int32_t size) noexcept nogil:
    """Returns the entry of a request. If there is none, returns the free slot where the entry would be."""
    cdef uint64_t word = <uint64_t> <uint32_t> listener << 16 | <uint16_t> version
    cdef uint64_t at = hash_word_and_bytes(process_hash_key(), word, asked, <size_t> size)
    cdef Entry *entry
    while True:
        entry = &prepared.places[at & prepared.mask]
        if entry.asked == NULL or (
            entry.asked_size == size and entry.listener == listener and entry.version == version
            and memcmp(entry.asked, asked, size) == 0
        ):
            return entry
        at += 1


cdef int serve_cached(void *state, Request *request, const Verdict *verdict) noexcept nogil:
    cdef const Prepared *prepared = <const Prepared *> load_ptr(<void **> state)
    cdef int64_t size = request.frame.size - request.header_size
    cdef Entry *entry
    cdef uint8_t *memory
    # The verdict `GATE_ERROR` says that the answer must contain an error for every partition. The answers of these APIs
    # have no errors for single partitions, so the handler must answer.
    if prepared == NULL or verdict.action == GATE_ERROR or size > ASKED_BYTES:
        return SERVED_PUNT
    entry = find(prepared, request.listener, request.api_version, request.frame.data + request.header_size,
                 <int32_t> size)
    if entry.asked == NULL:
        return SERVED_PUNT
    memory = <uint8_t *> malloc(entry.answer_size + 4)
    if memory == NULL:
        return SERVED_PUNT
    put32(memory, <uint32_t> entry.answer_size)
    memcpy(memory + 4, entry.answer, entry.answer_size)
    put32(memory + 4, <uint32_t> request.correlation_id)
    request.answer.memory = memory
    answer_add_memory(&request.answer, memory, entry.answer_size + 4)  # the first extent always fits
    return SERVED


ASKED_LIMIT = ASKED_BYTES


@cython.no_gc  # no reference cycle contains it, and the collector must not clear fields that threads still use
cdef class CachedAnswers:
    """An immutable table of answers. Each of `entries` is (listener, version, request body, response with header). If
    two entries have the same request, the first one is used."""

    cdef Prepared prepared
    cdef list kept

    def __cinit__(self, entries):
        cdef bytes asked, answer
        cdef Entry *entry
        self.kept = list(entries)
        self.prepared.mask = 1
        while self.prepared.mask < 2 * <uint32_t> len(self.kept) + 1:
            self.prepared.mask = 2 * self.prepared.mask + 1
        self.prepared.places = <Entry *> calloc(self.prepared.mask + 1, sizeof(Entry))
        if self.prepared.places == NULL:
            raise MemoryError
        for listener, version, asked, answer in self.kept:
            if len(asked) > ASKED_BYTES or len(answer) < LEAST_ANSWER_BYTES:
                raise ValueError(
                    f"cannot cache {len(answer)} bytes that answer a request of {len(asked)} (at most {ASKED_BYTES})"
                )
            entry = find(&self.prepared, listener, version, <const uint8_t *> <const char *> asked,
                         <int32_t> len(asked))
            if entry.asked == NULL:
                entry.asked = <const uint8_t *> <const char *> asked
                entry.asked_size = <int32_t> len(asked)
                entry.listener = listener
                entry.version = version
                entry.answer = <const uint8_t *> <const char *> answer
                entry.answer_size = len(answer)

    def __dealloc__(self):
        free(self.prepared.places)


@cython.no_gc  # as for `CachedAnswers`
cdef class AnswerCache:
    """The published table in which the processors of a plane look for the answers of one API."""

    cdef Prepared *table

    def api(self) -> HotApi:
        """Returns the `HotApi` to install in the plane."""
        return hot_api(serve_cached, &self.table, self)

    def publish(self, NativePlane plane not None, CachedAnswers answers) -> None:
        """Replaces the cached answers. If `answers` is None, every request goes to the handler."""
        cdef void *table = &answers.prepared if answers is not None else NULL
        plane.publish(f"prepared {id(self)}", <void **> &self.table, table, answers)
