"""Kafka's own command-line tools, from the releases 4.3 and 3.9."""

import json
import re

import pytest

from segments import CODECS, partition_batches, segments


@pytest.fixture
def topic(tools, broker, topic_name):
    """Makes a topic with two partitions, using kafka-topics."""
    made = tools.run(
        "kafka-topics", "--bootstrap-server", broker.bootstrap, "--create", "--topic", topic_name, "--partitions", 2,
        "--config", "segment.bytes=1048576",
    )  # fmt: skip
    assert f"Created topic {topic_name}." in made.out
    return topic_name


@pytest.fixture(params=["broker", "controller"])
def endpoint(request, broker):
    """Returns the options with which a tool sends its requests to the broker, or directly to the controller
    (KIP-919)."""
    if request.param == "broker":
        return ["--bootstrap-server", broker.bootstrap]
    if not broker.controller:
        pytest.skip("the controller's address is unknown: set KAFKACORE_TEST_CONTROLLER")
    return ["--bootstrap-controller", broker.controller]


def produce(tools, broker, topic, lines, codec="none"):
    """Writes lines `key=value` to a topic, using the console producer."""
    tools.run(
        "kafka-console-producer", "--bootstrap-server", broker.bootstrap, "--topic", topic,
        "--property", "parse.key=true", "--property", "key.separator==", "--compression-codec", codec,
        stdin="".join(f"{line}\n" for line in lines),
    )  # fmt: skip


def consume(tools, broker, topic, count, partition=0, offset="earliest"):
    consumed = tools.run(
        "kafka-console-consumer", "--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", partition,
        "--offset", offset, "--max-messages", count, "--timeout-ms", 20_000, "--property", "print.key=true",
        "--property", "print.offset=true",
    )  # fmt: skip
    return [line.split("\t") for line in consumed.lines if line.startswith("Offset:")]


def get_offsets(tools, broker, topic, *arguments):
    shown = tools.run("kafka-get-offsets", "--bootstrap-server", broker.bootstrap, "--topic", topic, *arguments)
    return {int(line.split(":")[1]): int(line.split(":")[2]) for line in shown.lines if line.startswith(f"{topic}:")}


def test_kafka_topics_lists_describes_alters_and_deletes(tools, broker, topic):
    server = ["--bootstrap-server", broker.bootstrap]
    assert topic in tools.run("kafka-topics", *server, "--list").lines
    described = tools.run("kafka-topics", *server, "--describe", "--topic", topic)
    assert re.search(
        rf"Topic: {re.escape(topic)}\tTopicId: \S{{22}}\tPartitionCount: 2\tReplicationFactor: 1", described.out
    )
    assert "segment.bytes=1048576" in described.out
    assert described.out.count("Leader: ") == 2
    tools.run("kafka-topics", *server, "--alter", "--topic", topic, "--partitions", 4)
    assert "PartitionCount: 4" in tools.run("kafka-topics", *server, "--describe", "--topic", topic).out
    tools.run("kafka-topics", *server, "--delete", "--topic", topic)
    assert topic not in tools.run("kafka-topics", *server, "--list").lines


def test_kafka_topics_fails_when_the_topic_exists(tools, broker, topic):
    server = ["--bootstrap-server", broker.bootstrap]
    again = tools.attempt("kafka-topics", *server, "--create", "--topic", topic)
    assert again.exit == 1
    assert f"Topic '{topic}' already exists." in again.out
    assert tools.run("kafka-topics", *server, "--create", "--topic", topic, "--if-not-exists").exit == 0


def test_kafka_topics_shows_no_problems_when_there_are_none(tools, broker, topic):
    for question in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        shown = tools.run("kafka-topics", "--bootstrap-server", broker.bootstrap, "--describe", question)
        assert topic not in shown.out


