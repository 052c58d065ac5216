"""Implements producer_replay.pxd: the producer state of a log that is being loaded or truncated."""

from libc.errno cimport EFBIG, EILSEQ, EINVAL, EIO, ENOENT, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memset, strlen

from kafkacore._fast.base.atomics cimport load32
from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.log.log cimport SegmentList, log_hold_segments, segments_release
from kafkacore._fast.log.files cimport read_producer_snapshot, write_producers
from kafkacore._fast.log.producers cimport (
    EndedTransaction, Producers, producers_first_unstable, producers_free, producers_new,
    producers_note_batch, producers_read, producers_recall,
)
from kafkacore._fast.record.record cimport (
    BATCH_OK, BATCH_SHORT, HEADER_BYTES, BatchHeader, has_producer_id, is_control, last_offset, parse_header,
)
from kafkacore._fast.log.segment cimport Segment, file_of, segment_open_log
from kafkacore._fast.log.segment_index cimport segment_floor_of_position, segment_floor_on_disk
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.txn_index cimport txn_index_append

cdef extern from "<errno.h>" nogil:
    int ECANCELED

cdef enum:
    SNAPSHOT_NAME_BYTES = 32
    HEADERS_BYTES = 16 << 10   # the size of one read if only headers are needed
    # The number of bytes before a snapshot's offset that are read again. When the node starts, it reads this much of
    # each log that has producers.
    RECALLED_BYTES = 64 << 10


cdef int64_t load_start(const Load *load) noexcept nogil:
    cdef int64_t first = load.segments[0].base_offset if load.count else 0
    return load.log_start_offset if load.log_start_offset > first else first


# --- batches ---

cdef int replay_batch(Load *load, int32_t i, const uint8_t *batch, const BatchHeader *header) noexcept nogil:
    cdef EndedTransaction ended
    cdef int result
    if header.magic < 2 or not has_producer_id(header):
        return 0
    result = producers_note_batch(load.producers, batch, <size_t> header.size_bytes, &ended)
    if result < 0 or ended.last_offset < 0 or not ended.aborted:
        return result
    if load.recovered != NULL and load.recovered[i]:
        result = txn_index_append(load.segments[i], &ended)
    if load.last_aborted_offset < ended.last_offset:
        load.last_aborted_offset = ended.last_offset
    return result


cdef int replay_marker(Load *load, int32_t i, const BatchHeader *header, int64_t position) noexcept nogil:
    """Replays a control batch. Reads its body too, because the body says how a transaction ended."""
    cdef Segment *segment = load.segments[i]
    cdef uint8_t *batch = <uint8_t *> malloc(<size_t> header.size_bytes)
    cdef int64_t got
    cdef int result = -ENOMEM
    if batch == NULL:
        return result
    got = segment.disk.pread(segment.disk.self, file_of(segment), batch, <size_t> header.size_bytes, position)
    if got == header.size_bytes:
        result = replay_batch(load, i, batch, header)
    else:
        result = <int> got if got < 0 else -EILSEQ
    free(batch)
    return result


cdef int walk(Load *load, int32_t i, int64_t position, int64_t end_offset, bint recalls) noexcept nogil:
    """Replays the batches of a segment from `position` on. With `recalls`, only adds them to the producers' windows
    (see `recall`). Reads only the headers if they are enough."""
    cdef Segment *segment = load.segments[i]
    cdef BatchHeader header
    cdef int64_t at = position
    cdef int64_t start = 0
    cdef int64_t held = 0
    cdef int64_t size
    cdef int result
    while at < segment.size:
        if at < start or at + HEADER_BYTES > start + held:
            if load.is_abandoned != NULL and load32(load.is_abandoned):
                return -ECANCELED
            size = segment.size - at if segment.size - at < HEADERS_BYTES else HEADERS_BYTES
            start = at
            held = segment.disk.pread(segment.disk.self, file_of(segment), load.block, <size_t> size, at)
            if held < 0:
                return <int> held
        result = parse_header(load.block + (at - start), <size_t> (start + held - at), &header)
        if result == BATCH_SHORT or (result == BATCH_OK and header.size_bytes > segment.size - at):
            return 0  # an incomplete batch ends its segment, as in Kafka
        if result != BATCH_OK:
            return -EILSEQ
        if header.base_offset >= end_offset:
            return 0
        if header.magic >= 2 and has_producer_id(&header) and (recalls or last_offset(&header) >= load.state_offset):
            if recalls:
                if not is_control(&header) and header.base_offset >= load_start(load):
                    producers_recall(load.producers, &header)
            elif is_control(&header):
                result = replay_marker(load, i, &header, at)
            else:
                result = replay_batch(load, i, load.block + (at - start), &header)
            if result < 0:
                return result
        at += header.size_bytes
    return 0


