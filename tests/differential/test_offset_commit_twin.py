"""Two implementations of OffsetCommit: native code with C structs, and Python code with message objects. For valid and
invalid requests of every version, both must decode, refuse, record and answer in the same way. The tests also compare
the table of committed offsets with a dict."""

from __future__ import annotations

from array import array
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore._fast.base.errors import ProtocolError, UnsupportedVersionError
from kafkacore._fast.hot.offset_commit import OffsetCommit
from kafkacore._fast.hot.offset_rows import TopicOffsets
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore.protocol.apis import ApiKey, api
from kafkacore.protocol.messages import OffsetCommitKey, OffsetCommitRequest, OffsetCommitResponse, OffsetCommitValue

Topic = OffsetCommitRequest.OffsetCommitRequestTopic
Partition = OffsetCommitRequest.OffsetCommitRequestPartition
VERSIONS = range(api(ApiKey.OFFSET_COMMIT).lowest, api(ApiKey.OFFSET_COMMIT).highest + 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
IDS = st.just(bytes(16)) | st.binary(min_size=16, max_size=16)
NOW_MS = 1_700_000_000_000
UNKNOWN, TOO_LARGE, NOT_COORDINATOR, BY_ID = 3, 12, 16, 10


@st.composite
def requests(draw):
    """Draws a version of OffsetCommit, and a request that only uses fields of this version."""
    version = draw(st.sampled_from(VERSIONS))
    partitions = st.builds(
        Partition,
        partition_index=st.integers(-1, 6) | INT,
        committed_offset=LONG,
        committed_leader_epoch=INT if version >= 6 else st.just(-1),
        committed_metadata=st.none() | TEXT | st.text("a😀ä", max_size=12),
    )
    topics = st.builds(
        Topic,
        name=TEXT if version < BY_ID else st.just(""),
        topic_id=IDS if version >= BY_ID else st.just(bytes(16)),
        partitions=st.lists(partitions, max_size=5),
    )
    request = OffsetCommitRequest(
        group_id=draw(TEXT),
        generation_id_or_member_epoch=draw(INT),
        member_id=draw(TEXT),
        group_instance_id=draw(st.none() | TEXT) if version >= 7 else None,
        retention_time_ms=draw(LONG) if version <= 4 else -1,
        topics=draw(st.lists(topics, max_size=4)),
    )
    return version, request


class Twin:
    """The Python counterpart of the native OffsetCommit: the same steps on decoded message objects."""

    def __init__(self, request, found, rows, limit):
        """`found` contains the name and id of each topic, or None for an unknown topic."""
        self.request, self.found = request, found
        self.errors = [
            [UNKNOWN if where is None else self._error(each, rows, limit) for each in topic.partitions]
            for topic, where in zip(request.topics, found, strict=True)
        ]

    @staticmethod
    def _error(partition, rows, limit):
        index = partition.partition_index
        if not 0 <= index < len(rows) or rows[index] < 0:
            return UNKNOWN
        return TOO_LARGE if len((partition.committed_metadata or "").encode("utf-16-le")) > 2 * limit else 0

    def accepted(self):
        for topic, where, errors in zip(self.request.topics, self.found, self.errors, strict=True):
            for each, error in zip(topic.partitions, errors, strict=True):
                if not error:
                    yield *where, each

    def records(self, expires):
        for name, topic_id, each in self.accepted():
            key = OffsetCommitKey(group=self.request.group_id, topic=name, partition=each.partition_index)
            value = OffsetCommitValue(
                offset=each.committed_offset, metadata=each.committed_metadata or "", commit_timestamp=NOW_MS
            )
            if expires == -1:
                value.leader_epoch, value.topic_id = each.committed_leader_epoch, topic_id
            else:
                value.expire_timestamp = expires
            version = 4 if expires == -1 else 1
            yield pack(">h", 1) + key.encode(0), pack(">h", version) + value.encode(version)

    def response(self, error):
        """Returns a response in which each requested partition has the error."""
        topic_class = OffsetCommitResponse.OffsetCommitResponseTopic
        partition_class = OffsetCommitResponse.OffsetCommitResponsePartition
        return OffsetCommitResponse(
            topics=[
                topic_class(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        partition_class(
                            partition_index=each.partition_index, error_code=own if own == UNKNOWN else error or own
                        )
                        for each, own in zip(topic.partitions, errors, strict=True)
                    ],
                )
                for topic, errors in zip(self.request.topics, self.errors, strict=True)
            ]
        )


