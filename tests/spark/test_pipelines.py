"""The commands of `kafkacore spark`: the tables and the page that each makes from the directories of a cluster with a
known history. Also tests the table of commits that a stream fills.
"""

import json
from argparse import Namespace
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("pyarrow", reason="no PyArrow: pip install kafkacore[spark], or ci/spark.sh")
pytest.importorskip("pyspark", reason="no PySpark: pip install kafkacore[spark], or ci/spark.sh")

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from reported_cluster import EARLY, GROUP, LATE, LEFT, MOVED, TOPIC, WRITTEN, told
from topic_filling import Topics

pytestmark = pytest.mark.timeout(300)
OPTIONS = {"metadata": [], "compacted": [], "drain": [], "rate_hours": 24.0}


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    return told(tmp_path_factory.mktemp("story"))


@pytest.fixture(scope="module")
def run(spark, tmp_path_factory):
    """Returns a function that runs a pipeline on directories or files. It returns the exit code, a function that reads
    a table, and the page."""
    from kafkacore.spark.pipelines.commands import report_on
    from kafkacore.spark.pipelines.report import Report

    def go(pipeline, *paths, **options):
        output, report = tmp_path_factory.mktemp(pipeline), Report(pipeline)
        given = Namespace(pipeline=pipeline, path=[str(path) for path in paths], output=str(output))
        code = report_on(spark, Namespace(**{**OPTIONS, **vars(given), **options}), report)
        report.write(str(output / "report.html"))
        page = (output / "report.html").read_text(encoding="utf-8")

        def table(name):
            return [row.asDict() for row in spark.read.parquet(str(output / name)).collect()]

        return code, table, page

    return go


def brokers(story):
    return [path for node, path in sorted(story.directories.items()) if node != story.controller]


# --- controller report ---


@pytest.fixture(scope="module")
def controller_report(run, story):
    """Returns the report about the metadata logs of all nodes, which contain the same records."""
    return run("controller-report", *story.directories.values())


def test_report_shows_the_successor_when_a_leader_left(controller_report, story):
    _, table, _ = controller_report
    found = [row for row in table("leader-elections") if (row["topic"], row["partition"]) == (TOPIC, LEFT)]
    first = min(found, key=lambda row: row["offset"])  # the cluster's stop causes later changes
    assert (first["formerLeader"], first["leader"]) == (story.left, story.successor)


def test_isr_changes_show_that_the_broker_left_and_joined(controller_report, story):
    _, table, _ = controller_report
    rows = sorted(table("isr-changes"), key=lambda row: row["offset"])
    found = [(row["left"], row["joined"]) for row in rows if (row["topic"], row["partition"]) == (TOPIC, LEFT)]
    assert found[:2] == [([story.left], []), ([], [story.left])]


def test_broker_events_are_in_order_when_a_broker_stops_and_starts(controller_report, story):
    _, table, _ = controller_report
    rows = sorted(table("brokers"), key=lambda row: row["offset"])
    found = [row["event"] for row in rows if row["brokerId"] == story.left]
    assert found[:3] == ["registered", "unfenced", "leaving"]
    again = found.index("registered", 3)
    assert found[3:again] in ([], ["fenced"])
    assert found[again : again + 2] == ["registered", "unfenced"]


def test_reassignment_has_begin_and_end(controller_report, story):
    _, table, _ = controller_report
    (row,) = table("reassignments")
    assert (row["topic"], row["partition"]) == (TOPIC, MOVED)
    assert row["adding"] == story.moved_to[1:]
    assert len(row["removing"]) == 1
    assert row["begin"] <= row["end"]
    assert row["seconds"] == pytest.approx((row["end"] - row["begin"]).total_seconds(), abs=0.002)


def test_controller_report_names_the_controller_and_shows_it_on_a_page(controller_report, story):
    code, table, page = controller_report
    assert code == 0
    assert {row["controllerId"] for row in table("controllers")} == {story.controller}
    assert "metadata.version" in {row["name"] for row in table("features")}
    for title in ("Active controllers", "Elections of leaders", "Reassignments", "Feature levels"):
        assert f"<h3>{title}</h3>" in page
    assert not any(loads in page for loads in ("src=", "<link", "<script"))


def at(second):
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)


def changes(spark, *states):
    """Returns rows of `partition_changes` for one partition: the second, the former leader, the leader, the former ISR
    and the ISR."""
    rows = [("id", 0, second, at(second), *rest) for second, *rest in states]
    schema = (
        "topicId string, partition int, offset bigint, timestamp timestamp, formerLeader int, leader int, "
        "formerIsr array<int>, isr array<int>"
    )
    return spark.createDataFrame(rows, schema)


