"""What a log has done for it on pool threads: its first append's files, rolls, syncs, the leader-epoch checkpoint."""

from libc.stdint cimport int64_t
from libc.stddef cimport size_t

from kafkacore._fast.log cimport Log
from kafkacore._fast.park cimport Waiter

# --- under the lock ---
# LAZY -> OPENING or OPEN -> ROLLING (the new segment begins at `base_offset`), as a pool job. LOG_BLOCKED: `blocked` is
# queued and will be woken. Else an error that clients retry, and nothing has changed.
cdef int log_start_open(Log *log, Waiter *blocked) noexcept nogil
cdef int log_start_roll(Log *log, int64_t base_offset, Waiter *blocked) noexcept nogil
# The checkpoint file follows the entries, soon.
cdef void log_save_epochs(Log *log) noexcept nogil

# Blocks ahead of a large active segment, soon.
cdef void log_reserve_ahead(Log *log) noexcept nogil

# The committer's next round syncs all up to `offset`, once it is called.
cdef void log_want_synced(Log *log, int64_t offset) noexcept nogil

# --- without the lock ---
cdef void log_commit_init(Log *log) noexcept nogil  # once, before the log is used
cdef void log_call_committer(Log *log) noexcept nogil
# Both.
cdef void log_commit_soon(Log *log, int64_t offset) noexcept nogil
