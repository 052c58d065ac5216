"""Implements batch.pxd: the two passes of a compaction over one batch."""

from libc.stdint cimport INT64_MAX
from libc.string cimport memcpy

from kafkacore._fast.codec.context cimport (
    CODEC_NO_FILE, CODEC_NO_MEMORY, CODEC_NONE, CODEC_OK, LEVEL_DEFAULT, deflate_all, inflate_all,
)
from kafkacore._fast.compact.state cimport is_last_batch, transactions_note
from kafkacore._fast.base.crc32c cimport crc32c
from kafkacore._fast.base.cursor cimport Reader, put32, reader_init, reserve, writer_free
from kafkacore._fast.compact.offset_map cimport (
    OFFSET_MAP_FULL, KeyHash, offset_map_get, offset_map_hash, offset_map_prefetch, offset_map_put,
)
from kafkacore._fast.record.old_messages cimport (
    OldMessage, OldMessages, old_messages_close, old_messages_more, old_messages_next, old_messages_open,
)
from kafkacore._fast.record.record cimport (
    ATTRIBUTES_AT, BATCH_NO_MEMORY, BATCH_OK, CONTROL, CRC_AT, DELETE_HORIZON, HEADER_BYTES,
    LOG_APPEND_TIME, LOG_OVERHEAD, MAX_BATCH_BYTES, NO_TIMESTAMP, TRANSACTIONAL, BatchBuilder, RecordView,
    add64_wrapping, batch_codec, builder_append, builder_close, builder_free, builder_init, has_producer_id, is_control,
    last_offset, next_record, write_header,
)
from kafkacore._fast.base.varint cimport get_varint, get_varlong

cdef enum:
    BATCH_NEEDS_HORIZON = 1  # in addition to BatchStatus: a tombstone stays, and the batch has no delete horizon yet
    AT_ONCE = 32          # the number of records whose slots are prefetched together

# The fields of a record that decide whether the record stays.
ctypedef struct Glance:
    const uint8_t *start
    const uint8_t *end
    const uint8_t *key
    int64_t offset
    int64_t timestamp
    int32_t key_size
    bint has_value
    KeyHash hash

# The result of a walk over the records of a batch.
ctypedef struct Walk:
    int32_t kept
    bint all_kept
    bint tombstones       # whether a kept record is a tombstone
    int64_t max_timestamp


cdef void compactor_free(Compactor *compactor) noexcept nogil:
    writer_free(&compactor.inflated)
    writer_free(&compactor.rebuilt)


# --- records ---

cdef inline const uint8_t *glance(const uint8_t *p, const uint8_t *end, const BatchHeader *header,
                                  Glance *record) noexcept nogil:
    """Parses a record. Returns the position after it, or NULL if the record is malformed."""
    cdef int32_t length = 0
    cdef int32_t value_size = 0
    cdef int32_t offset_delta = 0
    cdef int64_t timestamp_delta = 0
    record.start = p
    p = get_varint(p, end, &length)
    if p == NULL or length < 1 or length > end - p:
        return NULL
    record.end = end = p + length
    p = get_varlong(p + 1, end, &timestamp_delta)
    p = get_varint(p, end, &offset_delta)
    p = get_varint(p, end, &record.key_size)
    if p == NULL or record.key_size < -1 or record.key_size > end - p:
        return NULL
    record.key = p
    if record.key_size > 0:
        p += record.key_size
    if get_varint(p, end, &value_size) == NULL or value_size < -1:
        return NULL
    record.has_value = value_size >= 0
    record.offset = add64_wrapping(header.base_offset, offset_delta)
    record.timestamp = add64_wrapping(header.base_timestamp, timestamp_delta)
    return end


cdef int codec_failed(int status) noexcept nogil:
    if status == CODEC_NO_FILE:
        return COMPACT_NO_FILE
    return COMPACT_NO_MEMORY if status == CODEC_NO_MEMORY else COMPACT_BAD_BATCH


cdef int open_body(Compactor *compactor, const uint8_t *batch, const BatchHeader *header, Reader *body) noexcept nogil:
    """Sets `body` to a reader over the records of a batch. Inflates compressed records first."""
    cdef int status
    reader_init(body, batch + HEADER_BYTES, header.size_bytes - HEADER_BYTES)
    if batch_codec(header) == CODEC_NONE:
        return 0
    compactor.inflated.size = 0
    compactor.inflated.bad = False
    status = inflate_all(compactor.codec, batch_codec(header), body.pos, body.end - body.pos, &compactor.limits,
                         &compactor.inflated)
    reader_init(body, compactor.inflated.data, compactor.inflated.size)
    if status == CODEC_OK:
        return 0
    return codec_failed(status)


