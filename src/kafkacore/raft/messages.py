"""Raft's requests and responses. Each contains one topic and one partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kafkacore.protocol import messages as classes
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.uuid import METADATA_TOPIC_ID
from kafkacore.raft.answer_checks import check_leader
from kafkacore.raft.log import OffsetAndEpoch
from kafkacore.raft.voters import Endpoints, ReplicaKey, Voter

TOPIC: Final = "__cluster_metadata"
PARTITION: Final = 0
FETCH_MAX_WAIT_MS: Final = 500
FETCH_MAX_BYTES: Final = 1 << 20  # the default of controller.quorum.fetch.max.bytes
MAX_ANSWER_BYTES: Final = 8 << 20  # limit of the records in one response, even if the request allows more


def only(request: Any, topics: Sequence[Any], index_of: Callable[[Any], int]) -> Any | None:
    """Returns the request's partition if the request is only for the metadata log. Otherwise returns None."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic, partition = topics[0], topics[0].partitions[0]
    name = getattr(topic, "topic_name", None) or getattr(topic, "topic", None) or getattr(topic, "name", None)
    named = name == TOPIC or getattr(topic, "topic_id", None) == METADATA_TOPIC_ID
    return partition if named and index_of(partition) == PARTITION else None


def vote(cluster_id: str, voter: ReplicaKey, me: ReplicaKey, epoch: int, end: OffsetAndEpoch, pre_vote: bool) -> Any:
    partition = classes.VoteRequest.PartitionData(
        partition_index=PARTITION,
        replica_epoch=epoch,
        replica_id=me.replica_id,
        replica_directory_id=me.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=end.epoch,
        last_offset=end.offset,
        pre_vote=pre_vote,
    )
    return classes.VoteRequest(
        cluster_id=cluster_id,
        voter_id=voter.replica_id,
        topics=[classes.VoteRequest.TopicData(topic_name=TOPIC, partitions=[partition])],
    )


