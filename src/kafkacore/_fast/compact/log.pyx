"""Implements log.pxd: the compaction of a log."""

from libc.errno cimport EFBIG, EILSEQ, EINVAL, EMFILE, ENOENT, ENOMEM, EOVERFLOW
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcpy, memmove, memset

from kafkacore._fast.base.atomics cimport load32, load64
from kafkacore._fast.codec.context cimport codec_context_free, codec_context_new
from kafkacore._fast.compact.batch cimport (
    COMPACT_BAD_BATCH, COMPACT_MAP_FULL, COMPACT_NO_FILE, Kept, compact_filter, compact_map, compactor_free,
)
from kafkacore._fast.compact.state cimport (
    last_batches_free, last_batches_sort, last_batches_take, transactions_free, transactions_init,
)
from kafkacore._fast.compact.swap cimport Swap, swap_create, swap_discard, swap_in, swap_sync
from kafkacore._fast.base.cursor cimport writer_free, writer_init
from kafkacore._fast.log.log cimport LOG_CLOSED, LOG_FAILED, config_hold, config_release, segments_release
from kafkacore._fast.record.record cimport (
    BATCH_OK, HEADER_BYTES, MAX_BATCH_BYTES, BatchHeader, batch_checksum, parse_header,
)
from kafkacore._fast.log.segment cimport (
    LAST_RELATIVE_OFFSET, file_of, segment_hold, segment_new, segment_open_log, segment_release,
)
from kafkacore._fast.log.segment_index cimport (
    segment_borrow, segment_end_times, segment_floor_on_disk, segment_forget_indexes, segment_give_back,
    segment_note_batch, segment_reserve, segment_seal,
)
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.txn_index cimport txn_index_read

cdef extern from "<errno.h>" nogil:
    int ECANCELED, ENOBUFS

cdef enum:
    LEAST_BUFFER_BYTES = 4096
    INDEX_LIMIT_BYTES = 64 << 20
    MOST_OF_A_GROUP = 256  # a group has at most this many segments, because all their files are open together


# --- the start of a round ---

cdef SegmentList *copy_list(const SegmentList *list) noexcept nogil:
    """Returns a copy of the list, with its own references. Each reference is released when its group has been replaced,
    which frees disk space early."""
    cdef SegmentList *copy = <SegmentList *> malloc(sizeof(SegmentList) + list.count * sizeof(Segment *))
    cdef int32_t i
    if copy != NULL:
        copy.refs = 1
        copy.count = list.count
        for i in range(list.count):
            copy.items[i] = list.items[i]
            segment_hold(copy.items[i])
    return copy


cdef int hold_log(Compaction *c) noexcept nogil:
    cdef Log *log = c.log
    cdef int result = -ECANCELED
    mutex_lock(&log.lock)
    if log.segments != NULL and log.state != LOG_FAILED and log.state != LOG_CLOSED:
        c.list = copy_list(log.segments)
        if c.list == NULL:
            mutex_unlock(&log.lock)
            return -ENOMEM
        c.truncations = log.truncations
        c.config = log.config
        config_hold(c.config)
        result = last_batches_take(&c.last, log.producers)
    mutex_unlock(&log.lock)
    return result


cdef int by_first_offset(const void *a, const void *b) noexcept nogil:
    cdef int64_t first = (<const AbortedTransaction *> a).first_offset
    cdef int64_t second = (<const AbortedTransaction *> b).first_offset
    return (first > second) - (first < second)


cdef int collect_from(Compaction *c, Segment *segment, int64_t start) noexcept nogil:
    cdef AbortedTransaction *entries
    cdef AbortedTransaction *grown
    cdef int64_t i
    cdef int64_t count = txn_index_read(segment, &entries)
    if count <= 0:
        return <int> count
    grown = <AbortedTransaction *> realloc(c.aborted, (c.aborted_count + count) * sizeof(AbortedTransaction))
    if grown == NULL:
        free(entries)
        return -ENOMEM
    c.aborted = grown
    for i in range(count):
        if entries[i].last_offset >= start and entries[i].first_offset < c.upper_bound:
            memcpy(&grown[c.aborted_count], &entries[i], sizeof(AbortedTransaction))
            c.aborted_count += 1
    free(entries)
    return 0