@pytest.mark.parametrize("codec", CODECS)
def test_console_consumer_reads_what_the_console_producer_wrote(tools, broker, log_dir, topic_name, codec):
    lines = [f"k{number}=value of {number}" for number in range(50)]
    produce(tools, broker, topic_name, lines, codec)
    received = consume(tools, broker, topic_name, 50)
    assert received == [[f"Offset:{n}", f"k{n}", f"value of {n}"] for n in range(50)]
    assert {batch.codec for batch in partition_batches(log_dir, topic_name)} == {codec}


@pytest.mark.parametrize("codec", CODECS)
def test_dump_log_agrees_with_the_file(tools, broker, log_dir, topic_name, codec):
    produce(tools, broker, topic_name, [f"a{n}=b{n}" for n in range(30)], codec)
    (file,) = segments(log_dir, topic_name)
    shown = tools.run("kafka-dump-log", "--files", file, "--print-data-log", "--deep-iteration")
    header = [line for line in shown.lines if line.startswith("baseOffset:")]
    assert header
    assert all(f"compresscodec: {codec}" in line and "isvalid: true" in line and "magic: 2" in line for line in header)
    records = [line for line in shown.lines if line.lstrip("|").lstrip().startswith("offset:")]
    assert [re.search(r"payload: (\S+)", line)[1] for line in records] == [f"b{n}" for n in range(30)]


def test_dump_log_finds_sound_indexes_when_the_broker_has_stopped(tools, fresh_broker, topic_name):
    broker = fresh_broker({"log.segment.bytes": "1048576"})
    tools.run(
        "kafka-producer-perf-test", "--topic", topic_name, "--num-records", 1500, "--record-size", 1000,
        "--throughput", -1, "--producer-props", f"bootstrap.servers={broker.bootstrap}", "batch.size=5000",
    )  # fmt: skip
    broker.stop()
    files = segments(broker.log_dir, topic_name)
    assert len(files) == 2
    for one in (file.with_suffix(suffix) for file in files for suffix in (".index", ".timeindex")):
        assert "passed sanity check" in tools.run("kafka-dump-log", "--files", one, "--index-sanity-check").out
        verified = tools.run("kafka-dump-log", "--files", one, "--verify-index-only")
        assert "mismatch" not in verified.out + verified.err
        assert "Found timestamp" not in verified.out
    entries = tools.run("kafka-dump-log", "--files", files[0].with_suffix(".index")).lines
    assert sum(line.startswith("offset: ") for line in entries) > 50


def test_dump_log_decodes_the_metadata_log(tools, broker, log_dir, topic):
    if tools.name == "apache-3.9":
        pytest.skip("the tool of 3.9 does not know all metadata records of 4.3")
    (file,) = segments(log_dir, "__cluster_metadata")
    shown = tools.run("kafka-dump-log", "--cluster-metadata-decoder", "--files", file)
    payloads = [json.loads(found[1]) for line in shown.lines if (found := re.search(r"payload: (\{.*\})", line))]
    by_type = {payload["type"] for payload in payloads}
    assert {"FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD"} <= by_type
    assert topic in {payload["data"]["name"] for payload in payloads if payload["type"] == "TOPIC_RECORD"}


def test_performance_producer_sends_every_record(tools, broker, topic):
    shown = tools.run(
        "kafka-producer-perf-test", "--topic", topic, "--num-records", 20_000, "--record-size", 200, "--throughput", -1,
        "--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=all", "compression.type=lz4",
    )  # fmt: skip
    assert "20000 records sent" in shown.out
    assert sum(get_offsets(tools, broker, topic).values()) == 20_000


def test_get_offsets_lists_offsets_by_time(tools, broker, topic_name):
    produce(tools, broker, topic_name, [f"{n}=x" for n in range(7)])
    assert get_offsets(tools, broker, topic_name) == {0: 7}
    assert get_offsets(tools, broker, topic_name, "--time", "earliest") == {0: 0}
    assert get_offsets(tools, broker, topic_name, "--time", "max-timestamp")[0] in range(7)
    assert get_offsets(tools, broker, topic_name, "--time", 0) == {0: 0}
    assert get_offsets(tools, broker, topic_name, "--time", "earliest-local") == {0: 0}
    # Without tiered storage, the tools print -1 as the offset, or nothing.
    assert get_offsets(tools, broker, topic_name, "--time", "latest-tiered") in ({0: -1}, {})


