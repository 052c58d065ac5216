"""The tables of `kafkacore-log`, read from the directory of a real node without a JVM."""

import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

pa = pytest.importorskip("pyarrow", reason="no PyArrow: pip install kafkacore[spark], or ci/spark.sh")
pytest.importorskip("pyspark", reason="no PySpark: pip install kafkacore[spark], or ci/spark.sh")

from pyspark.sql import datasource  # noqa: E402

from kafkacore._fast.record.batch import CorruptBatchError  # noqa: E402
from kafkacore.spark.errors import ChangingDirectoryError, OptionError, SchemaError  # noqa: E402
from kafkacore.spark.log import layout, scanning  # noqa: E402
from kafkacore.testing import Broker  # noqa: E402
from log_tables import rows, table  # noqa: E402
from processes import wait_until  # noqa: E402
from segments import crc32c  # noqa: E402

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 500
SEGMENT = "00000000000000000000.log"
needs_filters = pytest.mark.skipif(not hasattr(datasource, "GreaterThanOrEqual"), reason="filters need PySpark 4.1")


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory):
    """Returns the log directory of a node that has stopped."""
    home = tmp_path_factory.mktemp("node")
    topics = dict.fromkeys(CODECS, 2) | {"headers": 1, "rolled": 1}
    with Broker(directory=home, topics=topics, configs={"log.index.interval.bytes": "4096"}) as broker:
        broker.create_topic("small", configs={"segment.bytes": 1 << 20})
        for codec in CODECS:
            # The producer leaves a batch of one record uncompressed. So it learns the partitions first,
            # and sends at flush() only: a record without a partition would reach its batch at any time.
            producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 60_000})
            assert producer.list_topics(codec, 30).topics[codec].error is None
            for number in range(COUNT):
                producer.produce(codec, str(number), None if number % 7 == 0 else b"k%d" % number, partition=number % 2)
            producer.flush(30)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1})
        for number in range(3000):
            producer.produce("small", bytes(1000), partition=0, timestamp=1_000_000 + number)
            producer.poll(0)
        producer.produce("headers", b"v", headers=[("a", b"1"), ("b", None)])
        producer.produce("headers", None, b"gone")
        producer.flush(30)
        group = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        group.commit(offsets=[TopicPartition("gzip", 0, 17)], asynchronous=False)
        group.close()
        (found,) = broker.node.config.all_log_dirs
    return Path(found)


