"""The role of a partition: who leads it, which replicas are in its ISR, and what a follower's leader says.

Each change names the epochs that it belongs to. The partition refuses it under its lock when it has moved on.
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
    const int32_t *isr            # the committed one; likewise
    int32_t isr_count

# Leads from now on, or goes on leading with another ISR, other replicas or in a newer epoch. A new leader epoch begins
# at the log's end. Followers are merged by broker id: within a leader epoch their positions stay. A newer partition
# epoch ends a proposal. False: an older leader epoch or partition epoch, a partition that is gone, or no memory (then
# `error` is -ENOMEM).
cdef bint partition_lead(Partition *p, const LeaderRole *role, int *error) noexcept nogil
# Follows `leader_id` (-1: there is no leader). False: an older epoch, or the partition is gone.
cdef bint partition_follow(Partition *p, int32_t leader_id, int32_t leader_epoch,
                           int32_t partition_epoch) noexcept nogil
# Where the partition reports that its ISR may have to change, from the next `partition_lead` on. Call it once, before
# the partition has a role.
cdef void partition_report_to(Partition *p, IsrEdges *edges) noexcept nogil

# An AlterPartition that asks for this ISR is under way: the maximal ISR has its members too. False: not the leader,
# another partition epoch, or a proposal is under way.
cdef bint partition_propose_isr(Partition *p, const int32_t *isr, int32_t count,
                                int32_t partition_epoch) noexcept nogil
# The proposal was refused or lost: only for errors after which the controller cannot have taken it (KIP-497).
cdef void partition_withdraw_isr(Partition *p) noexcept nogil
# Takes the answer of AlterPartition. False: no leader in this leader epoch, or the partition epoch is no newer.
cdef bint partition_commit_isr(Partition *p, const int32_t *isr, int32_t count, int32_t leader_epoch,
                               int32_t partition_epoch, bint is_recovering) noexcept nogil
# Looks at the lag of the followers, and reports an edge when a member of the ISR fell behind.
cdef void partition_check_lag(Partition *p) noexcept nogil

# Truncates, or begins anew at `offset`, as the leader of `leader_epoch` demands. Both may block: pool threads, or a
# thread of your own. 0, LOG_BLOCKED with `blocked` queued, or Kafka's error code; refused as an append is.
cdef int partition_truncate_as_follower(Partition *p, int64_t offset, int32_t leader_epoch,
                                        Waiter *blocked) noexcept nogil
cdef int partition_restart_as_follower(Partition *p, int64_t offset, int32_t leader_epoch,
                                       Waiter *blocked) noexcept nogil
# Takes what the leader says in a Fetch answer. The high watermark stays within the log. Waits for no device.
# `start_is_behind`: the leader has deleted records that this log holds; then let a thread that may block call
# `partition_delete_as_follower`.
cdef int partition_note_leader(Partition *p, int32_t leader_epoch, int64_t high_watermark, int64_t log_start_offset,
                               bint *start_is_behind, WakeList *wakes) noexcept nogil
cdef int partition_delete_as_follower(Partition *p, int64_t log_start_offset, int32_t leader_epoch) noexcept nogil
