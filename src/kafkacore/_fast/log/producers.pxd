"""The state of a log's producers: the last five batches of each producer, which reveal a retry (KIP-98), and the open
transactions. `Log.lock` guards this state. `.snapshot` files store it on disk, in the format of ProducerStateManager. A
marker is a coordinator's control batch that ends a transaction.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkacore._fast.base.cursor cimport Reader, Writer
from kafkacore._fast.record.record cimport BatchHeader

cdef enum:
    PRODUCER_BATCHES = 5
    PRODUCER_DUPLICATE = -1       # a result of `producers_check`: the log already has this batch

ctypedef struct ProducerBatch:
    int32_t first_sequence
    int32_t last_sequence
    int64_t first_offset
    int64_t last_offset
    int64_t timestamp_ms

ctypedef struct Producer:
    Producer *chain                      # the next producer in the same hash bucket
    Producer *next                       # the producer whose first batch in the log came next
    int64_t producer_id
    int16_t producer_epoch               # -1 if this is only a reserved place (`producers_reserve`)
    int32_t coordinator_epoch
    int64_t last_timestamp_ms
    int64_t transaction_first_offset     # -1 if no transaction is open
    int32_t batch_count                  # the number of `batches`, which are ordered from the oldest
    ProducerBatch batches[PRODUCER_BATCHES]

# A transaction that is open, or that a marker above the high watermark has ended. Transactions of both kinds hold back
# the last stable offset.
ctypedef struct Transaction:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset                  # the offset of the marker; -1 while the transaction is open

ctypedef struct EndedTransaction:        # a transaction that a marker has ended, for the transaction index
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset
    bint aborted

# A client could choose producer ids whose hashes collide, so the hash table uses a keyed hash (keyed_hash.pxd). Code
# that visits all producers follows the list from `first` to `last` instead, because the order of the list does not
# depend on the hash.
ctypedef struct Producers:
    Producer **buckets
    int32_t bucket_mask
    int32_t count
    Producer *first
    Producer *last
    Transaction *transactions            # ordered by first offset
    int32_t transaction_count
    int32_t transaction_capacity
    int32_t ended_count                  # the number of transactions that have ended above the high watermark

cdef Producers *producers_new() noexcept nogil  # returns NULL if memory runs out
cdef void producers_free(Producers *producers) noexcept nogil
cdef void producers_clear(Producers *producers) noexcept nogil
cdef Producer *producers_find(Producers *producers, int64_t producer_id) noexcept nogil

# Checks whether a client's batch may be appended. Returns 0 if it may, or PRODUCER_DUPLICATE with `duplicate` set to
# the batch in the log. Otherwise returns OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, or INVALID_TXN_STATE for
# a non-transactional batch while a transaction is open. `sequences` is False for coordinators, whose batches have a
# producer epoch but no sequence number. `bumped` is True for a transaction of a producer with transaction.version 2:
# if the log does not know the producer, the batch must have the sequence number 0.
cdef int producers_check(Producers *producers, const BatchHeader *header, bint sequences, bint bumped,
                         ProducerBatch *duplicate) noexcept nogil
# Checks whether a coordinator's marker may be appended. Returns 0, INVALID_PRODUCER_EPOCH or
# TRANSACTION_COORDINATOR_FENCED. With `bumped` (transaction.version 2), the epoch of the marker must be above the
# producer's epoch, except if the coordinator sends the marker again (KIP-1228).
cdef int producers_check_marker(Producers *producers, const uint8_t *batch, size_t size, const BatchHeader *header,
                                bint bumped) noexcept nogil
# Returns whether the batch is a marker that aborts a transaction.
cdef bint is_abort_marker(const uint8_t *batch, size_t size, const BatchHeader *header) noexcept nogil
# Reserves a place for the batch's producer, so that `producers_note_batch` cannot fail. Returns 0 or -ENOMEM.
cdef int producers_reserve(Producers *producers, const BatchHeader *header) noexcept nogil
# Notes a whole batch of magic 2 that is in the log: its sequence numbers, or, if the batch is a marker, the end of a
# transaction. Sets `ended` to that transaction; `ended.last_offset` is -1 if the batch ends no transaction. Returns 0,
# or -ENOMEM if no place was reserved and memory runs out.
cdef int producers_note_batch(Producers *producers, const uint8_t *batch, size_t size,
                              EndedTransaction *ended) noexcept nogil
# Adds a batch to the last five batches of its producer. A snapshot has only the last batch of a producer, so a load
# calls this for the batches before the snapshot, the oldest first.
cdef void producers_recall(Producers *producers, const BatchHeader *header) noexcept nogil
cdef int64_t producers_first_unstable(const Producers *producers) noexcept nogil  # -1 if no transaction is left
# Removes the transactions that ended below the high watermark, so that the last stable offset can advance.
cdef void producers_replicated(Producers *producers, int64_t high_watermark) noexcept nogil
# Removes the producers that were silent for producer.id.expiration.ms, except those with an open transaction. Returns
# the number of removed producers.
cdef int producers_expire(Producers *producers, int64_t now_ms, int64_t expiration_ms) noexcept nogil
# Copies the producers that have written a batch, and sets `count`. The caller frees the copies. Returns NULL with
# `count` 0 if there are no producers, and NULL with another `count` if memory runs out.
cdef Producer *producers_copy(const Producers *producers, int32_t *count) noexcept nogil

# Returns the largest number of bytes that `producers_write` can write.
cdef size_t producers_bytes(const Producers *producers) noexcept nogil
# Writes the bytes of a snapshot file, with the checksum. Sets `out.bad` if memory runs out.
cdef void producers_write(const Producers *producers, Writer *out) noexcept nogil
# Checks a whole snapshot file. Returns the number of producers after its header, or -EINVAL if the version, the
# checksum or the length is wrong.
cdef int32_t producers_begin_read(const uint8_t *data, int64_t size, Reader *reader) noexcept nogil
# Reads the next producer, with its last batch. Does not set `chain`.
cdef void producers_read_one(Reader *reader, Producer *producer) noexcept nogil
# Fills an empty table from a snapshot file. Returns 0, -EINVAL if the file is corrupt, or -ENOMEM.
cdef int producers_read(Producers *producers, const uint8_t *data, int64_t size) noexcept nogil
