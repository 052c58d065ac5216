"""The tables `segments`, `indexes` and `checkpoints`: the list of segments, and the contents of the small files beside
them."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any, Final

from kafkacore._fast.log.index_files import aborted_transactions, offset_entries, time_entries
from kafkacore.spark.log.layout import LogDirectory, Replica, segments
from kafkacore.spark.log.rows import micros
from kafkacore.storage import names
from kafkacore.storage.checkpoints import OFFSETS, LeaderEpochCheckpoint, OffsetCheckpoint
from kafkacore.storage.errors import MalformedFileError

_INDEXES: Final = {names.OFFSET_INDEX: "offset", names.TIME_INDEX: "time", names.TRANSACTION_INDEX: "transaction"}


def checkpoint_rows(log_dir: LogDirectory, replicas: list[Replica]) -> Iterator[dict[str, Any]]:
    """Returns one row for each entry in the checkpoints of a log directory and in the leader epoch checkpoints of its
    replicas."""
    place = {"broker": log_dir.broker, "directory": log_dir.path}
    for name in OFFSETS:
        try:
            entries = OffsetCheckpoint(log_dir.path, name).read()
        except (MalformedFileError, OSError) as error:
            yield {**place, "type": name, "problem": str(error)}
            continue
        for (topic, partition), offset in entries.items():
            yield {**place, "type": name, "topic": topic, "partition": partition, "offset": offset}
    for replica in replicas:
        row = {**place, "type": "leader-epoch-checkpoint", "topic": replica.topic, "partition": replica.partition}
        try:
            for epoch, offset in LeaderEpochCheckpoint(replica.path).read():
                yield {**row, "offset": offset, "epoch": epoch}
        except (MalformedFileError, OSError) as error:
            yield {**row, "problem": str(error)}


def segment_rows(replica: Replica) -> Iterator[dict[str, Any]]:
    """Returns one row for each segment of a replica, without reading the records."""
    for segment in segments(replica):
        try:
            modified = os.stat(segment.path).st_mtime_ns // 1000
        except FileNotFoundError:
            continue
        yield {
            "broker": replica.log_dir.broker,
            "directory": replica.log_dir.path,
            "topic": replica.topic,
            "partition": replica.partition,
            "kind": replica.kind.name.lower(),
            "file": os.path.join(os.path.basename(replica.path), os.path.basename(segment.path)),
            "baseOffset": segment.base_offset,
            "sizeBytes": segment.size,
            "active": segment.active,
            "modified": modified,
        }


def index_rows(replica: Replica, types: Collection[str]) -> Iterator[dict[str, Any]]:
    """Returns one row for each entry in a replica's indexes of these types: offset, time and transaction."""
    for name in sorted(_listed(replica.path)):
        parsed = names.parse_file_name(name)
        if parsed is None or _INDEXES.get(parsed[1]) not in types:
            continue
        row = {
            "broker": replica.log_dir.broker,
            "topic": replica.topic,
            "partition": replica.partition,
            "file": os.path.join(os.path.basename(replica.path), name),
            "type": _INDEXES[parsed[1]],
        }
        try:
            with open(os.path.join(replica.path, name), "rb") as file:
                data = file.read()
            for number, entry in enumerate(_entries(parsed[1], data, parsed[0])):
                yield {**row, "entry": number, **entry}
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            yield {**row, "problem": f"{name}: {error}"}


def aborted_by_producer(path: str) -> dict[int, list[tuple[int, int]]]:
    """Returns the first and the last offset of each aborted transaction in the transaction indexes of a replica, by
    producer id. Raises ValueError if an index is malformed."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for name in _listed(path):
        parsed = names.parse_file_name(name)
        if parsed is not None and parsed[1] == names.TRANSACTION_INDEX:
            with suppress(FileNotFoundError), open(os.path.join(path, name), "rb") as file:
                for producer_id, first, last, _stable in aborted_transactions(file.read()):
                    found[producer_id].append((first, last))
    return found


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def _entries(suffix: str, data: bytes, base_offset: int) -> Iterator[dict[str, Any]]:
    if suffix == names.TRANSACTION_INDEX:
        for _producer, first, last, _stable in aborted_transactions(data):
            yield {"offset": first, "position": last}
    elif suffix == names.TIME_INDEX:
        # The time index of an active segment ends with preallocated space, which consists of zeros. But if a file has
        # only one entry, and the entry consists of zeros, the entry belongs to a record with timestamp 0.
        times, offsets = time_entries(data, base_offset)
        used = len(times)
        while used and len(times) > 1 and (times[used - 1], offsets[used - 1]) == (0, base_offset):
            used -= 1
        for timestamp, offset in zip(times[:used], offsets[:used], strict=True):
            yield {"timestamp": micros(timestamp), "offset": offset}
    else:
        for offset, position in zip(*offset_entries(data, base_offset), strict=True):
            if position == 0:  # preallocated space: a segment's first batch has no entry
                return
            yield {"offset": offset, "position": position}