cdef int collect_aborted(Compaction *c, int64_t start) noexcept nogil:
    """Collects the aborted transactions that begin before the round's end and end at or after `start`."""
    cdef int64_t last = load64(&c.log.last_aborted_offset)
    cdef int32_t i
    cdef int result = 0
    c.aborted_count = 0
    for i in range(c.list.count):
        if c.list.items[i].base_offset > last or last < start or result != 0:
            break
        if i + 1 == c.list.count or c.list.items[i + 1].base_offset > start:
            result = collect_from(c, c.list.items[i], start)
    if c.aborted_count > 1:
        qsort(c.aborted, <size_t> c.aborted_count, sizeof(AbortedTransaction), by_first_offset)
    transactions_free(&c.transactions)
    return result if result < 0 else transactions_init(&c.transactions, c.aborted, c.aborted_count)


cdef int32_t segment_of(const Compaction *c, int64_t offset) noexcept nogil:
    """Returns the index of the last segment that begins at or before `offset`."""
    cdef int32_t i = 0
    while i + 1 < c.list.count and c.list.items[i + 1].base_offset <= offset:
        i += 1
    return i


cdef int begin_map(Compaction *c) noexcept nogil:
    cdef int64_t floor
    cdef Segment *segment
    cdef int result = collect_aborted(c, c.first_dirty)
    if result < 0:
        return result
    c.at = segment_of(c, c.first_dirty)
    segment = c.list.items[c.at]
    result = segment_open_log(segment)
    if result < 0:
        return result
    floor = segment_floor_on_disk(segment, c.first_dirty, False)
    if floor < 0:
        return <int> floor
    c.position = floor
    return 0


cdef int64_t old_horizon(const Compaction *c, int64_t delete_retention_ms) noexcept nogil:
    """Returns the horizon of magic 0 and 1: the round keeps the tombstones of a segment that was modified after this
    time. Entries of magic 0 and 1 have no field for a delete horizon. So the horizon is the modification time of the
    last segment that an earlier round compacted, minus delete.retention.ms."""
    cdef int32_t i = segment_of(c, c.first_dirty - 1)
    if c.first_dirty <= c.list.items[0].base_offset:
        return 0
    return c.list.items[i].modified_ms - delete_retention_ms


cdef int compaction_open(Compaction *c, Log *log, OffsetMap *map, int64_t first_dirty, int64_t upper_bound,
                         int64_t now_ms, int64_t delete_retention_ms, int64_t buffer_bytes) noexcept nogil:
    cdef int result
    memset(c, 0, sizeof(Compaction))
    c.log = log
    c.first_dirty = c.compactor.first_offset = first_dirty
    c.upper_bound = c.compactor.upper_bound = upper_bound
    c.end_offset = first_dirty
    c.compactor.map = map
    c.compactor.transactions = &c.transactions
    c.compactor.last = &c.last
    c.compactor.now_ms = now_ms
    c.compactor.delete_retention_ms = delete_retention_ms
    writer_init(&c.compactor.inflated, MAX_BATCH_BYTES)
    writer_init(&c.compactor.rebuilt, MAX_BATCH_BYTES)
    writer_init(&c.index, INDEX_LIMIT_BYTES)
    c.block_room = c.out_room = max(buffer_bytes, <int64_t> LEAST_BUFFER_BYTES)
    c.block = <uint8_t *> malloc(<size_t> c.block_room)
    c.out = <uint8_t *> malloc(<size_t> c.out_room)
    c.compactor.codec = codec_context_new()
    if c.block == NULL or c.out == NULL or c.compactor.codec == NULL:
        return -ENOMEM
    result = hold_log(c)
    if result < 0:
        return result
    if upper_bound > c.list.items[c.list.count - 1].base_offset:
        return -ECANCELED  # a truncation has removed segments, and may still be shortening the last one
    last_batches_sort(&c.last)
    c.compactor.limits = c.config.rules.limits
    c.old_horizon_ms = old_horizon(c, delete_retention_ms)
    return noted(c, begin_map(c))


cdef void compaction_close(Compaction *c) noexcept nogil:
    if c.fresh != NULL:
        swap_discard(c.fresh)
        segment_release(c.fresh)
    segments_release(c.list)
    config_release(c.config)
    last_batches_free(&c.last)
    transactions_free(&c.transactions)
    compactor_free(&c.compactor)
    writer_free(&c.index)
    if c.compactor.codec != NULL:
        codec_context_free(c.compactor.codec)
    free(c.aborted)
    free(c.block)
    free(c.out)
    memset(c, 0, sizeof(Compaction))


