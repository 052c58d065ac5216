"""A segment and its indexes, as segment.pxd says (formats: OffsetIndex, TimeIndex; rules: LogSegment)."""

from libc.errno cimport EAGAIN, EILSEQ, EINVAL, EIO, ENOENT, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport strdup, strlen, strrchr

from kafkacore._fast.base.atomics cimport add32, cas32, load32, load64, store32, store64
from kafkacore._fast.base.cursor cimport be32, be64, put32, put64
from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.record.record cimport BATCH_OK, BATCH_SHORT, HEADER_BYTES, BatchHeader, last_offset, parse_header

cdef extern from "<fcntl.h>" nogil:
    int O_CREAT, O_EXCL, O_RDWR, O_TRUNC, O_CLOEXEC

cdef enum:
    LEAST_ENTRIES = 32
    WRITE_ENTRIES = 512       # index entries that gather in memory before they are written
    SCAN_BYTES = 4096
    SUFFIX_ROOM = 24          # the longest is ".timeindex.cleaned"

cdef int32_t live_segments = 0  # atomic; tests hold it against zero


cdef void segment_hold(Segment *segment) noexcept nogil:
    add32(&segment.refs, 1)


cdef void close_file(const Disk *disk, int32_t *file) noexcept nogil:
    if file[0] >= 0:
        disk.close(disk.self, file[0])
        file[0] = -1


cdef void segment_close(Segment *segment) noexcept nogil:
    close_file(segment.disk, &segment.file)
    close_file(segment.disk, &segment.offset_index_file)
    close_file(segment.disk, &segment.time_index_file)


cdef void segment_release(Segment *segment) noexcept nogil:
    if segment == NULL or add32(&segment.refs, -1) != 0:
        return
    segment_close(segment)
    free(segment.offset_index)
    free(segment.time_index)
    free(segment.aborted)
    free(segment.path)
    free(segment)
    add32(&live_segments, -1)


cdef Segment *segment_new(const Disk *disk, const char *directory, int64_t base_offset) noexcept nogil:
    cdef size_t room = strlen(directory) + 22
    cdef Segment *segment = <Segment *> calloc(1, sizeof(Segment))
    if segment == NULL:
        return NULL
    segment.path = <char *> malloc(room)
    if segment.path == NULL:
        free(segment)
        return NULL
    snprintf(segment.path, room, b"%s/%020lld", directory, <long long> base_offset)
    segment.refs = 1
    segment.disk = disk
    segment.file = segment.offset_index_file = segment.time_index_file = -1
    segment.base_offset = base_offset
    segment.max_timestamp_ms = -1
    segment.offset_of_max_timestamp = base_offset
    segment.first_timestamp_ms = -1
    add32(&live_segments, 1)
    return segment


cdef int segment_open_part(Segment *segment, const char *suffix, int flags) noexcept nogil:
    """A file handle, or -errno."""
    cdef size_t room = strlen(segment.path) + SUFFIX_ROOM
    cdef char *name = <char *> malloc(room)
    cdef int result
    if name == NULL:
        return -ENOMEM
    snprintf(name, room, b"%s%s", segment.path, suffix)
    result = segment.disk.open(segment.disk.self, name, flags, 0o644)
    free(name)
    return result


cdef inline int32_t offset_file(const Segment *segment) noexcept nogil:
    return load32(&segment.offset_index_file)


cdef inline int32_t time_file(const Segment *segment) noexcept nogil:
    return load32(&segment.time_index_file)


cdef int keep_file(Segment *segment, int32_t *file, int handle) noexcept nogil:
    """Several readers may come at once: one handle stays."""
    if handle < 0:
        return handle
    if not cas32(file, -1, handle):
        segment.disk.close(segment.disk.self, handle)
    return 0


cdef int open_once(Segment *segment, int32_t *file, const char *suffix, int flags) noexcept nogil:
    return 0 if load32(file) >= 0 else keep_file(segment, file, segment_open_part(segment, suffix, flags))


cdef int segment_open_log(Segment *segment) noexcept nogil:
    return open_once(segment, &segment.file, b".log", O_RDWR | O_CLOEXEC)


