"""The plane report, made from sampled request logs of nodes, and from lines of Apache Kafka's `kafka-request.log`."""

import json
from argparse import Namespace

import pytest

pytest.importorskip("pyspark", reason="no PySpark: pip install kafkacore[spark], or ci/spark.sh")

from kafkacore.observability.sampled_requests import line
from kafkacore.spark.pipelines import plane_report

MS = 1_000_000
NOW_MS = 1_790_000_000_000  # the start of a minute, and so of a second
PRODUCE, LEADER_AND_ISR, STOP_REPLICA, ALTER_PARTITION = 0, 4, 5, 56
LISTENERS = ("PLAINTEXT", "CONTROLLER")


def ours(*, plane="data", api=PRODUCE, second=0, queue_ms=0, local_ms=1, every=100, dropped=0):
    times = (queue_ms + local_ms, queue_ms, local_ms, 0, 0, 0, 0)
    listener = 0 if plane == "data" else 1
    sample = (0, api, 9, 1, "me", listener, every, dropped, *(ms * MS for ms in times))
    return line(plane, LISTENERS, sample, NOW_MS + second * 1000)


def of_apache(*, api="PRODUCE", listener="PLAINTEXT", local_ms=4):
    """Returns a line of Apache Kafka's log, which also contains the request and the response."""
    entry = {
        "isForwarded": False,
        "requestHeader": {
            "requestApiKey": 0, "requestApiVersion": 9, "correlationId": 3, "clientId": "me", "requestApiKeyName": api,
        },
        "request": {"topicData": [{"name": "t", "partitionData": [{"index": 0, "recordsSizeInBytes": 70}]}]},
        "response": {"responses": [], "throttleTimeMs": 0},
        "connection": "127.0.0.1:9092-127.0.0.1:5000-0",
        "totalTimeMs": local_ms + 1.5, "requestQueueTimeMs": 0.5, "localTimeMs": local_ms, "remoteTimeMs": 0.0,
        "throttleTimeMs": 0, "responseQueueTimeMs": 0.75, "sendTimeMs": 0.25, "securityProtocol": "PLAINTEXT",
        "principal": "User:ANONYMOUS", "listener": listener, "clientInformation": {},
    }  # fmt: skip
    return f"[2026-11-23 04:00:00,123] DEBUG Completed request:{json.dumps(entry)} (kafka.request.logger)\n"


@pytest.fixture
def logs(tmp_path):
    """Writes a node's log, which was rotated once, and Apache Kafka's log. Returns their paths."""
    node, peer = tmp_path / "node", tmp_path / "peer"
    node.mkdir()
    peer.mkdir()
    data = [ours(local_ms=1 + number % 4) for number in range(40)]
    control = [ours(plane="control", api=LEADER_AND_ISR, second=second) for second in (0, 1)]
    busy = [ours(second=1, queue_ms=50, dropped=number) for number in (0, 3)]
    (node / "kafka-request.log.1").write_text("".join(data))
    (node / "kafka-request.log").write_text("".join([*control, *busy, "no entry\n"]))
    (peer / "kafka-request.log.2026-11-23-04").write_text(of_apache() + of_apache(api="METADATA", local_ms=2))
    return [str(each) for each in (*node.iterdir(), *peer.iterdir())]


@pytest.fixture
def entries(spark, logs):
    return plane_report.read_logs(spark, logs)


def rows(frame, *columns):
    return {tuple(row[name] for name in columns) for row in frame.collect()}


def test_logs_of_both_kinds_of_broker_become_the_same_columns(entries):
    found = rows(entries.where("api = 'PRODUCE' and requestQueueTimeMs < 1"), "plane", "listener", "clientId", "weight")
    assert found == {("data", "PLAINTEXT", "me", 100), ("PLAINTEXT", "PLAINTEXT", "me", 1)}
    apache = [row for row in entries.where("weight = 1").collect() if row.api == "PRODUCE"]
    assert [(row.totalTimeMs, row.responseQueueTimeMs, row.sendTimeMs) for row in apache] == [(5.5, 0.75, 0.25)]


def test_rotated_files_belong_to_one_log_whose_dropped_samples_are_shown(entries):
    found = {
        (log.rsplit("/", 2)[1], log.rsplit("/", 1)[1], *rest)
        for log, *rest in rows(plane_report.sampling(entries), "log", "plane", "entries", "requests", "dropped")
    }
    assert found == {
        ("node", "kafka-request.log", "data", 42, 4200, 3),
        ("node", "kafka-request.log", "control", 2, 200, 0),
        ("peer", "kafka-request.log", "PLAINTEXT", 2, 2, 0),
    }


