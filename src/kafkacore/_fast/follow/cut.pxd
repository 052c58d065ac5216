"""The truncations of a fetcher's partitions (a fetcher follows the partitions that one other broker leads, see
followed.pxd). A truncation waits for a disk, so a job on the I/O pool of the partition's log directory performs it. In
the meantime the fetcher continues with its other partitions.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.follow.followed cimport Followed

# Begins a truncation of the kind `what` (CUT_...) at `offset`, in the leader epoch in which the partition fetches. When
# the job is done, it sends a mail to the fetcher's thread, which then runs `cut_ended`.
cdef void cut_begin(Followed *each, int what, int64_t offset) noexcept nogil
# Call this when a log that was not ready for the job has become ready.
cdef void cut_woken(Followed *each) noexcept nogil
# Lets the partition fetch again from the end of its log. If the log knows no leader epoch, first truncates the log to
# its high watermark, because only the records below the high watermark are certain to agree with the leader's log.
cdef void cut_or_go_on(Followed *each) noexcept nogil