@pytest.fixture
def copied(log_dir, tmp_path):
    """Returns a copy of the log directory that a test may damage."""
    return Path(shutil.copytree(log_dir, tmp_path / "copy"))


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_those_that_were_written_with_each_codec(log_dir, codec):
    found = rows(log_dir, topics=codec)
    assert sorted(int(row["value"]) for row in found) == list(range(COUNT))
    assert all(row["key"] == (None if int(row["value"]) % 7 == 0 else b"k" + row["value"]) for row in found)
    assert {(row["broker"], row["topic"], row["problem"]) for row in found} == {(1, codec, None)}
    for partition in (0, 1):
        ordered = [row["offset"] for row in found if row["partition"] == partition]
        assert ordered == list(range(COUNT // 2))


def test_headers_are_read_when_they_are_asked_for(log_dir):
    assert "headers" not in table(log_dir, topics="headers").schema.names
    found = rows(log_dir, topics="headers", includeHeaders="true")
    assert [row["headers"] for row in found] == [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None]
    assert found[1]["value"] is None and found[1]["key"] == b"gone"


def test_large_segment_is_split_where_its_index_has_entries(log_dir):
    whole = table(log_dir, topics="small", columns="offset")
    from kafkacore.spark.log.layout import log_directories, replicas, segments
    from kafkacore.spark.log.splits import splits
    from kafkacore.storage.names import Kind

    ((log, _),) = log_directories([str(log_dir)])
    (replica,) = [each for each in replicas(log, None, {Kind.LIVE}) if each.topic == "small"]
    listed = segments(replica)
    assert len(listed) > 2 and [segment.active for segment in listed] == [False] * (len(listed) - 1) + [True]
    parts = [part for segment in listed for part in splits(segment, 100_000)]
    assert len(parts) > 2 * len(listed)
    assert whole.column("offset").to_pylist() == list(range(3000))


def test_batches_show_headers_and_positions(log_dir):
    found = rows(log_dir, "batches", topics="zstd")
    assert {(row["codec"], row["crcOk"], row["control"], row["magic"], row["kind"]) for row in found} == {
        ("zstd", True, False, 2, "live")
    }
    assert sum(row["recordCount"] for row in found) == COUNT
    for row in found:
        data = (log_dir / row["file"]).read_bytes()[row["position"] :]
        assert int.from_bytes(data[:8], "big") == row["baseOffset"]
        assert int.from_bytes(data[17:21], "big") == row["crc"]


def test_groups_show_commits(log_dir):
    (found,) = [row for row in rows(log_dir, "groups") if row["type"] == "offset"]
    shown = (found["group"], found["topic"], found["topicPartition"], found["committedOffset"], found["metadata"])
    assert shown == ("readers", "gzip", 0, 17, "")


def test_transactions_show_the_states_of_a_transaction(apache_kafka):
    broker = apache_kafka("apache-4.3")
    producer = Producer({
        "bootstrap.servers": broker.bootstrap, "transactional.id": "orders", "transaction.timeout.ms": 12_345,
        "log_level": 0,
    })  # fmt: skip
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("written-in-transactions", b"v")
        producer.flush(30)
        end(30)

    def states():
        found = [row for row in rows(broker.log_dir, "transactions") if row["transactionalId"] == "orders"]
        assert {row["timeoutMs"] for row in found} == {12_345}
        assert {row["tombstone"] for row in found} == {False}
        assert {row["problem"] for row in found} == {None}
        assert all(row["producerId"] >= 0 and row["producerEpoch"] >= 0 for row in found)
        return [row["state"] for row in found]

    # The coordinator writes a transaction's last state after its answer to the client.
    wait_until(lambda: "CompleteAbort" in states(), what="the last state of the second transaction")
    assert [state for state in states() if state != "Ongoing"] == [
        "Empty", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort",
    ]  # fmt: skip


def test_groups_and_lag_history_tell_commits_of_aborted_transactions(apache_kafka, spark):
    from kafkacore.spark.log.tables import SCHEMAS
    from kafkacore.spark.pipelines.lag_history import commits

    broker = apache_kafka("apache-4.3")
    group = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "in-transactions", "log_level": 0})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "commits", "log_level": 0})
    producer.init_transactions(30)
    for offset, end in ((5, producer.commit_transaction), (6, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce("input", b"v")
        producer.flush(30)
        member = group.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition("input", 0, offset)], member, 30)
        end(30)
    group.close()

    def found():
        shown = table(broker.log_dir, "groups")
        return [row for row in shown.to_pylist() if row["group"] == "in-transactions" and row["type"] == "offset"]

    wait_until(lambda: any(row["aborted"] for row in found()), what="the marker of the second transaction")
    assert [(row["committedOffset"], row["aborted"]) for row in found()] == [(5, False), (6, True)]
    schema = SCHEMAS["groups"]
    frame = spark.createDataFrame([tuple(row[name] for name in schema.names) for row in found()], schema)
    assert [row.committedOffset for row in commits(frame).collect()] == [5]


def test_metadata_shows_topics_and_partitions(log_dir):
    found = rows(log_dir, "metadata")
    assert set(CODECS) <= {row["name"] for row in found if row["type"] == "TOPIC_RECORD"}
    partitions = [row for row in found if row["type"] == "PARTITION_RECORD"]
    assert all(row["leader"] == 1 and row["isr"] == [1] and row["replicas"] == [1] for row in partitions)
    assert any(row["control"] and row["type"] == "LeaderChange" for row in found)


def test_checkpoints_segments_and_indexes_are_tables(log_dir):
    marks = rows(log_dir, "checkpoints")
    high = {
        (row["topic"], row["partition"]): row["offset"]
        for row in marks
        if row["type"] == "replication-offset-checkpoint"
    }
    assert high["gzip", 1] == COUNT // 2
    sizes = [row for row in rows(log_dir, "segments") if row["topic"] == "small"]
    assert all(row["sizeBytes"] == os.path.getsize(log_dir / row["file"]) for row in sizes) and len(sizes) > 2
    entries = [row for row in rows(log_dir, "indexes", topics="small") if row["type"] == "offset"]
    assert entries and all(row["position"] > 0 for row in entries)
    assert entries == rows(log_dir, "indexes", topics="small", indexTypes="offset")


def test_indexes_have_no_entries_when_their_files_are_only_preallocated(copied):
    directory = copied / "none-0"
    directory.joinpath("00000000000000000000.index").write_bytes(bytes(8 * 100))
    directory.joinpath("00000000000000000000.timeindex").write_bytes(bytes(12 * 100))
    assert rows(copied, "indexes", topics="none") == [
        row for row in rows(copied, "indexes", topics="none") if row["partition"] == 1
    ]


# --- damage ---


def flip(path, position):
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 0xFF]))


def test_wrong_checksum_is_an_error_that_names_file_and_offset(copied):
    second = rows(copied, "batches", topics="small")[1]
    flip(copied / second["file"], second["position"] + 80)
    with pytest.raises(
        CorruptBatchError, match=rf"{second['file']}: byte {second['position']}, the batch at offset 1: "
    ):
        rows(copied, topics="small")
    with pytest.raises(CorruptBatchError, match=rf"byte {second['position']}, the batch at offset 1: the checksum"):
        rows(copied, "batches", topics="small")


