"""The cases of docs/recovery.md, in which a crash, a disk or a person has damaged a log directory. Each `Row` damages
an intact directory. In the functions, `base` is the log directory, and `log` is the directory of the partition t-0.
"""

import os
import struct
from dataclasses import dataclass

from aiokafka.record._crecords import LegacyRecordBatchBuilder

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.producer_states import producer_states
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.storage import checkpoints, clean_shutdown, log_loader
from kafkacore.storage.log_manager import LogManager
from segments import crc32c
from transactions import ABORT, COMMIT

TOPIC = ("t", 0)
IDEMPOTENT, COMMITTED, ABORTED, OPEN = 5, 6, 7, 8
SEGMENT_BYTES = 1000
SETTINGS = LogSettings(segment_bytes=SEGMENT_BYTES, index_interval_bytes=200)


@dataclass(frozen=True)
class Row:
    """One kind of damage. `damage(base, log)` changes the files. The directory has the mark of a clean shutdown unless
    `clean` is False. `records` gives the raw segments by base offset if the row does not use the usual log. `end` is
    the end offset of the log after the start (None means the end of the last whole batch before the damage). After the
    start, no file matches `gone`. `differs` names the fields for which Apache Kafka gives another answer, and `why`
    gives the reason."""

    name: str
    damage: object
    clean: bool = True
    end: int | None = 40
    gone: tuple[str, ...] = ()
    differs: frozenset = frozenset()
    why: str = ""
    records: object = None


def batch(base_offset, now_ms, *, producer_id=-1, sequence=0, epoch=0, count=2, transactional=False, value=b"v" * 100):
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence} if producer_id >= 0 else {}
    builder = RecordBatchBuilder(
        base_offset=base_offset, partition_leader_epoch=epoch, transactional=transactional, **fields
    )
    for i in range(count):
        builder.append(now_ms + base_offset + i, b"k%d" % (base_offset + i), value)
    return bytes(builder.build())


def marker(base_offset, now_ms, producer_id, kind, epoch):
    builder = RecordBatchBuilder(
        base_offset=base_offset, partition_leader_epoch=epoch, producer_id=producer_id, producer_epoch=0,
        transactional=True, control=True,
    )  # fmt: skip
    builder.append(now_ms + base_offset, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 7))
    return bytes(builder.build())


def batches(now_ms):
    """Returns batches for 40 offsets in two leader epochs: batches without a producer, batches of an idempotent
    producer, and batches of a committed, an aborted and an open transaction."""
    found, offset = [], 0
    for turn in range(5):
        epoch = 0 if turn < 2 else 3
        for producer_id, kind in ((-1, None), (IDEMPOTENT, None), (COMMITTED, COMMIT), (ABORTED, ABORT)):
            if turn == 4 and producer_id == ABORTED:
                producer_id, kind = OPEN, None  # noqa: PLW2901
            count = 2 if kind is None else 1
            sequence = 0 if producer_id == OPEN else turn * count
            found.append(
                batch(
                    offset, now_ms, producer_id=producer_id, sequence=sequence, epoch=epoch, count=count,
                    transactional=producer_id in {COMMITTED, ABORTED, OPEN},
                )
            )  # fmt: skip
            offset += count
            if kind is not None:
                found.append(marker(offset, now_ms, producer_id, kind, epoch))
                offset += 1
    return found


def build(base, now_ms, records=None):
    """Makes the undamaged log and shuts it down cleanly. Returns the base offsets of its segments."""
    base.mkdir(parents=True)
    manager = LogManager(Environment(), [str(base)], lambda topic: SETTINGS)
    manager.load()
    (handle,) = manager.create("t", Uuid(b"i" * 16), [0])
    handle.become_follower(2, 3)
    for one in batches(now_ms) if records is None else records:
        assert handle.append_replicated(one, 3).error == 0
    bases = tuple(segment.base_offset for segment in handle.segments())
    manager.close()
    return bases