def test_report_has_percentiles_for_each_plane_api_and_minute(entries):
    minutes = plane_report.percentiles(entries.where("requestQueueTimeMs < 1"))
    found = {(row.plane, row.api): row for row in minutes.collect()}
    assert found.keys() == {
        ("data", "PRODUCE"), ("control", "LEADER_AND_ISR"), ("PLAINTEXT", "PRODUCE"), ("PLAINTEXT", "METADATA"),
    }  # fmt: skip
    produce = found["data", "PRODUCE"]
    assert produce.requests == 4000
    assert produce.localTimeMs == [2.0, 4.0, 4.0, 4.0]
    assert found["PLAINTEXT", "METADATA"].total == [3.5] * 4


def test_report_has_a_distribution_for_each_plane_and_api(spark, tmp_path):
    path = tmp_path / "kafka-request.log"
    path.write_text("".join(ours(queue_ms=number) for number in range(1, 101)) + of_apache(api="STOP_REPLICA"))
    found = {(row.plane, row.api): row for row in plane_report.distribution(
        plane_report.read_logs(spark, [str(path)])
    ).collect()}  # fmt: skip
    data = found["data", "PRODUCE"]
    assert data.requests == 10_000
    assert (data.queue[0], data.queue[50], data.queue[99], data.queue[100]) == (1.0, 50.0, 99.0, 100.0)
    assert (data.total[0], data.total[100]) == (2.0, 101.0)
    stop = found["PLAINTEXT", "STOP_REPLICA"]
    assert (stop.total, stop.queue) == ([5.5] * len(plane_report.SHARES), [0.5] * len(plane_report.SHARES))


def test_benchmark_of_the_control_plane_reads_the_logs_of_both_kinds_of_broker(spark, tmp_path):
    from benchmarks.control_plane import request_logs

    lines = {
        "kafkacore-shared-full": [
            *(ours(api=ALTER_PARTITION, queue_ms=number) for number in range(1, 101)), ours(api=STOP_REPLICA),
        ],
        "kafkacore-apart-full": [ours(plane="control", api=STOP_REPLICA, queue_ms=2)],
        "apache-3.9-shared-full": [of_apache(api="STOP_REPLICA"), of_apache(api="INCREMENTAL_ALTER_CONFIGS")],
    }  # fmt: skip
    for name, each in lines.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "kafka-request.log").write_text("".join(each))
    found = request_logs.distributions(spark, [tmp_path / name / "kafka-request.log" for name in lines])
    of_ours = request_logs.by_way(found, "kafkacore", "full")
    assert {way: (total[50], total[99]) for way, total in of_ours.items()} == {
        "shared": (51.0, 100.0), "lane": (1.0, 1.0), "apart": (3.0, 3.0),
    }  # fmt: skip
    assert request_logs.by_way(found, "apache-3.9", "full").keys() == {"shared", "clients"}
    assert request_logs.by_way(found, "kafkacore", "below") == {}


def test_separation_tells_whether_control_work_waits_while_clients_do(entries):
    separated = plane_report.separation(entries.where("weight = 100"))
    found = {(row.work, row.busy): row for row in separated.collect()}
    assert found.keys() == {("data", False), ("data", True), ("control", False), ("control", True)}
    assert (found["data", True].waited, found["data", True].late) == (50.0, 1.0)
    assert (found["control", True].waited, found["control", True].late) == (0.0, 0.0)
    assert found["control", True].requests == 100


def test_saturation_is_the_wait_of_each_second(entries):
    waits = plane_report.saturation(entries.where("weight = 100 and plane = 'data'"))
    found = sorted((row.begin, row.requests, row.waited, row.late) for row in waits.collect())
    assert [each[1:] for each in found] == [(4000, 0.0, 0.0), (200, 50.0, 1.0)]


def test_command_writes_its_tables_and_a_page(spark, logs, tmp_path, monkeypatch):
    from kafkacore.spark.pipelines import commands

    monkeypatch.setattr(commands, "session", lambda name: spark)
    output = tmp_path / "report"
    assert commands.run(Namespace(pipeline="plane-report", path=logs, output=str(output))) == 0
    assert spark.read.parquet(str(output / "separation")).count() > 0
    page = (output / "report.html").read_text()
    for part in ("Does control work wait while clients are busy?", "LEADER_AND_ISR", "node/kafka-request.log"):
        assert part in page
    for plot in (
        "Total time of requests at the quantiles",
        "Mean wait for a handler",
        "Mean wait of each kind of work",
        "Distribution of the wait for a handler",
    ):
        assert f"<h3>{plot}" in page
    assert page.count("<svg") == 4
