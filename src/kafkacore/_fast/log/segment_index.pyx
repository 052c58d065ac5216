"""Implements segment_index.pxd: the offset index and the time index of a segment (OffsetIndex, TimeIndex,
LogSegment)."""

from libc.errno cimport EAGAIN, EILSEQ, EINVAL, EIO, ENOENT, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc

from kafkacore._fast.base.atomics cimport load32, load64, store32, store64
from kafkacore._fast.base.cursor cimport be32, be64, put32, put64
from kafkacore._fast.log.segment cimport (
    OFFSET_ENTRY_BYTES, SEGMENT_DELETED, TIME_ENTRY_BYTES, OffsetEntry, Segment, TimeEntry, file_of, segment_keep_file,
    segment_open_part, segment_sync, segment_sync_names, segment_unlink_part,
)
from kafkacore._fast.world.environment cimport Disk

cdef extern from "<fcntl.h>" nogil:
    int O_CREAT, O_RDWR, O_CLOEXEC

cdef enum:
    LEAST_ENTRIES = 32
    WRITE_ENTRIES = 512       # one write to an index file writes at most this many entries


# --- files ---

cdef inline int32_t offset_file(const Segment *segment) noexcept nogil:
    return load32(&segment.offset_index_file)


cdef inline int32_t time_file(const Segment *segment) noexcept nogil:
    return load32(&segment.time_index_file)


cdef int open_index(Segment *segment, const char *suffix) noexcept nogil:
    """Opens an index file. Creates the file only if it does not exist, so that a look-up does not change the
    directory."""
    cdef int file = segment_open_part(segment, suffix, O_RDWR | O_CLOEXEC)
    if file != -ENOENT or load32(&segment.dropped):
        return file  # a reader of a dropped segment must not leave a new index file behind
    file = segment_open_part(segment, suffix, O_RDWR | O_CREAT | O_CLOEXEC)
    if file < 0 or load32(&segment.dropped) != SEGMENT_DELETED:
        return file
    # The segment was deleted in the meantime, perhaps before this file was created.
    segment.disk.close(segment.disk.self, file)
    segment_unlink_part(segment, suffix)
    return -ENOENT


cdef int segment_open_indexes(Segment *segment) noexcept nogil:
    cdef int result = 0
    if load32(&segment.offset_index_file) < 0:
        result = segment_keep_file(segment, &segment.offset_index_file, open_index(segment, b".index"))
    if result == 0 and load32(&segment.time_index_file) < 0:
        result = segment_keep_file(segment, &segment.time_index_file, open_index(segment, b".timeindex"))
    return result


cdef int segment_borrow(Segment *segment, const int32_t *held, const char *suffix) noexcept nogil:
    cdef int file = load32(held)
    return file if file >= 0 else open_index(segment, suffix)


cdef void segment_give_back(Segment *segment, const int32_t *held, int file) noexcept nogil:
    if file >= 0 and file != load32(held):
        segment.disk.close(segment.disk.self, file)


cdef int64_t read_entries(Segment *segment, int file, int entry_bytes, uint8_t **into) noexcept nogil:
    """Reads the whole file into malloc'ed memory. Returns the number of entries, or -errno."""
    cdef const Disk *disk = segment.disk
    cdef int64_t size = disk.size(disk.self, file) if file >= 0 else file
    cdef int64_t got
    into[0] = NULL
    if size < 0:
        return size
    if size % entry_bytes != 0 or size > 0x7FFFFFFF:
        return -EINVAL
    if size == 0:
        return 0
    into[0] = <uint8_t *> malloc(size)
    if into[0] == NULL:
        return -ENOMEM
    got = disk.pread(disk.self, file, into[0], size, 0)
    if got != size:
        free(into[0])
        into[0] = NULL
        return got if got < 0 else -EIO
    return size // entry_bytes


