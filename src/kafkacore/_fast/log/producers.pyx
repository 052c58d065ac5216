"""Implements producers.pxd: the producer state of one log (KIP-98; ProducerStateManager, ProducerAppendInfo)."""

from libc.errno cimport EINVAL, ENOMEM
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.stddef cimport size_t
from libc.string cimport memmove, memset

from kafkacore._fast.base.error_codes cimport (
    INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, OUT_OF_ORDER_SEQUENCE_NUMBER, TRANSACTION_COORDINATOR_FENCED,
)
from kafkacore._fast.base.planted cimport is_planted
from kafkacore._fast.base.atomics cimport add32, load32
from kafkacore._fast.base.crc32c cimport crc32c
from kafkacore._fast.base.cursor cimport (
    Reader, Writer, be16, be32, put32, read_i16, read_i32, read_i64, reader_init, remaining, write_i16, write_i32,
    write_i64,
)
from kafkacore._fast.base.keyed_hash cimport hash_word, process_hash_key
from kafkacore._fast.record.record cimport (
    BATCH_OK, HEADER_BYTES, MARKER_ABORT, MARKER_COMMIT, MARKER_KEY_BYTES, MARKER_VALUE_BYTES, NO_PRODUCER_EPOCH,
    NO_SEQUENCE, BatchHeader, RecordView, add_sequence, has_producer_id, is_control, is_transactional, last_offset,
    last_sequence, next_record, parse_header,
)

cdef enum:
    LEAST_BUCKETS = 4
    LAST_PRODUCER_EPOCH = 0x7FFF
    SNAPSHOT_VERSION = 1
    SNAPSHOT_HEADER_BYTES = 10    # version, checksum, count
    SNAPSHOT_ENTRY_BYTES = 46
    CHECKSUM_AT = 2
    CHECKED_FROM = 6

cdef int32_t live_producers = 0  # atomic; tests check that it returns to zero


cdef Producers *producers_new() noexcept nogil:
    cdef Producers *producers = <Producers *> calloc(1, sizeof(Producers))
    if producers == NULL:
        return NULL
    producers.buckets = <Producer **> calloc(LEAST_BUCKETS, sizeof(Producer *))
    if producers.buckets == NULL:
        free(producers)
        return NULL
    producers.bucket_mask = LEAST_BUCKETS - 1
    return producers


cdef void producers_clear(Producers *producers) noexcept nogil:
    cdef Producer *producer = producers.first
    cdef Producer *rest
    while producer != NULL:
        rest = producer.next
        free(producer)
        producer = rest
    memset(producers.buckets, 0, (producers.bucket_mask + 1) * sizeof(Producer *))
    add32(&live_producers, -producers.count)
    producers.first = producers.last = NULL
    producers.count = 0
    producers.transaction_count = producers.ended_count = 0


cdef void producers_free(Producers *producers) noexcept nogil:
    if producers == NULL:
        return
    producers_clear(producers)
    free(producers.buckets)
    free(producers.transactions)
    free(producers)


cdef Producer **bucket_of(const Producers *producers, int64_t producer_id) noexcept nogil:
    cdef uint64_t hashed = hash_word(process_hash_key(), <uint64_t> producer_id)
    return &producers.buckets[hashed & <uint64_t> producers.bucket_mask]


cdef Producer *producers_find(Producers *producers, int64_t producer_id) noexcept nogil:
    cdef Producer *producer = bucket_of(producers, producer_id)[0]
    while producer != NULL and producer.producer_id != producer_id:
        producer = producer.chain
    return producer


cdef bint grow(Producers *producers) noexcept nogil:
    cdef int32_t size = (producers.bucket_mask + 1) * 2
    cdef Producer **buckets = <Producer **> calloc(size, sizeof(Producer *))
    cdef Producer **place
    cdef Producer *producer = producers.first
    if buckets == NULL:
        return False
    free(producers.buckets)
    producers.buckets = buckets
    producers.bucket_mask = size - 1
    while producer != NULL:
        place = bucket_of(producers, producer.producer_id)
        producer.chain = place[0]
        place[0] = producer
        producer = producer.next
    return True


