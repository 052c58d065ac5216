"""The role of a partition: its leader, the replicas in its ISR, and, on a follower, the offsets that the leader
reports.

Each change names the epochs to which it belongs. Under `Log.lock`, the partition rejects a change that belongs to older
epochs.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.log.isr_edges cimport IsrEdges
from kafkacore._fast.log.log cimport LogConfig
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.wait.park cimport Waiter, WakeList

ctypedef struct LeaderRole:
    int32_t leader_id             # this node
    int32_t leader_epoch
    int32_t partition_epoch
    int32_t min_isr               # min.insync.replicas
    bint is_recovering
    const int32_t *replicas       # all replicas; ids below zero stand for no replica
    int32_t replica_count
    const int32_t *isr            # the committed ISR; ids below zero stand for no replica
    int32_t isr_count

# Makes this node the leader. If it already leads, sets another ISR, other replicas or a newer epoch. A new leader epoch
# begins at the log end. Within a leader epoch, a follower that the partition already had keeps its position. A newer
# partition epoch ends a proposal (`partition_propose_isr`). Returns False for an older leader epoch or partition epoch,
# if the role is ROLE_GONE, or if memory runs out (then `error` is -ENOMEM).
cdef bint partition_lead(Partition *p, const LeaderRole *role, int *error) noexcept nogil
# Replaces the configuration of the log. Takes over the caller's reference to `config`.
cdef void partition_set_config(Partition *p, LogConfig *config) noexcept nogil
# Makes this node follow `leader_id` (-1: there is no leader). Returns False for an older epoch, or if the role is
# ROLE_GONE.
cdef bint partition_follow(Partition *p, int32_t leader_id, int32_t leader_epoch,
                           int32_t partition_epoch) noexcept nogil
# Sets the queue (isr_edges.pxd) to which the partition reports when its ISR may have to change. The partition begins to
# report with the next `partition_lead`. Call this once, before the partition has a role.
cdef void partition_report_to(Partition *p, IsrEdges *edges) noexcept nogil

# Notes that the node proposes this ISR to the controller, in an AlterPartition. From now on, the maximal ISR
# (replicas.pxd) includes the members of this ISR. Returns False if this node does not lead, if the partition epoch
# differs, or if another proposal has no answer yet.
cdef bint partition_propose_isr(Partition *p, const int32_t *isr, int32_t count,
                                int32_t partition_epoch) noexcept nogil
# Ends a proposal that the controller has rejected. Call this only after an error which proves that the controller has
# not applied the proposal.
cdef void partition_withdraw_isr(Partition *p) noexcept nogil
# Applies the response to AlterPartition. Returns False if this node does not lead in this leader epoch, or if the
# partition epoch is older.
cdef bint partition_commit_isr(Partition *p, const int32_t *isr, int32_t count, int32_t leader_epoch,
                               int32_t partition_epoch, bint is_recovering) noexcept nogil
# Checks the lag of the followers. Reports the partition to the queue if a member of the ISR has fallen behind.
cdef void partition_check_lag(Partition *p) noexcept nogil

# The next two functions act on behalf of the leader of `leader_epoch`. The first one truncates the log to `offset`. The
# second one begins the log again at `offset`. Both can block, so call them on a thread of the I/O pool (io.pxd) or on
# another thread that may block. They return 0, LOG_BLOCKED (log.pxd) with the waiter `blocked` queued, or a Kafka error
# code. They reject the same leader epochs as `partition_append_as_follower`.
cdef int partition_truncate_as_follower(Partition *p, int64_t offset, int32_t leader_epoch,
                                        Waiter *blocked) noexcept nogil
cdef int partition_restart_as_follower(Partition *p, int64_t offset, int32_t leader_epoch,
                                       Waiter *blocked) noexcept nogil
# Adopts the high watermark and the log start offset from the leader's response to a Fetch. The high watermark is
# limited to the log end. Does not wait for the disk. Sets `start_is_behind` if the leader has deleted records that this
# log still had. In that case, this function has already moved the log's start to the leader's. Then call
# `partition_delete_as_follower` on a thread that may block, to delete the segments below the new start.
cdef int partition_note_leader(Partition *p, int32_t leader_epoch, int64_t high_watermark, int64_t log_start_offset,
                               bint *start_is_behind, WakeList *wakes) noexcept nogil
cdef int partition_delete_as_follower(Partition *p, int64_t log_start_offset, int32_t leader_epoch) noexcept nogil