cdef int load_offset_index(Segment *segment) noexcept nogil:
    cdef uint8_t *raw
    cdef int file = segment_borrow(segment, &segment.offset_index_file, b".index")
    cdef int64_t count = read_entries(segment, file, OFFSET_ENTRY_BYTES, &raw)
    cdef OffsetEntry *entries
    cdef int64_t i
    segment_give_back(segment, &segment.offset_index_file, file)
    if count <= 0:
        return <int> count
    entries = <OffsetEntry *> malloc((count + LEAST_ENTRIES) * sizeof(OffsetEntry))
    if entries == NULL:
        free(raw)
        return -ENOMEM
    for i in range(count):
        read_offset_entry(raw + i * OFFSET_ENTRY_BYTES, &entries[i])
        if entries[i].position < 0 or entries[i].position >= segment.size or entries[i].relative_offset < 0 or (i > 0
                                                                                                                and (
                entries[i].relative_offset <= entries[i - 1].relative_offset
                or entries[i].position <= entries[i - 1].position)):
            free(raw)
            free(entries)
            return -EINVAL
    free(raw)
    free(segment.offset_index)
    segment.offset_index = entries
    segment.offset_count = segment.offset_written = <int32_t> count
    segment.offset_capacity = <int32_t> count + LEAST_ENTRIES
    return 0


cdef int load_time_index(Segment *segment) noexcept nogil:
    cdef uint8_t *raw
    cdef int file = segment_borrow(segment, &segment.time_index_file, b".timeindex")
    cdef int64_t count = read_entries(segment, file, TIME_ENTRY_BYTES, &raw)
    cdef TimeEntry *entries
    cdef int64_t i
    segment_give_back(segment, &segment.time_index_file, file)
    if count <= 0:
        return <int> count
    entries = <TimeEntry *> malloc((count + LEAST_ENTRIES) * sizeof(TimeEntry))
    if entries == NULL:
        free(raw)
        return -ENOMEM
    for i in range(count):
        read_time_entry(raw + i * TIME_ENTRY_BYTES, &entries[i])
        if entries[i].relative_offset < 0 or (i > 0 and (
                entries[i].timestamp_ms <= entries[i - 1].timestamp_ms
                or entries[i].relative_offset < entries[i - 1].relative_offset)):
            free(raw)
            free(entries)
            return -EINVAL
    free(raw)
    free(segment.time_index)
    segment.time_index = entries
    segment.time_count = segment.time_written = <int32_t> count
    segment.time_capacity = <int32_t> count + LEAST_ENTRIES
    return 0


cdef void segment_note_greatest(Segment *segment, int64_t timestamp_ms, int64_t offset) noexcept nogil:
    store64(&segment.offset_of_max_timestamp, offset)
    store64(&segment.max_timestamp_ms, timestamp_ms)


cdef int segment_load_indexes(Segment *segment) noexcept nogil:
    cdef int result = load_offset_index(segment)
    if result == 0:
        result = load_time_index(segment)
    if result == 0 and segment.time_count > 0:
        segment_note_greatest(segment, segment.time_index[segment.time_count - 1].timestamp_ms,
                              segment.base_offset + segment.time_index[segment.time_count - 1].relative_offset)
    return result


cdef int write_block(Segment *segment, int file, const uint8_t *block, int64_t size, int64_t at) noexcept nogil:
    cdef int64_t result = segment.disk.pwrite(segment.disk.self, file, block, size, at)
    return 0 if result >= 0 else <int> result


cdef int write_offset_entries(Segment *segment, int file) noexcept nogil:
    cdef uint8_t block[WRITE_ENTRIES * OFFSET_ENTRY_BYTES]
    cdef int32_t i, count
    cdef int result
    while segment.offset_written < segment.offset_count:
        count = segment.offset_count - segment.offset_written
        if count > WRITE_ENTRIES:
            count = WRITE_ENTRIES
        for i in range(count):
            put32(block + i * OFFSET_ENTRY_BYTES, segment.offset_index[segment.offset_written + i].relative_offset)
            put32(block + i * OFFSET_ENTRY_BYTES + 4, segment.offset_index[segment.offset_written + i].position)
        result = write_block(segment, file, block, count * OFFSET_ENTRY_BYTES,
                             <int64_t> segment.offset_written * OFFSET_ENTRY_BYTES)
        if result < 0:
            return result
        segment.offset_written += count
    return 0