cdef int replay_segment(Load *load, int32_t i, int64_t end_offset) noexcept nogil:
    cdef Segment *segment = load.segments[i]
    cdef bint was_closed = file_of(segment) < 0
    cdef int64_t position = 0
    cdef int result = segment_open_log(segment)
    if result == 0 and load.state_offset > segment.base_offset:
        position = segment_floor_on_disk(segment, load.state_offset, False)
        result = <int> position if position < 0 else 0
    if result == 0:
        result = walk(load, i, position, end_offset, False)
    if result == -EILSEQ and position > 0:
        # The index points into the middle of a batch, so scan from the start of the segment.
        result = walk(load, i, 0, end_offset, False)
    close_again(load, segment, was_closed)
    return result


cdef void close_again(const Load *load, Segment *segment, bint was_closed) noexcept nogil:
    if was_closed and load.recovered != NULL and file_of(segment) >= 0:
        segment.disk.close(segment.disk.self, file_of(segment))
        segment.file = -1


cdef int recall(Load *load, int64_t offset) noexcept nogil:
    """Restores the windows (the last five batches) of the producers in a snapshot at `offset`, from the last bytes of
    the log before that offset.

    A snapshot has only the last batch of each producer. That is enough for Kafka's brokers, which read the next request
    of a connection only after they have answered the previous one. This node appends up to five batches of a producer
    before it acknowledges the first one, and the producer may send all five again.
    """
    cdef int32_t i = load.count - 1
    cdef Segment *segment
    cdef bint was_closed
    cdef int64_t position
    cdef int result
    while i >= 0 and load.segments[i].base_offset >= offset:
        i -= 1
    if i < 0 or load.producers.count == 0:
        return 0
    segment = load.segments[i]
    was_closed = file_of(segment) < 0
    result = segment_open_log(segment)
    if result == 0:
        position = segment.size
        if position > RECALLED_BYTES and (i + 1 == load.count or load.segments[i + 1].base_offset != offset):
            position = segment_floor_on_disk(segment, offset, False)
        if position > RECALLED_BYTES:
            position = segment_floor_of_position(segment, position - RECALLED_BYTES)
        else:
            position = min(position, 0)
        result = walk(load, i, position, offset, True) if position >= 0 else <int> position
    close_again(load, segment, was_closed)
    # If these batches cannot be read, the load continues without them.
    return 0 if result == -EILSEQ or result == -EIO else result


# --- snapshots ---

cdef int drop_snapshot(const Disk *disk, const char *directory, int64_t offset) noexcept nogil:
    cdef size_t room = strlen(directory) + SNAPSHOT_NAME_BYTES
    cdef char *path = <char *> malloc(room)
    cdef int result
    if path == NULL:
        return -ENOMEM
    snprintf(path, room, b"%s/%020lld.snapshot", directory, <long long> offset)
    result = disk.unlink(disk.self, path)
    free(path)
    return 0 if result == -ENOENT else result


cdef int read_snapshot(Load *load, int64_t offset) noexcept nogil:
    """Replaces the known state by the state in the snapshot. Returns -EINVAL if the file is corrupt, -EFBIG if it is
    too large, and -ENOENT if it does not exist."""
    cdef Producers *producers = producers_new()
    cdef uint8_t *data
    cdef int64_t size
    cdef int result
    if producers == NULL:
        return -ENOMEM
    size = read_producer_snapshot(load.log.dir.disk, load.path, offset, &data)
    result = producers_read(producers, data, size) if size >= 0 else <int> size
    free(data)
    if result < 0:
        producers_free(producers)
        return result
    producers_free(load.producers)
    load.producers = producers
    load.state_offset = load.snapshot_offset = offset
    return 0


