"""Loading and recovery of a log, as recovery.pxd says."""

from libc.errno cimport EILSEQ, EINVAL, EIO, ENOENT, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset, strlen

from kafkacore._fast.atomics cimport add64, store32
from kafkacore._fast.env cimport Disk
from kafkacore._fast.epochs cimport epochs_assign, epochs_read, epochs_truncate_end, epochs_truncate_start
from kafkacore._fast.log cimport (
    LOG_OPEN, Recent, SegmentList, log_directory_path, log_hold_segments, log_now_ms, log_set_segments, segments_release
)
from kafkacore._fast.log_files cimport read_small_file
from kafkacore._fast.log_open cimport log_save_epochs
from kafkacore._fast.producers cimport (
    EndedTransaction, Producers, producers_clear, producers_expire, producers_first_unstable, producers_free,
    producers_new, producers_note_batch, producers_read,
)
from kafkacore._fast.record cimport (
    BATCH_OK, BATCH_SHORT, HEADER_BYTES, BatchHeader, check_batch, last_offset, parse_header,
)
from kafkacore._fast.segment cimport (
    LAST_RELATIVE_OFFSET, Position, Segment, segment_end_times, segment_find, segment_forget_indexes,
    segment_load_indexes, segment_new, segment_note_batch, segment_open_log, segment_release, segment_reserve,
    segment_reset_indexes, segment_seal, segment_truncate, segment_unlink, segment_write_indexes,
)
from kafkacore._fast.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.txn_index cimport txn_index_append, txn_index_last, txn_index_reset

cdef enum:
    BLOCK_BYTES = 1 << 20
    SNAPSHOT_NAME_BYTES = 32


# What one load works with; the log is nobody else's until it is done.
ctypedef struct Load:
    Log *log
    const LoadPlan *plan
    LoadReport *report
    Producers *producers             # what the replay fills
    int64_t snapshot_offset          # where it began
    Segment **segments
    int32_t count
    int32_t first_recovered          # index of the first segment that was rebuilt; -1 when none
    int64_t recovered_end            # where the records of the one that was rebuilt last end
    int64_t last_aborted_offset
    bint *damaged                    # of each segment: its transaction index is none
    bint *recovered                  # of each segment: its indexes were made anew, and the transaction index is empty
    uint8_t *block
    int64_t block_bytes
    char *path


# --- one segment, batch by batch ---

cdef int room_for(Load *load, int64_t size) noexcept nogil:
    cdef uint8_t *block
    if size <= load.block_bytes:
        return 0
    block = <uint8_t *> realloc(load.block, <size_t> size)
    if block == NULL:
        return -ENOMEM
    load.block = block
    load.block_bytes = size
    return 0


cdef int64_t fill(Load *load, Segment *segment, int64_t at, int64_t end) noexcept nogil:
    """As many bytes from `at` as the block holds: how many, or -errno."""
    cdef int64_t size = end - at if end - at < load.block_bytes else load.block_bytes
    cdef int64_t got = segment.disk.pread(segment.disk.self, segment.file, load.block, <size_t> size, at)
    return got if got < 0 or got == size else -EIO


cdef int note_recovered(Load *load, Segment *segment, const BatchHeader *header, int64_t at) noexcept nogil:
    if segment_reserve(segment) < 0:
        return -ENOMEM
    segment_note_batch(segment, at, header.size_bytes, last_offset(header), header.max_timestamp,
                       load.log.config.index_interval_bytes)
    if header.magic >= 2 and header.partition_leader_epoch >= 0:
        if epochs_assign(load.log, header.partition_leader_epoch, header.base_offset) < 0:
            return -ENOMEM
    return 0


cdef bint follows(const Load *load, const BatchHeader *header, int64_t next_offset) noexcept nogil:
    """No checksum covers a base offset; but only compaction leaves gaps (and the old magics tell the last offset)."""
    if header.magic >= 2 and not load.log.config.compact_policy and header.base_offset != next_offset:
        return False
    return last_offset(header) >= next_offset


