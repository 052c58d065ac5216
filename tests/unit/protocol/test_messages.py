"""Messages as objects: every message in every version, and Kafka's rules for versions, nulls, defaults and tagged
fields."""

import copy
import gc
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore._fast.schema import tables
from kafkacore.protocol import messages
from kafkacore.protocol.errors import ProtocolError, UnsupportedVersionError
from kafkacore.protocol.messages import (
    ApiVersionsResponse,
    CreateTopicsRequest,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    PartitionChangeRecord,
    ProduceRequest,
    message_class,
)
from kafkacore.protocol.uuid import ZERO, Uuid

INT_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def filled(cls, struct, version, message, depth=0):
    """Returns an instance in which every field that exists in `version` differs from its default."""
    values = {}
    for field in message.table(version).structs[struct]:
        if version in field.versions or version in field.tagged:
            values[field.name] = other_than_default(cls, field, version, message, depth)
    return cls(**values)


def other_than_default(cls, field, version, message, depth):
    if field.kind == "array":
        return [single(cls, field.element, field.struct, version, message, depth) for _ in range(2)]
    return single(cls, field.kind, field.struct, version, message, depth)


def single(cls, kind, struct, version, message, depth):
    if kind == "struct":
        return filled(getattr(message_class(message.name), struct), struct, version, message, depth + 1)
    if kind in INT_RANGES:
        return INT_RANGES[kind][1] - 1
    return {
        "bool": True,
        "float64": 0.5,
        "string": "x",
        "bytes": b"\x01\x02",
        "records": b"\x03",
        "uuid": Uuid(bytes(range(16))),
    }[kind]


@pytest.mark.parametrize("name", tables.names())
def test_every_version_of_a_message_is_read_as_it_was_written(name):
    message, cls = tables.message(name), message_class(name)
    for version in range(message.versions.lowest, message.versions.highest + 1):
        if message.table(version) is None:
            continue
        for value in (cls(), filled(cls, name, version, message)):
            data = value.encode(version)
            assert cls.decode(data, version) == value, version
            assert b"".join(value.encode_parts(version, elements=1)) == data
            assert [each for each in cls.decode_parts(data, version, elements=1) if each is not None] == [value]
            assert cls.decode_prefix(data + b"more", version) == (value, len(data))


@pytest.mark.parametrize("name", ["ProduceRequest", "MetadataResponse", "FetchResponse", "RegisterBrokerRecord"])
def test_a_message_cut_at_any_byte_is_refused(name):
    message, cls = tables.message(name), message_class(name)
    for version in range(message.versions.lowest, message.versions.highest + 1):
        data = filled(cls, name, version, message).encode(version)
        for size in range(len(data)):
            with pytest.raises(ProtocolError):
                cls.decode(data[:size], version)


def test_bytes_behind_a_message_are_refused():
    with pytest.raises(ProtocolError, match="MetadataRequest: 1 bytes are left over"):
        MetadataRequest.decode(MetadataRequest().encode(12) + b"\0", 12)


def test_a_version_that_does_not_exist_is_named_with_those_that_do():
    with pytest.raises(UnsupportedVersionError, match="MetadataRequest has no version 99; it has 0 to 13"):
        MetadataRequest().encode(99)
    with pytest.raises(UnsupportedVersionError):
        MetadataRequest.decode(b"", -1)


def test_a_value_is_not_dropped_by_a_version_that_has_no_place_for_it():
    request = MetadataRequest(topics=[], include_topic_authorized_operations=True)
    with pytest.raises(UnsupportedVersionError, match=r"MetadataRequest\.include_topic_authorized_operations"):
        request.encode(7)
    assert MetadataRequest.decode(request.encode(8), 8) == request


def test_an_ignorable_value_is_dropped():
    written = FetchResponse(session_id=0, throttle_time_ms=5, error_code=9).encode(4)
    assert FetchResponse.decode(written, 4) == FetchResponse(throttle_time_ms=5)


def test_null_is_refused_where_the_version_allows_none():
    assert MetadataRequest.decode(MetadataRequest(topics=None).encode(1), 1).topics is None
    with pytest.raises(ProtocolError, match=r"MetadataRequest\.topics: null"):
        MetadataRequest(topics=None).encode(0)
    with pytest.raises(ProtocolError, match=r"MetadataRequest\.topics: null"):
        MetadataRequest.decode(b"\xff\xff\xff\xff", 0)


def test_a_tagged_field_takes_bytes_only_when_it_is_not_at_its_default():
    record = PartitionChangeRecord(partition_id=1, topic_id=ZERO)
    bare = record.encode(0)
    record.leader = 5
    assert len(record.encode(0)) == len(bare) + 2 + 4
    assert PartitionChangeRecord.decode(bare, 0).leader == -2


