"""Truncations: they wait for a disk, so a job on the I/O pool of the partition's directory does them. Meanwhile the
fetcher goes on with its other partitions."""

from libc.stdint cimport int64_t

from kafkacore._fast.follow.followed cimport Followed

# Does a CUT_ to the log at `offset`, in the leader epoch in which the partition fetches. `cut_ended` follows by mail.
cdef void cut_begin(Followed *each, int what, int64_t offset) noexcept nogil
# The log was not ready for the job, and is now.
cdef void cut_woken(Followed *each) noexcept nogil
# Fetches from the end of the log on. A log without an epoch is cut at its high watermark first: nothing else says where
# it agrees with the leader's.
cdef void cut_or_go_on(Followed *each) noexcept nogil