cdef int64_t valid_bytes(Load *load, Segment *segment, int64_t size) noexcept nogil:
    """Checks every batch and rebuilds the indexes in memory; where the first bad one begins, or -errno."""
    cdef BatchHeader header
    cdef int64_t at = 0      # in the file
    cdef int64_t held = 0    # bytes in the block
    cdef int64_t start = 0   # of the block in the file
    cdef int64_t have
    cdef int64_t next_offset = segment.base_offset
    cdef int result
    while at < size:
        have = start + held - at
        result = parse_header(load.block + (at - start), <size_t> have, &header)
        if result == BATCH_OK and header.size_bytes > size - at:
            return at
        if result == BATCH_SHORT or (result == BATCH_OK and header.size_bytes > have):
            if have == size - at:
                return at  # all that is left is here, and it is no whole batch
            if result == BATCH_OK and room_for(load, header.size_bytes) < 0:
                return -ENOMEM
            start = at
            held = fill(load, segment, at, size)
            if held < 0:
                return held
            continue
        if result != BATCH_OK or check_batch(load.block + (at - start), <size_t> have, &header) != BATCH_OK:
            return at
        if not follows(load, &header, next_offset) or last_offset(&header) - segment.base_offset > LAST_RELATIVE_OFFSET:
            return at
        if note_recovered(load, segment, &header, at) < 0:
            return -ENOMEM
        next_offset = load.recovered_end = last_offset(&header) + 1
        at += header.size_bytes
        add64(load.plan.progress, header.size_bytes)
    return at


cdef int recover_segment(Load *load, int32_t i) noexcept nogil:
    """1 when it was cut, 0 when it is whole, or -errno. Its indexes are in memory and in their files afterwards."""
    cdef Segment *segment = load.segments[i]
    cdef int64_t size = segment.size
    cdef int64_t valid
    cdef int result = segment_reset_indexes(segment)
    load.recovered_end = segment.base_offset
    if result == 0:
        result = txn_index_reset(segment)
    if result < 0:
        return result
    valid = valid_bytes(load, segment, size)
    if valid < 0:
        return <int> valid
    if load.first_recovered < 0 or i < load.first_recovered:
        load.first_recovered = i
    load.recovered[i] = True
    load.report.recovered_segments += 1
    load.report.recovered_bytes += valid
    load.report.truncated_bytes += size - valid
    if valid < size:
        result = segment_truncate(segment, valid)
        add64(load.plan.progress, size - valid)
    if result == 0:
        result = segment_write_indexes(segment)
    return result if result < 0 else valid < size


# --- the log's segments ---

cdef int open_segments(Load *load) noexcept nogil:
    cdef const LoadPlan *plan = load.plan
    cdef Segment *segment
    cdef int32_t i
    cdef int result
    load.segments = <Segment **> calloc(plan.count + 1, sizeof(Segment *))
    load.damaged = <bint *> calloc(plan.count + 1, sizeof(bint))
    load.recovered = <bint *> calloc(plan.count + 1, sizeof(bint))
    load.block = <uint8_t *> malloc(BLOCK_BYTES)
    load.block_bytes = BLOCK_BYTES
    if load.segments == NULL or load.damaged == NULL or load.recovered == NULL or load.block == NULL:
        return -ENOMEM
    for i in range(plan.count):
        segment = segment_new(load.log.dir.disk, load.path, plan.base_offsets[i])
        if segment == NULL:
            return -ENOMEM
        load.segments[i] = segment
        load.count += 1
        result = segment_open_log(segment)
        if result < 0:
            return result
        segment.size = segment.disk.size(segment.disk.self, segment.file)
        if segment.size < 0:
            return <int> segment.size
        segment.created_ms = segment.modified_ms = log_now_ms(load.log)
        # A process that was killed may have made it a moment before, without a sync of its name.
        segment.entry_synced = plan.clean
        result = txn_index_last(segment, &load.last_aborted_offset) if plan.files[i] & FILE_HAS_ABORTED else 0
        load.damaged[i] = result == -EINVAL  # rebuilt with the segment
        if result < 0 and result != -EINVAL:
            return result
    return 0