cdef Producer *add_producer(Producers *producers, int64_t producer_id) noexcept nogil:
    cdef Producer **place
    cdef Producer *producer
    if producers.count > producers.bucket_mask and producers.bucket_mask < 0x3FFFFFFF:
        grow(producers)  # if there is no memory for more buckets, the chains become longer
    producer = <Producer *> calloc(1, sizeof(Producer))
    if producer == NULL:
        return NULL
    producer.producer_id = producer_id
    producer.producer_epoch = NO_PRODUCER_EPOCH
    producer.coordinator_epoch = -1
    producer.last_timestamp_ms = -1
    producer.transaction_first_offset = -1
    place = bucket_of(producers, producer_id)
    producer.chain = place[0]
    place[0] = producer
    if producers.last != NULL:
        producers.last.next = producer
    else:
        producers.first = producer
    producers.last = producer
    producers.count += 1
    add32(&live_producers, 1)
    return producer


# --- checks ---

cdef bint find_duplicate(const Producer *producer, const BatchHeader *header, ProducerBatch *duplicate) noexcept nogil:
    cdef int32_t i
    if header.producer_epoch != producer.producer_epoch:
        return False
    for i in range(producer.batch_count):
        if (producer.batches[i].first_sequence == header.base_sequence
                and producer.batches[i].last_sequence == last_sequence(header)):
            duplicate[0] = producer.batches[i]
            return True
    return False


cdef int producers_check(Producers *producers, const BatchHeader *header, bint sequences, bint bumped,
                         ProducerBatch *duplicate) noexcept nogil:
    cdef Producer *producer = producers_find(producers, header.producer_id)
    cdef int32_t last
    # An unknown producer can begin with any sequence number (KIP-360). A producer is unknown, for example, if it has
    # sent no batch for producer.id.expiration.ms. With transaction.version 2, the first batch of such a producer must
    # have the sequence number 0. A batch with another number has overtaken the first batch of its transaction.
    if producer == NULL or producer.producer_epoch == NO_PRODUCER_EPOCH:
        return OUT_OF_ORDER_SEQUENCE_NUMBER if bumped and header.base_sequence != 0 else 0
    if sequences and find_duplicate(producer, header, duplicate):
        return PRODUCER_DUPLICATE
    if header.producer_epoch < producer.producer_epoch and not is_planted(b"producer-epoch-ignored"):
        return INVALID_PRODUCER_EPOCH
    if not sequences:
        return 0
    if header.producer_epoch != producer.producer_epoch:
        if header.base_sequence != 0:
            return OUT_OF_ORDER_SEQUENCE_NUMBER
    else:
        last = producer.batches[producer.batch_count - 1].last_sequence if producer.batch_count else NO_SEQUENCE
        if header.base_sequence != add_sequence(last, 1) and not is_planted(b"sequence-gap-accepted"):
            return OUT_OF_ORDER_SEQUENCE_NUMBER
    return 0 if producer.transaction_first_offset < 0 or is_transactional(header) else INVALID_TXN_STATE


cdef bint parse_marker(const uint8_t *batch, size_t size, int *kind, int32_t *coordinator_epoch,
                       int64_t *delta_ms) noexcept nogil:
    """Parses the only record of a control batch (KIP-98, "Control Messages"). Returns False if the record does not end
    a transaction."""
    cdef Reader body
    cdef RecordView record
    reader_init(&body, batch + HEADER_BYTES, size - HEADER_BYTES)
    if next_record(&body, &record) != BATCH_OK or record.key_size < MARKER_KEY_BYTES:
        return False
    if record.value_size < MARKER_VALUE_BYTES:
        return False
    kind[0] = be16(record.key + 2)
    coordinator_epoch[0] = <int32_t> be32(record.value + 2)
    delta_ms[0] = record.timestamp_delta
    return kind[0] == MARKER_ABORT or kind[0] == MARKER_COMMIT