cdef int open_index(Segment *segment, const char *suffix) noexcept nogil:
    """Made only where there is none: whoever looks for no more than entries changes no directory."""
    cdef int file = segment_open_part(segment, suffix, O_RDWR | O_CLOEXEC)
    if file != -ENOENT or load32(&segment.dropped):
        return file  # whoever still reads a dropped segment must not leave an index behind that is nobody's
    file = segment_open_part(segment, suffix, O_RDWR | O_CREAT | O_CLOEXEC)
    if file < 0 or load32(&segment.dropped) != SEGMENT_DELETED:
        return file
    segment.disk.close(segment.disk.self, file)  # it went meanwhile, and its indexes perhaps before this one
    unlink_part(segment, suffix)
    return -ENOENT


cdef int segment_open_indexes(Segment *segment) noexcept nogil:
    cdef int result = 0
    if load32(&segment.offset_index_file) < 0:
        result = keep_file(segment, &segment.offset_index_file, open_index(segment, b".index"))
    if result == 0 and load32(&segment.time_index_file) < 0:
        result = keep_file(segment, &segment.time_index_file, open_index(segment, b".timeindex"))
    return result


cdef int segment_borrow(Segment *segment, const int32_t *held, const char *suffix) noexcept nogil:
    cdef int file = load32(held)
    return file if file >= 0 else open_index(segment, suffix)


cdef void segment_give_back(Segment *segment, const int32_t *held, int file) noexcept nogil:
    if file >= 0 and file != load32(held):
        segment.disk.close(segment.disk.self, file)


cdef int segment_create(Segment *segment, int64_t now_ms, bint first, int64_t preallocated_bytes) noexcept nogil:
    cdef int flags = O_RDWR | O_CREAT | O_CLOEXEC
    # Files that a crash left behind a roll are begun anew; where no log was, there can be none to lose.
    cdef int result = open_once(segment, &segment.file, b".log", flags | (O_EXCL if first else O_TRUNC))
    if result == 0:
        result = open_once(segment, &segment.offset_index_file, b".index", flags | O_TRUNC)
    if result == 0:
        result = open_once(segment, &segment.time_index_file, b".timeindex", flags | O_TRUNC)
    if result == 0 and preallocated_bytes > 0:
        result = segment.disk.truncate(segment.disk.self, file_of(segment), preallocated_bytes)
        segment.preallocated = True
    # A log of few appends has one file open: the indexes are opened again when there are entries to write.
    close_file(segment.disk, &segment.offset_index_file)
    close_file(segment.disk, &segment.time_index_file)
    segment.created_ms = segment.modified_ms = now_ms
    return result


cdef int segment_truncate(Segment *segment, int64_t size) noexcept nogil:
    cdef const Disk *disk = segment.disk
    cdef int result = disk.truncate(disk.self, file_of(segment), size)
    if result < 0:
        return result
    store64(&segment.size, size)
    if segment.synced_size > size:
        segment.synced_size = size
    return 0


cdef int segment_reset_indexes(Segment *segment) noexcept nogil:
    cdef const Disk *disk = segment.disk
    cdef int result = segment_open_indexes(segment)
    if result == 0:
        result = disk.truncate(disk.self, offset_file(segment), 0)
    if result == 0:
        result = disk.truncate(disk.self, time_file(segment), 0)
    segment.offset_count = segment.offset_written = 0
    segment.time_count = segment.time_written = 0
    segment.bytes_since_index = 0
    segment.max_timestamp_ms = -1
    segment.offset_of_max_timestamp = segment.base_offset
    segment.first_timestamp_ms = -1
    return result


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


cdef int segment_largest_timestamp(Segment *segment, int64_t *timestamp_ms, int64_t *offset) noexcept nogil:
    cdef uint8_t raw[HEADER_BYTES]
    cdef BatchHeader header
    cdef int64_t at, got
    timestamp_ms[0] = -1
    offset[0] = segment.base_offset
    if segment.time_count > 0:
        timestamp_ms[0] = segment.time_index[segment.time_count - 1].timestamp_ms
        offset[0] = segment.base_offset + segment.time_index[segment.time_count - 1].relative_offset
    at = segment_floor(segment, offset[0])
    while at < segment.size:
        got = segment.disk.pread(segment.disk.self, file_of(segment), raw, HEADER_BYTES, at)
        if got < 0:
            return <int> got
        if parse_header(raw, <size_t> got, &header) != BATCH_OK:
            return -EILSEQ
        if header.max_timestamp > timestamp_ms[0]:
            timestamp_ms[0] = header.max_timestamp
            offset[0] = last_offset(&header)
        at += header.size_bytes
    return 0


