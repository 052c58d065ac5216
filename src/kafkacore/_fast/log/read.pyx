"""Implements the reads of a log that read.pxd declares. (In Kafka: LocalLog.read, LogSegment.read,
UnifiedLog.fetchOffsetByTimestamp.)"""

from libc.errno cimport EAGAIN, EILSEQ, EIO, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from kafkacore._fast.base.error_codes cimport KAFKA_STORAGE_ERROR, OFFSET_OUT_OF_RANGE
from kafkacore._fast.base.atomics cimport add32, load32, load64
from kafkacore._fast.codec.context cimport CodecContext, InflateLimits
from kafkacore._fast.log.epochs cimport epochs_at
from kafkacore._fast.log.log cimport (
    LOG_BLOCKED, LOG_FAILED, RECENT_BATCHES, Log, Recent, SegmentList, log_segment_at,
    segments_release,
)
from kafkacore._fast.record.record cimport (
    BATCH_OK, BatchHeader, FoundRecord, find_max_timestamp, find_timestamp, parse_header,
)
from kafkacore._fast.log.segment cimport TimeEntry, file_of, segment_hold, segment_open_log, segment_release
from kafkacore._fast.log.segment_find cimport SEGMENT_END, Position, segment_find
from kafkacore._fast.log.segment_index cimport (
    segment_floor, segment_floor_on_disk, segment_note_greatest, segment_time_floor, segment_time_floor_on_disk,
)
from kafkacore._fast.base.planted cimport is_planted
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.codec.thread_context cimport thread_codec


cdef int64_t FOREVER = 0x7FFFFFFFFFFFFFFF

# The result of one look-up under the lock. It says where to continue the read without the lock.
ctypedef struct Look:
    Segment *segment      # with a reference
    int32_t cuts          # the value of the segment's `cuts`
    int64_t floor         # a position at or before the batch, from the index in memory; -1: use the index file
    int64_t limit         # the number of visible bytes in the segment, if the bound is after the segment
    int64_t next_base     # the base offset of the following segment; -1 if this segment is the last one
    bint bound_inside     # the bound is inside this segment, so its position must be found


# --- the recent batches, under the lock ---

cdef int32_t recent_index(const Log *log, int64_t offset) noexcept nogil:
    """Finds the recent batch that contains `offset`. Returns the index of this batch in the list (0 is the oldest).
    Returns -1 if `offset` is older than all recent batches, or not below the log end offset."""
    cdef const Recent *recent = log.recent
    cdef int32_t i
    if recent == NULL or offset >= log.end_offset:
        return -1
    i = recent.count - 1
    while i >= 0 and recent.batches[(recent.first + i) % RECENT_BATCHES].base_offset > offset:
        i -= 1
    return i


cdef int64_t recent_position(const Log *log, int32_t i) noexcept nogil:
    return log.recent.batches[(log.recent.first + i) % RECENT_BATCHES].position


cdef int64_t position_of_bound(const Log *log, int64_t bound) noexcept nogil:
    """Returns the position of the bound in the active segment, or -1 if the recent batches do not contain the bound."""
    cdef int32_t i
    if bound >= log.end_offset:
        return log.active.size
    i = recent_index(log, bound)
    return recent_position(log, i) if i >= 0 else -1


cdef void clip(ReadResult *out, Segment *segment, const Position *found, int64_t limit, int64_t max_bytes,
               bint min_one) noexcept nogil:
    """Fills in the result. Takes over the caller's reference to `segment`."""
    cdef int64_t size = limit - found.position
    if size > max_bytes:
        size = max_bytes
    if size < found.size:
        # If the first batch is too large, it is returned whole or not at all (KIP-74).
        min_one = min_one and found.size <= limit - found.position and not is_planted(b"large-batch-withheld")
        size = found.size if min_one else 0
    out.first_offset = found.offset
    out.position = found.position
    out.size = size if size > 0 else 0
    if out.size > 0:
        out.segment = segment
    else:
        segment_release(segment)


