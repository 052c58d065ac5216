"""Implements epochs.pxd: the leader epochs of a log."""

from libc.errno cimport EINVAL, ENOMEM
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport realloc

from kafkacore._fast.base.cursor cimport Writer, write_raw
from kafkacore._fast.log.log cimport EPOCHS_BEHIND, EPOCHS_EMPTY, EPOCHS_SAVED, EpochEntry, Log

cdef enum:
    LEAST_ENTRIES = 1
    LINE_BYTES = 48


cdef int32_t epochs_latest(const Log *log) noexcept nogil:
    return log.epochs[log.epoch_count - 1].epoch if log.epoch_count else -1


cdef int add_entry(Log *log, int32_t epoch, int64_t start_offset) noexcept nogil:
    cdef EpochEntry *entries
    cdef int32_t capacity
    if log.epoch_count == log.epoch_capacity:
        capacity = log.epoch_capacity * 2 if log.epoch_capacity else LEAST_ENTRIES
        entries = <EpochEntry *> realloc(log.epochs, capacity * sizeof(EpochEntry))
        if entries == NULL:
            return -ENOMEM
        log.epochs = entries
        log.epoch_capacity = capacity
    log.epochs[log.epoch_count].epoch = epoch
    log.epochs[log.epoch_count].start_offset = start_offset
    log.epoch_count += 1
    return 0


cdef int epochs_assign(Log *log, int32_t epoch, int64_t start_offset) noexcept nogil:
    cdef EpochEntry *last
    cdef int lacks = EPOCHS_EMPTY
    if epoch < 0 or start_offset < 0:
        return 0
    if log.epoch_count:
        last = &log.epochs[log.epoch_count - 1]
        if last.epoch == epoch and last.start_offset <= start_offset:
            return 0
    while log.epoch_count:
        last = &log.epochs[log.epoch_count - 1]
        if last.epoch < epoch and last.start_offset < start_offset:
            break
        if last.start_offset < log.end_offset:
            lacks = EPOCHS_BEHIND
        log.epoch_count -= 1
    if start_offset < log.end_offset:
        lacks = EPOCHS_BEHIND
    if log.epochs_dirty < lacks:
        log.epochs_dirty = lacks
    return add_entry(log, epoch, start_offset)


cdef bint cut_end(Log *log, int64_t end_offset) noexcept nogil:
    cdef int32_t before = log.epoch_count
    while log.epoch_count and log.epochs[log.epoch_count - 1].start_offset >= end_offset:
        log.epoch_count -= 1
    return log.epoch_count != before


cdef void epochs_truncate_end(Log *log, int64_t end_offset) noexcept nogil:
    if cut_end(log, end_offset):
        log.epochs_dirty = EPOCHS_BEHIND


cdef void epochs_drop_empty(Log *log, int64_t end_offset) noexcept nogil:
    if cut_end(log, end_offset) and log.epochs_dirty == EPOCHS_SAVED:
        log.epochs_dirty = EPOCHS_EMPTY


cdef void epochs_truncate_start(Log *log, int64_t start_offset) noexcept nogil:
    """Removes the epochs that end at or before `start_offset`. The epoch that contains `start_offset` now begins
    there."""
    cdef int32_t gone = 0
    cdef int32_t i
    while gone + 1 < log.epoch_count and log.epochs[gone + 1].start_offset <= start_offset:
        gone += 1
    if log.epoch_count == 0 or (gone == 0 and log.epochs[0].start_offset >= start_offset):
        return
    log.epochs[gone].start_offset = max(log.epochs[gone].start_offset, start_offset)
    for i in range(log.epoch_count - gone):
        log.epochs[i] = log.epochs[i + gone]
    log.epoch_count -= gone
    log.epochs_dirty = EPOCHS_BEHIND


cdef int32_t epochs_at(const Log *log, int64_t offset) noexcept nogil:
    cdef int32_t i = log.epoch_count - 1
    while i >= 0:
        if log.epochs[i].start_offset <= offset:
            return log.epochs[i].epoch
        i -= 1
    return -1


cdef void epochs_end(const Log *log, int32_t epoch, int32_t *found_epoch, int64_t *end_offset) noexcept nogil:
    cdef int32_t higher = 0
    found_epoch[0] = -1
    end_offset[0] = -1
    if epoch < 0 or epoch > epochs_latest(log):
        return
    if epoch == epochs_latest(log):
        found_epoch[0] = epoch
        end_offset[0] = log.end_offset
        return
    while log.epochs[higher].epoch <= epoch:
        higher += 1
    found_epoch[0] = log.epochs[higher - 1].epoch if higher > 0 else epoch
    end_offset[0] = log.epochs[higher].start_offset


# --- the leader-epoch-checkpoint file ---

cdef void epochs_write(const Log *log, Writer *out) noexcept nogil:
    cdef char line[LINE_BYTES]
    cdef int32_t i
    cdef int size = snprintf(line, LINE_BYTES, b"0\n%d\n", <int> log.epoch_count)
    write_raw(out, line, size)
    for i in range(log.epoch_count):
        size = snprintf(line, LINE_BYTES, b"%d %lld\n", <int> log.epochs[i].epoch,
                        <long long> log.epochs[i].start_offset)
        write_raw(out, line, size)


cdef int64_t read_number(const char **at, const char *end) noexcept nogil:
    """Reads a decimal number and the blank or line end after it. Returns -1 if there is no number."""
    cdef int64_t value = 0
    cdef int digits = 0
    while at[0] < end and c"0" <= at[0][0] <= c"9" and digits < 19:
        value = value * 10 + (at[0][0] - c"0")
        at[0] += 1
        digits += 1
    if digits == 0:
        return -1
    if at[0] < end and (at[0][0] == c" " or at[0][0] == c"\n"):
        at[0] += 1
    elif at[0] < end:
        return -1
    return value


cdef int epochs_read(Log *log, const char *text, int64_t size) noexcept nogil:
    cdef const char *at = text
    cdef const char *end = text + size
    cdef int64_t count, epoch, start_offset
    if read_number(&at, end) != 0:
        return -EINVAL
    if at == end:
        return 0  # Apache Kafka, too, reads a file that ends here as a file without entries
    count = read_number(&at, end)
    if count < 0:
        return -EINVAL
    while count > 0:
        epoch = read_number(&at, end)
        start_offset = read_number(&at, end)
        if epoch < 0 or epoch > 0x7FFFFFFF or start_offset < 0:
            return -EINVAL
        if epochs_assign(log, <int32_t> epoch, start_offset) < 0:
            return -ENOMEM
        count -= 1
    log.epochs_dirty = EPOCHS_SAVED
    return 0 if at == end else -EINVAL
