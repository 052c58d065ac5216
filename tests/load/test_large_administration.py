"""While one client sends the controller the largest possible request, the controller continues to serve all other
clients.
"""

from attacks import HonestClient, Question, attack
from brokers import Node
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
)

BROKER_IDS = list(range(200_000))


def test_controller_serves_others_when_a_topic_names_200000_brokers(node: Node, honest: HonestClient) -> None:
    assignment = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=BROKER_IDS)
    topic = CreateTopicsRequest.CreatableTopic(
        name="broad", num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    answer = attack(node.bootstrap, Question(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7), honest)
    assert [(each.name, each.error_code) for each in answer.topics] == [("broad", ErrorCode.INVALID_REPLICA_ASSIGNMENT)]


def test_controller_serves_others_when_a_new_partition_names_200000_brokers(node: Node, honest: HonestClient) -> None:
    assignment = CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=BROKER_IDS)
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name="attacked", count=2, assignments=[assignment])
    answer = attack(node.bootstrap, Question(CreatePartitionsRequest(topics=[topic], timeout_ms=30_000), 3), honest)
    assert [(each.name, each.error_code) for each in answer.results] == [
        ("attacked", ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    ]


def test_controller_serves_others_when_a_reassignment_names_one_partition_200000_times(
    node: Node, honest: HonestClient
) -> None:
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=[1])
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="attacked", partitions=[partition] * 200_000)
    answer = attack(
        node.bootstrap, Question(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=30_000), 0), honest
    )
    assert (answer.error_code, len(answer.responses[0].partitions)) == (ErrorCode.NONE, 200_000)
    first, *others = [each.error_code for each in answer.responses[0].partitions]
    assert (first, set(others)) == (ErrorCode.NONE, {ErrorCode.INVALID_REQUEST})
