"""The metadata log, its snapshots and the vote, on a disk whose power fails at each single operation."""

from __future__ import annotations

import pytest

from kafkacore._fast.record.batch import Batches
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.raft import snapshots
from kafkacore.raft.control import data_batch
from kafkacore.raft.file_log import FileLog
from kafkacore.raft.log import OffsetAndEpoch
from kafkacore.raft.voters import VoterHistory, VoterSet
from kafkacore.storage import quorum_state
from kafkacore.storage.names import metadata_directory
from kafkacore.storage.quorum_state import QuorumState
from metadata_files import append

DIRECTORY = "/m"
RECORDS = 2  # records in each batch


class Promised:
    """The promises of the replica: a vote, committed records, and a snapshot that replaces the records below it."""

    def __init__(self) -> None:
        self.epoch = 0
        self.end_offset = 0
        self.values: dict[int, bytes] = {}  # by offset: the value that was written last
        self.snapshots: list[OffsetAndEpoch] = []


class Replica:
    def __init__(self, disk: SimulatedDisk, promised: Promised) -> None:
        self.disk, self.promised = disk, promised
        self.directory = LogDirectory(disk.environment(), DIRECTORY)
        self.log = FileLog(self.directory, segment_bytes=700, files=disk)
        self.path = metadata_directory(DIRECTORY)

    def vote(self, epoch: int) -> None:
        quorum_state.write(self.path, QuorumState(leader_epoch=epoch, voted_id=1), 1, self.disk)
        self.promised.epoch = epoch

    def append(self, epoch: int, count: int) -> None:
        for _ in range(count):
            offset = self.log.end_offset
            values = [b"%d of epoch %d " % (each, epoch) * 8 for each in range(offset, offset + RECORDS)]
            self.promised.values.update(enumerate(values, offset))
            data = data_batch(values, offset, epoch, 1000)
            assert data is not None
            append(self.log, data)
        self.log.flush()
        self.promised.end_offset = self.log.end_offset

    def receive_snapshot(self, offset: int, epoch: int) -> None:
        """Receives a snapshot, as a follower that is far behind does."""
        self.promised.values.update((each, b"received") for each in range(self.log.end_offset, offset))
        self.snapshot(offset, epoch)
        self.log.begin_at_snapshot(OffsetAndEpoch(offset, epoch))
        self.promised.end_offset = offset

    def snapshot(self, offset: int, epoch: int) -> None:
        made = OffsetAndEpoch(offset, epoch)
        values = iter([self.promised.values[each] for each in range(offset)])
        position = 0
        for part in snapshots.snapshot_parts(made, values, VoterHistory(VoterSet()), 1, 2):
            self.log.write_snapshot(made, position, part)
            position += len(part)
        self.log.finish_snapshot(made)
        self.promised.snapshots.append(made)

    def clean(self) -> None:
        """Deletes old snapshots and the log below the oldest one, as Snapshotter.clean does."""
        first, second = self.log.snapshots()[:2]
        self.log.trim(second.offset)
        self.promised.snapshots.remove(first)
        self.log.delete_snapshot(first)

    def close(self) -> None:
        self.log.close()
        self.directory.close()


def run(disk: SimulatedDisk, promised: Promised) -> None:
    replica = Replica(disk, promised)
    try:
        replica.vote(1)
        replica.append(1, 9)
        replica.log.note_committed(14)
        replica.snapshot(8, 1)
        replica.append(1, 5)
        replica.vote(3)
        # A batch of another leader, which replaces the uncommitted records of the previous leader.
        promised.end_offset = 20
        replica.log.truncate(20)
        replica.append(3, 6)
        replica.snapshot(26, 3)
        replica.clean()
        replica.append(3, 3)
        replica.log.note_committed(replica.log.end_offset)
        replica.receive_snapshot(70, 4)
        replica.append(4, 5)
        replica.log.note_committed(replica.log.end_offset)
        replica.append(4, 1)
    finally:
        replica.close()


def check(disk: SimulatedDisk, promised: Promised) -> None:
    state = quorum_state.read(metadata_directory(DIRECTORY), disk)
    assert (0 if state is None else state.leader_epoch) >= promised.epoch
    replica = Replica(disk, promised)
    log = replica.log
    assert log.end_offset >= promised.end_offset
    kept = log.snapshots()
    assert set(promised.snapshots) <= set(kept)
    for each in kept:
        found = [record.value for batch in snapshots.read_batches(log, each) for record in batch]
        assert found == [promised.values[offset] for offset in range(each.offset)]
    # The snapshot contains all records below the log start, and no later record is missing.
    assert log.start_offset <= (kept[-1].offset if kept else 0)
    offset = log.start_offset
    while offset < promised.end_offset:
        for batch in Batches(log.read(offset, 1 << 20)):
            for record in batch:
                if offset <= record.offset < promised.end_offset:
                    assert record.offset == offset
                    assert record.value == promised.values[offset]
                    offset += 1
    replica.append(7, 2)
    replica.close()


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directories(DIRECTORY)
    return disk


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_replica_keeps_its_promises_after_a_power_cut_at_any_operation(seed: int) -> None:
    whole = new_disk()
    first = whole.operations
    run(whole, Promised())
    for cut in range(first, whole.operations):
        disk, promised = new_disk(), Promised()
        disk.cut_power_at(cut)
        try:
            run(disk, promised)
        except OSError:
            assert disk.is_dead
        disk.restart(seed * 1000 + cut)
        check(disk, promised)
    print(f"\n{whole.operations - first} power cuts")