def test_unknown_tagged_fields_are_kept_and_written_back_in_place():
    response = ApiVersionsResponse(zk_migration_ready=True)
    response.unknown_tagged_fields[2**31 - 1] = b"far"
    response.unknown_tagged_fields[9] = b"\x01" * 200
    data = response.encode(3)
    again = ApiVersionsResponse.decode(data, 3)
    assert again.unknown_tagged_fields == {9: b"\x01" * 200, 2**31 - 1: b"far"}
    assert again == response
    assert again.encode(3) == data


def test_a_known_tag_is_not_taken_for_an_unknown_one():
    response = ApiVersionsResponse()
    response.unknown_tagged_fields[0] = b""
    with pytest.raises(ProtocolError, match="tag 0 is known"):
        response.encode(3)


@pytest.mark.parametrize("tags", [b"\x02\x09\x00\x09\x00", b"\x02\x0a\x00\x09\x00", b"\x05\x09\x00"])
def test_tags_that_repeat_or_descend_or_are_fewer_than_said_are_refused(tags):
    body = MetadataRequest(topics=None).encode(12)[:-1]
    with pytest.raises(ProtocolError, match="MetadataRequest"):
        MetadataRequest.decode(body + tags, 12)


@pytest.mark.parametrize("tag", [3, 99], ids=["known", "unknown"])
@pytest.mark.parametrize("size", [2, 3, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_tagged_field_longer_than_the_message_is_refused(tag, size):
    data = ApiVersionsResponse().encode(3)[:-1]  # without the count of the tagged fields
    varint = bytes([size]) if size < 0x80 else (b"\xff\xff\xff\xff" + bytes([size >> 28]))
    with pytest.raises(ProtocolError, match="a length that is negative or more than the bytes that remain"):
        ApiVersionsResponse.decode(data + bytes([1, tag]) + varint + b"\1", 3)


def test_a_tagged_field_longer_than_its_content_is_refused():
    body = ApiVersionsResponse().encode(3)[:-1]
    with pytest.raises(ProtocolError, match="zk_migration_ready: a tagged field that is not as long as it says"):
        ApiVersionsResponse.decode(body + b"\x01\x03\x02\x01\x00", 3)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (CreateTopicsRequest(timeout_ms=2**31), "timeout_ms"),
        (CreateTopicsRequest(timeout_ms="soon"), "timeout_ms"),
        (CreateTopicsRequest(topics=5), "topics"),
        (CreateTopicsRequest(topics=[MetadataRequest()]), r"topics\[0\]"),
        (CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name=b"bytes")]), r"topics\[0\]\.name"),
        (CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="\ud800")]), r"topics\[0\]\.name"),
        (CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="x" * 32768)]), r"topics\[0\]\.name"),
        (
            CreateTopicsRequest(
                topics=[
                    CreateTopicsRequest.CreatableTopic(
                        assignments=[CreateTopicsRequest.CreatableReplicaAssignment(broker_ids=[1, 2**40])]
                    )
                ]
            ),
            r"topics\[0\]\.assignments\[0\]\.broker_ids\[1\]",
        ),
    ],
)
def test_a_value_that_its_type_cannot_hold_is_named_by_its_path(value, path):
    with pytest.raises(ProtocolError, match=rf"CreateTopicsRequest\.{path}:"):
        value.encode(7)


def test_invalid_text_is_named_by_its_path():
    data = (
        CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="ab")]).encode(7).replace(b"ab", b"\xc3(")
    )
    with pytest.raises(ProtocolError, match=r"CreateTopicsRequest\.topics\[0\]\.name: not UTF-8"):
        CreateTopicsRequest.decode(data, 7)


@pytest.mark.parametrize("count", [2**31 - 1, 5, -2, -(2**31)])
def test_a_count_that_the_bytes_cannot_hold_is_refused_before_anything_is_made(count):
    data = count.to_bytes(4, "big", signed=True) + b"\0\0"
    with pytest.raises(ProtocolError, match=r"MetadataRequest\.topics: a count"):
        MetadataRequest.decode(data, 1)


@pytest.mark.parametrize("length", [-2, 32767])
def test_a_length_that_the_bytes_do_not_hold_is_refused(length):
    with pytest.raises(ProtocolError, match="transactional_id: a length"):
        ProduceRequest.decode(length.to_bytes(2, "big", signed=True) + bytes(20), 3)


def test_a_varint_that_does_not_end_is_refused():
    with pytest.raises(ProtocolError):
        MetadataRequest.decode(b"\xff" * 20, 12)


def test_fields_are_keywords_with_defaults_and_a_repr_that_shows_the_rest():
    request = ListOffsetsRequest(replica_id=-1)
    assert request.topics == []
    assert repr(request) == "ListOffsetsRequest(replica_id=-1)"
    assert request == ListOffsetsRequest(replica_id=-1)
    assert request != ListOffsetsRequest(replica_id=1)
    with pytest.raises(TypeError, match="ListOffsetsRequest has no field colour"):
        ListOffsetsRequest(colour=1)
    with pytest.raises(AttributeError):
        request.colour = 1


