"""The metadata log on disk: the log of partition `__cluster_metadata-0`, and the snapshots in the same directory."""

from __future__ import annotations

import logging
import os
import time
from typing import Final

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.partition_watch import SYNCED, PartitionWatch
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches
from kafkacore._fast.wait.io import LogDirectory
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.uuid import METADATA_TOPIC_ID
from kafkacore.raft.commit_mark import CommitMark
from kafkacore.raft.log import LogEpochs, OffsetAndEpoch, RecentBatches, replaces_log
from kafkacore.raft.messages import PARTITION, TOPIC
from kafkacore.raft.snapshots import SnapshotFiles
from kafkacore.runtime import open_files
from kafkacore.runtime.files import OS_FILES, Files
from kafkacore.storage import log_loader
from kafkacore.storage.checkpoints import LEADER_EPOCH, LeaderEpochCheckpoint
from kafkacore.storage.errors import MalformedFileError
from kafkacore.storage.names import LOG as LOG_SUFFIX
from kafkacore.storage.names import file_name, metadata_directory

RECENT_BYTES: Final = 8 << 20  # limit for the batches in memory; equal to the default limit for one batch
# An isolation for PartitionHandle.read: the read goes up to the end of the log, even if this replica does not lead.
TO_THE_END: Final = 3
ANY_EPOCH: Final = (1 << 31) - 1
_UNCLEAN_RECOVERY_POINT: Final = 0
_KEY: Final = "internal.metadata.log.segment.bytes"
NO_EPOCH_LEFT: Final = (
    "has at offset {} the leader epoch {}, the greatest that is possible, so no leader can be elected after it. The "
    "checksum of a batch does not cover its epoch. Restore the file. If other controllers have the log, you can remove "
    "this replica's copy of the log instead"
)
NO_SNAPSHOT: Final = (
    "begins at offset {}, and no snapshot has the records from offset {} on: restore the files before it or a snapshot."
    " If other controllers have the log, you can remove this replica's copy of the log instead"
)
LOG: Final = logging.getLogger("kafkacore.raft")


class MetadataLogError(OSError):
    """The metadata log cannot be used: its directory is offline, or a segment is too small."""