cdef bint read_recent(Log *log, int64_t offset, int64_t bound, int64_t max_bytes, bint min_one,
                      ReadResult *out) noexcept nogil:
    cdef int32_t i = recent_index(log, offset)
    cdef int64_t limit
    cdef Position found
    if i < 0:
        return False
    limit = position_of_bound(log, bound)
    if limit < 0:
        return False
    found.position = recent_position(log, i)
    found.offset = log.recent.batches[(log.recent.first + i) % RECENT_BATCHES].base_offset
    found.size = (recent_position(log, i + 1) if i + 1 < log.recent.count else log.active.size) - found.position
    segment_hold(log.active)
    out.cached = True
    out.cuts = load32(&log.active.cuts)
    clip(out, log.active, &found, limit, max_bytes, min_one)
    return True


# --- reads from the files ---

cdef void look(Log *log, int64_t offset, int64_t bound, Look *at) noexcept nogil:
    """Looks up the segment for `offset`, and fills in `at`. Call this with the lock held."""
    cdef int64_t limit
    cdef int32_t i
    at.segment = log_segment_at(log, offset)
    at.next_base = -1
    at.bound_inside = False
    if at.segment == NULL:
        return
    at.limit = load64(&at.segment.size)
    at.cuts = load32(&at.segment.cuts)
    at.floor = -1 if load32(&at.segment.sealed) else segment_floor(at.segment, offset)
    if at.segment == log.active:
        limit = position_of_bound(log, bound)
        if limit < 0:
            at.bound_inside = True
        else:
            at.limit = limit
        return
    for i in range(log.segments.count - 1):
        if log.segments.items[i] == at.segment:
            at.next_base = log.segments.items[i + 1].base_offset
    at.bound_inside = bound < at.next_base


cdef int locate(const Look *at, int64_t offset, bint cached, Position *found) noexcept nogil:
    """Finds the batch that contains `offset` in the segment's files. Returns 0, SEGMENT_END or -errno."""
    cdef int64_t floor = at.floor
    cdef int result
    if load32(&at.segment.file) < 0:
        if cached:
            return -EAGAIN
        result = segment_open_log(at.segment)
        if result < 0:
            return result
    if floor < 0:
        floor = segment_floor_on_disk(at.segment, offset, cached)
        if floor < 0:
            return <int> floor
    result = segment_find(at.segment, offset, floor, at.limit, cached, found)
    if floor > 0 and (result == -EILSEQ or (result == 0 and found.position == floor and found.offset > offset)):
        # The index is wrong: no batch starts at this position, or the batch there begins after the offset. So search
        # all batches.
        result = segment_find(at.segment, offset, 0, at.limit, cached, found)
    return result


cdef int read_segment(const Look *at, int64_t offset, int64_t bound, int64_t max_bytes, bint min_one, bint cached,
                      ReadResult *out) noexcept nogil:
    """Reads a range of the segment. Takes over the reference to the segment, unless it returns SEGMENT_END or
    -errno."""
    cdef Position found
    cdef Position end
    cdef int64_t limit = at.limit
    cdef int result = locate(at, offset, cached, &found)
    if result != 0:
        return result
    if found.offset >= bound:
        segment_release(at.segment)
        return 0
    if at.bound_inside:
        result = segment_find(at.segment, bound, found.position, at.limit, cached, &end)
        if result < 0:
            return result
        if result == 0:
            limit = end.position
    clip(out, at.segment, &found, limit, max_bytes, min_one)
    return 0


cdef int check_range(Log *log, int64_t offset) noexcept nogil:
    """Returns an error code if the log cannot be read at `offset`, else 0. Call this with the lock held."""
    if log.state == LOG_FAILED or load32(&log.dir.offline):
        return KAFKA_STORAGE_ERROR
    if offset < log.log_start_offset or offset > log.end_offset:
        return OFFSET_OUT_OF_RANGE
    return 0


