"""A node's configuration: each key of KIP-631 and the listeners, from the file to the parsed value."""

import logging

import pytest

from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.config.addresses import Address, Voter
from kafkacore.config.listeners import Endpoint
from kafkacore.config.sources import Source, Synonym

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}
BROKER = COMBINED | {"process.roles": "broker", "node.id": "2", "listeners": "PLAINTEXT://:9092"}


def config(changes=None, base=COMBINED):
    return BrokerConfig({key: value for key, value in (base | (changes or {})).items() if value is not None})


# -- the table of KIP-631


@pytest.mark.parametrize(
    ("roles", "expected"),
    [("broker,controller", {"broker", "controller"}), ("controller, broker", {"broker", "controller"})],
)
def test_process_roles(roles, expected):
    assert config({"process.roles": roles}).process_roles == expected


def test_node_id():
    assert config().node_id == 1
    assert config().broker_id == 1


def test_broker_id_stands_for_node_id():
    assert config({"node.id": None, "broker.id": "1"}).node_id == 1


def test_controller_listener_names():
    two = {"controller.listener.names": "CONTROLLER,C2", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093,C2://:9094"}
    assert config(two).controller_listener_names == ("CONTROLLER", "C2")
    assert [endpoint.listener for endpoint in config(two).controller_listeners] == ["CONTROLLER", "C2"]


def test_controller_quorum_voters():
    voters = config({"controller.quorum.voters": "1@a:1,2@[::1]:2"}).controller_quorum_voters
    assert voters == (Voter(1, Address("a", 1)), Voter(2, Address("::1", 2)))
    assert [str(voter) for voter in voters] == ["1@a:1", "2@[::1]:2"]


def test_controller_quorum_bootstrap_servers():
    changes = {"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": "a:1,b:2"}
    assert config(changes).controller_quorum_bootstrap_servers == (Address("a", 1), Address("b", 2))


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("initial.broker.registration.timeout.ms", 60_000),
        ("broker.heartbeat.interval.ms", 2_000),
        ("broker.session.timeout.ms", 9_000),
        ("metadata.log.max.record.bytes.between.snapshots", 20 * 1024 * 1024),
        ("metadata.log.max.snapshot.interval.ms", 3_600_000),
        ("metadata.log.segment.bytes", 1 << 30),
        ("metadata.log.segment.ms", 7 * 24 * 3_600_000),
        ("metadata.max.retention.bytes", 100 * 1024 * 1024),
        ("metadata.max.retention.ms", 7 * 24 * 3_600_000),
        ("metadata.max.idle.interval.ms", 500),
        ("controller.quorum.election.timeout.ms", 1_000),
        ("controller.quorum.election.backoff.max.ms", 1_000),
        ("controller.quorum.fetch.timeout.ms", 2_000),
        ("controller.quorum.append.linger.ms", 25),
        ("controller.quorum.request.timeout.ms", 2_000),
        ("controller.quorum.retry.backoff.ms", 20),
        ("server.max.startup.time.ms", 2**63 - 1),
    ],
)
def test_kraft_timings_and_sizes(key, default):
    attribute = key.replace(".", "_")
    assert getattr(config(), attribute) == default
    changed = 16_777_216 if key.endswith("bytes") else 1_234
    assert getattr(config({key: str(changed)}), attribute) == changed


def test_log_dirs():
    assert config().log_dirs == ("/tmp/kafka-logs",)
    assert config({"log.dir": "/a"}).log_dirs == ("/a",)
    assert config({"log.dir": "/a", "log.dirs": "/b, /c,/b"}).log_dirs == ("/b", "/c")


def test_metadata_log_dir_is_the_first_log_dir_unless_it_is_set():
    assert config({"log.dirs": "/b,/c"}).metadata_log_dir == "/b"
    elsewhere = config({"log.dirs": "/b,/c", "metadata.log.dir": "/m"})
    assert elsewhere.metadata_log_dir == "/m"
    assert elsewhere.all_log_dirs == ("/b", "/c", "/m")