@settings(max_examples=60)
@given(requests(), st.data())
def test_commit_is_recorded_and_answered_like_its_message(asked, data):
    version, request = asked
    commit = OffsetCommit(request.encode(version) + data.draw(st.binary(max_size=2)), version)
    for field in ("group_id", "generation_id_or_member_epoch", "member_id", "group_instance_id", "retention_time_ms"):
        assert getattr(commit, field) == getattr(request, field)
    assert commit.message() == request
    rows = array("i", data.draw(st.lists(st.integers(-1, 3), max_size=6)))
    limit, expires = data.draw(st.sampled_from([0, 4, 4096])), data.draw(st.just(-1) | LONG)
    found = []
    for number, topic in enumerate(request.topics):
        if not data.draw(st.booleans()):
            found.append(None)
            commit.refuse(number, UNKNOWN)
            continue
        where = (data.draw(TEXT), topic.topic_id) if version >= BY_ID else (topic.name, data.draw(IDS))
        found.append(where)
        commit.find(number, *where, rows, UNKNOWN)
    commit.accept(NOW_MS, expires, limit, TOO_LARGE)
    twin = Twin(request, found, rows, limit)
    expected = list(twin.records(expires))
    assert list(commit) == expected
    assert len(commit) == len(expected)
    left = [[error == 0 for error in errors] for errors in twin.errors]
    assert commit.accepted() == [number for number, each in enumerate(left) if any(each)]
    assert [len(commit.partitions(number)) for number in range(len(left))] == [sum(each) for each in left]
    names = [topic.name for topic in request.topics]
    assert commit.names == [said if where is None else where[0] for said, where in zip(names, found, strict=True)]
    builder = RecordBatchBuilder()
    assert builder.append_all(NOW_MS, commit)
    written = [(each.key, each.value) for batch in Batches(builder.build()) for each in batch]
    assert written == expected
    for error in (0, NOT_COORDINATOR):
        commit.error = error
        assert commit.response(b"head") == b"head" + twin.response(error).encode(version)


def decoded(body, version):
    return OffsetCommitRequest.decode_prefix(body, version)[0]


def tried(read, body, version):
    """Returns the decoded request, or the error that decoding it raises."""
    try:
        return read(body, version), None
    except ProtocolError as error:
        return None, str(error)


@settings(max_examples=120)
@given(requests(), st.data())
def test_both_refuse_invalid_bytes(asked, data):
    """Some requests are truncated, and others contain changed bytes."""
    version, request = asked
    frame = bytearray(request.encode(version))
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    body = bytes(frame[: data.draw(st.integers(0, len(frame)))] if data.draw(st.booleans()) else frame)
    (message, error), (commit, other) = (tried(each, body, version) for each in (decoded, OffsetCommit))
    assert error == other
    if message is None:
        return
    assert (commit.group_id, commit.member_id) == (message.group_id, message.member_id)
    assert [commit.partitions(number) for number in range(len(commit.names))] == [
        [each.partition_index for each in topic.partitions] for topic in message.topics
    ]


@pytest.mark.parametrize("count", [1_000_000, 0x7FFFFFFF])
def test_counts_beyond_the_limit_of_a_request_are_refused(count):
    """Some of the requests contain partitions that exist, and some contain partitions that do not."""
    head = pack(">h1sih1sq", 1, b"g", -1, 1, b"m", -1) + pack(">ih1si", 1, 1, b"t", count)
    partitions = (pack(">iqh", 1, 2, -1) * count) if count == 1_000_000 else b""
    for refuses in (OffsetCommit, decoded):
        with pytest.raises(ProtocolError):
            refuses(head + partitions, 2)


def test_unknown_version_is_refused():
    for version in (VERSIONS[0] - 1, VERSIONS[-1] + 1, -1):
        with pytest.raises(UnsupportedVersionError):
            OffsetCommit(b"", version)


def test_batch_is_unchanged_when_a_commit_does_not_fit():
    request = OffsetCommitRequest(
        group_id="g", topics=[Topic(name="t", partitions=[Partition(partition_index=index) for index in range(1_100)])]
    )
    commit = OffsetCommit(request.encode(9), 9)
    commit.accept(NOW_MS, -1, 4096, TOO_LARGE)
    builder = RecordBatchBuilder(limit_bytes=20_000)
    assert builder.append(NOW_MS, b"k", b"v")
    assert not builder.append_all(NOW_MS, commit)
    assert [(each.key, each.value) for batch in Batches(builder.build()) for each in batch] == [(b"k", b"v")]