cdef int write_time_entries(Segment *segment, int file) noexcept nogil:
    cdef uint8_t block[WRITE_ENTRIES * TIME_ENTRY_BYTES]
    cdef int32_t i, count
    cdef int result
    while segment.time_written < segment.time_count:
        count = segment.time_count - segment.time_written
        if count > WRITE_ENTRIES:
            count = WRITE_ENTRIES
        for i in range(count):
            put64(block + i * TIME_ENTRY_BYTES, segment.time_index[segment.time_written + i].timestamp_ms)
            put32(block + i * TIME_ENTRY_BYTES + 8, segment.time_index[segment.time_written + i].relative_offset)
        result = write_block(segment, file, block, count * TIME_ENTRY_BYTES,
                             <int64_t> segment.time_written * TIME_ENTRY_BYTES)
        if result < 0:
            return result
        segment.time_written += count
    return 0


cdef int write_offset_index(Segment *segment) noexcept nogil:
    cdef int file = segment_borrow(segment, &segment.offset_index_file, b".index")
    cdef int result = write_offset_entries(segment, file) if file >= 0 else file
    segment_give_back(segment, &segment.offset_index_file, file)
    return result


cdef int write_time_index(Segment *segment) noexcept nogil:
    cdef int file = segment_borrow(segment, &segment.time_index_file, b".timeindex")
    cdef int result = write_time_entries(segment, file) if file >= 0 else file
    segment_give_back(segment, &segment.time_index_file, file)
    return result


cdef int segment_write_indexes(Segment *segment) noexcept nogil:
    cdef int result = 0
    if segment.offset_written < segment.offset_count:
        result = write_offset_index(segment)
    if result == 0 and segment.time_written < segment.time_count:
        result = write_time_index(segment)
    return result


cdef int segment_end_times(Segment *segment) noexcept nogil:
    cdef int result
    if load32(&segment.sealed):
        return 0
    result = segment_reserve(segment)
    if result == 0:
        add_time_entry(segment)  # even if the index is full (LogSegment.onBecomeInactiveSegment)
    return result


cdef int segment_seal(Segment *segment) noexcept nogil:
    cdef int result
    if load32(&segment.sealed):
        return 0
    result = segment_write_indexes(segment)
    if result == 0 and (segment.preallocated or segment.reserved > segment.size):
        result = segment.disk.truncate(segment.disk.self, file_of(segment), segment.size)
    if result == 0:
        store32(&segment.sealed, 1)
    return result


cdef int segment_reset_indexes(Segment *segment) noexcept nogil:
    cdef const Disk *disk = segment.disk
    cdef int result = segment_open_indexes(segment)
    if result == 0:
        result = disk.truncate(disk.self, offset_file(segment), 0)
    if result == 0:
        result = disk.truncate(disk.self, time_file(segment), 0)
    clear_indexes(segment)
    return result


cdef void clear_indexes(Segment *segment) noexcept nogil:
    segment.offset_count = segment.offset_written = 0
    segment.time_count = segment.time_written = 0
    segment.bytes_since_index = 0
    segment_note_greatest(segment, -1, segment.base_offset)
    segment.first_timestamp_ms = -1


cdef int segment_begin_rebuild(Segment *segment, bint durable) noexcept nogil:
    cdef int file
    cdef int result = segment_unlink_part(segment, b".index")
    if result == 0 and durable:
        result = segment_sync_names(segment)
    clear_indexes(segment)
    if result < 0:
        return result
    file = open_index(segment, b".timeindex")
    if file < 0:
        return file
    result = segment.disk.truncate(segment.disk.self, file, 0)
    segment.disk.close(segment.disk.self, file)
    return result


cdef int segment_end_rebuild(Segment *segment, bint durable) noexcept nogil:
    cdef int result = write_time_index(segment)
    if result == 0 and durable:
        result = segment_sync(segment, True)
    if result == 0 and durable:
        result = segment_sync_names(segment)
    return result if result < 0 else write_offset_index(segment)