# -- values that depend on several keys


@pytest.mark.parametrize(
    ("changes", "retention_ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.ms": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_comes_from_the_finest_unit_that_is_set(changes, retention_ms):
    assert config(changes).log_retention_ms == retention_ms


def test_roll_and_flush_fall_back():
    assert config({"log.roll.hours": "2"}).log_roll_ms == 7_200_000
    assert config({"log.roll.hours": "2", "log.roll.ms": "5"}).log_roll_ms == 5
    assert config({"log.roll.jitter.hours": "1"}).log_roll_jitter_ms == 3_600_000
    assert config({"log.flush.scheduler.interval.ms": "9"}).log_flush_interval_ms == 9


def test_max_connections_per_ip_overrides():
    overrides = config({"max.connections.per.ip.overrides": "localhost:3, ::1:4"}).max_connections_per_ip_overrides
    assert overrides == {"localhost": 3, "::1": 4}
    most = config({"max.connections.per.ip.overrides": "a:0002147483647,b:0"}).max_connections_per_ip_overrides
    assert most == {"a": 2147483647, "b": 0}


@pytest.mark.parametrize("count", ["2147483648", "9" * 5000, "\u0663", "-1", "", "1_0"])
def test_wrong_connection_count_is_refused(count):
    with pytest.raises(ConfigError, match=r"must be host:count, a count from 0 to 2147483647"):
        config({"max.connections.per.ip.overrides": f"127.0.0.1:{count}"})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("controller.quorum.voters", "1@localhost:{}"),
        ("controller.quorum.voters", "{}@localhost:9093"),
        ("listeners", "PLAINTEXT://:{},CONTROLLER://:9093"),
        ("num.partitions", "{}"),
    ],
)
def test_number_of_thousands_of_digits_is_refused(key, text):
    with pytest.raises(ConfigError) as error:
        config({key: text.format("9" * 5000)})
    assert error.value.key == key


# -- listeners


def test_listeners():
    listeners = config({"listeners": "plaintext://[::1]:9092,CONTROLLER://0.0.0.0:9093"}).listeners
    assert listeners == (
        Endpoint("PLAINTEXT", "PLAINTEXT", "::1", 9092),
        Endpoint("CONTROLLER", "PLAINTEXT", "0.0.0.0", 9093),
    )
    assert str(listeners[0]) == "PLAINTEXT://[::1]:9092"


def test_port_zero_may_repeat():
    assert [e.port for e in config({"listeners": "PLAINTEXT://:0,CONTROLLER://:0"}).listeners] == [0, 0]


def test_the_same_port_on_ipv4_and_ipv6():
    listeners = "PLAINTEXT://127.0.0.1:9092,P6://[::1]:9092,CONTROLLER://:9093"
    protocols = "PLAINTEXT:PLAINTEXT,P6:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert len(config({"listeners": listeners, "listener.security.protocol.map": protocols}).listeners) == 3


def test_listeners_are_sorted_into_planes():
    assert [endpoint.listener for endpoint in config().data_plane_listeners] == ["PLAINTEXT"]
    assert [endpoint.listener for endpoint in config().controller_listeners] == ["CONTROLLER"]
    assert config().control_plane_listener is None