cdef int glance_some(Compactor *compactor, Reader *body, const BatchHeader *header, int32_t count,
                     Glance *records) noexcept nogil:
    """Parses the next `count` records, hashes their keys and prefetches the slots of these keys."""
    cdef int32_t i
    for i in range(count):
        body.pos = glance(body.pos, body.end, header, &records[i])
        if body.pos == NULL:
            return COMPACT_BAD_BATCH
        if records[i].key_size >= 0:
            offset_map_hash(compactor.map, records[i].key, <size_t> records[i].key_size, &records[i].hash)
            offset_map_prefetch(compactor.map, &records[i].hash)
    return 0


# --- the offset map ---

cdef int status_of(int batch_status) noexcept nogil:
    if batch_status == BATCH_OK:
        return 0
    return COMPACT_NO_MEMORY if batch_status == BATCH_NO_MEMORY else COMPACT_BAD_BATCH


cdef int map_old(Compactor *compactor, const uint8_t *entry, const BatchHeader *header) noexcept nogil:
    cdef OldMessages messages
    cdef OldMessage message
    cdef KeyHash hash
    cdef int status = status_of(old_messages_open(&messages, entry, header, compactor.codec, &compactor.limits))
    while status == 0 and old_messages_more(&messages):
        status = status_of(old_messages_next(&messages, &message))
        compactor.mapped_records += 1
        if status == 0 and message.key_size >= 0 and message.offset >= compactor.first_offset:
            offset_map_hash(compactor.map, message.key, <size_t> message.key_size, &hash)
            if offset_map_put(compactor.map, &hash, message.offset) == OFFSET_MAP_FULL:
                status = COMPACT_MAP_FULL
    old_messages_close(&messages)
    return status


cdef int compact_map(Compactor *compactor, const uint8_t *batch, const BatchHeader *header) noexcept nogil:
    cdef Glance records[AT_ONCE]
    cdef Reader body
    cdef int32_t left = header.record_count
    cdef int32_t count, i
    cdef int status
    if header.magic < 2:
        status = map_old(compactor, batch, header)
    else:
        if transactions_note(compactor.transactions, batch, header) or is_control(header):
            left = 0
        status = open_body(compactor, batch, header, &body) if left > 0 else 0
        while status == 0 and left > 0:
            count = min(left, <int32_t> AT_ONCE)
            left -= count
            status = glance_some(compactor, &body, header, count, records)
            for i in range(count if status == 0 else 0):
                if records[i].key_size < 0 or records[i].offset < compactor.first_offset:
                    continue
                if offset_map_put(compactor.map, &records[i].hash, records[i].offset) == OFFSET_MAP_FULL:
                    return COMPACT_MAP_FULL
            compactor.mapped_records += count
    if status == 0 and last_offset(header) >= compactor.first_offset:
        compactor.map.latest_offset = last_offset(header)
    return status


# --- filtering ---

cdef bint stays_hashed(Compactor *compactor, const KeyHash *hash, int32_t key_size, bint has_value, int64_t offset,
                       bint keep_deletes) noexcept nogil:
    if offset > compactor.map.latest_offset:
        return True
    if key_size < 0:
        compactor.keyless_records += 1
        return False
    return offset >= offset_map_get(compactor.map, hash) and (has_value or keep_deletes)


cdef bint stays(Compactor *compactor, const uint8_t *key, int32_t key_size, bint has_value, int64_t offset,
                bint keep_deletes) noexcept nogil:
    cdef KeyHash hash
    if key_size >= 0:
        offset_map_hash(compactor.map, key, <size_t> key_size, &hash)
    return stays_hashed(compactor, &hash, key_size, has_value, offset, keep_deletes)


cdef int keep_run(Compactor *compactor, const uint8_t *start, const uint8_t *end) noexcept nogil:
    cdef uint8_t *room
    if start == end:
        return 0
    room = reserve(&compactor.rebuilt, <size_t> (end - start))
    if room == NULL:
        return COMPACT_NO_MEMORY
    memcpy(room, start, <size_t> (end - start))
    return 0