def test_texts_of_many_topics_are_decoded_in_parts():
    names = [f"topic-{number}" for number in range(5_000)]
    topics = [Topic(name=name, partitions=[Partition(partition_index=0)]) for name in names]
    body = OffsetCommitRequest(group_id="g", topics=topics).encode(9)
    commit, wrong = OffsetCommit(body, 9), OffsetCommit(body.replace(b"topic-4999", b"topic-\xff999"), 9)
    parts = 1
    while not commit.is_read:
        assert commit.names == names[: len(commit.names)]
        commit.read_more()
        parts += 1
    assert parts > 1
    assert commit.names == names
    with pytest.raises(ProtocolError, match="UTF-8"):
        while not wrong.is_read:
            wrong.read_more()


def test_missing_topics_and_invalid_ids_are_refused():
    request = OffsetCommitRequest(group_id="g", topics=[Topic(name="t", partitions=[Partition(partition_index=0)])])
    commit, rows = OffsetCommit(request.encode(9), 9), array("i", [0])
    for number in (-1, 1):
        for call in (commit.topic_id, commit.partitions, lambda at: commit.refuse(at, 1)):
            with pytest.raises(IndexError):
                call(number)
        with pytest.raises(IndexError):
            TopicOffsets().take(commit, number, 0)
    for wrong in (b"short", "x" * 16):
        with pytest.raises(ValueError, match="16 bytes"):
            commit.find(0, "t", wrong, rows, UNKNOWN)
        with pytest.raises(ValueError, match="16 bytes"):
            TopicOffsets().put(0, 1, 2, "", 3, -1, wrong, 0)
    with pytest.raises(ValueError, match="name"):
        commit.find(0, "t" * 32_768, bytes(16), rows, UNKNOWN)


# --- rows ---

ROWS = st.tuples(LONG, INT, TEXT, LONG, LONG, IDS)
PLACES = st.integers(0, 40) | INT | st.sampled_from([-(2**31), 2**31 - 1])
LOG_PLACES = st.integers(0, 8) | st.sampled_from([0, 2**63 - 1])
STEPS = st.one_of(
    st.tuples(st.just("put"), PLACES, LOG_PLACES, ROWS),
    st.tuples(st.just("remove"), PLACES, LOG_PLACES, st.none()),
    st.tuples(st.just("commit"), st.lists(st.integers(0, 30), max_size=30), LOG_PLACES, st.tuples(LONG, TEXT)),
)


def committed(indexes, offset, metadata):
    partitions = [
        Partition(partition_index=index, committed_offset=offset, committed_metadata=metadata) for index in indexes
    ]
    request = OffsetCommitRequest(group_id="g", topics=[Topic(name="t", partitions=partitions)])
    commit = OffsetCommit(request.encode(9), 9)
    commit.find(0, "t", bytes(range(16)), array("i", range(25)), UNKNOWN)
    commit.accept(NOW_MS, 7, 4096, TOO_LARGE)
    return commit


@settings(max_examples=80)
@given(st.lists(STEPS, max_size=40))
def test_rows_agree_with_a_dict(steps):
    """A later step may replace the offset of a partition only with an offset that has a later position in the log."""
    rows, twin, stands = TopicOffsets(), {}, {}
    for step, place, at, what in steps:
        named = place if step == "commit" else [place]
        new = [each for each in named if stands.get(each, at) <= at]
        if step == "put":
            rows.put(place, *what, at)
            twin.update(dict.fromkeys(new, what))
        elif step == "remove":
            assert rows.remove(place, at) == any(twin.pop(each, None) for each in new)
        else:
            commit = committed(place, *what)
            rows.take(commit, 0, at)
            del commit  # frees the memory of the request
            new = [each for each in new if each < 25]
            twin.update(dict.fromkeys(new, (what[0], -1, what[1], NOW_MS, 7, bytes(range(16)))))
        stands |= dict.fromkeys(new, at)
        stands = {each: stands[each] for each in twin}
        assert len(rows) == len(twin)
    assert dict(rows.items()) == twin
    assert sorted(rows) == sorted(twin)
    for place in {*twin, 0, 41}:
        assert rows.get(place) == twin.get(place)
        assert (place in rows) == (place in twin)
