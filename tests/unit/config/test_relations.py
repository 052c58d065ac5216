"""A node does not start if its keys contradict each other. The error names the key, its value and the allowed
values."""

import pytest

from kafkacore.config import BrokerConfig, ConfigError

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}
BROKER = COMBINED | {"process.roles": "broker", "node.id": "2", "listeners": "PLAINTEXT://:9092"}
CONTROLLER = COMBINED | {"process.roles": "controller", "listeners": "CONTROLLER://:9093"}
ZOOKEEPER = {"zookeeper.connect": "localhost:2181", "broker.id": "0", "listeners": "PLAINTEXT://:9092"}
TWO_BROKER_LISTENERS = {
    "listeners": "PLAINTEXT://:9092,CONTROL://:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
}


def refused(base, changes):
    """Returns the error message for the configuration `base` with `changes`. A value of None in `changes` removes the
    key."""
    with pytest.raises(ConfigError) as error:
        BrokerConfig({key: value for key, value in (base | changes).items() if value is not None})
    return error.value


@pytest.mark.parametrize(
    "base", [COMBINED, BROKER, CONTROLLER, ZOOKEEPER], ids=["combined", "broker", "controller", "zookeeper"]
)
def test_sound_configuration_is_accepted(base):
    config = BrokerConfig(base)
    assert {key: config.get(key) for key in base} == base


@pytest.mark.parametrize(
    ("base", "changes", "key", "allowed"),
    [
        (COMBINED, {"process.roles": None}, "process.roles", "it has no default"),
        (COMBINED, {"node.id": None}, "node.id", "it has no default"),
        (COMBINED, {"node.id": "-1"}, "node.id", "at least 0"),
        (COMBINED, {"broker.id": "2"}, "broker.id", "must be the same as node.id=1"),
        (COMBINED, {"offsets.topic.compression.codec": "5"}, "offsets.topic.compression.codec", "4 (zstd)"),
        (COMBINED, {"controller.listener.names": None}, "controller.listener.names", "it has no default"),
        (
            COMBINED,
            {"controller.quorum.voters": None},
            "controller.quorum.bootstrap.servers",
            "set it to the host:port",
        ),
        (COMBINED, {"controller.quorum.voters": "2@x:1"}, "controller.quorum.voters", "must list node.id=1"),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://:9092"},
            "controller.listener.names",
            "CONTROLLER must be one of listeners",
        ),
        (COMBINED, {"listeners": "CONTROLLER://:9093"}, "listeners", "must have at least one listener that is not in"),
        (BROKER, {"node.id": "1"}, "controller.quorum.voters", "must not list node.id=1"),
        (
            BROKER,
            {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
            "controller.listener.names",
            "must not name a listener of `listeners`",
        ),
        (
            BROKER,
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            "controller.listener.names",
            "CONTROLLER must be in listener.security.protocol.map",
        ),
        (BROKER, {"controller.quorum.auto.join.enable": "true"}, "controller.quorum.auto.join.enable", "must be false"),
        (
            CONTROLLER,
            {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
            "listeners",
            "must contain only controller.listener.names",
        ),
        (CONTROLLER, {"inter.broker.listener.name": "CONTROLLER"}, "controller.listener.names", "must not contain"),
    ],
)
def test_start_fails_when_roles_and_quorum_contradict_each_other(base, changes, key, allowed):
    error = refused(base, changes)
    assert error.key == key
    assert allowed in str(error)


@pytest.mark.parametrize(
    ("changes", "key", "allowed"),
    [
        ({"listeners": "PLAINTEXT:9092,CONTROLLER://:9093"}, "listeners", "must be NAME://host:port"),
        ({"listeners": "PLAINTEXT://:x,CONTROLLER://:9093"}, "listeners", "port from 0 to 65535"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9094,CONTROLLER://:9093"}, "listeners", "a different name"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"}, "listeners", "its own port"),
        (
            {"listeners": "OTHER://:9092,CONTROLLER://:9093"},
            "listeners",
            "no security protocol is defined for listener OTHER",
        ),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "listener.security.protocol.map", "must be NAME:PROTOCOL"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:TLS"},
            "listener.security.protocol.map",
            "TLS is not a security protocol",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
            "advertised.listeners",
            "clients cannot connect to 0.0.0.0",
        ),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"},
            "listeners",
            "clients cannot connect to 0.0.0.0",
        ),
        ({"advertised.listeners": "SSL://x:9092"}, "advertised.listeners", "SSL must be one of listeners"),
        (
            {"inter.broker.listener.name": "NONE"},
            "inter.broker.listener.name",
            "must be in listener.security.protocol.map",
        ),
        (
            {"inter.broker.listener.name": "SSL"},
            "inter.broker.listener.name",
            "must be the name of an advertised listener",
        ),
        (
            {"security.inter.broker.protocol": "SSL"},
            "security.inter.broker.protocol",
            "must be the name of an advertised",
        ),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "inter.broker.listener.name",
            "set only one of them",
        ),
    ],
)
def test_start_fails_when_listeners_contradict_each_other(changes, key, allowed):
    error = refused(COMBINED, changes)
    assert error.key == key
    assert allowed in str(error)


def test_control_plane_is_refused_in_kraft_mode():
    error = refused(COMBINED, {"control.plane.listener.name": "CONTROLLER"})
    assert "is not supported in KRaft mode" in str(error)


