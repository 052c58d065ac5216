"""Rows of a message that are read into columns and written from columns. Their bytes are the same as from objects, any
buffer can hold a column, and every input is checked.
"""

from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore._fast.schema.columns import RowCodec
from kafkacore.protocol.errors import ProtocolError, UnsupportedVersionError
from kafkacore.protocol.messages import MetadataResponse, PartitionChangeRecord, PartitionRecord, TopicRecord
from kafkacore.protocol.uuid import Uuid

IDS = st.integers(0, 2**31 - 1)
REPLICAS = st.lists(IDS, max_size=4)


def bounds(ends, skip=0):
    ends = np.frombuffer(ends, np.int64)
    return np.concatenate([[0], ends[:-1]]).astype(np.int64) + skip, ends


def rows_of(lists, room=4, dtype=np.int32):
    made = np.full((len(lists), room), -1, dtype)
    for row, values in zip(made, lists, strict=True):
        row[: len(values)] = values
    return made


@st.composite
def partition_records(draw, version):
    return PartitionRecord(
        partition_id=draw(IDS),
        topic_id=Uuid(draw(st.binary(min_size=16, max_size=16))),
        replicas=draw(REPLICAS),
        isr=draw(REPLICAS),
        removing_replicas=draw(REPLICAS),
        adding_replicas=draw(REPLICAS),
        leader=draw(st.integers(-1, 2**31 - 1)),
        leader_recovery_state=draw(st.integers(0, 1)),
        leader_epoch=draw(IDS),
        partition_epoch=draw(IDS),
        directories=[Uuid(each) for each in draw(st.lists(st.binary(min_size=16, max_size=16), max_size=4))]
        if version >= 1
        else [],
        eligible_leader_replicas=draw(st.none() | REPLICAS) if version >= 2 else None,
        last_known_elr=draw(st.none() | REPLICAS) if version >= 2 else None,
    )


def partition_columns(records, version):
    """Returns the records as columns. The end of a list is marked by -1, or the list has a count."""
    numbers = ("partition_id", "leader", "leader_recovery_state", "leader_epoch", "partition_epoch")
    columns = {name: np.array([getattr(each, name) for each in records], np.int32) for name in numbers}
    for name in ("replicas", "isr", "removing_replicas", "adding_replicas"):
        columns[name] = rows_of([getattr(each, name) for each in records])
    columns["topic_id"] = b"".join(each.topic_id for each in records)
    if version >= 1:
        room = np.zeros((len(records), 4, 16), np.uint8)
        for row, each in zip(room, records, strict=True):
            for place, directory in zip(row, each.directories, strict=False):
                place[:] = np.frombuffer(directory, np.uint8)
        columns["directories"] = (room, np.array([len(each.directories) for each in records], np.int8))
    if version >= 2:
        for name in ("eligible_leader_replicas", "last_known_elr"):
            values = [getattr(each, name) for each in records]
            counts = array("h", [-1 if value is None else len(value) for value in values])
            columns[name] = (rows_of([value or [] for value in values]), counts)
    return columns


@given(st.data(), st.integers(0, 2))
@settings(max_examples=150)
def test_rows_are_the_bytes_that_objects_give_and_come_back(data, version):
    records = data.draw(st.lists(partition_records(version), min_size=1, max_size=8))
    codec = RowCodec("PartitionRecord", version)
    columns = partition_columns(records, version)
    prefix = data.draw(st.binary(max_size=3))
    raw, ends = codec.encode(columns, prefix=prefix)
    starts, ends = bounds(ends, len(prefix))
    assert [raw[a:b] for a, b in zip(starts, ends, strict=True)] == [each.encode(version) for each in records]
    assert PartitionRecord.decode(raw[starts[-1] : ends[-1]], version) == records[-1]
    out = {
        name: (np.zeros_like(value[0]), np.zeros(len(records), np.int32))
        if isinstance(value, tuple)
        else np.zeros((len(records), 16), np.uint8)
        if name == "topic_id"
        else np.zeros_like(value)
        for name, value in columns.items()
    }
    codec.decode(raw, starts, ends, out)
    for name, value in columns.items():
        if name == "topic_id":
            assert out[name].tobytes() == value
        elif isinstance(value, tuple):
            assert list(out[name][1]) == list(value[1])
            for mine, given_row, count in zip(out[name][0], value[0], value[1], strict=True):
                assert (mine[: max(count, 0)] == given_row[: max(count, 0)]).all()
        else:
            assert (out[name] == value).all()