cdef bint is_overtaken(Compaction *c) noexcept nogil:
    cdef Log *log = c.log
    cdef bint overtaken
    mutex_lock(&log.lock)
    overtaken = (log.truncations != c.truncations or log.state == LOG_FAILED or log.state == LOG_CLOSED
                 or load32(&log.dir.offline))
    mutex_unlock(&log.lock)
    return overtaken


# --- reading ---

cdef int refill(Compaction *c, Segment *segment, int64_t size, int64_t need) noexcept nogil:
    """Makes the block begin at `position` and hold at least `need` bytes of the file, whose size is `size` bytes. Reads
    only the bytes that the block does not hold yet."""
    cdef int64_t keep = c.block_at + c.block_held - c.position
    cdef int64_t want, got
    cdef uint8_t *grown
    if keep < 0 or c.position < c.block_at:
        keep = 0
    if keep > 0:
        memmove(c.block, c.block + (c.position - c.block_at), <size_t> keep)
    c.block_at = c.position
    c.block_held = keep
    if need > c.block_room:
        grown = <uint8_t *> realloc(c.block, <size_t> need)
        if grown == NULL:
            return -ENOMEM
        c.block = grown
        c.block_room = need
    want = min(c.block_room, size - c.position) - keep
    if want < 0:
        return -EILSEQ  # the file was longer when the previous block was read
    got = segment.disk.pread(segment.disk.self, file_of(segment), c.block + keep, <size_t> want,
                             c.position + keep)
    if got < 0:
        return <int> got
    c.block_held += got
    return 0 if c.block_held >= need else -EILSEQ


cdef int next_batch(Compaction *c, Segment *segment, const uint8_t **batch, BatchHeader *header) noexcept nogil:
    """Reads the whole batch at `position` and verifies its checksum. Returns 1 for a batch, 0 at the end of the
    segment, or -errno."""
    cdef int64_t size = load64(&segment.size)  # read only once, because a truncation may change it now
    cdef int64_t left = size - c.position
    cdef int64_t held = c.block_at + c.block_held - c.position
    cdef int result = 0
    if left <= 0:
        return 0
    if held < min(left, <int64_t> HEADER_BYTES):
        result = refill(c, segment, size, min(left, <int64_t> HEADER_BYTES))
        held = c.block_held
    if result < 0:
        return result
    if parse_header(c.block + (c.position - c.block_at), <size_t> held, header) != BATCH_OK or header.size_bytes > left:
        return -EILSEQ
    if held < header.size_bytes:
        result = refill(c, segment, size, header.size_bytes)
        if result < 0:
            return result
    batch[0] = c.block + (c.position - c.block_at)
    if batch_checksum(batch[0], <size_t> header.size_bytes) != header.crc:
        return -EILSEQ
    c.position += header.size_bytes
    return 1


cdef int open_segment(Compaction *c, int32_t at) noexcept nogil:
    """Moves to the beginning of the next segment to read."""
    c.at = at
    c.position = c.block_at = c.block_held = 0
    return segment_open_log(c.list.items[at])


cdef int errno_of(Compaction *c, int status) noexcept nogil:
    """Returns the errno for a status of compact_map or compact_filter."""
    if c.transactions.out_of_memory:
        return -ENOMEM
    if status == COMPACT_BAD_BATCH:
        return -EILSEQ
    if status == COMPACT_NO_FILE:
        return -EMFILE
    return -ENOMEM if status < 0 else 0


cdef bint tells_of_content(int result) noexcept nogil:
    return (result == -EILSEQ or result == -EINVAL or result == -ENOENT or result == -EFBIG or result == -EOVERFLOW
            or result == -ENOBUFS)


cdef int noted(Compaction *c, int result) noexcept nogil:
    """Returns -ECANCELED in place of an error if the log was truncated or closed in the meantime. In that case invalid
    bytes do not mean that the log is damaged."""
    if tells_of_content(result) and is_overtaken(c):
        return -ECANCELED
    if result == -EILSEQ and c.bad_segment == NULL:
        c.bad_segment = c.list.items[c.at]
    return result


# --- the map ---

cdef int map_end(Compaction *c, bint full) noexcept nogil:
    c.end_offset = max(c.compactor.map.latest_offset + 1, c.first_dirty)
    if full and c.end_offset == c.first_dirty:
        return -ENOBUFS
    transactions_free(&c.transactions)
    c.first = c.end = 0
    return COMPACTION_DONE