def test_controller_listeners_are_plaintext_unless_anything_is_secured():
    assert config().listener_security_protocol_map["CONTROLLER"] == "PLAINTEXT"
    with pytest.raises(ConfigError, match=r"no security protocol is defined for listener CONTROLLER"):
        config({"listeners": "SSL://:9092,CONTROLLER://:9093"})
    with pytest.raises(ConfigError, match=r"no security protocol is defined for listener CONTROLLER"):
        config({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"})


def test_advertised_listeners_are_the_listeners_unless_they_are_set():
    assert config().advertised_listeners == (Endpoint("PLAINTEXT", "PLAINTEXT", None, 9092),)
    advertised = config({"advertised.listeners": "PLAINTEXT://outside:19092,CONTROLLER://quorum:19093"})
    assert advertised.advertised_listeners == (Endpoint("PLAINTEXT", "PLAINTEXT", "outside", 19092),)
    assert advertised.advertised_controller_listeners == (Endpoint("CONTROLLER", "PLAINTEXT", "quorum", 19093),)


def test_controller_on_every_address_advertises_its_voter_address():
    assert config().advertised_controller_listeners == (Endpoint("CONTROLLER", "PLAINTEXT", "localhost", 9093),)
    dynamic = {"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": "x:1"}
    anywhere = config(dynamic | {"listeners": "PLAINTEXT://:9092,CONTROLLER://0.0.0.0:9093"})
    assert anywhere.advertised_controller_listeners == (Endpoint("CONTROLLER", "PLAINTEXT", None, 9093),)


def test_inter_broker_listener_is_set_by_its_name_or_by_its_protocol():
    assert config().inter_broker_listener_name == "PLAINTEXT"
    named = {
        "listeners": "OUT://:9092,IN://:9094,CONTROLLER://:9093",
        "listener.security.protocol.map": "OUT:PLAINTEXT,IN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "in",
    }
    assert config(named).inter_broker_listener_name == "IN"
    assert config(named).inter_broker_security_protocol == "PLAINTEXT"


# -- kafkacore's own keys


def test_metrics_port():
    assert config().metrics_port == -1
    assert config({"metrics.port": "0"}).metrics_port == 0
    with pytest.raises(ConfigError, match=r"metrics.port=65536: must be an int from -1 to 65535"):
        config({"metrics.port": "65536"})


# -- the configuration object


def test_configuration_is_immutable():
    made = config()
    with pytest.raises(AttributeError, match="cannot be changed"):
        made.num_partitions = 3
    with pytest.raises(AttributeError, match="has no key no\\.such\\.key"):
        _ = made.no_such_key


def test_override_wins_over_the_file(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in COMBINED.items()))
    assert BrokerConfig.load(str(file), ["num.partitions=5", "node.id=1"]).num_partitions == 5


def test_keys_without_effect_are_kept_and_reported(tmp_path, caplog):
    of_one = "listener.name.plaintext.max.connections.per.ip"
    misspelt = "listener.name.PLAINTEXT.max.connection.creation.rate"
    threads = "listener.name.plaintext.num.network.threads"
    file = tmp_path / "server.properties"
    more = {
        "my.plugin.key": "x",
        "log.segment.byte": "4194304",
        "zookeeper.set.acl": "true",
        "quota.window.num": "3",
        of_one: "4",
        "listener.name.plaintext.max.connections": "4",
        misspelt: "4",
        threads: "4",
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in (COMBINED | more).items()))
    with caplog.at_level(logging.WARNING):
        made = BrokerConfig.load(str(file))
    assert made.get("my.plugin.key") == "x"
    assert {record.getMessage() for record in caplog.records} == {
        "my.plugin.key: unknown key, kept but not used",
        "log.segment.byte: unknown key, kept but not used; do you mean log.segment.bytes?",
        "zookeeper.set.acl: removed in Kafka 4.0, has no effect in KRaft mode",
        "quota.window.num: valid, but has no effect here: quotas are stored, but not enforced yet",
        f"{of_one}: valid, but has no effect here: max.connections.per.ip applies to the whole broker",
        f"{misspelt}: has no effect: `listeners` has no listener of that name (a key names it in lower case)",
        f"{threads}: valid, but has no effect here: the processors of a process serve all of its listeners",
    }


def test_listener_has_its_own_limits_or_the_brokers_limits():
    made = config({"max.connections": "7", "listener.name.plaintext.max.connections": "4"})
    assert made.has_own_limits("PLAINTEXT")
    assert (made.max_connections, made.of_listener("PLAINTEXT", "max.connections")) == (7, 4)
    assert made.of_listener("PLAINTEXT", "max.connection.creation.rate") == made.max_connection_creation_rate
    assert not made.has_own_limits("CONTROLLER")
    assert made.of_listener("CONTROLLER", "max.connections") == 7
    # A dynamic setting of the broker does not override the listener's own static setting.
    assert made.with_dynamic(broker={"max.connections": "9"}).of_listener("PLAINTEXT", "max.connections") == 4