class FileLog(LogEpochs):
    """The metadata log on disk. Used on the driver's loop. `append` blocks that loop only for a write into the page
    cache. The I/O pool begins new segments. `append` writes every record to the file at once, because a leader must not
    commit a record that its own file lacks.

    `begin_segment`, `read`, `truncate`, `trim`, `flush` and the methods that change snapshots may block, and are called
    on other threads. Only one change runs at a time, and nothing is appended while a change removes the end of the log.
    All methods raise OSError.
    """

    _SYNC: Final = "sync"  # the only key under which the watch reports

    def __init__(
        self,
        directory: LogDirectory,
        *,
        segment_bytes: int = 1 << 30,
        segment_ms: int = 604_800_000,
        files: Files = OS_FILES,
    ) -> None:
        """Loads the log. Blocks. Checks and syncs the whole log, because the leader counts each record of this log as
        durable. As in Kafka, this also happens after a clean shutdown. Raises MalformedFileError if the log has lost
        committed records. Also raises it if the log has the greatest possible epoch, because no leader could get a
        higher one."""
        super().__init__()
        self._directory = directory
        path = metadata_directory(directory.path)
        files.make_directories(path)
        # An earlier process may have created the directory, and died before the directory was durable.
        files.sync_directory(directory.path)
        self._segment_bytes = segment_bytes
        settings = LogSettings(segment_bytes=segment_bytes, segment_ms=segment_ms, delete_policy=False)
        self._handle = PartitionHandle(directory, TOPIC, PARTITION, METADATA_TOPIC_ID, settings)
        self._snapshots = SnapshotFiles(path, files)
        self._mark = CommitMark(path, files)
        self._sync_until = 0
        self._rounds_left = open_files.WAIT_ROUNDS
        self._refused = False  # whether the last append found that the log refuses appends for a short time
        self._recent = RecentBatches(RECENT_BYTES)
        in_file = LeaderEpochCheckpoint(path, files).read()  # before the load adds epochs
        self._load(path, files)
        ids = self._snapshots.ids()
        # `trim` leaves removed records in the file of the first segment, but removes their epochs from the checkpoint.
        # The load has restored both, so the log is trimmed again, up to the first epoch that the checkpoint had. After
        # `trim` up to the end of the log, no epochs are left.
        epochs = in_file or self._handle.leader_epochs()
        end = self._handle.end_offset
        kept = min(epochs[0][1], end) if epochs else end
        if kept > self.start_offset and any(each.offset >= kept for each in ids):
            self.trim(kept)
        for epoch, start in self._handle.leader_epochs():
            if epoch >= ANY_EPOCH:
                raise MalformedFileError(self._file_of_epoch(path, epoch, start), NO_EPOCH_LEFT.format(start, epoch))
            self.epochs.note(epoch, start)
        self._end_offset = self._handle.end_offset
        # If a crash occurred after the download of a snapshot and before the log was emptied, the old log still exists.
        if ids and replaces_log(ids[-1], self):
            self.begin_at_snapshot(ids[-1])
        self.flush()
        # Create the watch last, so that an error above leaves none of its file descriptors open.
        self._watch = PartitionWatch(directory.environment)

    def _load(self, path: str, files: Files) -> None:
        """Loads the log. Removes an incomplete batch at the end of the log, because its records were never synced.
        Refuses a log that has lost committed records.
        """
        mark = self._mark
        try:
            log_loader.load(
                self._handle, path, clean=False, recovery_point=_UNCLEAN_RECOVERY_POINT, trusted_until=mark.offset,
                files=files,
            )  # fmt: skip
        except log_loader.DamagedLogError as error:
            raise mark.refuse(error.path, error.problem) from None
        first, end = self.start_offset, self._handle.end_offset
        if end < mark.offset:
            raise mark.refuse(self._last_file(path, end), f"the log ends at offset {end}")
        newest = self.snapshots()[-1].offset if self.snapshots() else 0
        if first > newest:
            raise MalformedFileError(self._last_file(path, first), NO_SNAPSHOT.format(first, newest))

    def _last_file(self, path: str, offset: int) -> str:
        """Returns the file of the segment that holds the offset. If no segment holds the offset, returns the log's
        directory.
        """
        bases = [segment.base_offset for segment in self._handle.segments() if segment.base_offset <= offset]
        return os.path.join(path, file_name(max(bases), LOG_SUFFIX)) if bases else path

    def _file_of_epoch(self, path: str, epoch: int, start: int) -> str:
        """Returns the file that an error about this epoch should name. This is the segment with the first batch of the
        epoch, or the epoch checkpoint if no batch has the epoch.
        """
        for batch in Batches(self._handle.read(start, 1, TO_THE_END).records):
            if batch.partition_leader_epoch == epoch:
                return self._last_file(path, start)
        return os.path.join(path, LEADER_EPOCH)

    @property
    def start_offset(self) -> int:  # type: ignore[override]
        return self._handle.log_start_offset

    @property
    def end_offset(self) -> int:  # type: ignore[override]
        # The end offset is cached because the core reads it several times for each event, and the native handle would
        # release the GIL each time.
        return self._end_offset

    @property
    def size_bytes(self) -> int:
        return self._handle.size_bytes

    def append(self, data: bytes) -> bool:
        batches = list(Batches(data))
        for batch in batches:
            # No replica could read the log beyond a batch without offsets.
            if batch.next_offset <= batch.base_offset:
                raise MetadataLogError(f"the metadata log refused an empty batch at offset {batch.base_offset}")
        result = self._handle.append_replicated_now(data, ANY_EPOCH)
        if result is None:
            return False
        if result.error == ErrorCode.RECORD_LIST_TOO_LARGE:
            raise MetadataLogError(
                f"{len(data)} bytes of metadata records do not fit a segment of {self._segment_bytes}: raise {_KEY}"
            )
        self._check_online()
        if result.error == ErrorCode.KAFKA_STORAGE_ERROR and self._rounds_left:
            self._refused = True
            return False
        if result.error:
            raise MetadataLogError(f"the metadata log refused an append: {ErrorCode(result.error).name}")
        for batch in batches:
            self.epochs.note(batch.partition_leader_epoch, batch.base_offset)
            self._recent.append(batch.base_offset, batch.next_offset, bytes(batch.data))
        self._end_offset = self._handle.end_offset
        self._rounds_left = open_files.WAIT_ROUNDS
        return True

    def begin_segment(self) -> None:
        # `append_replicated` without bytes returns when the log accepts appends again. If the call fails, the next
        # append reports the error. If no file descriptor is free, the log refuses appends for a short time. Then the
        # next append asks for the segment again. All these attempts together wait for up to 30 s.
        # If the full segment could not be closed, the log accepts this call, but refuses appends of records. So
        # `begin_segment` also waits after such a refusal.
        while self._refused or self._handle.append_replicated(b"", ANY_EPOCH).error == ErrorCode.KAFKA_STORAGE_ERROR:
            self._refused = False
            if self._directory.offline_errno or self._rounds_left == 0:
                break
            self._rounds_left -= 1
            time.sleep(open_files.WAIT_S)

    def read_recent(self, offset: int, max_bytes: int) -> bytes | None:
        return self._recent.read(offset, max_bytes)

    def read(self, offset: int, max_bytes: int) -> bytes:
        result = open_files.finish(self._handle.read, offset, max_bytes, TO_THE_END)
        if result.error:
            raise MetadataLogError(f"the metadata log cannot be read at {offset}: error {result.error}")
        batches = Batches(result.records)
        for _ in batches:
            continue
        return result.records[: batches.position]

    def begin_sync(self) -> int | None:
        self._watch.disarm(self._SYNC)
        self._sync_until = self._end_offset
        if not self._watch.arm(self._SYNC, self._handle, SYNCED, self._sync_until):
            self._check_synced(self._sync_until)
            return None
        self._handle.flush_soon()
        return self._watch.fileno()

    def end_sync(self) -> bool:
        if self._SYNC not in self._watch.take():
            return False
        self._check_synced(self._sync_until)
        return True

    def flush(self) -> None:
        until = self._handle.end_offset
        self._handle.flush()
        self._check_synced(until)

    def _check_synced(self, until: int) -> None:
        if self._handle.synced_offset < until:
            self._check_online()
            raise MetadataLogError(f"the metadata log is not synced up to {until}: its directory is offline")

    def _check_online(self) -> None:
        if error := self._directory.offline_errno:
            raise MetadataLogError(
                f"the metadata log's directory {self._directory.path} has failed: {os.strerror(error)}; put that "
                "right, and start the node again"
            )

    def truncate(self, end_offset: int) -> None:
        self._recent.truncate(end_offset)
        self._handle.truncate_to(end_offset)
        self._end_offset = self._handle.end_offset
        self.epochs.truncate(end_offset)

    def trim(self, start_offset: int) -> None:
        error = self._handle.drop_below(start_offset)
        if error:
            raise MetadataLogError(f"the metadata log cannot delete records below {start_offset}: error {error}")

    def snapshots(self) -> list[OffsetAndEpoch]:
        return self._snapshots.ids()

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int:
        return self._snapshots.size(snapshot_id)

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        return self._snapshots.read(snapshot_id, position, max_bytes)

    def write_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        self._snapshots.write(snapshot_id, position, data)

    def finish_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self._snapshots.finish(snapshot_id)

    def abandon_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self._snapshots.abandon(snapshot_id)

    def delete_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self._snapshots.delete(snapshot_id)

    @property
    def committed_offset(self) -> int:
        return self._mark.offset

    def note_committed(self, offset: int) -> None:
        self._mark.move(offset)

    def begin_at_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self._mark.remove()
        self._recent.clear()
        self._handle.truncate_fully(snapshot_id.offset)
        self._end_offset = self._handle.end_offset
        self.epochs.clear()

    def close(self) -> None:
        """Syncs the log and closes it. If the directory has failed, only closes it. Blocks."""
        try:
            self._handle.shut()
        except OSError as error:
            LOG.warning("the metadata log could not be closed cleanly; the next start checks all of it: %s", error)
        finally:
            self._watch.close()
            self._handle.close()