def prepare(base, now_ms, row):
    """Makes the damaged directory of a row. Returns the base offsets of the segments before the damage."""
    bases = build(base, now_ms)
    log = base / "t-0"
    if row.records:
        for path in log.glob("0*"):
            path.unlink()
        for first, data in row.records(now_ms).items():
            (log / name(first, "log")).write_bytes(data)
    if not row.clean:
        (base / clean_shutdown.NAME).unlink()
    row.damage(base, log)
    return bases


def name(offset, suffix):
    return f"{offset:020d}.{suffix}"


def offsets(log, suffix="log"):
    return sorted(int(path.name.split(".")[0]) for path in log.glob(f"*.{suffix}"))


def checkpoint(base, which, offset):
    checkpoints.OffsetCheckpoint(str(base), which).write({TOPIC: offset})


def writes(*names_of, content=b"\x00" * 7):
    def damage(base, log):
        for each in names_of:
            (log / each).write_bytes(content)

    return damage


def removes(pattern):
    def damage(base, log):
        found = list(log.glob(pattern))
        assert found
        for path in found:
            path.unlink()

    return damage


def last(suffix, change):
    """Returns a damage function that applies `change(bytes)` to the last file with the suffix."""

    def damage(base, log):
        path = max(log.glob(f"*.{suffix}"))
        path.write_bytes(change(path.read_bytes()))

    return damage


def middle(suffix, change):
    def damage(base, log):
        found = sorted(log.glob(f"*.{suffix}"))
        path = found[len(found) // 2]
        path.write_bytes(change(path.read_bytes()))

    return damage


def each(*damages):
    def damage(base, log):
        for one in damages:
            one(base, log)

    return damage


def unsynced(*damages):
    """Returns a damage function that also removes the recovery checkpoint, as if the crash came before the first
    checkpoint."""

    def damage(base, log):
        (base / checkpoints.RECOVERY_POINT).unlink()
        each(*damages)(base, log)

    return damage


def flipped(data, at=-1):
    changed = bytearray(data)
    changed[at] ^= 0xFF
    return bytes(changed)


def compacted(base, log):
    """Leaves the files of a compaction that was interrupted after it had merged the first two segments and renamed the
    result to `.swap`."""
    first, second = offsets(log)[:2]
    scratch = base.with_name(f"{base.name}-compacted")
    (scratch / "t-0").mkdir(parents=True)
    (scratch / "t-0" / name(first, "log")).write_bytes(
        (log / name(first, "log")).read_bytes() + (log / name(second, "log")).read_bytes()
    )
    handle = PartitionHandle(LogDirectory(Environment(), str(scratch)), "t", 0, None, SETTINGS)
    log_loader.load(handle, str(scratch / "t-0"), clean=False)
    handle.shut()
    for suffix in ("log", "index", "timeindex", "txnindex"):
        (scratch / "t-0" / name(first, suffix)).rename(log / name(first, f"{suffix}.swap"))


def half_split(base, log):
    second = offsets(log)[1]
    for suffix in ("log.swap", "log.cleaned", "index.cleaned"):
        (log / name(second, suffix)).write_bytes(b"half")


def empty_last(base, log):
    (log / name(40, "log")).write_bytes(b"")
    (log / name(40, "index")).write_bytes(b"")
    (log / name(40, "timeindex")).write_bytes(b"")


def overlapping(base, log):
    """Makes the first segment contain the records of the second one too, so that the two segments overlap."""
    first, second = offsets(log)[:2]
    (log / name(first, "log")).write_bytes(
        (log / name(first, "log")).read_bytes() + (log / name(second, "log")).read_bytes()
    )


def torn_snapshots(base, log):
    for path in log.glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-3])


def nothing(base, log):
    """Changes no file."""


def long_ago(base, log):
    """Makes the first segment's file old. A lookup by time uses a segment file's modification time if the segment has
    no timestamps."""
    os.utime(log / name(0, "log"), (1, 1))


