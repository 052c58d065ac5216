"""Fuzz targets. Each target accepts any bytes, and raises an exception only if the code under test is wrong."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import fuzz_files
from broken_batches import NOW, resealed, sealed, sound_batches
from kafkacore._fast.base.errors import ProtocolError
from kafkacore._fast.codec.compression import Codec, CodecError
from kafkacore._fast.columns.batch_columns import BatchColumns
from kafkacore._fast.columns.record_columns import COLUMNS, RecordColumns
from kafkacore._fast.columns.record_columns import live as live_columns
from kafkacore._fast.hot.offset_commit import OffsetCommit
from kafkacore._fast.hot.offset_rows import TopicOffsets
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches, CorruptBatchError, InvalidRecordError, RecordBatchBuilder
from kafkacore._fast.record.validator import Validator, follow
from kafkacore._fast.schema.wire import BINDINGS
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.metadata.records import RECORD_TYPES
from kafkacore.protocol import apis
from kafkacore.protocol.messages import (
    FetchRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    ProduceRequest,
    message_class,
)
from kafkacore.storage import log_loader
from transactions import ABORT, marker, records

LIMIT_BYTES: Final = 1 << 16
TO_THE_END: Final = 3


class Target(NamedTuple):
    """A fuzz target. `seeds` are valid inputs. `repair` corrects the lengths and checksums of a broken input."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    repair: Callable[[bytearray], bytes] = bytes


# --- records ---

CODEC: Final = Codec(max_bytes=LIMIT_BYTES)
VALIDATORS: Final = [
    Validator(codec=CODEC),
    Validator(codec=CODEC, compacted=True, log_append_time=True, compression="gzip"),
    Validator(codec=CODEC, origin="coordinator", compression="uncompressed"),
]


def walk_records(data: bytes) -> None:
    try:
        for batch in Batches(data, CODEC):
            if batch.magic == 2:
                batch.find_timestamp(NOW + 2)
                batch.find_max_timestamp()
            count = 0
            for record in batch:
                _ = record.key, record.value, record.headers, record.offset
                count += 1
            assert batch.record_count in (-1, count), "a batch's record count differs from its header"
    except (CorruptBatchError, InvalidRecordError, CodecError):
        pass


def validate_records(data: bytes) -> None:
    for validator in VALIDATORS:
        validator.accept(data, NOW, 100)
    follow(data, 3)


def decode_columns(data: bytes) -> None:
    """Checks that the rows of the columns lie within the requested offsets and sizes, and that all memory is released.
    The last byte of the input chooses the offsets, the sizes and the aborted transactions."""
    choice = data[-1] if data else 0
    before, start, most = live_columns(), choice % 3, 1 + choice % 7
    columns = RecordColumns(
        COLUMNS, "t", 0, max_rows=most, max_bytes=1 << 10 + choice % 8, max_inflated_bytes=LIMIT_BYTES,
        check_crcs=choice % 5 > 0,
    )  # fmt: skip
    try:
        after = columns.feed(data, start, 1 << 40, [(7, 0), (9, choice)] if choice % 2 else None)
        assert after >= start, "the next offset is below the start"
        while (rows := columns.take(last=True)) is not None:
            assert 0 < len(rows) <= most, "an Arrow batch is larger than the limit"
            assert rows.first_offset >= start, "a row lies before the start"
            rows.__arrow_c_array__()
    except (CorruptBatchError, InvalidRecordError):
        pass
    headers = BatchColumns("t-0/0.log", most)
    used = headers.feed(data, 0)
    if (rows := headers.take()) is not None:
        assert 0 < len(rows) <= most, "an Arrow batch is larger than the limit"
        rows.__arrow_c_array__()
    assert used <= len(data), "a header extends beyond the input"
    del columns, headers, rows
    assert live_columns() == before, "the memory of columns was not released"


def column_seeds() -> list[bytes]:
    return [each + bytes([number % 256]) for number, each in enumerate(sound_batches() + log_seeds())]


def repaired_columns(data: bytearray) -> bytes:
    return resealed(data[:-1]) + data[-1:]


def repaired(data: bytearray) -> bytes:
    return sealed(data) if len(data) > 61 else bytes(data)


