"""Changes of configuration keys while a broker is running."""

import logging
import time

import pytest

from kafkacore.config import BrokerConfig, ConfigError, relations
from kafkacore.config.changes import APPEND, DELETE, SET, SUBTRACT, changed
from kafkacore.config.dynamic import adopted, check_change

LIMIT_S = 5  # a few milliseconds are usually enough
STATIC = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "log.segment.bytes": "2000000",
}
CONFIG = BrokerConfig(STATIC)


def refused(values, *, of_one=True):
    with pytest.raises(ConfigError) as error:
        check_change(CONFIG, values, of_one=of_one)
    return str(error.value)


def test_value_comes_from_the_broker_then_the_cluster_then_the_file_then_the_default():
    config = check_change(CONFIG, {"log.segment.bytes": "3000000"}, of_one=False)
    assert config.log_segment_bytes == 3_000_000
    config = check_change(config, {"log.segment.bytes": "4000000"}, of_one=True)
    assert config.log_segment_bytes == 4_000_000
    assert [(each.value, each.source) for each in config.synonyms("log.segment.bytes")] == [
        ("4000000", 2), ("3000000", 3), ("2000000", 4), ("1073741824", 5),
    ]  # fmt: skip
    assert CONFIG.log_segment_bytes == 2_000_000