def test_wrong_checksum_is_a_row_and_the_other_records_are_read_when_rows_are_asked_for(copied):
    second = rows(copied, "batches", topics="small")[1]
    flip(copied / second["file"], second["position"] + 80)
    found = rows(copied, topics="small", onCorrupt="rows")
    assert [row["offset"] for row in found if row["problem"] is None] == [0, *range(2, 3000)]
    (bad,) = [row for row in found if row["problem"] is not None]
    assert "the batch at offset 1" in bad["problem"] and bad["value"] is None
    headers = rows(copied, "batches", topics="small", onCorrupt="rows")
    assert [row["baseOffset"] for row in headers if not row["crcOk"]] == [1]


def overwrite(path, batch, at, data):
    """Overwrites bytes of a batch that its checksum covers, and corrects the checksum."""
    start, size = batch["position"], batch["sizeBytes"]
    whole = bytearray(path.read_bytes())
    whole[start + at : start + at + len(data)] = data
    whole[start + 17 : start + 21] = crc32c(whole[start + 21 : start + size]).to_bytes(4, "big")
    path.write_bytes(whole)


RECORD_COUNT_AT, LAST_OFFSET_DELTA_AT = 57, 23


@pytest.mark.parametrize(("at", "value", "reason"), [
    (RECORD_COUNT_AT, 2, "a record is malformed, or the number of records is wrong"),
    (LAST_OFFSET_DELTA_AT, -1, "its offsets are impossible"),
])  # fmt: skip
def test_records_after_a_batch_are_read_when_its_checksum_is_right_and_its_records_are_not(copied, at, value, reason):
    found = rows(copied, "batches", topics="small")
    path = copied / found[0]["file"]
    for number in (3, 4, 7):
        overwrite(path, found[number], at, value.to_bytes(4, "big", signed=True))
    shown = rows(copied, topics="small", onCorrupt="rows")
    problems = [row["problem"] for row in shown if row["problem"] is not None]
    assert problems == [
        f"{path}: byte {found[number]['position']}, the batch at offset {number}: {reason}" for number in (3, 4, 7)
    ]
    others = [row["offset"] for row in shown if row["problem"] is None and row["offset"] not in (3, 4, 7)]
    assert others == [offset for offset in range(3000) if offset not in (3, 4, 7)]
    with pytest.raises(
        CorruptBatchError, match=f"{path}: byte {found[3]['position']}, the batch at offset 3: {reason}"
    ):
        rows(copied, topics="small")


def test_metadata_after_a_batch_is_read_when_its_checksum_is_right_and_its_records_are_not(copied):
    before = rows(copied, "metadata")
    found = [row for row in rows(copied, "batches", topics="__cluster_metadata") if not row["control"]]
    bad = next(row for row in found if row["recordCount"] == 1)
    path = copied / bad["file"]
    overwrite(path, bad, RECORD_COUNT_AT, (2).to_bytes(4, "big"))
    shown = rows(copied, "metadata", onCorrupt="rows")
    (problem,) = [row["problem"] for row in shown if row["problem"] is not None]
    assert problem.startswith(f"{path}: byte {bad['position']}, the batch at offset {bad['baseOffset']}: record 1 of")
    offsets = {row["offset"] for row in before if row["file"] == bad["file"]}
    assert {row["offset"] for row in shown if row["file"] == bad["file"] and row["problem"] is None} == offsets


def test_metadata_after_a_control_record_is_read_when_its_content_is_unreadable(copied):
    before = rows(copied, "metadata")
    bad = next(row for row in rows(copied, "batches", topics="__cluster_metadata") if row["control"])
    path = copied / bad["file"]
    start, leader_change = bad["position"], b"\0\0\0\2"
    value = path.read_bytes().index(leader_change, start + 61) + len(leader_change) + 1 - start  # after its length
    overwrite(path, bad, value, (99).to_bytes(2, "big"))
    shown = rows(copied, "metadata", onCorrupt="rows")
    (problem,) = [row["problem"] for row in shown if row["problem"] is not None]
    assert problem.startswith(f"{path}: byte {bad['position']}, the batch at offset {bad['baseOffset']}: ")
    assert len(shown) == len(before) - bad["recordCount"] + 1
    with pytest.raises(CorruptBatchError, match=str(path)):
        rows(copied, "metadata")


def test_torn_tail_of_the_active_segment_is_the_end(copied):
    path = max((copied / "small-0").glob("*.log"))
    os.truncate(path, path.stat().st_size - 10)
    assert [row["offset"] for row in rows(copied, topics="small")] == list(range(2999))


