"""While one client names as many things as fit into a request, the broker's handler loop continues to serve all other
clients.
"""

from collections.abc import Callable
from typing import Any

import pytest

from attacks import HonestClient, Question, attack, find_coordinators, metadata
from brokers import Node
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)

TOPIC, GROUP = 2, 32
TIMEOUT_MS = 30_000


def describe_configs(resource_type: int, names: list[str]) -> Question:
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=None
        )
        for name in names
    ]
    return Question(DescribeConfigsRequest(resources=resources), 4)


def delete_records(partitions: list[int]) -> Question:
    named = [DeleteRecordsRequest.DeleteRecordsPartition(partition_index=each, offset=0) for each in partitions]
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="attacked", partitions=named)
    return Question(DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 2)


def describe_groups(groups: list[str]) -> Question:
    return Question(DescribeGroupsRequest(groups=groups), 5)


def fetch_offsets(groups: list[str]) -> Question:
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="attacked", partition_indexes=[0])
    asked = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=each, topics=[topic]) for each in groups]
    return Question(OffsetFetchRequest(groups=asked), 8)


def commit_offsets(topics: list[str]) -> Question:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    named = [OffsetCommitRequest.OffsetCommitRequestTopic(name=each, partitions=[partition]) for each in topics]
    return Question(OffsetCommitRequest(group_id="attacked", topics=named), 8)


def list_groups(states: list[str]) -> Question:
    return Question(ListGroupsRequest(states_filter=states), 4)


def codes(parts: Any) -> tuple[int, set[int]]:
    """Returns the number of parts in an answer, and the set of their error codes."""
    found = [each.error_code for each in parts]
    return len(found), set(found)


def names(count: int) -> list[str]:
    return [f"name-{number}" for number in range(count)]


REQUESTS: dict[str, tuple[Callable[[], Question], Callable[[Any], object], object]] = {
    "DescribeConfigs of 20,000 groups": (
        lambda: describe_configs(GROUP, names(20_000)),
        lambda answer: codes(answer.results),
        (20_000, {ErrorCode.NONE}),
    ),
    "FindCoordinator of 150,000 keys": (
        lambda: find_coordinators(names(150_000)),
        lambda answer: codes(answer.coordinators),
        (150_000, {ErrorCode.NONE}),
    ),
    "DescribeGroups of 300,000 groups": (
        lambda: describe_groups(names(300_000)),
        lambda answer: len(answer.groups),
        300_000,
    ),
    "Metadata of 200,000 topics": (
        lambda: metadata(*names(200_000)),
        lambda answer: codes(answer.topics),
        (200_000, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    ),
    "DeleteRecords of 200,000 partitions": (
        lambda: delete_records(list(range(1, 200_001))),
        lambda answer: codes(answer.topics[0].partitions),
        (200_000, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    ),
    "OffsetFetch of 40,000 groups": (
        lambda: fetch_offsets(names(40_000)),
        lambda answer: codes(answer.groups),
        (40_000, {ErrorCode.NONE}),
    ),
    "OffsetCommit of 400,000 topics": (
        lambda: commit_offsets(names(400_000)),
        lambda answer: codes(each.partitions[0] for each in answer.topics),
        (400_000, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    ),
    "ListGroups in 300,000 states": (
        lambda: list_groups(names(300_000)),
        lambda answer: (answer.error_code, answer.groups),
        (ErrorCode.NONE, []),
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_broker_serves_others_when_a_request_names_very_many_things(
    node: Node, honest: HonestClient, name: str
) -> None:
    question, summary, expected = REQUESTS[name]
    answer = attack(node.bootstrap, question(), honest)
    assert summary(answer) == expected


def test_broker_serves_others_when_the_configs_of_2000_topics_are_described(node: Node, honest: HonestClient) -> None:
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names(2_000)
    ]
    attack(node.bootstrap, Question(CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS), 7))
    honest.forget()
    answer = attack(node.bootstrap, describe_configs(TOPIC, names(2_000)), honest)
    assert codes(answer.results) == (2_000, {ErrorCode.NONE})
    assert all(each.configs for each in answer.results)


def test_broker_serves_others_when_a_request_names_one_partition_40000_times(node: Node, honest: HonestClient) -> None:
    answer = attack(node.bootstrap, delete_records([0] * 40_000), honest)
    assert {each.error_code for each in answer.topics[0].partitions} <= {ErrorCode.NONE, ErrorCode.INVALID_REQUEST}
