"""Implements recovery.pxd: loads and recovers a log."""

from libc.errno cimport EFBIG, EILSEQ, EINVAL, EIO, ENOENT, ENOMEM, EOVERFLOW, EUCLEAN
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from kafkacore._fast.base.atomics cimport add64, load32, store32, store64
from kafkacore._fast.base.planted cimport is_planted
from kafkacore._fast.log.epochs cimport (
    epochs_assign, epochs_drop_empty, epochs_latest, epochs_read, epochs_truncate_start,
)
from kafkacore._fast.log.log cimport (
    EPOCHS_BEHIND, LOG_OPEN, EpochEntry, Log, log_directory_path, log_now_ms, log_set_segments,
)
from kafkacore._fast.log.files cimport read_small_file
from kafkacore._fast.log.epochs_checkpoint cimport log_save_epochs
from kafkacore._fast.log.producers cimport (
    producers_clear, producers_expire, producers_first_unstable, producers_free, producers_new,
)
from kafkacore._fast.record.record cimport (
    BATCH_OK, BATCH_SHORT, HEADER_BYTES, BatchHeader, check_batch, last_offset, parse_header,
)
from kafkacore._fast.log.producer_replay cimport (
    LOAD_BLOCK_BYTES, Load, load_start, replay_batch, replay_drop_strays, replay_save, replay_to,
)
from kafkacore._fast.log.segment cimport (
    LAST_RELATIVE_OFFSET, Segment, file_of, segment_close, segment_new, segment_open_log, segment_release,
    segment_sync_names, segment_truncate, segment_unlink,
)
from kafkacore._fast.log.segment_index cimport (
    segment_begin_rebuild, segment_end_rebuild, segment_end_times, segment_forget_indexes, segment_load_indexes,
    segment_note_batch, segment_reserve, segment_seal,
)
from kafkacore._fast.log.segment_end cimport SegmentEnd, segment_find_end, segment_note_end
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.txn_index cimport txn_index_last, txn_index_reset

cdef extern from "<errno.h>" nogil:
    int ECANCELED

cdef enum:
    HEADERS_BYTES = 16 << 10   # the size of one read if only headers are needed

# A load, with its plan and its report.
ctypedef struct Recovery:
    Load load
    const LoadPlan *plan
    LoadReport *report
    bint *damaged                    # for each segment, whether its transaction index is corrupt


# --- the batches of one segment ---

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
    """Reads the bytes from `at` to `end`, or as many of them as fit into the block. Returns the number of bytes, or
    -errno."""
    cdef int64_t size = end - at if end - at < load.block_bytes else load.block_bytes
    cdef int64_t got = segment.disk.pread(segment.disk.self, file_of(segment), load.block, <size_t> size, at)
    return got if got < 0 or got == size else -EIO


cdef int note_recovered(Load *load, int32_t i, const uint8_t *batch, const BatchHeader *header,
                        int64_t at) noexcept nogil:
    cdef Segment *segment = load.segments[i]
    if segment_reserve(segment) < 0:
        return -ENOMEM
    segment_note_batch(segment, at, header.size_bytes, last_offset(header), header.max_timestamp,
                       load.log.config.index_interval_bytes)
    # Only newer epochs are noted. Noting an older epoch would remove the later epochs that come from the checkpoint.
    # The load removes such later epochs only when it knows the end of the log (epochs_drop_empty).
    if header.magic >= 2 and header.partition_leader_epoch > epochs_latest(load.log):
        if epochs_assign(load.log, header.partition_leader_epoch, header.base_offset) < 0:
            return -ENOMEM
    return replay_batch(load, i, batch, header)


cdef bint may_have_gap(const Recovery *recovery, int64_t offset) noexcept nogil:
    """Returns whether this broker's cleaner may have left a gap that begins at `offset`: the topic's policy includes
    compaction now, or the cleaner once went beyond this offset."""
    return recovery.load.log.config.compact_policy or offset < recovery.plan.gaps_until