cdef int map_some(Compaction *c, int64_t max_bytes) noexcept nogil:
    cdef const uint8_t *batch = NULL
    cdef BatchHeader header
    cdef int64_t done = 0
    cdef int result, status
    while done < max_bytes:
        if c.list.items[c.at].base_offset >= c.upper_bound:
            return map_end(c, False)
        result = next_batch(c, c.list.items[c.at], &batch, &header)
        if result < 0:
            return result
        if result == 0:
            # The map also covers the segment's last batches if an earlier compaction has removed them.
            c.compactor.map.latest_offset = max(c.compactor.map.latest_offset,
                                                c.list.items[c.at + 1].base_offset - 1)
            result = open_segment(c, c.at + 1)
            if result < 0:
                return result
            continue
        status = compact_map(&c.compactor, batch, &header)
        if status == COMPACT_MAP_FULL:
            return map_end(c, True)
        result = errno_of(c, status)
        if result < 0:
            return result
        done += header.size_bytes
        c.mapped_bytes += header.size_bytes
    return COMPACTION_MORE


cdef int compaction_map(Compaction *c, int64_t max_bytes) noexcept nogil:
    if is_overtaken(c):
        return -ECANCELED
    return noted(c, map_some(c, max_bytes))


# --- groups ---

cdef int64_t index_bytes(Segment *segment, bint times) noexcept nogil:
    cdef const int32_t *held = &segment.time_index_file if times else &segment.offset_index_file
    cdef int file = segment_borrow(segment, held, b".timeindex" if times else b".index")
    cdef int64_t size = segment.disk.size(segment.disk.self, file) if file >= 0 else file
    segment_give_back(segment, held, file)
    return size


cdef bint fits(const Compaction *c, int32_t next, int64_t bytes, int64_t offsets, int64_t times) noexcept nogil:
    """Returns whether the group and the segment `next` fit into one segment."""
    cdef int64_t end = c.list.items[next + 1].base_offset if next + 1 < c.list.count else c.upper_bound
    return (bytes <= c.config.segment_bytes and offsets <= c.config.segment_index_bytes
            and times <= c.config.segment_index_bytes
            and (load64(&c.list.items[next].size) == 0
                 or end - 1 - c.list.items[c.first].base_offset <= LAST_RELATIVE_OFFSET))


cdef int choose_group(Compaction *c) noexcept nogil:
    """Chooses the next group: as many of the segments after the last group as fit into one segment. If `first` ==
    `end`, no segment is left."""
    cdef int64_t bytes = 0, offsets = 0, times = 0
    cdef int64_t more_offsets, more_times
    cdef Segment *segment
    c.first = c.end
    while c.end < c.list.count and c.list.items[c.end].base_offset < c.end_offset:
        segment = c.list.items[c.end]
        more_offsets = index_bytes(segment, False)
        more_times = index_bytes(segment, True)
        if more_offsets < 0 or more_times < 0:
            return <int> min(more_offsets, more_times)
        bytes += load64(&segment.size)  # a truncation may change the size now
        offsets += more_offsets
        times += more_times
        if c.end - c.first >= MOST_OF_A_GROUP or (c.end > c.first and not fits(c, c.end, bytes, offsets, times)):
            break
        c.end += 1
    return 0


cdef int begin_group(Compaction *c) noexcept nogil:
    cdef Segment *first
    cdef int result = choose_group(c)
    if result < 0 or c.first == c.end:
        return result
    first = c.list.items[c.first]
    c.fresh = like(first)
    if c.fresh == NULL:
        return -ENOMEM
    c.fresh_end = first.base_offset
    c.index.size = 0
    c.transactions.index = &c.index
    c.out_held = 0
    result = swap_create(c.fresh)
    return result if result < 0 else open_segment(c, c.first)


cdef Segment *like(const Segment *first) noexcept nogil:
    """Creates a segment in the same directory and with the same base offset as `first`."""
    cdef size_t size = 0
    cdef char *directory
    cdef Segment *made
    while first.path[size] != 0:
        size += 1
    while size > 0 and first.path[size] != 47:  # 47 is the slash
        size -= 1
    directory = <char *> malloc(size + 1)
    if directory == NULL:
        return NULL
    memcpy(directory, first.path, size)
    directory[size] = 0
    made = segment_new(first.disk, directory, first.base_offset)
    free(directory)
    return made