def test_time_without_a_leader_lasts_from_its_loss_to_the_next_election(spark):
    from kafkacore.spark.pipelines.controller_report import leaderless_times

    history = changes(
        spark, (1, None, 1, None, [1]), (5, 1, -1, [1], [1]), (6, -1, -1, [1], [1]), (9, -1, 1, [1], [1]),
        (20, 1, -1, [1], [1]),
    )  # fmt: skip
    found = [(row.since, row.until, row.seconds) for row in leaderless_times(history).orderBy("since").collect()]
    naive = [(one and one.replace(tzinfo=None)) for one in (at(5), at(9), at(20))]
    assert found == [(naive[0], naive[1], 4.0), (naive[2], None, None)]


def test_partition_flaps_when_its_isr_changes_three_times_in_a_window(spark):
    from kafkacore.spark.pipelines.controller_report import flapping

    steady = [(1, None, 1, None, [1, 2]), (2, 1, 1, [1, 2], [1]), (3, 1, 1, [1], [1, 2])]
    assert flapping(changes(spark, *steady)).collect() == []
    (row,) = flapping(changes(spark, *steady, (4, 1, 1, [1, 2], [1]))).collect()
    assert (row.elections, row.isrChanges) == (0, 3)


def metadata(spark, *records):
    """Returns rows of the table `metadata`. Each record is a dictionary of columns; the others are null."""
    from kafkacore.spark.log.tables import SCHEMAS

    schema = SCHEMAS["metadata"]
    given = [{"snapshot": False, "leaderEpoch": 1, **record} for record in records]
    return spark.createDataFrame([tuple(record.get(name) for name in schema.names) for record in given], schema)


def topic(topic_id, offset, kind="TOPIC_RECORD", name="t", **more):
    return {"type": kind, "offset": offset, "topicId": topic_id, "name": name, **more}


def partition(offset, kind="PARTITION_CHANGE_RECORD", topic_id="id", **more):
    return {"type": kind, "offset": offset, "topicId": topic_id, "partition": 0, "leader": -2, **more}


def members(spark, *records):
    from kafkacore.spark.pipelines.controller_report import last_isr

    return {tuple(row) for row in last_isr(metadata(spark, *records)).collect()}


def in_snapshot(end, record):
    return {**record, "snapshot": True, "file": f"__cluster_metadata-0/{end:020}-0000000001.checkpoint"}


def test_last_isr_comes_from_the_latest_snapshot_when_the_log_does_not_say_it(spark):
    old = partition(7, "PARTITION_RECORD", replicas=[1, 2, 3], isr=[1, 2, 3], leader=1)
    new = partition(7, "PARTITION_RECORD", replicas=[1, 2, 3], isr=[1, 2], leader=1)
    snapshots = [in_snapshot(100, topic("id", 6)), in_snapshot(100, old), in_snapshot(200, new)]
    assert members(spark, *snapshots) == {("t", 0, 1), ("t", 0, 2)}
    assert members(spark, *snapshots, partition(150, isr=[3])) == {("t", 0, 1), ("t", 0, 2)}
    assert members(spark, *snapshots, partition(250, leader=2)) == {("t", 0, 1), ("t", 0, 2)}
    assert members(spark, *snapshots, partition(250, isr=[2])) == {("t", 0, 2)}


def test_last_isr_comes_from_the_new_topic_when_a_topic_was_created_again(spark):
    assert members(
        spark,
        topic("old", 1), partition(2, "PARTITION_RECORD", "old", replicas=[1, 3], isr=[1, 3], leader=1),
        topic("old", 3, "REMOVE_TOPIC_RECORD", None),
        topic("new", 4), partition(5, "PARTITION_RECORD", "new", replicas=[1, 2], isr=[1, 2], leader=1),
    ) == {("t", 0, 1), ("t", 0, 2)}  # fmt: skip


def test_record_that_a_former_controller_did_not_commit_is_left_out(spark):
    created = [topic("id", 1), partition(2, "PARTITION_RECORD", replicas=[1, 2], isr=[1, 2], leader=1)]
    committed, uncommitted = partition(3, isr=[2], leaderEpoch=5), partition(3, isr=[1], leaderEpoch=4)
    for pair in ([committed, uncommitted], [uncommitted, committed]):
        assert members(spark, *created, *pair) == {("t", 0, 2)}


# --- replica audit with the metadata log ---


def test_audit_with_the_metadata_log_has_no_finding_and_says_so(run, story):
    code, table, page = run("replica-audit", *brokers(story), metadata=[str(story.directories[story.controller])])
    assert (code, table("findings")) == (0, [])
    assert "The replicas agree." in page
    replicas = [row for row in table("replicas") if (row["topic"], row["partition"]) == (TOPIC, LEFT)]
    assert {row["broker"] for row in replicas} == {story.left, story.successor}
    assert {(row["present"], row["start"], row["end"], row["committed"]) for row in replicas} == {
        (True, 0, WRITTEN, WRITTEN)
    }
    assert "<h3>Offsets of each replica</h3>" in page


