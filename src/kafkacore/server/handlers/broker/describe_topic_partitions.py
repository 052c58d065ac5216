"""DescribeTopicPartitions: returns what Metadata returns, but in pages and with eligible leader replicas (KIP-966)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Final

from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.partitions import Partition as PartitionImage
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from kafkacore.runtime.slices import Work, distinct, sorted_in_slices
from kafkacore.server.authorized import TOPIC_OPERATIONS
from kafkacore.server.context import BrokerContext
from kafkacore.server.metadata_view import MetadataView
from kafkacore.storage.names import INTERNAL_TOPICS, topic_name_problem

NO_LEADER: Final = -1
_NAMES_AT_ONCE: Final = 1_000

Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
Cursor = DescribeTopicPartitionsResponse.Cursor


def handle(
    broker: BrokerContext, call: RequestContext, request: DescribeTopicPartitionsRequest
) -> Work[DescribeTopicPartitionsResponse]:
    view = MetadataView(broker.image, call.listener)
    limit = max(1, min(request.response_partition_limit, broker.config.max_request_partition_size_limit))
    if request.topics:
        asked = yield from distinct(topic.name for topic in request.topics)
        names = yield from sorted_in_slices(_from_cursor(request, asked))
    else:
        _check_index(request)
        # Each topic has at least one partition, so a page cannot have more topics than partitions.
        names = yield from _first_names(view.image, request, limit + 1)
    response = DescribeTopicPartitionsResponse()
    left = limit
    for name in names:
        yield
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        known = view.image.topic(name)
        if known is None:
            if request.topics:
                response.topics.append(_absent(name))
            continue
        rows = [row for row in known.partition_rows if row >= 0]
        # The cursor's topic may have been deleted in the meantime. Then the page starts with the first partition of the
        # next topic.
        cursor = request.cursor
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        shown = rows[start : start + left]
        topic = Topic(name=name, topic_id=known.topic_id, is_internal=name in INTERNAL_TOPICS)
        topic.topic_authorized_operations = TOPIC_OPERATIONS
        for row in shown:
            topic.partitions.append(_partition(view, view.image.partition_at(row)))
            yield
        response.topics.append(topic)
        if start + len(shown) < len(rows):
            response.next_cursor = Cursor(topic_name=name, partition_index=start + len(shown))
            break
        left -= len(shown)
    return response


def _from_cursor(request: DescribeTopicPartitionsRequest, names: Mapping[str, None]) -> Iterable[str]:
    """Returns the requested names, starting at the cursor. Raises INVALID_REQUEST."""
    cursor = request.cursor
    if cursor is None:
        return names
    if cursor.topic_name not in names:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"The cursor is at topic {cursor.topic_name}, which is not among the requested topics.",
        )
    _check_index(request)
    return (name for name in names if name >= cursor.topic_name)


def _check_index(request: DescribeTopicPartitionsRequest) -> None:
    if request.cursor is not None and request.cursor.partition_index < 0:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"The cursor is at partition {request.cursor.partition_index}; partitions begin at 0.",
        )


def _first_names(image: MetadataImage, request: DescribeTopicPartitionsRequest, count: int) -> Work[list[str]]:
    """Returns the first `count` names of all topics, in order, starting at the cursor."""
    begin = "" if request.cursor is None else request.cursor.topic_name
    first: list[str] = []
    some: list[str] = []
    for number, topic in enumerate(image.topics(), 1):
        if topic.name >= begin:
            some.append(topic.name)
        if not number % _NAMES_AT_ONCE:
            first, some = heapq.nsmallest(count, [*first, *some]), []
            yield
    return heapq.nsmallest(count, [*first, *some])


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
