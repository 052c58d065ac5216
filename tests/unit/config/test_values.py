"""Values of every type, parsed as by Kafka's ConfigDef."""

import pytest

from kafkacore.config import ConfigError
from kafkacore.config.keys import BROKER, TOPIC
from kafkacore.config.values import Password, java_double, parse, render


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("auto.create.topics.enable", " TRUE ", True),
        ("auto.create.topics.enable", "False", False),
        ("num.partitions", "+7", 7),
        ("num.partitions", " 7\t", 7),
        ("broker.id", "-1", -1),
        ("log.retention.bytes", "9223372036854775807", 2**63 - 1),
        ("log.cleaner.min.cleanable.ratio", ".5", 0.5),
        ("log.cleaner.io.max.bytes.per.second", "1e6", 1e6),
        ("log.cleaner.io.max.bytes.per.second", "3d", 3.0),
        ("log.dirs", "/a , /b,/a", ("/a", "/b")),
        ("log.cleanup.policy", "compact,delete", ("compact", "delete")),
        ("log.cleanup.policy", "", ()),
        ("compression.gzip.level", "-1", -1),
        ("compression.gzip.level", "9", 9),
        ("group.consumer.migration.policy", "Upgrade", "Upgrade"),
        ("ssl.key.password", " secret ", Password("secret")),
        ("controller.quorum.voters", "1@a:9093,2@[::1]:9094", ("1@a:9093", "2@[::1]:9094")),
    ],
)
def test_values_are_parsed_as_kafka_parses_them(name, text, expected):
    assert parse(BROKER[name], text) == expected


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("auto.create.topics.enable", "yes", "must be true or false"),
        ("num.partitions", "0", "must be an int of at least 1"),
        ("num.partitions", "1_000", "must be an int"),
        ("num.partitions", "1.0", "must be an int"),
        ("num.partitions", "2147483648", "must be an int"),
        ("num.partitions", "", "must be an int"),
        ("num.partitions", "七", "must be an int"),
        ("offsets.topic.replication.factor", "32768", "must be a 16-bit int of at least 1"),
        ("log.retention.bytes", "9223372036854775808", "must be a long"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "must be a double from 0 to 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "must be a double"),
        ("log.cleaner.min.cleanable.ratio", "", "must be a double"),
        ("compression.gzip.level", "10", "must be an int from 1 to 9 or -1"),
        ("compression.type", "lzma", "must be one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("log.cleanup.policy", "compact,keep", "must be a comma-separated list of compact, delete"),
        (
            "process.roles",
            "broker,,controller",
            "must be a comma-separated list of broker, controller without empty entries",
        ),
        ("process.roles", "", "of broker, controller without empty entries and not empty"),
        ("listeners", "", "without empty entries and not empty"),
        ("controller.quorum.voters", "1-localhost:9093", "entry '1-localhost:9093' must be id@host:port"),
        ("controller.quorum.voters", "x@localhost:9093", "must begin with the id of a node"),
        ("controller.quorum.voters", "1@localhost", "must be host:port"),
        ("controller.quorum.voters", "1@local host:9093", "must be host:port"),
        ("controller.quorum.bootstrap.servers", "localhost:x", "must end with a port from 0 to 65535"),
        ("controller.quorum.bootstrap.servers", "localhost:65536", "must end with a port from 0 to 65535"),
        ("remote.log.storage.manager.class.name", "", "must be a text that is not empty"),
    ],
)
def test_error_names_key_value_and_allowed_values_when_a_value_is_wrong(name, text, allowed):
    with pytest.raises(ConfigError) as refused:
        parse(BROKER[name], text)
    assert str(refused.value).startswith(f"{name}={text}: ")
    assert allowed in str(refused.value)
    assert (refused.value.key, refused.value.value) == (name, text)


@pytest.mark.parametrize("text", ["*", "0:1,1:2", "", "0:1,", "2147483647:0", f"{'0' * 5000}1:1"])
def test_throttled_replicas_are_accepted(text):
    parse(TOPIC["leader.replication.throttled.replicas"], text)


@pytest.mark.parametrize(
    "text", ["0", "0:a", "*,0:1", "0:1:2", "0:2147483648", f"{'9' * 5000}:1", "0:\N{ARABIC-INDIC DIGIT ONE}"]
)
def test_throttled_replicas_are_refused_when_they_are_malformed(text):
    with pytest.raises(ConfigError, match="must be a comma-separated list of partition:broker entries, or"):
        parse(TOPIC["leader.replication.throttled.replicas"], text)


def test_password_is_never_shown():
    password = parse(BROKER["ssl.key.password"], "secret")
    assert "secret" not in f"{password} {password!r} {render(password)}"
    assert password.value == "secret"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (0.00012345, "1.2345E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-123456789.5, "-1.234567895E8"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-2.5e-10, "-2.5E-10"),
        (1e21, "1.0E21"),
        (5e-324, "4.9E-324"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value, text):
    assert java_double(value) == text