cdef int goes_on(Segment *segment, int64_t at, int64_t next_offset) noexcept nogil:
    """Returns 1 if the file ends at `at`, has no batch there, or has a batch there that can follow `next_offset`.
    Returns 0 if the batch there has a lower offset, or -errno."""
    cdef uint8_t data[HEADER_BYTES]
    cdef BatchHeader header
    cdef int64_t got = min(segment.size - at, <int64_t> HEADER_BYTES)
    if got > 0:
        got = segment.disk.pread(segment.disk.self, file_of(segment), data, <size_t> got, at)
    if got < 0:
        return <int> got
    return (parse_header(data, <size_t> got, &header) != BATCH_OK or last_offset(&header) >= next_offset
            and (header.magic < 2 or header.base_offset >= next_offset))


cdef int follows_gap(const Recovery *recovery, int32_t i, const BatchHeader *header, int64_t at) noexcept nogil:
    """Returns 1 if the gap before the batch at `at` is real, 0 if the batch's base offset is damaged, or -errno. Every
    log except the metadata log may have gaps: a follower copies the gaps of its leader, also into a segment that no
    cleaner has seen, and the cleaner's checkpoint is written after the compaction. (Only the metadata log has a
    trusted part.)"""
    cdef const Load *load = &recovery.load
    cdef Segment *segment = load.segments[i]
    cdef int64_t limit = segment.base_offset + LAST_RELATIVE_OFFSET
    if i + 1 < load.count:
        limit = load.segments[i + 1].base_offset - 1
    if recovery.plan.trusted_until > 0 or header.base_offset < load.state_offset:
        return 0
    if header.base_offset > limit - header.last_offset_delta:
        return 0
    return goes_on(segment, at + header.size_bytes, last_offset(header) + 1)


cdef int follows(const Recovery *recovery, int32_t i, const BatchHeader *header, int64_t at) noexcept nogil:
    """Returns 1 if the batch at `at` can follow the previous batch, 0 if it cannot, or -errno. No checksum covers the
    base offset of a batch, so this offset may be damaged. For magic 0 and 1, only the last offset is known."""
    if header.last_offset_delta < 0:
        return 0
    if (header.magic < 2 or header.base_offset == recovery.load.state_offset
            or may_have_gap(recovery, recovery.load.state_offset)):
        return last_offset(header) >= recovery.load.state_offset
    return follows_gap(recovery, i, header, at)


cdef int64_t valid_bytes(Recovery *recovery, int32_t i) noexcept nogil:
    """Checks every batch, and rebuilds the indexes in memory and the producer state. Returns the position of the first
    bad batch, or -errno. -EOVERFLOW means that an offset is too far from the segment's base offset for an index entry.
    """
    cdef Load *load = &recovery.load
    cdef Segment *segment = load.segments[i]
    cdef BatchHeader header
    cdef int64_t size = segment.size
    cdef int64_t at = 0      # the position in the file
    cdef int64_t held = 0    # the number of bytes in the block
    cdef int64_t start = 0   # the position of the block in the file
    cdef int64_t have
    cdef int result
    load.state_offset = segment.base_offset
    while at < size:
        have = start + held - at
        result = parse_header(load.block + (at - start), <size_t> have, &header)
        if result == BATCH_OK and header.size_bytes > size - at:
            return at
        if result == BATCH_SHORT or (result == BATCH_OK and header.size_bytes > have):
            if have == size - at:
                return at  # the block has all remaining bytes, but they are not a whole batch
            if result == BATCH_OK and room_for(load, header.size_bytes) < 0:
                return -ENOMEM
            start = at
            held = fill(load, segment, at, size)
            if held < 0:
                return held
            continue
        if result != BATCH_OK:
            return at
        if (check_batch(load.block + (at - start), <size_t> have, &header) != BATCH_OK
                and not is_planted(b"torn-tail-accepted")):
            return at
        result = follows(recovery, i, &header, at)
        if result <= 0:
            return result if result < 0 else at
        if last_offset(&header) - segment.base_offset > LAST_RELATIVE_OFFSET:
            return -EOVERFLOW
        result = note_recovered(load, i, load.block + (at - start), &header, at)
        if result < 0:
            return result
        load.state_offset = last_offset(&header) + 1
        at += header.size_bytes
        add64(recovery.plan.progress, header.size_bytes)
    return at