def test_defaults_of_lists_and_structs_are_the_instance_s_own():
    one, other = FetchRequest(), FetchRequest()
    one.topics.append(FetchRequest.FetchTopic())
    one.replica_state.replica_id = 3
    assert other.topics == []
    assert other.replica_state.replica_id == -1


def test_a_list_that_shrinks_while_it_is_written_is_refused():
    response = MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker() for _ in range(9)])
    parts = response.encode_parts(9, elements=2)
    next(parts)
    response.brokers.clear()
    with pytest.raises(ProtocolError, match="stays as it is"):
        list(parts)


def test_value_being_written_outlives_its_message():
    response = MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker(host=str(i)) for i in range(9)])
    whole = response.encode(9)
    parts = response.encode_parts(9, elements=2)
    first = next(parts)
    response.brokers = []
    del response
    gc.collect()
    assert first + b"".join(parts) == whole


def test_a_paused_decode_shows_only_sound_objects():
    response = MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker() for _ in range(50)])
    parts = []
    for part in MetadataResponse.decode_parts(response.encode(9), 9, elements=3):
        parts.append(part)
        gc.collect()
        for each in gc.get_objects():
            if type(each) is MetadataResponse.MetadataResponseBroker:
                repr(each)
    assert parts[:-1] == [None] * (len(parts) - 1)
    assert parts[-1] == response


def test_lookup_fails_when_the_message_is_unknown():
    with pytest.raises(AttributeError, match="NoSuchRequest"):
        messages.NoSuchRequest  # noqa: B018
    with pytest.raises(KeyError):
        message_class("NoSuchRequest")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TopicData", "topic_data"),
        ("topicId", "topic_id"),
        ("IsKRaftController", "is_kraft_controller"),
        ("V3AndBelowTopics", "v3_and_below_topics"),
        ("Enable2Pc", "enable_2pc"),
        ("isr", "isr"),
        ("LastKnownELR", "last_known_elr"),
    ],
)
def test_field_names_become_snake_case(name, expected):
    assert tables.python_name(name) == expected


@given(st.binary(max_size=300), st.sampled_from(tables.names()), st.integers(0, 18))
@settings(max_examples=3000)
def test_random_bytes_give_a_message_or_a_protocol_error(data, name, version):
    cls = message_class(name)
    try:
        decoded, used = cls.decode_prefix(data, version)
    except (ProtocolError, UnsupportedVersionError):
        return
    # The decoded message can be encoded again. A varint that was longer than necessary becomes shorter. (The test does
    # not compare for equality, because a float can be NaN.)
    again = decoded.encode(version)
    assert cls.decode(again, version).encode(version) == again
    assert used <= len(data)


@given(st.data(), st.sampled_from(["ProduceRequest", "FetchRequest", "MetadataResponse", "CreateTopicsRequest"]))
@settings(max_examples=1500)
def test_a_message_with_bytes_changed_gives_a_message_or_a_protocol_error(data, name):
    message, cls = tables.message(name), message_class(name)
    version = data.draw(st.integers(message.versions.lowest, message.versions.highest))
    raw = bytearray(filled(cls, name, version, message).encode(version))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = cls.decode(bytes(raw), version)
    except ProtocolError:
        return
    assert cls.decode(decoded.encode(version), version) == decoded


def test_a_request_that_promises_too_many_elements_is_refused_early():
    request = FetchRequest(forgotten_topics_data=[FetchRequest.ForgottenTopic(topic="t", partitions=[0] * 1_000_000)])
    data = request.encode(7)
    with pytest.raises(ProtocolError, match=r"partitions: more elements of arrays and tagged fields than"):
        FetchRequest.decode(data, 7)
    assert FetchRequest.decode(data, 7, max_elements=1_000_001) == request


def test_tagged_fields_that_nobody_knows_count_as_elements():
    request = MetadataRequest(topics=None, allow_auto_topic_creation=True)
    request.unknown_tagged_fields.update(dict.fromkeys(range(1_000_001), b""))
    data = request.encode(12)
    with pytest.raises(ProtocolError, match=r"more elements of arrays and tagged fields than a message may have"):
        MetadataRequest.decode(data, 12)
    del request.unknown_tagged_fields[1_000_000]
    assert MetadataRequest.decode(request.encode(12), 12) == request


def test_messages_are_copied_and_pickled_whole():
    request = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="a")], timeout_ms=5)
    request.unknown_tagged_fields[50] = b"x"
    deep = copy.deepcopy(request)
    assert deep == request
    assert deep.topics[0] is not request.topics[0]
    assert copy.copy(request).topics is request.topics
    assert pickle.loads(pickle.dumps(request)) == request


def test_a_field_that_was_deleted_is_named():
    request = CreateTopicsRequest()
    del request.topics
    with pytest.raises(ProtocolError, match=r"CreateTopicsRequest\.topics: was deleted"):
        request.encode(5)


def test_threads_that_are_first_at_once_read_the_same():
    data = MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker(host="h")]).encode(3)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: message_class("MetadataResponse").decode(data, 3), range(64)))
    assert all(each == found[0] for each in found)
