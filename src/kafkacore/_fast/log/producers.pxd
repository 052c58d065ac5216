"""The state of a log's producers: the last five batches of each, with which it recognises a retry (KIP-98), and the
open transactions. The log's lock guards it. `.snapshot` files hold it on disk (ProducerStateManager's format).
"""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkacore._fast.base.cursor cimport Reader, Writer
from kafkacore._fast.record.record cimport BatchHeader

cdef enum:
    PRODUCER_BATCHES = 5
    PRODUCER_DUPLICATE = -1       # producers_check: the batch is here already

ctypedef struct ProducerBatch:
    int32_t first_sequence
    int32_t last_sequence
    int64_t first_offset
    int64_t last_offset
    int64_t timestamp_ms

ctypedef struct Producer:
    Producer *chain                      # the next one in its bucket
    Producer *next                       # the next one in the order in which the log met them
    int64_t producer_id
    int16_t producer_epoch               # -1 while only reserved
    int32_t coordinator_epoch
    int64_t last_timestamp_ms
    int64_t transaction_first_offset     # -1 when no transaction is open
    int32_t batch_count                  # in `batches`, oldest first
    ProducerBatch batches[PRODUCER_BATCHES]

# A transaction that is open, or that ended above the high watermark. Either keeps the last stable offset from
# advancing.
ctypedef struct Transaction:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset                  # of its marker; -1 while it is open

ctypedef struct EndedTransaction:        # what a marker did, for the transaction index
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset
    bint aborted

# Clients choose producer ids, so the table uses the process's keyed hash. Readers walk the list, whose order does not
# depend on the hash.
ctypedef struct Producers:
    Producer **buckets
    int32_t bucket_mask
    int32_t count
    Producer *first
    Producer *last
    Transaction *transactions            # by first offset
    int32_t transaction_count
    int32_t transaction_capacity
    int32_t ended_count                  # transactions that have ended above the high watermark

cdef Producers *producers_new() noexcept nogil  # NULL: no memory
cdef void producers_free(Producers *producers) noexcept nogil
cdef void producers_clear(Producers *producers) noexcept nogil
cdef Producer *producers_find(Producers *producers, int64_t producer_id) noexcept nogil

# Whether a client's batch may follow. Returns 0; PRODUCER_DUPLICATE with `duplicate` set; or
# OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE (a plain batch inside a transaction).
# `sequences` is False for coordinators, whose batches carry an epoch and no sequence.
cdef int producers_check(Producers *producers, const BatchHeader *header, bint sequences,
                         ProducerBatch *duplicate) noexcept nogil
# Whether a coordinator's marker may follow: 0, INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED. With `bumped`
# (transaction.version 2) its epoch must be above the producer's, except in a marker that is sent again (KIP-1228).
cdef int producers_check_marker(Producers *producers, const uint8_t *batch, size_t size, const BatchHeader *header,
                                bint bumped) noexcept nogil
# Reserves a place for the batch's producer, so that noting the batch cannot fail: 0 or -ENOMEM.
cdef int producers_reserve(Producers *producers, const BatchHeader *header) noexcept nogil
# Notes a whole batch of magic 2 that is in the log: its producer's sequences, or the transaction that its marker ends
# (`ended`; its last_offset stays -1 when the marker ended none). Returns 0, or -ENOMEM when its place was not reserved.
cdef int producers_note_batch(Producers *producers, const uint8_t *batch, size_t size,
                              EndedTransaction *ended) noexcept nogil
cdef int64_t producers_first_unstable(const Producers *producers) noexcept nogil  # -1 when none
# Forgets the transactions that ended below the high watermark, so that the last stable offset can advance.
cdef void producers_replicated(Producers *producers, int64_t high_watermark) noexcept nogil
# producer.id.expiration.ms; a producer with an open transaction stays. Returns how many were removed.
cdef int producers_expire(Producers *producers, int64_t now_ms, int64_t expiration_ms) noexcept nogil
# Copies the producers that have written, and sets `count`; the caller frees the copies. NULL: there are none (`count`
# 0), or no memory for them.
cdef Producer *producers_copy(const Producers *producers, int32_t *count) noexcept nogil

# The file's bytes, checksum included; `out.bad` when memory runs out.
cdef void producers_write(const Producers *producers, Writer *out) noexcept nogil
# Checks a whole file and returns how many producers follow its header; -EINVAL: wrong version, checksum or length.
cdef int32_t producers_begin_read(const uint8_t *data, int64_t size, Reader *reader) noexcept nogil
# Reads the next producer, with its last batch; `chain` stays unset.
cdef void producers_read_one(Reader *reader, Producer *producer) noexcept nogil
# Fills an empty table: 0, -EINVAL (corrupt) or -ENOMEM.
cdef int producers_read(Producers *producers, const uint8_t *data, int64_t size) noexcept nogil