cdef void segment_cut_entries(Segment *segment, int64_t offset) noexcept nogil:
    cdef int64_t relative = offset - segment.base_offset
    while segment.offset_count and segment.offset_index[segment.offset_count - 1].relative_offset >= relative:
        segment.offset_count -= 1
    while segment.time_count and segment.time_index[segment.time_count - 1].relative_offset >= relative:
        segment.time_count -= 1
    if segment.offset_written > segment.offset_count:
        segment.offset_written = segment.offset_count
    if segment.time_written > segment.time_count:
        segment.time_written = segment.time_count
    segment.bytes_since_index = 0
    if segment.size == 0:
        segment.first_timestamp_ms = -1


cdef int segment_cut_files(Segment *segment) noexcept nogil:
    cdef const Disk *disk = segment.disk
    cdef int result = disk.truncate(disk.self, file_of(segment), segment.size)
    segment.reserved = 0
    if result == 0:
        result = segment_open_indexes(segment)
    if result == 0:
        result = disk.truncate(disk.self, offset_file(segment),
                               <int64_t> segment.offset_written * OFFSET_ENTRY_BYTES)
    if result == 0:
        result = disk.truncate(disk.self, time_file(segment), <int64_t> segment.time_written * TIME_ENTRY_BYTES)
    return result


cdef void segment_forget_indexes(Segment *segment) noexcept nogil:
    free(segment.offset_index)
    free(segment.time_index)
    segment.offset_index = NULL
    segment.time_index = NULL
    segment.offset_count = segment.offset_capacity = segment.offset_written = 0
    segment.time_count = segment.time_capacity = segment.time_written = 0


# --- the active segment ---

cdef int segment_reserve(Segment *segment) noexcept nogil:
    cdef OffsetEntry *offsets
    cdef TimeEntry *times
    cdef int32_t capacity
    if segment.offset_count + 1 >= segment.offset_capacity:
        capacity = segment.offset_capacity * 2 if segment.offset_capacity else LEAST_ENTRIES
        offsets = <OffsetEntry *> realloc(segment.offset_index, capacity * sizeof(OffsetEntry))
        if offsets == NULL:
            return -ENOMEM
        segment.offset_index = offsets
        segment.offset_capacity = capacity
    if segment.time_count + 2 >= segment.time_capacity:
        capacity = segment.time_capacity * 2 if segment.time_capacity else LEAST_ENTRIES
        times = <TimeEntry *> realloc(segment.time_index, capacity * sizeof(TimeEntry))
        if times == NULL:
            return -ENOMEM
        segment.time_index = times
        segment.time_capacity = capacity
    return 0


cdef void add_time_entry(Segment *segment) noexcept nogil:
    """Adds the greatest timestamp if it is above the timestamp of the last entry (TimeIndex.maybeAppend)."""
    cdef TimeEntry *entry
    if segment.time_count > 0 and segment.max_timestamp_ms <= segment.time_index[segment.time_count - 1].timestamp_ms:
        return
    if segment.max_timestamp_ms < 0:
        return
    entry = &segment.time_index[segment.time_count]
    entry.timestamp_ms = segment.max_timestamp_ms
    entry.relative_offset = <int32_t> (segment.offset_of_max_timestamp - segment.base_offset)
    segment.time_count += 1


cdef void segment_note_batch(Segment *segment, int64_t position, int64_t size, int64_t batch_end,
                             int64_t max_timestamp_ms,
                             int32_t interval_bytes) noexcept nogil:
    cdef OffsetEntry *entry
    if max_timestamp_ms > segment.max_timestamp_ms:
        segment_note_greatest(segment, max_timestamp_ms, batch_end)
    if position == 0:
        segment.first_timestamp_ms = max_timestamp_ms
    if segment.bytes_since_index > interval_bytes:
        entry = &segment.offset_index[segment.offset_count]
        entry.relative_offset = <int32_t> (batch_end - segment.base_offset)
        entry.position = <int32_t> position
        segment.offset_count += 1
        add_time_entry(segment)
        segment.bytes_since_index = 0
    segment.bytes_since_index += size


# --- look-ups ---

