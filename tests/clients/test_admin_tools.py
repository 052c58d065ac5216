"""Administration with Kafka's own command-line tools, from the releases 4.3 and 3.9."""

import json
import re

import pytest


@pytest.fixture
def server(broker):
    return ["--bootstrap-server", broker.bootstrap]


@pytest.fixture
def topic(tools, server, topic_name):
    tools.run("kafka-topics", *server, "--create", "--topic", topic_name, "--partitions", 2)
    return topic_name


@pytest.fixture
def configs(tools, server):
    """Runs kafka-configs for one entity: `configs("topics", name, "--describe")`. A name of None means the default
    entity."""

    def run(kind, name, *arguments, attempt=False):
        entity = ["--entity-default"] if name is None else ["--entity-name", name]
        command = ["kafka-configs", *server, "--entity-type", kind, *entity, *arguments]
        return tools.attempt(*command) if attempt else tools.run(*command)

    return run


def settings(shown):
    """Returns the keys and values that kafka-configs prints."""
    return dict(re.findall(r"^\s*([\w.-]+)=(.*?) sensitive=", shown.out, re.MULTILINE))


def test_kafka_configs_sets_and_deletes_settings_of_a_topic(configs, topic):
    configs("topics", topic, "--alter", "--add-config", "retention.ms=3600000,cleanup.policy=[compact,delete]")
    shown = configs("topics", topic, "--describe")
    assert settings(shown) == {"retention.ms": "3600000", "cleanup.policy": "compact,delete"}
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=3600000" in shown.out
    configs("topics", topic, "--alter", "--delete-config", "cleanup.policy")
    assert settings(configs("topics", topic, "--describe")) == {"retention.ms": "3600000"}
    everything = settings(configs("topics", topic, "--describe", "--all"))
    assert (everything["cleanup.policy"], everything["retention.ms"]) == ("delete", "3600000")


@pytest.mark.parametrize(
    ("change", "told"),
    [("retention.ms=soon", "retention.ms"), ("colour=blue", "colour"), ("min.compaction.lag.ms=-7", "min.compaction")],
)
def test_kafka_configs_fails_when_a_topic_cannot_have_the_setting(configs, topic, change, told):
    refused = configs("topics", topic, "--alter", "--add-config", change, attempt=True)
    assert refused.exit != 0
    assert "InvalidConfigurationException" in refused.out + refused.err
    assert told in refused.out + refused.err
    assert settings(configs("topics", topic, "--describe")) == {}


def test_kafka_configs_fails_when_the_topic_does_not_exist(configs):
    refused = configs("topics", "absent", "--alter", "--add-config", "retention.ms=1", attempt=True)
    assert refused.exit != 0
    assert "UnknownTopicOrPartitionException" in refused.out + refused.err


def test_setting_of_one_broker_overrides_the_default_of_all(configs, topic):
    try:
        configs("brokers", None, "--alter", "--add-config", "log.segment.bytes=2000000")
        configs("brokers", "1", "--alter", "--add-config", "log.segment.bytes=3000000,log.cleaner.threads=2")
        assert settings(configs("brokers", None, "--describe"))["log.segment.bytes"] == "2000000"
        shown = configs("brokers", "1", "--describe")
        assert settings(shown)["log.segment.bytes"] == "3000000"
        sources = ["DYNAMIC_BROKER_CONFIG:log.segment.bytes=3", "DYNAMIC_DEFAULT_BROKER_CONFIG:log.segment.bytes=2"]
        assert "000000, ".join(sources) in shown.out
        assert settings(configs("topics", topic, "--describe", "--all"))["segment.bytes"] == "3000000"
        configs("brokers", "1", "--alter", "--delete-config", "log.segment.bytes,log.cleaner.threads")
        assert settings(configs("topics", topic, "--describe", "--all"))["segment.bytes"] == "2000000"
    finally:
        for name, keys in ((None, "log.segment.bytes"), ("1", "log.segment.bytes,log.cleaner.threads")):
            configs("brokers", name, "--alter", "--delete-config", keys, attempt=True)
    assert settings(configs("topics", topic, "--describe", "--all"))["segment.bytes"] == "1073741824"


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("1", "log.retention.hours=3", "Cannot update these configs dynamically"),
        ("1", "ssl.keystore.location=x", "only per-listener using the listener prefix"),
        (None, "listener.name.plaintext.ssl.keystore.location=x", "at default cluster level, broker id must be"),
        ("1", "num.io.threads=1000", "dynamic configuration|Dynamic thread count update"),
        ("1", "log.segment.bytes=1", "log.segment.bytes"),
    ],
)
def test_kafka_configs_fails_when_a_broker_cannot_change_the_setting(configs, name, change, told):
    refused = configs("brokers", name, "--alter", "--add-config", change, attempt=True)
    assert refused.exit != 0
    assert re.search(told, refused.out + refused.err)