def test_control_plane_has_a_listener_of_its_own():
    config = BrokerConfig(ZOOKEEPER | TWO_BROKER_LISTENERS | {"control.plane.listener.name": "CONTROL"})
    assert config.control_plane_listener.listener == "CONTROL"
    assert [endpoint.listener for endpoint in config.data_plane_listeners] == ["PLAINTEXT"]


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({"control.plane.listener.name": "NONE"}, "must be in listener.security.protocol.map"),
        (
            {"control.plane.listener.name": "SSL", "listener.security.protocol.map": None},
            "must be the name of an advertised",
        ),
        ({"control.plane.listener.name": "PLAINTEXT"}, "must not be the same as inter.broker.listener.name"),
        (
            {"control.plane.listener.name": "CONTROL", "advertised.listeners": "PLAINTEXT://x:9092"},
            "must be the name of an advertised listener: PLAINTEXT",
        ),
    ],
)
def test_control_plane_is_refused_when_no_listener_fits(changes, allowed):
    listeners = TWO_BROKER_LISTENERS if changes.get("listener.security.protocol.map", "") is not None else {}
    error = refused(ZOOKEEPER | listeners, changes)
    assert error.key == "control.plane.listener.name"
    assert allowed in str(error)


@pytest.mark.parametrize(
    ("changes", "key", "allowed"),
    [
        ({"log.roll.ms": "0"}, "log.roll.ms", "at least 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms", "at least 0"),
        ({"log.flush.interval.ms": "-1"}, "log.flush.interval.ms", "at least 0"),
        ({"log.flush.scheduler.interval.ms": "-1"}, "log.flush.scheduler.interval.ms", "at least 0"),
        ({"log.retention.ms": "0"}, "log.retention.ms", "at least 1, or -1"),
        ({"log.retention.minutes": "0"}, "log.retention.minutes", "at least 1, or -1"),
        ({"log.retention.hours": "0"}, "log.retention.hours", "at least 1, or -1"),
        ({"log.dirs": ","}, "log.dirs", "without empty entries and not empty"),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, "log.cleaner.dedupe.buffer.size", "more than 1 MiB"),
        (
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            "log.cleaner.min.compaction.lag.ms",
            "at most log.cleaner.max.compaction.lag.ms=1",
        ),
        ({"cordoned.log.dirs": "/nowhere"}, "cordoned.log.dirs", "/nowhere is not one of log.dirs"),
        ({"cordoned.log.dirs": "*,/tmp/kafka-logs"}, "cordoned.log.dirs", "must be * alone"),
        (
            {"replica.fetch.wait.max.ms": "40000"},
            "replica.socket.timeout.ms",
            "at least replica.fetch.wait.max.ms=40000",
        ),
        (
            {"replica.fetch.wait.max.ms": "1000", "replica.lag.time.max.ms": "999"},
            "replica.fetch.wait.max.ms",
            "at most replica.lag.time.max.ms=999",
        ),
        (
            {"queued.max.request.bytes": "1000"},
            "queued.max.request.bytes",
            "at least socket.request.max.bytes=104857600",
        ),
        ({"num.replica.alter.log.dirs.threads": "0"}, "num.replica.alter.log.dirs.threads", "at least 1"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip", "at least 1 unless"),
        (
            {"max.connections.per.ip.overrides": "a b:1"},
            "max.connections.per.ip.overrides",
            "is not the name or address",
        ),
        ({"max.connections.per.ip.overrides": "a"}, "max.connections.per.ip.overrides", "must be host:count"),
        (
            {"connections.max.idle.ms": "100"},
            "connection.failed.authentication.delay.ms",
            "less than connections.max.idle.ms=100",
        ),
    ],
)
def test_start_fails_when_limits_and_times_contradict_each_other(changes, key, allowed):
    error = refused(COMBINED, changes)
    assert error.key == key
    assert allowed in str(error)


def test_inter_broker_sasl_mechanism_must_be_enabled():
    secured = {
        "listeners": "SASL_PLAINTEXT://:9092,CONTROLLER://:9093",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    assert "must be one of sasl.enabled.mechanisms" in str(refused(COMBINED, secured))
    BrokerConfig(COMBINED | secured | {"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN"})


@pytest.mark.parametrize(
    ("changes", "key", "allowed"),
    [
        ({"broker.id": "2000"}, "broker.id", "reserved.broker.max.id=1000"),
        ({"broker.id": "-1", "broker.id.generation.enable": "false"}, "broker.id", "at least 0"),
        ({"controller.listener.names": "CONTROLLER"}, "controller.listener.names", "must be left out"),
        ({"zookeeper.metadata.migration.enable": "true"}, "controller.listener.names", "must be set"),
    ],
)
def test_start_fails_when_zookeeper_keys_contradict_each_other(changes, key, allowed):
    error = refused(ZOOKEEPER, changes)
    assert error.key == key
    assert allowed in str(error)


def test_zookeeper_mode_has_the_defaults_of_3_9():
    assert BrokerConfig(ZOOKEEPER).num_recovery_threads_per_data_dir == 1
    assert BrokerConfig(COMBINED).num_recovery_threads_per_data_dir == 2


def test_heartbeat_interval_near_the_session_timeout_is_allowed_with_a_warning():
    config = BrokerConfig(COMBINED | {"broker.heartbeat.interval.ms": "5000"})
    assert any("at most half of broker.session.timeout.ms=9000" in note for note in config.notes())


def test_control_plane_listener_is_advertised_during_a_migration_even_as_a_controller_listener() -> None:
    """KAFKA-17788: the control-plane listener may also be a controller listener during a migration."""
    migrating = {
        "zookeeper.metadata.migration.enable": "true", "controller.listener.names": "CONTROL",
        "controller.quorum.voters": "1@h:9093", "control.plane.listener.name": "CONTROL",
    }  # fmt: skip
    config = BrokerConfig(ZOOKEEPER | TWO_BROKER_LISTENERS | migrating)
    assert "CONTROL" in {endpoint.listener for endpoint in config.advertised_listeners}