cdef void segment_forget_indexes(Segment *segment) noexcept nogil:
    free(segment.offset_index)
    free(segment.time_index)
    segment.offset_index = NULL
    segment.time_index = NULL
    segment.offset_count = segment.offset_capacity = segment.offset_written = 0
    segment.time_count = segment.time_capacity = segment.time_written = 0


# --- indexes on disk ---

cdef int64_t read_entries(Segment *segment, int file, int entry_bytes, uint8_t **into) noexcept nogil:
    """The whole file, malloc'ed: how many entries; -errno."""
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


cdef inline void note_greatest(Segment *segment, int64_t timestamp_ms, int64_t offset) noexcept nogil:
    """Who has found the segment sealed reads them without the lock, also while a truncation opens it again."""
    store64(&segment.offset_of_max_timestamp, offset)
    store64(&segment.max_timestamp_ms, timestamp_ms)


cdef int segment_load_indexes(Segment *segment) noexcept nogil:
    cdef int result = load_offset_index(segment)
    if result == 0:
        result = load_time_index(segment)
    if result == 0 and segment.time_count > 0:
        note_greatest(segment, segment.time_index[segment.time_count - 1].timestamp_ms,
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


cdef int segment_write_indexes(Segment *segment) noexcept nogil:
    cdef int file
    cdef int result = 0
    if segment.offset_written < segment.offset_count:
        file = segment_borrow(segment, &segment.offset_index_file, b".index")
        result = write_offset_entries(segment, file) if file >= 0 else file
        segment_give_back(segment, &segment.offset_index_file, file)
    if result == 0 and segment.time_written < segment.time_count:
        file = segment_borrow(segment, &segment.time_index_file, b".timeindex")
        result = write_time_entries(segment, file) if file >= 0 else file
        segment_give_back(segment, &segment.time_index_file, file)
    return result


cdef int segment_end_times(Segment *segment) noexcept nogil:
    cdef int result
    if load32(&segment.sealed):
        return 0
    result = segment_reserve(segment)
    if result == 0:
        add_time_entry(segment)  # full or not (LogSegment.onBecomeInactiveSegment)
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


cdef int unlink_part(Segment *segment, const char *suffix) noexcept nogil:
    cdef size_t room = strlen(segment.path) + SUFFIX_ROOM
    cdef char *name = <char *> malloc(room)
    cdef int result
    if name == NULL:
        return -ENOMEM
    snprintf(name, room, b"%s%s", segment.path, suffix)
    result = segment.disk.unlink(segment.disk.self, name)
    free(name)
    return 0 if result == -ENOENT else result


cdef int segment_unlink(Segment *segment) noexcept nogil:
    store32(&segment.dropped, SEGMENT_DELETED)
    return segment_unlink_files(segment)


cdef int segment_unlink_files(Segment *segment) noexcept nogil:
    # The .log goes first: a crash in between leaves orphaned indexes, which a load removes. One that came back without
    # its transaction index would have nothing but committed records; the other indexes are made again.
    cdef int rest
    cdef int result = unlink_part(segment, b".log")
    cdef int32_t aborted = segment_open_part(segment, b".txnindex", O_RDWR | O_CLOEXEC)
    close_file(segment.disk, &aborted)
    if aborted != -ENOENT:  # with no room for another open file, say, it may be there all the same
        rest = segment_sync_names(segment)
        if rest == 0:
            rest = unlink_part(segment, b".txnindex")
        result = result if result < 0 else rest
    rest = unlink_part(segment, b".index")
    result = result if result < 0 else rest
    rest = unlink_part(segment, b".timeindex")
    result = result if result < 0 else rest
    rest = unlink_part(segment, b".snapshot")
    return result if result < 0 else rest


cdef int segment_sync_names(const Segment *segment) noexcept nogil:
    cdef char *directory = strdup(segment.path)
    cdef int result = -ENOMEM
    if directory != NULL:
        strrchr(directory, c"/")[0] = 0
        result = segment.disk.sync_directory(segment.disk.self, directory)
        free(directory)
    return 0 if result == -ENOENT else result


cdef int segment_sync(Segment *segment, bint indexes) noexcept nogil:
    cdef const Disk *disk = segment.disk
    cdef int result = segment_open_log(segment)
    if result == 0:
        result = disk.sync(disk.self, file_of(segment))
    if result == 0 and indexes:
        result = sync_part(segment, b".index")
        if result == 0:
            result = sync_part(segment, b".timeindex")
        if result == 0:
            result = sync_part(segment, b".txnindex")  # what it lacks would look committed
    return result


cdef int sync_part(Segment *segment, const char *suffix) noexcept nogil:
    """Where there is such a file; by a handle of its own, since a long log has more sealed segments than a process may
    have files."""
    cdef const Disk *disk = segment.disk
    cdef int result
    cdef int file = segment_open_part(segment, suffix, O_RDWR | O_CLOEXEC)
    if file < 0:
        return 0 if file == -ENOENT else file
    result = disk.sync(disk.self, file)
    disk.close(disk.self, file)
    return result


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
    """TimeIndex.maybeAppend: only a timestamp that is greater than the last one's."""
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
        note_greatest(segment, max_timestamp_ms, batch_end)
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


# --- reading ---

cdef int segment_find(Segment *segment, int64_t offset, int64_t floor, int64_t end, bint cached,
                      Position *found) noexcept nogil:
    cdef uint8_t block[SCAN_BYTES]
    cdef const Disk *disk = segment.disk
    cdef BatchHeader header
    cdef int64_t at = floor     # of the batch under the eye
    cdef int64_t start = 0      # of the block in the file
    cdef int64_t held = 0       # bytes in the block
    cdef int64_t got
    cdef int parsed
    while at < end:
        parsed = BATCH_SHORT
        if start <= at < start + held:
            parsed = parse_header(block + (at - start), <size_t> (start + held - at), &header)
        if parsed == BATCH_SHORT:
            held = end - at if end - at < SCAN_BYTES else SCAN_BYTES
            start = at
            if cached:
                got = disk.pread_cached(disk.self, file_of(segment), block, held, at)
            else:
                got = disk.pread(disk.self, file_of(segment), block, held, at)
            if got < 0:
                return <int> got
            if cached and got < held and got < HEADER_BYTES:
                return -EAGAIN   # a page of it is not here; a short file is found out by the reader that may wait
            held = got
            parsed = parse_header(block, <size_t> held, &header)
        if parsed != BATCH_OK or header.size_bytes > end - at:
            return -EILSEQ
        if last_offset(&header) >= offset:
            found.offset = header.base_offset
            found.position = at
            found.size = header.size_bytes
            return 0
        at += header.size_bytes
    return SEGMENT_END


cdef int64_t segment_floor(Segment *segment, int64_t offset) noexcept nogil:
    cdef int32_t low = 0
    cdef int32_t high = segment.offset_count
    cdef int32_t middle
    cdef int64_t relative = offset - segment.base_offset
    while low < high:  # the first entry above
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
        return -EAGAIN if cached else -EILSEQ  # the disk did not fail: the file was longer a moment ago
    return 0


cdef int64_t segment_floor_on_disk(Segment *segment, int64_t offset, bint cached) noexcept nogil:
    cdef uint8_t entry[OFFSET_ENTRY_BYTES]
    cdef const Disk *disk = segment.disk
    cdef int64_t relative = offset - segment.base_offset
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
        if <int32_t> be32(entry) <= relative:
            low = middle + 1
            position = <int32_t> be32(entry + 4)
        else:
            high = middle
    if position < 0 or position >= load64(&segment.size):
        return 0  # a position that cannot be: the scan from the start finds the batch all the same
    return position


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


def live_count():
    """Segments that somebody holds in this process."""
    return load32(&live_segments)