# --- a log on a simulated disk ---

LOG_SETTINGS: Final = LogSettings(segment_bytes=1 << 20, index_interval_bytes=100)


def load_log(data: bytes) -> None:
    """Loads the bytes as a segment, as after a crash. Checks that recovery keeps only whole batches with ascending
    offsets."""
    disk = SimulatedDisk()
    disk.make_directories("/d/t-0")
    disk.write("/d/t-0/00000000000000000000.log", data)
    directory = LogDirectory(disk.environment(), "/d", 1)
    handle = PartitionHandle(directory, "t", 0, None, LOG_SETTINGS)
    log_loader.load(handle, "/d/t-0", clean=False, files=disk)
    offset = handle.log_start_offset
    while offset < handle.end_offset:
        found = handle.read(offset, 1 << 20, TO_THE_END)
        assert found.error == 0, f"error {found.error} for the read at {offset}"
        for batch in Batches(found.records):
            assert batch.crc_ok
            assert batch.next_offset > offset
            offset = batch.next_offset
    handle.close()
    directory.close()


def log_seeds() -> list[bytes]:
    plain = RecordBatchBuilder()
    plain.append(NOW, None, b"x" * 50)
    later = RecordBatchBuilder(base_offset=4, producer_id=9, producer_epoch=0, base_sequence=0)
    later.append(NOW, None, b"y")
    whole = bytes(plain.build()) + records(1, 7) + marker(3, 7, ABORT) + bytes(later.build())
    return [whole, bytes(plain.build()), records(0, 7), records(0, 7) + marker(2, 7, ABORT)]


# --- messages ---

KINDS: Final = ("Request", "Response")
KEYS: Final = {value for name, value in vars(apis.ApiKey).items() if name.isupper()}
NAMES: Final = [f"{apis.api(key).message}{kind}" for key in sorted(KEYS) for kind in KINDS] + [
    *RECORD_TYPES.values(), "LeaderChangeMessage", "SnapshotHeaderRecord", "SnapshotFooterRecord", "VotersRecord",
]  # fmt: skip
# Each message, in its oldest and in its newest version.
MESSAGES: Final[list[tuple[Any, int]]] = [
    (made, version)
    for made in map(message_class, NAMES)
    for version in sorted({made.VERSIONS[0], made.VERSIONS[1]})
    if version >= 0
]


def decode_message(data: bytes) -> None:
    """Checks that a decoded message is the same after it has been encoded and decoded again. The first two bytes choose
    the message and its version."""
    if len(data) < 2:
        return
    made, version = MESSAGES[int.from_bytes(data[:2]) % len(MESSAGES)]
    try:
        message = made.decode(data[2:], version)
    except (ProtocolError, ValueError):
        return
    again = made.decode(message.encode(version), version)
    assert again == message or "nan" in repr(message), f"{made.NAME} {version} changed when it was encoded and decoded"


def message_seeds() -> list[bytes]:
    found = []
    for number, (made, version) in enumerate(MESSAGES):
        try:
            found.append(number.to_bytes(2) + made().encode(version))
        except (ProtocolError, ValueError):  # this version cannot express a default value
            continue
    return found


# --- OffsetCommit ---

PARTITION_ROWS: Final = array("i", range(100))


def commit_offsets(data: bytes) -> None:
    """Checks that the C structs and the message object give the same result for an OffsetCommit request. The first byte
    chooses the version. Makes records, a response and rows of committed offsets from the request."""
    if not data:
        return
    version = 2 + data[0] % 9
    try:
        message = OffsetCommitRequest.decode_prefix(data[1:], version)[0]
    except ProtocolError:
        message = None
    try:
        commit = OffsetCommit(data[1:], version)
    except ProtocolError:
        assert message is None, f"OffsetCommit {version} is refused by the C structs but not by the class"
        return
    assert message is not None, f"OffsetCommit {version} is refused by the class but not by the C structs"
    rows = TopicOffsets()
    for number, topic in enumerate(message.topics):
        commit.find(number, topic.name, topic.topic_id, PARTITION_ROWS, 3)
    commit.accept(NOW, -1, 10, 12)
    builder = RecordBatchBuilder()
    if builder.append_all(NOW, commit):
        written = [(each.key, each.value) for batch in Batches(builder.build()) for each in batch]
        assert written == list(commit), "the batch and the commit have different records"
    for number in range(len(commit.names)):
        rows.take(commit, number, 0)
    answer = OffsetCommitResponse.decode(commit.response(b""), version)
    assert [len(topic.partitions) for topic in answer.topics] == [len(topic.partitions) for topic in message.topics]