def with_gaps(base_offset, now_ms, deltas, last_delta, producer_id=-1):
    """Returns a batch as compaction leaves it: with the records at `deltas`, or empty if it is the last batch of an
    idempotent producer."""
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": base_offset} if producer_id >= 0 else {}
    builder = RecordBatchBuilder(base_offset=base_offset, partition_leader_epoch=3, **fields)
    for delta in deltas or [0]:
        builder.append(now_ms + base_offset + delta, b"k%d" % delta, b"v" * 100, offset_delta=delta)
    data = bytearray(builder.build())
    if not deltas:
        data = data[:61]
        struct.pack_into(">i", data, 8, 49)
        struct.pack_into(">i", data, 57, 0)
    struct.pack_into(">i", data, 23, last_delta)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def cleaned_records(now_ms):
    first = with_gaps(3, now_ms, [1, 4], 6) + with_gaps(10, now_ms, [], 4, IDEMPOTENT)
    second = with_gaps(25, now_ms, [0, 9], 9, IDEMPOTENT) + with_gaps(38, now_ms, [], 1, COMMITTED)
    return {0: first, 20: second}


def old_messages(magic, codec, offset, now_ms):
    """Returns three messages of magic 0 or 1. If they are compressed, the wrapper message has the offset of the last
    one (KIP-31)."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 16)
    for i in range(3):
        at = i if codec and magic else offset + i
        builder.append(at, now_ms + offset + i, b"key", b"value %d" % (offset + i))
    data = bytearray(builder.build())
    if codec:
        struct.pack_into(">q", data, 0, offset + 2)
    return bytes(data)


def old_records(now_ms):
    codecs = (0, 1, 2, 0)  # magic 0 does not support lz4
    first = b"".join(old_messages(0, codec, 3 * at, now_ms) for at, codec in enumerate(codecs))
    second = b"".join(old_messages(1, codec, 12 + 3 * codec, now_ms) for codec in range(4))
    return {0: first, 12: second, 24: batch(24, now_ms, count=16)}


EPOCHS_AHEAD = "0\n4\n0 0\n3 16\n5 41\n9 77\n"
OFFLINE = "Apache Kafka takes the directory offline; our node ignores the checkpoint and checks the whole log"

ROWS = [
    Row("nothing amiss", nothing),
    Row("no `.kafka_cleanshutdown`", nothing, clean=False),
    Row("no `.kafka_cleanshutdown` and no checkpoint", unsynced(), clean=False),
    Row(
        "`.log.deleted`, `.index.deleted`, `.timeindex.deleted`, `.txnindex.deleted`, `.snapshot.deleted`",
        writes(*(name(0, f"{suffix}.deleted") for suffix in ("log", "index", "timeindex", "txnindex", "snapshot"))),
        gone=("*.deleted",),
    ),
    Row("`.cleaned`", writes(name(0, "log.cleaned"), name(0, "index.cleaned")), gone=("*.cleaned",)),
    Row("`.swap`", compacted, gone=("*.swap",)),
    Row("`.swap` after a crash", compacted, clean=False, gone=("*.swap",)),
    Row("`.swap` at or behind a `.cleaned`", half_split, gone=("*.swap", "*.cleaned")),
    Row("`.index.swap` alone", writes(name(0, "index.swap"), content=b""), gone=("*.swap",)),
    Row(
        "an index without its segment",
        writes(name(3, "index"), name(3, "timeindex"), name(3, "txnindex")),
        gone=(f"{3:020d}.*",),
    ),
    Row("a segment without `.index`", removes("*.index")),
    Row(
        "a segment without `.timeindex`",
        removes("*.timeindex"),
        differs=frozenset({"times"}),
        why="Apache Kafka makes an empty one, and most lookups by time find nothing",
    ),
    Row("no `.txnindex`, after a crash", unsynced(removes("*.txnindex")), clean=False),
    Row("an index with a partial last entry", last("index", lambda data: data + b"\x00" * 3)),
    Row(
        "a time index with a partial last entry",
        last("timeindex", lambda data: data[:-5]),
        differs=frozenset({"times"}),
        why="Apache Kafka loses the largest timestamp",
    ),
    Row(
        "indexes that end with preallocated zeros, after a crash",
        each(last("index", lambda data: data + bytes(8000)), last("timeindex", lambda data: data + bytes(12000))),
        clean=False,
    ),
    Row("an index of a sealed segment with a partial last entry", middle("index", lambda data: data + b"\x00" * 3)),
    Row("a transaction index that holds garbage", middle("txnindex", lambda data: b"\xff" * 34)),
    Row(
        "a transaction index cut short",
        middle("txnindex", lambda data: data[:-3]),
        differs=frozenset({"aborted"}),
        why="Apache Kafka takes the transaction at the cut for a committed one",
    ),
    Row("a torn last batch, after a crash", last("log", lambda data: data[:-20]), clean=False, end=38),
    Row("zeros behind the last batch, after a crash", last("log", lambda data: data + bytes(4096)), clean=False),
    Row("garbage behind the last batch, after a crash", last("log", lambda data: data + b"\xa5" * 999), clean=False),
    Row("a broken batch within the log, after a crash", unsynced(middle("log", flipped)), clean=False, end=None),
    Row(
        "a recovery point beyond the end of the log, after a crash",
        lambda base, log: checkpoint(base, checkpoints.RECOVERY_POINT, 900),
        clean=False,
    ),
    Row(
        "a recovery point within the log, after a crash",
        lambda base, log: checkpoint(base, checkpoints.RECOVERY_POINT, 13),
        clean=False,
    ),
    Row(
        "a torn `recovery-point-offset-checkpoint`, after a crash",
        lambda base, log: (base / checkpoints.RECOVERY_POINT).write_bytes(b"0\n1\nt 0"),
        clean=False,
        differs=frozenset({"all"}),
        why=OFFLINE,
    ),
    Row(
        "a torn `replication-offset-checkpoint`",
        lambda base, log: (base / checkpoints.REPLICATION_OFFSET).write_bytes(b"0\n7\nt 0 1\n"),
    ),
    Row(
        "a torn `log-start-offset-checkpoint`",
        lambda base, log: (base / checkpoints.LOG_START_OFFSET).write_bytes(b"garbage"),
        differs=frozenset({"all"}),
        why=OFFLINE,
    ),
    Row(
        "a high watermark beyond the end of the log",
        lambda base, log: checkpoint(base, checkpoints.REPLICATION_OFFSET, 900),
    ),
    Row(
        "a log start within a batch",
        lambda base, log: checkpoint(base, checkpoints.LOG_START_OFFSET, 9),
        differs=frozenset({"times"}),
        why="Apache Kafka's lookup by time ends at the first segment with a timestamp late enough; ours finds a record",
    ),
    Row(
        "a log start beyond the end of the log",
        lambda base, log: checkpoint(base, checkpoints.LOG_START_OFFSET, 900),
        end=900,
        differs=frozenset({"segments"}),
        why="Apache Kafka makes an empty segment at once, our node at the first append",
    ),
    Row(
        "`leader-epoch-checkpoint` beyond the end of the log",
        lambda base, log: (log / checkpoints.LEADER_EPOCH).write_text(EPOCHS_AHEAD),
    ),
    Row(
        "`leader-epoch-checkpoint` beyond the end of the log, after a crash",
        each(
            lambda base, log: (log / checkpoints.LEADER_EPOCH).write_text(EPOCHS_AHEAD),
            lambda base, log: checkpoint(base, checkpoints.RECOVERY_POINT, 30),
        ),
        clean=False,
    ),
    Row(
        "`leader-epoch-checkpoint` that begins after the log start, after a crash",
        lambda base, log: (log / checkpoints.LEADER_EPOCH).write_text("0\n1\n3 30\n"),
        clean=False,
        differs=frozenset({"epochs"}),
        why="Apache Kafka does not know the epochs of records that come back after a deletion",
    ),
    Row("no `leader-epoch-checkpoint`, after a crash", unsynced(removes(checkpoints.LEADER_EPOCH)), clean=False),
    Row(
        "an empty `leader-epoch-checkpoint`, after a crash",
        unsynced(writes(checkpoints.LEADER_EPOCH, content=b"")),
        clean=False,
    ),
    Row("torn producer snapshots", torn_snapshots),
    Row("torn producer snapshots, after a crash", torn_snapshots, clean=False),
    Row(
        "a producer snapshot behind the end of the log",
        writes(name(77, "snapshot"), content=b"x" * 56),
        gone=(name(77, "snapshot"),),
    ),
    Row("a producer snapshot without its segment", writes(name(3, "snapshot")), gone=(name(3, "snapshot"),)),
    Row("no producer snapshots", removes("*.snapshot")),
    Row("no producer snapshots, after a crash", removes("*.snapshot"), clean=False),
    Row("an empty last segment", empty_last),
    Row("an empty last segment, after a crash", empty_last, clean=False),
    Row("segments that overlap, after a crash", overlapping, clean=False),
    Row(
        "a segment that is missing",
        lambda base, log: [path.unlink() for path in log.glob(f"{offsets(log)[1]:020d}.*")],
        clean=False,
    ),
    Row(
        "a compacted log: gaps within and between batches, batches without records, after a crash",
        lambda base, log: checkpoint(base, checkpoints.CLEANER_OFFSET, 40),
        clean=False,
        records=cleaned_records,
        differs=frozenset({"times"}),
        why="Apache Kafka's lookup by time ends at a segment whose empty batch is late enough; ours finds a record",
    ),
    Row("messages of magic 0 and 1, compressed ones too, after a crash", long_ago, clean=False, records=old_records),
    Row("`.tmp` of a file that was about to be replaced", writes(f"{checkpoints.LEADER_EPOCH}.tmp")),
    Row("no `partition.metadata`", removes("partition.metadata")),
    Row(
        "a directory `-delete`",
        lambda base, log: log.with_name("gone-0.0123456789abcdef0123456789abcdef-delete").mkdir(),
    ),
    Row(
        "a directory `-stray`",
        lambda base, log: log.with_name("gone-0.0123456789abcdef0123456789abcdef-stray").mkdir(),
    ),
]  # fmt: skip


def described(base, now_ms):
    """Describes what clients see in each log of the directory, in the format of LogJudge.java."""
    manager = LogManager(Environment(), [str(base)], lambda topic: SETTINGS)
    manager.load()
    found = [describe(handle, now_ms) for handle in manager]
    manager.close()
    return found


def describe(handle, now_ms):
    handle.become_leader(1, max([epoch for epoch, _ in handle.leader_epochs()] + [0]) + 1)
    epochs = handle.leader_epochs()[:-1]
    seen, offset = [], handle.log_start_offset
    while offset < handle.end_offset:
        before = offset
        for one in Batches(handle.read(offset, 1 << 30).records):
            seen.append(f"{one.magic}:{one.last_offset}:{one.size_bytes}")
            offset = one.next_offset
        if offset == before:
            break
    aborted, offset = set(), handle.log_start_offset
    while offset < handle.last_stable_offset:
        found = handle.read(offset, 1 << 30, isolation=1)
        aborted.update(found.aborted)
        before = offset
        for one in Batches(found.records):
            offset = one.next_offset
        if offset == before:
            break
    times = [handle.offset_by_time(now_ms + ago, handle.end_offset) for ago in range(0, 41, 5)]
    times.append(handle.offset_of_max_timestamp())
    return " ".join(
        (
            f"log={handle.topic}-{handle.index}",
            f"start={handle.log_start_offset}",
            f"end={handle.end_offset}",
            f"stable={handle.last_stable_offset}",
            "segments=" + ",".join(str(segment.base_offset) for segment in handle.segments()),
            "epochs=" + ",".join(f"{epoch}:{start}" for epoch, start in epochs),
            "producers=" + ",".join(sorted(
                f"{one.producer_id}:{one.producer_epoch}:{one.last_sequence}:{one.transaction_first_offset}"
                for one in sorted(producer_states(handle))
            )),
            "aborted=" + ",".join(sorted(f"{producer_id}:{first}" for producer_id, first in aborted)),
            "batches=" + ",".join(seen),
            "times=" + ",".join(f"{at}@{ms}" if at >= 0 else "-" for at, ms, _ in times),
        )
    )  # fmt: skip
