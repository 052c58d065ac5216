"""Truncations wait for a disk, so a job on the I/O pool of the partition's directory makes them. Meanwhile the fetcher
continues with its other partitions."""

from libc.stdint cimport int64_t

from kafkacore._fast.follow.followed cimport Followed

# Begins a truncation of the kind `what` (CUT_...) at `offset`, in the leader epoch in which the partition fetches.
# `cut_ended` follows by mail.
cdef void cut_begin(Followed *each, int what, int64_t offset) noexcept nogil
# The log was not ready for the job before, and is ready now.
cdef void cut_woken(Followed *each) noexcept nogil
# Fetches from the end of the log on. A log without any leader epoch is first truncated to its high watermark, because
# only the high watermark shows up to where it agrees with the leader's log.
cdef void cut_or_go_on(Followed *each) noexcept nogil