cdef bint is_unflushed(const Recovery *recovery, int32_t i) noexcept nogil:
    """Returns whether the segment contains the recovery point or is after it."""
    cdef const Load *load = &recovery.load
    return i + 1 >= load.count or load.segments[i + 1].base_offset > recovery.plan.recovery_point


cdef int begin_segment(Recovery *recovery, int32_t i) noexcept nogil:
    """Restores the state that the producers had at the segment's base offset, and empties the segment's indexes."""
    cdef Load *load = &recovery.load
    cdef Segment *segment = load.segments[i]
    cdef int result = replay_to(load, segment.base_offset)
    if result == 0:
        segment_close(segment)
        # An unflushed segment needs no durable rebuild: after a crash, the next load recovers this segment whether it
        # has indexes or not. The last segment counts as unflushed. Even if the log rolls before the crash, that segment
        # ends at the recovery point or after it.
        result = segment_begin_rebuild(segment, not is_unflushed(recovery, i))
    if result == 0:
        result = segment_open_log(segment)
    return result if result < 0 else txn_index_reset(segment)


cdef int write_indexes(Recovery *recovery, int32_t i) noexcept nogil:
    cdef Segment *segment = recovery.load.segments[i]
    cdef int result = 0
    if i + 1 < recovery.load.count:
        result = segment_end_times(segment)
    return result if result < 0 else segment_end_rebuild(segment, not is_unflushed(recovery, i))


cdef int seal_recovered(Load *load, int32_t i) noexcept nogil:
    cdef Segment *segment = load.segments[i]
    cdef int result = segment_seal(segment)
    if result == 0:
        segment_forget_indexes(segment)
        segment_close(segment)
        load.state_offset = load.segments[i + 1].base_offset
        result = replay_save(load)  # as a roll does
    return result


cdef int damaged_here(Recovery *recovery, int32_t i, int64_t at) noexcept nogil:
    """Reports damage to committed records, which must not be truncated."""
    recovery.report.damaged_offset = recovery.load.state_offset
    recovery.report.damaged_segment = recovery.load.segments[i].base_offset
    recovery.report.damaged_at = at
    return -EUCLEAN


cdef int recover_segment(Recovery *recovery, int32_t i) noexcept nogil:
    """Recovers a segment. Returns 1 if it truncated the segment, 0 if the segment was complete, or -errno. After this,
    the indexes are in memory and in their files."""
    cdef Load *load = &recovery.load
    cdef Segment *segment = load.segments[i]
    cdef int64_t size = segment.size
    cdef int64_t valid
    cdef int result
    load.recovered[i] = True
    result = begin_segment(recovery, i)
    if result < 0:
        return result
    valid = valid_bytes(recovery, i)
    if valid < 0:
        return <int> valid
    if valid < size and load.state_offset < recovery.plan.trusted_until:
        return damaged_here(recovery, i, valid)
    recovery.report.recovered_segments += 1
    recovery.report.recovered_bytes += valid
    recovery.report.truncated_bytes += size - valid
    if valid < size:
        result = segment_truncate(segment, valid)
        add64(recovery.plan.progress, size - valid)
    if result == 0:
        result = write_indexes(recovery, i)
    return result if result < 0 else valid < size


# --- the segments of the log ---

cdef int measure(Segment *segment, bint stays_open) noexcept nogil:
    cdef int result = segment_open_log(segment)
    if result < 0:
        return result
    segment.size = segment.disk.size(segment.disk.self, file_of(segment))
    if not stays_open:
        segment_close(segment)  # a large log has more segments than a process may have open files
    return <int> segment.size if segment.size < 0 else (-EFBIG if segment.size > 0x7FFFFFFF else 0)