def test_change_of_a_static_key_is_refused_in_kafkas_words():
    assert refused({"log.retention.hours": "1", "node.id": "2"}) == (
        "Cannot update these configs dynamically: [log.retention.hours, node.id]"
    )
    assert refused({"ssl.keystore.location": "x"}) == (
        "These security configs can be dynamically updated only per-listener using the listener prefix: "
        "[ssl.keystore.location]"
    )
    assert refused({"listener.name.plaintext.ssl.keystore.location": "x"}, of_one=False) == (
        "Cannot update these configs at default cluster level, broker id must be specified: "
        "[listener.name.plaintext.ssl.keystore.location]"
    )
    assert "restart" in refused({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093,X://:1"})


@pytest.mark.parametrize("name", ["leader.replication.throttled.rate", "max.connections", "my.own.key"])
def test_keys_that_may_change_for_all_brokers(name):
    assert check_change(CONFIG, {name: "17"}, of_one=False).get(name) == "17"


def test_change_is_refused_when_its_values_are_wrong_alone_or_together():
    assert "log.segment.bytes=17" in refused({"log.segment.bytes": "17"})
    assert "log.retention.ms" in refused({"log.retention.ms": "0"})
    assert "log.flush.interval.ms=-1" in refused({"log.flush.interval.ms": "-1"}, of_one=False)


@pytest.mark.parametrize(("threads", "allowed"), [("4", True), ("3", False), ("16", True), ("17", False)])
def test_one_change_may_at_most_halve_or_double_a_thread_count(threads, allowed):
    if allowed:
        assert check_change(CONFIG, {"num.io.threads": threads}, of_one=True).num_io_threads == int(threads)
    else:
        assert f"num.io.threads={threads}" in refused({"num.io.threads": threads})


def test_running_broker_keeps_at_least_one_cleaner_thread():
    assert "log.cleaner.threads=0, value should be at least 1" in refused({"log.cleaner.threads": "0"})
    assert check_change(CONFIG, {"log.cleaner.threads": "2"}, of_one=True).log_cleaner_threads == 2


def test_unusable_stored_values_are_ignored_and_logged(caplog):
    stored = {"log.segment.bytes": "nonsense", "node.id": "7", "listeners": "X://:1", "message.max.bytes": "5000"}
    with caplog.at_level(logging.INFO, "kafkacore.config"):
        config = adopted(CONFIG, {"principal.builder.class": "x"}, stored)
    assert config.dynamic_broker == {"message.max.bytes": "5000"}
    assert config.dynamic_default == {}
    told = "\n".join(caplog.messages)
    assert "message.max.bytes is now 5000" in told
    for name in (*stored, "principal.builder.class"):
        assert name in told


def test_stored_value_is_the_only_one_ignored_when_it_contradicts_another(caplog):
    stored = {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8", "my.own.key": "x"}
    config = adopted(CONFIG, {}, stored)
    assert config.dynamic_broker == {"log.cleaner.max.compaction.lag.ms": "8", "my.own.key": "x"}
    assert "log.cleaner.min.compaction.lag.ms is stored as a dynamic setting and ignored" in caplog.text


def test_stored_values_of_all_brokers_remain_when_a_value_of_this_broker_is_contradictory(caplog):
    default = {"min.insync.replicas": "2", "log.cleaner.min.compaction.lag.ms": "9"}
    own = {"cordoned.log.dirs": "/gone", "log.cleaner.max.compaction.lag.ms": "8", "message.max.bytes": "5000"}
    config = adopted(CONFIG, default, own)
    assert config.min_insync_replicas == 2
    assert config.dynamic_default == default
    assert config.dynamic_broker == {"message.max.bytes": "5000"}
    for name in ("cordoned.log.dirs", "log.cleaner.max.compaction.lag.ms"):
        assert f"{name} is stored as a dynamic setting and ignored" in caplog.text


def test_contradictory_stored_value_has_the_same_effect_when_the_broker_runs_as_when_it_starts():
    default, own = {"min.insync.replicas": "2"}, {"cordoned.log.dirs": "/gone"}
    running = adopted(adopted(CONFIG, {"min.insync.replicas": "3"}, {}), default, own)
    assert running.dynamic_default == adopted(CONFIG, default, own).dynamic_default == default
    assert adopted(running, default, own) is running


def test_few_checks_find_a_contradictory_value_among_many(monkeypatch):
    checks = []
    check = relations.check
    monkeypatch.setattr(relations, "check", lambda config: (checks.append(config), check(config)))
    stored = {f"my.own.key.{number}": "x" for number in range(1000)} | {"cordoned.log.dirs": "/gone"}
    assert len(adopted(CONFIG, {}, stored).dynamic_broker) == 1000
    assert len(checks) < 30


def test_stored_number_of_fetchers_is_ignored_when_it_is_0_in_zookeeper_mode(caplog):
    zookeeper = BrokerConfig({"zookeeper.connect": "localhost:2181", "broker.id": "0"})
    stored = {"num.replica.fetchers": "0", "message.max.bytes": "5000"}
    assert adopted(zookeeper, stored, {}).dynamic_default == {"message.max.bytes": "5000"}
    assert "num.replica.fetchers is stored as a dynamic setting and ignored" in caplog.text
    with pytest.raises(ConfigError, match=r"num\.replica\.fetchers=0: must not be 0"):
        BrokerConfig({**zookeeper.static, "num.replica.fetchers": "0"})


@pytest.mark.parametrize("count", ["9" * 5000, "2147483648", "x"])
def test_wrong_connection_count_is_the_only_stored_value_ignored(count, caplog):
    name = "max.connections.per.ip.overrides"
    stored = {name: f"127.0.0.1:{count}", "message.max.bytes": "5000"}
    assert adopted(CONFIG, stored, {}).dynamic_default == {"message.max.bytes": "5000"}
    assert f"{name} is stored as a dynamic setting and ignored" in caplog.text
    assert name in refused({name: stored[name]})


@pytest.mark.parametrize("place", ["dynamic.parse", "relations.check"])
def test_node_starts_when_a_parser_raises_an_unexpected_error(place, caplog, monkeypatch):
    def fails(*arguments):
        raise ValueError("not one of ours")

    monkeypatch.setattr(f"kafkacore.config.{place}", fails)
    assert adopted(CONFIG, {"message.max.bytes": "5000"}, {}).dynamic_default == {}
    assert "not one of ours" in caplog.text


def test_setting_of_one_listener_is_logged_when_only_the_whole_broker_has_it(caplog):
    adopted(CONFIG, {}, {"listener.name.plaintext.max.connections.per.ip": "4"})
    assert "has no effect here: max.connections.per.ip applies to the whole broker" in caplog.text
    caplog.clear()
    adopted(CONFIG, {"listener.name.plaintext.num.network.threads": "4"}, {})
    assert "has no effect here: the processors of a process serve all of its listeners" in caplog.text
    caplog.clear()
    adopted(CONFIG, {"max.connections": "4", "listener.name.plaintext.max.connections": "4"}, {})
    assert "has no effect" not in caplog.text


@pytest.mark.parametrize("name", ["max.connections", "listener.name.plaintext.max.connection.creation.rate"])
def test_change_that_locks_every_client_out_is_refused(name, caplog):
    base = name.removeprefix("listener.name.plaintext.")
    with pytest.raises(ConfigError, match=f"Invalid {base} 0"):
        check_change(CONFIG, {name: "0"}, of_one=False)
    assert adopted(CONFIG, {name: "0"}, {}).dynamic_default == {}
    assert f"Invalid {base} 0" in caplog.text


@pytest.mark.parametrize("name", ["max.connections", "max.connection.creation.rate", "sampled.request.log.every"])
def test_control_characters_around_a_number_are_ignored_as_javas_trim_does(name):
    number = "0" if name == "sampled.request.log.every" else "7"
    assert check_change(CONFIG, {name: f"\x01{number}"}, of_one=False).value(name) == int(number)


def test_secret_is_not_logged(caplog):
    with caplog.at_level(logging.INFO, "kafkacore.config"):
        config = adopted(CONFIG, {}, {"listener.name.plaintext.ssl.key.password": "topsecret", "custom": "topsecret"})
    assert config.get("custom") == "topsecret"
    assert "topsecret" not in caplog.text
    assert "has no effect here: encryption is not supported yet" in caplog.text


def test_key_that_needs_a_restart_is_logged(caplog):
    adopted(CONFIG, {"num.network.threads": "5"}, {})
    assert "num.network.threads has no effect" in caplog.text


def test_removed_setting_returns_to_its_default(caplog):
    with_it = adopted(CONFIG, {}, {"message.max.bytes": "5000"})
    with caplog.at_level(logging.INFO, "kafkacore.config"):
        without = adopted(with_it, {}, {})
    assert without.message_max_bytes == 1_048_588
    assert "message.max.bytes is now its default" in caplog.text
    assert adopted(without, {}, {}) is without


@pytest.mark.parametrize(
    ("current", "operation", "given", "made"),
    [
        ("a", SET, "b", "b"),
        ("a", DELETE, None, None),
        ("a,b", APPEND, "b,c", "a,b,c"),
        (None, APPEND, "c", "default,c"),
        ("a,b,a", SUBTRACT, "a", "b,a"),
        (None, SUBTRACT, "default", ""),
        ("", APPEND, "c,,", "c"),
        ("a", SUBTRACT, "x", "a"),
    ],
)
def test_incremental_change_of_a_setting(current, operation, given, made):
    assert changed(current, operation, given, "default") == made


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_long_list_is_changed_in_linear_time(operation):
    many = ",".join(map(str, range(200_000)))
    begun = time.process_time()
    made = changed(many, operation, many, None)
    assert made == (many if operation == APPEND else "")
    assert time.process_time() - begun < LIMIT_S
