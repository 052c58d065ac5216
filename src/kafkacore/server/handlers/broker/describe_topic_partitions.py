"""DescribeTopicPartitions: as Metadata, page by page, with eligible leader replicas (KIP-966)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.partitions import Partition as PartitionImage
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from kafkacore.server.authorized import TOPIC_OPERATIONS
from kafkacore.server.context import BrokerContext
from kafkacore.server.metadata_view import MetadataView
from kafkacore.storage.names import INTERNAL_TOPICS, topic_name_problem

NO_LEADER: Final = -1

Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
Cursor = DescribeTopicPartitionsResponse.Cursor


def handle(
    broker: BrokerContext, call: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    view = MetadataView(broker.image, call.listener)
    names, first_index = _from_cursor(view.image, request)
    limit = max(1, min(request.response_partition_limit, broker.config.max_request_partition_size_limit))
    response = DescribeTopicPartitionsResponse()
    left = limit
    for name in names:
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        start, first_index = first_index, 0
        known = view.image.topic(name)
        if known is None:
            if request.topics:
                response.topics.append(_absent(name))
            continue
        rows = [row for row in known.partition_rows if row >= 0]
        shown = rows[start : start + left]
        topic = Topic(name=name, topic_id=known.topic_id, is_internal=name in INTERNAL_TOPICS)
        topic.topic_authorized_operations = TOPIC_OPERATIONS
        topic.partitions = [_partition(view, view.image.partition_at(row)) for row in shown]
        response.topics.append(topic)
        if start + len(shown) < len(rows):
            response.next_cursor = Cursor(topic_name=name, partition_index=start + len(shown))
            break
        left -= len(shown)
    return response


def _from_cursor(image: MetadataImage, request: Any) -> tuple[Iterable[str], int]:
    """The names to go on with, in order, and the first one's first partition."""
    names = {topic.name for topic in request.topics} if request.topics else set(image.topics_by_name)
    cursor = request.cursor
    if cursor is None:
        return sorted(names), 0
    if request.topics and cursor.topic_name not in names:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"The cursor is at topic {cursor.topic_name}, which is not among the topics asked for.",
        )
    if cursor.partition_index < 0:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"The cursor is at partition {cursor.partition_index}; partitions begin at 0.",
        )
    rest = sorted(name for name in names if name >= cursor.topic_name)
    # The topic under the cursor may have been deleted since: then the next one is shown from its start.
    return rest, cursor.partition_index if rest[:1] == [cursor.topic_name] else 0


def _absent(name: str) -> Topic:
    legal = topic_name_problem(name) is None
    return Topic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
    )


def _partition(view: MetadataView, state: PartitionImage) -> Partition:
    return Partition(
        partition_index=state.partition,
        leader_id=state.leader if view.endpoint(state.leader) is not None else NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=list(state.last_known_elr),
        offline_replicas=view.offline_replicas(state),
    )