cdef int open_segments(Recovery *recovery) noexcept nogil:
    cdef const LoadPlan *plan = recovery.plan
    cdef Load *load = &recovery.load
    cdef Segment *segment
    cdef int32_t i
    cdef int result
    for i in range(plan.count):
        segment = segment_new(load.log.dir.disk, load.path, plan.base_offsets[i])
        if segment == NULL:
            return -ENOMEM
        load.segments[i] = segment
        load.count += 1
        result = measure(segment, i + 1 == plan.count)
        if result < 0:
            return result
        segment.created_ms = segment.modified_ms = log_now_ms(load.log)
        # If the process was killed, it may have created the segment shortly before, without syncing the file name.
        segment.entry_synced = plan.clean
        result = txn_index_last(segment, &load.last_aborted_offset) if plan.files[i] & FILE_HAS_ABORTED else 0
        recovery.damaged[i] = result == -EINVAL  # then the index is rebuilt together with the segment
        if result < 0 and result != -EINVAL:
            return result
    return 0


cdef int drop_segments_after(Recovery *recovery, int32_t i) noexcept nogil:
    """Drops the segments after a truncated one, because they cannot follow it."""
    cdef Load *load = &recovery.load
    cdef int result = 0
    while load.count > i + 1 and result == 0:
        load.count -= 1
        recovery.report.dropped_segments += 1
        add64(recovery.plan.progress, load.segments[load.count].size)
        result = segment_unlink(load.segments[load.count])
        if result == 0:
            # Each removal is synced before the next one. Otherwise, after a crash, a later segment might still exist
            # although an earlier one is gone.
            result = segment_sync_names(load.segments[load.count])
        segment_release(load.segments[load.count])
        load.segments[load.count] = NULL
    return result


cdef bint lacks_its_end(const Recovery *recovery, int32_t i) noexcept nogil:
    """Returns whether a rebuilt segment ends before the next segment begins. A file that lost its last pages can still
    end with a complete batch."""
    cdef const Load *load = &recovery.load
    return (i + 1 < load.count and load.state_offset != load.segments[i + 1].base_offset
            and not may_have_gap(recovery, load.state_offset))


cdef bint ends_at_recovery_point(const Recovery *recovery, int32_t i) noexcept nogil:
    """Returns whether the segment ends at the recovery point. Its records are synced, but perhaps not its transaction
    index: this may have been the active segment when the recovery point was written."""
    return recovery.load.segments[i + 1].base_offset == recovery.plan.recovery_point


cdef bint needs_recovery(const Recovery *recovery, int32_t i) noexcept nogil:
    if recovery.damaged[i] or not recovery.plan.files[i] & FILE_HAS_INDEXES:
        return True
    return not recovery.plan.clean and (is_unflushed(recovery, i) or ends_at_recovery_point(recovery, i))


cdef void count_left(const Recovery *recovery) noexcept nogil:
    cdef int64_t left = 0
    cdef int32_t i
    for i in range(recovery.load.count):
        left += needs_recovery(recovery, i)
    store64(recovery.plan.segments_left, left)


cdef int recover_all(Recovery *recovery) noexcept nogil:
    cdef Load *load = &recovery.load
    cdef int32_t i = 0
    cdef int result
    count_left(recovery)
    while i < load.count:
        if not recovery.plan.clean and is_unflushed(recovery, i) and load.snapshots_end > load.segments[i].base_offset:
            load.snapshots_end = load.segments[i].base_offset  # snapshots above this offset may describe other records
        if needs_recovery(recovery, i):
            if load32(recovery.plan.is_abandoned):
                return -ECANCELED
            result = recover_segment(recovery, i)
            add64(recovery.plan.segments_left, -1)
            # A crash does not damage synced bytes. So if this segment is below the recovery point, its damage has
            # another cause. The records in the segments after it were acknowledged, so these segments are kept.
            if not recovery.plan.clean and is_unflushed(recovery, i) and (
                    result > 0 or (result == 0 and lacks_its_end(recovery, i))):
                if load.state_offset < recovery.plan.trusted_until:
                    return damaged_here(recovery, i, load.segments[i].size)
                return drop_segments_after(recovery, i)
            if result >= 0 and i + 1 < load.count:
                result = seal_recovered(load, i)
            if result < 0:
                return result
        i += 1
        add64(recovery.plan.segments_done, 1)
    return 0