cdef int walk_records(Compactor *compactor, Reader *body, const BatchHeader *header, Walk *walk) noexcept nogil:
    """Decides for each record of a batch whether it stays, and sets `walk`. If some records are dropped, writes an
    empty space for a batch header and then the kept records to `rebuilt`."""
    cdef Glance records[AT_ONCE]
    cdef const uint8_t *run = body.pos
    cdef bint keep_deletes = not header.attributes & DELETE_HORIZON or compactor.now_ms < header.base_timestamp
    cdef int32_t left = header.record_count
    cdef int32_t count, i
    cdef int status = 0
    walk.kept = 0
    walk.all_kept = True
    walk.tombstones = False
    walk.max_timestamp = NO_TIMESTAMP
    while status == 0 and left > 0:
        count = min(left, <int32_t> AT_ONCE)
        left -= count
        status = glance_some(compactor, body, header, count, records)
        for i in range(count if status == 0 else 0):
            if stays_hashed(compactor, &records[i].hash, records[i].key_size, records[i].has_value, records[i].offset,
                            keep_deletes):
                walk.kept += 1
                walk.tombstones |= not records[i].has_value
                if records[i].timestamp > walk.max_timestamp:
                    walk.max_timestamp = records[i].timestamp
                continue
            if walk.all_kept:
                walk.all_kept = False
                if reserve(&compactor.rebuilt, HEADER_BYTES) == NULL:
                    return COMPACT_NO_MEMORY
            if status == 0:
                status = keep_run(compactor, run, records[i].start)
            run = records[i].end
    if status == 0 and not walk.all_kept:
        status = keep_run(compactor, run, body.pos)
    return status


cdef void fill(Kept *kept, const Compactor *compactor, const BatchHeader *header) noexcept nogil:
    kept.data = compactor.rebuilt.data
    kept.size = compactor.rebuilt.size
    kept.last_offset = last_offset(header)
    kept.max_timestamp = header.max_timestamp


cdef void seal(Compactor *compactor, BatchHeader *header, Kept *kept) noexcept nogil:
    """Sets the length and the checksum of the batch in `rebuilt`."""
    cdef uint8_t *data = compactor.rebuilt.data
    header.size_bytes = <int32_t> compactor.rebuilt.size
    header.batch_length = header.size_bytes - LOG_OVERHEAD
    write_header(data, header)
    put32(data + CRC_AT, crc32c(0, data + ATTRIBUTES_AT, compactor.rebuilt.size - ATTRIBUTES_AT))
    fill(kept, compactor, header)


cdef int keep_header(Compactor *compactor, const BatchHeader *header, Kept *kept) noexcept nogil:
    """Keeps only the header fields that the state of a producer needs (DefaultRecordBatch.writeEmptyHeader)."""
    cdef BatchHeader empty = header[0]
    compactor.rebuilt.size = 0
    if reserve(&compactor.rebuilt, HEADER_BYTES) == NULL:
        return COMPACT_NO_MEMORY
    empty.magic = 2
    empty.attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    empty.base_timestamp = NO_TIMESTAMP
    empty.record_count = 0
    seal(compactor, &empty, kept)
    return 0


cdef int compress(Compactor *compactor, int codec) noexcept nogil:
    """Compresses the records in `rebuilt`. Overwrites the scratch buffer that held the inflated records."""
    cdef Writer plain = compactor.rebuilt
    cdef Writer packed = compactor.inflated
    cdef int status
    packed.size = 0
    packed.bad = False
    if reserve(&packed, HEADER_BYTES) == NULL:
        compactor.inflated = packed
        return COMPACT_NO_MEMORY
    status = deflate_all(compactor.codec, codec, LEVEL_DEFAULT, plain.data + HEADER_BYTES, plain.size - HEADER_BYTES,
                         &packed)
    compactor.rebuilt = packed
    compactor.inflated = plain
    if status == CODEC_OK:
        return 0
    return codec_failed(status)


cdef int keep_some(Compactor *compactor, const BatchHeader *header, const Walk *walk, Kept *kept) noexcept nogil:
    cdef BatchHeader some = header[0]
    cdef int status = 0
    some.record_count = walk.kept
    if not header.attributes & LOG_APPEND_TIME:
        some.max_timestamp = walk.max_timestamp
    if batch_codec(header) != CODEC_NONE:
        status = compress(compactor, batch_codec(header))
    if status == 0:
        seal(compactor, &some, kept)
    return status


