"""Fuzz targets whose input describes files: a whole log directory, a file for dump-log, or the metadata log and its
snapshots.

Each target accepts any bytes, and raises an exception only if the code under test is wrong.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from broken_batches import HEADER_BYTES, NOW, resealed
from kafkacore._fast.base.errors import ProtocolError
from kafkacore._fast.codec.compression import CodecError
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches, CorruptBatchError, InvalidRecordError, RecordBatchBuilder
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.inspection.decoders import DECODERS, by_class, cluster_metadata
from kafkacore.inspection.dump import DumpOptions, dump_files
from kafkacore.inspection.report import Report
from kafkacore.inspection.segments import RecordOptions
from kafkacore.inspection.verify import VerifyOptions, verify_files
from kafkacore.metadata.edit import Edit
from kafkacore.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkacore.metadata.records import RECORD_TYPES, MetadataError, RecordWriter, decode_batch, decode_record
from kafkacore.metadata.snapshot import image_of, records_of
from kafkacore.protocol.features import METADATA_VERSIONS
from kafkacore.protocol.messages import Message, message_class
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.control import control_batch, control_records, data_batch, learn_voters
from kafkacore.raft.voters import VoterHistory, VoterSet
from kafkacore.storage import clean_shutdown
from kafkacore.storage.errors import LogDirectoryError, MalformedFileError
from kafkacore.storage.log_manager import LogManager
from transactions import ABORT, COMMIT, marker, records

TO_THE_END: Final = 3
UNREADABLE: Final = (CorruptBatchError, InvalidRecordError, CodecError)

# --- a log directory -----------------------------------------------------------------------------------------------
# The input is a byte of flags, and then a list of files. A file consists of its index in FILES, its base offset, two
# bytes of size, and its content.

CLEAN: Final = 1
RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
FILES: Final = (
    "{}.log", "{}.index", "{}.timeindex", "{}.txnindex", "{}.snapshot", "{}.log.swap", "{}.log.cleaned",
    "{}.log.deleted", "{}.index.swap", "leader-epoch-checkpoint", "partition.metadata", f"../{RECOVERY_POINT}",
    "../log-start-offset-checkpoint", "../replication-offset-checkpoint", "../cleaner-offset-checkpoint",
)  # fmt: skip
SEGMENT: Final = 0
ROOT: Final = "/d"
LOG: Final = f"{ROOT}/t-0"
SETTINGS: Final = LogSettings(segment_bytes=400, index_interval_bytes=100)


class Entry(NamedTuple):
    kind: int
    base: int
    data: bytes

    @property
    def path(self) -> str:
        return os.path.normpath(f"{LOG}/{FILES[self.kind].format(f'{self.base:020}')}")


def parted(data: bytes) -> Iterator[Entry]:
    at = 1
    while at + 4 <= len(data):
        kind, base, size = struct.unpack_from(">BBH", data, at)
        yield Entry(kind % len(FILES), base, data[at + 4 : at + 4 + size])
        at += 4 + size


def joined(flags: int, entries: list[Entry]) -> bytes:
    return bytes((flags,)) + b"".join(struct.pack(">BBH", e.kind, e.base, len(e.data)) + e.data for e in entries)


def repaired_directory(data: bytearray) -> bytes:
    """Returns the input with correct lengths and checksums in all batches."""
    entries = [
        each._replace(data=resealed(each.data)) if FILES[each.kind].startswith("{}.log") else each
        for each in parted(bytes(data))
    ]
    return joined(data[0] if data else 0, entries)


def load_directory(data: bytes) -> None:
    """Loads the directory. Checks that the log serves only whole, valid batches, just as the input has them, and that
    the same is true after a restart."""
    disk = SimulatedDisk()
    disk.make_directories(LOG)
    for entry in parted(data):
        disk.write(entry.path, entry.data)
    trusted = disk.exists(f"{ROOT}/{RECOVERY_POINT}")
    if data and data[0] & CLEAN:
        disk.write(f"{ROOT}/{clean_shutdown.NAME}", b"")
        trusted = True
    given = {path: disk.read(f"{LOG}/{path}") for path in disk.list(LOG)}
    first = _load(disk)
    if first is None:
        return
    manager, handle = first
    if trusted:
        _read_through(handle)
        manager.close()
        return
    _check_served(disk, handle, given)
    end = _bounds(handle)
    manager.close()
    # The log is the same after an orderly stop, and after a crash that immediately follows an orderly stop.
    for crash in (False, True):
        if crash:
            disk.unlink(f"{ROOT}/{clean_shutdown.NAME}")
        again = _load(disk)
        assert again is not None, "a log that was loaded once cannot be loaded again"
        manager, handle = again
        assert _bounds(handle) == end, f"{_bounds(handle)} remains of the log {end}, crash: {crash}"
        if crash:
            _append(handle)
        manager.close()


def _load(disk: SimulatedDisk) -> tuple[LogManager, PartitionHandle] | None:
    failures: list[str] = []
    manager = LogManager(
        disk.environment(),
        [ROOT],
        lambda topic: SETTINGS,
        on_failure=failures.append,
        recovery_threads=1,
        io_threads=1,
        files=disk,
    )
    try:
        manager.load()
    except (LogDirectoryError, MalformedFileError):
        for directory in manager.native_directories:
            directory.close()
        return None
    assert not failures, "the content of files took the directory offline"
    handle = manager.get("t", 0)
    assert handle is not None
    return manager, handle


def _bounds(handle: PartitionHandle) -> tuple[int, int]:
    return handle.log_start_offset, handle.end_offset


def _check_served(disk: SimulatedDisk, handle: PartitionHandle, given: dict[str, bytes]) -> None:
    kept: dict[str, bytes] = {}
    for segment in handle.segments():
        name = f"{segment.base_offset:020}.log"
        kept[name] = disk.read(f"{LOG}/{name}")[: segment.size_bytes]
        whole = given.get(f"{name}.swap", b""), given.get(name, b"")
        assert any(each.startswith(kept[name]) for each in whole), f"{name} is not a prefix of the given file"
    offset = handle.log_start_offset
    while offset < handle.end_offset:
        found = handle.read(offset, 1 << 20, TO_THE_END)
        assert found.error == 0, f"error {found.error} for the read at {offset}"
        assert found.records, f"no records at {offset}, below the log end offset {handle.end_offset}"
        assert any(found.records in each for each in kept.values()), f"the records served at {offset} are in no file"
        for batch in Batches(found.records):
            assert batch.crc_ok
            assert batch.next_offset > offset
            offset = batch.next_offset


def _read_through(handle: PartitionHandle) -> None:
    """Reads the whole log. Ignores errors, because the part that recovery trusts without reading it may be damaged."""
    offset = handle.log_start_offset
    while offset < handle.end_offset:
        found = handle.read(offset, 1 << 20, TO_THE_END)
        try:
            ends = [batch.next_offset for batch in Batches(found.records)]
        except CorruptBatchError:
            return
        if found.error or not ends or ends[-1] <= offset:
            return
        offset = ends[-1]


def _append(handle: PartitionHandle) -> None:
    """Checks that the next append gets the offset at the log's end."""
    if handle.end_offset > 1 << 40:  # the offset may be too far above its segment's base offset
        return
    before = handle.end_offset
    builder = RecordBatchBuilder()
    builder.append(NOW, None, b"one more")
    handle.become_leader(1, 1 << 20)
    made = handle.append(builder.build())
    assert (made.error, made.first_offset) == (0, before), made
    [batch] = Batches(handle.read(before, 1 << 20, TO_THE_END).records)
    assert (batch.base_offset, batch.crc_ok) == (before, True)


