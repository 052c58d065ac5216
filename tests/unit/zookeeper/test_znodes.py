"""Kafka's znodes: contents that Kafka 3.9 writes, and contents that it would never write."""

import contextlib
import json

import orjson
import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.connect_string import parse_connect_string
from kafkacore.zookeeper.znodes import (
    Assignment,
    BrokerRegistration,
    Endpoint,
    Features,
    MalformedZnodeError,
    PartitionState,
    ProducerIdBlock,
    TopicAssignment,
)

TOPIC_ID = Uuid(bytes(range(16)))
REGISTRATION = BrokerRegistration(
    7,
    (Endpoint("CLIENT", "PLAINTEXT", "host1", 9092), Endpoint("REPLICATION", "SSL", "::1", 9093)),
    "rack-1",
    {"feature": (1, 3)},
    9_999,
    2_233_345_666,
)


def test_broker_registration_has_the_fields_of_version_5():
    assert orjson.loads(znodes.encode_broker(REGISTRATION)) == {
        "version": 5,
        "host": "host1",
        "port": 9092,
        "endpoints": ["CLIENT://host1:9092", "REPLICATION://[::1]:9093"],
        "jmx_port": 9999,
        "timestamp": "2233345666",
        "rack": "rack-1",
        "listener_security_protocol_map": {"CLIENT": "PLAINTEXT", "REPLICATION": "SSL"},
        "features": {"feature": {"min_version": 1, "max_version": 3}},
    }
    assert znodes.decode_broker(7, znodes.encode_broker(REGISTRATION)) == REGISTRATION


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        (b'{"version":1,"host":"h","port":1,"jmx_port":-1}', (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1),)),
        (
            b'{"version":2,"host":"h","port":1,"jmx_port":-1,"endpoints":["PLAINTEXT://h:1","SSL://h:2"]}',
            (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1), Endpoint("SSL", "SSL", "h", 2)),
        ),
    ],
)
def test_registration_of_an_older_broker_is_read(text, endpoints):
    assert znodes.decode_broker(3, text).endpoints == endpoints


ROUND_TRIPS = [
    (znodes.encode_controller, znodes.decode_controller, (4, 123), (4, -1)),
    (znodes.encode_controller_epoch, znodes.decode_controller_epoch, (31,), 31),
    (znodes.encode_config, znodes.decode_config, ({"a": "b"},), {"a": "b"}),
    (znodes.encode_config_change, znodes.decode_config_change, ("topics/one",), "topics/one"),
    (znodes.encode_isr_change, znodes.decode_isr_change, ([("a", 1), ("b", 0)],), [("a", 1), ("b", 0)]),
    (znodes.encode_log_dir_event, znodes.decode_log_dir_event, (5,), 5),
    (znodes.encode_reassignments, znodes.decode_reassignments, ({("a", 1): [1, 2]},), {("a", 1): [1, 2]}),
    (znodes.encode_preferred_election, znodes.decode_preferred_election, ([("a", 1)],), [("a", 1)]),
    (znodes.encode_cluster_id, znodes.decode_cluster_id, ("abc",), "abc"),
    (
        znodes.encode_producer_id_block, znodes.decode_producer_id_block,
        (ProducerIdBlock(1, 1_000, 1_999),), ProducerIdBlock(1, 1_000, 1_999),
    ),
    (znodes.encode_features, znodes.decode_features, (Features(1, True, {"f": 3}),), Features(1, True, {"f": 3})),
    (znodes.encode_features, znodes.decode_features, (Features(2, False, {}),), Features(2, False, {})),
]  # fmt: skip


@pytest.mark.parametrize(("encode", "decode", "arguments", "expected"), ROUND_TRIPS)
def test_content_reads_back_as_it_was_written(encode, decode, arguments, expected):
    assert decode(encode(*arguments)) == expected


def test_topic_reads_back_with_its_reassignment():
    topic = TopicAssignment(TOPIC_ID, {0: Assignment([1, 2, 3], [3], [1]), 10: Assignment([2])})
    data = znodes.encode_topic(topic)
    assert orjson.loads(data) == {
        "version": 3,
        "topic_id": str(TOPIC_ID),
        "partitions": {"0": [1, 2, 3], "10": [2]},
        "adding_replicas": {"0": [3]},
        "removing_replicas": {"0": [1]},
    }
    read = znodes.decode_topic(data)
    assert read.topic_id == TOPIC_ID
    assert {number: tuple(map(list, each)) for number, each in read.partitions.items()} == {
        0: ([1, 2, 3], [3], [1]),
        10: ([2], [], []),
    }


