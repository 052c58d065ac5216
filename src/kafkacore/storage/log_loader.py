"""Loads the directory of one partition, and completes or undoes steps that a crash interrupted (Kafka's LogLoader)."""

from __future__ import annotations

import errno
import logging
import os
from typing import Final

from kafkacore._fast.log import partition_load
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.partition_load import Damage, LoadProgress, LoadReport, LogFiles, LogLoad
from kafkacore._fast.record.batch import Batches, CorruptBatchError
from kafkacore.runtime.files import OS_FILES, Files
from kafkacore.storage import clean_shutdown, names
from kafkacore.storage.checkpoints import LEADER_EPOCH, RECOVERY_POINT
from kafkacore.storage.errors import MalformedFileError

LOG: Final = logging.getLogger("kafkacore.storage")
_INDEXES: Final = (names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX)
# Suffix of a snapshot that is being deleted. The metadata log deletes such files itself.
_SNAPSHOT_BEING_DELETED: Final = names.CHECKPOINT + names.DELETED


class DamagedLogError(MalformedFileError):
    """The log has no complete batch at a position that was synced. The load has truncated nothing."""

    def __init__(self, path: str, damage: Damage) -> None:
        self.offset = damage.offset
        segment = os.path.join(path, names.file_name(damage.segment, names.LOG))
        super().__init__(segment, damage_text(damage.position, damage.offset))


def damage_text(position: int, offset: int) -> str:
    return f"byte {position}: no whole batch begins at offset {offset}"


def survey(path: str, files: Files = OS_FILES, listed: list[str] | None = None) -> LogFiles:
    """Completes or undoes the steps that a crash interrupted, and returns the files of the log. `listed` contains the
    names in the directory, if the caller has already read them. Raises OSError.

    Removes `.deleted` and `.cleaned` files. If there is a `.cleaned` file, also removes every `.swap` file with the
    same or a later offset (KAFKA-6264). Replaces segments by the remaining `.swap` files that were made from them.
    Removes indexes without a segment.
    """
    found = LogFiles(files.list(path) if listed is None else listed)
    if found.has_left_overs:
        _remove_leftovers(path, files.list(path), files)
        _finish_swaps(path, files)
        _remove_lone_indexes(path, files.list(path), files)
        found = LogFiles(files.list(path))
    return found


def load(
    partition: PartitionHandle,
    path: str,
    *,
    clean: bool,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    trusted_until: int = 0,
    gaps_until: int = 0,
    progress: LoadProgress | None = None,
    files: Files = OS_FILES,
) -> LoadReport:
    """Loads the log in `path` into `partition`. Blocks. Raises OSError, MalformedFileError, and DamagedLogError if the
    log is damaged below `trusted_until`."""
    log = LogLoad(
        partition,
        survey(path, files),
        clean=clean,
        log_start_offset=log_start_offset,
        recovery_point=recovery_point,
        trusted_until=trusted_until,
        gaps_until=gaps_until,
        progress=progress,
    )
    partition_load.run([log])
    return finish(log, path, files)


def finish(log: LogLoad, path: str, files: Files = OS_FILES) -> LoadReport:
    """Processes the result of a load. Raises OSError, MalformedFileError, DamagedLogError."""
    try:
        report = log.report()
    except OSError as error:
        if error.errno == errno.EUCLEAN:
            raise DamagedLogError(path, log.damage) from None
        raise _named(path, error, files) from None
    if report.truncated_bytes or report.dropped_segments:
        LOG.warning(
            "%s: %d bytes that belong to no whole batch were cut off, and the %d segments after them were removed",
            path,
            report.truncated_bytes,
            report.dropped_segments,
        )
    if report.recovered_segments:
        LOG.info("%s: recovered %d segments with %d bytes", path, report.recovered_segments, report.recovered_bytes)
    return report


def _named(path: str, error: OSError, files: Files) -> Exception:
    """Returns the error with the name of the log's damaged file. Returns other errors unchanged."""
    if error.errno == errno.EILSEQ:
        return _named_segment(path, error, files)
    if error.errno == errno.EINVAL:
        return MalformedFileError(
            os.path.join(path, LEADER_EPOCH),
            "is malformed; restore the file, or remove it: the node then knows the epochs of later records only",
        )
    if error.errno == errno.EOVERFLOW:
        return MalformedFileError(
            path,
            "has a segment with an offset too far from its base offset for an index entry; let Apache Kafka up to "
            "4.3 open "
            "the directory once, because it splits such segments (KAFKA-6264)",
        )
    return error