def _batch(base_offset: int, epoch: int = 0, count: int = 2, codec: str = "none") -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset, partition_leader_epoch=epoch, codec=codec)
    for at in range(count):
        builder.append(NOW + base_offset + at, b"%d" % at, b"value " * 4)
    return bytes(builder.build())


def _kept_directory() -> dict[str, bytes]:
    """Returns the files that an orderly stop leaves. They contain two leader epochs, transactions and several
    segments."""
    disk = SimulatedDisk()
    disk.make_directories(ROOT)
    settings = SETTINGS
    manager = LogManager(disk.environment(), [ROOT], lambda topic: settings, io_threads=1, files=disk)
    manager.load()
    [handle] = manager.create("t", Uuid(bytes(range(16))), [0])
    handle.become_follower(2, 99)
    for data in (
        _batch(0), records(2, 7), marker(4, 7, ABORT), _batch(5, 1, 3, "gzip"), records(8, 9), marker(10, 9, COMMIT),
        _batch(11, 2), records(13, 7, sequence=2),
    ):  # fmt: skip
        assert handle.append_replicated(data, 99).error == 0
    manager.close()
    found = {name: disk.read(f"{LOG}/{name}") for name in disk.list(LOG)}
    return found | {f"../{name}": disk.read(f"{ROOT}/{name}") for name in disk.list(ROOT) if "checkpoint" in name}