def test_keys_without_effect_are_validated_too():
    with pytest.raises(ConfigError, match=r"quota.window.num=0: must be an int of at least 1"):
        config({"quota.window.num": "0"})
    with pytest.raises(ConfigError, match=r"listener.name.plaintext.max.connections=-1|max.connections=-1"):
        config({"listener.name.plaintext.max.connections": "-1"})


def test_dynamic_value_wins_over_a_static_one():
    made = config({"log.retention.ms": "1000"}).with_dynamic(default={"log.retention.ms": "2000"})
    assert made.log_retention_ms == 2000
    assert made.with_dynamic(broker={"log.retention.ms": "3000"}).log_retention_ms == 3000
    with pytest.raises(ConfigError, match=r"log.retention.ms=x: must be a long"):
        made.with_dynamic(broker={"log.retention.ms": "x"})


# -- DescribeConfigs


def test_value_is_described_with_its_source_and_synonyms():
    made = config({"log.segment.bytes": "2000000"}).with_dynamic(
        default={"log.segment.bytes": "3000000"}, broker={"log.segment.bytes": "4000000"}
    )
    entry = made.describe("log.segment.bytes")
    assert (entry.value, entry.source, entry.read_only, entry.sensitive) == (
        "4000000",
        Source.DYNAMIC_BROKER_CONFIG,
        False,
        False,
    )
    assert [(synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("4000000", Source.DYNAMIC_BROKER_CONFIG),
        ("3000000", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("2000000", Source.STATIC_BROKER_CONFIG),
        ("1073741824", Source.DEFAULT_CONFIG),
    ]


def test_secrets_and_unknown_keys_are_described_without_their_value():
    made = config({"ssl.key.password": "secret", "my.plugin.key": "x"})
    for name in ("ssl.key.password", "my.plugin.key"):
        assert made.describe(name).sensitive
        assert made.describe(name).value is None
        assert made.describe(name).synonyms[0].value is None
    assert {"ssl.key.password", "my.plugin.key", "num.partitions"} <= set(made.described_names())
    assert "unstable.api.versions.enable" not in made.described_names()
    assert "zookeeper.connect" not in made.described_names()


def test_value_of_a_listener_has_the_common_one_as_a_synonym():
    entry = config({"listener.name.plaintext.max.connections": "4", "max.connections": "9"}).describe(
        "listener.name.plaintext.max.connections"
    )
    assert [(synonym.name, synonym.value) for synonym in entry.synonyms] == [
        ("listener.name.plaintext.max.connections", "4"),
        ("max.connections", "9"),
        ("max.connections", "2147483647"),
    ]


def test_default_of_the_machine_applies_and_is_described_until_the_key_is_set():
    made = config().with_node_defaults({"num.network.threads": "7"})
    assert made.num_network_threads == 7
    assert not made.is_set("num.network.threads")
    shown = made.describe("num.network.threads")
    assert (shown.value, shown.source) == ("7", Source.DEFAULT_CONFIG)
    assert shown.synonyms == (Synonym("num.network.threads", "7", Source.DEFAULT_CONFIG),)
    changed = made.with_dynamic(broker={"num.network.threads": "5"})
    assert [(each.value, each.source) for each in changed.describe("num.network.threads").synonyms] == [
        ("5", Source.DYNAMIC_BROKER_CONFIG),
        ("7", Source.DEFAULT_CONFIG),
    ]


def test_socket_buffers_are_left_to_the_system_by_default():
    made = config()
    for name in ("socket.send.buffer.bytes", "socket.receive.buffer.bytes"):
        assert made.describe(name).value == "-1"
        assert config({name: "65536"}).describe(name).value == "65536"
