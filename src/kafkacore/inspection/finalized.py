"""Whether a start would take the metadata of a log directory: it refuses feature levels and records that it does not
know."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from kafkacore._fast.batch import Batches, CorruptBatchError
from kafkacore._fast.scan import BatchScan
from kafkacore.metadata.records import MetadataError, decode_batch, decode_framed
from kafkacore.protocol.features import METADATA_VERSION, check_finalized
from kafkacore.protocol.messages import FeatureLevelRecord, Message
from kafkacore.storage import bootstrap, names

_WHOLE: Final = 1 << 31  # no batch is larger


def refusals(directory: str) -> list[str]:
    """What a start would say of the metadata in a log directory. Raises LogDirectoryError, CorruptBatchError,
    InvalidRecordError, OSError."""
    path = names.metadata_directory(directory)
    levels: dict[str, int] = {}
    for file, start in _files(path):
        try:
            levels |= {each.name: each.feature_level for each in _feature_levels(os.path.join(path, file), start)}
        except MetadataError as error:
            return [f"{os.path.join(path, file)}: {error}"]
    if METADATA_VERSION not in levels:
        path = os.path.join(directory, bootstrap.NAME)
        levels = _levels_of_the_format(directory)
    try:
        check_finalized(levels)
    except ValueError as error:
        return [f"{path}: {error}"]
    return []


def _files(path: str) -> Iterator[tuple[str, int]]:
    """The newest snapshot and every segment, and the offset from which on each tells something new."""
    found = sorted(os.listdir(path)) if os.path.isdir(path) else []
    snapshots = [parsed for parsed in map(names.parse_checkpoint_name, found) if parsed is not None]
    end = 0
    if snapshots:
        end, epoch = max(snapshots)
        yield names.checkpoint_name(end, epoch), 0
    for name in found:
        if name.endswith(names.LOG):
            yield name, end


def _feature_levels(path: str, start: int) -> Iterator[FeatureLevelRecord]:
    for data in _whole_batches(path, start):
        batch = next(Batches(data))
        if not batch.is_control:
            yield from (each for each in decode_batch(batch) if isinstance(each, FeatureLevelRecord))


def _whole_batches(path: str, start: int) -> Iterator[bytes]:
    """Up to where a segment is torn, and cut by the next start; of a snapshot that is said elsewhere."""
    with BatchScan(path) as scan:
        while True:
            try:
                offsets = scan.batch_at(scan.position, _WHOLE)
            except CorruptBatchError:
                return
            if offsets is None or scan.fault:
                return
            if offsets[1] >= start:
                yield scan.data


def _levels_of_the_format(directory: str) -> dict[str, int]:
    messages: list[Message] = [decode_framed(each)[0] for each in bootstrap.read_bootstrap(directory) or []]
    return {each.name: each.feature_level for each in messages if isinstance(each, FeatureLevelRecord)}