cdef int producers_check_marker(Producers *producers, const uint8_t *batch, size_t size, const BatchHeader *header,
                                bint bumped) noexcept nogil:
    cdef Producer *producer = producers_find(producers, header.producer_id)
    cdef int kind
    cdef int32_t coordinator_epoch
    cdef int64_t delta_ms
    cdef bint again
    if producer == NULL:
        return 0
    if bumped and header.producer_epoch == producer.producer_epoch:
        again = producer.transaction_first_offset < 0 or header.producer_epoch == LAST_PRODUCER_EPOCH
        if not again:
            return INVALID_PRODUCER_EPOCH
    elif header.producer_epoch < producer.producer_epoch:
        return INVALID_PRODUCER_EPOCH
    if parse_marker(batch, size, &kind, &coordinator_epoch, &delta_ms):
        if coordinator_epoch < producer.coordinator_epoch:
            return TRANSACTION_COORDINATOR_FENCED
    return 0


cdef bint is_abort_marker(const uint8_t *batch, size_t size, const BatchHeader *header) noexcept nogil:
    cdef int kind
    cdef int32_t coordinator_epoch
    cdef int64_t delta_ms
    if header.magic < 2 or not is_control(header) or <size_t> header.size_bytes > size:
        return False
    return parse_marker(batch, <size_t> header.size_bytes, &kind, &coordinator_epoch,
                        &delta_ms) and kind == MARKER_ABORT


cdef int producers_reserve(Producers *producers, const BatchHeader *header) noexcept nogil:
    cdef Transaction *transactions
    cdef int32_t capacity
    if producers_find(producers, header.producer_id) == NULL and add_producer(producers, header.producer_id) == NULL:
        return -ENOMEM
    if is_transactional(header) and producers.transaction_count == producers.transaction_capacity:
        capacity = producers.transaction_capacity * 2 if producers.transaction_capacity else 4
        transactions = <Transaction *> realloc(producers.transactions, capacity * sizeof(Transaction))
        if transactions == NULL:
            return -ENOMEM
        producers.transactions = transactions
        producers.transaction_capacity = capacity
    return 0


# --- batches that are in the log ---

cdef void take_epoch(Producer *producer, int16_t epoch) noexcept nogil:
    """Adopts a producer epoch. With a new epoch, the producer's sequence numbers begin again at 0."""
    if producer.producer_epoch != epoch:
        producer.producer_epoch = epoch
        producer.batch_count = 0


cdef void add_batch(Producer *producer, const ProducerBatch *batch) noexcept nogil:
    if producer.batch_count == PRODUCER_BATCHES:
        memmove(&producer.batches[0], &producer.batches[1], (PRODUCER_BATCHES - 1) * sizeof(ProducerBatch))
        producer.batch_count -= 1
    producer.batches[producer.batch_count] = batch[0]
    producer.batch_count += 1


cdef void open_transaction(Producers *producers, Producer *producer, int64_t first_offset) noexcept nogil:
    """Opens a transaction. Room for it was reserved. Offsets increase, so the new transaction is the last one in the
    order."""
    cdef Transaction *transaction = &producers.transactions[producers.transaction_count]
    producer.transaction_first_offset = first_offset
    transaction.producer_id = producer.producer_id
    transaction.first_offset = first_offset
    transaction.last_offset = -1
    producers.transaction_count += 1


cdef ProducerBatch batch_of(const BatchHeader *header) noexcept nogil:
    return ProducerBatch(header.base_sequence, last_sequence(header), header.base_offset, last_offset(header),
                         header.max_timestamp)