cdef int drop_segments_after(Load *load, int32_t i) noexcept nogil:
    """What lies behind a cut cannot be trusted to follow it."""
    cdef int result = 0
    while load.count > i + 1 and result == 0:
        load.count -= 1
        load.report.dropped_segments += 1
        add64(load.plan.progress, load.segments[load.count].size)
        result = segment_unlink(load.segments[load.count])
        segment_release(load.segments[load.count])
        load.segments[load.count] = NULL
    return result


cdef bint is_unflushed(const Load *load, int32_t i) noexcept nogil:
    """The segment that holds the recovery point, and those behind it."""
    return i + 1 >= load.count or load.segments[i + 1].base_offset > load.plan.recovery_point


cdef bint lacks_its_end(const Load *load, int32_t i) noexcept nogil:
    """A segment that was rebuilt, and ends where the next does not begin: a file that lost its last pages may end with
    a whole batch. Only compaction leaves such gaps."""
    return (i + 1 < load.count and load.recovered_end != load.segments[i + 1].base_offset
            and not load.plan.clean and is_unflushed(load, i) and not load.log.config.compact_policy)


cdef int recover_all(Load *load) noexcept nogil:
    cdef int32_t i = 0
    cdef int result
    while i < load.count:
        if load.damaged[i] or not load.plan.files[i] & FILE_HAS_INDEXES or (
                not load.plan.clean and is_unflushed(load, i)):
            result = recover_segment(load, i)
            if result < 0:
                return result
            if result > 0 or lacks_its_end(load, i):
                return drop_segments_after(load, i)
        i += 1
    return 0


cdef int next_offset_of(Load *load, Segment *segment, int64_t *next_offset) noexcept nogil:
    """Behind the last batch, looked for from the last index entry on; -EILSEQ where the bytes are no batches."""
    cdef Position at
    cdef BatchHeader header
    cdef int64_t position = segment.offset_index[segment.offset_count - 1].position if segment.offset_count else 0
    cdef int64_t got
    cdef int result
    next_offset[0] = segment.base_offset
    while position < segment.size:
        result = segment_find(segment, 0, position, segment.size, False, &at)
        if result != 0:
            return result if result < 0 else -EILSEQ
        got = segment.disk.pread(segment.disk.self, segment.file, load.block, HEADER_BYTES, position)
        if got < 0:
            return <int> got
        if (parse_header(load.block, <size_t> got, &header) != BATCH_OK or last_offset(&header) < next_offset[0]
                or last_offset(&header) - segment.base_offset > LAST_RELATIVE_OFFSET):
            return -EILSEQ
        segment.bytes_since_index += header.size_bytes
        if header.max_timestamp > segment.max_timestamp_ms:
            segment.max_timestamp_ms = header.max_timestamp
            segment.offset_of_max_timestamp = last_offset(&header)
        next_offset[0] = last_offset(&header) + 1
        position += header.size_bytes
    return 0


cdef int read_first_timestamp(Load *load, Segment *segment) noexcept nogil:
    cdef BatchHeader header
    cdef int64_t got
    if segment.size == 0 or segment.first_timestamp_ms >= 0:
        return 0
    got = segment.disk.pread(segment.disk.self, segment.file, load.block, HEADER_BYTES, 0)
    if got < 0:
        return <int> got
    if parse_header(load.block, <size_t> got, &header) == BATCH_OK:
        segment.first_timestamp_ms = header.max_timestamp
    return 0


cdef int prepare_active(Load *load, int64_t *end_offset) noexcept nogil:
    """The last segment takes appends again: its indexes in memory, its end found."""
    cdef int32_t last = load.count - 1
    cdef Segment *segment = load.segments[last]
    cdef int result = 0
    if load.first_recovered < 0 or last < load.first_recovered:
        result = segment_load_indexes(segment)
        if result == 0:
            result = next_offset_of(load, segment, end_offset)
        if result == -EINVAL or result == -EILSEQ:
            result = recover_segment(load, last)
            result = result if result < 0 else 0
    if result == 0 and load.first_recovered >= 0 and last >= load.first_recovered:
        segment.bytes_since_index = 0
        result = next_offset_of(load, segment, end_offset)
    if result == 0 and not load.plan.clean:
        result = segment_truncate(segment, segment.size)  # gives back blocks that the crashed node had set aside
    if result == 0:
        result = segment_reserve(segment)
    return result if result < 0 else read_first_timestamp(load, segment)