@pytest.mark.parametrize("name", ["records", "batches"])
def test_preallocated_space_is_the_end_of_the_active_segment_only(copied, name):
    *_, sealed, active = sorted((copied / "small-0").glob("*.log"))
    before = rows(copied, name, topics="small")
    with active.open("ab") as file:
        file.write(bytes(1 << 20))
    assert rows(copied, name, topics="small") == before
    with sealed.open("ab") as file:
        file.write(bytes(1 << 20))
    with pytest.raises(CorruptBatchError, match=str(sealed)):
        rows(copied, name, topics="small")


def test_torn_tail_of_another_segment_is_damage(copied):
    first, second, *_ = sorted((copied / "small-0").glob("*.log"))
    os.truncate(first, first.stat().st_size - 10)
    with pytest.raises(CorruptBatchError, match=rf"{first}: byte \d+: the last \d+ bytes are not a whole batch"):
        rows(copied, topics="small")
    found = rows(copied, topics="small", onCorrupt="rows")
    missing = set(range(3000)) - {row["offset"] for row in found}
    assert missing == {int(second.stem) - 1}
    assert [row["problem"] for row in rows(copied, "batches", topics="small", onCorrupt="rows") if row["problem"]]


def test_garbage_in_a_segment_ends_it_with_one_row(copied):
    path = min((copied / "small-0").glob("*.log"))
    with open(path, "ab") as file:
        file.write(b"\xff" * 200)
    found = rows(copied, topics="small", onCorrupt="rows")
    assert sum(row["problem"] is not None for row in found) == 1
    assert sum(row["problem"] is None for row in found) == 3000