cdef void producers_recall(Producers *producers, const BatchHeader *header) noexcept nogil:
    cdef Producer *producer = producers_find(producers, header.producer_id)
    cdef ProducerBatch last
    cdef ProducerBatch batch = batch_of(header)
    if producer == NULL or producer.batch_count == 0 or producer.producer_epoch != header.producer_epoch:
        return
    last = producer.batches[producer.batch_count - 1]
    if batch.last_offset < last.first_offset:
        producer.batch_count -= 1
        add_batch(producer, &batch)
        add_batch(producer, &last)


cdef void note_data(Producers *producers, const BatchHeader *header) noexcept nogil:
    cdef Producer *producer = producers_find(producers, header.producer_id)
    cdef ProducerBatch batch = batch_of(header)
    take_epoch(producer, header.producer_epoch)
    add_batch(producer, &batch)
    producer.last_timestamp_ms = header.max_timestamp
    if is_transactional(header) and producer.transaction_first_offset < 0:
        open_transaction(producers, producer, header.base_offset)


cdef int64_t stable_without(const Producers *producers, int64_t producer_id, int64_t otherwise) noexcept nogil:
    cdef int32_t i
    for i in range(producers.transaction_count):
        if producers.transactions[i].last_offset < 0 and producers.transactions[i].producer_id != producer_id:
            return producers.transactions[i].first_offset
    return otherwise


cdef void end_transaction(Producers *producers, const BatchHeader *header, int64_t timestamp_ms,
                          int32_t coordinator_epoch,
                          bint aborted, EndedTransaction *ended) noexcept nogil:
    cdef Producer *producer = producers_find(producers, header.producer_id)
    cdef int32_t i
    if producer.transaction_first_offset >= 0:
        ended.producer_id = producer.producer_id
        ended.first_offset = producer.transaction_first_offset
        ended.last_offset = header.base_offset
        ended.aborted = aborted
        ended.last_stable_offset = stable_without(producers, producer.producer_id, header.base_offset + 1)
        for i in range(producers.transaction_count):
            if producers.transactions[i].first_offset == ended.first_offset:
                producers.transactions[i].last_offset = header.base_offset
                producers.ended_count += 1
    take_epoch(producer, header.producer_epoch)
    producer.coordinator_epoch = coordinator_epoch
    producer.last_timestamp_ms = timestamp_ms
    producer.transaction_first_offset = -1


cdef int producers_note_batch(Producers *producers, const uint8_t *batch, size_t size,
                              EndedTransaction *ended) noexcept nogil:
    cdef BatchHeader header
    cdef int kind
    cdef int32_t coordinator_epoch
    cdef int64_t delta_ms
    ended.last_offset = -1
    if parse_header(batch, size, &header) != BATCH_OK or header.magic < 2 or not has_producer_id(&header):
        return 0
    if producers_reserve(producers, &header) < 0:
        return -ENOMEM
    if not is_control(&header):
        note_data(producers, &header)
    elif <size_t> header.size_bytes <= size and parse_marker(batch, <size_t> header.size_bytes, &kind,
                                                             &coordinator_epoch, &delta_ms):
        end_transaction(producers, &header, header.base_timestamp + delta_ms, coordinator_epoch, kind == MARKER_ABORT,
                        ended)
    return 0


cdef int64_t producers_first_unstable(const Producers *producers) noexcept nogil:
    return producers.transactions[0].first_offset if producers.transaction_count > 0 else -1


cdef void producers_replicated(Producers *producers, int64_t high_watermark) noexcept nogil:
    cdef int32_t kept = 0
    cdef int32_t i
    cdef Transaction *transaction
    if producers.ended_count == 0:
        return
    for i in range(producers.transaction_count):
        transaction = &producers.transactions[i]
        if transaction.last_offset >= 0 and transaction.last_offset < high_watermark:
            producers.ended_count -= 1
            continue
        producers.transactions[kept] = transaction[0]
        kept += 1
    producers.transaction_count = kept