cdef int seal_rest(Load *load) noexcept nogil:
    """All but the last are sealed; their files are opened again by whoever reads them."""
    cdef Segment *segment
    cdef int32_t i
    cdef int result
    for i in range(load.count - 1):
        segment = load.segments[i]
        if load.first_recovered >= 0 and segment.offset_index_file >= 0:
            result = segment_end_times(segment)
            if result == 0:
                result = segment_seal(segment)
            if result < 0:
                return result
        segment_forget_indexes(segment)
        store32(&segment.sealed, 1)
        segment.disk.close(segment.disk.self, segment.file)
        segment.file = -1
    return 0


# --- epochs and producers ---

cdef int load_epochs(Load *load) noexcept nogil:
    cdef uint8_t *text
    cdef int64_t size = read_small_file(load.log.dir.disk, load.path, b"leader-epoch-checkpoint", &text)
    cdef int result
    if size == -ENOENT or size == 0:
        free(text)
        return 0
    if size < 0:
        return <int> size
    result = epochs_read(load.log, <const char *> text, size)
    free(text)
    return result


cdef int64_t load_snapshot(Load *load, int64_t not_after) noexcept nogil:
    """The newest whole snapshot at or below an offset: where its replay goes on; the log start where there is none."""
    cdef char name[SNAPSHOT_NAME_BYTES]
    cdef uint8_t *data
    cdef int64_t size
    cdef int32_t i = load.plan.snapshot_count - 1
    cdef int result
    while i >= 0:
        if log_start(load) < load.plan.snapshots[i] <= not_after:
            snprintf(name, SNAPSHOT_NAME_BYTES, b"%020lld.snapshot", <long long> load.plan.snapshots[i])
            size = read_small_file(load.log.dir.disk, load.path, name, &data)
            result = producers_read(load.producers, data, size) if size >= 0 else <int> size
            free(data)
            if result == 0:
                load.snapshot_offset = load.plan.snapshots[i]
                return load.plan.snapshots[i]
            producers_clear(load.producers)
            if result != -EINVAL:
                return result
        i -= 1
    return log_start(load)


cdef int64_t log_start(const Load *load) noexcept nogil:
    cdef int64_t first = load.segments[0].base_offset if load.count else 0
    return load.plan.log_start_offset if load.plan.log_start_offset > first else first


cdef int replay_batch(Load *load, int32_t i, const BatchHeader *header, int64_t position) noexcept nogil:
    cdef Segment *segment = load.segments[i]
    cdef EndedTransaction ended
    cdef int64_t got
    cdef int result = room_for(load, header.size_bytes)
    if result < 0:
        return result
    got = segment.disk.pread(segment.disk.self, segment.file, load.block, <size_t> header.size_bytes, position)
    if got != header.size_bytes:
        return <int> got if got < 0 else -EIO
    result = producers_note_batch(load.producers, load.block, <size_t> header.size_bytes, &ended)
    if result == 0 and ended.last_offset >= 0 and ended.aborted and load.recovered != NULL and load.recovered[i]:
        result = txn_index_append(segment, &ended)
        if load.last_aborted_offset < ended.last_offset:
            load.last_aborted_offset = ended.last_offset
    return result


cdef int replay_segment(Load *load, int32_t i, int64_t from_offset) noexcept nogil:
    cdef Segment *segment = load.segments[i]
    cdef BatchHeader header
    cdef uint8_t raw[HEADER_BYTES]
    cdef int64_t at = 0
    cdef int64_t got
    cdef int result
    while at < segment.size:
        got = segment.disk.pread(segment.disk.self, segment.file, raw, HEADER_BYTES, at)
        if got < 0:
            return <int> got
        if parse_header(raw, <size_t> got, &header) != BATCH_OK or header.size_bytes > segment.size - at:
            return -EILSEQ
        if header.magic >= 2 and header.producer_id >= 0 and header.base_offset >= from_offset:
            result = replay_batch(load, i, &header, at)
            if result < 0:
                return result
        at += header.size_bytes
    return 0