def directory_seeds() -> list[bytes]:
    entries = []
    for name, data in sorted(_kept_directory().items()):
        stem, _, suffix = name.partition(".") if name[0].isdigit() else ("0", "", "")
        kind = FILES.index("{}." + suffix if suffix else name)
        entries.append(Entry(kind, int(stem), data))
    segments = [each for each in entries if each.kind == SEGMENT]
    swap = [*segments[:1], Entry(FILES.index("{}.log.swap"), 0, segments[0].data), *segments[1:]]
    torn = [*segments[:-1], segments[-1]._replace(data=segments[-1].data[:-9])]
    return [joined(0, entries), joined(CLEAN, entries), joined(0, segments), joined(0, swap), joined(0, torn)]


# --- dump-log ------------------------------------------------------------------------------------------------------
# The input is a byte of options, a byte that chooses the file name, and then the content of the file.

NAMES: Final = (
    "00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex",
    "00000000000000000000.txnindex", "00000000000000000009.snapshot", "00000000000000000009-0000000001.checkpoint",
)  # fmt: skip
LOG_NAME: Final = 0
AS_THEY_ARE: Final = (
    DumpOptions(),
    DumpOptions(RecordOptions(records=True)),
    DumpOptions(RecordOptions(contents=True)),
    DumpOptions(RecordOptions(contents=True, skip_metadata=True)),
)
_PACKAGE: Final = "org.apache.kafka.tools.api"
NUMBERS: Final = by_class(f"{_PACKAGE}.LongDecoder", f"{_PACKAGE}.IntegerDecoder")
WAYS: Final = (
    *AS_THEY_ARE,
    *[DumpOptions(RecordOptions(decoder=decoder)) for decoder in [*DECODERS.values(), NUMBERS]],
)
_SCRATCH: list[Path] = []


def _scratch() -> Path:
    if not _SCRATCH:
        fast = "/dev/shm"
        _SCRATCH.append(Path(tempfile.mkdtemp(prefix="kafkacore-", dir=fast if os.path.isdir(fast) else None)))
        atexit.register(shutil.rmtree, _SCRATCH[0], ignore_errors=True)
    return _SCRATCH[0]


def dump_file(data: bytes) -> None:
    """Checks that dump-log raises only errors that its report handles, and that all readers read a valid segment to the
    end."""
    if len(data) < 2:
        return
    way, number, content = data[0], data[1] % len(NAMES), data[2:]
    path = _scratch() / NAMES[number]
    path.write_bytes(content)
    try:
        lines, _ = _reported(True, lambda report: dump_files([str(path)], WAYS[way % len(WAYS)], report))
        for line in lines.decode("utf-8", "surrogateescape").splitlines():
            json.loads(line)
        _reported(False, lambda report: dump_files([str(path)], WAYS[way % len(WAYS)], report))
        asked = VerifyOptions(records=True, compacted=bool(way & 128))
        told, problems = _reported(True, lambda report: verify_files([str(path)], asked, report))
        if number == LOG_NAME and not problems:
            _check_sound(content, told)
    finally:
        path.unlink()


def _reported(as_json: bool, work: Any) -> tuple[bytes, int]:
    out = io.BytesIO()
    report = Report(out, io.StringIO(), as_json=as_json)
    work(report)
    return out.getvalue(), report.problems


def _check_sound(content: bytes, told: bytes) -> None:
    batches = Batches(content)
    for batch in batches:
        assert batch.magic < 2 or batch.crc_ok, told
        for record in batch:
            _ = record.key, record.value, record.headers
    assert batches.position == len(content), told


def repaired_dump(data: bytearray) -> bytes:
    if len(data) > 2 and data[1] % len(NAMES) in (LOG_NAME, len(NAMES) - 1):
        return bytes(data[:2]) + resealed(data[2:])
    return bytes(data)


def dump_seeds() -> list[bytes]:
    kept, found = _kept_directory(), []
    for number, name in enumerate(NAMES):
        suffix = name.rpartition(".")[2]
        held = sorted(each for each in kept if each.endswith(f".{suffix}"))
        found += [bytes((way % 256, number)) + kept[each] for way, each in enumerate(held)]
    metadata = metadata_seeds()
    decoded = len(AS_THEY_ARE)
    for way in range(decoded, len(WAYS)):
        found.append(bytes((way, LOG_NAME)) + metadata[0])
    return [
        *found,
        bytes((decoded, len(NAMES) - 1)) + metadata[0],
        bytes((2 | 128, LOG_NAME)) + _batch(3, codec="zstd"),
    ]