def test_audit_with_the_metadata_log_ends_with_3_when_a_member_of_the_isr_is_empty(run, story, tmp_path):
    import shutil

    copies = [shutil.copytree(path, tmp_path / path.name) for path in brokers(story)]
    victim = story.directories[story.left].name
    for segment in (tmp_path / victim / f"{TOPIC}-{LEFT}").glob("*.log"):
        segment.write_bytes(b"")
    code, table, page = run("replica-audit", *copies, metadata=[str(story.directories[story.controller])])
    assert code == 3
    assert [(row["broker"], row["kind"], row["offset"], row["endOffset"]) for row in table("findings")] == [
        (story.left, "truncated", 0, WRITTEN)
    ]
    assert "1 findings" in page


def test_audit_says_that_nothing_was_compared_when_no_high_watermark_is_known(run, story, tmp_path):
    import shutil

    copies = [shutil.copytree(path, tmp_path / path.name) for path in brokers(story)]
    for copy in copies:
        (copy / "replication-offset-checkpoint").unlink()
    code, _, page = run("replica-audit", *copies)
    assert code == 0
    assert "No broker has checkpointed a high watermark for" in page


@pytest.mark.parametrize(
    ("pipeline", "path", "problem"),
    [
        ("plane-report", "missing.log", "{path}: No such file or directory"),
        ("replica-audit", "missing", "option path names '{path}', but there is no such directory"),
        (
            "replica-audit",
            "",
            "option path names {path}, which has neither meta.properties nor directories of partitions: ",
        ),
    ],
)
def test_wrong_path_ends_with_1_and_one_line(spark, tmp_path, monkeypatch, capsys, pipeline, path, problem):
    from kafkacore.spark.pipelines import commands

    monkeypatch.setattr(commands, "session", lambda name: spark)
    wrong = str(tmp_path / path)
    (tmp_path / "other").mkdir()
    given = {"pipeline": pipeline, "path": [wrong], "output": str(tmp_path / "other" / "out")}
    assert commands.run(Namespace(**OPTIONS, **given)) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"kafkacore: {problem.format(path=wrong)}")


def complaint(spark, monkeypatch, capsys, **given):
    """Runs a command that must end with 1. Returns what it prints to stderr."""
    from kafkacore.spark.pipelines import commands

    monkeypatch.setattr(commands, "session", lambda name: spark)
    assert commands.run(Namespace(**{**OPTIONS, **given})) == 1
    return capsys.readouterr().err


def test_audit_ends_with_1_and_one_line_when_directories_do_not_name_their_brokers(
    spark, story, tmp_path, monkeypatch, capsys
):
    import shutil

    copies = [str(shutil.copytree(path, tmp_path / path.name)) for path in brokers(story)]
    for copy in copies:
        (tmp_path / copy / "meta.properties").unlink()
    given = {"pipeline": "replica-audit", "path": copies, "output": str(tmp_path / "out")}
    problem = complaint(spark, monkeypatch, capsys, **given)
    assert "of an unknown broker: name each broker's directories once, with their meta.properties" in problem
    assert len(problem.splitlines()) == 1


def test_placement_plan_ends_with_1_and_one_line_when_too_few_brokers_are_left(
    spark, story, tmp_path, monkeypatch, capsys
):
    problem = complaint(
        spark, monkeypatch, capsys, pipeline="placement-plan", path=[str(path) for path in story.directories.values()],
        output=str(tmp_path), drain=[story.left, story.successor],
    )  # fmt: skip
    assert "only 1 brokers may hold them" in problem
    assert len(problem.splitlines()) == 1


# --- lag history ---


def test_lag_history_has_the_lag_of_each_commit(run, story):
    code, table, page = run("lag-history", *brokers(story))
    assert code == 0
    rows = sorted(table("lag"), key=lambda row: row["commitTimestamp"])
    assert [(row["group"], row["topic"], row["partition"], row["records"]) for row in rows] == [
        (GROUP, TOPIC, LEFT, WRITTEN - EARLY), (GROUP, TOPIC, LEFT, 0),
    ]  # fmt: skip
    early, late = rows
    assert early["endOffset"] == late["endOffset"] == late["committedOffset"] == LATE
    assert late["seconds"] == 0
    assert 0 < early["seconds"] < 60
    (since,) = table("complete-since")
    # The coordinator reads the clock for the commit, and again for the commit's record.
    assert since["completeSince"] <= early["commitTimestamp"] + timedelta(seconds=1)
    assert "<svg" in page


