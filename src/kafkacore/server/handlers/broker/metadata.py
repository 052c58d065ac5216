"""Metadata: returns brokers, topics and the leaders of their partitions, from the committed image. A request can also
create topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafkacore.metadata.answers import PartitionAnswers
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.image import Topic as TopicImage
from kafkacore.metadata.partitions import Partition as PartitionImage
from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey, response_header
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.made_ids import shown
from kafkacore.protocol.messages import MetadataRequest, MetadataResponse
from kafkacore.protocol.uuid import ZERO, Uuid
from kafkacore.runtime.slices import Work, distinct
from kafkacore.server.authorized import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from kafkacore.server.context import BrokerContext
from kafkacore.server.dispatch import Cacheable
from kafkacore.server.metadata_view import MetadataView
from kafkacore.storage.names import INTERNAL_TOPICS, topic_name_problem

TOPIC_IDS_SINCE: Final = 12  # since this version, a request can contain topic ids instead of names (KIP-516)
LISTENER_NOT_FOUND_SINCE: Final = 6
NO_LEADER: Final = -1
NOT_ASKED_FOR: Final = -(1 << 31)

Broker = MetadataResponse.MetadataResponseBroker
Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponsePartition


def handle(broker: BrokerContext, call: RequestContext, request: MetadataRequest) -> Work[Cacheable | MetadataResponse]:
    view = MetadataView(broker.image, call.listener)
    image, shape = view.image, _Shape(broker, view, call)
    if request.topics is None or (call.api_version == 0 and not request.topics):
        return Cacheable((yield from _all_topics(broker, call, request, view, shape)), None)
    topics = yield from _wanted(broker, call, request, image, shape)
    response = _response(broker, request, view, topics)
    # A response with an error is not cached, so that a repeated request can create the missing topic. A response about
    # a topic without an id is not cached either: when a topic changes, the cache finds the affected responses by the
    # topic's id.
    if any(topic.error_code or topic.topic_id == ZERO for topic in topics):
        return response
    return Cacheable(response, frozenset(topic.topic_id for topic in topics))


def _all_topics(
    broker: BrokerContext, call: RequestContext, request: MetadataRequest, view: MetadataView, shape: _Shape
) -> Work[bytes]:
    """Returns the body of a response that lists all topics. Requests with the same listener and version share one body,
    until its content changes."""
    operations = request.include_topic_authorized_operations, request.include_cluster_authorized_operations
    key = (call.listener, call.api_version, *operations)
    body = broker.whole_answers.get(key, view.image)
    if body is None:
        topics = []
        for topic in view.image.topics():
            topics.append(shape.topic(topic))
            yield
        body = _response(broker, request, view, topics).encode(call.api_version)
        broker.whole_answers.put(key, view.image, body)
    return response_header(ApiKey.METADATA, call.api_version, call.correlation_id) + body


def _wanted(
    broker: BrokerContext, call: RequestContext, request: MetadataRequest, image: MetadataImage, shape: _Shape
) -> Work[list[Topic]]:
    asked = request.topics or []
    yield from _check(asked, call)
    topics: list[Topic] = []
    ids = yield from distinct(topic.topic_id for topic in asked if topic.topic_id != ZERO)
    for topic_id in ids:
        topics.append(_by_id(shape, topic_id, image.topic_by_id(topic_id)))
        yield
    if ids:
        return topics
    absent: list[str] = []
    for name in (yield from distinct(topic.name or "" for topic in asked)):
        known = image.topic(name)
        if known is None:
            absent.append(name)
        else:
            topics.append(shape.topic(known))
        yield
    create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
    topics += yield from _absent(broker, absent, create=create)
    return topics


def _response(
    broker: BrokerContext, request: MetadataRequest, view: MetadataView, topics: list[Topic]
) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    return MetadataResponse(
        brokers=[
            Broker(node_id=each.broker_id, host=where.host, port=where.port, rack=each.rack)
            for each, where in view.alive_brokers()
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_seen(view),
        topics=topics,
    )


def _check(topics: Sequence[MetadataRequest.MetadataRequestTopic], call: RequestContext) -> Work[None]:
    if call.api_version >= TOPIC_IDS_SINCE:
        return
    for topic in topics:
        yield
        if topic.name is None:
            raise error_for(ErrorCode.INVALID_REQUEST, f"Metadata {call.api_version} requires a name for every topic.")
        if topic.topic_id != ZERO:
            raise error_for(ErrorCode.INVALID_REQUEST, f"Metadata {call.api_version} cannot ask by topic id.")


def _by_id(shape: _Shape, topic_id: Uuid, topic: TopicImage | None) -> Topic:
    if topic is None:
        return Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return shape.topic(topic)


def _absent(broker: BrokerContext, names: Sequence[str], *, create: bool) -> Work[list[Topic]]:
    """Returns the results for topics that do not exist. Clients retry after UNKNOWN_TOPIC_OR_PARTITION. By then, a
    topic that is being created exists."""
    topics: list[Topic] = []
    legal: list[str] = []
    for name in names:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
        if topic_name_problem(name) is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            legal.append(name)
        topics.append(Topic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS))
        yield
    if create and legal:
        broker.auto_topics.request(legal)
    return topics


class _Shape:
    """Encodes partitions for one listener in one version."""

    def __init__(self, broker: BrokerContext, view: MetadataView, call: RequestContext) -> None:
        self._view = view
        key = (call.listener, call.api_version)
        encoded = broker.partition_answers.get(key)
        if encoded is None:
            encoded = broker.partition_answers[key] = PartitionAnswers(*key)
        self._encoded = encoded
        self._alive = {each.broker_id for each, _ in view.alive_brokers()}
        # Version 0 leaves out replicas that cannot be reached. Later versions list them as offline.
        self._filter = call.api_version == 0
        self._no_listener = (
            ErrorCode.LISTENER_NOT_FOUND
            if call.api_version >= LISTENER_NOT_FOUND_SINCE
            else ErrorCode.LEADER_NOT_AVAILABLE
        )

    def topic(self, topic: TopicImage) -> Topic:
        return Topic(
            name=topic.name,
            topic_id=shown(topic.topic_id),
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=self._encoded.partitions(self._view.image, topic)
            or [self._partition(state) for state in self._view.partitions(topic)],
        )

    def _partition(self, state: PartitionImage) -> Partition:
        replicas, isr = self._shown(state.replicas), self._shown(state.isr)
        error = ErrorCode.NONE
        reachable = self._view.endpoint(state.leader) is not None
        if state.leader not in self._view.image.brokers:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        elif not reachable:
            error = self._no_listener
        elif len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        return Partition(
            error_code=error,
            partition_index=state.partition,
            leader_id=state.leader if reachable else NO_LEADER,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=self._view.offline_replicas(state),
        )

    def _shown(self, ids: Sequence[int]) -> list[int]:
        return [each for each in ids if each in self._alive] if self._filter else list(ids)