cdef int load_producers(Load *load, int64_t end_offset) noexcept nogil:
    """From the newest snapshot, and the batches behind it. What was recovered is replayed whole: its transaction index
    is new.
    """
    cdef int64_t not_after = end_offset
    cdef int64_t from_offset
    cdef int32_t i
    cdef int result
    if load.first_recovered >= 0:
        not_after = load.segments[load.first_recovered].base_offset
    from_offset = load_snapshot(load, not_after)
    if from_offset < 0:
        return <int> from_offset
    for i in range(load.count):
        if i + 1 < load.count and load.segments[i + 1].base_offset <= from_offset:
            continue
        if from_offset >= end_offset:
            break
        result = replay_segment(load, i, from_offset)
        if result < 0:
            return result
    producers_expire(load.producers, log_now_ms(load.log), load.log.config.producer_id_expiration_ms)
    return 0


# --- all of it ---

cdef int drop_everything_before(Load *load, int64_t *end_offset) noexcept nogil:
    """The checkpointed start lies behind the end: segment files were lost. Kafka begins anew at the start."""
    cdef int result
    if end_offset[0] >= load.plan.log_start_offset:
        return 0
    result = drop_segments_after(load, -1)
    producers_clear(load.producers)
    load.log.epoch_count = 0
    load.log.epochs_dirty = True
    end_offset[0] = load.plan.log_start_offset
    return result


cdef int drop_snapshots_after(Load *load, int64_t end_offset) noexcept nogil:
    """A later load must not take the state of records that were cut off for that of others with their offsets."""
    cdef const Disk *disk = load.log.dir.disk
    cdef size_t room = strlen(load.path) + SNAPSHOT_NAME_BYTES
    cdef char *path = <char *> malloc(room)
    cdef int32_t i
    cdef int result = 0
    if path == NULL:
        return -ENOMEM
    for i in range(load.plan.snapshot_count):
        if load.plan.snapshots[i] > end_offset and result == 0:
            snprintf(path, room, b"%s/%020lld.snapshot", load.path, <long long> load.plan.snapshots[i])
            result = disk.unlink(disk.self, path)
            result = 0 if result == -ENOENT else result
    free(path)
    return result


cdef int install(Load *load, int64_t end_offset) noexcept nogil:
    cdef Log *log = load.log
    cdef int64_t synced = end_offset
    cdef int32_t i
    cdef int result = 0
    if not load.plan.clean and load.plan.recovery_point < end_offset:
        synced = load.plan.recovery_point
    epochs_truncate_end(log, end_offset)
    epochs_truncate_start(log, load.plan.log_start_offset)
    for i in range(load.count - 1):
        if load.segments[i + 1].base_offset <= synced:
            load.segments[i].synced_size = load.segments[i].size
            store32(&load.segments[i].wholly_synced, not load.recovered[i])
    mutex_lock(&log.lock)
    log.path = load.path
    log.producers = load.producers
    log.snapshot_offset = load.snapshot_offset
    log.first_unstable_offset = producers_first_unstable(log.producers)
    log.last_aborted_offset = load.last_aborted_offset
    log.end_offset = end_offset
    log.log_start_offset = log.local_log_start_offset = log_start(load)
    log.synced_offset = log.commit_offset = synced if synced > log.log_start_offset else log.log_start_offset
    if log.synced_offset < end_offset:
        log.unflushed_since_ns = log.clock.monotonic_ns(log.clock.self)
    if load.count:
        result = log_set_segments(log, load.segments, load.count)
        if result == 0:
            log.state = LOG_OPEN
            load.count = 0   # the list has taken the counts over
            log_save_epochs(log)
    else:
        log.synced_offset = log.commit_offset = log.end_offset = log.log_start_offset = load.plan.log_start_offset
    mutex_unlock(&log.lock)
    load.path = NULL
    load.producers = NULL
    return result


