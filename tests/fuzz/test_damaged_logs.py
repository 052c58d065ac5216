"""Damages every kind of file of a log, at every kind of position. If the log can still be loaded, it serves everything
before the damage, and truncates the rest or reports an error. If the log cannot be loaded, the error names the file.

KAFKACORE_FUZZ_SECONDS (5) limits the time. KAFKACORE_SEED repeats a run, and a failure prints the seed.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from file_damage import Damage, batch_starts, damages
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches, CorruptBatchError, RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.storage import log_loader
from kafkacore.storage.errors import MalformedFileError
from seeds import SEED
from transactions import ABORT, COMMIT, marker, records

SECONDS = float(os.environ.get("KAFKACORE_FUZZ_SECONDS", "5"))
SETTINGS = LogSettings(segment_bytes=2500, index_interval_bytes=0)
TO_THE_END = 3
EPOCH_FIELD = slice(12, 16)  # the leader epoch of a batch; no checksum covers this field or the base offset


class Written(NamedTuple):
    files: dict[str, bytes]
    batches: dict[int, bytes]  # by base offset: the bytes of the batch without the leader epoch
    segments: list[int]
    end_offset: int


def without_epoch(batch: bytes) -> bytes:
    return batch[: EPOCH_FIELD.start] + batch[EPOCH_FIELD.stop :]


def append_all(handle: PartitionHandle) -> None:
    """Appends plain, compressed, idempotent and transactional batches. They span several epochs, producer snapshots and
    segments."""
    for number in range(24):
        end = handle.end_offset
        if number % 4 == 0:
            builder = RecordBatchBuilder(
                base_offset=end, partition_leader_epoch=number // 8, codec=("none", "gzip", "lz4")[number % 3]
            )
            for key in range(3):
                builder.append(1_700_000_000_000 + number, b"%d" % key, b"plain %d " % number * 20)
            batch = builder.build()
        elif number % 4 == 1:
            batch = records(end, 7 + number % 3, sequence=number * 2)
        elif number % 4 == 2:
            batch = marker(end, 7 + (number - 1) % 3, ABORT if number % 8 == 2 else COMMIT)
        else:
            builder = RecordBatchBuilder(
                base_offset=end, partition_leader_epoch=number // 8, producer_id=50, producer_epoch=0,
                base_sequence=number,
            )  # fmt: skip
            builder.append(1_700_000_000_000 + number, None, b"one of a producer's " * 15)
            batch = builder.build()
        assert handle.append_replicated(bytes(batch), 99).error == 0


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    root = tmp_path_factory.mktemp("written")
    directory = LogDirectory(Environment(), str(root))
    handle = PartitionHandle(directory, "t", 0, Uuid.random(), SETTINGS)
    handle.become_follower(2, 99)
    append_all(handle)
    end_offset, segments = handle.end_offset, [each.base_offset for each in handle.segments()]
    handle.shut()
    directory.close()
    files = {path.name: path.read_bytes() for path in sorted((root / "t-0").iterdir())}
    assert len(segments) > 2 and any(name.endswith(".txnindex") for name in files)
    batches = {}
    for base in segments:
        data = files[f"{base:020}.log"]
        starts = [position for position, _ in batch_starts(data)] + [len(data)]
        for (position, offset), end in zip(batch_starts(data), starts[1:], strict=True):
            batches[offset] = without_epoch(data[position:end])
    return Written(files, batches, segments, end_offset)


@pytest.fixture
def place() -> Iterator[Path]:
    fast = "/dev/shm"
    with tempfile.TemporaryDirectory(prefix="kafkacore-", dir=fast if os.path.isdir(fast) else None) as made:
        yield Path(made)


class Served(NamedTuple):
    """The result of reading a log. Every record below `end` is unchanged. `wrong` is the error at `end`, or None if the
    log ends there."""

    end: int
    wrong: str | None


def serve(handle: PartitionHandle, written: Written) -> Served:
    offset = handle.log_start_offset
    while offset < handle.end_offset:
        found = handle.read(offset, 1 << 20, TO_THE_END)
        if found.error:
            return Served(offset, f"error {found.error}")
        batches = Batches(found.records)
        try:
            for batch in batches:
                if not batch.crc_ok:
                    return Served(offset, "crc")
                if without_epoch(bytes(batch.data)) != written.batches.get(batch.base_offset):
                    return Served(offset, f"SILENT: another batch at {batch.base_offset}")
                if batch.base_offset > offset:
                    return Served(offset, f"SILENT: {offset} is missing, {batch.base_offset} follows")
                offset = batch.next_offset
        except CorruptBatchError as error:
            return Served(offset, f"no batch: {error}")
        if batches.position == 0:
            return Served(offset, "SILENT: nothing is there below the end")
    return Served(offset, None)


# How the node stopped, and the offset from which loading the log checks its batches.
MODES = {"clean": (True, 0), "recovered": (False, 0), "partly recovered": (False, -1)}


def first_lost(name: str, damage: Damage, written: Written) -> int:
    """Returns the offset below which all records must be unchanged."""
    if not name.endswith(".log"):
        return written.end_offset
    before = [base for position, base in batch_starts(written.files[name]) if position <= damage.at]
    return (
        before[-1]
        if before and damage.at < len(written.files[name])
        else next((base for base in written.segments if base > int(name[:20])), written.end_offset)
    )


def is_trusted(name: str, mode: str, written: Written) -> bool:
    """Returns whether loading the log trusts the segment without checking it, as in Apache Kafka. Readers check the
    segment's checksums. Only `kafkacore dump-log` finds damage that no checksum covers: a changed base offset, or a
    file that ends between two batches."""
    point = {"clean": written.end_offset, "recovered": 0, "partly recovered": written.segments[-2]}[mode]
    return name.endswith(".log") and int(name[:20]) < point


def unprotected(name: str, damage: Damage, written: Written) -> bool:
    """Returns whether the damage changes only a base offset, which no checksum covers."""
    if not name.endswith(".log"):
        return False
    original = written.files[name]
    starts = [position for position, _ in batch_starts(original)]
    if len(original) != len(damage.data):
        return False
    changed = [i for i, (a, b) in enumerate(zip(original, damage.data, strict=True)) if a != b]
    return all(any(0 <= i - start < 8 for start in starts) for i in changed)


def check(place: Path, name: str, damage: Damage, mode: str, written: Written) -> str | None:
    """Returns an error text if the log was handled wrongly after the damage, else None."""
    clean, recovery_point = MODES[mode]
    if recovery_point < 0:
        recovery_point = written.segments[-2]
    path = place / "t-0"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for each, data in written.files.items():
        (path / each).write_bytes(damage.data if each == name else data)
    directory = LogDirectory(Environment(), str(place))
    handle = PartitionHandle(directory, "t", 0, None, SETTINGS)
    try:
        log_loader.load(handle, str(path), clean=clean, recovery_point=recovery_point)
    except (MalformedFileError, OSError) as error:
        return None if name in str(error) else f"refused without the file's name: {error!r}"
    least = first_lost(name, damage, written)
    served = serve(handle, written)
    handle.close()
    if served.end < least:
        return f"lost from {served.end}, {least} was before the damage: {served.wrong}"
    if mode == "recovered" and served.wrong:
        # No batch follows the last one, so nothing shows that the last batch's base offset is damaged.
        is_last = least == max(written.batches) and unprotected(name, damage, written)
        return None if is_last else f"recovered, and {served.wrong} at {served.end}"
    if served.wrong and served.wrong.startswith("SILENT"):
        gap = "missing" in served.wrong and is_trusted(name, mode, written)
        return None if gap or unprotected(name, damage, written) else served.wrong
    return None


@pytest.mark.timeout(60 + 3 * SECONDS)
def test_log_serves_records_before_the_damage_and_reports_the_damage(written: Written, place: Path) -> None:
    rng = random.Random(SEED)
    work = [
        (name, damage, mode)
        for name, data in written.files.items()
        for damage in damages(name, data, rng)
        for mode in MODES
    ]
    rng.shuffle(work)
    until, failures, tried = time.monotonic() + SECONDS, [], 0
    for name, damage, mode in work:
        if time.monotonic() > until:
            break
        tried += 1
        wrong = check(place, name, damage, mode, written)
        if wrong is not None:
            failures.append(f"{mode}, {name}: {damage.place.what}, {damage.how}: {wrong}")
    print(f"\n{tried} of {len(work)} damages tried, KAFKACORE_SEED={SEED}")
    assert not failures, f"KAFKACORE_SEED={SEED}, {len(failures)} of {tried}:\n" + "\n".join(sorted(failures)[:40])