cdef int prepare_active(Recovery *recovery, int64_t *end_offset) noexcept nogil:
    """Finds the log end and prepares the last segment. After a clean shutdown, or with `at_rest`, the segment stays
    closed until the first append, and its indexes stay on disk. Otherwise the segment is opened, and its indexes are in
    memory."""
    cdef Load *load = &recovery.load
    cdef int32_t last = load.count - 1
    cdef Segment *segment = load.segments[last]
    cdef SegmentEnd found
    cdef int result = 0
    if not load.recovered[last]:
        result = segment_find_end(segment, load.log.config.index_interval_bytes, &found)
        if result == 0 and recovery.plan.clean and found.times_are_whole:
            segment_note_end(segment, &found)
            end_offset[0] = found.next_offset
            store32(&segment.sealed, 1)
            segment_close(segment)
            return 0
        if result == 0:
            result = segment_load_indexes(segment)
        if result == -EINVAL or result == -EILSEQ:
            result = recover_segment(recovery, last)
            result = result if result < 0 else 0
    if result == 0:
        result = segment_find_end(segment, load.log.config.index_interval_bytes, &found)
    if result < 0:
        return result
    segment_note_end(segment, &found)
    end_offset[0] = found.next_offset
    if not recovery.plan.clean:
        result = segment_truncate(segment, segment.size)  # frees disk blocks that the crashed node had reserved
    if result == 0 and recovery.plan.at_rest:
        return put_to_rest(segment)
    return result if result < 0 else segment_reserve(segment)


cdef int put_to_rest(Segment *segment) noexcept nogil:
    """Leaves the segment as an orderly stop would leave it."""
    cdef int result = segment_end_times(segment)
    if result == 0:
        result = segment_seal(segment)
    if result == 0:
        segment_forget_indexes(segment)
        segment_close(segment)
    return result


cdef void seal_rest(Load *load) noexcept nogil:
    """Seals all segments except the last one. Readers open the files of sealed segments again."""
    cdef int32_t i
    for i in range(load.count - 1):
        segment_forget_indexes(load.segments[i])
        segment_close(load.segments[i])
        store32(&load.segments[i].sealed, 1)


# --- epochs ---

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


cdef int note_epochs(Load *load, Segment *segment, int64_t offset, int64_t until) noexcept nogil:
    """Notes the epochs of the segment's batches from `offset` up to `until` (exclusive). Returns 1 if the next segment
    may have more such batches, 0 if not, or -errno. Stops at a batch that has no epoch or is corrupt."""
    cdef BatchHeader header
    cdef int64_t at = 0
    cdef int64_t start = 0
    cdef int64_t held = 0
    cdef int result
    while at < segment.size:
        if at < start or at + HEADER_BYTES > start + held:
            start = at
            held = fill(load, segment, at, min(segment.size, at + HEADERS_BYTES))
            if held < 0:
                return <int> held
        result = parse_header(load.block + (at - start), <size_t> (start + held - at), &header)
        if (result != BATCH_OK or header.magic < 2 or header.partition_leader_epoch < 0
                or header.base_offset >= until):
            return 0
        if last_offset(&header) >= offset:
            result = epochs_assign(load.log, header.partition_leader_epoch, max(header.base_offset, offset))
            if result < 0:
                return result
        at += header.size_bytes
    return 1


cdef int note_first_epochs(Load *load, int64_t offset, int64_t until) noexcept nogil:
    cdef Segment *segment
    cdef bint was_closed
    cdef int32_t i
    cdef int result = 1
    for i in range(load.count):
        if result != 1:
            break
        if i + 1 < load.count and load.segments[i + 1].base_offset <= offset:
            continue
        segment = load.segments[i]
        was_closed = file_of(segment) < 0
        result = segment_open_log(segment)
        if result == 0:
            result = note_epochs(load, segment, offset, until)
        if was_closed:
            segment_close(segment)
    return min(result, 0)