@pytest.mark.parametrize(("kind", "base"), [(0, 9), (1, 2)], ids=["delete horizon", "LogAppendTime"])
def test_lag_counts_from_the_time_of_the_records_when_the_base_timestamp_of_their_batch_is_another(spark, kind, base):
    from kafkacore.spark.log.tables import SCHEMAS
    from kafkacore.spark.pipelines.lag_history import lag

    batch = {
        "topic": "t", "partition": 0, "kind": "live", "baseOffset": 0, "lastOffset": 9, "timestampType": kind,
        "baseTimestamp": at(base), "maxTimestamp": at(4),
    }  # fmt: skip
    schema = SCHEMAS["batches"]
    batches = spark.createDataFrame([tuple(batch.get(name) for name in schema.names)], schema)
    committed = spark.createDataFrame(
        [("g", "t", 0, 5, at(7))],
        "`group` string, topic string, partition int, committedOffset bigint, commitTimestamp timestamp",
    )
    assert [(row.records, row.seconds) for row in lag(committed, batches).collect()] == [(5, 3.0)]


@pytest.fixture
def followed(spark, our_node, tmp_path):
    """Returns a function that appends what the group has committed since the last call. The function returns the whole
    table."""
    pytest.importorskip("pyspark", "4.2", reason="streams need PySpark 4.2")
    from kafkacore.spark.pipelines.lag_history import follow

    def run(group):
        query = follow(
            spark, our_node.bootstrap, str(tmp_path / "commits"), str(tmp_path / "checkpoint"), availableNow=True
        )
        assert query.awaitTermination(120)
        rows = spark.read.parquet(str(tmp_path / "commits")).where(f"`group` = '{group}'").collect()
        return sorted((row.topic, row.partition, row.tombstone, row.committedOffset or -1) for row in rows)

    return run


def test_followed_commits_are_kept_when_the_group_commits_again_and_is_deleted(our_node, topic_name, followed):
    admin = AdminClient({"bootstrap.servers": our_node.bootstrap})
    topic, group = Topics(our_node.bootstrap, topic_name).create(), topic_name
    consumer = Consumer({
        "bootstrap.servers": our_node.bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0,
    })  # fmt: skip
    consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    assert followed(group) == [(topic, 0, False, 5)]
    consumer.commit(offsets=[TopicPartition(topic, 0, 9)], asynchronous=False)
    consumer.close()
    admin.delete_consumer_groups([group])[group].result(30)
    assert followed(group) == [(topic, 0, False, 5), (topic, 0, False, 9), (topic, 0, True, -1)]


# --- placement plan ---


def broker(offset, kind, broker_id, **value):
    return {"type": f"{kind}_RECORD", "offset": offset, "brokerId": broker_id, "value": json.dumps(value)}


def test_broker_is_live_when_it_was_unfenced_after_its_last_registration(spark):
    from kafkacore.spark.pipelines.placement_plan import brokers

    def registered(offset, broker_id, *, fenced=True, leaving=False):
        return broker(
            offset, "REGISTER_BROKER", broker_id, fenced=fenced, inControlledShutdown=leaving, rack=f"r{broker_id}"
        )

    change = "BROKER_REGISTRATION_CHANGE"
    rows = metadata(
        spark,
        registered(1, 1), broker(2, change, 1, fenced=-1, inControlledShutdown=0),
        registered(3, 2),
        registered(4, 3), broker(5, change, 3, fenced=-1), broker(6, change, 3, fenced=0, inControlledShutdown=1),
        registered(7, 4), broker(8, "UNFENCE_BROKER", 4), broker(9, "FENCE_BROKER", 4),
        registered(10, 5), broker(11, change, 5, fenced=-1), broker(12, "UNREGISTER_BROKER", 5),
        broker(13, change, 6, fenced=-1), in_snapshot(100, registered(99, 6)),
        in_snapshot(100, registered(99, 7, fenced=False)), broker(101, change, 7, fenced=0, logDirs=["x"]),
        in_snapshot(50, registered(49, 8, fenced=False)), in_snapshot(100, registered(99, 8)),
        in_snapshot(100, registered(99, 9, fenced=False, leaving=True)), registered(102, 9, fenced=False),
    )  # fmt: skip
    found = {row["brokerId"]: (row["rack"], row["live"]) for row in brokers(rows).collect()}
    assert set(found) == {1, 2, 3, 4, 6, 7, 8, 9}
    assert {broker_id for broker_id, (_, live) in found.items() if live} == {1, 7, 9}
    assert found[7][0] == "r7"


def test_placement_plan_is_written_with_a_table_of_brokers(run, story):
    code, table, page = run("placement-plan", *story.directories.values())
    assert code == 0
    assert sorted(row["broker"] for row in table("brokers")) == sorted(set(story.directories) - {story.controller})
    assert sum(row["bytesBefore"] for row in table("brokers")) > WRITTEN * len("value 1")
    assert "<h3>Brokers</h3>" in page