cdef int load_newest_snapshot(Load *load, int64_t not_after) noexcept nogil:
    """Reads the newest snapshot that is trusted, readable, above the offset of the known state, and at or below
    `not_after`. Removes snapshots that are corrupt or too large."""
    cdef int64_t known = load.state_offset if load.state_offset >= 0 else load_start(load)
    cdef int64_t last = not_after if not_after < load.snapshots_end else load.snapshots_end
    cdef int32_t i = load.snapshot_count - 1
    cdef int result
    while i >= 0 and load.snapshots[i] > known:
        if load.snapshots[i] <= last:
            result = read_snapshot(load, load.snapshots[i])
            if result == 0:
                return recall(load, load.snapshots[i])
            if result == -EINVAL or result == -EFBIG:
                result = drop_snapshot(load.log.dir.disk, load.path, load.snapshots[i])
            if result < 0 and result != -ENOENT:
                return result
        i -= 1
    load.state_offset = known
    return 0


cdef int replay_to(Load *load, int64_t offset) noexcept nogil:
    cdef int32_t i
    cdef int result = load_newest_snapshot(load, offset)
    for i in range(load.count):
        if result < 0 or load.segments[i].base_offset >= offset or load.state_offset >= offset:
            break
        if i + 1 < load.count and load.segments[i + 1].base_offset <= load.state_offset:
            continue
        result = replay_segment(load, i, offset)
    if result == 0 and load.state_offset < offset:
        load.state_offset = offset
    return result


cdef int replay_save(Load *load) noexcept nogil:
    load.snapshot_offset = load.state_offset
    return write_producers(load.log.dir.disk, load.path, load.producers, load.state_offset, False)


cdef bint is_base(const Load *load, int64_t offset) noexcept nogil:
    cdef int32_t i
    for i in range(load.count):
        if load.segments[i].base_offset == offset:
            return True
    return False


cdef int replay_drop_strays(Load *load, int64_t end_offset) noexcept nogil:
    cdef int64_t last_base = load.segments[load.count - 1].base_offset if load.count else -1
    cdef bint newest = True
    cdef bint kept
    cdef int32_t i = load.snapshot_count - 1
    cdef int result = 0
    while i >= 0 and result == 0:
        kept = load_start(load) < load.snapshots[i] <= end_offset and load.snapshots[i] <= load.snapshots_end
        if kept and not is_base(load, load.snapshots[i]):
            kept = newest and load.snapshots[i] > last_base
            newest = False
        # This load may have replaced an untrusted snapshot by a new one with the same name. The new one is kept.
        if not kept and not (load.recovered != NULL and is_base(load, load.snapshots[i])
                             and load.snapshots[i] <= load.snapshot_offset):
            result = drop_snapshot(load.log.dir.disk, load.path, load.snapshots[i])
        i -= 1
    return result


# --- after a truncation ---

cdef int replay_after_cut(Load *load, int64_t end_offset) noexcept nogil:
    """Rebuilds the producers after a truncation, which has also removed the snapshots of the removed segments. Every
    segment except the first one has a snapshot at its base offset."""
    cdef int64_t *snapshots = <int64_t *> malloc((load.count + 1) * sizeof(int64_t))
    cdef int32_t i
    cdef int result = -ENOMEM
    load.block = <uint8_t *> malloc(HEADERS_BYTES)
    if snapshots != NULL and load.block != NULL and load.producers != NULL:
        for i in range(load.count):
            snapshots[i] = load.segments[i].base_offset
        load.snapshots = snapshots
        load.snapshot_count = load.count
        load.snapshots_end = end_offset
        result = replay_to(load, end_offset)
    if result == 0 and load.log.snapshot_offset > end_offset:
        result = drop_snapshot(load.log.dir.disk, load.path, load.log.snapshot_offset)
    free(snapshots)
    return result


cdef int log_replay_producers(Log *log, int64_t end_offset) noexcept nogil:
    cdef Load load
    cdef Producers *before
    cdef SegmentList *list = log_hold_segments(log)
    cdef int result
    memset(&load, 0, sizeof(Load))
    load.log = log
    load.segments = list.items
    load.count = list.count
    load.path = log.path
    load.state_offset = load.snapshot_offset = load.last_aborted_offset = -1
    load.producers = producers_new()
    mutex_lock(&log.lock)
    load.log_start_offset = log.log_start_offset
    mutex_unlock(&log.lock)
    result = replay_after_cut(&load, end_offset)
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