cdef int restore_first_epochs(Load *load, int64_t end_offset) noexcept nogil:
    """Notes the epochs of records before the first known epoch.

    When records are deleted, their epochs leave the file at once, but the log start offset is checkpointed later. After
    a crash in between, the records are back, and the file lacks their epochs. If this replica then led, it would not
    notice that a follower has other records at these offsets."""
    cdef Log *log = load.log
    cdef EpochEntry *known = log.epochs
    cdef int32_t count = log.epoch_count
    cdef int dirty = log.epochs_dirty
    cdef int64_t first
    cdef int32_t i
    cdef int result
    if count == 0 or known[0].start_offset <= load_start(load):
        return 0
    first = known[0].start_offset
    log.epochs = NULL
    log.epoch_count = log.epoch_capacity = 0
    result = note_first_epochs(load, load_start(load), min(first, end_offset))
    for i in range(count):
        if result == 0:
            result = epochs_assign(log, known[i].epoch, known[i].start_offset)
    free(known)
    if result == 0 and log.epochs[0].start_offset == first:
        log.epochs_dirty = dirty  # nothing was found, so the file stays as it is
    return result


# --- the complete load ---

cdef int load_producers(Recovery *recovery, int64_t end_offset) noexcept nogil:
    cdef Load *load = &recovery.load
    cdef int result = 0
    if recovery.plan.clean and load.snapshot_count == 0 and load.state_offset < 0:
        # A clean shutdown writes a snapshot. So a log without a snapshot is older than idempotent producers, and there
        # is nothing to replay. (Kafka assumes this too.)
        load.state_offset = end_offset
    elif load.state_offset < end_offset:
        result = replay_to(load, end_offset)
    producers_expire(load.producers, log_now_ms(load.log), load.log.config.producer_id_expiration_ms)
    return result


cdef int drop_everything_before(Recovery *recovery, int64_t *end_offset) noexcept nogil:
    """Handles lost segment files: if the checkpointed log start offset is after the log end, begins the log again at
    that offset, as Kafka does."""
    cdef Load *load = &recovery.load
    cdef int result
    if end_offset[0] >= recovery.plan.log_start_offset:
        return 0
    result = drop_segments_after(recovery, -1)
    producers_clear(load.producers)
    load.log.epoch_count = 0
    load.log.epochs_dirty = EPOCHS_BEHIND
    end_offset[0] = recovery.plan.log_start_offset
    return result


cdef int64_t synced_until(const Recovery *recovery, int64_t end_offset) noexcept nogil:
    cdef int64_t synced = end_offset
    cdef int64_t start = load_start(&recovery.load)
    if not recovery.plan.clean and recovery.plan.recovery_point < end_offset:
        synced = recovery.plan.recovery_point
    return synced if synced > start else start


cdef void note_synced(Recovery *recovery, int64_t synced) noexcept nogil:
    """Marks the segments below `synced` as synced. After a clean shutdown, also marks the last segment."""
    cdef Load *load = &recovery.load
    cdef int32_t i
    for i in range(load.count):
        if (load.segments[i + 1].base_offset <= synced) if i + 1 < load.count else recovery.plan.clean:
            load.segments[i].synced_size = load.segments[i].size
            store32(&load.segments[i].wholly_synced, not load.recovered[i])


