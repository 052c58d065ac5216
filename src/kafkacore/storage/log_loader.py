"""What the directory of one partition holds: its segments, and what a crash left half done (Kafka's LogLoader)."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, Final

from kafkacore._named_tuple import NamedTuple
from kafkacore.runtime.files import OS_FILES, Files
from kafkacore.storage import names
from kafkacore.storage.checkpoints import LEADER_EPOCH
from kafkacore.storage.errors import MalformedFileError

if TYPE_CHECKING:
    from kafkacore._fast.partition_handle import LoadProgress, LoadReport, PartitionHandle

LOG: Final = logging.getLogger("kafkacore.storage")
_INDEXES: Final = (names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX)
_SNAPSHOT_BEING_DELETED: Final = names.CHECKPOINT + names.DELETED  # of the metadata log, which deletes it itself


class LogFiles(NamedTuple):
    """Offsets grow. `indexed`: of each segment, whether both its indexes are there; `aborted`: of those with a
    transaction index."""

    base_offsets: list[int]
    indexed: list[bool]
    snapshots: list[int]
    aborted: frozenset[int]


def survey(path: str, files: Files = OS_FILES) -> LogFiles:
    """Finishes or takes back what a crash interrupted, and tells what is there. Raises OSError.

    `.deleted` and `.cleaned` files go, and with the latter every `.swap` file from the first of them on (KAFKA-6264);
    other `.swap` files take the place of the segments that they were made from; an index without its segment goes.
    """
    listed = files.list(path)
    changed = _remove_leftovers(path, listed, files)
    changed |= _finish_swaps(path, files)
    found: dict[str, set[int]] = {}
    for name in files.list(path) if changed else listed:
        parsed = names.parse_file_name(name)
        if parsed is not None:
            found.setdefault(parsed[1], set()).add(parsed[0])
    base_offsets = sorted(found.get(names.LOG, ()))
    for suffix in _INDEXES:
        for offset in found.get(suffix, set()).difference(base_offsets):
            LOG.warning("%s: %s has no segment and is removed", path, names.file_name(offset, suffix))
            files.unlink(os.path.join(path, names.file_name(offset, suffix)))
    both = found.get(names.OFFSET_INDEX, set()) & found.get(names.TIME_INDEX, set())
    return LogFiles(
        base_offsets,
        [offset in both for offset in base_offsets],
        sorted(found.get(names.PRODUCER_SNAPSHOT, ())),
        frozenset(found.get(names.TRANSACTION_INDEX, ())),
    )


def load(
    partition: PartitionHandle,
    path: str,
    *,
    clean: bool,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    gaps_until: int = 0,
    progress: LoadProgress | None = None,
    files: Files = OS_FILES,
) -> LoadReport:
    """Takes up the log in `path`, where `partition` keeps it. Blocks. Raises OSError, MalformedFileError."""
    found = survey(path, files)
    try:
        report = partition.load(
            found.base_offsets,
            found.indexed,
            found.snapshots,
            aborted=found.aborted,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            gaps_until=gaps_until,
            clean=clean,
            progress=progress,
        )
    except OSError as error:
        raise _named(path, error) from None
    if report.truncated_bytes or report.dropped_segments:
        LOG.warning(
            "%s: %d bytes that no whole batch covers were cut off, and %d segments behind them",
            path,
            report.truncated_bytes,
            report.dropped_segments,
        )
    return report


def _named(path: str, error: OSError) -> Exception:
    """What the files of the log are to blame for, by their names; other errors as they are."""
    if error.errno == errno.EINVAL:
        return MalformedFileError(
            os.path.join(path, LEADER_EPOCH),
            "is malformed; restore it, or remove it: the epochs of the next records are noted again",
        )
    if error.errno == errno.EOVERFLOW:
        return MalformedFileError(
            path,
            "has a segment with an offset too far from its first for an index entry; let Apache Kafka up to 4.3 open "
            "the directory once, which splits such segments (KAFKA-6264)",
        )
    return error


def _remove_leftovers(path: str, listed: list[str], files: Files) -> bool:
    cleaned = [name for name in listed if name.endswith(names.CLEANED)]
    first_cleaned = min((_offset(name) for name in cleaned), default=None)
    gone = [
        name
        for name in listed
        if (name.endswith(names.DELETED) and not name.endswith(_SNAPSHOT_BEING_DELETED))
        or (name.endswith(names.SWAP) and first_cleaned is not None and _offset(name) >= first_cleaned)
    ]
    for name in gone + cleaned:
        LOG.info("%s: removes %s, left by an earlier run", path, name)
        files.unlink(os.path.join(path, name))
    return bool(gone or cleaned)


def _finish_swaps(path: str, files: Files) -> bool:
    listed = files.list(path)
    swaps = [name for name in listed if name.endswith(names.SWAP)]
    if not swaps:
        return False
    segments = [name for name in swaps if name.endswith(names.LOG + names.SWAP)]
    first = min((_offset(name) for name in segments), default=0)
    end = max((_next_offset(os.path.join(path, name), files) for name in segments), default=0)
    for name in listed:
        parsed = names.parse_file_name(name)
        if parsed is not None and not name.endswith(names.SWAP) and first <= parsed[0] < end:
            LOG.info("%s: removes %s, which a compacted segment replaces", path, name)
            files.unlink(os.path.join(path, name))
    for name in swaps:
        LOG.info("%s: finishes the swap of %s", path, name)
        files.rename(os.path.join(path, name), os.path.join(path, name.removesuffix(names.SWAP)))
    files.sync_directory(path)
    return True


def _offset(name: str) -> int:
    parsed = names.parse_file_name(name)
    return parsed[0] if parsed is not None else 0


def _next_offset(path: str, files: Files) -> int:
    from kafkacore._fast.batch import Batches

    end = _offset(os.path.basename(path))
    for batch in Batches(files.read(path)):
        end = batch.next_offset
    return end