def commit_seeds() -> list[bytes]:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    partitions = [partition(partition_index=at, committed_offset=7, committed_metadata="note") for at in range(3)]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="topic", partitions=partitions)
    request = OffsetCommitRequest(group_id="group", member_id="member", topics=[topic, topic])
    return [bytes([version - 2]) + request.encode(version) for version in range(2, 11)]


# --- the hot path's view of a message ---

HOT_MESSAGES: Final = [
    (name, version) for name, each in BINDINGS.items() for version in range(each.lowest, each.highest + 1)
]
ARENA_BYTES: Final = 16 << 20
VIEW_NS: Final = 1_000_000_000  # the longest time for an input, generous because the machine may be busy


def view_message(data: bytes) -> None:
    """Checks that the C structs of a view accept the same bytes as the message's class, and that a view takes bounded
    time. The first two bytes choose the message and its version."""
    if len(data) < 2:
        return
    name, version = HOT_MESSAGES[int.from_bytes(data[:2]) % len(HOT_MESSAGES)]
    begun_ns = time.thread_time_ns()
    try:
        _, written, _ = BINDINGS[name].copy(data[2:], version, arena_bytes=ARENA_BYTES)
    except ProtocolError:
        written = None
    assert time.thread_time_ns() - begun_ns < VIEW_NS, f"{name} {version}: a view of {len(data)} bytes takes too long"
    refusal = ""
    try:
        message, _ = message_class(name).decode_prefix(data[2:], version)
    except ProtocolError as error:
        refusal = str(error)
    if refusal:
        # A view accepts text that is not valid UTF-8.
        assert written is None or "not UTF-8" in refusal, f"{name} {version}: only the view accepts it ({refusal})"
        return
    assert written is not None, f"{name} {version}: only the class accepts it"
    # A view drops tagged fields that this version does not define, but the class keeps them.
    assert message_class(name).decode(written, version).encode(version) == written, (
        f"{name} {version}: the view and the class write different bytes"
    )
    assert len(written) <= len(message.encode(version)), f"{name} {version}: the view writes more than the class"


def view_seeds() -> list[bytes]:
    """Returns the defaults of every message, and requests that repeat one partition or one topic very often."""
    seeds = [
        number.to_bytes(2) + message_class(name)().encode(version)
        for number, (name, version) in enumerate(HOT_MESSAGES)
    ]
    number = HOT_MESSAGES.index(("ProduceRequest", 9))
    batch = sound_batches()[0]
    parts = [ProduceRequest.PartitionProduceData(index=0, records=batch)] * 500
    crowded = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=parts)] * 2)
    seeds.append(number.to_bytes(2) + crowded.encode(9))
    number = HOT_MESSAGES.index(("FetchRequest", 12))
    topics = [FetchRequest.FetchTopic(topic="t", partitions=[FetchRequest.FetchPartition()] * 3)] * 1000
    seeds.append(number.to_bytes(2) + FetchRequest(topics=topics).encode(12))
    return seeds


TARGETS: Final = {
    "records": Target(walk_records, sound_batches, repaired),
    "columns": Target(decode_columns, column_seeds, repaired_columns),
    "validator": Target(validate_records, sound_batches, repaired),
    "log": Target(load_log, log_seeds, repaired),
    "directory": Target(fuzz_files.load_directory, fuzz_files.directory_seeds, fuzz_files.repaired_directory),
    "dump": Target(fuzz_files.dump_file, fuzz_files.dump_seeds, fuzz_files.repaired_dump),
    "metadata": Target(fuzz_files.replay_metadata, fuzz_files.metadata_seeds, fuzz_files.repaired_metadata),
    "messages": Target(decode_message, message_seeds),
    "offsets": Target(commit_offsets, commit_seeds),
    "views": Target(view_message, view_seeds),
}