# --- writing ---

cdef int flush(Compaction *c) noexcept nogil:
    cdef Segment *fresh = c.fresh
    cdef int64_t result
    if c.out_held == 0:
        return 0
    result = fresh.disk.pwrite(fresh.disk.self, fresh.file, c.out, <size_t> c.out_held, fresh.size - c.out_held)
    c.written_bytes += c.out_held
    c.out_held = 0
    return <int> result if result < 0 else 0


cdef int put(Compaction *c, const Kept *kept) noexcept nogil:
    cdef Segment *fresh = c.fresh
    cdef int64_t size = <int64_t> kept.size
    cdef int64_t result
    if fresh.size + size > 0x7FFFFFFF:
        return -EFBIG
    if kept.last_offset - fresh.base_offset > LAST_RELATIVE_OFFSET:
        return -EOVERFLOW
    result = segment_reserve(fresh)
    if result == 0 and c.out_held + size > c.out_room:
        result = flush(c)
    if result < 0:
        return <int> result
    if size > c.out_room:
        result = fresh.disk.pwrite(fresh.disk.self, fresh.file, kept.data, kept.size, fresh.size)
        c.written_bytes += size
        if result < 0:
            return <int> result
    else:
        memcpy(c.out + c.out_held, kept.data, kept.size)
        c.out_held += size
    segment_note_batch(fresh, fresh.size, size, kept.last_offset, kept.max_timestamp, c.config.index_interval_bytes)
    fresh.size += size
    c.fresh_end = kept.last_offset + 1
    return 0


cdef int finish_group(Compaction *c) noexcept nogil:
    cdef Segment *fresh = c.fresh
    cdef int result = flush(c)
    if result == 0:
        result = segment_end_times(fresh)
    if result == 0:
        result = segment_seal(fresh)
    if result == 0 and c.index.size > 0:
        fresh.aborted = <uint8_t *> malloc(c.index.size)
        if fresh.aborted == NULL:
            return -ENOMEM
        memcpy(fresh.aborted, c.index.data, c.index.size)
        fresh.aborted_bytes = <int64_t> c.index.size
    if result == 0:
        result = swap_sync(fresh)
    if result == 0:
        segment_forget_indexes(fresh)
    return result if result < 0 else COMPACTION_SWAP


cdef int copy_some(Compaction *c, int64_t max_bytes) noexcept nogil:
    cdef const uint8_t *batch = NULL
    cdef BatchHeader header
    cdef Kept kept
    cdef int64_t done = 0
    cdef int result
    while done < max_bytes:
        result = next_batch(c, c.list.items[c.at], &batch, &header)
        if result < 0:
            return result
        if result == 0:
            if c.at + 1 == c.end:
                return finish_group(c)
            result = open_segment(c, c.at + 1)
            if result < 0:
                return result
            continue
        c.compactor.keep_old_deletes = c.list.items[c.at].modified_ms > c.old_horizon_ms
        result = errno_of(c, compact_filter(&c.compactor, batch, &header, &kept))
        if result == 0 and kept.data != NULL:
            result = put(c, &kept)
        if result < 0:
            return result
        done += header.size_bytes
        c.read_bytes += header.size_bytes
    return COMPACTION_MORE


cdef int compaction_copy(Compaction *c, int64_t max_bytes) noexcept nogil:
    cdef int result = 0
    if is_overtaken(c):
        return -ECANCELED
    if c.transactions.slots == NULL:
        result = collect_aborted(c, c.list.items[0].base_offset)
    if result == 0 and c.fresh == NULL:
        result = begin_group(c)
        if result == 0 and c.first == c.end:
            return COMPACTION_DONE
    return noted(c, result if result < 0 else copy_some(c, max_bytes))


cdef int compaction_swap(Compaction *c, Waiter *blocked) noexcept nogil:
    cdef Swap swap
    cdef int32_t i
    cdef int result
    swap.log = c.log
    swap.former = &c.list.items[c.first]
    swap.count = c.end - c.first
    swap.fresh = c.fresh
    swap.end_offset = c.fresh_end
    swap.truncations = c.truncations
    result = noted(c, swap_in(&swap, blocked))
    if result == 0:
        segment_release(c.fresh)
        c.fresh = NULL
        c.swapped += 1
        for i in range(c.first, c.end):
            segment_release(c.list.items[i])  # accepts NULL
            c.list.items[i] = NULL
    return result
