"""Implements state.pxd: the producers during a compaction."""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort

from kafkacore._fast.base.cursor cimport Reader, be16, put16, put64, reader_init, reserve
from kafkacore._fast.base.keyed_hash cimport hash_word, process_hash_key
from kafkacore._fast.log.producers cimport Producer
from kafkacore._fast.record.record cimport (
    BATCH_OK, HEADER_BYTES, MARKER_ABORT, MARKER_COMMIT, MARKER_KEY_BYTES, RecordView, is_control, is_transactional,
    last_offset, next_record,
)
from kafkacore._fast.log.segment cimport ABORTED_ENTRY_BYTES

cdef enum:
    LEAST_SLOTS = 64
    MARKER_OTHER = -1


cdef int transactions_init(SeenTransactions *seen, AbortedTransaction *aborted, int64_t aborted_count) noexcept nogil:
    seen.aborted = aborted
    seen.aborted_count = aborted_count
    seen.next = 0
    seen.used = 0
    seen.out_of_memory = False
    seen.index = NULL
    seen.slot_count = LEAST_SLOTS
    seen.slots = empty_slots(LEAST_SLOTS)
    return 0 if seen.slots != NULL else -ENOMEM


cdef void transactions_free(SeenTransactions *seen) noexcept nogil:
    free(seen.slots)
    seen.slots = NULL


cdef SeenProducer *empty_slots(int32_t count) noexcept nogil:
    cdef SeenProducer *slots = <SeenProducer *> calloc(count, sizeof(SeenProducer))
    cdef int32_t i
    if slots != NULL:
        for i in range(count):
            slots[i].producer_id = -1
    return slots


cdef SeenProducer *slot_of(SeenProducer *slots, int32_t count, int64_t producer_id) noexcept nogil:
    """Returns the slot of the producer, or the empty slot in which it belongs."""
    cdef int32_t at = <int32_t> (hash_word(process_hash_key(), <uint64_t> producer_id) & <uint64_t> (count - 1))
    while slots[at].producer_id >= 0 and slots[at].producer_id != producer_id:
        at = (at + 1) & (count - 1)
    return &slots[at]


cdef bint grow(SeenTransactions *seen) noexcept nogil:
    cdef SeenProducer *wider = empty_slots(seen.slot_count * 2)
    cdef int32_t i
    if wider == NULL:
        seen.out_of_memory = True
        return False
    for i in range(seen.slot_count):
        if seen.slots[i].producer_id >= 0:
            slot_of(wider, seen.slot_count * 2, seen.slots[i].producer_id)[0] = seen.slots[i]
    free(seen.slots)
    seen.slots = wider
    seen.slot_count *= 2
    return True


cdef SeenProducer *producer_of(SeenTransactions *seen, int64_t producer_id) noexcept nogil:
    """Returns the slot of the producer. Adds the producer if it has no slot yet. Returns NULL if memory runs out."""
    cdef SeenProducer *slot = slot_of(seen.slots, seen.slot_count, producer_id)
    if slot.producer_id >= 0:
        return slot
    if (seen.used + 1) * 2 > seen.slot_count:
        if not grow(seen):
            return NULL
        slot = slot_of(seen.slots, seen.slot_count, producer_id)
    seen.used += 1
    slot.producer_id = producer_id
    slot.aborted = -1
    slot.observed = slot.committing = False
    return slot


cdef void begin_aborted(SeenTransactions *seen, int64_t offset) noexcept nogil:
    """Takes the next aborted transactions from the index, up to those that begin at `offset`, and makes each one the
    current transaction of its producer."""
    cdef SeenProducer *producer
    cdef int64_t i
    while seen.next < seen.aborted_count and seen.aborted[seen.next].first_offset <= offset:
        i = seen.next
        seen.next += 1
        producer = producer_of(seen, seen.aborted[i].producer_id) if seen.aborted[i].producer_id >= 0 else NULL
        if producer == NULL:
            continue
        if producer.aborted < 0 or seen.aborted[producer.aborted].last_offset < seen.aborted[i].first_offset:
            producer.aborted = <int32_t> i
            producer.observed = False


cdef int marker_of(const uint8_t *batch, const BatchHeader *header) noexcept nogil:
    cdef Reader body
    cdef RecordView record
    reader_init(&body, batch + HEADER_BYTES, header.size_bytes - HEADER_BYTES)
    if next_record(&body, &record) != BATCH_OK or record.key_size < MARKER_KEY_BYTES:
        return MARKER_OTHER
    if be16(record.key + 2) == MARKER_ABORT:
        return MARKER_ABORT
    return MARKER_COMMIT if be16(record.key + 2) == MARKER_COMMIT else MARKER_OTHER