cdef int install(Recovery *recovery, int64_t end_offset) noexcept nogil:
    cdef Load *load = &recovery.load
    cdef Log *log = load.log
    cdef int64_t synced = synced_until(recovery, end_offset)
    cdef int result = 0
    if log.epochs_dirty:
        log.epochs_dirty = EPOCHS_BEHIND  # the checked batches had epochs that are not in the file
    epochs_drop_empty(log, end_offset)
    epochs_truncate_start(log, recovery.plan.log_start_offset)
    note_synced(recovery, synced)
    mutex_lock(&log.lock)
    log.path = load.path
    log.producers = load.producers
    log.snapshot_offset = load.snapshot_offset
    log.first_unstable_offset = producers_first_unstable(log.producers)
    log.last_aborted_offset = load.last_aborted_offset
    log.end_offset = end_offset
    log.log_start_offset = log.local_log_start_offset = load_start(load)
    # A truncation below the start or below the compacted part must also wait until the checkpoints are written.
    log.checkpointed_offset = max(recovery.plan.recovery_point, recovery.plan.gaps_until,
                                  recovery.plan.log_start_offset)
    log.synced_offset = log.commit_offset = synced
    if log.synced_offset < end_offset:
        log.unflushed_since_ns = log.clock.monotonic_ns(log.clock.self)
    if load.count:
        result = log_set_segments(log, load.segments, load.count)
        if result == 0:
            log.state = LOG_OPEN
            load.count = 0   # the list has taken over the references
            log_save_epochs(log)
    else:
        log.synced_offset = log.commit_offset = log.end_offset = log.log_start_offset = recovery.plan.log_start_offset
    mutex_unlock(&log.lock)
    load.path = NULL
    load.producers = NULL
    return result


cdef int run_load(Recovery *recovery) noexcept nogil:
    cdef Load *load = &recovery.load
    cdef int64_t end_offset = 0
    cdef int result = load_epochs(load)
    if result == 0:
        result = open_segments(recovery)
    if result == 0:
        result = recover_all(recovery)
    if result == 0 and load.count:
        result = prepare_active(recovery, &end_offset)
    if result == 0 and load.count:
        result = load_producers(recovery, end_offset)
    if result == 0 and load.count:
        result = drop_everything_before(recovery, &end_offset)
    if result == 0 and load.count:
        result = restore_first_epochs(load, end_offset)
    if result < 0:
        return result
    seal_rest(load)
    result = replay_drop_strays(load, end_offset)
    if result == 0 and recovery.report.dropped_segments:
        # The removals must be durable before the log grows again. Otherwise the removed segments could come back after
        # a crash, next to other records.
        result = load.log.dir.disk.sync_directory(load.log.dir.disk.self, load.path)
    return result if result < 0 else install(recovery, end_offset)


cdef bint begin_load(Recovery *recovery, Log *log, const LoadPlan *plan, LoadReport *report) noexcept nogil:
    cdef Load *load = &recovery.load
    memset(recovery, 0, sizeof(Recovery))
    memset(report, 0, sizeof(LoadReport))
    recovery.plan = plan
    recovery.report = report
    recovery.damaged = <bint *> calloc(plan.count + 1, sizeof(bint))
    load.log = log
    load.snapshots = plan.snapshots
    load.snapshot_count = plan.snapshot_count
    load.snapshots_end = INT64_MAX
    load.is_abandoned = plan.is_abandoned
    load.log_start_offset = plan.log_start_offset
    load.state_offset = load.snapshot_offset = load.last_aborted_offset = -1
    load.path = log_directory_path(log)
    load.producers = producers_new()
    load.segments = <Segment **> calloc(plan.count + 1, sizeof(Segment *))
    load.recovered = <bint *> calloc(plan.count + 1, sizeof(bint))
    load.block = <uint8_t *> malloc(LOAD_BLOCK_BYTES)
    load.block_bytes = LOAD_BLOCK_BYTES
    return (load.path != NULL and load.producers != NULL and load.segments != NULL and load.recovered != NULL
            and load.block != NULL and recovery.damaged != NULL)


cdef int log_load(Log *log, const LoadPlan *plan, LoadReport *report) noexcept nogil:
    cdef Recovery recovery
    cdef Load *load = &recovery.load
    cdef int32_t i
    cdef int result = -ENOMEM
    if begin_load(&recovery, log, plan, report):
        result = run_load(&recovery)
    store64(plan.segments_left, 0)
    for i in range(load.count):
        segment_release(load.segments[i])
    free(load.segments)
    free(load.recovered)
    free(recovery.damaged)
    free(load.block)
    free(load.path)
    producers_free(load.producers)
    return result