def test_delete_records_deletes_up_to_an_offset(tools, broker, topic_name, tmp_path):
    produce(tools, broker, topic_name, [f"{n}=x" for n in range(9)])
    plan = tmp_path / "delete.json"
    wanted = [{"topic": topic_name, "partition": 0, "offset": 5}]
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
    deleted = tools.run("kafka-delete-records", "--bootstrap-server", broker.bootstrap, "--offset-json-file", plan)
    assert f"partition: {topic_name}-0\tlow_watermark: 5" in deleted.out
    assert get_offsets(tools, broker, topic_name, "--time", "earliest") == {0: 5}
    assert consume(tools, broker, topic_name, 1)[0][0] == "Offset:5"


def test_log_dirs_shows_the_size_of_partitions(tools, broker, log_dir, topic_name):
    produce(tools, broker, topic_name, ["a=b"])
    shown = tools.run(
        "kafka-log-dirs", "--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", topic_name
    )
    (one,) = json.loads(shown.lines[-1])["brokers"]
    (directory,) = one["logDirs"]
    assert directory["error"] is None
    assert directory["logDir"] == str(log_dir)
    size = sum(path.stat().st_size for path in segments(log_dir, topic_name))
    assert directory["partitions"] == [
        {"partition": f"{topic_name}-0", "size": size, "offsetLag": 0, "isFuture": False}
    ]


def test_api_versions_shows_every_advertised_version_as_usable(tools, broker):
    shown = tools.run("kafka-broker-api-versions", "--bootstrap-server", broker.bootstrap)
    assert broker.bootstrap in shown.out
    usable = dict(re.findall(r"(\w+)\(\d+\): .*\[usable: (\d+)\]", shown.out))
    assert {"Produce", "Fetch", "ListOffsets", "Metadata", "CreateTopics", "DescribeCluster"} <= set(usable)


def test_metadata_quorum_describes_the_quorum(tools, endpoint):
    status = tools.run("kafka-metadata-quorum", *endpoint, "describe", "--status").out
    leader = re.search(r"LeaderId:\s+(\d+)", status)[1]
    assert int(re.search(r"HighWatermark:\s+(\d+)", status)[1]) > 0
    assert re.search(r"MaxFollowerLag:\s+0\b", status)
    replication = tools.run("kafka-metadata-quorum", *endpoint, "describe", "--replication").lines
    assert [line.split()[0] for line in replication if "Leader" in line.split()] == [leader]


def test_kafka_features_describes_features(tools, endpoint):
    shown = tools.run("kafka-features", *endpoint, "describe")
    levels = {line.split()[1]: line for line in shown.lines if line.startswith("Feature:")}
    assert "FinalizedVersionLevel" in levels["metadata.version"]


def test_kafka_cluster_shows_the_cluster_id(tools, endpoint):
    shown = tools.run("kafka-cluster", "cluster-id", *endpoint)
    assert re.search(r"Cluster ID: \S{22}", shown.out)


def test_kafka_cluster_lists_endpoints(tools, endpoint):
    if tools.name == "apache-3.9":
        pytest.skip("list-endpoints came with 4.0")
    shown = tools.run("kafka-cluster", "list-endpoints", *endpoint)
    assert endpoint[1].rsplit(":", 1)[1] in shown.out


def test_kafka_configs_describes_configuration(tools, broker, topic):
    server = ["--bootstrap-server", broker.bootstrap]
    shown = tools.run("kafka-configs", *server, "--describe", "--entity-type", "topics", "--entity-name", topic)
    assert "segment.bytes=1048576" in shown.out
    everything = tools.run(
        "kafka-configs", *server, "--describe", "--all", "--entity-type", "brokers", "--entity-name", 1
    )
    assert "log.retention.ms" in everything.out
