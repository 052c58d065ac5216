"""A follower downloads a snapshot from its leader, on a disk whose power fails at each single operation."""

from __future__ import annotations

import pytest

from kafkacore._fast.record.batch import Batches
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.protocol.messages import FetchRequest, FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse
from kafkacore.raft import snapshots
from kafkacore.raft.control import data_batch
from kafkacore.raft.file_log import FileLog
from kafkacore.raft.log import OffsetAndEpoch
from kafkacore.raft.voters import VoterHistory, VoterSet
from kafkacore.storage.names import metadata_directory
from raft_replica import Replica

DIRECTORY = "/m"
PART_BYTES = 150
OLD_EPOCH, NEW_EPOCH = 3, 4
OLD = [b"%d of the old leader " % each * 8 for each in range(20)]
AHEAD = OffsetAndEpoch(60, NEW_EPOCH)
# The follower's log ends above this, with records that the new leader never had.
LATER_EPOCH = OffsetAndEpoch(5, NEW_EPOCH)


def committed(offset: int) -> bytes:
    return OLD[offset] if offset < 5 else b"%d of the new leader " % offset * 8


class Run:
    """A run of the follower. The leader has the snapshot `snapshot_id`, and one record after it."""

    def __init__(self, disk: SimulatedDisk, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id
        parts = snapshots.snapshot_parts(
            snapshot_id, map(committed, range(snapshot_id.offset)), VoterHistory(VoterSet()), 1, 2
        )
        self.data = b"".join(parts)
        self.directory = LogDirectory(disk.environment(), DIRECTORY)
        self.log = FileLog(self.directory, segment_bytes=700, files=disk)

    def close(self) -> None:
        self.log.close()
        self.directory.close()

    def write_old_records(self) -> None:
        replica = Replica(1, 2, 3, log=self.log)
        replica.follow(OLD_EPOCH, *OLD)
        replica.settle()

    def follow_the_new_leader(self) -> None:
        """Runs until the follower has the same log as the leader, and knows that all of it is committed."""
        replica = Replica(1, 2, 3, log=self.log)
        replica.raft.replica.become_follower(NEW_EPOCH, 2, ("n2", 9093))
        snapshot_id = self.snapshot_id
        for _ in range(200):
            request = replica.peek()
            asked = request.topics[0].partitions[0]
            if isinstance(request, FetchSnapshotRequest):
                named = FetchSnapshotResponse.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)
                part = self.data[asked.position : asked.position + PART_BYTES]
                replica.answer(snapshot_id=named, size=len(self.data), position=asked.position, unaligned_records=part)
                continue
            assert isinstance(request, FetchRequest)
            end = OffsetAndEpoch(asked.fetch_offset, asked.last_fetched_epoch)
            if end == (snapshot_id.offset, NEW_EPOCH):
                values = {"records": data_batch([committed(end.offset)], end.offset, NEW_EPOCH, 0)}
            elif end == (snapshot_id.offset + 1, NEW_EPOCH):
                if replica.raft.high_watermark == end.offset:
                    return
                values = {"records": b""}
            else:
                offered = FetchResponse.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)
                values = {"records": b"", "snapshot_id": offered}
            replica.answer(**values, high_watermark=snapshot_id.offset + 1)
        raise AssertionError("the follower never reaches the leader's high watermark")

    def check_start(self) -> None:
        """Checks that the follower finds one of two states after a restart: either the log is unchanged, or the
        snapshot has replaced it."""
        log = self.log
        if self.snapshot_id not in log.snapshots():
            assert log.start_offset == 0
            assert self.values(0) == dict(enumerate(OLD))
            return
        for snapshot_id in log.snapshots():
            found = [record.value for batch in snapshots.read_batches(log, snapshot_id) for record in batch]
            assert found == list(map(committed, range(snapshot_id.offset)))
        assert log.start_offset == self.snapshot_id.offset and log.last_epoch == NEW_EPOCH
        assert all(value == committed(offset) for offset, value in self.values(log.start_offset).items())

    def values(self, offset: int) -> dict[int, bytes | None]:
        found = {}
        while offset < self.log.end_offset:
            for batch in Batches(self.log.read(offset, 1 << 20)):
                found.update({record.offset: record.value for record in batch})
                offset = batch.next_offset
        return found


def new_disk(snapshot_id: OffsetAndEpoch) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directories(metadata_directory(DIRECTORY))
    run = Run(disk, snapshot_id)
    run.write_old_records()
    run.close()
    return disk


def download(disk: SimulatedDisk, snapshot_id: OffsetAndEpoch) -> None:
    run = Run(disk, snapshot_id)
    try:
        run.follow_the_new_leader()
    finally:
        run.close()


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("snapshot_id", [AHEAD, LATER_EPOCH], ids=["ahead", "later epoch"])
def test_follower_starts_wherever_the_power_goes_out_during_a_download(
    snapshot_id: OffsetAndEpoch, ordered: bool
) -> None:
    whole = new_disk(snapshot_id)
    first = whole.operations
    download(whole, snapshot_id)
    for cut in range(first, whole.operations):
        disk = new_disk(snapshot_id)
        disk.cut_power_at(cut)
        try:
            download(disk, snapshot_id)
        except OSError:
            assert disk.is_dead
        disk.restart(cut, ordered)
        run = Run(disk, snapshot_id)
        run.check_start()
        run.follow_the_new_leader()
        assert run.values(snapshot_id.offset) == {snapshot_id.offset: committed(snapshot_id.offset)}
        run.close()
    print(f"\n{whole.operations - first} power cuts")