@pytest.mark.parametrize("version", range(14))
def test_an_array_of_rows_stands_in_a_message_as_its_objects_would(version):
    leaders = np.array([3, 1, 2], np.int32)
    nodes = rows_of([[3, 1], [1], [2, 3, 1]], room=3)
    columns = {"partition_index": np.arange(3), "leader_id": leaders, "replica_nodes": nodes, "isr_nodes": nodes[:, :2]}
    rows = RowCodec("MetadataResponse", version, "MetadataResponsePartition").encode_array(columns)
    objects = [
        MetadataResponse.MetadataResponsePartition(
            partition_index=i, leader_id=int(leaders[i]), replica_nodes=replicas, isr_nodes=replicas[:2]
        )
        for i, replicas in enumerate([[3, 1], [1], [2, 3, 1]])
    ]

    def response(partitions):
        return MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name="t", partitions=partitions)])

    assert response(rows).encode(version) == response(objects).encode(version)
    assert len(rows) == 3


def test_rows_of_another_version_or_struct_are_refused_by_a_message():
    rows = RowCodec("MetadataResponse", 12, "MetadataResponseBroker").encode_array({"node_id": array("i", [1])})
    assert MetadataResponse.decode(MetadataResponse(brokers=rows).encode(12), 12).brokers[0].node_id == 1
    for message, version in ((MetadataResponse(brokers=rows), 8), (MetadataResponse(topics=rows), 12)):
        with pytest.raises(ProtocolError, match="rows that were encoded for this message and version"):
            message.encode(version)


def test_selected_rows_are_written_in_the_order_given():
    codec = RowCodec("PartitionChangeRecord", 2)
    columns = {"partition_id": np.arange(5), "topic_id": bytes(16), "leader": 7, "isr": None}
    raw, ends = codec.encode(columns, rows=np.array([4, 0, 4], np.int32))
    starts, ends = bounds(ends)
    found = [PartitionChangeRecord.decode(raw[a:b], 2) for a, b in zip(starts, ends, strict=True)]
    assert found == [PartitionChangeRecord(partition_id=i, leader=7) for i in (4, 0, 4)]
    with pytest.raises(IndexError, match="1 does not exist"):
        codec.encode(columns, rows=array("q", [0, 5]))
    with pytest.raises(IndexError):
        codec.encode(columns, rows=array("q", [-1]))


def test_text_goes_from_and_to_lists():
    codec = RowCodec("TopicRecord", 0)
    names = ["a", "caf\u00e9", "x" * 300]
    raw, ends = codec.encode({"name": names, "topic_id": bytes(range(48))})
    starts, ends = bounds(ends)
    assert [TopicRecord.decode(raw[a:b], 0).name for a, b in zip(starts, ends, strict=True)] == names
    out = {"name": ["before"]}
    codec.decode(raw, starts, ends, out)
    assert out["name"] == ["before", *names]