def test_kafka_configs_changes_levels_of_loggers(configs, broker):
    ours = settings(configs("broker-loggers", "1", "--describe"))
    name = "kafkacore.server" if broker.ours else "kafka.server.KafkaApis"
    if not broker.ours and name not in ours:
        pytest.skip("the peer has no logger with this name")
    before = ours[name]
    configs("broker-loggers", "1", "--alter", "--add-config", f"{name}=ERROR")
    assert settings(configs("broker-loggers", "1", "--describe"))[name] == "ERROR"
    configs("broker-loggers", "1", "--alter", "--delete-config", name)
    assert settings(configs("broker-loggers", "1", "--describe"))[name] in (before, ours["root"])
    refused = configs("broker-loggers", "1", "--alter", "--add-config", f"{name}=LOUD", attempt=True)
    assert refused.exit != 0


def test_kafka_configs_stores_quotas_of_users_clients_and_addresses(tools, server, configs):
    def quotas(*entity):
        shown = tools.run("kafka-configs", *server, "--describe", *entity).out
        return {key: float(value) for key, value in re.findall(r"(\w+)=([\d.E]+)", shown)}

    alice, app = ["--entity-type", "users", "--entity-name", "alice"], ["--entity-type", "clients", "--entity-default"]
    change = "producer_byte_rate=1024,request_percentage=12.5"
    for entity in (alice, [*alice, *app]):
        tools.run("kafka-configs", *server, "--alter", "--add-config", change, *entity)
        assert quotas(*entity) == {"producer_byte_rate": 1024, "request_percentage": 12.5}
        tools.run("kafka-configs", *server, "--alter", "--delete-config", "request_percentage", *entity)
        assert quotas(*entity) == {"producer_byte_rate": 1024}
        tools.run("kafka-configs", *server, "--alter", "--delete-config", "producer_byte_rate", *entity)
        assert quotas(*entity) == {}
    configs("ips", "10.1.2.3", "--alter", "--add-config", "connection_creation_rate=7")
    assert quotas("--entity-type", "ips", "--entity-name", "10.1.2.3") == {"connection_creation_rate": 7}
    configs("ips", "10.1.2.3", "--alter", "--delete-config", "connection_creation_rate")


def test_kafka_configs_sets_groups_and_client_metrics(tools, configs):
    if tools.name == "apache-3.9":
        pytest.skip("they came with 4.0")
    configs("groups", "g", "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert settings(configs("groups", "g", "--describe")) == {"consumer.session.timeout.ms": "50000"}
    refused = configs("groups", "g", "--alter", "--add-config", "consumer.session.timeout.ms=1", attempt=True)
    assert "InvalidConfigurationException" in refused.out + refused.err
    configs("groups", "g", "--alter", "--delete-config", "consumer.session.timeout.ms")
    configs("client-metrics", "m", "--alter", "--add-config", "interval.ms=1000,match=[client_id=app-1]")
    assert settings(configs("client-metrics", "m", "--describe")) == {"interval.ms": "1000", "match": "client_id=app-1"}
    configs("client-metrics", "m", "--alter", "--delete-config", "interval.ms,match")


def test_leader_election_elects_only_where_a_leader_is_missing(tools, server, topic, tmp_path):
    elect = ["kafka-leader-election", *server]
    preferred = tools.run(*elect, "--election-type", "preferred", "--topic", topic, "--partition", 0)
    assert "Valid replica already elected" in preferred.out
    wanted = tmp_path / "elect.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": topic, "partition": each} for each in (0, 1)]}))
    unclean = tools.run(*elect, "--election-type", "unclean", "--path-to-json-file", wanted)
    assert f"{topic}-0" in unclean.out and f"{topic}-1" in unclean.out
    tools.run(*elect, "--election-type", "preferred", "--all-topic-partitions")
    refused = tools.attempt(*elect, "--election-type", "preferred", "--topic", "absent", "--partition", 0)
    assert refused.exit != 0
    assert "UnknownTopicOrPartition" in refused.out + refused.err