cdef int run_load(Load *load) noexcept nogil:
    cdef int64_t end_offset = 0
    cdef int result
    load.path = log_directory_path(load.log)
    load.producers = producers_new()
    load.log.recent = <Recent *> calloc(1, sizeof(Recent))
    if load.path == NULL or load.producers == NULL or load.log.recent == NULL:
        return -ENOMEM
    result = load_epochs(load)
    if result == 0:
        result = open_segments(load)
    if result == 0:
        result = recover_all(load)
    if result == 0 and load.count:
        result = prepare_active(load, &end_offset)
    if result == 0 and load.count:
        result = load_producers(load, end_offset)
    if result == 0 and load.count:
        result = drop_everything_before(load, &end_offset)
    if result == 0 and load.count:
        result = seal_rest(load)
    if result == 0:
        result = drop_snapshots_after(load, end_offset)
    if result == 0 and load.report.dropped_segments:
        # Gone for good before the log grows again, or they would follow on other records than their own.
        result = load.log.dir.disk.sync_directory(load.log.dir.disk.self, load.path)
    return result if result < 0 else install(load, end_offset)


cdef int log_load(Log *log, const LoadPlan *plan, LoadReport *report) noexcept nogil:
    cdef Load load
    cdef int32_t i
    cdef int result
    memset(&load, 0, sizeof(Load))
    memset(report, 0, sizeof(LoadReport))
    load.log = log
    load.plan = plan
    load.report = report
    load.first_recovered = -1
    load.last_aborted_offset = -1
    load.snapshot_offset = -1
    result = run_load(&load)
    for i in range(load.count):
        segment_release(load.segments[i])
    free(load.segments)
    free(load.damaged)
    free(load.recovered)
    free(load.block)
    free(load.path)
    producers_free(load.producers)
    return result


# --- producer state again, after a truncation ---

cdef int drop_snapshot(Load *load, int64_t offset) noexcept nogil:
    cdef LoadPlan plan
    plan.snapshots = &offset
    plan.snapshot_count = 1
    cdef Load one
    one.log = load.log
    one.path = load.path
    one.plan = &plan
    return drop_snapshots_after(&one, offset - 1)


cdef int replay(Load *load, LoadPlan *plan, int64_t end_offset) noexcept nogil:
    """Every segment but the first began with a snapshot; those of the segments that are gone went with them."""
    cdef int64_t *snapshots = <int64_t *> malloc((load.count + 1) * sizeof(int64_t))
    cdef int32_t i
    cdef int result
    load.block = <uint8_t *> malloc(BLOCK_BYTES)
    load.block_bytes = BLOCK_BYTES
    if snapshots == NULL or load.block == NULL or load.producers == NULL:
        free(snapshots)
        return -ENOMEM
    for i in range(load.count):
        snapshots[i] = load.segments[i].base_offset
        result = segment_open_log(load.segments[i])
        if result < 0:
            free(snapshots)
            return result
    plan.snapshots = snapshots
    plan.snapshot_count = load.count
    result = load_producers(load, end_offset)
    if result == 0 and load.log.snapshot_offset > end_offset:
        result = drop_snapshot(load, load.log.snapshot_offset)
    free(snapshots)
    return result


cdef int log_replay_producers(Log *log, int64_t end_offset) noexcept nogil:
    cdef Load load
    cdef LoadPlan plan
    cdef Producers *before
    cdef SegmentList *list = log_hold_segments(log)
    cdef int result
    memset(&load, 0, sizeof(Load))
    memset(&plan, 0, sizeof(LoadPlan))
    load.log = log
    load.plan = &plan
    load.segments = list.items
    load.count = list.count
    load.path = log.path
    load.first_recovered = -1
    load.snapshot_offset = -1
    load.producers = producers_new()
    mutex_lock(&log.lock)
    plan.log_start_offset = log.log_start_offset
    mutex_unlock(&log.lock)
    result = replay(&load, &plan, end_offset)
    if result == 0:
        mutex_lock(&log.lock)
        before = log.producers
        log.producers = load.producers
        load.producers = before
        log.snapshot_offset = load.snapshot_offset
        log.first_unstable_offset = producers_first_unstable(log.producers)
        mutex_unlock(&log.lock)
    producers_free(load.producers)
    free(load.block)
    segments_release(list)
    return result