cdef int64_t cuts_of(Log *log) noexcept nogil:
    cdef int64_t cuts
    mutex_lock(&log.lock)
    cuts = log.cuts
    mutex_unlock(&log.lock)
    return cuts


cdef int read(Log *log, int64_t offset, int64_t bound, int64_t max_bytes, bint min_one, bint cached,
              ReadResult *out) noexcept nogil:
    cdef Look at
    cdef int64_t cuts
    cdef int result
    memset(out, 0, sizeof(ReadResult))
    out.first_offset = offset
    while True:
        mutex_lock(&log.lock)
        cuts = log.cuts
        result = check_range(log, offset)
        if bound > log.end_offset:
            bound = log.end_offset  # a truncation first lowers the log end, and then removes the bytes after it
        at.segment = NULL
        if result == 0 and offset < bound and not read_recent(log, offset, bound, max_bytes, min_one, out):
            look(log, offset, bound, &at)
        mutex_unlock(&log.lock)
        if result != 0 or at.segment == NULL:
            return result
        result = read_segment(&at, offset, bound, max_bytes, min_one, cached, out)
        out.cuts = at.cuts
        if result == 0 and (out.segment == NULL or load32(&out.segment.cuts) == at.cuts):
            return 0
        if result == 0:
            # The log was truncated during the search, so the search may have seen other records.
            segment_release(out.segment)
            memset(out, 0, sizeof(ReadResult))
            out.first_offset = offset
            continue
        segment_release(at.segment)
        if result == SEGMENT_END:
            # A compaction can remove the last batches of a segment. Continue in the next segment.
            if at.next_base < 0:
                return 0
            offset = at.next_base
        elif result == -EAGAIN and cached:
            return LOG_BLOCKED
        elif cuts_of(log) == cuts:
            out.failure = result
            return KAFKA_STORAGE_ERROR
        # The records were removed during the search, so look up the offset again.


cdef int log_read(Log *log, int64_t offset, int64_t bound, int64_t max_bytes, bint min_one,
                  ReadResult *out) noexcept nogil:
    return read(log, offset, bound, max_bytes, min_one, True, out)


cdef int log_read_slowly(Log *log, int64_t offset, int64_t bound, int64_t max_bytes, bint min_one,
                         ReadResult *out) noexcept nogil:
    return read(log, offset, bound, max_bytes, min_one, False, out)


# --- reads by time; for pool threads ---

cdef void keep_max_timestamp(Log *log, Segment *segment, const TimeEntry *greatest) noexcept nogil:
    """Keeps the greatest timestamp of a sealed segment in memory. Does nothing if the segment has taken appends since
    its index was read: then its greatest timestamp is already in memory, and may be above `greatest`."""
    mutex_lock(&log.lock)
    if load32(&segment.sealed) and load64(&segment.max_timestamp_ms) < 0:
        segment_note_greatest(segment, greatest.timestamp_ms, segment.base_offset + greatest.relative_offset)
    mutex_unlock(&log.lock)


cdef int segment_max_timestamp(Log *log, Segment *segment, int64_t *timestamp_ms, int64_t *offset) noexcept nogil:
    cdef TimeEntry entry
    cdef int result
    if load32(&segment.sealed):
        timestamp_ms[0] = load64(&segment.max_timestamp_ms)
        offset[0] = load64(&segment.offset_of_max_timestamp)
        if timestamp_ms[0] >= 0:
            return 0
        result = segment_time_floor_on_disk(segment, FOREVER, &entry)
        timestamp_ms[0] = entry.timestamp_ms
        offset[0] = segment.base_offset + entry.relative_offset
        if result == 0:
            keep_max_timestamp(log, segment, &entry)
        return result
    mutex_lock(&log.lock)
    timestamp_ms[0] = segment.max_timestamp_ms
    offset[0] = segment.offset_of_max_timestamp
    mutex_unlock(&log.lock)
    return 0


