"""Implements append.pxd: appends to a log (UnifiedLog.append, LogSegment.append)."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t

from kafkacore._fast.base.error_codes cimport (
    KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE, RECORD_LIST_TOO_LARGE, UNKNOWN_SERVER_ERROR,
)
from kafkacore._fast.base.atomics cimport add64, load32, store32, store64
from kafkacore._fast.codec.context cimport CodecContext
from kafkacore._fast.base.cursor cimport writer_free, writer_init
from kafkacore._fast.base.planted cimport is_planted
from kafkacore._fast.log.epochs cimport epochs_assign
from kafkacore._fast.wait.io cimport io_fail
from kafkacore._fast.log.jobs cimport is_short_of_files
from kafkacore._fast.log.log cimport (
    LOG_BLOCKED, LOG_CLOSED, LOG_FAILED, LOG_LAZY, LOG_OPEN, Log, LogConfig, log_block, log_now_ms, recent_add,
    recent_clear,
)
from kafkacore._fast.log.epochs_checkpoint cimport log_save_epochs
from kafkacore._fast.log.open cimport log_start_open, log_start_wake
from kafkacore._fast.log.roll cimport log_reserve_ahead, log_start_roll
from kafkacore._fast.log.producers cimport (
    PRODUCER_DUPLICATE, EndedTransaction, Producer, ProducerBatch, is_abort_marker, producers_check,
    producers_check_marker, producers_find, producers_first_unstable, producers_note_batch, producers_reserve,
)
from kafkacore._fast.record.record cimport (
    BATCH_OK, HEADER_BYTES, BatchHeader, has_producer_id, is_control, is_transactional, last_offset, parse_header,
)
from kafkacore._fast.log.segment cimport LAST_RELATIVE_OFFSET, OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, Segment, file_of
from kafkacore._fast.log.segment_index cimport segment_note_batch, segment_reserve, segment_write_indexes
from kafkacore._fast.codec.thread_context cimport thread_codec
from kafkacore._fast.log.txn_index cimport txn_index_open, txn_index_write
from kafkacore._fast.record.validate cimport (
    FAULT_NONE, ORIGIN_BUMPED_MARKER, ORIGIN_BUMPED_TRANSACTION, BatchesResult, ValidateRules, assign_offsets,
    is_from_client, rewrite_batch, rewrite_room, stamp_batch, validate_batch,
)

cdef enum:
    UNWRITTEN_ENTRIES = 512      # at most this many index entries wait in memory
    LARGE_BYTES = 16 << 20       # from this size on, disk blocks are reserved after the end of a segment
    AHEAD_BYTES = 32 << 20       # more blocks are reserved when fewer reserved bytes than this are left


cdef void append_info_init(AppendInfo *info) noexcept nogil:
    info.first_offset = info.last_offset = -1
    info.log_append_time_ms = -1
    info.log_start_offset = -1
    info.end_position = 0
    info.duplicate = False
    info.validated.error = 0
    info.validated.message = NULL
    info.validated.fault = FAULT_NONE
    info.validated.rewrite = False
    info.validated.error_count = 0


# --- without the lock ---

cdef int log_prepare(const LogConfig *config, int64_t now_ms, uint8_t *records, size_t size, int origin,
                     Prepared *prepared,
                     AppendInfo *info) noexcept nogil:
    cdef ValidateRules rules = config.rules
    cdef CodecContext *context = thread_codec()
    cdef int16_t error
    prepared.data = records
    prepared.size = size
    prepared.origin = origin
    writer_init(&prepared.rewritten, 0)
    if context == NULL:
        return UNKNOWN_SERVER_ERROR
    rules.origin = <int8_t> origin
    error = validate_batch(records, size, &rules, now_ms, context, &info.validated)
    if error != 0:
        return error
    prepared.idempotent = has_producer_id(&info.validated.header)
    info.log_append_time_ms = info.validated.log_append_time_ms
    if info.validated.rewrite:
        # While it works, the codec may need more room than the finished batch, so the size is checked below.
        writer_init(&prepared.rewritten, HEADER_BYTES + rewrite_room(&info.validated))
        error = rewrite_batch(records, size, &rules, &info.validated, context, &prepared.rewritten)
        if error != 0:
            return error
        prepared.data = prepared.rewritten.data
        prepared.size = prepared.rewritten.size
    elif info.validated.stamp:
        stamp_batch(records, size, &info.validated)
    return RECORD_LIST_TOO_LARGE if <int64_t> prepared.size > config.segment_bytes else 0


cdef void prepared_free(Prepared *prepared) noexcept nogil:
    writer_free(&prepared.rewritten)


# --- under the lock ---

cdef int state_error(Log *log, Waiter *blocked) noexcept nogil:
    """Returns 0 if the log accepts an append now. Returns LOG_BLOCKED, with `blocked` queued, if a job must finish
    first. Starts that job if the log is lazy or if its last segment is still closed. Otherwise returns a Kafka error
    code."""
    if log.state == LOG_OPEN and not load32(&log.dir.offline):
        return log_start_wake(log, blocked) if load32(&log.active.sealed) else 0
    if log.state == LOG_FAILED or load32(&log.dir.offline):
        return KAFKA_STORAGE_ERROR
    if log.state == LOG_CLOSED:
        return NOT_LEADER_OR_FOLLOWER
    if log.state == LOG_LAZY:
        return log_start_open(log, blocked)
    log_block(log, blocked)
    return LOG_BLOCKED


cdef int64_t roll_jitter_ms(const Log *log, int64_t base_offset) noexcept nogil:
    """Returns a value of up to segment.jitter.ms, so that many logs do not roll at the same time. The value is computed
    from the segment's identity (splitmix64) and not from a random source, so that a run can be replayed."""
    cdef uint64_t mixed = <uint64_t> base_offset * <uint64_t> 0x9E3779B97F4A7C15 + <uint64_t> log.index
    cdef int i
    if log.topic_id != NULL:
        for i in range(16):
            mixed = mixed * 31 + log.topic_id[i]
    mixed = (mixed ^ (mixed >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    mixed = (mixed ^ (mixed >> 27)) * <uint64_t> 0x94D049BB133111EB
    mixed ^= mixed >> 31
    return <int64_t> (mixed % <uint64_t> min(log.config.segment_jitter_ms, log.config.segment_ms))


cdef bint should_roll(Log *log, int64_t size, int64_t max_timestamp_ms, int64_t last) noexcept nogil:
    """Returns whether the log must roll before an append, as LogSegment.shouldRoll does. The reasons are the size or
    the age of the segment, a full index, or an offset that an index entry cannot hold."""
    cdef Segment *segment = log.active
    cdef LogConfig *config = log.config
    cdef int64_t waited_ms
    if segment.size > config.segment_bytes - size or last - segment.base_offset > LAST_RELATIVE_OFFSET:
        return True
    if (segment.offset_count >= config.segment_index_bytes // OFFSET_ENTRY_BYTES
            or segment.time_count >= config.segment_index_bytes // TIME_ENTRY_BYTES - 1):
        return True
    if segment.size == 0:
        return False
    if segment.first_timestamp_ms >= 0:
        waited_ms = max_timestamp_ms - segment.first_timestamp_ms
    else:
        waited_ms = log_now_ms(log) - segment.created_ms
    if config.segment_jitter_ms > 0 and segment.jitter_ms == 0:
        segment.jitter_ms = roll_jitter_ms(log, segment.base_offset)
    return waited_ms > config.segment_ms - segment.jitter_ms


cdef int write_bytes(Log *log, const uint8_t *data, size_t size) noexcept nogil:
    """Writes at the end of the active segment. If the write fails, a part of the bytes may have reached the disk. So
    this truncates the file to its former size if possible, and then takes the directory offline (Kafka: an IOException
    in append)."""
    cdef Segment *segment = log.active
    cdef int64_t result = log.dir.disk.pwrite(log.dir.disk.self, file_of(segment), data, size, segment.size)
    if result >= 0:
        return 0
    log.dir.disk.truncate(log.dir.disk.self, file_of(segment), segment.size)
    io_fail(log.dir, <int> -result)
    log.state = LOG_FAILED
    return KAFKA_STORAGE_ERROR


cdef void note_position(Log *log, int64_t size, int64_t first, int64_t last, int64_t max_timestamp_ms) noexcept nogil:
    cdef Segment *segment = log.active
    segment_note_batch(segment, segment.size, size, last, max_timestamp_ms, log.config.index_interval_bytes)
    if max_timestamp_ms < 0:
        segment.modified_ms = log_now_ms(log)
    if first != log.end_offset:
        # A replica of a compacted log has gaps between its batches. The list of recent batches must have no gaps,
        # because a look-up in this list takes the last batch that begins at or before the wanted offset.
        recent_clear(log)
    recent_add(log, first, segment.size)
    store64(&segment.size, segment.size + size)
    store32(&segment.wholly_synced, 0)
    log.end_offset = last + 1
    add64(&log.total_bytes, size)
    add64(&log.appended_bytes, size)


cdef void write_waiting_entries(Log *log) noexcept nogil:
    cdef Segment *segment = log.active
    cdef int result
    if (segment.offset_count - segment.offset_written >= UNWRITTEN_ENTRIES
            or segment.time_count - segment.time_written >= UNWRITTEN_ENTRIES):
        result = segment_write_indexes(segment)
        if result < 0 and not is_short_of_files(result):  # if no file descriptor is free, the next append tries again
            io_fail(log.dir, -result)
            log.state = LOG_FAILED


cdef void keep_ahead(Log *log) noexcept nogil:
    cdef Segment *segment = log.active
    if segment.size >= LARGE_BYTES and segment.size + AHEAD_BYTES > segment.reserved and not segment.preallocated:
        if segment.reserved < log.config.segment_bytes:
            log_reserve_ahead(log)


cdef void note_unflushed(Log *log) noexcept nogil:
    if log.unflushed_since_ns < 0:
        log.unflushed_since_ns = log.clock.monotonic_ns(log.clock.self)


cdef bint aborts(Log *log, const uint8_t *batch, size_t size, const BatchHeader *header) noexcept nogil:
    """Returns whether the batch will abort an open transaction, and so needs an entry in the transaction index."""
    cdef Producer *producer
    if not is_abort_marker(batch, size, header):
        return False
    producer = producers_find(log.producers, header.producer_id)
    return producer != NULL and producer.transaction_first_offset >= 0


cdef int open_aborted(Log *log, int *file) noexcept nogil:
    """Opens the transaction index before a marker is written, so that the entry cannot fail for want of a file
    descriptor. If no descriptor is free, the append is refused, and the directory stays online."""
    file[0] = txn_index_open(log.active)
    if file[0] >= 0:
        return 0
    if not is_short_of_files(file[0]):
        io_fail(log.dir, -file[0])
        log.state = LOG_FAILED
    return KAFKA_STORAGE_ERROR


cdef void close_aborted(Log *log, int file) noexcept nogil:
    if file >= 0:
        log.dir.disk.close(log.dir.disk.self, file)


cdef int note_aborted(Log *log, int file, const EndedTransaction *ended) noexcept nogil:
    cdef int result = txn_index_write(log.active, file, ended)
    if result == 0:
        store64(&log.last_aborted_offset, ended.last_offset)
        return 0
    io_fail(log.dir, -result)
    log.state = LOG_FAILED
    return KAFKA_STORAGE_ERROR


cdef int note_prepared(Log *log, const Prepared *prepared, int file) noexcept nogil:
    """Notes the batch that was written. `file` is the open transaction index if the batch aborts a transaction."""
    cdef EndedTransaction ended
    if not prepared.idempotent:
        return 0
    # The call cannot fail, because a place for the producer was reserved. The batch must already have its final offsets
    # and timestamps.
    producers_note_batch(log.producers, prepared.data, prepared.size, &ended)
    log.first_unstable_offset = producers_first_unstable(log.producers)
    return note_aborted(log, file, &ended) if ended.last_offset >= 0 and ended.aborted else 0


cdef int log_append_prepared(Log *log, Prepared *prepared, int32_t leader_epoch, Waiter *blocked,
                             AppendInfo *info) noexcept nogil:
    cdef BatchHeader *header = &info.validated.header
    cdef ProducerBatch duplicate
    cdef int file = -1
    cdef int64_t first = log.end_offset
    cdef int64_t last = first + header.last_offset_delta
    cdef int error = state_error(log, blocked)
    if error != 0:
        return error
    info.log_start_offset = log.log_start_offset
    if prepared.idempotent:
        if is_control(header):
            error = producers_check_marker(log.producers, prepared.data, prepared.size, header,
                                           prepared.origin == ORIGIN_BUMPED_MARKER)
        else:
            error = producers_check(log.producers, header, is_from_client(prepared.origin),
                                    prepared.origin == ORIGIN_BUMPED_TRANSACTION, &duplicate)
        if error == PRODUCER_DUPLICATE:
            info.duplicate = True
            info.first_offset = duplicate.first_offset
            info.last_offset = duplicate.last_offset
            if info.log_append_time_ms >= 0:
                info.log_append_time_ms = duplicate.timestamp_ms
            return 0
        if error != 0:
            return error
    if should_roll(log, <int64_t> prepared.size, info.validated.max_timestamp, last):
        return log_start_roll(log, first, blocked)
    if prepared.idempotent and aborts(log, prepared.data, prepared.size, header):
        error = open_aborted(log, &file)
        if error != 0:
            return error
    if segment_reserve(log.active) < 0 or (
            prepared.idempotent and producers_reserve(log.producers, header) < 0) or (
            epochs_assign(log, leader_epoch, first) < 0):
        close_aborted(log, file)
        return UNKNOWN_SERVER_ERROR
    assign_offsets(prepared.data, first, leader_epoch)
    error = write_bytes(log, prepared.data, prepared.size)
    if error == 0:
        note_position(log, <int64_t> prepared.size, first, last, info.validated.max_timestamp)
        error = note_prepared(log, prepared, file)
    close_aborted(log, file)
    if error != 0:
        return error
    write_waiting_entries(log)
    keep_ahead(log)
    note_unflushed(log)
    if log.epochs_dirty:
        log_save_epochs(log)
    info.first_offset = first
    info.last_offset = last
    info.end_position = log.active.size
    return 0


cdef int log_note_state(Log *log, const uint8_t *batch, size_t size, EndedTransaction *ended) noexcept nogil:
    cdef BatchHeader header
    cdef int result
    ended.last_offset = -1
    if parse_header(batch, size, &header) != BATCH_OK or header.magic < 2:
        return 0
    if header.partition_leader_epoch >= 0 and epochs_assign(log, header.partition_leader_epoch, header.base_offset) < 0:
        return -ENOMEM
    if is_planted(b"producers-behind-the-log"):
        return 0
    result = producers_note_batch(log.producers, batch, size, ended)
    log.first_unstable_offset = producers_first_unstable(log.producers)
    return result


# --- batches that already have their offsets ---

cdef int reserve_all(Log *log, const uint8_t *records, size_t size, bint *may_abort) noexcept nogil:
    """Reserves a place for the producer of every batch, so that `producers_note_batch` cannot fail. Sets `may_abort` if
    a batch may abort a transaction. The transaction can begin in an earlier one of these batches."""
    cdef size_t at = 0
    cdef BatchHeader header
    cdef bint begins = False
    may_abort[0] = False
    while at < size:
        parse_header(records + at, size - at, &header)
        if header.magic >= 2 and has_producer_id(&header):
            if producers_reserve(log.producers, &header) < 0:
                return -ENOMEM
            if not is_control(&header):
                begins |= is_transactional(&header)
            elif aborts(log, records + at, size - at, &header) or (
                    begins and is_abort_marker(records + at, size - at, &header)):
                may_abort[0] = True
        at += <size_t> header.size_bytes
    return 0


cdef int note_checked(Log *log, const uint8_t *records, size_t size, int file) noexcept nogil:
    """Notes the batches that were written. `file` is the open transaction index if a batch may abort a transaction."""
    cdef BatchHeader header
    cdef EndedTransaction ended
    cdef size_t at = 0
    cdef int error = 0
    while at < size:
        parse_header(records + at, size - at, &header)
        if segment_reserve(log.active) < 0 or log_note_state(log, records + at, header.size_bytes, &ended) < 0:
            # The batch is in the file but not in the state in memory, and only a restart can repair that.
            io_fail(log.dir, ENOMEM)
            log.state = LOG_FAILED
            return KAFKA_STORAGE_ERROR
        note_position(log, header.size_bytes, header.base_offset, last_offset(&header), header.max_timestamp)
        if ended.last_offset >= 0 and ended.aborted and error == 0:
            error = note_aborted(log, file, &ended)
        at += <size_t> header.size_bytes
    return error


cdef int64_t next_base(const Log *log, const BatchesResult *checked) noexcept nogil:
    """Returns the base offset of the new segment for these batches. This is the log end offset even if the first batch
    begins later, because after a gap between two segments, a load would assume that the earlier segment has lost its
    end. Two kinds of gaps stay: a gap that is too large for the new segment's indexes, and a gap into which the log was
    truncated."""
    return log.end_offset if checked.last_offset - log.end_offset <= LAST_RELATIVE_OFFSET else checked.first_offset


cdef int log_append_checked(Log *log, const uint8_t *records, const BatchesResult *checked, Waiter *blocked,
                            AppendInfo *info) noexcept nogil:
    cdef int file = -1
    cdef bint may_abort
    cdef int error = state_error(log, blocked)
    if error != 0:
        return error
    info.log_start_offset = log.log_start_offset
    info.first_offset = checked.first_offset
    info.last_offset = checked.last_offset
    if checked.valid_bytes == 0:
        return 0
    if checked.first_offset < log.end_offset:
        return OFFSET_OUT_OF_RANGE
    if <int64_t> checked.valid_bytes > log.config.segment_bytes:
        return RECORD_LIST_TOO_LARGE
    if should_roll(log, <int64_t> checked.valid_bytes, checked.max_timestamp, checked.last_offset):
        return log_start_roll(log, next_base(log, checked), blocked)
    if reserve_all(log, records, checked.valid_bytes, &may_abort) < 0:
        return UNKNOWN_SERVER_ERROR
    error = open_aborted(log, &file) if may_abort else 0
    if error == 0:
        error = write_bytes(log, records, checked.valid_bytes)
    if error == 0:
        error = note_checked(log, records, checked.valid_bytes, file)
    close_aborted(log, file)
    if error != 0:
        return error
    write_waiting_entries(log)
    keep_ahead(log)
    note_unflushed(log)
    if log.epochs_dirty:
        log_save_epochs(log)
    return 0