def begin_epoch(cluster_id: str, voter: ReplicaKey, leader_id: int, epoch: int, endpoints: Endpoints) -> Any:
    made = classes.BeginQuorumEpochRequest
    partition = made.PartitionData(
        partition_index=PARTITION, voter_directory_id=voter.directory_id, leader_id=leader_id, leader_epoch=epoch
    )
    return made(
        cluster_id=cluster_id,
        voter_id=voter.replica_id,
        topics=[made.TopicData(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[made.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in endpoints],
    )


def end_epoch(
    cluster_id: str, leader_id: int, epoch: int, successors: Sequence[ReplicaKey], endpoints: Endpoints
) -> Any:
    made = classes.EndQuorumEpochRequest
    partition = made.PartitionData(
        partition_index=PARTITION,
        leader_id=leader_id,
        leader_epoch=epoch,
        preferred_successors=[key.replica_id for key in successors],
        preferred_candidates=[
            made.ReplicaInfo(candidate_id=key.replica_id, candidate_directory_id=key.directory_id) for key in successors
        ],
    )
    return made(
        cluster_id=cluster_id,
        topics=[made.TopicData(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[made.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in endpoints],
    )


def fetch(
    cluster_id: str,
    me: ReplicaKey,
    epoch: int,
    end: OffsetAndEpoch,
    high_watermark: int,
    max_bytes: int = FETCH_MAX_BYTES,
) -> Any:
    partition = classes.FetchRequest.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        replica_directory_id=me.directory_id,
        high_watermark=high_watermark,
    )
    return classes.FetchRequest(
        cluster_id=cluster_id,
        replica_state=classes.FetchRequest.ReplicaState(replica_id=me.replica_id),
        max_wait_ms=FETCH_MAX_WAIT_MS,
        max_bytes=max_bytes,
        topics=[classes.FetchRequest.FetchTopic(topic=TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def fetch_snapshot(
    cluster_id: str,
    me: ReplicaKey,
    epoch: int,
    wanted: OffsetAndEpoch,
    position: int,
    max_bytes: int = FETCH_MAX_BYTES,
) -> Any:
    made = classes.FetchSnapshotRequest
    partition = made.PartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=epoch,
        snapshot_id=made.SnapshotId(end_offset=wanted.offset, epoch=wanted.epoch),
        position=position,
        replica_directory_id=me.directory_id,
    )
    return made(
        cluster_id=cluster_id,
        replica_id=me.replica_id,
        max_bytes=max_bytes,
        topics=[made.TopicSnapshot(name=TOPIC, partitions=[partition])],
    )


# For each response: the struct of a topic, the field with the topic's name, the struct of a partition, and the field
# that lists the topics.
_SHAPES: Final = {
    "VoteRequest": ("TopicData", "topic_name", "PartitionData", "topics"),
    "BeginQuorumEpochRequest": ("TopicData", "topic_name", "PartitionData", "topics"),
    "EndQuorumEpochRequest": ("TopicData", "topic_name", "PartitionData", "topics"),
    "FetchRequest": ("FetchableTopicResponse", "topic", "PartitionData", "responses"),
    "FetchSnapshotRequest": ("TopicSnapshot", "name", "PartitionSnapshot", "topics"),
}


def _response_class(request: Any) -> Any:
    return classes.message_class(request.NAME.removesuffix("Request") + "Response")


def refused(request: Any, error: int) -> Any:
    """Returns a response with an error for the whole request."""
    return _response_class(request)(error_code=error)


def answer(request: Any, leader: tuple[int, int], endpoint: tuple[str, int] | None, **values: Any) -> Any:
    """Returns a response for the metadata partition. `leader` is the pair (id, epoch). `endpoint` is the leader's
    address, if known.
    """
    response_class = _response_class(request)
    topic_name, name_field, partition_name, topics_field = _SHAPES[request.NAME]
    topic_class, partition_class = getattr(response_class, topic_name), getattr(response_class, partition_name)
    fields = partition_class.FIELDS
    if "leader_id" in fields:
        values |= {"leader_id": leader[0], "leader_epoch": leader[1]}
    else:
        values["current_leader"] = response_class.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    partition = partition_class(**values)
    topic = topic_class(**{name_field: TOPIC, "partitions": [partition]})
    if "topic_id" in topic_class.FIELDS:
        topic.topic_id = METADATA_TOPIC_ID
    made = response_class(**{topics_field: [topic]})
    if endpoint is not None and leader[0] >= 0:
        made.node_endpoints = [response_class.NodeEndpoint(node_id=leader[0], host=endpoint[0], port=endpoint[1])]
    return made


def bounded_bytes(asked: int) -> int:
    """Returns the limit for the bytes of records in a response, if the request allows `asked` bytes."""
    return min(max(asked, 1), MAX_ANSWER_BYTES)


def answered(response: Any) -> tuple[int, Any | None]:
    """Returns the error and the partition in a response. The partition is None if the response contains only an error.
    Raises ImpossibleAnswerError if the response contains an impossible leader.
    """
    if response.error_code:
        return response.error_code, None
    topics = response.responses if response.NAME == "FetchResponse" else response.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return ErrorCode.UNKNOWN_SERVER_ERROR, None
    partition = topics[0].partitions[0]
    check_leader(*leader_of(partition))
    return partition.error_code, partition


def leader_of(partition: Any) -> tuple[int, int]:
    """Returns the leader's id and epoch from the partition in a response."""
    current = getattr(partition, "current_leader", partition)
    return current.leader_id, current.leader_epoch


def endpoint_of(response: Any, node_id: int) -> tuple[str, int] | None:
    for each in response.node_endpoints:
        if each.node_id == node_id:
            return each.host, each.port
    return None


def describe_quorum(
    leader: tuple[int, int], high_watermark: int, voters: list[Any], observers: list[Any], nodes: Sequence[Voter]
) -> Any:
    made = classes.DescribeQuorumResponse
    partition = made.PartitionData(
        partition_index=PARTITION,
        leader_id=leader[0],
        leader_epoch=leader[1],
        high_watermark=high_watermark,
        current_voters=voters,
        observers=observers,
    )
    return made(
        topics=[made.TopicData(topic_name=TOPIC, partitions=[partition])],
        nodes=[
            made.Node(
                node_id=voter.key.replica_id,
                listeners=[made.Listener(name=n, host=h, port=p) for n, h, p in voter.endpoints],
            )
            for voter in nodes
        ],
    )


def describe_error(request: Any, error: ErrorCode) -> Any:
    """Returns a DescribeQuorum response with this error for each partition of the request."""
    made = classes.DescribeQuorumResponse
    return made(
        topics=[
            made.TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    made.PartitionData(
                        partition_index=each.partition_index, error_code=error, error_message=error.message
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