def test_topic_of_an_older_controller_is_read_without_an_id():
    assert znodes.decode_topic(b'{"version":1,"partitions":{"0":[1]}}').topic_id is None


def test_states_read_back_and_name_the_recovery_only_when_it_is_under_way():
    states = [PartitionState(1, 2, [1, 2], 3), PartitionState(-1, 7, [], 9, 1), PartitionState(5, 0, [5], 1)]
    encoded = znodes.encode_states(states)
    assert [znodes.decode_state(each) for each in encoded] == states
    assert orjson.loads(encoded[0]) == {
        "version": 1, "leader": 1, "leader_epoch": 2, "controller_epoch": 3, "isr": [1, 2],
    }  # fmt: skip
    assert orjson.loads(encoded[1])["leader_recovery_state"] == 1


GOOD_STATE = {"version": 1, "leader": 1, "leader_epoch": 2, "controller_epoch": 3, "isr": [1, 2]}
BAD = [
    (znodes.decode_state, {**GOOD_STATE, "isr": [1, "2"]}),
    (znodes.decode_state, {**GOOD_STATE, "isr": None}),
    (znodes.decode_state, {**GOOD_STATE, "leader": True}),
    (znodes.decode_state, {**GOOD_STATE, "leader": 1 << 31}),
    (znodes.decode_state, {**GOOD_STATE, "leader_epoch": 1.5}),
    (znodes.decode_state, {**GOOD_STATE, "leader_recovery_state": 2}),
    (znodes.decode_state, {key: value for key, value in GOOD_STATE.items() if key != "controller_epoch"}),
    (znodes.decode_topic, {"version": 1, "partitions": {"x": [1]}}),
    (znodes.decode_topic, {"version": 1, "partitions": {"-1": [1]}}),
    (znodes.decode_topic, {"version": 1, "partitions": {"0": [-1]}}),
    (znodes.decode_topic, {"version": 1, "partitions": [1]}),
    (znodes.decode_topic, {"version": 3, "topic_id": "no id", "partitions": {}}),
    (lambda data: znodes.decode_broker(1, data), {"version": 0}),
    (lambda data: znodes.decode_broker(1, data), {"version": 5, "jmx_port": 1, "endpoints": ["host:9092"]}),
    (lambda data: znodes.decode_broker(1, data), {"version": 5, "jmx_port": 1, "endpoints": ["NEW://host:9092"]}),
    (lambda data: znodes.decode_broker(1, data), {"version": 5, "jmx_port": 1, "endpoints": [], "features": {"a": 1}}),
    (lambda data: znodes.decode_broker(1, data), {"version": 5, "jmx_port": 1, "endpoints": [], "rack": 4}),
    (znodes.decode_config, {"version": 1, "config": {"a": 1}}),
    (znodes.decode_config_change, {"version": 3, "entity_path": "topics/a"}),
    (znodes.decode_config_change, {"version": 1, "entity_type": "brokers", "entity_name": "1"}),
    (znodes.decode_reassignments, {"version": 1, "partitions": [{"topic": "a", "partition": 0}]}),
    (znodes.decode_reassignments, {"version": 1, "partitions": [[1]]}),
    (znodes.decode_reassignments, {"version": 1}),
    (znodes.decode_preferred_election, {"version": 1, "partitions": [{"topic": "a", "partition": "0"}]}),
    (znodes.decode_controller, {"version": 1}),
    (znodes.decode_controller_epoch, (1 << 31) - 1),
    (znodes.decode_producer_id_block, {"version": 1, "broker": 1, "block_start": "5", "block_end": "4"}),
    (znodes.decode_producer_id_block, {"version": 1, "broker": 1, "block_start": "x", "block_end": "4"}),
    (znodes.decode_producer_id_block, {"version": 1, "broker": 1, "block_start": "0", "block_end": str(1 << 63)}),
    (znodes.decode_features, {"version": 3, "status": 1, "features": {}}),
    (znodes.decode_features, {"version": 2, "status": 4, "features": {}}),
    (znodes.decode_features, {"version": 2, "status": 1}),
    (znodes.decode_features, {"version": 1, "status": 1, "features": {"f": {"max_version_level": 1}}}),
    (znodes.decode_migration, {"version": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("decode", "value"), BAD)
def test_content_is_refused_when_kafka_would_not_have_written_it(decode, value):
    with pytest.raises(MalformedZnodeError):
        decode(orjson.dumps(value))


@pytest.mark.parametrize("data", [None, b"", b"[]", b"1", b"null", b'{"version":1', b"\xff\xfe", b"[" * 5_000])
@pytest.mark.parametrize("decode", [each[1] for each in ROUND_TRIPS] + [znodes.decode_topic, znodes.decode_state])
def test_torn_or_foreign_content_is_refused_or_empty(decode, data):
    if decode is znodes.decode_config and not data:
        assert decode(data) == {}
    elif decode is znodes.decode_controller_epoch and data == b"1":
        assert decode(data) == 1
    else:
        with pytest.raises(MalformedZnodeError):
            decode(data)


ODD = [None, True, -1, 1 << 31, 1 << 63, 10**400, 1.5, "", "9" * 30, "x" * 100_000, [], {}, [[]], [{}], {"a": []}]
TOPIC = TopicAssignment(TOPIC_ID, {0: Assignment([1, 2, 3], [3], [1]), 10: Assignment([2])})
CONTENTS = [(decode, encode(*arguments)) for encode, decode, arguments, _ in ROUND_TRIPS] + [
    (lambda data: znodes.decode_broker(1, data), znodes.encode_broker(REGISTRATION)),
    (lambda data: znodes.decode_broker(1, data), b'{"version":1,"host":"h","port":1,"jmx_port":-1}'),
    (znodes.decode_topic, znodes.encode_topic(TOPIC)),
    (znodes.decode_state, orjson.dumps(GOOD_STATE | {"leader_recovery_state": 1})),
    (znodes.decode_config_change, b'{"version":1,"entity_type":"topics","entity_name":"a"}'),
]


def changed(value):
    """Yields copies of a JSON value, each with an odd value in one place, an odd key, or without one entry."""
    yield from ODD
    if isinstance(value, dict):
        for key, entry in value.items():
            rest = {other: each for other, each in value.items() if other != key}
            yield rest
            yield from (rest | {odd: entry} for odd in ("", "-1", "x" * 1000, "99999999999", "\u0665"))
            yield from (rest | {key: each} for each in changed(entry))
    elif isinstance(value, list):
        for place, entry in enumerate(value):
            yield from ([*value[:place], each, *value[place + 1 :]] for each in changed(entry))


@pytest.mark.parametrize(("decode", "content"), CONTENTS)
def test_no_other_error_is_raised_when_any_part_of_the_content_is_odd(decode, content):
    decode(content)
    torn = [content[:length] for length in range(len(content))]
    for data in [*torn, *(json.dumps(each).encode() for each in changed(orjson.loads(content)))]:
        with contextlib.suppress(MalformedZnodeError):
            decode(data)


# --- paths and connect strings ---


def test_paths_equal_kafkas_paths():
    assert paths.partition_state("a", 3) == "/brokers/topics/a/partitions/3/state"
    assert paths.ancestors("/a/b/c") == ["/a", "/a/b"]
    assert paths.parent("/a") == "/"
    assert paths.sequence_number("/isr_change_notification/isr_change_0000000042") == 42
    assert paths.sanitize("a b*c~ü/<x>") == "a%20b%2Ac%7E%C3%BC%2F%3Cx%3E"
    assert paths.acl("Topic", "a", "prefixed") == "/kafka-acl-extended/prefixed/Topic/a"


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a\0b", "/a\x1fb", "/\ud800", "/\ufff0"]
)
def test_path_is_refused_when_a_server_would_refuse_it(path):
    with pytest.raises(ValueError):
        paths.check(path)


@pytest.mark.parametrize("name", ["isr_change_", "isr_change_00000000x1", "short1"])
def test_name_without_digits_has_no_sequence_number(name):
    with pytest.raises(ValueError, match="no sequence number"):
        paths.sequence_number(name)


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("one:2181", [("one", 2181)], ""),
        ("one", [("one", 2181)], ""),
        ("one:1, two:2/kafka/east", [("one", 1), ("two", 2)], "/kafka/east"),
        ("[::1]:5/", [("::1", 5)], ""),
    ],
)
def test_connect_string_is_read(text, servers, chroot):
    assert parse_connect_string(text) == (servers, chroot)


@pytest.mark.parametrize(
    "text", ["", "/a", "one:0", "one:65536", "one:x", "one:1/a/", "one:1/a//b", "::1:2181", "a b:1"]
)
def test_connect_string_is_refused_when_it_names_no_server(text):
    with pytest.raises(ValueError):
        parse_connect_string(text)