def test_columns_of_any_width_and_stride_are_taken():
    codec = RowCodec("PartitionRecord", 0)
    table = np.zeros(3, dtype=[("id", "<i2"), ("leader", "<i8"), ("replicas", "<i4", 2)])
    table["id"], table["leader"], table["replicas"] = [1, 2, 3], [4, 5, 6], [[7, -1], [8, 9], [-1, -1]]
    raw, ends = codec.encode({"partition_id": table["id"], "leader": table["leader"], "replicas": table["replicas"]})
    starts, ends = bounds(ends)
    found = [PartitionRecord.decode(raw[a:b], 0) for a, b in zip(starts, ends, strict=True)]
    assert [(each.partition_id, each.leader, each.replicas) for each in found] == [
        (1, 4, [7]),
        (2, 5, [8, 9]),
        (3, 6, []),
    ]


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({"partition_id": array("q", [0, 2**31])}, ProtocolError, "partition_id of row 1: out of range"),
        ({"partition_id": array("i", [1]), "leader": array("i", [1, 2])}, ValueError, "leader has 2 rows"),
        ({"partition_id": array("d", [1])}, ValueError, "integers are expected"),
        ({"partition_id": [1]}, TypeError, "bytes-like"),
        ({"colour": array("i", [1])}, ValueError, "no field colour"),
        ({"replicas": array("i", [1])}, ValueError, r"\(rows, room\) expected"),
        ({"topic_id": array("i", [1])}, ValueError, "16 bytes"),
        ({"replicas": (np.zeros((1, 2), np.int32), array("b", [3]))}, ProtocolError, "replicas of row 0: a count"),
        ({"replicas": (np.zeros((1, 2), np.int32), array("b", [-1]))}, ProtocolError, "replicas of row 0: null"),
        ({"partition_id": array("i", [1]), "replicas": None}, ProtocolError, "replicas of row 0: null"),
        (
            {"directories": (np.zeros((1, 1, 16), np.uint8), array("b", [1]))},
            UnsupportedVersionError,
            "directories of row 0",
        ),
        ({"leader": 5}, ValueError, "how many rows"),
    ],
)
def test_columns_that_do_not_fit_are_named(columns, error, text):
    with pytest.raises(error, match=text):
        RowCodec("PartitionRecord", 0).encode(columns)


@pytest.mark.parametrize("names", [["a", 5], ["a", None], ["\ud800", "a"], ["x" * 40_000, "a"]])
def test_text_that_cannot_be_written_is_refused(names):
    with pytest.raises(ProtocolError, match=r"TopicRecord\.name of row"):
        RowCodec("TopicRecord", 0).encode({"name": names})


@given(st.binary(max_size=80), st.integers(0, 2))
@settings(max_examples=1500)
def test_random_bytes_fill_a_row_as_an_object_would_be_or_are_refused(data, version):
    out = {
        "partition_id": np.zeros(1, np.int32),
        "replicas": (np.zeros((1, 100), np.int32), np.zeros(1, np.int8)),
        "eligible_leader_replicas": (np.zeros((1, 100), np.int32), np.zeros(1, np.int8)),
    }
    starts, ends = np.array([0]), np.array([len(data)])
    try:
        record = PartitionRecord.decode(data, version)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            RowCodec("PartitionRecord", version).decode(data, starts, ends, out)
        return
    RowCodec("PartitionRecord", version).decode(data, starts, ends, out)
    assert out["partition_id"][0] == record.partition_id
    rows, counts = out["replicas"]
    assert rows[0, : counts[0]].tolist() == record.replicas


def test_value_that_does_not_fit_into_a_row_is_refused():
    raw, ends = RowCodec("PartitionRecord", 0).encode(
        {"partition_id": array("i", [1]), "replicas": rows_of([[1, 2, 3]])}
    )
    starts, ends = bounds(ends)
    codec = RowCodec("PartitionRecord", 0)
    with pytest.raises(ProtocolError, match=r"row 0: PartitionRecord\.replicas: a count"):
        codec.decode(raw, starts, ends, {"replicas": np.zeros((1, 2), np.int32)})
    with pytest.raises(ValueError, match="outside the data"):
        codec.decode(raw, starts, ends + 1, {})
    with pytest.raises(ProtocolError, match="row 0"):
        codec.decode(raw, starts, ends - 1, {})
    with pytest.raises(BufferError):
        codec.decode(raw, starts, ends, {"replicas": bytes(16)})