cdef void keep_entry(SeenTransactions *seen, const AbortedTransaction *entry) noexcept nogil:
    cdef uint8_t *raw
    if seen.index == NULL:
        return
    raw = reserve(seen.index, ABORTED_ENTRY_BYTES)
    if raw == NULL:
        seen.out_of_memory = True
        return
    put16(raw, 0)
    put64(raw + 2, entry.producer_id)
    put64(raw + 10, entry.first_offset)
    put64(raw + 18, entry.last_offset)
    put64(raw + 26, entry.last_stable_offset)


cdef bint note_marker(SeenTransactions *seen, const uint8_t *batch, const BatchHeader *header) noexcept nogil:
    cdef SeenProducer *producer
    cdef int marker
    cdef bint needed
    if header.record_count == 0:
        return True  # an earlier compaction has removed the marker
    marker = marker_of(batch, header)
    if marker == MARKER_OTHER or header.producer_id < 0:
        return False
    producer = producer_of(seen, header.producer_id)
    if producer == NULL:
        return False
    if marker == MARKER_COMMIT:
        needed = producer.committing
        producer.committing = False
        return not needed
    needed = producer.aborted >= 0 and producer.observed
    if needed:
        keep_entry(seen, &seen.aborted[producer.aborted])
    producer.aborted = -1
    return not needed


cdef bint transactions_note(SeenTransactions *seen, const uint8_t *batch, const BatchHeader *header) noexcept nogil:
    cdef SeenProducer *producer
    begin_aborted(seen, last_offset(header))
    if is_control(header):
        return note_marker(seen, batch, header)
    if not is_transactional(header) or header.producer_id < 0:
        return False
    producer = producer_of(seen, header.producer_id)
    if producer == NULL:
        return False
    # The index entry can still exist after its marker has been removed. The entry does not apply to the records that
    # the producer wrote after the marker.
    if producer.aborted >= 0 and seen.aborted[producer.aborted].last_offset >= header.base_offset:
        producer.observed = True
        return True
    producer.committing = True
    return False


# --- last batches ---

cdef int last_batches_take(LastBatches *last, const Producers *producers) noexcept nogil:
    cdef const Producer *producer
    cdef LastBatch *item
    last.count = 0
    last.items = NULL
    if producers == NULL:
        return 0
    last.items = <LastBatch *> malloc(producers.count * sizeof(LastBatch) + 1)
    if last.items == NULL:
        return -ENOMEM
    producer = producers.first
    while producer != NULL:
        item = &last.items[last.count]
        item.producer_id = producer.producer_id
        item.producer_epoch = producer.producer_epoch
        item.last_offset = -1
        if producer.batch_count > 0:
            item.last_offset = producer.batches[producer.batch_count - 1].last_offset
        last.count += 1
        producer = producer.next
    return 0


cdef int by_producer(const void *a, const void *b) noexcept nogil:
    cdef int64_t first = (<const LastBatch *> a).producer_id
    cdef int64_t second = (<const LastBatch *> b).producer_id
    return (first > second) - (first < second)


cdef void last_batches_sort(LastBatches *last) noexcept nogil:
    if last.count > 1:
        qsort(last.items, last.count, sizeof(LastBatch), by_producer)


cdef void last_batches_free(LastBatches *last) noexcept nogil:
    free(last.items)
    last.items = NULL
    last.count = 0


cdef bint is_last_batch(const LastBatches *last, const BatchHeader *header) noexcept nogil:
    """Returns whether this is the producer's last batch. A data batch is the last one if it holds the producer's last
    offset. If the producer has no data, the marker with the producer's epoch is the last one, because that marker
    fences older epochs."""
    cdef int32_t low = 0
    cdef int32_t high = last.count
    cdef int32_t middle
    while low < high:
        middle = (low + high) >> 1
        if last.items[middle].producer_id < header.producer_id:
            low = middle + 1
        else:
            high = middle
    if low == last.count or last.items[low].producer_id != header.producer_id:
        return False
    if last.items[low].last_offset >= 0:
        return last_offset(header) == last.items[low].last_offset
    return is_control(header) and last.items[low].producer_epoch == header.producer_epoch