cdef int append_all(BatchBuilder *builder, Reader *body, const BatchHeader *header, int32_t count) noexcept nogil:
    cdef RecordView record
    cdef int64_t timestamp
    cdef int status = BATCH_OK
    while count > 0:
        count -= 1
        status = next_record(body, &record)
        if status == BATCH_OK:
            timestamp = header.max_timestamp
            if not header.attributes & LOG_APPEND_TIME:
                timestamp = add64_wrapping(header.base_timestamp, record.timestamp_delta)
            status = builder_append(builder, record.offset_delta, timestamp, record.key, record.key_size, record.value,
                                    record.value_size, record.headers, record.headers_size, record.header_count)
        if status != BATCH_OK:
            break
    return status


cdef int64_t new_horizon(const Compactor *compactor) noexcept nogil:
    """Returns the delete horizon of a new tombstone. With the longest retention, the tombstone stays forever."""
    cdef int64_t rest = INT64_MAX - compactor.now_ms
    return compactor.now_ms + min(compactor.delete_retention_ms, rest)


cdef int take_built(Compactor *compactor, BatchBuilder *builder, int status, int codec, Kept *kept) noexcept nogil:
    """Finishes the batch of the builder. On success, the batch is in `rebuilt`."""
    if status == BATCH_OK:
        status = builder_close(builder, codec, LEVEL_DEFAULT, compactor.codec)
    if status != BATCH_OK:
        builder_free(builder)
        return status_of(status)
    writer_free(&compactor.rebuilt)
    builder.out.limit = compactor.rebuilt.limit
    compactor.rebuilt = builder.out
    fill(kept, compactor, &builder.header)
    return 0


cdef int keep_with_horizon(Compactor *compactor, const BatchHeader *header, Reader *body, int32_t count,
                           Kept *kept) noexcept nogil:
    """Rewrites `count` records of `body` with a delete horizon. After the horizon, a compaction removes tombstones and
    markers. The new base timestamp of the batch is the horizon, and the timestamps of the records are relative to
    it."""
    cdef BatchBuilder builder
    cdef int status
    builder_init(&builder, MAX_BATCH_BYTES, header.base_offset)
    builder.header = header[0]
    builder.header.attributes = header.attributes | DELETE_HORIZON
    builder.header.base_timestamp = new_horizon(compactor)
    builder.header.record_count = 0
    builder.header.last_offset_delta = -1
    status = append_all(&builder, body, header, count)
    # The batch keeps its last offset, because the producer's last sequence number is computed from it.
    builder.header.last_offset_delta = header.last_offset_delta
    return take_built(compactor, &builder, status, batch_codec(header), kept)


cdef int keep_whole(Compactor *compactor, const uint8_t *batch, const BatchHeader *header, bint needs_horizon,
                    Reader *body, Kept *kept) noexcept nogil:
    compactor.kept_records += header.record_count
    if needs_horizon:
        return keep_with_horizon(compactor, header, body, header.record_count, kept)
    kept.data = batch
    kept.size = <size_t> header.size_bytes
    kept.last_offset = last_offset(header)
    kept.max_timestamp = header.max_timestamp
    return 0


cdef int filter_data(Compactor *compactor, const uint8_t *batch, const BatchHeader *header, bint retain_empty,
                     Kept *kept) noexcept nogil:
    cdef Reader body
    cdef Reader records
    cdef Walk walk
    cdef bint needs_horizon
    cdef int status
    if header.record_count <= 0:
        return keep_header(compactor, header, kept) if retain_empty else 0
    status = open_body(compactor, batch, header, &body)
    records = body
    if status == 0:
        status = walk_records(compactor, &body, header, &walk)
    if status != 0:
        return status
    if walk.kept == 0:
        return keep_header(compactor, header, kept) if retain_empty else 0
    needs_horizon = walk.tombstones and not header.attributes & DELETE_HORIZON
    if walk.all_kept:
        return keep_whole(compactor, batch, header, needs_horizon, &records, kept)
    compactor.kept_records += walk.kept
    if not needs_horizon:
        return keep_some(compactor, header, &walk, kept)
    reader_init(&records, compactor.rebuilt.data + HEADER_BYTES, compactor.rebuilt.size - HEADER_BYTES)
    return keep_with_horizon(compactor, header, &records, walk.kept, kept)


cdef int filter_marker(Compactor *compactor, const uint8_t *batch, const BatchHeader *header, bint retain_empty,
                       bint unneeded, Kept *kept) noexcept nogil:
    cdef Reader body
    if header.record_count <= 0:
        return keep_header(compactor, header, kept) if retain_empty else 0
    reader_init(&body, batch + HEADER_BYTES, header.size_bytes - HEADER_BYTES)
    return keep_whole(compactor, batch, header, unneeded and not header.attributes & DELETE_HORIZON, &body, kept)


