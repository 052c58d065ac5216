"""Appends to a log. An append first validates the batch without the lock (`Log.lock`). Then, under the lock, it checks
the batch against the producer's state, assigns the batch's offsets, writes the batch, and updates the producer's state.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stddef cimport size_t

from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.log.log cimport Log, LogConfig
from kafkacore._fast.wait.park cimport Waiter
from kafkacore._fast.log.producers cimport EndedTransaction
from kafkacore._fast.record.validate cimport BatchesResult, ValidateResult

ctypedef struct AppendInfo:
    int64_t first_offset
    int64_t last_offset
    int64_t log_append_time_ms           # -1 unless message.timestamp.type=LogAppendTime
    int64_t log_start_offset
    int64_t end_position                 # the end of the batch in the active segment's file
    bint duplicate                       # the log already has this batch of an idempotent producer, at `first_offset`
    ValidateResult validated             # after a rejection, says which records are invalid

# A batch that passed validation. Its bytes are in the caller's memory, or in `rewritten` if they were compressed again
# with another codec.
ctypedef struct Prepared:
    uint8_t *data
    size_t size
    int origin                           # an `AppendOrigin` of validate.pxd
    # Whether the batch has a producer id. If so, the append checks the batch against the producer's state.
    bint idempotent
    Writer rewritten

cdef void append_info_init(AppendInfo *info) noexcept nogil

# Validates one batch. Compresses it again if the topic has another codec. Call this without the lock. Returns 0 or a
# Kafka error code. Call `prepared_free` even after an error.
cdef int log_prepare(const LogConfig *config, int64_t now_ms, uint8_t *records, size_t size, int origin,
                     Prepared *prepared,
                     AppendInfo *info) noexcept nogil
cdef void prepared_free(Prepared *prepared) noexcept nogil

# Appends a batch that `log_prepare` has accepted. Call this with the lock held. Returns 0, a Kafka error code, or
# LOG_BLOCKED if the log is being opened or rolled. In the last case the log has queued the waiter `blocked`, unless
# `blocked` is NULL. Call this again when `blocked` is woken.
cdef int log_append_prepared(Log *log, Prepared *prepared, int32_t leader_epoch, Waiter *blocked,
                             AppendInfo *info) noexcept nogil
# Appends whole batches that already have their offsets and leader epochs: batches that a follower has fetched, or
# batches of a log that Raft replicates. `checked` comes from `check_batches` (validate.pxd).
cdef int log_append_checked(Log *log, const uint8_t *records, const BatchesResult *checked, Waiter *blocked,
                            AppendInfo *info) noexcept nogil

# Updates the log's producers, transactions and leader epochs for a batch that is in the log. Appends and recovery call
# this. Returns 0 or -ENOMEM. Sets `ended` to the transaction that the batch ends; `ended.last_offset` is -1 if the
# batch ends no transaction.
cdef int log_note_state(Log *log, const uint8_t *batch, size_t size, EndedTransaction *ended) noexcept nogil
