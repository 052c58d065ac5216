"""The role of a partition: its leader, the replicas in its ISR, and, on a follower, the offsets that the leader
reports.

Each change names the epochs to which it belongs. Under its lock the partition refuses a change of older epochs.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.log.isr_edges cimport IsrEdges
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.wait.park cimport Waiter, WakeList

ctypedef struct LeaderRole:
    int32_t leader_id             # this node
    int32_t leader_epoch
    int32_t partition_epoch
    int32_t min_isr               # min.insync.replicas
    bint is_recovering
    const int32_t *replicas       # all of them; ids below zero are no replicas
    int32_t replica_count
    const int32_t *isr            # the committed ISR; ids below zero are no replicas
    int32_t isr_count

# Makes this node the leader, or lets it lead on with another ISR, with other replicas or in a newer epoch. A new leader
# epoch begins at the log's end. Followers are merged by broker id: within a leader epoch their positions stay. A newer
# partition epoch ends a proposal. Returns False for an older leader epoch or partition epoch, when the partition is
# gone, or without memory (then `error` is -ENOMEM).
cdef bint partition_lead(Partition *p, const LeaderRole *role, int *error) noexcept nogil
# Lets this node follow `leader_id` (-1 when there is no leader). Returns False for an older epoch, and when the
# partition is gone.
cdef bint partition_follow(Partition *p, int32_t leader_id, int32_t leader_epoch,
                           int32_t partition_epoch) noexcept nogil
# Sets the queue to which the partition reports, from the next `partition_lead` on, that its ISR may have to change.
# Call it once, before the partition has a role.
cdef void partition_report_to(Partition *p, IsrEdges *edges) noexcept nogil

# Notes that an AlterPartition for this ISR is under way: the maximal ISR then includes its members. Returns False when
# this node does not lead, for another partition epoch, and when a proposal is under way already.
cdef bint partition_propose_isr(Partition *p, const int32_t *isr, int32_t count,
                                int32_t partition_epoch) noexcept nogil
# Ends a proposal that was refused. Call it only after errors that prove that the controller has not applied it
# (KIP-497).
cdef void partition_withdraw_isr(Partition *p) noexcept nogil
# Takes the answer of AlterPartition. Returns False when this node does not lead in this leader epoch, or the partition
# epoch is older.
cdef bint partition_commit_isr(Partition *p, const int32_t *isr, int32_t count, int32_t leader_epoch,
                               int32_t partition_epoch, bint is_recovering) noexcept nogil
# Looks at the lag of the followers, and reports an edge when a member of the ISR fell behind.
cdef void partition_check_lag(Partition *p) noexcept nogil

# Truncates the log, or begins it anew at `offset`, as the leader of `leader_epoch` demands. Both may block: call them
# on a pool thread or on a thread of your own. Returns 0, LOG_BLOCKED with `blocked` queued, or Kafka's error code;
# refused as an append is.
cdef int partition_truncate_as_follower(Partition *p, int64_t offset, int32_t leader_epoch,
                                        Waiter *blocked) noexcept nogil
cdef int partition_restart_as_follower(Partition *p, int64_t offset, int32_t leader_epoch,
                                       Waiter *blocked) noexcept nogil
# Takes the high watermark and log start in the leader's answer to a Fetch. The high watermark stays within the log.
# Waits for no device. `start_is_behind`: the leader has deleted records that this log holds; then let a thread that may
# block call `partition_delete_as_follower`.
cdef int partition_note_leader(Partition *p, int32_t leader_epoch, int64_t high_watermark, int64_t log_start_offset,
                               bint *start_is_behind, WakeList *wakes) noexcept nogil
cdef int partition_delete_as_follower(Partition *p, int64_t log_start_offset, int32_t leader_epoch) noexcept nogil