cdef void drop_from_bucket(Producers *producers, const Producer *producer) noexcept nogil:
    cdef Producer **place = bucket_of(producers, producer.producer_id)
    while place[0] != producer:
        place = &place[0].chain
    place[0] = producer.chain


cdef int producers_expire(Producers *producers, int64_t now_ms, int64_t expiration_ms) noexcept nogil:
    cdef Producer **place = &producers.first
    cdef Producer *producer
    cdef int gone = 0
    producers.last = NULL
    while place[0] != NULL:
        producer = place[0]
        if producer.transaction_first_offset < 0 and now_ms - producer.last_timestamp_ms >= expiration_ms:
            place[0] = producer.next
            drop_from_bucket(producers, producer)
            free(producer)
            gone += 1
        else:
            producers.last = producer
            place = &producer.next
    producers.count -= gone
    add32(&live_producers, -gone)
    return gone


cdef Producer *producers_copy(const Producers *producers, int32_t *count) noexcept nogil:
    cdef const Producer *producer = producers.first
    cdef Producer *copies
    count[0] = producers.count
    if producers.count == 0:
        return NULL
    copies = <Producer *> malloc(<size_t> producers.count * sizeof(Producer))
    if copies == NULL:
        return NULL
    count[0] = 0
    while producer != NULL:
        if producer.producer_epoch >= 0:
            copies[count[0]] = producer[0]
            count[0] += 1
        producer = producer.next
    return copies


# --- .snapshot files ---

cdef void write_producer(const Producer *producer, Writer *out) noexcept nogil:
    cdef const ProducerBatch *last = NULL
    if producer.batch_count:
        last = &producer.batches[producer.batch_count - 1]
    write_i64(out, producer.producer_id)
    write_i16(out, producer.producer_epoch)
    write_i32(out, last.last_sequence if last != NULL else NO_SEQUENCE)
    write_i64(out, last.last_offset if last != NULL else -1)
    write_i32(out, <int32_t> (last.last_offset - last.first_offset) if last != NULL else 0)
    write_i64(out, producer.last_timestamp_ms)
    write_i32(out, producer.coordinator_epoch)
    write_i64(out, producer.transaction_first_offset)


cdef size_t producers_bytes(const Producers *producers) noexcept nogil:
    return SNAPSHOT_HEADER_BYTES + <size_t> producers.count * SNAPSHOT_ENTRY_BYTES


cdef void producers_write(const Producers *producers, Writer *out) noexcept nogil:
    cdef size_t start = out.size
    cdef const Producer *producer = producers.first
    cdef int32_t count = 0
    write_i16(out, SNAPSHOT_VERSION)
    write_i32(out, 0)
    write_i32(out, 0)
    while producer != NULL:
        if producer.producer_epoch != NO_PRODUCER_EPOCH:
            write_producer(producer, out)
            count += 1
        producer = producer.next
    if out.bad:
        return
    put32(out.data + start + SNAPSHOT_HEADER_BYTES - 4, <uint32_t> count)
    put32(out.data + start + CHECKSUM_AT, crc32c(0, out.data + start + CHECKED_FROM, out.size - start - CHECKED_FROM))


cdef void producers_read_one(Reader *reader, Producer *producer) noexcept nogil:
    cdef int64_t producer_id = read_i64(reader)
    cdef int16_t epoch = read_i16(reader)
    cdef int32_t last_sequence_ = read_i32(reader)
    cdef int64_t last = read_i64(reader)
    cdef int32_t delta = read_i32(reader)
    cdef ProducerBatch *batch = &producer.batches[0]
    memset(producer, 0, sizeof(Producer))
    producer.producer_id = producer_id
    producer.producer_epoch = epoch
    producer.last_timestamp_ms = read_i64(reader)
    producer.coordinator_epoch = read_i32(reader)
    producer.transaction_first_offset = read_i64(reader)
    producer.batch_count = 1 if last >= 0 else 0
    if last >= 0:
        batch.last_sequence = last_sequence_
        batch.first_sequence = NO_SEQUENCE if last_sequence_ == NO_SEQUENCE else add_sequence(last_sequence_, -delta)
        batch.last_offset = last
        batch.first_offset = last - delta
        batch.timestamp_ms = producer.last_timestamp_ms