def test_reassignment_works_as_far_as_one_broker_allows(tools, server, topic, tmp_path):
    reassign = ["kafka-reassign-partitions", *server]
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    shown = tools.run(*reassign, "--generate", "--broker-list", 1, "--topics-to-move-json-file", topics)
    proposed = json.loads(shown.lines[shown.lines.index("Proposed partition reassignment configuration") + 1])
    assert [each["replicas"] for each in proposed["partitions"]] == [[1], [1]]
    plan.write_text(json.dumps(proposed))
    executed = tools.run(*reassign, "--execute", "--reassignment-json-file", plan)
    assert "Successfully started partition reassignment" in executed.out
    verified = tools.run(*reassign, "--verify", "--reassignment-json-file", plan)
    assert f"Reassignment of partition {topic}-0 is completed." in verified.out
    assert "No partition reassignments found." in tools.run(*reassign, "--list").out
    cancelled = tools.run(*reassign, "--cancel", "--reassignment-json-file", plan)
    assert "None of the specified partition moves are active." in cancelled.out
    for each in proposed["partitions"]:
        each["replicas"], each["log_dirs"] = [7], ["any"]
    plan.write_text(json.dumps(proposed))
    refused = tools.attempt(*reassign, "--execute", "--reassignment-json-file", plan)
    assert refused.exit != 0
    assert "Unknown broker id 7" in refused.out + refused.err


def test_kafka_features_changes_levels_and_reports_refusals(tools, server):
    features = ["kafka-features", *server]
    (line,) = [line for line in tools.run(*features, "describe").lines if "Feature: metadata.version" in line]
    same = re.search(r"FinalizedVersionLevel: (\S+)", line)[1]
    if "-IV" in same:
        again = tools.run(*features, "upgrade", "--metadata", same)
        assert "metadata.version was upgraded to" in again.out
        dry = tools.run(*features, "upgrade", "--dry-run", "--metadata", same)
        assert "metadata.version can be upgraded to" in dry.out
    for command in (["downgrade", "--feature", "metadata.version=1"], ["upgrade", "--feature", "metadata.version=999"]):
        refused = tools.attempt(*features, *command)
        assert refused.exit != 0
        assert re.search("Could not|is not supported|Invalid", refused.out + refused.err)


def test_kafka_configs_stores_scram_users(configs):
    configs("users", "carol", "--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=secret]")
    shown = configs("users", "carol", "--describe")
    assert "SCRAM-SHA-512=iterations=8192" in shown.out
    assert "secret" not in shown.out
    configs("users", "carol", "--alter", "--delete-config", "SCRAM-SHA-512")
    assert "SCRAM" not in configs("users", "carol", "--describe").out
    few = "SCRAM-SHA-512=[iterations=17,password=secret]"
    refused = configs("users", "carol", "--alter", "--add-config", few, attempt=True)
    assert refused.exit != 0


def test_kafka_transactions_describes_producers_of_a_partition(tools, server, topic):
    tools.run(
        "kafka-producer-perf-test", "--topic", topic, "--num-records", 100, "--record-size", 10, "--throughput", -1,
        "--producer-props", f"bootstrap.servers={server[1]}", "enable.idempotence=true",
    )  # fmt: skip
    known = [
        line.split()
        for partition in (0, 1)
        for line in tools.run(
            "kafka-transactions", *server, "describe-producers", "--topic", topic, "--partition", partition
        ).lines[1:]
    ]
    assert known, "at least one of the partitions must have records"
    for _, epoch, _, last_sequence, _, open_since in known:
        assert (epoch, open_since) == ("0", "None")
        assert int(last_sequence) >= 0
    listed = tools.run("kafka-transactions", *server, "list")
    assert listed.lines[0].split()[0] == "TransactionalId"