cdef int read_batch(Segment *segment, const Position *at, uint8_t **batch) noexcept nogil:
    cdef int64_t got
    batch[0] = <uint8_t *> malloc(<size_t> at.size)
    if batch[0] == NULL:
        return -ENOMEM
    got = segment.disk.pread(segment.disk.self, file_of(segment), batch[0], <size_t> at.size, at.position)
    if got == at.size:
        return 0
    free(batch[0])
    batch[0] = NULL
    return <int> got if got < 0 else -EIO


cdef int look_into(Segment *segment, const Position *at, int64_t timestamp_ms, int64_t start_offset, bint greatest,
                   const InflateLimits *limits, FoundRecord *found) noexcept nogil:
    """Searches one batch, record by record."""
    cdef uint8_t *batch
    cdef BatchHeader header
    cdef CodecContext *context = thread_codec()
    cdef int result
    if context == NULL:
        return -ENOMEM
    result = read_batch(segment, at, &batch)
    if result < 0:
        return result
    result = parse_header(batch, <size_t> at.size, &header)
    found.found = False
    if result == BATCH_OK and greatest:
        result = find_max_timestamp(batch, <size_t> at.size, context, limits, found)
    elif result == BATCH_OK and header.max_timestamp >= timestamp_ms:
        result = find_timestamp(batch, <size_t> at.size, timestamp_ms, start_offset, context, limits, found)
    free(batch)
    return 0 if result == BATCH_OK else -EILSEQ


cdef int64_t position_by_time(Log *log, Segment *segment, int64_t timestamp_ms, int64_t start_offset) noexcept nogil:
    """Returns the position where a scan for the timestamp begins, or -errno."""
    cdef TimeEntry entry
    cdef int64_t offset, position
    cdef int result
    if load32(&segment.sealed):
        result = segment_time_floor_on_disk(segment, timestamp_ms, &entry)
        if result < 0:
            return result
        offset = segment.base_offset + entry.relative_offset
        return segment_floor_on_disk(segment, offset if offset > start_offset else start_offset, False)
    mutex_lock(&log.lock)
    segment_time_floor(segment, timestamp_ms, &entry)
    offset = segment.base_offset + entry.relative_offset
    position = segment_floor(segment, offset if offset > start_offset else start_offset)
    mutex_unlock(&log.lock)
    return position


cdef int scan_by_time(Log *log, Segment *segment, int64_t timestamp_ms, int64_t start_offset,
                      const InflateLimits *limits,
                      FoundRecord *found) noexcept nogil:
    cdef Position at
    cdef int64_t limit = load64(&segment.size)
    cdef int64_t position = position_by_time(log, segment, timestamp_ms, start_offset)
    cdef int result
    found.found = False
    if position < 0:
        return <int> position
    result = segment_open_log(segment)
    while result == 0 and position < limit and not found.found:
        # With offset 0, segment_find accepts any batch at the position.
        result = segment_find(segment, 0, position, limit, False, &at)
        if result == 0:
            result = look_into(segment, &at, timestamp_ms, start_offset, False, limits, found)
        position = at.position + at.size
    return result if result < 0 else 0


cdef int32_t epoch_of(Log *log, int64_t offset) noexcept nogil:
    cdef int32_t epoch
    mutex_lock(&log.lock)
    epoch = epochs_at(log, offset)
    mutex_unlock(&log.lock)
    return epoch


cdef int begin_by_time(Log *log, SegmentList **list, int64_t *start_offset, int64_t *cuts,
                       InflateLimits *limits) noexcept nogil:
    """Sets `list` to the segments to search, with a reference. Sets `list` to NULL if the log has no records, because
    a log that begins again at another offset may be removing its files."""
    cdef int result
    list[0] = NULL
    mutex_lock(&log.lock)
    start_offset[0] = log.log_start_offset
    cuts[0] = log.cuts
    limits[0] = log.config.rules.limits
    result = KAFKA_STORAGE_ERROR if log.state == LOG_FAILED or load32(&log.dir.offline) else 0
    if result == 0 and log.segments != NULL and log.log_start_offset < log.end_offset:
        list[0] = log.segments
        add32(&log.segments.refs, 1)
    mutex_unlock(&log.lock)
    return result


