"""Native views of the most frequent messages. Each C struct holds the same values as the Python message object, and
encodes to the same bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore._fast.schema import tables
from kafkacore._fast.schema.wire import BINDINGS
from kafkacore.protocol.errors import ProtocolError
from kafkacore.protocol.messages import FetchRequest, FetchResponse, ProduceRequest, message_class
from kafkacore.protocol.uuid import Uuid

TOPIC_ID = Uuid(bytes(range(16)))
PINNED = [(name, version) for name, each in BINDINGS.items() for version in range(each.lowest, each.highest + 1)]


def plain(value):
    """Converts an object to the form that a view shows: text becomes bytes, and structs become dicts."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Uuid):
        return bytes(value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    if hasattr(value, "FIELDS"):
        return {name: plain(getattr(value, name)) for name in value.FIELDS}
    return value


def within(view, full):
    """Returns whether every field of `view` has the value that it has in `full`. Unlike a view, `full` has the fields
    of all versions."""
    if isinstance(view, dict):
        return all(within(value, full[name]) for name, value in view.items())
    if isinstance(view, list) and isinstance(full, list):
        return len(view) == len(full) and all(within(a, b) for a, b in zip(view, full, strict=True))
    return view == full


def sample(name, version):
    """Returns a message in which every field has a different value."""
    message, cls = tables.message(name), message_class(name)

    def build(struct):
        made = cls() if struct == name else getattr(cls, struct)()
        for number, field in enumerate(message.table(version).structs[struct]):
            if version in field.versions or version in field.tagged:
                setattr(made, field.name, value(field.kind, field, number))
        return made

    def value(kind, field, number):
        if kind == "array":
            return [value(field.element, field, number + i) for i in range(3)]
        if kind == "struct":
            return build(field.struct)
        return {
            "string": f"text{number}",
            "bytes": bytes([number]) * 5,
            "records": bytes([number]) * 7,
            "uuid": Uuid(bytes([number + 1]) * 16),
            "bool": True,
        }.get(kind, number + 11)

    return build(name)


@pytest.mark.parametrize(("name", "version"), PINNED)
def test_view_equals_the_object_and_encodes_to_the_same_bytes(name, version):
    for value in (message_class(name)(), sample(name, version)):
        data = value.encode(version)
        fields, written, gaps = BINDINGS[name].copy(data, version)
        assert within(fields, plain(value))
        assert written == data
        assert gaps == []


@pytest.mark.parametrize("version", range(4, 19))
def test_records_outside_the_message_leave_a_gap(version):
    sizes = [100, 0, 20_000, None]
    parts = [
        FetchResponse.PartitionData(partition_index=i, records=None if size is None else b"r" * size)
        for i, size in enumerate(sizes)
    ]
    topic = FetchResponse.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=parts)
    response = FetchResponse(responses=[topic])
    whole = response.encode(version)
    _, written, gaps = BINDINGS["FetchResponse"].copy(whole, version, cut_records=True)
    assert [size for _, size in gaps] == [100, 0, 20_000]
    filled, start = b"", 0
    for position, size in gaps:
        filled += written[start:position] + b"r" * size
        start = position
    assert filled + written[start:] == whole


def test_view_is_refused_when_the_arena_is_full():
    topics = [ProduceRequest.TopicProduceData(name="t") for _ in range(1000)]
    data = ProduceRequest(topic_data=topics).encode(9)
    BINDINGS["ProduceRequest"].copy(data, 9, arena_bytes=1 << 17)
    with pytest.raises(ProtocolError):
        BINDINGS["ProduceRequest"].copy(data, 9, arena_bytes=1 << 14)


def test_view_is_refused_when_its_version_is_not_bound():
    with pytest.raises(KeyError):
        BINDINGS["ProduceRequest"].copy(b"", 2)
    with pytest.raises(KeyError):
        BINDINGS["FetchRequest"].copy(b"", 19)


@pytest.mark.parametrize(("name", "version"), PINNED)
def test_view_refuses_a_message_cut_at_any_byte(name, version):
    data = sample(name, version).encode(version)
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            BINDINGS[name].copy(data[:size], version)


@given(st.data(), st.sampled_from(PINNED))
@settings(max_examples=2000)
def test_view_and_object_accept_the_same_bytes(data, pinned):
    name, version = pinned
    raw = bytearray(sample(name, version).encode(version))
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        value, _ = message_class(name).decode_prefix(bytes(raw), version)
    except ProtocolError as error:
        # A view accepts text that is not valid UTF-8.
        if "not UTF-8" not in str(error):
            with pytest.raises(ProtocolError):
                BINDINGS[name].copy(bytes(raw), version)
        return
    fields, _, _ = BINDINGS[name].copy(bytes(raw), version)
    assert within(fields, plain(value))


def test_fields_have_their_default_when_the_version_lacks_them():
    fields, _, _ = BINDINGS["FetchRequest"].copy(FetchRequest(max_wait_ms=5, topics=[]).encode(12), 12)
    assert fields["replica_id"] == -1
    assert fields["session_epoch"] == -1
    assert fields["cluster_id"] is None
