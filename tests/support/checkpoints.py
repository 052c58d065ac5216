"""Compares metadata snapshots that two brokers made."""

from kafkacore._fast.record.batch import Batches


def same_but_for_time(ours, theirs):
    """Asserts that two snapshot files have the same batches except for timestamps. Returns whether both files have the
    same length."""
    for mine, its in zip(Batches(ours), Batches(theirs), strict=True):
        assert (mine.base_offset, mine.partition_leader_epoch, mine.attributes) == (
            its.base_offset,
            its.partition_leader_epoch,
            its.attributes,
        )
        for one, other in zip(mine, its, strict=True):
            assert (one.offset, one.key, one.headers) == (other.offset, other.key, other.headers)
            # The value of a SnapshotHeader record also contains a timestamp.
            assert one.value == other.value or (one.control_type == 3 and len(one.value) == len(other.value))
        assert mine.size_bytes == its.size_bytes
    return len(ours) == len(theirs)