cdef bint is_end(const Compactor *compactor, const BatchHeader *header) noexcept nogil:
    return last_offset(header) + 1 == compactor.upper_bound


# --- messages of magic 0 and 1, which compaction converts to magic 2 ---

cdef int append_old(Compactor *compactor, OldMessages *messages, BatchBuilder *builder) noexcept nogil:
    """Appends the kept messages. Returns a `BatchStatus` or BATCH_NEEDS_HORIZON."""
    cdef OldMessage message
    cdef int status = BATCH_OK
    while status == BATCH_OK and old_messages_more(messages):
        status = old_messages_next(messages, &message)
        compactor.read_records += 1
        if status != BATCH_OK or not stays(compactor, message.key, message.key_size, message.value_size >= 0,
                                           message.offset, compactor.keep_old_deletes):
            continue
        if builder.header.record_count == 0:
            builder.header.base_offset = message.offset
        if message.value_size < 0 and not builder.header.attributes & DELETE_HORIZON:
            return BATCH_NEEDS_HORIZON
        status = builder_append(builder, <int32_t> (message.offset - builder.header.base_offset), message.timestamp,
                                message.key, message.key_size, message.value, message.value_size, NULL, 0, 0)
        compactor.kept_records += 1
    return status


cdef void begin_old(Compactor *compactor, const BatchHeader *header, bint horizon,
                    BatchBuilder *builder) noexcept nogil:
    builder_init(builder, MAX_BATCH_BYTES, header.base_offset)
    if header.magic == 1 and header.attributes & LOG_APPEND_TIME:
        builder.header.attributes = LOG_APPEND_TIME
        builder.header.max_timestamp = header.max_timestamp
    if horizon:
        builder.header.attributes |= DELETE_HORIZON
        builder.header.base_timestamp = new_horizon(compactor)


cdef int filter_old(Compactor *compactor, const uint8_t *entry, const BatchHeader *header, Kept *kept) noexcept nogil:
    cdef OldMessages messages
    cdef BatchBuilder builder
    cdef int64_t read_before = compactor.read_records
    cdef int64_t kept_before = compactor.kept_records
    cdef int64_t keyless_before = compactor.keyless_records
    cdef int status = old_messages_open(&messages, entry, header, compactor.codec, &compactor.limits)
    begin_old(compactor, header, False, &builder)
    if status == BATCH_OK:
        status = append_old(compactor, &messages, &builder)
    if status == BATCH_NEEDS_HORIZON:
        builder_free(&builder)
        begin_old(compactor, header, True, &builder)
        messages.at = 0
        compactor.read_records = read_before
        compactor.kept_records = kept_before
        compactor.keyless_records = keyless_before
        status = append_old(compactor, &messages, &builder)
    old_messages_close(&messages)
    if status == BATCH_OK and builder.header.record_count == 0:
        builder_free(&builder)
        return keep_header(compactor, header, kept) if is_end(compactor, header) else 0
    return take_built(compactor, &builder, status, batch_codec(header), kept)


cdef int compact_filter(Compactor *compactor, const uint8_t *batch, const BatchHeader *header,
                        Kept *kept) noexcept nogil:
    cdef bint discard, unneeded, retain_empty
    kept.data = NULL
    compactor.rebuilt.size = 0
    compactor.rebuilt.bad = False
    if header.magic < 2:
        return filter_old(compactor, batch, header, kept)
    compactor.read_records += max(header.record_count, 0)
    discard = unneeded = transactions_note(compactor.transactions, batch, header)
    if is_control(header):
        # A marker is kept for delete.retention.ms after the records of its transaction are gone, so that consumers can
        # read it.
        discard = (unneeded and header.attributes & DELETE_HORIZON != 0
                   and header.base_timestamp <= compactor.now_ms)
    # The last batch of a producer is kept because it holds the producer's sequence number. The last batch of the round
    # is kept because its last offset says how far the log has been compacted.
    retain_empty = (has_producer_id(header) and is_last_batch(compactor.last, header)) or is_end(compactor, header)
    if discard:
        return keep_header(compactor, header, kept) if retain_empty else 0
    if is_control(header):
        return filter_marker(compactor, batch, header, retain_empty, unneeded, kept)
    return filter_data(compactor, batch, header, retain_empty, kept)