cdef int read_producer(Producers *producers, Reader *reader) noexcept nogil:
    cdef Producer read
    cdef Producer *producer
    producers_read_one(reader, &read)
    if producers_find(producers, read.producer_id) != NULL:
        return -EINVAL
    producer = add_producer(producers, read.producer_id)
    if producer == NULL:
        return -ENOMEM
    read.chain = producer.chain
    read.next = producer.next
    producer[0] = read
    return 0


cdef int by_first_offset(const void *a, const void *b) noexcept nogil:
    cdef int64_t first = (<const Transaction *> a).first_offset
    cdef int64_t second = (<const Transaction *> b).first_offset
    return (first > second) - (first < second)


cdef int restore_transactions(Producers *producers) noexcept nogil:
    """Lists the open transactions of a table that has just been filled, in the order of their first offsets."""
    cdef const Producer *producer
    cdef int32_t open_count = 0
    cdef int32_t i = 0
    producer = producers.first
    while producer != NULL:
        open_count += producer.transaction_first_offset >= 0
        producer = producer.next
    if open_count == 0:
        return 0
    producers.transactions = <Transaction *> malloc(<size_t> open_count * sizeof(Transaction))
    if producers.transactions == NULL:
        return -ENOMEM
    producer = producers.first
    while producer != NULL:
        if producer.transaction_first_offset >= 0:
            producers.transactions[i].producer_id = producer.producer_id
            producers.transactions[i].first_offset = producer.transaction_first_offset
            producers.transactions[i].last_offset = -1
            i += 1
        producer = producer.next
    qsort(producers.transactions, <size_t> open_count, sizeof(Transaction), by_first_offset)
    producers.transaction_count = producers.transaction_capacity = open_count
    return 0


cdef int32_t producers_begin_read(const uint8_t *data, int64_t size, Reader *reader) noexcept nogil:
    cdef int32_t count
    if size < SNAPSHOT_HEADER_BYTES:
        return -EINVAL
    reader_init(reader, data, <size_t> size)
    if read_i16(reader) != SNAPSHOT_VERSION:
        return -EINVAL
    read_i32(reader)
    if be32(data + CHECKSUM_AT) != crc32c(0, data + CHECKED_FROM, <size_t> (size - CHECKED_FROM)):
        return -EINVAL
    count = read_i32(reader)
    if count < 0 or <int64_t> count * SNAPSHOT_ENTRY_BYTES != <int64_t> remaining(reader):
        return -EINVAL
    return count


cdef int producers_read(Producers *producers, const uint8_t *data, int64_t size) noexcept nogil:
    cdef Reader reader
    cdef int32_t count = producers_begin_read(data, size, &reader)
    cdef int result
    if count < 0:
        return count
    for _ in range(count):
        result = read_producer(producers, &reader)
        if result < 0:
            return result
    return restore_transactions(producers)


def live_count():
    """Returns the number of producers that the logs of this process know."""
    return load32(&live_producers)


def longest_chain(producer_ids):
    """Returns the number of producers in the fullest bucket of a table with these ids. Tests check its limit."""
    cdef Producers *producers = producers_new()
    cdef const Producer *producer
    cdef int32_t longest = 0
    cdef int32_t length, i
    if producers == NULL:
        raise MemoryError
    try:
        for producer_id in producer_ids:
            if add_producer(producers, producer_id) == NULL:
                raise MemoryError
        for i in range(producers.bucket_mask + 1):
            length = 0
            producer = producers.buckets[i]
            while producer != NULL:
                length += 1
                producer = producer.chain
            longest = max(longest, length)
    finally:
        producers_free(producers)
    return longest