cdef int find_by_time(Log *log, SegmentList *list, int64_t timestamp_ms, int64_t start_offset,
                      const InflateLimits *limits, FoundRecord *found) noexcept nogil:
    cdef int64_t greatest_ms, unused
    cdef int32_t i
    cdef int result = 0
    found.found = False
    for i in range(list.count):
        result = segment_max_timestamp(log, list.items[i], &greatest_ms, &unused)
        if result == 0 and greatest_ms >= timestamp_ms:
            result = scan_by_time(log, list.items[i], timestamp_ms, start_offset, limits, found)
        if result < 0 or found.found:
            return result
    return 0


cdef int batch_at(Log *log, Segment *segment, int64_t offset, Position *at) noexcept nogil:
    cdef int64_t floor
    cdef int result = segment_open_log(segment)
    if result < 0:
        return result
    if load32(&segment.sealed):
        floor = segment_floor_on_disk(segment, offset, False)
    else:
        mutex_lock(&log.lock)
        floor = segment_floor(segment, offset)
        mutex_unlock(&log.lock)
    if floor < 0:
        return <int> floor
    return segment_find(segment, offset, floor, load64(&segment.size), False, at)


cdef int find_greatest(Log *log, SegmentList *list, const InflateLimits *limits, FoundRecord *found) noexcept nogil:
    cdef Position at
    cdef int64_t here_ms, here, greatest_at = -1, greatest_ms = -1
    cdef int32_t i, best = -1
    cdef int result
    found.found = False
    for i in range(list.count):
        result = segment_max_timestamp(log, list.items[i], &here_ms, &here)
        if result < 0:
            return result
        if here_ms > greatest_ms:
            greatest_ms = here_ms
            greatest_at = here
            best = i
    if best < 0:
        return 0
    result = batch_at(log, list.items[best], greatest_at, &at)
    return result if result != 0 else look_into(list.items[best], &at, -1, 0, True, limits, found)


cdef int search(Log *log, bint greatest, int64_t timestamp_ms, FoundRecord *found) noexcept nogil:
    """Finds the first record at or after `timestamp_ms`, or the first record with the greatest timestamp. Returns 0 or
    a Kafka error code."""
    cdef SegmentList *list
    cdef InflateLimits limits
    cdef int64_t start_offset, cuts
    cdef int result
    while True:
        found.found = False
        result = begin_by_time(log, &list, &start_offset, &cuts, &limits)
        if list == NULL:
            return result
        if greatest:
            result = find_greatest(log, list, &limits, found)
        else:
            result = find_by_time(log, list, timestamp_ms, start_offset, &limits, found)
        segments_release(list)
        if result == 0:
            return 0
        if cuts_of(log) == cuts:
            return KAFKA_STORAGE_ERROR
        # Files were removed during the search, so the log has other files now. Search again.


cdef void answer(Log *log, const FoundRecord *found, int64_t *offset, int64_t *found_ms,
                 int32_t *leader_epoch) noexcept nogil:
    offset[0] = found.offset if found.found else -1
    found_ms[0] = found.timestamp if found.found else -1
    leader_epoch[0] = epoch_of(log, found.offset) if found.found else -1


cdef int log_offset_by_time(Log *log, int64_t timestamp_ms, int64_t bound, int64_t *offset, int64_t *found_ms,
                            int32_t *leader_epoch) noexcept nogil:
    cdef FoundRecord found
    cdef int result = search(log, False, timestamp_ms, &found)
    if found.found and found.offset >= bound:
        found.found = False
    answer(log, &found, offset, found_ms, leader_epoch)
    return result


cdef int log_offset_of_max_timestamp(Log *log, int64_t *offset, int64_t *found_ms,
                                     int32_t *leader_epoch) noexcept nogil:
    cdef FoundRecord found
    cdef int result = search(log, True, -1, &found)
    answer(log, &found, offset, found_ms, leader_epoch)
    return result