def _named_segment(path: str, error: OSError, files: Files) -> Exception:
    """Returns the error with the name of the damaged segment. The damage is below the recovery point, in a part of the
    segment that the load had to read."""
    for name in sorted(files.list(path)):
        segment = os.path.join(path, name)
        if not name.endswith(names.LOG):
            continue
        try:
            _walk(segment, files)
        except MalformedFileError as malformed:
            return MalformedFileError(
                segment,
                f"{malformed.problem}, below the recovery point, where a start does not check the log; restore the "
                f"file, or remove {RECOVERY_POINT} and {clean_shutdown.NAME} from the log directory: the next start "
                "then checks the log, and ends it where it is damaged",
            )
    return error


def _remove_leftovers(path: str, listed: list[str], files: Files) -> None:
    cleaned = [name for name in listed if name.endswith(names.CLEANED)]
    first_cleaned = min((_offset(name) for name in cleaned), default=None)
    gone = [
        name
        for name in listed
        if (name.endswith(names.DELETED) and not name.endswith(_SNAPSHOT_BEING_DELETED))
        or (name.endswith(names.SWAP) and first_cleaned is not None and _offset(name) >= first_cleaned)
    ]
    for name in gone:
        _remove_leftover(path, name, files)
    if cleaned and gone:
        # The removal of the .swap files must be durable before the .cleaned files are removed. Otherwise a crash could
        # leave a .swap file without its .cleaned files, and the next start would replace the segments by that .swap
        # file.
        files.sync_directory(path)
    for name in cleaned:
        _remove_leftover(path, name, files)


def _remove_leftover(path: str, name: str, files: Files) -> None:
    LOG.info("%s: removing %s, which an earlier run left", path, name)
    files.unlink(os.path.join(path, name))


def _remove_lone_indexes(path: str, listed: list[str], files: Files) -> None:
    parsed = {name: names.parse_file_name(name) for name in listed}
    segments = {found[0] for found in parsed.values() if found is not None and found[1] == names.LOG}
    for name, found in parsed.items():
        if found is not None and found[1] in _INDEXES and found[0] not in segments:
            LOG.warning("%s: removing %s, which has no segment", path, name)
            files.unlink(os.path.join(path, name))


def _finish_swaps(path: str, files: Files) -> None:
    listed = files.list(path)
    swaps = [name for name in listed if name.endswith(names.SWAP)]
    if not swaps:
        return
    segments = [name for name in swaps if name.endswith(names.LOG + names.SWAP)]
    first = min((_offset(name) for name in segments), default=0)
    end = max((_next_offset(os.path.join(path, name), files) for name in segments), default=0)
    for name in listed:
        parsed = names.parse_file_name(name)
        if parsed is not None and not name.endswith(names.SWAP) and first <= parsed[0] < end:
            LOG.info("%s: removing %s, which a compacted segment replaces", path, name)
            files.unlink(os.path.join(path, name))
    # Each step must be durable before the next one. Otherwise another crash could leave an index with its final name
    # beside a .log.swap. At its next start, the node would remove this index together with the indexes of the former
    # segment.
    files.sync_directory(path)
    for part in (segments, [name for name in swaps if name not in segments]):
        for name in part:
            LOG.info("%s: finishing the swap of %s", path, name)
            files.rename(os.path.join(path, name), os.path.join(path, name.removesuffix(names.SWAP)))
        files.sync_directory(path)


def _offset(name: str) -> int:
    parsed = names.parse_file_name(name)
    return parsed[0] if parsed is not None else 0


def _next_offset(path: str, files: Files) -> int:
    """Returns the offset after the last batch of a segment that will replace others. Raises MalformedFileError for a
    damaged segment, because its end would not show which segments it replaces."""
    try:
        return _walk(path, files)
    except MalformedFileError as malformed:
        raise MalformedFileError(
            path,
            f"{malformed.problem}; the file was about to replace the segments from which it was made: if those "
            "segments still exist, move this file away, else restore it",
        ) from None


def _walk(path: str, files: Files) -> int:
    """Returns the offset after the last batch in the file. Raises MalformedFileError, OSError."""
    end = _offset(os.path.basename(path))
    try:
        for batch in Batches(files.read(path)):
            end = batch.next_offset
    except CorruptBatchError as error:
        raise MalformedFileError(path, str(error)) from None
    return end