cdef int64_t segment_floor(Segment *segment, int64_t offset) noexcept nogil:
    cdef int32_t low = 0
    cdef int32_t high = segment.offset_count
    cdef int32_t middle
    cdef int64_t relative = offset - segment.base_offset
    while low < high:  # finds the first entry above `relative`
        middle = (low + high) >> 1
        if segment.offset_index[middle].relative_offset <= relative:
            low = middle + 1
        else:
            high = middle
    return segment.offset_index[low - 1].position if low > 0 else 0


cdef int read_exact(const Disk *disk, int file, void *into, int64_t size, int64_t at, bint cached) noexcept nogil:
    cdef int64_t got
    if cached:
        got = disk.pread_cached(disk.self, file, into, size, at)
    else:
        got = disk.pread(disk.self, file, into, size, at)
    if got < 0:
        return <int> got
    if got != size:
        return -EAGAIN if cached else -EILSEQ  # not a disk error, because the file was longer a moment ago
    return 0


cdef int64_t floor_on_disk(Segment *segment, int64_t wanted, bint by_position, bint cached) noexcept nogil:
    """Returns the position of the last entry whose relative offset, or whose position, is at most `wanted`. Returns 0
    if there is no such entry, or -errno."""
    cdef uint8_t entry[OFFSET_ENTRY_BYTES]
    cdef const Disk *disk = segment.disk
    cdef int64_t low = 0
    cdef int64_t high, middle
    cdef int64_t position = 0
    cdef int result
    if load32(&segment.offset_index_file) < 0:
        if cached:
            return -EAGAIN
        result = segment_open_indexes(segment)
        if result < 0:
            return result
    high = disk.size(disk.self, offset_file(segment))
    if high < 0:
        return high
    high //= OFFSET_ENTRY_BYTES
    while low < high:
        middle = (low + high) >> 1
        result = read_exact(disk, offset_file(segment), entry, OFFSET_ENTRY_BYTES, middle * OFFSET_ENTRY_BYTES,
                            cached)
        if result < 0:
            return result
        if <int32_t> be32(entry + 4 * by_position) <= wanted:
            low = middle + 1
            position = <int32_t> be32(entry + 4)
        else:
            high = middle
    if position < 0 or position >= load64(&segment.size):
        return 0  # the position is impossible, but a scan from the start finds the batch
    return position


cdef int64_t segment_floor_on_disk(Segment *segment, int64_t offset, bint cached) noexcept nogil:
    return floor_on_disk(segment, offset - segment.base_offset, False, cached)


cdef int64_t segment_floor_of_position(Segment *segment, int64_t position) noexcept nogil:
    return floor_on_disk(segment, position, True, False)


cdef int segment_time_floor_on_disk(Segment *segment, int64_t timestamp_ms, TimeEntry *entry) noexcept nogil:
    cdef uint8_t raw[TIME_ENTRY_BYTES]
    cdef const Disk *disk = segment.disk
    cdef int64_t low = 0
    cdef int64_t high, middle
    cdef int result = segment_open_indexes(segment)
    entry.timestamp_ms = -1
    entry.relative_offset = 0
    if result < 0:
        return result
    high = disk.size(disk.self, time_file(segment))
    if high < 0:
        return <int> high
    high //= TIME_ENTRY_BYTES
    while low < high:
        middle = (low + high) >> 1
        result = read_exact(disk, time_file(segment), raw, TIME_ENTRY_BYTES, middle * TIME_ENTRY_BYTES, False)
        if result < 0:
            return result
        if <int64_t> be64(raw) <= timestamp_ms:
            low = middle + 1
            read_time_entry(raw, entry)
        else:
            high = middle
    return 0


cdef void segment_time_floor(Segment *segment, int64_t timestamp_ms, TimeEntry *entry) noexcept nogil:
    cdef int32_t low = 0
    cdef int32_t high = segment.time_count
    cdef int32_t middle
    entry.timestamp_ms = -1
    entry.relative_offset = 0
    while low < high:
        middle = (low + high) >> 1
        if segment.time_index[middle].timestamp_ms <= timestamp_ms:
            low = middle + 1
        else:
            high = middle
    if low > 0:
        entry[0] = segment.time_index[low - 1]
