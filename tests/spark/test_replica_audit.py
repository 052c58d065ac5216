"""The audit of replicas, run on the directories of a real cluster. It reports nothing about healthy replicas, and
reports damage with its offset."""

import os
import random
import shutil

import pytest

pytest.importorskip("pyarrow", reason="no PyArrow: pip install kafkacore[spark], or ci/spark.sh")
pytest.importorskip("pyspark", reason="no PySpark: pip install kafkacore[spark], or ci/spark.sh")

from audited_cluster import (
    TOPICS,
    base_offset,
    batches,
    cut,
    divide,
    first_segment,
    kill_and_recover,
    lose,
    repeat,
    swap,
    troubled,
    written,
)

BROKERS = (2, 3, 4)
CLUSTERS = int(os.environ.get("KAFKACORE_AUDITED_CLUSTERS", "1"))  # each cluster goes through its own random failures
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """Returns the log directories of a stopped cluster by node id."""
    return written(tmp_path_factory.mktemp("healthy"))


@pytest.fixture
def copied(healthy, tmp_path):
    return {node: shutil.copytree(path, tmp_path / path.name) for node, path in healthy.items()}


@pytest.fixture
def audit(spark):
    from kafkacore.spark.pipelines.replica_audit import audit_directories

    def run(directories, *, isr=None, compacted=()):
        paths = [str(directories[node]) for node in BROKERS]
        return [
            row.asDict() for row in audit_directories(spark, paths, compacted=compacted, isr=isr).findings.collect()
        ]

    return run


def found(rows):
    return {(row["topic"], row["partition"], row["broker"], row["kind"], row["offset"]) for row in rows}


@pytest.mark.parametrize("compacted", [(), tuple(TOPICS)], ids=["plain", "compacted"])
def test_healthy_cluster_has_no_finding(audit, healthy, compacted):
    assert audit(healthy, compacted=compacted) == []


@pytest.mark.parametrize("seed", range(CLUSTERS))
def test_cluster_whose_brokers_were_killed_has_no_finding(audit, tmp_path, seed):
    chance = random.Random(seed)
    directories = troubled(tmp_path, lambda cluster: kill_and_recover(cluster, chance, chance.randint(1, 3)))
    assert audit(directories) == []


def test_planted_damage_is_found_with_its_offset(audit, copied):
    lost = lose(first_segment(copied[2], "orders", 0), 5)
    swapped = swap(first_segment(copied[3], "orders", 1), 4, 6)
    truncated = cut(first_segment(copied[4], "clicks"), 20)
    rows = audit(copied)
    assert ("orders", 0, 2, "lost", lost) in found(rows)
    assert ("orders", 1, 3, "different", swapped) in found(rows)
    assert ("clicks", 0, 4, "truncated", truncated) in found(rows)
    assert {(row["topic"], row["partition"], row["broker"]) for row in rows} == {
        ("orders", 0, 2), ("orders", 1, 3), ("clicks", 0, 4),
    }  # fmt: skip


def test_checkpoint_that_cannot_be_read_is_found(audit, copied):
    (copied[3] / "replication-offset-checkpoint").write_text("0\n1\nnothing\n")
    (row,) = audit(copied)
    assert (row["broker"], row["kind"]) == (3, "corrupt")
    assert "replication-offset-checkpoint" in row["detail"]


def test_batch_of_a_producer_that_stands_twice_is_found_when_all_replicas_hold_it(audit, copied):
    for node in BROKERS:
        path = first_segment(copied[node], "clicks")
        end = sum(int.from_bytes(batch[57:61], "big") for batch in batches(path))
        repeat(path, 3, end)
    assert {(row["broker"], row["kind"], row["offset"]) for row in audit(copied)} == {
        (node, "duplicate", end) for node in BROKERS
    }


def test_replica_that_has_not_caught_up_is_found_only_when_it_is_in_the_isr(audit, copied, spark):
    offset = cut(first_segment(copied[4], "clicks"), 20)
    mark = copied[4] / "replication-offset-checkpoint"
    lines = [f"clicks 0 {offset}" if line.startswith("clicks ") else line for line in mark.read_text().splitlines()]
    mark.write_text("\n".join(lines) + "\n")
    assert audit(copied) == []
    isr = spark.createDataFrame([("clicks", 0, 4)], "topic string, partition int, broker int")
    (row,) = audit(copied, isr=isr)
    assert (row["broker"], row["kind"], row["offset"]) == (4, "truncated", offset)