# --- the metadata --------------------------------------------------------------------------------------------------

NEWEST: Final = METADATA_VERSIONS[-1]


def replay_metadata(data: bytes) -> None:
    """Checks that an image made from batches of the metadata log equals the image made from its own snapshot."""
    image: MetadataImage = EMPTY_IMAGE
    history = VoterHistory(VoterSet())
    try:
        for batch in Batches(data):
            if not batch.crc_ok:
                return
            if batch.is_control:
                continue
            for record in batch:
                cluster_metadata(record)
            edit = Edit(image)
            edit.replay_batch(decode_batch(batch), batch.base_offset)
            image = edit.freeze(batch.next_offset - 1, 1, 1)
        list(control_records(data))
        learn_voters(history, data)
    except (*UNREADABLE, MetadataError, ProtocolError, ValueError):
        return
    if any(each.level == image.features.get("metadata.version") for each in METADATA_VERSIONS):
        _check_snapshot(image)


def _check_snapshot(image: MetadataImage) -> None:
    writer = RecordWriter(image.metadata_version)
    written = [writer.encode(record) for record in records_of(image)]
    again = image_of(map(decode_record, written), image.offset, 1, 1)
    assert [writer.encode(record) for record in records_of(again)] == written


def _metadata_log() -> list[list[Message]]:
    """Returns batches that contain each record type once, in a valid order."""

    def made(kind: str, **fields: Any) -> Any:
        return message_class(kind)(**fields)

    topic, directory = Uuid(b"t" * 16), Uuid(b"d" * 16)
    partition = {"topic_id": topic, "replicas": [1], "isr": [1], "leader": 1, "directories": [directory]}
    return [
        [made("FeatureLevelRecord", name="metadata.version", feature_level=NEWEST.level), made("NoOpRecord")],
        [
            made("RegisterBrokerRecord", broker_id=1, broker_epoch=5, log_dirs=[directory]),
            made("UnfenceBrokerRecord", id=1, epoch=5),
            made("BrokerRegistrationChangeRecord", broker_id=1, broker_epoch=5, cordoned_log_dirs=[directory]),
            made("RegisterControllerRecord", controller_id=1),
        ],
        [made("TopicRecord", name="t.a", topic_id=topic)]
        + [made("PartitionRecord", partition_id=each, **partition) for each in range(3)],
        [
            made("PartitionChangeRecord", topic_id=topic, partition_id=1, isr=[], leader=-1),
            made("ConfigRecord", resource_type=2, resource_name="t.a", name="cleanup.policy", value="compact"),
            made("ClearElrRecord", topic_name="t.a"),
        ],
        [made("BeginTransactionRecord", name="x"), made("ProducerIdsRecord", next_producer_id=1000)],
        [made("EndTransactionRecord")],
        [made("BeginTransactionRecord"), made("ProducerIdsRecord", next_producer_id=2000)],
        [made("AbortTransactionRecord", reason="why")],
        [
            made(RECORD_TYPES[key])
            for key in (10, 11, 14, 18, 21)  # delegation tokens, SCRAM, quotas, ACLs, migration from ZooKeeper
        ],
        [made("RemoveTopicRecord", topic_id=topic), made("FenceBrokerRecord", id=1, epoch=5)],
        [made("UnregisterBrokerRecord", broker_id=1, broker_epoch=5)],
    ]


def metadata_seeds() -> list[bytes]:
    writer, whole, parts, offset = RecordWriter(NEWEST), b"", [], 0
    for batch in _metadata_log():
        data = data_batch(map(writer.encode, batch), offset, 1, NOW)
        assert data is not None
        parts.append(data)
        whole += data
        offset += len(batch)
    control = control_batch(
        [
            message_class("LeaderChangeMessage")(leader_id=1),
            message_class("KRaftVersionRecord")(kraft_version=1),
            VoterSet().to_record(),
        ],
        offset, 1, NOW,
    )  # fmt: skip
    return [whole + control, whole, control, b"".join(parts[:4]), *parts]


def repaired_metadata(data: bytearray) -> bytes:
    return resealed(data) if len(data) > HEADER_BYTES else bytes(data)