def test_segment_is_read_under_its_new_name_when_retention_renames_it(copied):
    from kafkacore.spark.log.options import log_options
    from kafkacore.spark.log.reading import LogReader
    from kafkacore.spark.log.tables import SCHEMAS

    reader = LogReader(log_options({"path": str(copied), "topics": "small"}), SCHEMAS["records"])
    tasks = reader.partitions()
    first, second, *_ = sorted((copied / "small-0").glob("*.log"))
    first.rename(f"{first}.deleted")
    second.unlink()
    found = [row["offset"] for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    assert found[0] == 0 and int(second.stem) not in found and found[-1] == 2999


def test_batches_are_read_under_the_new_name_when_the_segment_is_renamed_before_it_is_opened(copied, monkeypatch):
    from kafkacore.spark.log import batches

    first = min((copied / "small-0").glob("*.log"))

    def open_late(path, *args, **kwargs):
        if first.exists():
            first.rename(f"{first}.deleted")
        return open(path, *args, **kwargs)

    monkeypatch.setattr(batches, "open", open_late, raising=False)
    assert [row["baseOffset"] for row in rows(copied, "batches", topics="small")] == list(range(3000))


def test_swapped_segment_takes_the_place_of_those_that_it_replaces(copied):
    first, second, third, *_ = sorted((copied / "small-0").glob("*.log"))
    merged = first.read_bytes() + second.read_bytes()
    Path(f"{first}.swap").write_bytes(merged)
    assert [row["offset"] for row in rows(copied, topics="small")] == list(range(3000)), "before the swap"
    first.rename(f"{first}.deleted")
    assert [row["offset"] for row in rows(copied, topics="small")] == list(range(3000)), "during the swap"
    second.rename(f"{second}.deleted")
    assert [row["offset"] for row in rows(copied, topics="small")] == list(range(3000))
    assert int(third.stem)


def test_swapped_segment_is_read_when_the_first_of_those_that_it_replaces_still_exists(copied):
    first, second, *_ = sorted((copied / "small-0").glob("*.log"))
    Path(f"{first}.swap").write_bytes(first.read_bytes() + second.read_bytes())
    second.unlink()
    assert [row["offset"] for row in rows(copied, topics="small")] == list(range(3000))


def test_directories_of_other_kinds_are_read_when_they_are_included(copied):
    shutil.copytree(copied / "lz4-0", copied / f"lz4-0.{'0' * 32}-stray")
    assert len(rows(copied, topics="lz4")) == COUNT
    kinds = [row["kind"] for row in rows(copied, "batches", topics="lz4", include="stray")]
    assert set(kinds) == {"live", "stray"}


def test_files_that_the_cleaner_is_writing_are_not_read(copied):
    first, second, *_ = sorted((copied / "small-0").glob("*.log"))
    Path(f"{first}.cleaned").write_bytes(compacted(first, odd) + compacted(second, odd))
    Path(f"{first.with_suffix('.index')}.cleaned").write_bytes(b"")
    for name, column in (("records", "offset"), ("batches", "baseOffset")):
        assert [row[column] for row in rows(copied, name, topics="small")] == list(range(3000))
    assert all(row["file"].endswith(".log") for row in rows(copied, "segments", topics="small"))


def test_file_that_retention_is_deleting_is_not_listed(copied):
    first, second, *_ = sorted((copied / "small-0").glob("*.log"))
    first.rename(f"{first}.deleted")
    expected = list(range(int(second.stem), 3000))
    for name, column in (("records", "offset"), ("batches", "baseOffset")):
        assert [row[column] for row in rows(copied, name, topics="small")] == expected
    assert min(row["baseOffset"] for row in rows(copied, "segments", topics="small")) == int(second.stem)


@pytest.mark.parametrize("kind", ["future", "delete", "stray"])
def test_directory_of_another_kind_is_read_only_when_it_is_included(copied, kind):
    shutil.copytree(copied / "lz4-0", copied / f"lz4-0.{'0' * 32}-{kind}")
    for name in ("records", "batches", "segments"):
        alone, both = rows(copied, name, topics="lz4"), rows(copied, name, topics="lz4", include=kind)
        added = len(rows(copied / "lz4-0", name))
        assert len(both) == len(alone) + added > len(alone)
        assert "kind" not in both[0] or {row["kind"] for row in both} == {"live", kind}


def test_directory_of_another_kind_is_read_when_it_is_the_path(copied):
    moved = copied / f"lz4-0.{'0' * 32}-future"
    (copied / "lz4-0").rename(moved)
    assert {row["kind"] for row in rows(moved, "batches")} == {"future"}
    assert len(rows(moved)) == COUNT // 2


def test_table_has_each_record_once_when_a_directory_is_renamed_while_it_is_read(copied):
    reader, tasks = planned(copied, "records")
    before = task_offsets(reader, tasks[0])
    (copied / "small-0").rename(copied / f"small-0.{'0' * 32}-delete")
    after = [offset for task in tasks[1:] for offset in task_offsets(reader, task)]
    assert after == []  # the topic was deleted
    assert before == list(range(len(before)))


# --- replicas that move to another directory ---

MOVING = f"small-0.{'0' * 32}-future"


@pytest.fixture
def moving(copied, tmp_path):
    """Returns two log directories of a broker, which has copied the replica of the topic `small` to the second one."""
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(copied / "meta.properties", other)
    shutil.copytree(copied / "small-0", other / MOVING)
    return copied, other


def finish_move(source, target):
    (target / MOVING).rename(target / "small-0")
    (source / "small-0").rename(source / f"small-0.{'0' * 32}-delete")


def happens_during_listing(monkeypatch, path, when, work):
    """Makes `work` happen once, right before or right after the directories in `path` are listed."""
    list_directory, done = os.listdir, []

    def list_then_work(at):
        if Path(at) != path or done:
            return list_directory(at)
        done.append(path)
        if when == "before":
            work()
        found = list_directory(at)
        if when == "after":
            work()
        return found

    monkeypatch.setattr(os, "listdir", list_then_work)


@pytest.mark.parametrize(("first", "when"), [(0, "before"), (0, "after"), (1, "before"), (1, "after")])
@pytest.mark.parametrize(("name", "column"), [("records", "offset"), ("batches", "baseOffset")])
def test_table_has_each_record_once_when_a_replica_moves_during_the_listing(
    moving, monkeypatch, first, when, name, column
):
    source, target = moving
    paths = f"{moving[first]},{moving[1 - first]}"
    happens_during_listing(monkeypatch, target, when, lambda: finish_move(source, target))
    assert [row[column] for row in rows(paths, name, topics="small")] == list(range(3000))


def test_table_has_each_record_once_when_a_replica_moves_while_its_segments_are_listed(moving, monkeypatch):
    source, target = moving
    happens_during_listing(monkeypatch, source / "small-0", "before", lambda: finish_move(source, target))
    found = rows(f"{source},{target}", columns="offset", topics="small")
    assert [row["offset"] for row in found] == list(range(3000))


def test_table_has_each_record_once_when_the_listing_falls_between_the_two_renames(moving, monkeypatch):
    source, target = moving
    (target / MOVING).rename(target / "small-0")
    deleted = source / f"small-0.{'0' * 32}-delete"
    monkeypatch.setattr(time, "sleep", lambda seconds: (source / "small-0").rename(deleted))
    found = rows(f"{source},{target}", columns="offset", topics="small")
    assert [row["offset"] for row in found] == list(range(3000))


def test_table_has_both_copies_when_two_directories_hold_a_live_replica_of_one_broker(moving):
    source, target = moving
    (target / MOVING).rename(target / "small-0")
    assert len(rows(f"{source},{target}", columns="offset", topics="small")) == 6000


def test_future_log_is_read_beside_the_current_one_when_it_is_included(moving):
    source, target = moving
    found = rows(f"{source},{target}", "segments", topics="small", include="future")
    assert {(row["directory"], row["kind"]) for row in found} == {(str(source), "live"), (str(target), "future")}


# --- filters on timestamps ---


BASE_TIMESTAMP_AT = 27
FIRST_MS = 1_000_000  # the timestamp of the first record of the topic `small`; each later record is 1 ms later


def filtered(path, name, column, since_ms, **changes):
    """Returns the reader of a table of the topic `small` that got a filter on timestamps, and its tasks."""
    from pyspark.sql.datasource import GreaterThanOrEqual

    from kafkacore.spark.log.options import log_options
    from kafkacore.spark.log.tables import SCHEMAS
    from kafkacore.spark.log.times import FilteringLogReader

    options = log_options({"path": str(path), "table": name, "topics": "small", "pushFilters": "true"})
    reader = FilteringLogReader(options._replace(**changes), SCHEMAS[name])
    at = datetime.fromtimestamp(since_ms / 1000, UTC)
    given = [GreaterThanOrEqual((column,), at)]
    assert list(reader.pushFilters(given)) == given  # Spark still applies the filter
    return reader, reader.partitions()


def planned_bytes(tasks):
    return sum(task.split.end - task.split.start for task in tasks)


@needs_filters
@pytest.mark.parametrize(("name", "column"), [("records", "timestamp"), ("batches", "maxTimestamp")])
@pytest.mark.parametrize("split_bytes", [1 << 20, 100_000])
@pytest.mark.parametrize("wanted", [0, 1, 700, 1500, 2999, 5000])
def test_older_bytes_are_not_read_when_a_filter_asks_for_later_timestamps(log_dir, name, column, split_bytes, wanted):
    reader, tasks = filtered(log_dir, name, column, FIRST_MS + wanted, split_bytes=split_bytes)
    found = [offset for task in tasks for offset in task_offsets(reader, task)]
    assert found == list(range(3000 - len(found), 3000))
    assert set(range(wanted, 3000)) <= set(found)
    _, everything = planned(log_dir, name)
    # A topic index has an entry every 4 KiB, and a record is 1 KiB. The last segment keeps its last records.
    assert planned_bytes(tasks) <= planned_bytes(everything) * max(3000 - wanted, 0) / 3000 + 3 * 4096


@needs_filters
def test_batch_is_found_by_its_base_timestamp_when_this_is_later_than_its_records(copied):
    # The batches of a broker that sets LogAppendTime, and of the cleaner, can look like this.
    first = rows(copied, "batches", topics="small")[0]
    overwrite(copied / first["file"], first, BASE_TIMESTAMP_AT, (FIRST_MS + 9000).to_bytes(8, "big"))
    reader, tasks = filtered(copied, "batches", "baseTimestamp", FIRST_MS + 8000)
    assert 0 in [offset for task in tasks for offset in task_offsets(reader, task)]


@needs_filters
@pytest.mark.parametrize("damage", ["missing", "empty", "of another log"])
def test_everything_is_read_when_an_index_cannot_be_used(copied, damage):
    for number, suffix in enumerate((".timeindex", ".index")):
        for path in sorted((copied / "small-0").glob(f"*{suffix}"))[number::2]:
            if damage == "missing":
                path.unlink()
            elif damage == "empty":
                path.write_bytes(b"")
            else:
                path.write_bytes(bytes(reversed(path.read_bytes())))
    reader, tasks = filtered(copied, "records", "timestamp", FIRST_MS + 1500)
    found = [offset for task in tasks for offset in task_offsets(reader, task)]
    assert set(range(1500, 3000)) <= set(found)
    assert len(found) == len(set(found))


@needs_filters
def test_no_wanted_record_is_missing_when_the_cleaner_replaces_a_segment_after_the_planning(copied):
    first, second, third, *_ = sorted((copied / "small-0").glob("*.log"))
    wanted = int(second.stem) + 500
    reader, tasks = filtered(copied, "records", "timestamp", FIRST_MS + wanted)
    swap_in(first, compacted(first, odd) + compacted(second, odd), second)
    found = [offset for task in tasks for offset in task_offsets(reader, task)]
    expected = [offset for offset in range(wanted, 3000) if offset >= int(third.stem) or odd(offset)]
    assert [offset for offset in found if offset >= wanted] == expected
    assert len(found) == len(set(found))


# --- replaced files ---


def compacted(path, keep):
    """Returns the batches of a segment whose base offset `keep` accepts, as the cleaner would write them."""
    data, at, kept = path.read_bytes(), 0, []
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if keep(int.from_bytes(data[at : at + 8], "big")):
            kept.append(data[at:end])
        at = end
    return b"".join(kept)


def swap_in(path, data, *replaced):
    """Puts a new file in the place of a segment, and removes the other segments that it replaces."""
    swap = Path(f"{path}.swap")
    swap.write_bytes(data)
    for other in replaced:
        other.unlink()
    swap.rename(path)


def planned(path, name, split_bytes=100_000):
    """Returns the reader of a table of the topic `small`, and its tasks, several for each segment."""
    from kafkacore.spark.log.options import log_options
    from kafkacore.spark.log.reading import LogReader
    from kafkacore.spark.log.tables import SCHEMAS

    options = log_options({"path": str(path), "table": name, "topics": "small"})
    reader = LogReader(options._replace(split_bytes=split_bytes), SCHEMAS[name])
    return reader, reader.partitions()


def task_offsets(reader, task):
    column = "offset" if reader.options.table == "records" else "baseOffset"
    return [row[column] for batch in reader.read(task) for row in batch.to_pylist()]


def odd(offset):
    return offset % 2 == 1


@pytest.mark.parametrize("name", ["records", "batches"])
def test_table_has_each_kept_batch_once_when_the_cleaner_replaces_a_segment_by_a_smaller_one(copied, name):
    first, second, *_ = sorted((copied / "small-0").glob("*.log"))
    reader, tasks = planned(copied, name)
    swap_in(first, compacted(first, odd))
    found = [offset for task in tasks for offset in task_offsets(reader, task)]
    assert found == [offset for offset in range(3000) if offset >= int(second.stem) or odd(offset)]


@pytest.mark.parametrize("name", ["records", "batches"])
def test_table_has_each_kept_batch_once_when_the_cleaner_joins_segments(copied, name):
    first, second, third, *_ = sorted((copied / "small-0").glob("*.log"))
    reader, tasks = planned(copied, name)
    swap_in(first, first.read_bytes() + compacted(second, odd), second)
    found = [offset for task in tasks for offset in task_offsets(reader, task)]
    kept = range(int(second.stem), int(third.stem))
    assert found == [offset for offset in range(3000) if offset not in kept or odd(offset)]


@pytest.mark.parametrize("name", ["records", "batches"])
@pytest.mark.parametrize("early", [0, 1])
def test_table_has_no_kept_batch_missing_or_doubled_when_tasks_read_before_and_after_a_swap(copied, name, early):
    first, second, *_ = sorted((copied / "small-0").glob("*.log"))
    reader, tasks = planned(copied, name)
    before = {number: task_offsets(reader, tasks[number]) for number in range(early, len(tasks), 2)}
    swap_in(first, compacted(first, odd) + compacted(second, odd), second)
    found = sorted(
        offset
        for number, task in enumerate(tasks)
        for offset in (before[number] if number in before else task_offsets(reader, task))
    )
    assert len(found) == len(set(found))
    assert set(range(1, 3000, 2)) <= set(found)


def test_table_has_the_listed_records_when_the_replaced_file_still_has_its_name_for_deletion(copied):
    first, *_ = sorted((copied / "small-0").glob("*.log"))
    reader, tasks = planned(copied, "records")
    kept = compacted(first, odd)
    first.rename(f"{first}.deleted")
    first.write_bytes(kept)
    assert [offset for task in tasks for offset in task_offsets(reader, task)] == list(range(3000))


def happens_before(monkeypatch, module, name, path, work):
    """Makes `work` happen once, right before `module.name` looks at `path`. Returns a list that then has an entry."""
    look, list_directory, done = getattr(module, name), os.listdir, []

    def look_late(at, *arguments, **more):
        if Path(at) == path and not done:
            done.append(path)
            work()
        return look(at, *arguments, **more)

    monkeypatch.setattr(module, name, look_late)
    monkeypatch.setattr(os, "listdir", lambda at: sorted(list_directory(at), reverse=True))  # later segments first
    return done


def test_table_has_each_record_once_when_the_cleaner_joins_segments_during_the_listing(copied, monkeypatch):
    first, second, *_ = sorted((copied / "small-0").glob("*.log"))

    def join():
        Path(f"{first}.swap").write_bytes(first.read_bytes() + second.read_bytes())
        second.rename(f"{second}.deleted")
        Path(f"{first}.swap").rename(first)

    done = happens_before(monkeypatch, os, "stat", first, join)
    assert [row["offset"] for row in rows(copied, topics="small", columns="offset")] == list(range(3000))
    assert done


def test_table_has_each_record_once_when_a_swap_file_gets_its_name_during_the_listing(copied, monkeypatch):
    first, second, *_ = sorted((copied / "small-0").glob("*.log"))
    swap = Path(f"{first}.swap")
    swap.write_bytes(first.read_bytes() + second.read_bytes())

    def finish():
        second.rename(f"{second}.deleted")
        swap.rename(first)

    done = happens_before(monkeypatch, layout, "_end_offset", swap, finish)
    assert [row["offset"] for row in rows(copied, topics="small", columns="offset")] == list(range(3000))
    assert done


def happens_after_each_look(monkeypatch, work):
    """Makes `work` happen after each look at the files of a replica. The pauses between looks last no time. Returns a
    list with an entry for each look."""
    look, done = layout._look, []

    def look_then_work(replica):
        assert len(done) < 1000
        seen = look(replica)
        done.append(replica.path)
        work(len(done))
        return seen

    monkeypatch.setattr(layout, "_look", look_then_work)
    monkeypatch.setattr(layout.time, "sleep", lambda seconds: None)
    return done


def test_error_says_what_to_do_when_the_cleaner_replaces_segments_during_every_look(copied, monkeypatch):
    _, second, *_ = sorted((copied / "small-0").glob("*.log"))
    data = second.read_bytes()
    happens_after_each_look(monkeypatch, lambda number: swap_in(second, data))
    with pytest.raises(ChangingDirectoryError, match=r"small-0: the cleaner replaced segments .* stop the broker"):
        rows(copied, topics="small", columns="offset")


def test_table_has_the_first_kept_record_first_when_segments_come_and_go_during_every_look(copied, monkeypatch):
    logs = sorted((copied / "small-0").glob("*.log"))
    second = int(logs[1].stem)

    def retain_and_roll(number):
        if number == 1:
            logs[0].rename(f"{logs[0]}.deleted")
        (copied / "small-0" / f"{3000 + number:020}.log").touch()

    looks = happens_after_each_look(monkeypatch, retain_and_roll)
    assert [row["offset"] for row in rows(copied, topics="small", columns="offset")] == list(range(second, 3000))
    assert len(looks) == 2


def test_error_says_what_to_do_when_a_segment_has_another_name_after_every_look(copied, monkeypatch):
    first, *_ = sorted((copied / "small-0").glob("*.log"))
    reader, tasks = planned(copied, "records")
    first.unlink()
    monkeypatch.setattr(scanning, "present", lambda segment: str(first))
    monkeypatch.setattr(layout.time, "sleep", lambda seconds: None)
    with pytest.raises(ChangingDirectoryError, match="small-0: the cleaner replaced segments"):
        task_offsets(reader, tasks[0])


def test_damage_names_the_new_file_when_a_replaced_segment_is_damaged(copied):
    first, second, *_ = sorted((copied / "small-0").glob("*.log"))
    reader, tasks = planned(copied, "records", split_bytes=1 << 20)
    swap_in(first, first.read_bytes() + second.read_bytes()[:-10], second)
    with pytest.raises(CorruptBatchError, match=rf"{first}: byte \d+: the last \d+ bytes are not a whole batch"):
        for task in tasks:
            list(reader.read(task))


# --- options ---


@pytest.mark.parametrize(("options", "message"), [
    ({"path": ""}, "option path is missing"),
    ({"path": "/nowhere"}, "option path names '/nowhere', but there is no such directory"),
    ({"table": "rows"}, "option table is 'rows', but must be one of records, batches"),
    ({"onCorrupt": "skip"}, "option onCorrupt is 'skip', but must be one of fail, rows"),
    ({"columns": "offset,colour"}, "option columns must name columns of .*, each once"),
    ({"topicPattern": "("}, "option topicPattern '\\(' is not a regular expression"),
    ({"splitBytes": "5"}, "option splitBytes is '5', but must be 1048576 bytes or more"),
    ({"subscribe": "x"}, "format kafkacore-log has no option subscribe: its options are path, table"),
])  # fmt: skip
def test_error_names_the_option_when_its_value_is_wrong(log_dir, options, message):
    with pytest.raises(OptionError, match=message):
        rows(options.pop("path", log_dir), options.pop("table", "records"), **options)


def test_directory_without_logs_is_refused(tmp_path):
    with pytest.raises(OptionError, match=r"which has neither meta\.properties nor directories of partitions"):
        rows(tmp_path)


def test_schema_is_refused_when_a_column_is_unknown_or_has_another_type(log_dir):
    from pyspark.sql.types import IntegerType, StructField, StructType

    from kafkacore.spark.log.source import KafkaCoreLogSource

    source = KafkaCoreLogSource({"path": str(log_dir)})
    with pytest.raises(SchemaError, match="table records has no column 'colour'"):
        source.reader(StructType([StructField("colour", IntegerType())]))
    with pytest.raises(SchemaError, match="column offset is bigint, and the schema asks for int"):
        source.reader(StructType([StructField("offset", IntegerType())]))