def test_member_of_the_isr_without_any_file_is_found(audit, copied, spark):
    shutil.rmtree(copied[4] / "clicks-0")
    for checkpoint in copied[4].glob("*-checkpoint"):
        lines = [line for line in checkpoint.read_text().splitlines()[2:] if not line.startswith("clicks ")]
        checkpoint.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")
    assert audit(copied) == []
    isr = spark.createDataFrame([("clicks", 0, 4), ("clicks", 0, 9)], "topic string, partition int, broker int")
    (row,) = audit(copied, isr=isr)
    assert (row["broker"], row["kind"], row["offset"]) == (4, "truncated", 0)


def test_lost_newest_record_of_a_key_is_found_in_a_compacted_topic(audit, copied):
    path = first_segment(copied[3], "clicks")
    offset = lose(path, len(batches(path)) - 2)
    rows = audit(copied, compacted=("clicks",))
    assert ("clicks", 0, 3, "lost", offset) in found(rows)
    assert {row["broker"] for row in rows} == {3}


@pytest.mark.parametrize("compacted", [(), ("orders",)], ids=["plain", "compacted"])
def test_records_that_retention_deletes_during_the_audit_are_not_lost(audit, copied, monkeypatch, compacted):
    from kafkacore.spark.pipelines import replica_audit

    path, column = first_segment(copied[3], "orders"), "offset" if compacted else "baseOffset"
    count = len(batches(path))
    first, second = (base_offset(batches(path)[number]) for number in (count - 4, count - 2))
    divide(path, count - 4, count - 2)
    load = replica_audit._load

    def load_while_retention_runs(spark, paths, name, **options):
        """The task of the second segment comes after its deletion. The other tasks come before it."""
        found = load(spark, paths, name, **options)
        if name != ("records" if compacted else "batches"):
            return found
        deleted = f"broker = 3 and topic = 'orders' and partition = 0 and {column} between {first} and {second - 1}"
        found = found.where(f"not coalesce({deleted}, false)").cache()
        found.count()
        for segment in sorted(path.parent.glob("*.log"))[:2]:
            segment.rename(f"{segment}.deleted")
        return found

    monkeypatch.setattr(replica_audit, "_load", load_while_retention_runs)
    assert audit(copied, compacted=compacted) == []


@pytest.fixture
def differing(spark):
    """Returns a function that audits the records of a compacted partition. `records` maps a broker to its records as
    offset, key and value. `ends` maps a broker to the end of its log. All brokers have committed 100 records."""
    from kafkacore.spark.log.tables import SCHEMAS
    from kafkacore.spark.pipelines.replica_audit import findings, newest_records

    def run(records, ends, *, aborted=()):
        def frame(rows, schema):
            return spark.createDataFrame(rows, schema)

        held = [(node, "t", 0, at, key, value, None) for node, of in records.items() for at, key, value in of]
        compacted = frame([("t", 0)], "topic string, partition int")
        schema = "broker int, topic string, partition int, offset bigint, key string, value string, problem string"
        found = findings(
            frame([], SCHEMAS["batches"]),
            frame(
                [("t", 0, node, 0, end, 0, end > 0, 100) for node, end in ends.items()],
                "topic string, partition int, broker int, start bigint, end bigint, highWatermark bigint,"
                " present boolean, committed bigint",
            ),
            newest_records(frame(held, schema), compacted),
            compacted=compacted,
            aborted=frame(
                [("t", 0, first, last, None) for first, last in aborted],
                "topic string, partition int, offset bigint, position bigint, problem string",
            ),
        )
        return {(row["broker"], row["kind"], row["offset"]) for row in found.collect()}

    return run


def test_record_is_not_lost_when_only_the_replica_without_it_has_a_newer_one(differing):
    ahead = [(50, "k", "new"), (60, "other", "v")]
    assert differing({2: ahead, 3: [(10, "k", "old")]}, {2: 61, 3: 20}) == set()
    assert differing({2: [], 3: [(10, "k", "old")]}, {2: 61, 3: 20}) == {(2, "lost", 10)}


def test_lost_record_is_found_when_a_checkpoint_names_a_replica_that_was_moved_away(differing):
    assert differing({2: [(10, "k", "v")], 3: []}, {2: 61, 3: 61, 4: 0}) == {(3, "lost", 10)}


def test_record_of_an_aborted_transaction_is_not_lost_when_a_cleaner_has_removed_it(differing):
    held = {2: [(10, "k", "old"), (12, "k", "aborted"), (20, "l", "v")], 3: [(10, "k", "old")]}
    assert differing(held, {2: 61, 3: 61}, aborted=[(12, 14)]) == {(3, "lost", 20)}


def test_lost_older_record_of_a_key_is_no_difference_in_a_compacted_topic(audit, copied):
    lose(first_segment(copied[3], "clicks"), 2)
    assert audit(copied, compacted=("clicks",)) == []
