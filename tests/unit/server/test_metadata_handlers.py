"""Metadata, DescribeTopicPartitions and DescribeCluster. The image has three brokers, and one of them is fenced."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.metadata.answers import WholeAnswers
from kafkacore.metadata.edit import Edit
from kafkacore.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    FeatureLevelRecord,
    MetadataRequest,
    MetadataResponse,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.slices import finish_now
from kafkacore.server.dispatch import Cacheable
from kafkacore.server.handlers.broker import describe_cluster, describe_topic_partitions, metadata

DIRECTORY = Uuid(b"d" * 16)
ID_A, ID_B = Uuid(b"a" * 16), Uuid(b"b" * 16)


def broker(broker_id: int, *, fenced: bool = False, listener: str = "PLAINTEXT") -> Any:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=broker_id,
        incarnation_id=Uuid(bytes([broker_id]) * 16),
        end_points=[RegisterBrokerRecord.BrokerEndpoint(name=listener, host=f"h{broker_id}", port=9090 + broker_id)],
        fenced=fenced,
        log_dirs=[DIRECTORY],
        rack=f"r{broker_id}",
    )


def partition(topic_id: Uuid, index: int, leader: int, replicas: list[int], isr: list[int]) -> Any:
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=3,
        partition_epoch=5,
        directories=[DIRECTORY] * len(replicas),
    )


def image() -> MetadataImage:
    edit = Edit(EMPTY_IMAGE)
    edit.replay_batch(
        [
            FeatureLevelRecord(name="metadata.version", feature_level=29),
            broker(1),
            broker(2, fenced=True),
            broker(3, listener="OTHER"),
            TopicRecord(name="a", topic_id=ID_A),
            partition(ID_A, 0, 1, [1], [1]),
            partition(ID_A, 1, 1, [1, 2], [1, 2]),
            partition(ID_A, 2, -1, [2], [2]),
            partition(ID_A, 3, 3, [3], [3]),
            TopicRecord(name="__consumer_offsets", topic_id=ID_B),
            partition(ID_B, 0, 1, [1], [1]),
        ],
        0,
    )
    return edit.freeze(10, 1, 1)


class Auto:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def request(self, names: list[str]) -> None:
        self.asked += names


def context(*, auto: bool = True) -> Any:
    return SimpleNamespace(
        image=image(),
        node_id=1,
        cluster_id="c",
        config=SimpleNamespace(auto_create_topics_enable=auto, max_request_partition_size_limit=2000),
        auto_topics=Auto(),
        partition_answers={},
        whole_answers=WholeAnswers(),
        controller_seen=lambda view: view.any_alive_broker(1),
    )


def ask(version: int, topics: Any, ctx: Any = None, **fields: Any) -> Any:
    wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(**each) for each in topics]
    request = MetadataRequest(topics=wanted, **fields)
    response = finish_now(
        metadata.handle(ctx or context(), RequestContext(3, version, 0, None, "PLAINTEXT", ""), request)
    )
    if isinstance(response, Cacheable):
        response = response.response
    if isinstance(response, bytes):
        return MetadataResponse.decode(response[len(apis.response_header(3, version, 0)) :], version)
    return MetadataResponse.decode(response.encode(version), version)


def test_brokers_are_the_unfenced_ones_with_this_listener() -> None:
    told = ask(12, [])
    assert [(each.node_id, each.host, each.port, each.rack) for each in told.brokers] == [(1, "h1", 9091, "r1")]
    assert (told.cluster_id, told.controller_id, told.topics) == ("c", 1, [])


def test_all_topics_with_leaders_and_errors() -> None:
    told = {topic.name: topic for topic in ask(12, None).topics}
    assert told["__consumer_offsets"].is_internal and not told["a"].is_internal
    rows = [
        (
            each.partition_index,
            each.error_code,
            each.leader_id,
            each.leader_epoch,
            each.replica_nodes,
            each.offline_replicas,
        )
        for each in told["a"].partitions
    ]
    assert rows == [
        (0, ErrorCode.NONE, 1, 3, [1], []),
        (1, ErrorCode.NONE, 1, 3, [1, 2], [2]),
        (2, ErrorCode.LEADER_NOT_AVAILABLE, -1, 3, [2], [2]),
        (3, ErrorCode.LISTENER_NOT_FOUND, -1, 3, [3], [3]),
    ]


def test_old_versions_have_their_own_errors() -> None:
    [topic] = ask(0, [{"name": "a"}]).topics
    assert [each.error_code for each in topic.partitions] == [
        ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE,
    ]  # fmt: skip
    assert [each.replica_nodes for each in topic.partitions] == [[1], [1], [], []]
    assert len(ask(0, []).topics) == 2


def test_metadata_is_found_by_topic_id() -> None:
    unknown = Uuid(b"x" * 16)
    told = ask(12, [{"topic_id": ID_A, "name": None}, {"topic_id": unknown, "name": None}]).topics
    assert [(each.name, each.topic_id, each.error_code) for each in told] == [
        ("a", ID_A, 0), (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]  # fmt: skip
    with pytest.raises(Exception, match="cannot ask by topic id") as refused:
        ask(10, [{"topic_id": ID_A, "name": "a"}])
    assert refused.value.code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]


def test_absent_topic_is_created_when_client_and_broker_allow_it() -> None:
    ctx = context()
    told = ask(12, [{"name": "new"}, {"name": "bad name"}, {"name": "new"}], ctx).topics
    assert [(each.name, each.error_code) for each in told] == [
        ("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]  # fmt: skip
    assert ctx.auto_topics.asked == ["new"]
    for refusing, allowed in ((context(auto=False), True), (context(), False)):
        ask(12, [{"name": "new"}], refusing, allow_auto_topic_creation=allowed)
        assert refusing.auto_topics.asked == []


def test_authorized_operations_are_shown_on_request() -> None:
    told = ask(8, None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
    assert told.cluster_authorized_operations > 0
    assert all(topic.topic_authorized_operations > 0 for topic in told.topics)
    assert ask(8, None).cluster_authorized_operations < 0


def describe(names: list[str], limit: int, cursor: tuple[str, int] | None = None) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
    )
    if cursor is not None:
        request.cursor = DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1])
    response = finish_now(
        describe_topic_partitions.handle(context(), RequestContext(75, 0, 0, None, "PLAINTEXT", ""), request)
    )
    response.encode(0)
    return response


def pages(names: list[str], limit: int) -> list[list[tuple[str, int]]]:
    found, cursor = [], None
    while True:
        told = describe(names, limit, cursor)
        found.append([(topic.name, each.partition_index) for topic in told.topics for each in topic.partitions])
        if told.next_cursor is None:
            return found
        cursor = (told.next_cursor.topic_name, told.next_cursor.partition_index)


def test_pages_show_every_partition_once_in_order() -> None:
    everything = [("__consumer_offsets", 0), ("a", 0), ("a", 1), ("a", 2), ("a", 3)]
    for limit in range(1, 7):
        told = pages([], limit)
        assert [row for page in told for row in page] == everything
        assert all(len(page) <= limit for page in told)


def test_absent_topics_are_reported_when_named() -> None:
    told = describe(["a", "nope", "bad name"], 100)
    assert [(each.name, each.error_code) for each in told.topics] == [
        ("a", 0), ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION), ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]  # fmt: skip


@pytest.mark.parametrize("cursor", [("b", 0), ("a", -1)])
def test_invalid_cursor_is_refused(cursor: tuple[str, int]) -> None:
    with pytest.raises(Exception, match="cursor"):
        describe(["a"], 10, cursor)


def cluster(version: int, **fields: Any) -> Any:
    request = DescribeClusterRequest(**fields)
    response = describe_cluster.handle(context(), RequestContext(60, version, 0, None, "PLAINTEXT", ""), request)
    response.encode(version)
    return response


def test_describe_cluster_shows_alive_brokers_and_fenced_ones_on_request() -> None:
    assert [each.broker_id for each in cluster(1).brokers] == [1]
    assert [(each.broker_id, each.is_fenced) for each in cluster(2, include_fenced_brokers=True).brokers] == [
        (1, False), (2, True),
    ]  # fmt: skip
    assert cluster(1, include_cluster_authorized_operations=True).cluster_authorized_operations > 0


@pytest.mark.parametrize(
    ("kind", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_another_endpoint_type_is_refused(kind: int, code: int) -> None:
    with pytest.raises(Exception, match="type") as refused:
        cluster(1, endpoint_type=kind)
    assert refused.value.code == code  # type: ignore[attr-defined]
